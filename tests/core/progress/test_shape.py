"""The walk over msgpack agrees with msgpack itself about what is whole, and with a plain count about depth."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.progress.shape import msgpack_flaw

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.sampled_from(["", "x" * 40, "x" * 300, "x" * 70_000, b"", b"x" * 300, b"x" * 70_000])
    | st.builds(
        msgpack.ExtType, st.integers(0, 127), st.sampled_from([b"x" * n for n in (1, 2, 3, 4, 8, 16, 300, 70_000)])
    ),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.integers(0, 99), inner, max_size=20),
    max_leaves=30,
)


def depth(value):
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@settings(deadline=None, max_examples=100)
@given(PLAIN.filter(lambda v: depth(v) >= 0))
def test_depth_is_counted(value):
    data = msgpack.packb(value)
    deep = depth(value)
    assert msgpack_flaw(data, deep) is None
    if deep:
        assert msgpack_flaw(data, deep - 1) == f"is nested deeper than {deep - 1}"
    assert msgpack_flaw(data + b"\x00", deep) == "has trailing bytes"
    assert msgpack_flaw(data[:-1], 99) == "is cut off"


@pytest.mark.parametrize(
    "value", [list(range(70_000)), dict.fromkeys(range(70_000)), list(range(20)), dict.fromkeys(range(20)), 1.5]
)
def test_wide_containers(value):
    assert msgpack_flaw(msgpack.packb(value), 1) is None


def test_a_single_precision_number_and_the_unused_byte():
    assert msgpack_flaw(msgpack.packb(1.5, use_single_float=True), 0) is None
    assert msgpack_flaw(b"\xc1", 0) == "is not msgpack"


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=30))
def test_what_msgpack_reads_is_whole(data):
    try:
        msgpack.unpackb(data, strict_map_key=False, raw=True)
    except (ValueError, TypeError):
        return
    assert msgpack_flaw(data, 99) is None
