"""Rows of tables for people: as far as they can be read."""

from __future__ import annotations

from headgate.agents.state.scan import RowDecoder, scan
from headgate.agents.state.store import MemoryStore
from headgate.core.task.checkpoint import log_value


def test_a_row_that_nobody_can_read_hides_no_other() -> None:
    """One record that somebody wrote into the task log by hand, or a newer version, and `headgate tables` showed nothing of the table."""
    store = MemoryStore("u")
    rows = {b"a": log_value(b"1"), b"b": b"\xff", b"c": log_value(b"3"), b"d": b""}
    store.write({"counts": rows})
    found = dict(scan(RowDecoder(store), "counts", "", 10))
    assert (found["a"], found["c"]) == (1, 3)
    assert found["b"]["bytes"] == "ff"
    assert found["b"]["unreadable"]
    assert found["d"]["unreadable"]
