"""Batches by reference: ranges are cut and divided without losing an offset, and what was read of them is added up."""

from __future__ import annotations

import copy

from hypothesis import given
from hypothesis import strategies as st

from headgate.core.batching.ranges import (
    PART_OFFSETS,
    Range,
    RangeGone,
    RangeRead,
    Ranges,
    cut,
    divided,
    gone,
    remade,
    together,
)

SOME = st.lists(
    st.builds(
        lambda partition, first, size: Range("t", partition, first, first + size),
        st.integers(0, 3),
        st.integers(0, 10**6),
        st.integers(1, 5 * PART_OFFSETS),
    ),
    min_size=1,
    max_size=4,
)


def offsets(parts: list[Range] | tuple[Range, ...]) -> list[tuple[int, int]]:
    """The ranges, neighbours joined."""
    found: list[list[int]] = []
    for one in parts:
        if found and found[-1][0] == one.partition and found[-1][2] == one.first:
            found[-1][2] = one.behind
        else:
            found.append([one.partition, one.first, one.behind])
    return [tuple(one) for one in found]  # type: ignore[misc]


@given(SOME, st.integers(1, 9))
def test_parts_are_the_ranges(parts: list[Range], most: int) -> None:
    found = divided(parts, most)
    assert offsets(found) == offsets(parts)
    assert len(found) <= most + len(parts)
    for one in parts:
        pieces = divided([one], most)
        assert len(pieces) == 1 or min(piece.size for piece in pieces) >= PART_OFFSETS


@given(SOME, st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_cutting_loses_nothing(parts: list[Range], start: int, length: int, more: int) -> None:
    total = sum(one.size for one in parts)
    start, length = min(start, total), min(length, total - min(start, total))
    pieces = [cut(parts, 0, start), cut(parts, start, length), cut(parts, start + length, total)]
    assert [sum(one.size for one in piece) for piece in pieces] == [start, length, total - start - length]
    assert offsets([one for piece in pieces for one in piece]) == offsets(parts)
    assert cut(parts, total, more) == ()


def test_parts_of_frames_are_smaller() -> None:
    """A frame holds many rows, and a part should hold as many rows as one of an input."""
    parts = (Range("t", 0, 0, 1000),)
    assert Ranges(parts, (), "").least == PART_OFFSETS
    of_frames = Ranges(parts, (), "", rows=1000 * PART_OFFSETS // 10)
    assert of_frames.least == 10
    assert len(divided(parts, 4, of_frames.least)) == 4
    assert Ranges(parts, (), "", rows=10**12).least == 1
    assert Ranges((), (), "", rows=0).least == 1


def test_what_was_read_is_added_up_by_partition() -> None:
    reads = [
        RangeRead(Range("t", 0, 0, 5), rows=3, greatest_ms=7),
        RangeRead(Range("t", 0, 5, 9), rows=1, greatest_ms=4),
        RangeRead(Range("t", 1, 0, 9)),
        RangeRead(Range("u", 1, 0, 9), rows=1, greatest_ms=-3),
    ]
    assert together(reads) == {("t", 0): 7, ("u", 1): -3}
    assert together([]) == {}


def test_a_range_that_is_gone_says_what_and_the_remedy() -> None:
    error = gone("t", 3, 100, 200)
    assert isinstance(error, RangeGone)
    assert "t[3]" in error.what
    assert "offset 100" in error.what
    assert "starts at 200" in error.what
    assert "keep the topic longer" in error.remedy
    assert "starts" not in gone("t", 3, 100, None).what
    assert str(copy.copy(error)) == str(error)
    assert str(Range("t", 3, 100, 200)) == "t[3] 100 to 199"


def test_a_range_belongs_to_one_topic_whatever_it_is_called() -> None:
    one = Range("t", 0, 5, 9, "one")
    assert remade(one, "one") is None
    assert remade(one, "") is None
    assert remade(Range("t", 0, 5, 9), "two") is None
    error = remade(one, "two")
    assert error is not None
    assert "t[0]: the topic was deleted and re-created" in error.what
    assert "`headgate topics adopt JOB t`" in error.remedy
