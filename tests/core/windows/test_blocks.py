"""The keys of stored blocks: golden bytes, and an order that is the order of time."""

from __future__ import annotations

import doctest

from hypothesis import given
from hypothesis import strategies as st

from headgate.core.windows import blocks as module
from headgate.core.windows.blocks import BLOCK_BYTES, BLOCK_ROWS, pack_key, row_cuts, unpack_key

ENDS = st.integers(-(2**63), 2**63 - 1)


def test_the_examples_hold() -> None:
    assert doctest.testmod(module).failed == 0


def test_golden_bytes() -> None:
    """Stored for ever: another encoding would lose every open window."""
    assert pack_key((1_700_000_010_000, 7)).hex() == "8000018bcfe58f1000000007"
    assert pack_key("floor") == b"floor"


@given(st.lists(st.tuples(ENDS, st.integers(0, 2**32 - 1)), max_size=20))
def test_bytes_stand_in_the_order_of_time(keys: list[tuple[int, int]]) -> None:
    """Times before 1970 stand before it, so that windows are found in the order in which they close."""
    assert [unpack_key(data) for data in sorted(map(pack_key, keys))] == sorted(keys)


@given(
    st.lists(st.sampled_from([0, 1, 100, 1_000, 30_000, BLOCK_BYTES, 100_000]), max_size=600),
    st.integers(0, BLOCK_ROWS),
    st.integers(0, 100_000),
)
def test_blocks_of_rows_are_full_and_none_is_too_large(sizes: list[int], rows: int, size: int) -> None:
    """Each but the last has no room for the row behind it, so that few are written; each row is in one."""
    size = size if rows else 0
    cuts = row_cuts(sizes, rows, size)
    assert cuts == sorted(cuts)
    assert cuts[-1] == len(sizes)
    for start, stop in zip([0, *cuts], cuts, strict=False):
        held, weight = rows + stop - start, size + sum(sizes[start:stop])
        assert start == stop or held == 1 or (held <= BLOCK_ROWS and weight <= BLOCK_BYTES)
        assert stop == len(sizes) or held == BLOCK_ROWS or weight + sizes[stop] > BLOCK_BYTES
        rows = size = 0
