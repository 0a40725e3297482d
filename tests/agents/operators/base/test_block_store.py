"""The block store: slots of groups, what a letter does to them, and memory. What operators make of it is in their tests."""

from __future__ import annotations

from typing import Any

from headgate.agents.operators.base.block_store import BlockStore
from headgate.agents.records.values.serdes import Serde, stored
from headgate.agents.state.cache_memory import CacheMemory
from headgate.agents.state.store import MemoryStore
from headgate.agents.state.tables import TaskTables
from headgate.core.windows.slots import pack_slot, unpack_slot


class Held:
    """Groups in memory, by weight."""

    def __init__(self) -> None:
        self.weights: dict[str, int] = {}
        self.packed: list[str] = []

    def weight_of(self, group: str) -> int:
        return self.weights.get(group, 0)

    def spare(self) -> list[str]:
        return sorted(self.weights)

    def pack(self, group: str) -> None:
        del self.weights[group]
        self.packed.append(group)


def opened(limit: int = 1 << 20) -> tuple[TaskTables, Any, Held, BlockStore[str]]:
    tables = TaskTables(MemoryStore(), clock=lambda: 0, memory=CacheMemory(limit))
    slot: Serde[Any] = Serde("slot", pack_slot, unpack_slot)
    table, held = tables.declare("blocks", slot, stored()), Held()
    return tables, table, held, BlockStore(table, held)


def test_a_letter_writes_and_removes_blocks_or_leaves_no_trace() -> None:
    """A group that is written as a whole leaves the slots of its former blocks to new ones, and deletes the others."""
    tables, table, held, store = opened()

    def write(group: str, *numbers: int, whole: bool = False) -> None:
        rows = store.encoded([[group, number, "x" * number] for number in numbers])
        store.write(group, dict(zip(numbers, rows, strict=True)), whole=whole)

    def ends(*, fails: bool = False) -> None:
        for one in (store, tables):
            one.drop() if fails else one.complete()

    write("a", 0, 1, 2)
    write("b", 7)
    ends()
    assert store.stored() == [("a", 0), ("a", 1), ("a", 2), ("b", 7)]
    for fails in (True, False):
        write("a", 1, 5, whole=True)
        store.remove("b", [7, 8])
        assert [(group, block) for group, block, _ in store.read([("a", 5), ("a", 1)])] == [
            ("a", ["a", 5, "xxxxx"]),
            ("a", ["a", 1, "x"]),
        ]
        ends(fails=fails)
    write("c", 0)
    ends()
    assert {group: dict(store.slots(group)) for group in "abc"} == {"a": {1: 1, 5: 2}, "b": {}, "c": {0: 0}}
    again: list[Any] = []
    other = BlockStore(table, held)
    other.load(lambda group, number, block: again.append((group, number, block)))
    assert sorted(again) == [("a", 1, ["a", 1, "x"]), ("a", 5, ["a", 5, "xxxxx"]), ("c", 0, ["c", 0, ""])]
    assert list(store.look([("c", 0)])) == [(("c", 0), ["c", 0, ""])]


def test_groups_are_packed_until_memory_suffices_or_none_can_be_spared() -> None:
    """Half of what could be packed each time, in the order that their operator says."""
    tables, _, held, store = opened(limit=1_000)
    held.weights = {"a": 100, "b": 300, "c": 300, "d": 300}
    store.weigh("abcd")
    assert held.packed == []
    held.weights["a"] = 200
    store.weigh("a")
    assert held.packed == ["a", "b", "c"]
    assert store.weight == 300
    held.weights["e"] = 5_000
    store.note("e")
    assert held.packed == ["a", "b", "c"]
    store.weigh(())
    assert held.packed == ["a", "b", "c", "d", "e"]
    tables.complete()
