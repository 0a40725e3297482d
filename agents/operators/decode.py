"""Decodes the bytes of a chunk into rows: this is where records enter a task.

What it decides: which parts of a record are decoded. Keys and headers become columns only where a later step asks for them.

A record that cannot be read raises `BadRecord` with its index; the task decides what happens then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.errors import DataError
from ...core.progress.frames import FrameError
from ..cancellation import passes
from ..job import steps as s
from ..job.declaration import Declared
from ..job.schemas import NOT_TEXT
from ..job.timestamps import BadTimestamp, timestamps_of
from ..records.chunks import Chunk
from ..records.record import Rows
from ..records.selecting import column_of
from ..records.writable import TIME_LIMIT, Unwritable
from .keyed import PARTIAL
from .stateless import VALUES, Operator

if TYPE_CHECKING:
    from .pipeline import Pipeline

_OTHER_KIND = ("partial states instead of rows", "rows instead of partial states")


class BadRecord(Exception):
    """Row `index` of a chunk cannot be read."""

    def __init__(self, index: int, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.index = index
        self.cause = cause


TEXT = frozenset((str, type(None)))


def _unsaid(stream: str, what: str) -> DataError:
    return DataError(
        f"{what}, but nothing says how the producers of '{stream}' write their keys",
        remedy=f"declare it: app.input('{stream}', key_serde=…), or use .repartition(…)",
    )


def serde_of(step: s.InputStep | s.ShuffleStep) -> Any:
    """The serde of the values in a stream."""
    return PARTIAL if isinstance(step, s.ShuffleStep) and step.combine is not None else step.serde


def value_serdes(declared: Declared) -> dict[str, Any]:
    """The serde of the values of every stream that the job reads, by topic."""
    read = [step for step in declared.steps if isinstance(step, s.InputStep | s.ShuffleStep)]
    return {step.topic if isinstance(step, s.InputStep) else declared.topic(step): serde_of(step) for step in read}


class SourceOp(Operator):
    """The first operator of a chain: an input, or the receiving side of a shuffle."""

    def __init__(self, step: s.InputStep | s.ShuffleStep, pipeline: Pipeline) -> None:
        super().__init__(step, pipeline)
        self.pipeline = pipeline
        self.partial = isinstance(step, s.ShuffleStep) and step.combine is not None
        """Whether the values are partial states of the aggregate behind the shuffle."""
        self.serde: Any = serde_of(step)
        self.key_serde: Any = step.key_serde or pipeline.app.key_serde
        """The serde that wrote the keys. For an input that declares none, it is assumed only if a later step needs keys."""
        self.declared = step.key_serde is not None
        self.only_text = False
        """The stream meets other streams by key, so without a declared key serde it accepts only text keys: only their bytes are known."""
        self.key = None
        self.timestamp = None
        self.wants_headers = True
        self.wants_offsets = False
        if isinstance(step, s.InputStep):
            self.key = column_of(step.key) if step.key is not None else None
            self.timestamp = timestamps_of(step.timestamp) if step.timestamp is not None else None

    def push_chunk(self, chunk: Chunk, skip: frozenset[int]) -> int | None:
        """Decode a chunk and push its rows on. Returns their greatest event time."""
        if chunk.bad is not None:
            raise BadRecord(0, chunk.bad)
        if (chunk.plan is not None) != self.partial:
            raise BadRecord(
                0, FrameError(_OTHER_KIND[self.partial], remedy="only the job itself may write this stream")
            )
        rows, offsets = self._rows(chunk, skip)
        greatest = self._greatest(rows.timestamps, chunk, skip)
        if self.wants_offsets:
            rows.offsets = chunk.columns.offset_column() if offsets is None else offsets
        self.pipeline.runs(chunk, rows, offsets, skip)
        self.forward(rows)
        return greatest

    def _greatest(self, times: list[int], chunk: Chunk, skip: frozenset[int]) -> int | None:
        """The greatest event time. A time out of range is bad data: a producer may write it, but nothing could be subtracted from it."""
        if not times:
            return None
        greatest = max(times)
        if greatest < TIME_LIMIT and min(times) > -TIME_LIMIT:
            return greatest
        kept = [index for index in range(len(times) + len(skip)) if index not in skip]
        for index, time in zip(kept, times, strict=False):
            if not -TIME_LIMIT < time < TIME_LIMIT:
                raise BadRecord(index, Unwritable(index, f"the event time {time} is out of range"))
        return greatest

    def _rows(self, chunk: Chunk, skip: frozenset[int]) -> tuple[Rows, list[int] | None]:
        decoded = self.serde.loads_many(chunk.values)
        bad: list[tuple[int, BaseException]] = decoded.bad
        values: list[Any] = decoded.values
        keys = self._keys(chunk, values, bad)
        if self.pipeline.keys is not None and isinstance(self.step, s.InputStep):
            self.pipeline.keys.see(self.step, chunk, keys)
        timestamps: list[int] = chunk.timestamps
        headers: Any = chunk.headers if self.wants_headers and chunk.has_headers else None
        key_serde = self.key_serde if self.key is None and self.wants_keys != VALUES else None
        offsets: list[int] | None = None
        keep: list[int] = []
        if bad or skip:
            for index, cause in bad:
                if index not in skip:
                    raise BadRecord(index, cause)
            keep = [i for i in range(len(values)) if i not in skip]
            values = [values[i] for i in keep]
            timestamps = [timestamps[i] for i in keep]
            own = chunk.offsets
            offsets = [own[i] for i in keep]
            keys = [keys[i] for i in keep] if keys is not None else None
            headers = [headers[i] for i in keep] if headers is not None else None
        if self.timestamp is not None:
            try:
                timestamps = self.timestamp(values, timestamps)
            except BadTimestamp as error:
                raise BadRecord(keep[error.index] if keep else error.index, error) from error
        return Rows(values, timestamps, keys, headers, plan=chunk.plan, key_serde=key_serde), offsets

    def _keys(self, chunk: Chunk, values: list[Any], bad: list[tuple[int, BaseException]]) -> list[Any] | None:
        if self.key is not None:
            return self._keys_of_values(chunk, values, bad)
        if not chunk.has_keys:
            return None
        raw = list(chunk.keys)
        if self.wants_keys == VALUES:
            return self._decoded(raw, bad)
        if isinstance(self.step, s.InputStep) and (self.declared or self.wants_keys):
            # the bytes stay as they are, but an undecodable key must be found here, where it enters
            self._decoded(raw, bad)
        return raw

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
                return self._believed(self.key(values), bad)
            except BaseException:  # noqa: BLE001, S110 - retried below, one by one
                pass
        own = self._decoded(list(chunk.keys), []) if chunk.has_keys else None
        keys: list[Any] = []
        for index, value in enumerate(values):
            found = None
            if value is not None:
                try:
                    found = self.key([value])[0]
                except BaseException as error:  # whatever it is, this record caused it
                    if passes(error):
                        raise
                    bad.append((index, error))
            keys.append(found)
        keys = self._believed(keys, bad)
        if own is not None and None in values:
            unread = self.pipeline.table(NOT_TEXT).get(self.step.name) is not None
            for index, value in enumerate(values):
                if value is None:
                    if unread:
                        bad.append((index, _unsaid(self.step.name, "the key of a null value cannot be read")))
                    keys[index] = own[index]
        return keys

    def _believed(self, keys: list[Any], bad: list[tuple[int, BaseException]]) -> list[Any]:
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
