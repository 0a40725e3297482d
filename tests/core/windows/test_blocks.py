"""How rows are divided into blocks."""

from __future__ import annotations

import doctest

from hypothesis import given
from hypothesis import strategies as st

from headgate.core.windows import blocks as module
from headgate.core.windows.blocks import BLOCK_BYTES, BLOCK_ROWS, row_cuts


def test_the_examples_hold() -> None:
    assert doctest.testmod(module).failed == 0


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
