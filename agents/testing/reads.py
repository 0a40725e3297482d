"""What a test can read from its driver: tables of all tasks together, records, dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any

from ...core.windows.results import END_FIELD, START_FIELD
from ..job.steps.keyed import AggregateStep, WindowStep
from ..records.values.record import Headers, Record
from ..state.window_rows import WindowFormat
from .logs import Stored


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter: the record as it came, its origin, and the error."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    step: str
    exception: str
    traceback: str
    headers: Headers = ()


class TableReader(Mapping[Any, Any]):
    """A committed table of the job, with the rows of all tasks."""

    def __init__(self, name: str, parts: Mapping[str, Any], finish: Any) -> None:
        self.name = name
        self._parts = parts
        self._finish = finish

    def __getitem__(self, key: Any) -> Any:
        for part in self._parts.values():
            found = part.get(key)
            if found is not None:
                return self._finish(found)
        raise KeyError(key)

    def __iter__(self) -> Iterator[Any]:
        """Keys are compared by their bytes: 1 and True are two keys."""
        found: dict[bytes, Any] = {}
        for part in self._parts.values():
            for key in part:
                found.setdefault(part.key_bytes(key), key)
        return iter(found.values())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def task(self, task: str) -> TableReader:
        """The rows of one task, for example `"Partition 3"`."""
        return TableReader(self.name, {task: self._parts[task]}, self._finish)

    def __repr__(self) -> str:
        return f"<table {self.name}: {{{', '.join(f'{key!r}: {self[key]!r}' for key in self)}}}>"


class WindowReader(Mapping[tuple[Any, int], dict[str, Any]]):
    """The open windows of a step, with the keys of all tasks. By key and start of the window: the window, and its aggregates so far or,
    under `rows`, the records that it keeps for an actor. Of sliding windows: the records that are kept, by key and the start of their own
    window, with what they add to windows.
    """

    def __init__(self, step: WindowStep, parts: Mapping[str, Any]) -> None:
        self.name = step.name
        self._step = step
        self._parts = parts

    def __getitem__(self, key: tuple[Any, int]) -> dict[str, Any]:
        return self._found()[self._step.key_serde.dumps(key[0]), key[1]]

    def __iter__(self) -> Iterator[tuple[Any, int]]:
        return iter([(self._step.key_serde.loads(key), start) for key, start in self._found()])

    def __len__(self) -> int:
        return len(self._found())

    def task(self, task: str) -> WindowReader:
        """The windows of one task, for example `"Partition 3"`."""
        return WindowReader(self._step, {task: self._parts[task]})

    def __repr__(self) -> str:
        return f"<windows {self.name}: {{{', '.join(f'{key!r}: {value!r}' for key, value in self.items())}}}>"

    def _found(self) -> dict[tuple[bytes, int], dict[str, Any]]:
        """By the bytes of the key: 1 and True are two keys."""
        step = self._step
        window = step.window
        format = WindowFormat(window.of_sessions, window.size_ms, step.rows is not None, window.sliding)
        found: dict[tuple[bytes, int, int], list[Any]] = {}
        rows = [value for part in self._parts.values() for slot, value in part.range() if isinstance(slot, int)]
        for one in chain.from_iterable(map(format.states, sorted(rows, key=itemgetter(0, 1)))):
            if format.rows and not format.sessions:
                found.setdefault((one.key, one.start, one.end), []).append(one.states)
            elif format.sliding and (one.key, one.start, one.end) in found:  # records of one time have one window
                before = found[one.key, one.start, one.end]
                found[one.key, one.start, one.end] = self._step.plan.joined(before, one.states)
            else:
                found[one.key, one.start, one.end] = one.states
        return {
            (key, start): {START_FIELD: start, END_FIELD: end, **self._shown(key, held)}
            for (key, start, end), held in sorted(found.items())
        }

    def _shown(self, key: bytes, held: list[Any]) -> dict[str, Any]:
        step = self._step
        if step.rows is None:
            return step.plan.results([held])[0]
        name, load = step.key_serde.loads(key), step.rows.loads
        return {
            "rows": [
                Record(name, None if data is None else load(data), time, tuple(map(tuple, headers or ())))
                for time, data, headers in held
            ]
        }


def as_it_is(value: Any) -> Any:
    """The value of a plain table."""
    return value


def result_of(step: AggregateStep) -> Any:
    """A function from an aggregate's states to its result."""
    return lambda states: step.plan.results([states])[0]


def record_of(one: Stored, serde: Any, key_serde: Any) -> Record[Any, Any]:
    """A stored record, decoded."""
    headers = tuple(one.headers)
    [data], [name] = (
        serde.with_headers([one.value], [headers], "value"),
        key_serde.with_headers([one.key], [headers], "key"),
    )
    value = None if data is None else serde.loads(data)
    return Record(None if name is None else key_serde.loads(name), value, one.timestamp, headers)


def dead_letter_of(one: Stored) -> DeadLetter:
    """A dead letter with the fields of its headers. A row that a step made from several records has the offset of the first. A row without
    a known origin (made at a watermark or by a timer) has -1.
    """
    found = {name: (value or b"").decode(errors="replace") for name, value in one.headers if name.startswith("hg-")}
    return DeadLetter(
        found.get("hg-topic", ""),
        int(found.get("hg-partition", -1)),
        int(found.get("hg-offset", -1)),
        one.key,
        one.value,
        found.get("hg-step", ""),
        found.get("hg-exception", ""),
        found.get("hg-traceback", ""),
        tuple((name, value) for name, value in one.headers if not name.startswith("hg-")),
    )
