"""What a task runs: the declared steps as operators over columns of rows.

An operator takes `Rows` and pushes `Rows` to its children, synchronously, a chunk at a time; the hot ones are one list
comprehension each. What must be awaited is deferred: the operator asks `env.defer(...)`, and the task's actor awaits it when
the synchronous part is through, in order, so awaiting exists only where the user asked for it.

What a chunk did is kept apart until it is complete: tables and combined rows have `complete()` and `drop()`. At a commit
`seal()` gives on what is better given once a commit than once a row (updates of aggregates, combined partial states).

An exception of user code leaves here as `UserCodeError` and names the step; nobody here decides what happens then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import compress
from operator import itemgetter
from typing import Any, Protocol

from ..core.errors import HeadgateError
from . import steps as s
from .record import Headers, Record, Rows

KEPT_STATES = 200_000
"""Decoded states that an aggregate keeps between commits, at most; the store has the others."""


class UserCodeError(HeadgateError):
    """A function of the user's raised. `step` is where, `__cause__` is what."""

    def __init__(self, step: s.Step, cause: BaseException, index: int | None = None) -> None:
        self.step = step
        self.index = index
        kind = type(step).__name__.removesuffix("Step").lower()
        name = f" '{step.name}'" if step.name else ""
        super().__init__(f"{kind}{name} ({step.where}) raised {type(cause).__name__}: {cause}")
        self.__cause__ = cause


class TableLike(Protocol):
    """What operators need of a table; `agents.tables.Table` is one."""

    def get_many(self, keys: Sequence[Any]) -> list[Any]: ...
    def update(self, changes: dict[Any, Any]) -> None: ...
    def delete_many(self, keys: Iterable[Any]) -> None: ...


class Env(Protocol):
    """What operators need of the task that they run in."""

    @property
    def task(self) -> str: ...
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
        self, name: str, everyone: bool, keys: list[bytes | None], timestamps: list[int], values: list[bytes]
    ) -> None:
        """Rows into an intermediate stream, to the partitions that their keys belong to."""
        ...

    def table(self, name: str) -> TableLike: ...
    def defer(self, work: Callable[[], Awaitable[None]]) -> None: ...
    def count(self, name: str, amount: int = 1) -> None: ...
    def now_ms(self) -> int: ...


class Operator:
    """Base: passes on. `children` are filled in when the pipeline is put together."""

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
        """A transaction is about to close: give on what was held back for it."""

    def complete(self) -> None:
        """The chunk is complete: what it changed counts from now on."""

    def drop(self) -> None:
        """The chunk failed: forget what it changed."""

    def suspend(self) -> Any:
        """Put aside what the chunk that runs has changed so far; a seal must not see it. `resume` gives it back."""
        return None

    def resume(self, aside: Any) -> None:
        """Go on with the chunk that was put aside."""

    awaits = False
    """Whether it defers work."""
    letters = False
    """Whether watermarks, ends and drains concern it."""
    watermark: int | None = None

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

    async def close(self) -> None:
        """The task goes: end what user code has running."""

    def column(self, fn: Callable[[Any], Any], of: Iterable[Any]) -> list[Any]:
        """`fn` over a column; a raise becomes a `UserCodeError` of this step."""
        try:
            return [fn(x) for x in of]
        except Exception as cause:
            raise UserCodeError(self.step, cause) from cause


class MapOp(Operator):
    """One value in, one out."""

    def __init__(self, step: s.MapStep, env: Env) -> None:
        super().__init__(step, env)
        self.fn = step.fn
        self.with_record = step.with_record

    def push(self, rows: Rows) -> None:
        if not self.with_record:
            self.forward(rows.with_values(self.column(self.fn, rows.values)))
            return
        self.forward(rows_of_results(rows, self.column(self.fn, rows.records())))


def rows_of_results(rows: Rows, results: list[Any]) -> Rows:
    """Results of functions that got records: plain values, or records that set key, timestamp and headers."""
    if not any(isinstance(result, Record) for result in results):
        return rows.with_values(results)
    records = [
        result if isinstance(result, Record) else record.with_value(result)
        for record, result in zip(rows.records(), results, strict=True)
    ]
    return Rows.of(records)


class FilterOp(Operator):
    """Keeps the rows for which the function is true."""

    def __init__(self, step: s.FilterStep, env: Env) -> None:
        super().__init__(step, env)
        self.fn = step.fn
        self.with_record = step.with_record

    def push(self, rows: Rows) -> None:
        keep = self.column(self.fn, rows.records() if self.with_record else rows.values)
        self.forward(select_rows(rows, keep))


def select_rows(rows: Rows, keep: Sequence[Any]) -> Rows:
    """The rows for which `keep` is true."""
    if all(keep):
        return rows
    return Rows(
        list(compress(rows.values, keep)),
        list(compress(rows.timestamps, keep)),
        list(compress(rows.keys, keep)) if rows.keys is not None else None,
        list(compress(rows.headers, keep)) if rows.headers is not None else None,
    )


class FlatMapOp(Operator):
    """One value in, any number out."""

    def __init__(self, step: s.FlatMapStep, env: Env) -> None:
        super().__init__(step, env)
        self.fn = step.fn
        self.with_record = step.with_record

    def push(self, rows: Rows) -> None:
        source = rows.records() if self.with_record else rows.values
        lists = self.column(lambda x: list(self.fn(x)), source)
        if any(isinstance(item, Record) for items in lists for item in items):
            records = [
                item if isinstance(item, Record) else record.with_value(item)
                for record, items in zip(rows.records(), lists, strict=True)
                for item in items
            ]
            self.forward(Rows.of(records))
            return
        self.forward(
            Rows(
                [item for items in lists for item in items],
                [t for t, items in zip(rows.timestamps, lists, strict=True) for _ in items],
                None if rows.keys is None else [k for k, items in zip(rows.keys, lists, strict=True) for _ in items],
                None
                if rows.headers is None
                else [h for h, items in zip(rows.headers, lists, strict=True) for _ in items],
            )
        )


class RekeyOp(Operator):
    """Another key, in place."""

    def __init__(self, step: s.RekeyStep, env: Env) -> None:
        super().__init__(step, env)
        self.by = selector(step.by)

    def push(self, rows: Rows) -> None:
        self.forward(Rows(rows.values, rows.timestamps, self.column(self.by, rows.values), rows.headers))


def selector(by: Any) -> Callable[[Any], Any]:
    """A field's name, or a function, as a function."""
    return itemgetter(by) if isinstance(by, str) else by


class ShuffleOp(Operator):
    """Out of this stage: rows into an intermediate stream."""

    def __init__(self, step: s.ShuffleStep, env: Env) -> None:
        super().__init__(step, env)
        self.shuffle_step = step
        self.by = selector(step.by) if step.by is not None else None

    def keys_of(self, rows: Rows) -> list[Any]:
        """The key of each row."""
        if self.by is not None:
            return self.column(self.by, rows.values)
        return rows.keys if rows.keys is not None else [None] * len(rows.values)

    def push(self, rows: Rows) -> None:
        step = self.shuffle_step
        keys = encode_keys(step, step.key_serde, self.keys_of(rows))
        values = encode(step, step.serde, rows.values)
        self.env.shuffle(step.name, step.everyone, keys, rows.timestamps, values)


class CombineOp(ShuffleOp):
    """Out of this stage, with what follows (an aggregate) begun here: partial states travel, once a key and commit.

    `settled` holds the partial states of completed chunks of the open transaction, `fresh` those of the chunk that runs.
    """

    def __init__(self, step: s.ShuffleStep, env: Env) -> None:
        super().__init__(step, env)
        assert step.combine is not None
        self.plan = step.combine
        self.settled: dict[Any, list[Any]] = {}
        self.fresh: dict[Any, list[Any]] = {}
        self.settled_ts = 0
        self.fresh_ts = 0

    def push(self, rows: Rows) -> None:
        keys = self.keys_of(rows)
        fresh = self.fresh
        for key in set(keys):
            if key not in fresh:
                fresh[key] = self.plan.start()
        try:
            self.plan.loop(keys, rows.values, fresh)
        except Exception as cause:
            raise UserCodeError(self.step, cause) from cause
        self.fresh_ts = max(self.fresh_ts, max(rows.timestamps, default=0))

    def complete(self) -> None:
        settled = self.settled
        if not settled:
            self.settled, self.fresh = self.fresh, {}
        else:
            new = [key for key in self.fresh if key not in settled]
            for key in new:
                settled[key] = self.fresh.pop(key)
            self.plan.merge_loop(self.fresh.keys(), self.fresh.values(), settled)
            self.fresh = {}
        self.settled_ts = max(self.settled_ts, self.fresh_ts)

    def drop(self) -> None:
        self.fresh = {}

    def suspend(self) -> Any:
        aside, self.fresh, self.fresh_ts = (self.fresh, self.fresh_ts), {}, 0
        return aside

    def resume(self, aside: Any) -> None:
        self.fresh, self.fresh_ts = aside

    def seal(self) -> None:
        if self.settled:
            step = self.shuffle_step
            states, self.settled = self.settled, {}
            keys = encode_keys(step, step.key_serde, list(states))
            values = encode(step, PARTIAL, list(states.values()))
            self.env.shuffle(step.name, step.everyone, keys, [self.settled_ts] * len(states), values)


class AggregateOp(Operator):
    """A running aggregate for each key. Its states are a table; updates go on at each commit.

    States live here, decoded, between commits: `fresh` are those of the chunk that runs (copies, so that a failing chunk leaves
    no trace), `states` those of completed ones. The table is written once a commit, with the keys that changed.
    """

    def __init__(self, step: s.AggregateStep, env: Env) -> None:
        super().__init__(step, env)
        self.plan = step.plan
        self.table = env.table(step.name)
        self.partial = any(isinstance(parent, s.ShuffleStep) and parent.combine for parent in step.parents)
        self.states: dict[Any, list[Any]] = {}
        self.dirty: dict[Any, int] = {}
        self.fresh: dict[Any, list[Any]] = {}
        self.fresh_ts: dict[Any, int] = {}
        self.at_once = False
        """Something below it awaits, which a seal cannot: updates go on with each chunk instead of each commit."""

    def push(self, rows: Rows) -> None:
        if rows.keys is None:
            raise UserCodeError(self.step, KeyError("the records have no key: put a repartition() before agg()"))
        keys = rows.keys
        fresh = self.fresh
        self._fetch([key for key in set(keys) if key not in fresh])
        try:
            if self.partial:
                self.plan.merge_loop(keys, rows.values, fresh)
            else:
                self.plan.loop(keys, rows.values, fresh)
        except Exception as cause:
            raise UserCodeError(self.step, cause) from cause
        if self.at_once:
            self._give_on(dict(zip(keys, rows.timestamps, strict=True)), fresh)
        self.fresh_ts.update(zip(keys, rows.timestamps, strict=True))

    def _fetch(self, keys: list[Any]) -> None:
        """Copies of the states of these keys, for the chunk that runs."""
        fresh, states, start = self.fresh, self.states, self.plan.start
        unknown: list[Any] = []
        for key in keys:
            known = states.get(key)
            if known is None:
                unknown.append(key)
            else:
                fresh[key] = known.copy()
        for key, found in zip(unknown, self.table.get_many(unknown), strict=True):
            fresh[key] = start() if found is None else list(found)

    def complete(self) -> None:
        self.states.update(self.fresh)
        self.dirty.update(self.fresh_ts)
        self.fresh, self.fresh_ts = {}, {}

    def drop(self) -> None:
        self.fresh, self.fresh_ts = {}, {}

    def seal(self) -> None:
        if not self.dirty:
            return
        dirty, self.dirty = self.dirty, {}
        states = self.states
        self.table.update({key: states[key] for key in dirty})
        if not self.at_once:
            self._give_on(dirty, states)
        if len(states) > KEPT_STATES:
            self.states = {key: states[key] for key in dirty}

    def _give_on(self, dirty: dict[Any, int], states: dict[Any, list[Any]]) -> None:
        result = self.plan.result
        self.forward(Rows([result(states[key]) for key in dirty], list(dirty.values()), list(dirty)))

    def suspend(self) -> Any:
        aside = self.fresh, self.fresh_ts
        self.fresh, self.fresh_ts = {}, {}
        return aside

    def resume(self, aside: Any) -> None:
        self.fresh, self.fresh_ts = aside


class TableOp(Operator):
    """Keeps the last value of each key; a null value deletes."""

    def __init__(self, step: s.TableStep, env: Env) -> None:
        super().__init__(step, env)
        self.table = env.table(step.name)

    def push(self, rows: Rows) -> None:
        if rows.keys is None:
            raise UserCodeError(self.step, KeyError("the records have no key: give the input a key= or a key_serde="))
        last = dict(zip(rows.keys, rows.values, strict=True))
        gone = [key for key, value in last.items() if value is None]
        for key in gone:
            del last[key]
        self.table.update(last)
        self.table.delete_many(gone)
        self.forward(rows)


class JoinTableOp(Operator):
    """Each row with its row of a table."""

    def __init__(self, step: s.JoinTableStep, env: Env) -> None:
        super().__init__(step, env)
        self.join = step
        self.on = selector(step.on) if step.on is not None else None
        self.table = env.table(step.table.name)

    def push(self, rows: Rows) -> None:
        values = rows.values
        keys = self.column(self.on, values) if self.on else (rows.keys or [None] * len(values))
        distinct = list(dict.fromkeys(keys))
        found = dict(zip(distinct, self.table.get_many(distinct), strict=True))
        into = self.join.into
        if self.join.how == "inner":
            keep = [found[key] is not None for key in keys]
            missed = len(keep) - sum(keep)
            if missed:
                self.env.count("join_misses", missed)
                rows = select_rows(rows, keep)
                keys = list(compress(keys, keep))
        try:
            joined = [into(value, found[key]) for value, key in zip(rows.values, keys, strict=True)]
        except Exception as cause:
            raise UserCodeError(self.step, cause) from cause
        self.forward(rows.with_values(joined))


class ToOp(Operator):
    """Writes to an output topic."""

    def __init__(self, step: s.ToStep, env: Env) -> None:
        super().__init__(step, env)
        self.to = step
        self.key = selector(step.key) if step.key is not None else None

    def push(self, rows: Rows) -> None:
        step = self.to
        keys = self.column(self.key, rows.values) if self.key else rows.keys
        raw = None if keys is None else encode_keys(step, step.key_serde, keys)
        values: list[bytes | None] = list(encode(step, step.serde, rows.values))
        if step.partition is None:
            self.env.emit(step.topic, None, raw, values, rows.timestamps, rows.headers)
            return
        targets = self.column(step.partition, rows.records())
        for target in sorted(set(targets)):
            at = [i for i, t in enumerate(targets) if t == target]
            self.env.emit(
                step.topic,
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


def encode_keys(step: s.Step, serde: Any, keys: list[Any]) -> list[Any]:
    """Keys as bytes; bytes and None stay as they are."""
    if all(key is None or isinstance(key, bytes) for key in keys):
        return keys
    return encode(step, serde, keys)


class _Partial:
    """Partial states of an aggregate between two stages: msgpack, whatever the stream's serde."""

    def __init__(self) -> None:
        from .serde import msgpack

        self._serde = msgpack()

    def dumps_many(self, values: list[Any]) -> Any:
        return self._serde.dumps_many(values)

    def loads_many(self, values: list[Any]) -> Any:
        return self._serde.loads_many(values)


PARTIAL = _Partial()
