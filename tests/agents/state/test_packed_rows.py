"""Rows in columns, on their way into the store."""

from __future__ import annotations

import pytest

from headgate.agents.records.memory.record_spans import packed
from headgate.agents.records.native import chosen
from headgate.agents.state.packed_rows import PackedRows
from headgate.agents.state.rocks import StoreMemory, open_rocks
from headgate.agents.state.store import Owner


@pytest.mark.parametrize("compiled", [True, False])
def test_a_store_gets_rows_in_the_order_of_their_keys(tmp_path, monkeypatch, compiled):
    """RocksDB takes them at less than half of the cost, and the store is the same: rows in columns and in a dict, deletions among them."""
    if not compiled:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)
    rows = {b"b": b"1", b"": b"2", b"a\xff": None, b"a": b"3"}
    keys = packed(list(rows))
    made = PackedRows(keys, keys, packed(list(rows.values())))
    assert list(made.in_order()) == sorted(rows.items())
    assert list(made.items()) == list(rows.items())
    store = open_rocks(tmp_path / "task", StoreMemory(8 << 20), Owner("u"))
    store.write({"t": {b"a\xff": b"old", b"c": b"kept"}})
    store.write({"t": made, "u": rows})
    alive = {key: value for key, value in rows.items() if value is not None}
    assert dict(store.range("t")) == {**alive, b"c": b"kept"}
    assert dict(store.range("u")) == alive
    store.close()
