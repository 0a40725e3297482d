"""The declared steps as operators over columns of rows: the base class, and the operators that keep no state.

An operator takes `Records` and pushes `Records` to its children, synchronously, one chunk at a time; the hot ones are one list
comprehension each. It asks them for the form in which it needs them: lists of objects, or columns. Work that must be awaited is deferred:
the operator calls `env.defer(...)`, and the task's actor awaits the work, in order, after the synchronous part. So the task awaits only
where the user asked for it.

The effects of a chunk are kept apart until it is complete: tables and combined rows have `complete()` and `drop()`. At a commit, `seal()`
emits what is better emitted once per commit than once per row (updates of aggregates, combined partial states).

Whatever can be refused is refused while the letter runs, at the latest in `prepare()`; `complete()` only applies changes and cannot fail.

An exception of user code is re-raised as a `UserCodeError` that names the step. Operators do not decide what happens then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType, TracebackType
from typing import Any, Protocol

from ....core.batching.batch_progress import StepBatches
from ....core.errors import DataError, HeadgateError, cause_for
from ....core.graph.graph import Graph
from ....core.names import StreamPartition
from ...cancellation import passes, said
from ...job.steps.rows import FilterStep, FlatMapStep, MapStep, PeekStep, RekeyStep
from ...job.steps.step import Step
from ...measured import Meter
from ...patience import Patience
from ...records.columns.batch import Batch
from ...records.columns.records import Records
from ...records.columns.selecting import Column, column_of, lacking
from ...records.frames.arrow_frames import FrameWriter
from ...records.kafka.spans import SpannedRecords
from ...records.kafka.writable import check_headers, check_times
from ...records.layout import Buffer
from ...records.values.keys import KeyRefused, KeyUnreadable, output_column
from ...records.values.record import SAME_TIME, Headers, Record
from ...records.values.serdes import KEY, OUTPUT_KEY, Encoded, dumps_made
from ...tracing.traces import Traces
from .letter import LetterPart
from .user_line import near, user_line

BYTES, VALUES = "bytes", "values"
"""The form in which an operator may need keys."""


NONE_FOUND: Mapping[int, UserCodeError] = MappingProxyType({})


class UserCodeError(HeadgateError):
    """A user function raised. `step` says where; `__cause__` is the exception. The message begins with the line of the user's code.

    `all`: by record of the letter's chunk, the errors of all records on which this step fails by itself, whatever the others are. Empty if
    they are not known.
    """

    def __init__(
        self,
        step: Step,
        cause: BaseException,
        index: int | None = None,
        hint: str = "",
        *,
        found: Mapping[int, UserCodeError] = NONE_FOUND,
    ) -> None:
        self.step = step
        self.index = index
        self.all = found
        name = f" '{step.name}'" if step.name else ""
        what = f": {cause}" if isinstance(cause, HeadgateError) else f" raised {said(cause)}"
        self._line = user_line(cause, step)
        self._said = f"{step.verb}{name} ({near(step.where, self._line)}){what}{'; ' if hint else ''}{hint}"
        super().__init__(self.of(""))
        self.__cause__ = cause_for(self, cause)

    def of(self, what: str) -> str:
        """The message for what it failed on (a record, a batch): the user's line, then this, then the step and what was raised."""
        return ": ".join(part for part in (self._line, what, self._said) if part)


def failing(step: Step, bad: Sequence[tuple[int, BaseException]], rows: Records) -> UserCodeError:
    """The error of the first of these rows, which all fail by themselves. It names all their records, if they are known."""
    found: dict[int, UserCodeError] = {}
    if (places := rows.places) is not None:
        for place, cause in bad:
            found.setdefault(places[place], UserCodeError(step, cause, place))
    place, cause = bad[0]
    return UserCodeError(step, cause, place, found=found)


class Uncaught(HeadgateError):
    """User code that belongs to no step raised something that is not an `Exception`; `__cause__` is what it raised."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"user code raised {said(cause)}")
        self.__cause__ = cause


class blaming:
    """Whatever user code raises in this block becomes a `UserCodeError` of this step. A requested cancellation passes unchanged."""

    __slots__ = ("hint_of", "step")

    def __init__(self, step: Step, hint_of: Callable[[BaseException], str] | None = None) -> None:
        """`hint_of` returns what the message should add about the rows, given the error."""
        self.step = step
        self.hint_of = hint_of

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None or isinstance(error, UserCodeError) or passes(error):
            return
        hint = self.hint_of(error) if self.hint_of is not None else ""
        raise UserCodeError(self.step, error, getattr(error, "index", None), hint) from error


class Env(Protocol):
    """What operators need of the task that runs them; `agents.operators.pipeline.pipeline.Pipeline` implements it."""

    @property
    def task(self) -> str: ...
    @property
    def app(self) -> Any:
        """The app, for its default serdes."""
        ...

    @property
    def graph(self) -> Graph:
        """The checked graph of the job."""
        ...

    wants_commit: bool
    push_result: Callable[[Operator, Records], None] | None
    """In a letter without a chunk: pushes rows to an operator, and leaves out those that it fails on, as its policy says."""

    traces: Traces
    """Where operators have spans of what others do for them."""

    meter: Meter
    """What measures for how long the running letter holds the loop."""

    bootstraps: Callable[[], bool]
    """Whether something must still be read before anything else is."""

    topic_id: Callable[[StreamPartition], str]
    """The id of the topic that the offsets of a partition belong to; empty if it is not known."""

    def origin(self) -> Batch[Any, Any]:
        """The origin of the running rows; empty for a letter that is not a chunk."""
        ...

    def stop(self, actor: Operator, /) -> None:
        """After this letter, this actor takes no more rows."""
        ...

    def emit(
        self,
        topic: str,
        partition: int | None,
        keys: list[bytes | None] | None,
        values: list[bytes | None],
        timestamps: list[int],
        headers: list[Headers] | None,
    ) -> None: ...
    def emit_spans(
        self, topic: str, partition: int | None, records: SpannedRecords, rows: Buffer | None = None
    ) -> None:
        """Write records that lie in buffers: these rows of them, or all."""
        ...

    def shuffle(
        self,
        name: str,
        everyone: bool,
        keys: list[bytes | None],
        timestamps: list[int],
        values: list[Any],
        headers: list[Headers] | None = None,
        plan: int | None = None,
        offsets: Sequence[int] | None = None,
    ) -> None:
        """Write rows, or partial states of the plan with this digest, to an intermediate stream, each to the partition of its key.
        `offsets`: those of the records that the rows were made of, if they are known."""
        ...

    def share(
        self,
        topic: str,
        keys: list[bytes | None],
        timestamps: list[int],
        values: list[Any],
        headers: list[Headers] | None = None,
        offsets: Sequence[int] | None = None,
    ) -> None:
        """Write rows to a stream that other jobs read, each to the partition of its key."""
        ...

    def share_columns(self, topic: str, writer: FrameWriter, of: Records) -> None:
        """The same for rows in columns, in frames of this writer."""
        ...

    def shuffle_columns(self, name: str, everyone: bool, writer: FrameWriter, of: Records) -> None:
        """As `shuffle`, for rows or partial states in columns, in frames of this writer."""
        ...

    def later(self, forward: Callable[[], None], /) -> None:
        """Forward rows by this function when the current call has returned."""
        ...

    def table(self, name: str, /) -> Any: ...
    def defer(self, work: Callable[[], Awaitable[None]], /) -> None: ...
    def count(self, name: str, amount: int = 1) -> None: ...
    def now_ms(self) -> int: ...
    @property
    def patience(self) -> Patience:
        """How long user code may be awaited."""
        ...


class Operator(LetterPart):
    """Base class: passes rows on. The pipeline fills in `children` when it is assembled."""

    awaits = False
    """Whether the operator defers work."""
    letters = False
    """Whether the operator needs watermarks, ends and drains."""
    windows_of_row = 0
    """Into how many windows it puts a row, at most."""
    rows_at_once = 1
    """How many rows of a letter it awaits at a time."""
    rows_at_most = 0
    """How many rows a letter may have, so that it does not take long; 0: any number."""
    watermark: int | None = None
    """The event time that the operator was last told."""
    wants_keys = ""
    """What the operator needs of its rows' keys: nothing, their `bytes` (to compare them), or the `values` (to show to user code)."""
    wants_states = False
    """Whether it takes partial states in columns."""
    gives_keys = False
    """Whether the operator sets the keys of the rows that it passes on."""
    stopped = False
    """User code has stopped it: it takes no more rows, whatever comes."""
    flushed = False
    """It has been flushed in this run."""
    careful = False
    """A commit has failed on what was held back: from now on nothing is, so that a failure belongs to a record."""
    at_once = False
    """Updates go on with each chunk, not each commit: a later step awaits, which `seal` cannot do, or its failure is to cost a record."""
    keeps_origins = False
    """Whether the operator stores the records that its rows were made of; those of a frame are named by the frame."""
    names_origins = False
    """Whether the operator names the records that its rows were made of to who reads what it writes."""
    flags: tuple[str, ...] = ("watermark", "flushed")
    """Attributes that a letter may set; when the letter is dropped, they get their former values back."""

    def __init__(self, step: Step, env: Env) -> None:
        self.step = step
        self.env = env
        self.children: list[Operator] = []
        self.writes: tuple[Any, ...] = ()
        """The serdes with which it writes to topics."""

    def be_careful(self) -> None:
        """From the start, hold nothing back for the commit."""
        self.careful = True

    def push(self, rows: Records) -> None:
        """Process rows."""
        self.forward(rows)

    def forward(self, rows: Records) -> None:
        """Push rows to every child."""
        if not len(rows):
            return
        push = self.env.push_result
        for child in self.children:
            if push is None:
                child.push(rows)
            else:
                push(child, rows)

    def reads(self, behind: frozenset[str]) -> frozenset[str]:
        """The columns that the operator needs of its rows. `behind`: those that later steps need."""
        return behind

    def seal(self) -> None:
        """A transaction is about to close, or a marker is about to be announced: emit what was held back."""

    @property
    def full(self) -> bool:
        """Whether no more chunks of the streams that lead here should be taken for now."""
        return False

    @property
    def full_why(self) -> str:
        """Why it is full, if it is."""
        return ""

    def sealed(self) -> None:
        """Everything complete joins the transaction that closes."""

    def durable(self) -> None:
        """What the oldest seal held is committed. Also called once at the start, when the restored state is."""

    def room_changed(self) -> None:
        """The number of batches that may run at a time has changed."""

    def prepare(self) -> None:
        """The letter has run: refuse what cannot be accepted. This is the last point at which an operator may raise."""

    def complete(self) -> None:
        """The letter is complete: its changes count from now on. This must not fail."""

    async def on_watermark(self, watermark: int) -> bool:
        """Event time has reached `watermark`: do one bounded step. Returns whether there is more to do."""
        self.watermark = watermark
        return False

    async def on_close(self, cause: str) -> bool:
        """All its inputs have ended (`end`) or are drained (`drain`): do one bounded step. Returns whether there is more to do."""
        return False

    async def work(self, key: str) -> bool:
        """Work of the operator's own is due: a timer, a batch. Returns whether there is more to do."""
        return False

    def due(self) -> tuple[int, str] | None:
        """When (wall ms) `work(key)` should be called next, and the key."""
        return None

    def owes(self) -> bool:
        """Whether the operator has something to do even if no further record arrives."""
        return self.due() is not None

    def owed_ms(self) -> int | None:
        """The least timestamp of the results that the operator owes beyond `Step.holds_ms`, by what is complete; None if it owes none.

        It is called after each letter and before the first one, so the answer must follow from the operator's tables.
        """
        return None

    def needed(self) -> Mapping[StreamPartition, int]:
        """By partition, the first offset of records that it will still need, though the task has read on; as of the complete letters."""
        return {}

    def batches(self) -> StepBatches | None:
        """The batches that it collects; None if it collects none."""
        return None

    async def close(self) -> None:
        """The task is released: end running user code."""

    def opened(self) -> Any:
        """What is open in its windows, and its late rows; None if it has no windows."""
        return None

    def user_rows(self, rows: Records) -> Records:
        """Rows that user code gets, to make others of them. If it may use tables, what it makes of a row may depend on earlier rows: then
        no record is known to fail whatever the others are."""
        return rows.without_places() if self.env.app.tables else rows

    def column(self, fn: Callable[[Any], Any], rows: Records, *, records: bool) -> list[Any]:
        """Apply `fn` to the values, or the records, of rows. An exception becomes a `UserCodeError` of this step."""
        with blaming(self.step, lacking((), rows.values)):
            return [fn(x) for x in (rows.records() if records else rows.values)]

    def select(self, column: Column, values: list[Any], by: Any = None) -> list[Any]:
        """Select a column. An exception becomes a `UserCodeError` of this step; `by` names the field for its message."""
        with blaming(self.step, lacking((by,) if isinstance(by, str) else (), values)):
            return column(values)


class Relay(Operator):
    """Follows every hundredth step of a chain: passes rows on after the current call has returned, so that no chain overflows the stack."""

    def push(self, rows: Records) -> None:
        self.env.later(lambda: self.forward(rows))


class PerRow(Operator):
    """Calls a function with each value, or with each record."""

    def __init__(self, step: MapStep | FilterStep | PeekStep | FlatMapStep, env: Env) -> None:
        super().__init__(step, env)
        self.fn = step.fn
        self.with_record = step.with_record
        self.wants_keys = VALUES if step.with_record else ""


class MapOp(PerRow):
    """One value in, one out."""

    def push(self, rows: Records) -> None:
        rows = self.user_rows(rows)
        if not self.with_record:
            self.forward(rows.with_values(self.column(self.fn, rows, records=False)))
            return
        self.forward(rows_of_results(self.step, rows, self.column(self.fn, rows, records=True)))


def rows_of_results(step: Step, rows: Records, results: list[Any]) -> Records:
    """The rows of functions that got records. A result is a plain value, or a record that sets key, timestamp and headers."""
    if Record not in set(map(type, results)):
        return rows.with_values(results)
    records = [
        result if isinstance(result, Record) else record.with_value(result)
        for record, result in zip(rows.records(), results, strict=True)
    ]
    return rows_of(step, records, rows.timestamps, rows)


def rows_of(
    step: Step, records: Sequence[Record[Any, Any]], times: Sequence[int], made_of: Records | None = None
) -> Records:
    """The rows of records that user code has made; invalid timestamps and headers are refused. `times`: of those that say none. `made_of`:
    the row that each was made of."""
    with blaming(step):
        own = [at if r.timestamp == SAME_TIME else r.timestamp for r, at in zip(records, times, strict=True)]
        found = Records.of(records)
        checked = check_times(own, "timestamp of a Record")
        headers: list[Headers] | None = None
        if found.headers is not None:
            headers = list(check_headers(found.headers, "a Record"))
    offsets, places = (None, None) if made_of is None else (made_of.offsets, made_of.places)
    return Records(found.values, checked, found.keys, headers, offsets, places=places)


class FilterOp(PerRow):
    """Keeps the rows for which the function is true."""

    def push(self, rows: Records) -> None:
        rows = self.user_rows(rows)
        # testing a result for truth may fail, too
        with blaming(self.step, lacking((), rows.values)):
            fn = self.fn
            keep = [fn(x) for x in (rows.records() if self.with_record else rows.values)]
            kept = rows.filtered(keep)
        self.forward(kept)


class PeekOp(PerRow):
    """Shows each row to the function, and passes it on."""

    def push(self, rows: Records) -> None:
        rows = self.user_rows(rows)
        self.column(self.fn, rows, records=self.with_record)
        self.forward(rows)


class FlatMapOp(PerRow):
    """One value in, any number out."""

    def push(self, rows: Records) -> None:
        fn, rows = self.fn, self.user_rows(rows)
        lists = self.column(lambda x: list(fn(x)), rows, records=self.with_record)
        values = list(chain.from_iterable(lists))
        each = rows.repeated(list(map(len, lists)))
        if not self.with_record or Record not in set(map(type, values)):
            self.forward(each.with_values(values))
            return
        records = [
            item if isinstance(item, Record) else record.with_value(item)
            for record, item in zip(each.records(), values, strict=True)
        ]
        self.forward(rows_of(self.step, records, each.timestamps, each))


class RekeyOp(Operator):
    """Sets another key, in place."""

    gives_keys = True

    def __init__(self, step: RekeyStep, env: Env) -> None:
        super().__init__(step, env)
        self.by = step.by
        self.key = column_of(step.by)

    def push(self, rows: Records) -> None:
        rows = self.user_rows(rows)
        self.forward(rows.with_keys(self.select(self.key, rows.values, self.by)))


def encode(step: Step, serde: Any, values: list[Any], rows: Records | None = None) -> list[Any]:
    """Encode values; None stays None (a tombstone). A value that cannot be encoded is an error of `step`. `rows`: whose values they are."""
    return _encoded(step, serde.dumps_many(values), rows or NO_ROWS)


def encode_made(step: Step, serde: Any, made: Callable[[], Iterable[Any]]) -> list[Any]:
    """The same of values that are made one by one, and are not None."""
    return _encoded(step, dumps_made(serde, made), NO_ROWS)


def _encoded(step: Step, encoded: Encoded, rows: Records) -> list[Any]:
    if encoded.bad:
        raise failing(step, encoded.bad, rows)
    return encoded.values


NO_ROWS = Records([], [])
"""Instead of rows that were made of no single record."""
AS_THEY_ARE = ("text", "bytes")
"""Serdes whose key bytes an output topic has unchanged."""


def encode_keys(step: Step, serde: Any, keys: list[Any], written: Any = None, rows: Records | None = None) -> list[Any]:
    """Encode keys with this serde; None stays None. `written`: the serde that has already encoded them, if they are bytes. `rows`: whose
    keys they are."""
    if written is not None:
        if written.name == serde.name and serde.type in (None, written.type):
            return keys
        if serde.name == OUTPUT_KEY and written.name in AS_THEY_ARE:
            return keys
        if serde.name == OUTPUT_KEY and written.name == KEY:
            with contextlib.suppress(KeyRefused):  # found again below, together with its record
                return output_column(keys)
        keys = decode_keys(step, written, keys, rows)
    encoded = serde.dumps_many(keys)
    if encoded.bad:
        remedy = "give the step (or the app) another key_serde=, or make a key that this serde accepts"
        raise _of_keys(step, encoded.bad, remedy, rows)
    return encoded.values


def _of_keys(step: Step, bad: Sequence[tuple[int, DataError]], remedy: str, rows: Records | None) -> UserCodeError:
    """The error of a serde about keys. Its remedy names the parameter for keys, not the one for values."""
    found: list[tuple[int, BaseException]] = []
    for index, error in bad:
        own = error.remedy if isinstance(error, KeyRefused | KeyUnreadable) else remedy
        hint_of = DataError(f"the key {error.what}", remedy=own)
        hint_of.__cause__ = error.__cause__
        found.append((index, hint_of))
    return failing(step, found, rows or NO_ROWS)


def decode_keys(step: Step, serde: Any, keys: list[Any], rows: Records | None = None) -> list[Any]:
    """Decode keys that this serde has written, for user code."""
    decoded = serde.loads_many(keys)
    if decoded.bad:
        raise _of_keys(step, decoded.bad, "give the input (or the app) another key_serde=", rows)
    return decoded.values
