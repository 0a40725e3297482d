"""Memory that is used again: nobody ever sees another's bytes in it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.agents.records.memory.memory import fresh
from headgate.agents.records.native import chosen


@pytest.mark.parametrize("plain", [False, True])
def test_memory_is_used_again_only_when_nobody_sees_it(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is kept, in whatever order views are made and dropped, nobody writes into it."""
    if plain:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)
    _memory_stays()


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 65535, 65536, 65537, 200_000, 1 << 20, 5 << 20]),
            st.integers(0, 5),
            st.sampled_from(["whole", "part", "nothing"]),
        ),
        max_size=40,
    )
)
def _memory_stays(steps: list[tuple[int, int, str]]) -> None:
    seen: dict[int, tuple[memoryview, int]] = {}
    for turn, (size, name, what) in enumerate(steps):
        view = fresh(size)
        assert len(view) == size
        mark = turn % 251
        view[:] = bytes([mark]) * size
        seen.pop(name, None)
        if what != "nothing":
            seen[name] = (view if what == "whole" else view[size // 3 : size // 2].toreadonly(), mark)
        del view
        for kept, said in seen.values():
            assert bytes(kept) == bytes([said]) * len(kept)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("size", [-1, -(2**62), 2**70])
def test_no_memory_has_this_size(plain: bool, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error, not a crash."""
    if plain:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)
    with pytest.raises((ValueError, OverflowError)):
        fresh(size)


@pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")
def test_memory_is_used_again() -> None:
    """The pages of an answer whose records are worked off are there for the next one."""
    first = fresh(1 << 20)
    first[:3] = b"abc"
    rest = first[1:]
    del first
    other = fresh(1 << 20)
    assert other.obj is not rest.obj
    del rest
    assert bytes(fresh((1 << 20) - 5000)[:3]) == b"abc"
