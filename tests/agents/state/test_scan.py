"""Rows of tables for people: as far as they can be read."""

from __future__ import annotations

import doctest
import json
from typing import Any
from uuid import UUID

import msgpack
import pytest

import headgate as hg
from headgate.agents.records.values import keys
from headgate.agents.state import scan as scanning
from headgate.agents.state.scan import RowDecoder, scan
from headgate.agents.state.store import MemoryStore
from headgate.agents.testing.driver import Driver
from headgate.core.task.stored.checkpoint import log_value
from headgate.core.windows.slots import pack_slot


def test_a_row_that_no_one_can_read_hides_no_other() -> None:
    """One record that somebody wrote into the task log by hand, or a newer version, and `headgate tables` showed nothing of the table."""
    store = MemoryStore()
    rows = {b"a": log_value(b"1"), b"b": b"\xff", b"c": log_value(b"3"), b"d": b""}
    store.write({"counts": rows})
    found = dict(scan(RowDecoder(store), "counts", "", 10))
    assert (found["a"], found["c"]) == (1, 3)
    assert found["b"]["bytes"] == "ff"
    assert found["b"]["unreadable"]
    assert found["d"]["unreadable"]


ID = UUID("12345678-1234-5678-1234-567812345678")


@pytest.mark.parametrize("key", [7, -1, True, b"\x01\xff", ID, ("DE", 7), (("DE", True), ID), "DE", "Zürich"])
def test_a_key_of_any_type_is_shown_so_that_it_can_be_asked_for(key: Any) -> None:
    """Without the job's code there is the task log alone: the bytes say what they are."""
    store = MemoryStore()
    store.write({"counts": {keys.encode(key): log_value(b"1"), b"other": log_value(b"2")}})
    [(shown, value)] = [row for row in scan(RowDecoder(store), "counts", "", 10) if row[0] != "other"]
    assert value == 1
    typed = shown if isinstance(shown, str) else json.dumps(shown)
    assert list(scan(RowDecoder(store), "counts", typed, 10)) == [(shown, 1)]


def test_a_text_and_a_number_that_look_alike_are_both_shown() -> None:
    """Quoted, it is the text alone."""
    store = MemoryStore()
    store.write({"counts": {keys.encode("7"): log_value(b"1"), keys.encode(7): log_value(b"2")}})
    assert list(scan(RowDecoder(store), "counts", "7", 10)) == [("7", 1), (7, 2)]
    assert list(scan(RowDecoder(store), "counts", '"7"', 10)) == [("7", 1)]


def test_keys_of_headgates_own_tables_are_found_as_before() -> None:
    """They are msgpack: names of timers, ends of windows."""
    store = MemoryStore()
    store.write({"own": {msgpack.packb("floor"): log_value(b"1"), msgpack.packb([5, 0]): log_value(b"2")}})
    assert list(scan(RowDecoder(store), "own", "", 10)) == [([5, 0], 2), ("floor", 1)]
    assert list(scan(RowDecoder(store), "own", "floor", 10)) == [("floor", 1)]


def test_the_examples_of_the_module() -> None:
    """They are what they say."""
    assert doctest.testmod(scanning).failed == 0


@pytest.mark.parametrize("with_code", [True, False])
def test_the_windows_of_a_table_are_shown_by_key(with_code: bool) -> None:
    """Blocks hold many keys: each is shown with its window, and one is found by its key; with or without the job's code."""
    app = hg.App("job")
    rows = app.input("in", key="k", timestamp="ts").repartition("k")
    rows.window(hg.hopping("20s", every="10s"), name="hops").agg(n=hg.count(), x=hg.mean("x")).to("out")
    rows.window(hg.session("5s"), name="visits").agg(n=hg.count()).to("visited")
    with Driver(app) as d:
        d.send_all("in", [{"k": k, "ts": 10_000 + k, "x": k} for k in range(100)])
        d.send("in", {"k": 7, "ts": 24_000, "x": 2})
        d.advance("1s")
        [task] = d.tasks.values()
        store = task.state.store
        assert store is not None
        reader = RowDecoder(store, d.declared if with_code else None)
        assert list(scan(reader, "hops", "7", 10)) == [
            (7, {"window_start": 10_000, "window_end": 30_000, "n": 2, "x": [2, 9]}),
            (7, {"window_start": 20_000, "window_end": 40_000, "n": 1, "x": [1, 2]}),
        ]
        found = list(scan(reader, "hops", "", 1_000))
        assert found[0] == ("floor", 24_000)
        assert found[1] == ("grace", 0)
        assert len(found) == 103
        assert len(list(scan(reader, "hops", "", 70))) == 70
        shown = {(key, value["window_start"]): value for key, value in found[2:]}
        for at, seen in d.table(
            "hops"
        ).items():  # a test sees the same, with the result of a mean instead of its states
            number, total = shown[at]["x"]
            assert seen == shown[at] | {"x": total / number}
        assert list(scan(reader, "visits", "7", 10)) == [(7, {"window_start": 24_000, "window_end": 29_000, "n": 1})]
        assert list(scan(reader, "hops", "500", 10)) == []
        store.write({"hops": {pack_slot(9): b"\xff"}})  # written by hand: it hides no other row
        [(_, damaged)] = [row for row in scan(reader, "hops", "", 1_000) if "unreadable" in str(row[1])]
        assert damaged["bytes"] == "ff"
        assert len(list(scan(reader, "hops", "", 1_000))) == 104


@pytest.mark.parametrize("with_code", [True, False])
def test_rows_of_sliding_windows_are_shown_with_what_they_add(with_code: bool) -> None:
    """Each with its own window; whether its result is out or still to come."""
    app = hg.App("job")
    rows = app.input("in", key="k", timestamp="ts")
    rows.window(hg.sliding("20s"), name="w").agg(n=hg.count(), x=hg.sum("x")).to("out")
    with Driver(app) as d:
        d.send_all("in", [{"k": k, "ts": ts, "x": ts} for k, ts in (("a", 24_000), ("b", 24_000), ("a", 25_000))])
        d.advance("1s")
        [task] = d.tasks.values()
        store = task.state.store
        assert store is not None
        reader = RowDecoder(store, d.declared if with_code else None)
        assert list(scan(reader, "w", "a", 10)) == [
            ("a", {"window_start": 4_001, "window_end": 24_001, "n": 1, "x": 24_000}),
            ("a", {"window_start": 5_001, "window_end": 25_001, "n": 1, "x": 25_000}),
        ]
        found = dict(scan(reader, "w", "", 10))
        assert (len(found), found["floor"], found["closing"]["end"]) == (5, 25_000, 24_001)


@pytest.mark.parametrize("with_code", [True, False])
def test_rows_that_windows_keep_for_an_actor_are_shown_with_their_values(with_code: bool) -> None:
    class Own(hg.Actor):
        def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
            pass

    app = hg.App("job")
    rows = app.input("in", key="k", timestamp="ts")
    rows.window(hg.tumbling("20s"), name="w").process(Own)
    rows.window(hg.session("5s"), name="visits").process(Own, name="visited")
    sent = [{"k": "a", "ts": 24_000}, {"k": "b", "ts": 23_000}, {"k": "a", "ts": 25_000}]
    with Driver(app) as d:
        for value in sent:
            d.send("in", value, headers=[("h", b"x")] if value["ts"] == 25_000 else [])
        d.advance("1s")
        [task] = d.tasks.values()
        store = task.state.store
        assert store is not None
        reader = RowDecoder(store, d.declared if with_code else None)
        first = {"timestamp": 24_000, "value": sent[0]}
        second = {"timestamp": 25_000, "value": sent[2], "headers": [["h", "78"]]}
        window = {"window_start": 20_000, "window_end": 40_000}
        assert list(scan(reader, "w", "a", 10)) == [("a", window | first), ("a", window | second)]
        assert len(list(scan(reader, "w", "", 10))) == 5
        of_session = {"window_start": 24_000, "window_end": 30_000, "rows": [first, second]}
        assert list(scan(reader, "visits", "a", 10)) == [("a", of_session)]
