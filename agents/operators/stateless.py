"""What a task runs: the declared steps as operators over columns of rows. Here the base, and the ones that keep nothing.

An operator takes `Rows` and pushes `Rows` to its children, synchronously, a chunk at a time; the hot ones are one list
comprehension each. What must be awaited is deferred: the operator asks `env.defer(...)`, and the task's actor awaits it when
the synchronous part is through, in order, so awaiting exists only where the user asked for it.

What a chunk did is kept apart until it is complete: tables and combined rows have `complete()` and `drop()`. At a commit
`seal()` emits what is better emitted once a commit than once a row (updates of aggregates, combined partial states).

Whatever can be refused is refused while the letter runs, at the latest in `prepare()`; `complete()` only takes over, and cannot fail.

An exception of user code leaves here as `UserCodeError` and names the step; nobody here decides what happens then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain, compress, repeat
from types import TracebackType
from typing import Any, Protocol

from ...core.errors import DataError, HeadgateError, cause_for
from ...core.windows.results import START_FIELD
from ..cancellation import passes, said
from ..job import steps as s
from ..job.windows import window_key
from ..records.keys import KeyRefused, KeyUnreadable, output_column
from ..records.record import Headers, Record, Rows
from ..records.selecting import Column, column_of, lacking
from ..records.serdes import KEY, OUTPUT_KEY
from ..records.writable import Unwritable, check_headers, check_times

BYTES, VALUES = "bytes", "values"
"""What an operator may want of keys."""


class UserCodeError(HeadgateError):
    """A function of the user's raised. `step` is where, `__cause__` is what."""

    def __init__(self, step: s.Step, cause: BaseException, index: int | None = None, hint: str = "") -> None:
        self.step = step
        self.index = index
        name = f" '{step.name}'" if step.name else ""
        what = f": {cause}" if isinstance(cause, HeadgateError) else f" raised {said(cause)}"
        super().__init__(f"{step.verb}{name} ({step.where}){what}{'; ' if hint else ''}{hint}")
        self.__cause__ = cause_for(self, cause)


class Uncaught(HeadgateError):
    """User code raised, in a place that belongs to no step, what is no `Exception`; `__cause__` is what."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"user code raised {said(cause)}")
        self.__cause__ = cause


class blaming:
    """Whatever user code raises in here becomes a `UserCodeError` of this step; an ending that was asked for goes on as it is."""

    __slots__ = ("step", "told")

    def __init__(self, step: s.Step, told: Callable[[BaseException], str] | None = None) -> None:
        """`told` says what there is to add of the rows, once it has failed."""
        self.step = step
        self.told = told

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None or isinstance(error, UserCodeError) or passes(error):
            return
        hint = self.told(error) if self.told is not None else ""
        raise UserCodeError(self.step, error, getattr(error, "index", None), hint) from error


class Env(Protocol):
    """What operators need of the task that they run in; `agents.operators.pipeline.Pipeline` is one."""

    @property
    def task(self) -> str: ...
    @property
    def app(self) -> Any:
        """The app, for its default serdes."""
        ...

    wants_commit: bool
    wants_stop: bool

    def emit(
        self,
        topic: str,
        partition: int | None,
        keys: list[bytes | None] | None,
        values: list[bytes | None],
        timestamps: list[int],
        headers: list[Headers] | None,
    ) -> None: ...
    def shuffle(
        self,
        name: str,
        everyone: bool,
        keys: list[bytes | None],
        timestamps: list[int],
        values: list[Any],
        headers: list[Headers] | None = None,
        plan: int | None = None,
    ) -> None:
        """Rows, or partial states of the plan with this digest, into an intermediate stream, to the partitions of their keys."""
        ...

    def later(self, relay: Relay, rows: Rows, /) -> None:
        """`relay` forwards these rows when what runs now has returned."""
        ...

    def table(self, name: str, /) -> Any: ...
    def defer(self, work: Callable[[], Awaitable[None]], /) -> None: ...
    def count(self, name: str, amount: int = 1) -> None: ...
    def now_ms(self) -> int: ...
    def patience_s(self) -> float:
        """How long awaited user code may take; 0 is for ever."""
        ...


class Operator:
    """Base: passes on. `children` are filled in when the pipeline is put together."""

    awaits = False
    """Whether it defers work."""
    letters = False
    """Whether watermarks, ends and drains concern it."""
    watermark: int | None = None
    """The event time that it has been told of."""
    wants_keys = ""
    """What it does with the keys of its rows: nothing, or it compares their `bytes`, or shows the `values` to user code."""
    gives_keys = False
    """Whether the rows that it passes on have keys of its own."""
    flags: tuple[str, ...] = ("watermark",)
    """Attributes that a letter may set: they belong to it, and are what they were when it is dropped."""

    def __init__(self, step: s.Step, env: Env) -> None:
        self.step = step
        self.env = env
        self.children: list[Operator] = []

    def push(self, rows: Rows) -> None:
        """Take rows of a chunk."""
        self.forward(rows)

    def forward(self, rows: Rows) -> None:
        """Give rows to every child."""
        if rows.values:
            for child in self.children:
                child.push(rows)

    def seal(self) -> None:
        """A transaction is about to close, or a marker to be announced: emit what was held back."""

    @property
    def full(self) -> bool:
        """Whether no more chunks should be taken of what leads here, for now."""
        return False

    def sealed(self) -> None:
        """All that is complete joins the transaction that closes."""

    def durable(self) -> None:
        """What the oldest seal held is committed; once in the beginning, when all that was restored is."""

    def room_changed(self) -> None:
        """More batches may run at a time, or fewer."""

    def prepare(self) -> None:
        """The letter is through: refuse what cannot be taken over. The last moment at which anything may raise."""

    def complete(self) -> None:
        """The chunk is complete: what it changed counts from now on. Nothing in here can fail."""

    def drop(self) -> None:
        """The chunk failed: forget what it changed."""

    def suspend(self) -> Any:
        """Put aside what the chunk that runs has changed so far; a seal must not see it. `resume` gives it back."""
        return None

    def resume(self, aside: Any) -> None:
        """Go on with the chunk that was put aside."""

    async def on_watermark(self, watermark: int) -> bool:
        """Event time has come this far; one bounded step. Whether there is more to do."""
        self.watermark = watermark
        return False

    async def on_close(self, cause: str) -> bool:
        """All that it reads has ended (`end`) or is drained (`drain`); one bounded step. Whether there is more to do."""
        return False

    async def work(self, key: str) -> bool:
        """Something of its own is due: a timer, a batch. Whether there is more to do."""
        return False

    def due(self) -> tuple[int, str] | None:
        """When (wall ms) it next wants `work(key)`, and for what."""
        return None

    def owes(self) -> bool:
        """Whether it has something to do though no further record comes."""
        return self.due() is not None

    def owed_ms(self) -> int | None:
        """The least timestamp of the results that it owes beyond `Step.holds_ms`, by what is complete; None where it owes none.

        Asked after each letter, and before the first one: what it says follows from its tables.
        """
        return None

    async def close(self) -> None:
        """The task goes: end what user code has running."""

    def column(self, fn: Callable[[Any], Any], rows: Rows, *, records: bool) -> list[Any]:
        """`fn` over the values, or the records, of rows; a raise becomes a `UserCodeError` of this step."""
        with blaming(self.step, lacking((), rows.values)):
            return [fn(x) for x in (rows.records() if records else rows.values)]

    def select(self, column: Column, values: list[Any], by: Any = None) -> list[Any]:
        """A selected column; a raise becomes a `UserCodeError` of this step, which knows what `by` selects."""
        with blaming(self.step, lacking((by,) if isinstance(by, str) else (), values)):
            return column(values)


class Relay(Operator):
    """Stands behind every hundredth step of a chain: rows go on when what runs has returned, so that no chain is deeper than the stack."""

    def push(self, rows: Rows) -> None:
        self.env.later(self, rows)


class MapOp(Operator):
    """One value in, one out."""

    def __init__(self, step: s.MapStep, env: Env) -> None:
        super().__init__(step, env)
        self.fn = step.fn
        self.with_record = step.with_record
        self.wants_keys = VALUES if step.with_record else ""

    def push(self, rows: Rows) -> None:
        if not self.with_record:
            self.forward(rows.with_values(self.column(self.fn, rows, records=False)))
            return
        self.forward(rows_of_results(self.step, rows, self.column(self.fn, rows, records=True)))


def rows_of_results(step: s.Step, rows: Rows, results: list[Any]) -> Rows:
    """Results of functions that got records: plain values, or records that set key, timestamp and headers."""
    if Record not in set(map(type, results)):
        return rows.with_values(results)
    records = [
        result if isinstance(result, Record) else record.with_value(result)
        for record, result in zip(rows.records(), results, strict=True)
    ]
    return rows_of(step, records, rows.offsets)


def rows_of(step: s.Step, records: Sequence[Record[Any, Any]], offsets: Sequence[int] | None = None) -> Rows:
    """Rows of records that user code has made; what no record may have is refused."""
    with blaming(step):
        rows = Rows.of(records)
        rows.timestamps = check_times(rows.timestamps, "timestamp of a Record")
        if rows.headers is not None:
            rows.headers = list(check_headers(rows.headers, "a Record"))
    rows.offsets = offsets
    return rows


class FilterOp(Operator):
    """Keeps the rows for which the function is true."""

    def __init__(self, step: s.FilterStep, env: Env) -> None:
        super().__init__(step, env)
        self.fn = step.fn
        self.with_record = step.with_record
        self.wants_keys = VALUES if step.with_record else ""

    def push(self, rows: Rows) -> None:
        with blaming(
            self.step, lacking((), rows.values)
        ):  # whether an answer is true is asked of it, and may fail, too
            fn = self.fn
            keep = [fn(x) for x in (rows.records() if self.with_record else rows.values)]
            kept = select_rows(rows, keep)
        self.forward(kept)


def select_rows(rows: Rows, keep: Sequence[Any]) -> Rows:
    """The rows for which `keep` is true."""
    if all(keep):
        return rows
    return Rows(
        list(compress(rows.values, keep)),
        list(compress(rows.timestamps, keep)),
        list(compress(rows.keys, keep)) if rows.keys is not None else None,
        list(compress(rows.headers, keep)) if rows.headers is not None else None,
        list(compress(rows.offsets, keep)) if rows.offsets is not None else None,
        key_serde=rows.key_serde,
    )


class FlatMapOp(Operator):
    """One value in, any number out."""

    def __init__(self, step: s.FlatMapStep, env: Env) -> None:
        super().__init__(step, env)
        self.fn = step.fn
        self.with_record = step.with_record
        self.wants_keys = VALUES if step.with_record else ""

    def push(self, rows: Rows) -> None:
        fn = self.fn
        lists = self.column(lambda x: list(fn(x)), rows, records=self.with_record)
        values = list(chain.from_iterable(lists))
        sizes = list(map(len, lists))

        def spread(column: Sequence[Any]) -> list[Any]:
            return list(chain.from_iterable(map(repeat, column, sizes)))

        offsets = None if rows.offsets is None else spread(rows.offsets)
        if self.with_record and Record in set(map(type, values)):
            records = [
                item if isinstance(item, Record) else record.with_value(item)
                for record, items in zip(rows.records(), lists, strict=True)
                for item in items
            ]
            self.forward(rows_of(self.step, records, offsets))
            return
        self.forward(
            Rows(
                values,
                spread(rows.timestamps),
                None if rows.keys is None else spread(rows.keys),
                None if rows.headers is None else spread(rows.headers),
                offsets,
                key_serde=rows.key_serde,
            )
        )


class RekeyOp(Operator):
    """Another key, in place."""

    gives_keys = True

    def __init__(self, step: s.RekeyStep, env: Env) -> None:
        super().__init__(step, env)
        self.by = step.by
        self.key = column_of(step.by)

    def push(self, rows: Rows) -> None:
        self.forward(
            Rows(rows.values, rows.timestamps, self.select(self.key, rows.values, self.by), rows.headers, rows.offsets)
        )


class ToOp(Operator):
    """Writes to an output topic."""

    def __init__(self, step: s.ToStep, env: Env) -> None:
        super().__init__(step, env)
        self.to = step
        self.by = START_FIELD if step.key is window_key else step.key
        self.key = column_of(self.by) if self.by is not None else None
        if step.partition is not None or step.key is window_key:
            self.wants_keys = VALUES
        elif step.key is None and step.key_serde.name != OUTPUT_KEY:
            self.wants_keys = BYTES

    def push(self, rows: Rows) -> None:
        step = self.to
        raw: list[Any] | None = None
        if self.key is not None:
            found = self.select(self.key, rows.values, self.by)
            if step.key is window_key:
                found = list(zip(rows.key_values() or [None] * len(rows), found, strict=True))
            raw = encode_keys(step, step.key_serde, found)
        elif rows.keys is not None:
            raw = encode_keys(step, step.key_serde, rows.keys, rows.key_serde)
        values = encode(step, step.serde, rows.values)
        targets = self.column(step.partition, rows, records=True) if step.partition is not None else None
        with blaming(step):  # what the topic does not take
            if targets is None:
                self.env.emit(step.topic, None, raw, values, rows.timestamps, rows.headers)
            else:
                self._emit_to(targets, raw, values, rows)

    def _emit_to(self, targets: list[Any], raw: list[Any] | None, values: list[Any], rows: Rows) -> None:
        """To the partitions that the user's function has chosen; None leaves it to the key."""
        wrong = next((i for i, one in enumerate(targets) if one is not None and type(one) is not int), None)
        if wrong is not None:
            raise Unwritable(
                wrong,
                f"partition= gave {targets[wrong]!r:.60} for a record to {self.to.topic}",
                remedy="return a partition number, or None to use the key's partition",
            )
        for target in dict.fromkeys(targets):
            at = [i for i, t in enumerate(targets) if t == target]
            self.env.emit(
                self.to.topic,
                target,
                None if raw is None else [raw[i] for i in at],
                [values[i] for i in at],
                [rows.timestamps[i] for i in at],
                None if rows.headers is None else [rows.headers[i] for i in at],
            )


def encode(step: s.Step, serde: Any, values: list[Any]) -> list[Any]:
    """Values as bytes; None stays None (a tombstone). What cannot be encoded is an error of the step that asked for it."""
    encoded = serde.dumps_many(values)
    if encoded.bad:
        index, error = encoded.bad[0]
        raise UserCodeError(step, error, index) from error
    return encoded.values


AS_THEY_ARE = ("text", "bytes")
"""Serdes whose bytes an output has, too."""


def encode_keys(step: s.Step, serde: Any, keys: list[Any], written: Any = None) -> list[Any]:
    """Keys as the bytes of this serde; None stays None. `written`: they are bytes already, which that serde has written."""
    if written is not None:
        if written.name == serde.name and serde.type in (None, written.type):
            return keys
        if serde.name == OUTPUT_KEY and written.name in AS_THEY_ARE:
            return keys
        if serde.name == OUTPUT_KEY and written.name == KEY:
            with contextlib.suppress(KeyRefused):  # found again below, with its record
                return output_column(keys)
        keys = decode_keys(step, written, keys)
    encoded = serde.dumps_many(keys)
    if encoded.bad:
        raise _of_key(
            step,
            encoded.bad[0],
            "give the step (or the app) another key_serde=, or make a key that this serde accepts",
        )
    return encoded.values


def _of_key(step: s.Step, bad: tuple[int, DataError], remedy: str) -> UserCodeError:
    """What a serde says of a key: with the parameter that is its, which is none of a value's."""
    index, error = bad
    own = error.remedy if isinstance(error, KeyRefused | KeyUnreadable) else remedy
    told = DataError(f"the key {error.what}", remedy=own)
    told.__cause__ = error.__cause__
    return UserCodeError(step, told, index)


def decode_keys(step: s.Step, serde: Any, keys: list[Any]) -> list[Any]:
    """Keys as user code has them, of bytes that this serde has written."""
    decoded = serde.loads_many(keys)
    if decoded.bad:
        raise _of_key(step, decoded.bad[0], "give the input (or the app) another key_serde=")
    return decoded.values
