"""What a task reads of a copy: rows stay decoded while they are what the copy has, and a letter sees each key once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headgate.agents.records.values.serdes import json, text
from headgate.agents.runtime.copies.view import view_of
from headgate.agents.state.cache_memory import CacheMemory
from headgate.agents.state.store import MemoryStore
from headgate.core.errors import DataError


class Counting(MemoryStore):
    """Knows which keys were read from it."""

    def __init__(self):
        super().__init__()
        self.asked: list[bytes] = []

    def get_many(self, table: str, keys: Sequence[bytes]):
        self.asked += keys
        return super().get_many(table, keys)


def opened():
    store = Counting()
    store.write({"rates": {b"a": b"\x001", b"b": b"\x002"}})
    view = view_of("rates", "in", store, clock=lambda: 0, memory=CacheMemory(), key=text(), value=json(), ttl_ms=None)

    def change(**rows: int | None):
        keys = {name.encode(): None if one is None else b"\x00%d" % one for name, one in rows.items()}
        store.write({"rates": keys})
        view.changed_in_copy(list(keys))

    return store, view, change


@pytest.mark.parametrize(("ends", "read"), [("complete", [b"a", b"c"]), ("drop", [b"a", b"b", b"c"])])
def test_the_next_letter_reads_what_has_changed(ends, read):
    """And no other row is read and decoded again, unless the letter has failed: it may have changed what it had read."""
    store, view, change = opened()
    assert view.get_many(["a", "b", "c"]) == [1, 2, None]
    change(a=5, c=7)
    assert view.get_many(["a", "b", "c"]) == [1, 2, None]
    getattr(view, ends)()
    store.asked.clear()
    assert view.get_many(["a", "b", "c"]) == [5, 2, 7]
    view.complete()
    change(b=None)
    assert (view.get("b"), view.get("a")) == (None, 5)
    change(a=6, b=8)
    assert (view.get("b"), view.get("a"), store.asked) == (None, 5, read)
    view.complete()
    assert view.get_many(["a", "b"]) == [6, 8]


def test_a_key_that_the_letter_has_not_read_changes_at_once():
    """What an earlier letter has read stays decoded, and is no row of this one."""
    _, view, change = opened()
    view.get_many(["a", "b"])
    view.complete()
    assert view.get("b") == 2
    change(a=9, b=9)
    assert (view.get("a"), view.get("b")) == (9, 2)


def test_a_write_is_refused_with_the_topic_to_write_to():
    _, view, _ = opened()
    for write in (lambda: view.update({"a": 1}), lambda: view.__setitem__("a", 1), lambda: view.__delitem__("a")):
        with pytest.raises(DataError, match=r"write to the topic: \.to\('in'\)"):
            write()
    assert view.get("a") == 1
