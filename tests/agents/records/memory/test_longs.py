"""Arithmetic on buffers of 64-bit integers: both ways give the same."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.agents.records.layout import longs
from headgate.agents.records.memory.longs import (
    distances,
    extremes,
    first_above,
    gathered,
    listed_extremes,
    scaled,
    scattered,
    summed,
)
from headgate.agents.records.native import chosen
from headgate.core.progress.came_from import came_from

BUILT = [chosen.COMPILED, chosen.PLAIN] if chosen.COMPILED is not None else [chosen.PLAIN]
NUMBERS = st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=30)


@given(NUMBERS, st.data())
def test_both_ways(numbers, data):
    """The same integers from the compiled part and from Python."""
    rows = data.draw(st.lists(st.integers(0, len(numbers) - 1), max_size=30))
    start, limit = data.draw(st.integers(0, len(numbers))), data.draw(st.sampled_from(numbers))
    stop = data.draw(st.integers(start, len(numbers)))
    add, factor, divisor = data.draw(st.tuples(*[st.integers(-9, 9)] * 2, st.integers(1, 1001)))
    for built in BUILT:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(chosen, "part", built)
            of = array("q", numbers)
            assert longs(gathered(of, array("q", rows))).tolist() == [numbers[row] for row in rows]
            places = array("q", data.draw(st.permutations(range(len(numbers) + 3)))[: len(numbers)])
            spread = longs(scattered(of, places, len(numbers) + 3, rest=add)).tolist()
            assert [spread[place] for place in places] == numbers
            assert spread.count(add) >= 3
            wanted = [(one + add) * factor // divisor for one in numbers]
            assert longs(scaled(of, add=add, factor=factor, divisor=divisor)).tolist() == wanted
            assert extremes(of) == (min(numbers), max(numbers))
            assert listed_extremes(numbers) == (min(numbers), max(numbers))
            assert [listed_extremes([*numbers, one]) for one in (None, 1.5, True, 2**63, -(2**63) - 1)] == [None] * 5
            assert listed_extremes([]) is None
            above = next((at for at in range(start, stop) if numbers[at] > limit), stop)
            assert first_above(of, start, stop, limit) == above
            offsets = [one + 2**40 for one in numbers]
            said = f"a[0] offsets {min(offsets)} to {max(offsets)}"
            written = distances(array("q", offsets), min(offsets))
            told = [came_from(said, written, row) for row in range(len(offsets))]
            assert told == [f"a[0] offset {one}" for one in offsets]
            assert longs(summed(distances(of, 0)) or b"").tolist() == numbers
            assert [summed(one) for one in (b"\x80", b"\x02\x80", b"\xff" * 10 + b"\x00")] == [None] * 3
            for row in (-1, len(numbers)):
                with pytest.raises(IndexError):
                    gathered(of, array("q", [row]))
                with pytest.raises(IndexError):
                    scattered(array("q", [1]), array("q", [row]), len(numbers))
            with pytest.raises(ValueError):
                scattered(of, array("q"), 9)
            with pytest.raises(ValueError):
                extremes(array("q"))
            assert distances(array("q", [-(2**63), 2**63 - 1]), 2**63 - 1) == bytes([2, 1]), "modulo 2^64"


@pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")
def test_what_is_no_buffer_of_integers_is_refused():
    """Before a byte outside of it is read."""
    for call in (
        lambda: extremes(b"123"),
        lambda: gathered(b"1", b""),
        lambda: gathered(bytes(8), b"1"),
        lambda: scattered(bytes(8), b"1", 1),
        lambda: scattered(b"", b"", -1),
        lambda: distances(b"1", 0),
    ):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(TypeError):
        listed_extremes((1, 2))
    for call in (lambda: first_above(bytes(8), -1, 1, 0), lambda: first_above(bytes(8), 0, 2, 0)):
        with pytest.raises(IndexError):
            call()
    with pytest.raises(ValueError):
        scaled(bytes(8), divisor=0)
