"""What a restore makes of the records of a task's log."""

from __future__ import annotations

from headgate.agents.records.chunks import Chunk
from headgate.agents.runtime.log import _Replay
from headgate.core.names import StreamPartition
from headgate.core.task.checkpoint import CHECKPOINT_KEY, table_prefix


def test_records_are_folded_by_key_and_written_in_the_order_of_keys():
    """Several tables in one log: of each key the last value, tombstones included. What is no entry is counted, with the last offset."""
    a, b, ab = map(table_prefix, ("a", "b", "ab"))
    log = [
        (ab + b"x", b"0"),
        (a + b"z", b"1"),
        (None, b"2"),
        (b + b"k", b"3"),
        (CHECKPOINT_KEY, b"old"),
        (a + b"", b"4"),
        (a + b"z", None),
        (a[:1] + b"\x09ab", b"5"),
        (b"", b"6"),
        (b + b"k", b"7"),
        (a + b"\xff\xff", b"8"),
        (CHECKPOINT_KEY, b"new"),
    ]
    chunk = Chunk.of(StreamPartition("log", 0), [v for _, v in log], keys=[k for k, _ in log], base=100)
    replay = _Replay(chunk)
    assert {table: list(rows.items()) for table, rows in replay.changes.items()} == {
        "a": [(b"", b"4"), (b"z", None), (b"\xff\xff", b"8")],
        "b": [(b"k", b"7")],
        "ab": [(b"x", b"0")],
    }
    assert replay.checkpoint == b"new"
    assert replay.unread is not None
    assert replay.unread[:2] == (3, 108)
