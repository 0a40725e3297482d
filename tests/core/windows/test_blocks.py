"""The keys of stored blocks: golden bytes, and an order that is the order of time."""

from __future__ import annotations

import doctest

from hypothesis import given
from hypothesis import strategies as st

from headgate.core.windows import blocks as module
from headgate.core.windows.blocks import pack_key, unpack_key

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
