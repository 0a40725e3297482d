"""Tables: all or nothing with the chunk, merged until the commit, expired by a logged delete."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.agents.job.declare.declared_table import bound, current_table
from headgate.agents.records.values import serdes as serde
from headgate.agents.state.rocks import StoreMemory, open_rocks
from headgate.agents.state.store import BUSY_S, MemoryStore, Owner, StoreBusy
from headgate.agents.state.tables import TaskTables
from headgate.core.errors import DataError, DeclarationError


def make(ttl_ms=None, now=None):
    now = now if now is not None else [0]
    tables = TaskTables(MemoryStore(), clock=lambda: now[0])
    return tables, tables.declare("counts", serde.text(), serde.json(), ttl_ms=ttl_ms)


def test_a_table_is_a_mapping():
    """Users know dicts."""
    _, table = make()
    table["DE"] = 1
    table.update({"FR": 2}, IT=3)
    assert table["DE"] == 1
    assert table.get("XX") is None
    assert "FR" in table
    assert "XX" not in table
    del table["FR"]
    assert table.get_many(["DE", "FR", "IT"]) == [1, None, 3]
    assert dict(table) == {"DE": 1, "IT": 3}
    assert len(table) == 2
    with pytest.raises(KeyError):
        table["FR"]
    with pytest.raises(KeyError):
        del table["FR"]


def test_none_is_no_value():
    """A null in the log deletes, so None cannot be kept."""
    _, table = make()
    with pytest.raises(DataError):
        table["a"] = None
    with pytest.raises(DataError):
        table.update({"a": None})


def test_a_failed_chunk_leaves_no_trace_even_of_changes_in_place():
    """User code appends to a list that it read from the table, and raises."""
    tables, table = make()
    table["a"] = [1]
    tables.complete()
    table["a"].append(2)
    table.get_many(["a"])[0].append(3)
    table["b"] = 1
    tables.drop()
    assert table["a"] == [1]
    assert "b" not in table
    assert tables.seal() == {"counts": {b"a": b"\x00[1]"}}


def test_encoded_rows_are_read_at_once_and_are_forgotten_with_their_letter():
    """A block is encoded once, by whoever must know its size. Reads find it before the letter is complete, and no cached row behind it."""
    tables, table = make()
    table.update({"a": [1], "b": [1]})
    tables.complete()
    for failed in (True, False):
        assert table["a"] == [1]
        table.put_encoded(dict(zip([b"a", b"c"], table.encoded([[2], [3]]), strict=True)))
        assert table.newest([b"a", b"b", b"c"]) == [b"\x00[2]", b"\x00[1]", b"\x00[3]"]
        if failed:
            tables.drop()
            assert dict(table) == {"a": [1], "b": [1]}
    tables.complete()
    assert table["a"] == [2]
    assert tables.seal() == {"counts": {b"a": b"\x00[2]", b"b": b"\x00[1]", b"c": b"\x00[3]"}}


def test_what_cannot_be_encoded_stops_all_tables():
    """The second table's value is no JSON: the first one's must not be merged alone."""
    tables, table = make()
    other = tables.declare("other", serde.text(), serde.json())
    table["a"] = 1
    other["a"] = object()
    with pytest.raises(DataError):
        tables.complete()
    tables.drop()
    assert not tables.changed


def test_a_row_that_the_log_does_not_take_is_found_before_anything_is_merged():
    """With its table, its key and both sizes; what else the chunk changed is forgotten with it."""
    tables = TaskTables(MemoryStore(), most_bytes=100)
    table = tables.declare("counts", serde.text(), serde.text())
    table["fits"] = "x" * 90
    table["large"] = "x" * 96
    with pytest.raises(DataError, match=r"table counts: the row of the key 'large' takes 101 bytes.*accepts only 100"):
        tables.complete()
    tables.drop()
    assert not tables.changed
    table["large"] = "x" * 95
    del table["large"]
    tables.complete()
    assert tables.changed


def test_changes_are_merged_per_key_between_commits_and_read_at_every_stage():
    """Three chunks change one key; the log sees it once, and the task reads the newest value all the time."""
    tables, table = make()
    for n in range(3):
        table["a"] = n
        tables.complete()
    first = tables.seal()
    assert first == {"counts": {b"a": b"\x002"}}
    table["a"] = 7
    tables.complete()
    table._live.clear()
    assert table["a"] == 7
    second = tables.seal()
    tables.applied(10, checkpoint=b"c")
    table._live.clear()
    assert tables.store.get("counts", b"a") == b"\x002"
    assert table.get_many(["a", "b"]) == [7, None]
    assert second == {"counts": {b"a": b"\x007"}}
    tables.applied(12)
    assert tables.store.get("counts", b"a") == b"\x007"
    assert tables.store.meta.position == 12
    assert tables.store.meta.checkpoint == b"c"


def test_ranges_see_store_commit_and_chunk_as_one():
    """Every layer holds some of the keys, and one hides what lies under it."""
    tables, table = make()
    table.update({"a": 1, "b": 1, "c": 1, "d": 1})
    tables.complete()
    tables.seal()
    tables.applied(1)
    table.update({"b": 2, "e": 2})
    tables.complete()
    tables.seal()
    table["c"] = 3
    tables.complete()
    del table["a"]
    table["f"] = 4
    assert list(table.range()) == [("b", 2), ("c", 3), ("d", 1), ("e", 2), ("f", 4)]
    assert list(table.range("c", "f")) == [("c", 3), ("d", 1), ("e", 2)]
    assert list(table.range("c", "f", reverse=True)) == [("e", 2), ("d", 1), ("c", 3)]


def test_expiry_is_stored_and_logged():
    """A value set at 0 with a day to live is not seen after it, and its delete goes into the log once."""
    now = [0]
    tables, table = make(ttl_ms=100, now=now)
    table["a"] = 1
    tables.complete()
    tables.seal()
    tables.applied(1)
    now[0] = 50
    table["b"] = 1
    tables.complete()
    tables.seal()
    tables.applied(2)
    now[0] = 100
    assert "a" not in table
    assert table["b"] == 1
    assert tables.expire(100).gone == 1
    assert tables.expire(100).gone == 0
    assert tables.seal() == {"counts": {b"a": None}}
    tables.applied(3)
    assert [key for key, _ in tables.store.range("counts")] == [b"b"]
    assert len(list(tables.store.range("__ttl.counts"))) == 1


def test_on_disk_all_that_is_due_expires_and_nothing_else(tmp_path):
    """20,000 keys in files of many blocks, half of them set again: the other half is deleted, and only then found in the log."""
    now = [0]
    store = open_rocks(tmp_path / "t", StoreMemory(8 << 20), Owner("u"))
    tables = TaskTables(store, clock=lambda: now[0])
    table = tables.declare("counts", serde.text(), serde.json(), ttl_ms=1000)

    def commit(position):
        tables.complete()
        logged = tables.seal()
        while True:  # as the committer does while the disk has not followed
            try:
                tables.applied(position)
                return logged.get("counts", {})
            except StoreBusy:
                time.sleep(BUSY_S)

    for at, keys in ((0, range(20_000)), (500, range(0, 20_000, 2))):
        now[0] = at
        table.update({f"user {n:05}": n for n in keys})
        commit(at)
    now[0] = 1000
    gone = {}
    for position in range(1001, 1100):
        done = tables.expire(now[0])
        gone |= commit(position)
        if not done.more:
            break
    else:
        raise AssertionError("expiry has no end")
    assert sorted(gone) == [b"user %05d" % n for n in range(1, 20_000, 2)]
    assert set(gone.values()) == {None}
    assert len(table) == 10_000
    bounds = [b"user %05d" % n for n in (5_000, 15_000)]
    for reverse in (False, True):
        rows = store.range("counts", *[bytes(bytearray(one)) for one in bounds], reverse=reverse)
        assert len(list(rows)) == 5_000
    store.close()


def test_expiry_passes_nothing_that_is_not_in_the_store_yet():
    """A commit that takes longer than the ttl, and a clock that goes back: what is due is found all the same."""
    now = [1000]
    tables, table = make(ttl_ms=10, now=now)
    table["slow"] = 1
    tables.complete()
    tables.seal()
    assert tables.expire(2000) == (0, 0, False)
    tables.applied(1)
    assert tables.expire(2000) == (1, 1, False)
    now[0] = 500
    table["back"] = 1
    tables.complete()
    tables.seal()
    tables.applied(2)
    assert tables.expire(2000) == (1, 1, False)
    assert tables.seal() == {"counts": {b"back": None}}


def test_expiry_waits_for_a_commit_when_too_much_waits_for_one(monkeypatch):
    """No broker takes a commit: what has expired meanwhile must not fill the memory."""
    monkeypatch.setattr("headgate.agents.state.expiry_index.EXPIRED_UNCOMMITTED", 3)
    now = [0]
    tables, table = make(ttl_ms=10, now=now)
    for now[0], keys in ((0, "abc"), (1, "de")):
        table.update(dict.fromkeys(keys, 1))
        tables.complete()
    tables.seal()
    tables.applied(1)
    assert table.expire(100, 3) == (3, 3, True)
    assert table.expire(100, 3) == (0, 0, True)
    tables.seal()
    tables.applied(2)
    assert table.expire(100, 3) == (2, 2, False)


def test_a_value_that_was_set_again_does_not_expire_with_its_first_time():
    """The index still holds the first time; the value says otherwise."""
    now = [0]
    tables, table = make(ttl_ms=100, now=now)
    for at in (0, 60):
        now[0] = at
        table["a"] = at
        tables.complete()
        tables.seal()
        tables.applied(at)
    now[0] = 120
    assert tables.expire(120).gone == 0
    assert table["a"] == 60
    now[0] = 160
    assert tables.expire(160).gone == 1


def test_outside_of_a_task_a_table_says_so():
    """Module-level code of a user must not read some task's state by chance."""
    tables, table = make()
    with pytest.raises(DeclarationError, match="outside of a task"):
        current_table("counts")
    with bound(tables):
        assert current_table("counts") is table
        with pytest.raises(DeclarationError, match="counts"):
            current_table("none")


def test_rows_of_headgates_own_tables_go_along():
    """The control table changes in the same transaction."""
    tables, _ = make()
    tables.raw("__control", {b"k": b"v", b"gone": None})
    assert tables.changed
    assert tables.seal() == {"__control": {b"k": b"\x00v", b"gone": None}}
    tables.applied(4)
    assert tables.raw_rows("__control") == [(b"k", b"v")]


def test_a_commit_in_the_middle_of_a_chunk_neither_sees_nor_includes_it():
    """A chunk awaits a call; a commit seals meanwhile, and an operator updates the same key at the seal."""
    tables, table = make()
    table["a"] = 1
    tables.complete()
    table["a"] = 5
    table["b"] = 6
    aside = tables.suspend()
    assert dict(table) == {"a": 1}
    table["c"] = 3
    tables.complete()
    assert tables.seal() == {"counts": {b"a": b"\x001", b"c": b"\x003"}}
    tables.resume(aside)
    assert dict(table) == {"a": 5, "b": 6, "c": 3}
    tables.drop()
    assert dict(table) == {"a": 1, "c": 3}


OPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from("abcd"), st.integers(0, 9)),
        st.tuples(st.just("del"), st.sampled_from("abcd"), st.just(0)),
        st.tuples(st.sampled_from(["complete", "drop", "seal", "applied", "forget"]), st.just(""), st.just(0)),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=60)
@given(OPS)
def test_a_table_is_a_dict_that_forgets_failed_chunks(ops):
    """Whatever the order of chunks, failures and commits: the table equals a dict, and the store the fold of the log."""
    tables, table = make()
    now, before, log, open_seals = {}, {}, {}, []
    for op, key, value in ops:
        if op == "set":
            table[key] = now[key] = value
        elif op == "del":
            table.delete_many([key])
            now.pop(key, None)
        elif op == "complete":
            tables.complete()
            before = dict(now)
        elif op == "drop":
            tables.drop()
            now = dict(before)
        elif op == "seal":
            open_seals.append(dict(tables.seal().get("counts", {})))
        elif op == "applied" and open_seals:
            tables.applied(1)
            for k, v in open_seals.pop(0).items():
                log.pop(k, None) if v is None else log.__setitem__(k, v)
        elif op == "forget":
            tables.drop()
            now = dict(before)
            table._live.clear()
        assert dict(table) == now
        assert table.get_many(list("abcd")) == [now.get(k) for k in "abcd"]
    assert dict(tables.store.range("counts")) == log
