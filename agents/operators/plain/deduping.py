"""The first row of each key.

Promises: a key counts as seen once the letter of its first row is complete, in the same transaction as what became of that row; a letter
that fails leaves no trace. A key whose time is over is new again, whatever the memory still holds of it.
"""

from __future__ import annotations

from array import array
from typing import Any

from ...job.steps.keyed import DedupeStep
from ...learning import LateTopics, MustLearn
from ...records.columns.groups import KeyTable
from ...records.columns.records import Records
from ...records.memory.record_spans import pieces
from ..base.addends import chunk_keys, firsts, keyed
from ..base.stateless import BYTES, Env, Operator


class DedupeOp(Operator):
    """Passes on the first row of each key. The keys that were seen are a table; those that were looked for lately are also in memory."""

    wants_keys = BYTES

    def __init__(self, step: DedupeStep, env: Env) -> None:
        super().__init__(step, env)
        self.key_serde = step.key_serde
        self.expires = step.ttl_ms is not None
        self.table = env.table(step.name)
        self.table.caches_written = False
        self.seen = KeyTable()
        """Keys that were seen, by the running letter or an earlier one."""
        self.settled = 0
        """The keys in `seen` with a lower number were seen by letters that are complete."""
        self.aside: frozenset[bytes] = frozenset()
        """The keys of a letter that is set aside while a transaction is sealed."""
        self.crossed = False
        """What was sealed meanwhile had one of these."""
        self.outrun = False
        """The running letter has passed on a row that is not the first, because a commit in its middle had an earlier one."""
        self.held = self.table.keep((), self._give_back, lambda: self.seen.memory(), reads=False)

    def push(self, rows: Records) -> None:
        before = len(self.seen)
        if rows.vectors is not None:
            numbers = chunk_keys(self, rows, self.key_serde).numbers(self.seen)
        else:
            numbers = self.seen.numbers_listed(keyed(self, rows, self.key_serde))
        fresh = self._from(before)
        if not fresh:
            return
        stored = self._stored(fresh)
        new = {number: key for number, (key, known) in enumerate(zip(fresh, stored, strict=True), before) if not known}
        self.crossed = self.crossed or not self.aside.isdisjoint(new.values())
        self.table.put(dict.fromkeys(new.values(), True))
        self.forward(rows.at(firsts(numbers, new)).without_places())  # a row is the first by the rows before it

    def _from(self, number: int) -> list[bytes]:
        """The keys from this number on."""
        keys: list[Any] = pieces(self.seen.keys(array("q", range(number, len(self.seen))))[0])
        return keys

    def _stored(self, keys: list[bytes]) -> list[bool]:
        """Whether the table knows each of these keys."""
        found = self.table.fetch(keys) if self.expires else self.table.newest(keys)
        return [one is not None for one in found]

    def prepare(self) -> None:
        if self.outrun:
            raise MustLearn(
                f"{self.step.said}: a commit in the middle of the letter has seen a key of it",
                question=object(),
                lacks="the letter does not run again",
                learn=_nothing,
                remedy="none needed: the letter runs again",
            )

    def complete(self) -> None:
        self.outrun = False
        if self.expires:
            self.seen = KeyTable()  # the table knows what has expired
        self.settled = len(self.seen)
        self.held.count()

    def drop(self) -> None:
        self.outrun = False
        if len(self.seen) > self.settled:
            self._forget()

    def suspend(self) -> Any:
        if len(self.seen) == self.settled:
            return None
        kept = self.seen, self.settled, self.outrun
        self.outrun = False
        self.aside = frozenset(self._from(self.settled))
        self._forget()
        return kept

    def resume(self, aside: Any) -> None:
        if aside is not None:
            self.seen, self.settled, self.outrun = aside
        self.outrun = self.outrun or self.crossed
        self.aside, self.crossed = frozenset(), False

    def _give_back(self) -> None:
        """Forget the keys, which the table has. In the middle of a letter it may not have all of them yet."""
        if len(self.seen) == self.settled:
            self._forget()

    def _forget(self) -> None:
        self.seen, self.settled = KeyTable(), 0
        self.held.count()


async def _nothing(_: LateTopics) -> None:
    """Nothing is to be learned: the table has what the letter did not know."""
