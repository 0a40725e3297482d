"""Decodes the bytes of a chunk into rows: this is where records enter a task.

What it decides: which parts of a record are decoded. Keys and headers become columns only where a later step asks for them.

A record that cannot be read raises `BadRecord` with its index; the task decides what happens then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import NoneType
from typing import Any, Protocol

from ....core.columns.schema import ColumnSchema
from ....core.errors import DataError
from ....core.progress.frames import HEADER, FrameError
from ...cancellation import passes
from ...job.derive.declaration import Declared
from ...job.steps.sources import SourceStep
from ...job.types.schemas import NOT_TEXT
from ...records.columns.records import Records
from ...records.columns.selecting import lacking, nested_column_of
from ...records.frames.arrow_columns import ArrivedColumns
from ...records.frames.chunks import Chunk
from ...records.frames.range_buffer import UnreadRecords
from ...records.kafka.spans import SpannedColumns
from ...records.kafka.timestamps import times_of
from ...records.layout import longs
from ...records.memory.event_time import FIRST_TIME, is_time
from ...records.memory.longs import extremes
from ...records.memory.record_spans import RecordSpans, among, is_text, piece, pieces
from ...records.values.keys import KeyRefused, encode
from ...records.values.serdes import writes_utf8
from ..base.bad_records import BadRecord, named, refuse
from ..base.stateless import VALUES, Env, Operator
from ..plain.columnar import ColumnsOp, RowsOp, WithColumnsOp
from ..shuffle.shuffles import PARTIAL
from .event_times import EventLimits, RowTimes, guard_of
from .key_test import KeyTest

_OTHER_CODE = (
    "only the job itself may write this stream; if its code was changed, from combining before this shuffle to not (`combine=`) or back, "
    "run the former code until a drain has emptied it"
)
_OTHER_KIND = ("partial states instead of rows", "rows instead of partial states")


TEXT = frozenset((str, type(None)))


def _unsaid(stream: str, what: str) -> DataError:
    return DataError(
        f"{what}, but nothing says how the producers of '{stream}' write their keys",
        remedy=f"declare it: app.input('{stream}', key_serde=…), or use .repartition(…)",
    )


def serde_of(step: SourceStep) -> Any:
    """The serde of the values in a stream."""
    return PARTIAL if step.partial else step.serde


def value_serdes(declared: Declared) -> dict[str, Any]:
    """The serde of the values of every stream that the job reads, by topic."""
    return {topic: serde_of(step) for topic, step in declared.sources.items()}


class ReadsChunks(Protocol):
    """Decodes chunks, in one way or another."""

    def read(self, chunk: Chunk, skip: frozenset[int]) -> int | None:
        """Decode a chunk without the records in `skip`, and push it on. Returns its greatest event time."""
        ...


class ReadingEnv(Env, Protocol):
    """What a source needs of the task that runs it, besides what any operator needs."""

    keys: KeyTest | None
    """Sees the keys of inputs that meet others by key, while they are tested."""

    def runs(
        self,
        chunk: Chunk,
        rows: Callable[[], Records],
        offsets: Callable[[], list[int] | None],
        skipped: frozenset[int],
    ) -> None:
        """Record which rows of this chunk run now, and their offsets."""
        ...


class SourceOp(Operator):
    """The first operator of a chain: an input, or the receiving side of a shuffle."""

    step: SourceStep

    def __init__(self, step: SourceStep, pipeline: ReadingEnv) -> None:
        super().__init__(step, pipeline)
        self.pipeline = pipeline
        self.serde: Any = step.named or serde_of(step)
        self.key_serde: Any = step.key_serde or pipeline.app.key_serde
        """The serde that wrote the keys. For an input that declares none, it is assumed only if a later step needs keys."""
        self.declared = step.key_serde is not None or bool(step.producers)
        self.only_text = False
        """The stream meets other streams by key, so without a declared key serde it accepts only text keys: only their bytes are known."""
        self.key = nested_column_of(step.key) if step.key is not None else None
        self.guard = guard_of(step)
        self._times = RowTimes(step)
        self.column_sources: list[ReadsChunks] = []
        self._states_in_columns = False
        """Whether frames of partial states are read as columns."""
        self.instead: ReadsChunks | None = None
        """Decodes columns instead of rows: all steps behind only name fields."""
        self._row_children: list[Operator] = []
        self.wants_headers = True
        self.wants_offsets = False
        self.wants_origins = False
        """Whether a later step names the records of inputs that the rows of its frames were made of. The number of each row's record then
        stands where its offset would: that of its frame is of no use to anybody."""

    def judged(self, chunk: Chunk, found: BadRecord) -> BadRecord | None:
        """What rows say about the records that are bad for columns; None if they do not say of each of them alone why it is bad."""
        indexes = list(found.all)
        judged = self.serde.loads_many([chunk.columns.value(index) for index in indexes]).bad
        if len(judged) < len(indexes):
            return None
        return named(self.not_frames(chunk, [(indexes[place], cause) for place, cause in judged]))

    def not_frames(self, chunk: Chunk, bad: list[tuple[int, BaseException]]) -> list[tuple[int, BaseException]]:
        """These errors; of a record that is a frame, what it is and how it can be read."""
        if not bad or not chunk.has_headers or not self.step.foreign:
            return bad
        frames = {index for index, _ in bad if any(name == HEADER for name, _ in chunk.headers[index])}
        what = f"it is a frame: a headgate job shares the stream '{self.step.name}' with other jobs"
        remedy = f'app.input("{self.step.name}", producers=["that-job"]), or a plain topic that the job writes by .to(…) beside it'
        return [(index, DataError(what, remedy=remedy) if index in frames else cause) for index, cause in bad]

    def read(self, chunk: Chunk, skip: frozenset[int]) -> int | None:
        """Decode a chunk and push its rows on. Returns their greatest event time."""
        if isinstance(chunk.columns, UnreadRecords):
            for batch in self.referenced:
                batch.refer_to(chunk.at, chunk.columns.base, chunk.next_position, self.limits(chunk).greatest)
            return None
        if chunk.bad is not None:
            raise BadRecord(0, chunk.bad)
        if (chunk.plan is not None) != self.step.partial:
            other = FrameError(_OTHER_KIND[self.step.partial], remedy=_OTHER_CODE)
            refuse([(row, other) for row in range(len(chunk)) if row not in skip])
            return None
        greatest = max((one.read(chunk, skip) for one in self.column_sources), key=_or_never, default=None)
        if self.column_sources and not self._row_children:
            return greatest
        if self._states_in_columns and isinstance(chunk.columns, ArrivedColumns) and not skip:
            states = chunk.columns
            least, greatest = extremes(states.times)
            if is_time(least) and is_time(greatest) and states.has_every_key:
                self._run(chunk, self._states(states), None, skip)
                return greatest
        rows, offsets, greatest = self._rows(chunk, skip)
        self._run(chunk, rows, offsets, skip)
        return greatest

    def _run(self, chunk: Chunk, rows: Records, offsets: list[int] | None, skip: frozenset[int]) -> None:
        self.pipeline.runs(chunk, lambda: rows, lambda: offsets, skip)
        self.forward(rows)

    def _states(self, columns: ArrivedColumns) -> Records:
        """Partial states as they came, in columns."""
        return Records.of_vectors(
            {name: columns.vector(name) for name in columns.kinds},
            columns.times,
            key_spans=columns.key_spans,
            key_serde=self.key_serde,
            places=range(len(columns)),
            plan=columns.plan,
            make=columns.plain_values,
        )

    def origins(self, chunk: Chunk, places: Sequence[int] | None) -> Sequence[int] | None:
        """The numbers of the records that the rows at these places of a chunk of frames were made of; None: of all rows."""
        found = chunk.origins
        if found is None:
            return None
        numbers = longs(found.numbers)
        return numbers if places is None or len(places) == len(numbers) else [numbers[place] for place in places]

    def limits(self, chunk: Chunk) -> EventLimits:
        """The event times that the records of a chunk may have."""
        return self.guard.limits(chunk.now_ms)

    def forward(self, rows: Records) -> None:
        if len(rows):
            for child in self._row_children:
                child.push(rows)

    def see_children(
        self, needed: Callable[[Operator], frozenset[str]], columns_of: Callable[..., ReadsChunks]
    ) -> None:
        """All operators behind this one are there. `needed`: the columns that one of them needs; `columns_of` makes what decodes some."""
        step, children = self.step, self.children
        names = frozenset[str]().union(*map(needed, children))
        if step.columns is not None:  # of an input, they are chosen already
            self.instead = columns_of(self, step.columns if step.foreign else step.columns.only(names), children)
            self._row_children = children
            return
        if step.schema is not None and not self.step.partial:
            self.column_sources = [columns_of(self, step.schema.only(names), children)]
            return
        self._states_in_columns = self.step.partial and len(children) == 1 and children[0].wants_states
        alike: dict[tuple[ColumnSchema, bool], list[ColumnsOp]] = {}
        """Operators for which a record is decoded once."""
        for child in children:
            if isinstance(child, ColumnsOp) and child.direct:
                alike.setdefault((child.schema, child.keeps), []).append(child)
            else:
                self._row_children.append(child)
        for (schema, keeps), ones in alike.items():
            used = self._used(schema, frozenset[str]().union(*map(needed, ones)))
            made = frozenset[str]().union(*map(_made_behind, ones)) if keeps else frozenset[str]()
            self.column_sources.append(columns_of(self, used, ones, ones, sorted(made - frozenset(used.names))))

    @property
    def framed(self) -> bool:
        """See `parked.Source`."""
        return self.step.framed

    def keys_to_park(self, chunk: Chunk) -> Sequence[bytes | None]:
        """See `parked.Source`: those by which later steps know the records. One whose value cannot be read, or names none, has none."""
        if self.key is None:
            return chunk.keys
        decoded = self.serde.loads_many(_as_read(self.serde, chunk.values, chunk, "value"))
        return [_key_bytes(key) for key in self._keys_of_values(chunk, decoded.values, list(decoded.bad))]

    def times_to_park(self, chunk: Chunk) -> Sequence[int]:
        """See `parked.Source`: of a record that has no event time of its own that could be read, the one that Kafka has."""
        if self.step.framed:
            return chunk.timestamps
        stamps = times_of(chunk.columns)
        if self.step.timestamp is None:
            return stamps
        decoded = self.serde.loads_many(_as_read(self.serde, chunk.values, chunk, "value"))
        return self._times.of(decoded.values, stamps, chunk.so_far_ms, self.limits(chunk))[0]

    def rows_with_keys(self, chunk: Chunk, keys: AbstractSet[bytes]) -> Mapping[int, bytes]:
        """See `parked.Source`."""
        columns = chunk.columns
        if self.key is None and isinstance(columns, SpannedColumns):
            spans = columns.spans.keys
            return {} if spans is None else {row: bytes(piece(spans, row) or b"") for row in among(spans, keys)}
        return {row: key for row, key in enumerate(self.keys_to_park(chunk)) if key is not None and key in keys}

    @property
    def referenced(self) -> list[Any]:
        """The batches behind it that are ranges of its offsets. If there are any, nothing else reads it, and no record is fetched."""
        return [one for one in _behind(self) if one.step.ranges and not one.step.ranges.framed]

    @property
    def unread(self) -> int:
        """If its records are not fetched, the most offsets that a letter takes, so that it closes no more than a batch of each step."""
        return min((one.limits.max_rows or sys.maxsize for one in self.referenced), default=0)

    @property
    def spanned(self) -> bool:
        """Whether its records are read in spans, and frames of columns as columns: nothing but columns is made of them, as a rule."""
        return (
            self.instead is not None or self._states_in_columns or bool(self.column_sources and not self._row_children)
        )

    @property
    def bulk(self) -> bool:
        """Whether a record costs a fraction of what a row costs: it is read in spans, and no row is made of it up to the next shuffle."""
        return self.spanned and not any(isinstance(one, RowsOp) for one in _behind(self))

    def _used(self, schema: ColumnSchema, needed: frozenset[str]) -> ColumnSchema:
        """The columns that are decoded: those that later steps need, the time and the key."""
        own = {self.step.key, self.step.time_field}
        return schema.only(name for name in schema.names if name in needed or name in own)

    def _rows(self, chunk: Chunk, skip: frozenset[int]) -> tuple[Records, list[int] | None, int | None]:
        """The rows of a chunk, their offsets if they are not those of the chunk, and the greatest time that moves the partition's time."""
        decoded = self.serde.loads_many(_as_read(self.serde, chunk.values, chunk, "value"))
        bad: list[tuple[int, BaseException]] = self.not_frames(chunk, decoded.bad)
        values: list[Any] = decoded.values
        keys = self._keys(chunk, values, bad)
        if self.pipeline.keys is not None and self.step.foreign:
            self.pipeline.keys.see(self.step, chunk, lambda: keys)
        timestamps: list[int] = chunk.timestamps if self.step.framed else times_of(chunk.columns)
        headers: Any = self._headers(chunk) if self.wants_headers and chunk.has_headers else None
        key_serde = self.key_serde if self.key is None and self.wants_keys != VALUES else None
        offsets: list[int] | None = None
        keep: list[int] = []
        if bad or skip:
            refuse([(index, cause) for index, cause in bad if index not in skip])
            keep = [i for i in range(len(values)) if i not in skip]
            values = [values[i] for i in keep]
            timestamps = [timestamps[i] for i in keep]
            own = chunk.offsets
            offsets = [own[i] for i in keep]
            keys = [keys[i] for i in keep] if keys is not None else None
            headers = [headers[i] for i in keep] if headers is not None else None
        timestamps, greatest, late = self._times.of(values, timestamps, chunk.so_far_ms, self.limits(chunk))
        refuse([(keep[place] if keep else place, cause) for place, cause in late])
        places = keep or range(len(values))
        own = self._own_offsets(chunk, places, offsets)
        rows = Records(values, timestamps, keys, headers, own, key_serde=key_serde, places=places, plan=chunk.plan)
        return rows, offsets, greatest

    def _own_offsets(self, chunk: Chunk, places: Sequence[int], offsets: list[int] | None) -> Sequence[int] | None:
        """The offsets of the rows at these places, or the numbers of their records, if a later step wants them."""
        if self.wants_origins:
            numbers = self.origins(chunk, places)
            return None if numbers is None else list(numbers)
        if not self.wants_offsets:
            return None
        return chunk.columns.offset_column() if offsets is None else offsets

    def _keys(self, chunk: Chunk, values: list[Any], bad: list[tuple[int, BaseException]]) -> list[Any] | None:
        if self.key is not None:
            return self._keys_of_values(chunk, values, bad)
        return self.keys_of_bytes(self._raw_keys(chunk), bad) if chunk.has_keys else None

    def _raw_keys(self, chunk: Chunk) -> list[Any]:
        return list(_as_read(self.key_serde, chunk.keys, chunk, "key"))

    def _headers(self, chunk: Chunk) -> Any:
        """The headers of records, without those that are true of the bytes alone."""
        own = self.serde.own_headers | self.key_serde.own_headers
        if not own:
            return chunk.headers
        return [tuple(one for one in headers if one[0] not in own) for headers in chunk.headers]

    def keys_of_bytes(self, raw: list[Any], bad: list[tuple[int, BaseException]]) -> list[Any]:
        """The keys of records, as later steps want them; `bad` gets those that cannot be decoded."""
        if self.wants_keys == VALUES:
            return self._decoded(raw, bad)
        if self._checks_keys:
            self._decoded(raw, bad)
        return raw

    def check_keys(self, keys: RecordSpans, bad: list[tuple[int, BaseException]]) -> None:
        """Find the keys that cannot be decoded, though they stay bytes."""
        if self._checks_keys and not (writes_utf8(self.key_serde) and is_text(keys)):
            self._decoded(pieces(keys), bad)

    @property
    def _checks_keys(self) -> bool:
        """Whether keys that stay bytes must be decodable: it is found here, where they enter."""
        return self.step.foreign and (self.declared or bool(self.wants_keys))

    def _decoded(self, raw: list[Any], bad: list[tuple[int, BaseException]]) -> list[Any]:
        found = self.key_serde.loads_many(raw)
        bad.extend((index, DataError(f"the key {error.what}", remedy=error.remedy)) for index, error in found.bad)
        return found.values

    def _keys_of_values(self, chunk: Chunk, values: list[Any], bad: list[tuple[int, BaseException]]) -> list[Any]:
        """The keys from the declared field. A null value has no fields, so its record's own key is read instead.

        Without a declared serde, that key is read as text. In an input with other keys it would be another key, so it is bad data there.
        """
        assert self.key is not None
        known = {index for index, _ in bad}
        if None not in values and not known:
            try:
                return self.believed(self.key(values), bad)
            except BaseException:  # noqa: BLE001, S110 - retried below, one by one
                pass
        own = self._decoded(self._raw_keys(chunk), []) if chunk.has_keys else None
        keys: list[Any] = []
        for index, value in enumerate(values):
            found = None
            if value is not None:
                try:
                    found = self.key([value])[0]
                except BaseException as error:  # whatever it is, this record caused it
                    if passes(error):
                        raise
                    bad.append((index, self._no_key(value, error)))
            keys.append(found)
        keys = self.believed(keys, bad)
        if own is not None and NoneType in map(type, values):  # by type: a value's own == may do anything
            unread = self.pipeline.table(NOT_TEXT).get(self.step.name) is not None
            for index, value in enumerate(values):
                if value is None:
                    if unread:
                        bad.append((index, _unsaid(self.step.name, "the key of a null value cannot be read")))
                    keys[index] = own[index]
        return keys

    def _no_key(self, value: Any, error: BaseException) -> BaseException:
        """The error of a value without the field that is its key: a name alone says nothing. What a function raised is its own."""
        by = self.step.key
        hint = lacking((by,), [value])(error) if isinstance(by, str) else ""
        if not hint:
            return error
        refused = DataError(f"key={by!r} of the input: {hint}")
        refused.__cause__ = error
        return refused

    def believed(self, keys: list[Any], bad: list[tuple[int, BaseException]]) -> list[Any]:
        """Check keys taken from values. Unless a key serde is declared, only the bytes of text keys in the topic are known. That there were
        others is kept in a table, for the null values of later lives.
        """
        if not self.declared and not TEXT.issuperset(map(type, keys)):
            seen = self.pipeline.table(NOT_TEXT)
            if seen.get(self.step.name) is None:
                seen.update({self.step.name: True})
            if self.only_text:
                for index, key in enumerate(keys):
                    if not isinstance(key, str | None):
                        what = f"the key {key!r:.60} is {type(key).__name__}, and other streams are to meet it"
                        bad.append((index, _unsaid(self.step.name, what)))
        return keys


def _as_read(serde: Any, data: Any, chunk: Chunk, part: str) -> Any:
    """The values or keys of a chunk, as their serde reads them."""
    return serde.with_headers(data, chunk.headers, part) if serde.own_headers and chunk.has_headers else data


def _key_bytes(key: Any) -> bytes | None:
    """Which bytes stand for a key; None for what can be no key."""
    try:
        return None if key is None else encode(key)
    except KeyRefused:
        return None


def _behind(source: Operator) -> Iterator[Operator]:
    """The operators behind this one, up to the next shuffle."""
    stack, seen = list(source.children), set[int]()
    while stack:
        operator = stack.pop()
        if id(operator) not in seen:
            seen.add(id(operator))
            stack += operator.children
            yield operator


def _made_behind(operator: Operator) -> frozenset[str]:
    """The columns that steps make behind this operator."""
    return frozenset(name for one in _behind(operator) if isinstance(one, WithColumnsOp) for name in one.made)


def _or_never(time: int | None) -> int:
    return FIRST_TIME - 1 if time is None else time
