"""The blocks in which a batch is stored: whatever the letters and commits, each row is there once, in its order, with its origin."""

from __future__ import annotations

import struct
from array import array
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.agents.operators.batches import batch_blocks
from headgate.agents.operators.batches.batch_blocks import BatchBlocks, NewRows
from headgate.core.batching import origins
from headgate.core.errors import DataError
from headgate.spark_bridge.data import columns


class Bridge:
    """The parts of a bridge that need no Spark."""

    split = staticmethod(columns.split)
    encode = staticmethod(columns.encode)
    table = staticmethod(columns.decode)
    alike = staticmethod(lambda table, other: table.schema.equals(other.schema))


BRIDGE: Any = Bridge()


class Stored:
    """A table of a task."""

    def __init__(self, most_bytes: int | None = None) -> None:
        self.rows: dict[str, Any] = {}
        self.most_bytes = most_bytes
        self.puts = 0

    def get_many(self, keys: list[str]) -> list[Any]:
        return [self.rows.get(key) for key in keys]

    def range(self, start: str, end: str) -> Any:
        return [(key, self.rows[key]) for key in sorted(self.rows) if start <= key < end]

    def update(self, changes: dict[str, Any]) -> None:
        self.rows.update(changes)
        self.puts += len(changes)


def piece(number: int, first: int, count: int, wide: int = 1) -> NewRows:
    """Numbered rows; a row's number is also its offset and its time."""
    table = pa.table({"n": range(first, first + count), "pad": ["x" * wide] * count})
    stamps = array("q", range(first, first + count))
    runs = origins.runs_of("orders", 0, range(first, first + count))
    return NewRows(number, table, count, table.nbytes, runs, stamps)


def found(blocks: BatchBlocks, number: int) -> tuple[list[int], list[int], list[int]]:
    """The numbers, times and offsets of a batch's rows."""
    rows, times, runs = list[int](), list[int](), list[origins.Origin]()
    for block in blocks.of(number):
        rows += columns.decode(block.rows).column("n").to_pylist()
        times += struct.unpack(f"<{len(block.stamps) // 8}q", block.stamps)
        runs += origins.unpack(block.came_from)
    return rows, times, [origins.origin_of(runs, place).first for place in range(len(rows))]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 2), st.integers(1, 4000)),
        st.tuples(st.sampled_from(["complete", "drop", "seal", "restart"])),
    ),
    max_size=30,
)


@settings(deadline=None, max_examples=80)
@given(STEPS)
def test_every_row_of_a_complete_letter_is_stored_once_and_in_its_order(steps: list[Any]) -> None:
    """Letters of several chunks complete or fail; commits happen between and within them; a restart forgets what no commit had."""
    table = Stored()
    blocks = BatchBlocks(table)
    wanted: dict[int, list[int]] = {0: [], 1: [], 2: []}
    letter: list[tuple[int, range]] = []
    durable = {number: list(rows) for number, rows in wanted.items()}
    at = 0
    for step in steps:
        match step:
            case ("add", number, count):
                blocks.add(BRIDGE, piece(number, at, count))
                letter.append((number, range(at, at + count)))
                at += count
            case ("complete",):
                blocks.complete()
                for number, rows in letter:
                    wanted[number] += rows
                letter = []
            case ("drop",):
                blocks.drop()
                letter = []
            case ("seal",):
                aside = blocks.suspend()
                blocks.complete()
                blocks.write(BRIDGE, frozenset(wanted))
                blocks.resume(aside)
                durable = {number: list(rows) for number, rows in wanted.items()}
            case _:
                blocks, letter = BatchBlocks(table), []
                wanted = {number: list(rows) for number, rows in durable.items()}
        assert blocks.gathered == sum(one.size for one in [*blocks._complete, *blocks._fresh])
    for number, rows in durable.items():
        assert found(blocks, number) == (rows, rows, rows)


def test_many_chunks_of_a_commit_make_one_block() -> None:
    """Each chunk was decoded, joined and encoded again with the last block."""
    table = Stored()
    blocks = BatchBlocks(table)
    for at in range(0, 10_000, 100):
        blocks.add(BRIDGE, piece(1, at, 100))
        blocks.complete()
    blocks.write(BRIDGE, frozenset({1}))
    assert (blocks.count(1), table.puts) == (1, 2)


def test_blocks_are_cut_by_rows_and_by_bytes() -> None:
    """Whatever the sizes in which rows come."""
    for wide, count in ((1, 90_000), (3_000, 2_000)):
        blocks = BatchBlocks(Stored())
        blocks.add(BRIDGE, piece(1, 0, count, wide))
        blocks.complete()
        blocks.write(BRIDGE, frozenset())
        tables = [columns.decode(block.rows) for block in blocks.of(1)]
        assert max(table.num_rows for table in tables) <= batch_blocks.ROWS_OF_BLOCK
        assert max(table.nbytes for table in tables) <= batch_blocks.BLOCK_BYTES
        assert found(blocks, 1)[0] == list(range(count))


def test_a_slow_stream_makes_few_blocks() -> None:
    """Also across restarts, after which the last block is read again."""
    table = Stored()
    for at in range(60):
        blocks = BatchBlocks(table)
        blocks.add(BRIDGE, piece(1, at, 1))
        blocks.complete()
        blocks.write(BRIDGE, frozenset({1}))
    assert BatchBlocks(table).count(1) == 1
    assert found(BatchBlocks(table), 1)[0] == list(range(60))


def test_a_row_that_the_log_does_not_accept_is_refused_when_it_comes() -> None:
    """At the commit it would cost the transaction of all tasks. A log with a small limit gets small blocks."""
    table = Stored(most_bytes=200_000)
    blocks = BatchBlocks(table)
    with pytest.raises(DataError, match=r"a row needs a block of .* but the task log accepts only 200000"):
        blocks.add(BRIDGE, piece(1, 0, 3, 300_000))
    blocks.add(BRIDGE, piece(1, 0, 300, 3_000))
    blocks.complete()
    blocks.write(BRIDGE, frozenset())
    assert max(len(block.rows) + len(block.stamps) for block in blocks.of(1)) < 200_000
    assert found(blocks, 1)[0] == list(range(300))


def test_a_batch_that_is_done_is_forgotten_with_its_letter() -> None:
    """A failed letter forgets nothing."""
    table = Stored()
    blocks = BatchBlocks(table)
    blocks.add(BRIDGE, piece(1, 0, 50_000))
    blocks.complete()
    blocks.write(BRIDGE, frozenset())
    keys = blocks.forget(1)
    assert set(keys) == set(table.rows)
    blocks.drop()
    assert blocks.count(1) == 3
    blocks.forget(1)
    blocks.complete()
    assert blocks.count(1) == 0


def test_a_last_block_of_other_columns_takes_in_no_more() -> None:
    """Code with other columns has stored it. It stays as it is, and what comes now is a block beside it: a seal never fails."""
    table = Stored()
    blocks = BatchBlocks(table)
    blocks.add(BRIDGE, piece(1, 0, 1))
    blocks.complete()
    blocks.write(BRIDGE, frozenset({1}))
    more = pa.table({"n": ["x"]})
    blocks.add(BRIDGE, NewRows(1, more, 1, more.nbytes, [origins.UNKNOWN], bytes(8)))
    blocks.complete()
    blocks.write(BRIDGE, frozenset({1}))
    assert [columns.decode(one.rows).column("n").to_pylist() for one in blocks.of(1)] == [[0], ["x"]]
