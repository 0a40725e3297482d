"""Where rows came from: runs that are put together, cut and stored, and every row still has its own record."""

from __future__ import annotations

import itertools
from array import array

import msgpack
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.batching import origins
from headgate.core.batching.origins import UNKNOWN, Run, among, bounds, cut, joined, origin_of, pack, runs_of, unpack


def offsets_of(runs: list[Run]) -> list[tuple[str, int, int]]:
    """Stream, partition and offset of each row."""
    return [(run.stream, run.partition, run.part(place, place + 1).first) for run in runs for place in range(run.rows)]


def test_what_follows_each_other_is_one_run() -> None:
    """A chunk as it came, every third row of it, and the rows of a frame."""
    assert runs_of("orders", 1, range(5, 5_005)) == [Run("orders", 1, 5_000, 5, 5_004)]
    assert runs_of("orders", 1, [5, 6, 7]) == [Run("orders", 1, 3, 5, 7)]
    assert runs_of("orders", 1, [5, 8, 11]) == [Run("orders", 1, 3, 5, 11)]
    assert runs_of("orders", 1, [5] * 40 + [6] * 9) == [Run("orders", 1, 40, 5, 5), Run("orders", 1, 9, 6, 6)]
    assert runs_of("orders", 1, [5, 9, 10, 11]) == [Run("orders", 1, 1, 5, 5), Run("orders", 1, 3, 9, 11)]
    assert runs_of("orders", 1, []) == []


def test_chunks_of_a_row_make_one_run() -> None:
    """A slow stream's chunks follow each other; what is of another partition, or further on, begins anew."""
    ones = [runs_of("orders", 0, [n]) for n in range(100)]
    assert joined(ones) == [Run("orders", 0, 100, 0, 99)]
    assert joined([*ones, runs_of("orders", 1, [100])])[1:] == [Run("orders", 1, 1, 100, 100)]
    assert len(joined([*ones, runs_of("orders", 0, [105, 106])])) == 2
    assert len(joined([runs_of("orders", 0, [0]), runs_of("orders", 0, [7])])) == 2


def test_rows_of_which_only_the_records_are_known() -> None:
    """A step that makes rows of many records: each row is from among them. A timer's row is from nowhere."""
    some = among("orders", 2, range(10, 20), 3)
    assert some == [Run("orders", 2, 3, 10, 19, exact=False)]
    assert joined([some, some]) == [Run("orders", 2, 6, 10, 19, exact=False)]
    assert len(joined([some, among("orders", 2, range(20, 25), 1), runs_of("orders", 2, [25])])) == 3
    assert origin_of(some, 2) == Run("orders", 2, 1, 10, 19, exact=False)
    assert among("", 0, (), 4) == [UNKNOWN._replace(rows=4)]
    assert origin_of(some, 3) == UNKNOWN


PARTS = st.lists(
    st.tuples(
        st.sampled_from(["orders", "refunds"]), st.integers(0, 1), st.lists(st.integers(0, 30), max_size=12).map(sorted)
    ),
    max_size=6,
)


@settings(deadline=None, max_examples=80)
@given(PARTS, st.integers(0, 80))
def test_every_row_keeps_its_record(parts: list[tuple[str, int, list[int]]], at: int) -> None:
    """However the rows are joined, cut into blocks, stored, read and joined again."""
    rows = [(stream, partition, offset) for stream, partition, offsets in parts for offset in offsets]
    whole = joined(runs_of(*part) for part in parts)
    assert offsets_of(whole) == rows
    head, rest = (unpack(msgpack.unpackb(msgpack.packb(pack(part)))) for part in cut(whole, at))
    assert (offsets_of(head), offsets_of(rest)) == (rows[:at], rows[at:])
    again = joined([head, rest])
    assert [(*origin_of(again, place)[:2], origin_of(again, place).first) for place in range(len(rows))] == rows


@given(PARTS)
def test_bounds_are_the_least_and_the_greatest_offset_of_each_partition(
    parts: list[tuple[str, int, list[int]]],
) -> None:
    """Of rows whose record is not known, nothing is said."""
    offsets: dict[str, list[int]] = {}
    for stream, partition, some in parts:
        if some:
            offsets.setdefault(f"{stream}:{partition}", []).extend(some)
    runs = joined([*(runs_of(*part) for part in parts), [UNKNOWN._replace(rows=3)]])
    assert bounds(runs) == {at: (min(some), max(some)) for at, some in offsets.items()}


def test_runs_are_small() -> None:
    """Half of the records of a stream, picked at random, cost less than two bytes a row; as they came, nothing."""
    every = runs_of("orders", 0, range(10**9, 10**9 + 5_000))
    assert len(msgpack.packb(pack(every))) < 30
    picked = [10**9 + n for n in range(5_000) if n * 2_654_435_761 >> 7 & 1]
    assert len(msgpack.packb(pack(runs_of("orders", 0, picked)))) < 2 * len(picked)


GOLDEN = "9194a66f726465727302c396042803020700"
"""Four records that follow each other, and two rows of one frame; as every later version must read it."""


def test_golden_bytes() -> None:
    runs = [Run("orders", 2, 4, 40, 43), Run("orders", 2, 2, 50, 50)]
    assert msgpack.packb(pack(runs)).hex() == GOLDEN
    assert unpack(msgpack.unpackb(bytes.fromhex(GOLDEN))) == runs


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 4), max_size=300), st.integers(0, 300))
def test_the_origins_of_selected_rows_are_found_without_looking_at_each(gaps: list[int], at: int) -> None:
    """Few runs are runs; many are offsets, eight bytes each. Both can be cut, stored and asked."""
    offsets = list(itertools.accumulate(gaps, initial=7))
    found = origins.origins_of("orders", 2, memoryview(array("q", offsets)))
    assert len(found) <= max(origins.FEW, len(offsets) // 16) + 1
    stored = origins.unpack(origins.pack(origins.joined(origins.cut(found, at))))
    assert sum(one.rows for one in stored) == len(offsets)
    assert [origins.origin_of(stored, place)[:4] for place in range(len(offsets))] == [
        ("orders", 2, 1, offset) for offset in offsets
    ]
    assert origins.origin_of(stored, len(offsets)) == origins.UNKNOWN


def test_no_rows_have_no_origins() -> None:
    """An empty selection."""
    assert origins.origins_of("orders", 0, range(0)) == []
