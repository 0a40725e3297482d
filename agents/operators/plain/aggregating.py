"""A running aggregate for each key.

Promises: a chunk changes only copies until it is complete, so a failed chunk leaves no trace. `seal` writes what has changed, and passes
updates on.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from ...job.steps.keyed import AggregateStep
from ...records.columns.encoder import Encoder
from ...records.columns.records import Records
from ...records.columns.selecting import all_mappings
from ...records.layout import longs
from ...records.memory.record_spans import packed, pieces
from ...records.memory.vectors import VectorBatch
from ..base.addends import (
    Addends,
    ColumnAddends,
    PartialAddends,
    chunk_keys,
    greatest_times,
    keyed,
    later_times,
    same_keys,
    vectors_of,
)
from ..base.key_arrays import Addition, KeyArrays, has_arrays
from ..base.stateless import BYTES, Env, Operator, blaming


class AggregateOp(Operator):
    """A running aggregate for each key. Its states are a table; each commit passes updates on. Keys are in bytes.

    Between commits the states are kept here. Numbers of 64 bits are in `arrays`: what the running chunk adds there waits as `pending`,
    which changes nothing. All other states are lists: `fresh` holds those of the running chunk (copies, so that a failed chunk leaves no
    trace), `states` those of completed chunks. Each commit writes the changed keys to the table. Unchanged states count as cached rows of
    the table and can be dropped at any time, because the store has them. The time of an update is the greatest of its rows.
    """

    gives_keys = True
    of_letter = ("fresh", "fresh_ts", "pending")

    def __init__(self, step: AggregateStep, env: Env) -> None:
        super().__init__(step, env)
        self.aggregate = step
        self.plan = step.plan
        self.key_serde = step.key_serde
        self.table = env.table(step.name)
        self.wants_keys = BYTES
        self.partial = step.takes_partials
        self.arrays: KeyArrays | None = None
        if has_arrays(self.plan, step.parents[0].columns_given):
            self.arrays = KeyArrays(self.plan, partial=self.partial, head=self.table.head, before=step.before)
            if not self.arrays.has_objects and not self.plan.shows:
                self.as_json = Encoder(self.plan.names)
                self.table.at_hand = self._at_hand
        self.before = step.before
        self.pending: list[Addition] = []
        self.suspended: list[Addition] = []
        """What a chunk adds that is set aside while a transaction is sealed."""
        self.states: dict[Any, list[Any]] = {}
        self.held = self.table.keep(self.states, self._give_back, self._reserved)
        self.dirty: dict[Any, int] = {}
        """The times of the keys in `states` that have changed."""
        self.fresh: dict[Any, list[Any]] = {}
        self.fresh_ts: dict[Any, int] = {}
        self.loading = False
        """States are being loaded: their numbers must stay what they are."""

    def push(self, rows: Records) -> None:
        if self.partial:
            self._push_states(rows)
        elif rows.vectors is not None:
            self._aggregate(ColumnAddends(self.aggregate, rows, lambda of: chunk_keys(self, of, self.key_serde)))
        else:
            keys = keyed(self, rows, self.key_serde)
            self._aggregate(Addends(self.aggregate, keys, rows.values, rows.timestamps))

    def _push_states(self, rows: Records) -> None:
        if self._in_arrays(rows):
            return
        keys = keyed(self, rows, self.key_serde)
        values = rows.values
        if rows.plan != self.plan.digest:
            with blaming(self.aggregate):
                values = self._of_former_code(rows.plan, values)
        self._aggregate(Addends(self.aggregate, keys, values, rows.timestamps, partial=True))

    @property
    def wants_states(self) -> bool:
        return self.arrays is not None and not self.arrays.has_objects

    def _in_arrays(self, rows: Records) -> bool:
        """Add partial states as columns. False if they must be added one by one: these are of former code, or no numbers."""
        arrays = self.arrays
        if arrays is None or not same_keys(self.key_serde, rows.key_serde) or rows.plan != self.plan.digest:
            return False
        states = None if self.fresh or self.pending or self.at_once else vectors_of(arrays, rows)
        if states is None:
            return False
        of = PartialAddends(self.aggregate, rows, states, lambda: rows.values)
        with of.blaming():
            self.pending = [of.addition(arrays)]
            self._look_up(arrays)
        return True

    def reads(self, behind: frozenset[str]) -> frozenset[str]:
        return self.plan.reads

    def _aggregate(self, of: Addends | ColumnAddends) -> None:
        arrays = self.arrays
        with of.blaming():
            if arrays is not None and not self.fresh and not self.pending and not self.at_once:
                addition = of.addition(arrays)
                if addition is not None:
                    self.pending = [addition]
                    self._look_up(arrays)
                    return
            self._to_copies()
            former: list[list[Any]] | None = [] if self.before and self.at_once else None
            times = self._add_to_copies(of, former)
        if self.careful:
            self._write(times, self.fresh)
        if self.at_once:
            self._emit(times, self.fresh, former)

    def _of_former_code(self, plan: int | None, values: list[Any]) -> list[Any]:
        """Convert partial states that were in flight when the code was changed to the form of this code."""
        layout = self.table.layout
        schema = layout.of_partials(plan)
        return [layout.adapt(schema, value) for value in values]

    # ---------------------------------------------------------------------------------------------------------- copies

    def _to_copies(self) -> None:
        """Add what waits for the arrays to copies, like the rest of the chunk."""
        waiting, self.pending = self.pending, []
        for one in waiting:
            self._add_to_copies(one.source)

    def _add_to_copies(
        self, of: Addends | ColumnAddends | PartialAddends, former: list[list[Any]] | None = None
    ) -> dict[Any, int]:
        """Returns the times of the keys that it adds to. What their states were goes to `former`."""
        fresh, keys = self.fresh, of.listed()
        times = greatest_times(keys, of.timestamps)
        self._fetch([key for key in times if key not in fresh])
        if former is not None:
            former += [self.plan.copy(fresh[key]) for key in times]
        values = of.values()
        if self.partial:
            self.plan.merge(keys, values, fresh)
        else:
            self.plan.add(keys, values, fresh, items=all_mappings(values))
        later_times(self.fresh_ts, times)
        return times

    def _fetch(self, keys: list[Any]) -> None:
        """Copy the states of these keys into `fresh`, for the running chunk."""
        fresh, states, copy = self.fresh, self.states, self.plan.copy
        known = [key for key in keys if key in states]
        fresh.update((key, copy(states[key])) for key in known)
        unknown = [key for key in keys if key not in states] if len(known) < len(keys) else []
        if self.arrays is None:
            found = self.table.fetch(unknown) if unknown else []
            fresh.update(
                (key, self.plan.start() if one is None else list(one)) for key, one in zip(unknown, found, strict=True)
            )
        elif unknown:
            numbers = self.arrays.keys.numbers_listed(unknown)
            self._look_up(self.arrays)
            fresh.update(zip(unknown, self.arrays.states(numbers), strict=True))
            fresh.update((key, copy(states[key])) for key in unknown if key in states)

    def _look_up(self, arrays: KeyArrays) -> None:
        """Load the committed states of new keys."""
        numbers, keys = arrays.unknown()
        if not keys:
            return
        arrays.reserve()
        self.loading = True
        try:
            rows = self.table.newest(keys)
            stored = [at for at, row in enumerate(rows) if row is not None]
            if stored:
                vectors, odd = arrays.unpack(packed([rows[at] for at in stored]))
                there = array("q", [numbers[at] for at in stored])
                arrays.loaded(there, vectors, self.table.loaded)
                others = {keys[stored[at]]: rows[stored[at]] for at in odd}
                found = {key: self.table.read(row) for key, row in others.items()}
                found = {key: list(state) for key, state in found.items() if state is not None}
                self._keep(found, None)
                self.held.add(list(others), list(others.values()))
            arrays.known = len(arrays.keys)
        finally:
            self.loading = False
            if arrays.known < len(arrays.keys):
                self.pending = []
                arrays.forget_unknown()

    def _keep(self, states: dict[Any, list[Any]], times: dict[Any, int] | None) -> None:
        """Take over states: into arrays what fits. With times they have changed."""
        arrays = self.arrays
        apart = states
        if arrays is not None and states:
            vectors = arrays.vectors(list(states.values()))
            apart = {} if vectors is not None else {k: one for k, one in states.items() if not arrays.vectors([one])}
            if self.before:  # what such a state was at the last seal fits into no array, either
                apart |= {key: states[key] for key in states.keys() & self.states.keys()}
            fits = {key: one for key, one in states.items() if key not in apart} if apart else states
            if fits:
                for key in fits.keys() & self.states.keys():
                    del self.states[key]
                    if times is not None:
                        times[key] = max(times[key], self.dirty.pop(key, times[key]))
                vectors = arrays.vectors(list(fits.values())) if apart or vectors is None else vectors
                assert vectors is not None
                arrays.put(list(fits), vectors, None if times is None else [times[key] for key in fits])
            if apart:
                arrays.odd.update(longs(arrays.known_numbers(list(apart))))
        self.states.update(apart)
        if times is not None:
            later_times(self.dirty, {key: times[key] for key in apart})

    # -------------------------------------------------------------------------------------------------- with the letter

    def prepare(self) -> None:
        """Use copies for what does not fit into arrays: a commit in the middle of the chunk may have changed states, too."""
        arrays = self.arrays
        for one in self.pending if arrays is not None else ():
            assert arrays is not None
            if arrays.meets_odd(one) or arrays.refused(one):
                with blaming(self.step):
                    self._to_copies()

    def complete(self) -> None:
        if self.fresh:
            self._keep({key: self.fresh[key] for key in self.fresh_ts}, self.fresh_ts)  # in the order of their rows
        for one in self.pending:
            assert self.arrays is not None
            self.arrays.add(one)
        self.drop()
        self.held.count()

    def _reserved(self) -> int:
        return 0 if self.arrays is None else self.arrays.memory()

    def _give_back(self) -> None:
        """Evict states that neither a commit nor the running chunk needs: all of them from the arrays, half of the lists, oldest first."""
        if self.loading:
            return
        states = self.states
        additions = [*self.pending, *self.suspended]
        needed = {*self.dirty, *self.fresh_ts, *(key for one in additions if states for key in one.source.listed())}
        half = islice(states, (len(states) + 1) // 2)
        gone = [k for k in half if k not in needed] or [k for k in states if k not in needed]
        for key in gone:
            del states[key]
        if self.arrays is not None and len(self.arrays.keys):
            self.arrays.retain(additions)
            self.arrays.set_odd(list(states))
        gone += [key for key in self.held.large if key not in states and key not in needed]
        self.held.forget(gone)

    def drop(self) -> None:
        self.fresh, self.fresh_ts, self.pending = {}, {}, []

    def seal(self) -> None:
        if self.arrays is not None:
            self._seal_arrays(self.arrays)
        if not self.dirty:
            return
        dirty, self.dirty = self.dirty, {}
        states = self.states
        former = self._stored(dirty) if self.before and not self.at_once else None
        if not self.careful:
            self._write(dirty, states)
        if not self.at_once:
            self._emit(dirty, states, former)

    def _seal_arrays(self, arrays: KeyArrays) -> None:
        changed = arrays.changed()
        if not len(changed):
            return
        keys, logged = arrays.keys.keys(changed, self.table.prefix)
        states, times = arrays.cells.take(changed)
        former = arrays.replaced(changed, states) if self.before else None
        arrays.cells.settle(self.table.seals)
        if not self.careful:
            self.table.put_packed(keys, logged, arrays.pack(states))
        if self.at_once:
            return

        def results() -> VectorBatch:
            found = [*arrays.results(states), *(arrays.results(former) if former is not None else ())]
            return VectorBatch(self.aggregate.results, tuple(found), len(longs(times)))

        def listed() -> list[Any]:
            with blaming(self.step):
                return self._results(arrays.lists(states), None if former is None else arrays.lists(former))

        self.forward(
            Records.of_vectors(
                None,
                times,
                key_spans=keys,
                key_serde=self.key_serde,
                results=None if arrays.has_objects or self.plan.shows else results,
                make=listed,
            )
        )

    def _at_hand(self, keys: list[bytes]) -> tuple[Sequence[int], Sequence[bytes]]:
        """See `AtHand`. What has changed since the last commit, or is not in arrays, is read from the store."""
        arrays, table = self.arrays, self.table
        assert arrays is not None
        places, numbers = arrays.cells.numbers.durable(arrays.keys.found(keys), table.seals, table.waiting)
        if arrays.odd:
            fits = [at for at, one in enumerate(longs(numbers)) if one not in arrays.odd]
            places, numbers = (array("q", [longs(one)[at] for at in fits]) for one in (places, numbers))
        states, _ = arrays.cells.take(numbers)
        batch = VectorBatch(self.plan.names, tuple(arrays.results(states)), len(longs(numbers)))
        found: Any = pieces(self.as_json.encode(batch))
        return longs(places).tolist(), found

    def _write(self, dirty: dict[Any, int], states: dict[Any, list[Any]]) -> None:
        copy = self.plan.copy  # later rows must not change what the table keeps
        self.table.put({key: copy(states[key]) for key in dirty})

    def _stored(self, keys: Iterable[Any]) -> list[list[Any]]:
        """What the states of these keys were at the last seal, decoded: objects in the table's memory may be those that have changed."""
        table = self.table
        found = (None if row is None else table.read(row) for row in table.newest(list(keys)))
        return [self.plan.start() if one is None else list(one) for one in found]

    def _results(self, states: list[list[Any]], former: list[list[Any]] | None) -> list[dict[str, Any]]:
        return self.plan.results(states) if former is None else self.plan.changes(states, former)

    def _emit(self, dirty: dict[Any, int], states: dict[Any, list[Any]], former: list[list[Any]] | None) -> None:
        if not self.children:
            return
        with blaming(self.step):
            results = self._results([states[key] for key in dirty], former)
        self.forward(Records(results, list(dirty.values()), list(dirty), key_serde=self.key_serde))

    def suspend(self) -> Any:
        self.suspended = self.pending
        return super().suspend()

    def resume(self, aside: Any) -> None:
        super().resume(aside)
        self.suspended = []
