"""Joins in event time: pairs, lateness and expiry against a comparison of every row with every other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.windows import matching
from headgate.core.windows.joins import (
    INNER,
    KINDS,
    LEFT,
    OUTER,
    SIDES,
    Distance,
    KeptSide,
    Unpaired,
    bound_of,
    expiring,
    held_back,
    preserves,
)

DISTANCES = st.builds(Distance, st.integers(0, 20), st.integers(0, 20))
KEYS = st.sampled_from([b"a", b"b", b"c"])
ROWS = st.lists(st.tuples(KEYS, st.integers(-40, 40)), max_size=30)
Row = tuple[bytes, int]


def kept(
    length: int, rows: list[Row], cut: int = 0, matched: frozenset[int] = frozenset(), packs: int = 0
) -> tuple[KeptSide, list[tuple[int, int]]]:
    """A side with these rows, taken in two chunks; and where each of them is. Slices are packed behind so many of the chunks."""
    side = KeptSide(length)
    at: list[tuple[int, int]] = []
    for first, part in ((0, rows[:cut]), (cut, rows[cut:])):
        for end, places in side.spans.assign([time for _, time in part]).items():
            chosen = list(range(len(part))) if places is None else places
            flags = bytes(first + place in matched for place in chosen)
            side.add(end, [part[place][0] for place in chosen], [part[place][1] for place in chosen], flags)
        if first == 0 or packs == 2:
            for one in side.slices.values() if packs else ():
                one.pack()
    seen: dict[int, int] = {}
    for _, time in rows:
        end = next(iter(side.spans.assign([time])))
        at.append((end, seen.get(end, 0)))
        seen[end] = seen.get(end, 0) + 1
    return side, at


@given(
    distance=DISTANCES,
    stored=ROWS,
    cut=st.integers(0, 30),
    arriving=ROWS.filter(len),
    side=st.sampled_from(SIDES),
    packs=st.integers(0, 2),
)
def test_every_pair_within_the_distance_is_found_once(
    distance: Distance, stored: list[Row], cut: int, arriving: list[Row], side: int, packs: int
) -> None:
    """In the order of arrival; the partners of one row by time, then by their arrival. Both ends of the distance belong to it. It does not
    matter what is packed."""
    other, at = kept(distance.slice_ms, stored, cut, packs=packs)
    found = other.pairs([k for k, _ in arriving], [t for _, t in arriving], distance.back(side), distance.ahead(side))

    def are_pair(own: Row, its: Row) -> bool:
        left, right = (its, own) if side else (own, its)
        return left[0] == right[0] and left[1] - distance.before <= right[1] <= left[1] + distance.after

    expected = [
        (index, *at[place], stored[place][1])
        for index, own in enumerate(arriving)
        for place in sorted(range(len(stored)), key=lambda place: stored[place][1])
        if are_pair(own, stored[place])
    ]
    assert list(zip(*found, strict=True)) == expected


@given(
    distance=DISTANCES,
    rows=st.tuples(ROWS, ROWS),
    matched=st.frozensets(st.integers(0, 29)),
    how=st.sampled_from(KINDS),
    bound=st.none() | st.integers(-60, 80),
    room=st.integers(1, 8),
    packs=st.integers(0, 2),
)
def test_a_row_expires_once_when_its_last_partner_would_be_late(
    distance: Distance,
    rows: tuple[list[Row], list[Row]],
    matched: frozenset[int],
    how: str,
    bound: int | None,
    room: int,
    packs: int,
) -> None:
    """In steps of bounded size: the order of expiry, then left before right, then time, then arrival. What is left has not expired."""
    made = [kept(distance.slice_ms, one, 7, matched, packs) for one in rows]
    sides = [side for side, _ in made]
    kinds = [side for side in SIDES if preserves(how, side)]
    expected = sorted(
        Unpaired(time + distance.ahead(side), side, time, *made[side][1][index])
        for side in kinds
        for index, (_, time) in enumerate(rows[side])
        if index not in matched and (bound is None or time + distance.ahead(side) < bound)
    )
    found: list[Unpaired] = []
    more = True
    while more:
        step, more = expiring(sides, kinds, distance, bound, room)
        assert len(step) <= room
        assert step or not more
        for one in step:
            sides[one.side].slices[one.end].matched[one.place] = 1
        found += step
    assert found == expected
    for side in kinds:
        limit = None if bound is None else bound - distance.ahead(side)
        left = [
            time
            for index, (_, time) in enumerate(rows[side])
            if index not in matched and limit is not None and time >= limit
        ]
        first = sides[side].first_alone()
        assert (first is None) is (not left)
        assert first is None or first <= min(left)
        for end in list(sides[side].passed(limit)):
            sides[side].forget(end)
        times = [time for one in sides[side].slices.values() for time in one.times]
        assert sides[side].rows == len(times)
        if limit is None:
            assert times == []
        else:
            assert all(time >= limit - distance.slice_ms for time in times)
            assert sorted(time for time in times if time >= limit) == sorted(
                time for _, time in rows[side] if time >= limit
            )


def test_rows_of_one_letter_have_one_slice_for_all_times() -> None:
    side = KeptSide.of([b"a", b"a", b"b"], [-(2**62), 2**62, 0])
    assert side.pairs([b"a"], [2**62 - 5], 0, 5).places == [1]
    assert side.pairs([b"a"], [-(2**62)], 0, 0).places == [0]


@pytest.mark.parametrize(("how", "held"), [(INNER, 3), (LEFT, 23), (OUTER, 23)])
def test_what_a_join_holds_back(how: str, held: int) -> None:
    """A right row waits for left ones that are up to 10 ms younger, a left row for right ones that are up to 20 ms younger."""
    assert held_back(how, Distance(before=10, after=20), 3) == held
    assert held_back(how, Distance(before=30, after=0), 3) == {INNER: 3, LEFT: 3, OUTER: 33}[how]


def test_the_bound_follows_the_watermark_at_the_distance_of_the_grace() -> None:
    assert bound_of(100, 5) == 95


def test_packed_rows_whose_keys_have_one_hash_are_all_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only whoever reads a packed row knows its key: a pair too many is his to drop, one too few would be lost."""
    monkeypatch.setattr(matching, "crc32", lambda key: 7)
    side = KeptSide(10)
    side.add(10, [b"a", b"b"], [1, 2], bytes(2))
    side.slices[10].pack()
    side.add(10, [b"a"], [3], bytes(1))
    found = side.pairs([b"a", b"c"], [3, 3], 5, 0)
    assert list(zip(*found, strict=True)) == [(0, 10, 0, 1), (0, 10, 1, 2), (0, 10, 2, 3), (1, 10, 0, 1), (1, 10, 1, 2)]


def test_what_is_packed_again_and_again_is_looked_up_in_few_places() -> None:
    """Otherwise each look-up would search as many runs as there were commits."""
    side = KeptSide(10_000)
    for number in range(1000):
        side.add(10_000, [b"%d" % number], [number], bytes(1))
        side.slices[10_000].pack()
    assert len(side.slices[10_000].index.runs) <= 10
    found = side.pairs([b"%d" % number for number in range(1000)], list(range(1000)), 0, 0)
    assert found.places == list(range(1000))


def test_the_oldest_row_is_known_by_side() -> None:
    """What a join waits for: rows out of order, in several slices."""
    side = KeptSide(10)
    assert side.oldest() is None
    side.add(20, [b"a", b"b"], [19, 12], bytes(2))
    assert side.oldest() == 12
    side.add(10, [b"a", b"b"], [7, 9], bytes(2))
    assert side.oldest() == 7
    side.forget(10)
    assert side.oldest() == 12
