"""Slots: golden bytes of their keys, and which of them is taken."""

from __future__ import annotations

import doctest

from hypothesis import given
from hypothesis import strategies as st

from headgate.core.windows import slots as module
from headgate.core.windows.slots import Slots, pack_slot, unpack_slot


def test_the_examples_hold() -> None:
    assert doctest.testmod(module).failed == 0


def test_golden_bytes() -> None:
    """Stored for ever: another encoding would lose every open window."""
    assert pack_slot(1_000_000).hex() == "00000000000f4240"
    assert pack_slot("floor") == b"floor"
    assert [unpack_slot(pack_slot(key)) for key in (0, 2**64 - 1, "closing", "")] == [0, 2**64 - 1, "closing", ""]


@given(
    st.sets(st.integers(0, 9)),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9), st.sampled_from(["complete", "drop"]))),
)
def test_a_letter_takes_the_lowest_free_slots_and_gives_back_what_it_closes(
    used: set[int], letters: list[tuple[int, int, str]]
) -> None:
    """Against plain sets: what a letter gives back is free behind it, and a failed letter has taken and given nothing."""
    slots = Slots(used)
    known = set(used)
    most = max(known, default=-1) + 1
    for takes, gives, how in letters:
        gone = set(sorted(known)[:gives])
        slots.give(gone)
        taken = {slots.take() for _ in range(takes)}
        assert taken == set([slot for slot in range(len(known) + takes + most) if slot not in known][:takes])
        if how == "drop":
            slots.drop()
            continue
        slots.complete()
        most = max(most, len(known) + takes)
        known = (known | taken) - gone
        assert max(known, default=-1) < most
