"""The blocks of one table: in which slots they lie, what the running letter does to them, and what of them memory holds.

A *group* comes and goes as one: a window, the sessions of a key, a slice of one side of a join. Its blocks have numbers, and each is a row
of the table, in a slot (`core.windows.slots`). What stands in a block, and when it is written, its operator decides.

Promises:

- What is written and removed counts when the letter is complete, and is forgotten if it fails, here as in the table.
- Groups in memory count against `state.memory`. Where it does not suffice, groups are *packed*, until half of what could be is: then their
  blocks are in the table only, and are read when they are wanted. Their operator says which need not stay in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from ....core.windows.slots import Slots, pack_slot

READ_BLOCKS = 16
"""So many blocks are read from the table at a time."""

G = TypeVar("G")


class Groups(Protocol[G]):
    """What an operator holds of its groups in memory."""

    def weight_of(self, group: G, /) -> int:
        """The bytes that a group takes in memory; 0 if there is none."""
        ...

    def spare(self) -> list[G]:
        """The groups that need not be in memory, in the order in which they are given up: neither the letter nor the next commit needs
        them."""
        ...

    def pack(self, group: G, /) -> None:
        """Forget what the table has of a group."""
        ...


class BlockStore(Generic[G]):
    """The blocks of a table, by group and number. `place`: the group and the number of a stored block. `groups`: None if they are weighed
    together (see `hold`), and all stay in memory."""

    def __init__(
        self,
        table: Any,
        groups: Groups[G] | None,
        place: Callable[[list[Any]], tuple[G, int]] = lambda block: (block[0], block[1]),
    ) -> None:
        self.encoded: Callable[[list[Any]], list[bytes]] = table.encoded
        """Gives the bytes of blocks. Raises if the table could not store one."""
        self.weight = 0
        """The bytes that all groups take in memory."""
        self._table = table
        self._groups = groups
        self._place = place
        self._slots = Slots()
        self._complete: dict[G, dict[int, int]] = {}
        """By group and number of the block, its slot."""
        self._letter: dict[G, dict[int, int]] = {}
        """The same of the groups that the running letter changes."""
        self._weights: dict[G, int] = {}
        table.caches_written = False
        self._held = table.keep((), self._give_back, lambda: self.weight, reads=False)

    def serve(self, groups: Groups[G]) -> None:
        """Another one holds the groups from now on."""
        self._groups = groups
        self.hold(0)

    def load(self, found: Callable[[G, int, list[Any]], None] = lambda *_: None) -> None:
        """Find out what the table holds, before anything else. `found` gets each block, in no order."""
        slots: list[int] = []
        for slot, block in self._table.range():
            if isinstance(slot, int):
                group, number = self._place(block)
                self._complete.setdefault(group, {})[number] = slot
                slots.append(slot)
                found(group, number, block)
        self._slots = Slots(slots)

    def slots(self, group: G) -> Mapping[int, int]:
        """The slots of a group's blocks, by number."""
        return self._letter[group] if group in self._letter else self._complete.get(group, {})

    def stored(self) -> list[tuple[G, int]]:
        """All blocks, in order."""
        found: Any = ((group, number) for group, slots in self._complete.items() for number in slots)
        return sorted(found)

    # ------------------------------------------------------------------------------------------------------------- reading

    def read(self, wanted: Iterable[tuple[G, int]]) -> Iterator[tuple[G, list[Any], int]]:
        """Blocks with their groups and sizes, some at a time."""
        for some, keys in self._some(wanted):
            for (group, _), row in zip(some, self._table.newest(keys), strict=True):
                yield group, self._table.read(row), len(row)

    def look(self, wanted: Iterable[tuple[G, int]]) -> Iterator[tuple[tuple[G, int], list[Any]]]:
        """Blocks that may be wanted again soon: while memory suffices, the table keeps them, so no one may change them."""
        for some, keys in self._some(wanted):
            yield from zip(some, self._table.fetch(keys), strict=True)

    def _some(self, wanted: Iterable[tuple[G, int]]) -> Iterator[tuple[list[tuple[G, int]], list[bytes]]]:
        left = iter(wanted)
        while some := list(islice(left, READ_BLOCKS)):
            yield some, [pack_slot(self.slots(group)[number]) for group, number in some]

    # ------------------------------------------------------------------------------------------------------- with the letter

    def write(self, group: G, blocks: Mapping[int, bytes], *, whole: bool = False) -> None:
        """Write blocks of a group, in their slots or in free ones. `whole`: it has no others any more; new ones take over their slots."""
        self.write_all({group: blocks}, whole=whole)

    def write_all(self, groups: Mapping[G, Mapping[int, bytes]], *, whole: bool = False) -> None:
        """The same of many groups."""
        rows: dict[bytes, bytes] = {}
        gone: list[int] = []
        for group, blocks in groups.items():
            held = dict(self.slots(group))
            free = [held.pop(number) for number in list(held) if number not in blocks] if whole else []
            for number in sorted(blocks):
                if number not in held:
                    held[number] = free.pop() if free else self._slots.take()
                rows[pack_slot(held[number])] = blocks[number]
            self._letter[group] = held
            gone += free
        self._table.put_encoded(rows)
        self._delete(gone)

    def remove(self, group: G, numbers: Iterable[int] | None = None) -> None:
        """Delete blocks of a group (None: all), as far as they are stored."""
        held = dict(self.slots(group))
        gone = [held.pop(number) for number in (list(held) if numbers is None else numbers) if number in held]
        self._letter[group] = held
        self._delete(gone)

    def _delete(self, slots: list[int]) -> None:
        if slots:
            self._table.remove(list(map(pack_slot, slots)))
            self._slots.give(slots)

    def complete(self) -> None:
        """The letter is complete, or the commit has written what has changed."""
        for group, held in self._letter.items():
            if held:
                self._complete[group] = held
            else:
                self._complete.pop(group, None)
        self._letter = {}
        self._slots.complete()

    def drop(self) -> None:
        """The letter failed."""
        self._letter = {}
        self._slots.drop()

    # -------------------------------------------------------------------------------------------------------------- memory

    def weigh(self, groups: Iterable[G]) -> None:
        """Count what these groups take in memory now, which may pack groups."""
        self.note(groups)
        self._held.count()

    def hold(self, weight: int) -> None:
        """All groups together take so much, and none of them can be packed."""
        self.weight = weight
        self._weights = {}
        self._held.count()

    def note(self, groups: Iterable[G]) -> None:
        """The same while no group may be packed."""
        assert self._groups is not None, "these groups are weighed together"
        for group in groups:
            now = self._groups.weight_of(group)
            self.weight += now - self._weights.pop(group, 0)
            if now:
                self._weights[group] = now

    def _give_back(self) -> None:
        if self._groups is None:
            return
        able = self._groups.spare()
        left = sum(self._weights.get(group, 0) for group in able) // 2
        for group in able:
            before = self.weight
            self._groups.pack(group)
            self.note((group,))
            left -= before - self.weight
            if left <= 0:
                break
        self._held.count()
