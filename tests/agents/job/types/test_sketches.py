"""Sketches: how far they may be from the truth, how large they become, and that neither depends on the order of what comes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.agents.testing.driver import Driver

from ...forms import Form

MADE: dict[str, Callable[[], hg.Aggregate]] = {
    "exact": lambda: hg.count_distinct("x"),
    "estimated": lambda: hg.count_distinct("x", exact_up_to=3),
    "quantile": lambda: hg.quantile("x", 0.5),
    "arg_max": lambda: hg.arg_max("x", "x"),
    "arg_min": lambda: hg.arg_min("x", "x"),
    "top": lambda: hg.top(3, "x"),
}
PACK: Any = msgpack


def stored(state: Any) -> Any:
    """As it is after it was stored."""
    return PACK.unpackb(PACK.packb(state))


def added(of: hg.Aggregate, values: Sequence[Any]) -> Any:
    state = of.start()
    for value in values:
        state = of.add(state, value)
    return state


@pytest.mark.parametrize("name", MADE)
@settings(deadline=None, max_examples=60)
@given(st.lists(st.one_of(st.integers(-9, 9), st.floats(allow_nan=True), st.integers(-(2**63), 2**63 - 1))), st.data())
def test_the_order_of_values_and_of_merges_is_no_matter(name: str, values: list[Any], data: Any) -> None:
    """Rows one by one, columns at once, partial states that were stored: one state."""
    of = MADE[name]()
    rows = [(one, one) for one in values] if of.by is not None else values
    shuffled = data.draw(st.permutations(rows))
    cut = data.draw(st.integers(0, len(rows)))
    whole = added(of, rows)
    merge: Any = of.merge
    merged = merge(stored(added(of, shuffled[:cut])), stored(added(of, shuffled[cut:])))
    folded = [of.start(), of.start()]
    of.fold(folded, [1] * len(rows), shuffled)
    assert repr(stored(whole)) == repr(stored(merged)) == repr(stored(folded[1]))
    assert folded[0] == of.start()


@pytest.mark.parametrize(("one", "other"), [(3_000, 5_000), (9, 5_000), (5_000, 9), (200, 250)])
def test_estimates_merge_whichever_is_beyond_the_bound(one: int, other: int) -> None:
    """The state is that of all values, and the one that is merged in stays what it is."""
    of = hg.count_distinct("user")
    left, right = added(of, range(one)), added(of, range(1_000, 1_000 + other))
    before = stored(right)
    merged = of.merge(left, right) if of.merge is not None else None
    assert bytes(stored(merged)) == bytes(stored(added(of, [*range(one), *range(1_000, 1_000 + other)])))
    assert stored(right) == before


@pytest.mark.parametrize("count", [256, 257, 1_000, 5_000, 30_000])
def test_distinct_values_are_counted_exactly_and_then_estimated(count: int) -> None:
    """In a few KB, whatever the number and the length of the values."""
    of = hg.count_distinct("x")
    state = added(of, [f"a rather long name of somebody {number}" for number in range(count)])
    state = of.add(state, None)
    found = of.result(state) if of.result is not None else 0
    assert found == count if count <= 256 else abs(found - count) < 4 * 0.016 * count
    assert len(PACK.packb(state)) <= max(256 * 18 + 3, 4_099)


def test_a_key_with_too_many_values_may_be_an_error() -> None:
    """Of the record that is one too many; the others count."""
    app = hg.App("job", on_error="dead_letter")
    made = hg.count_distinct("x", exact_up_to=2, then="fail")
    app.input("in", key="k").agg(n=made).to("out")
    with Driver(app) as d:
        d.send_all("in", [{"k": "a", "x": x} for x in (1, 2, 1.0, "1", 2)])
        assert [one.value for one in d.read("out")] == [{"n": 2}]
        (letter,) = d.dead_letters()
        assert (letter.offset, "more than 2 different values" in letter.exception) == (3, True)


@pytest.mark.parametrize("q", [0, 0.01, 0.5, 0.9, 1])
def test_a_quantile_is_near_the_value_of_its_rank(q: float) -> None:
    """Over many orders of magnitude, below zero, and where there are more buckets than are kept."""
    chance = random.Random(7)
    of = hg.quantile("x", q)
    spread = [chance.choice((1, 1, -1)) * 10 ** chance.uniform(-3, 3) for _ in range(3_000)]
    for values in (spread, [0.0, *spread, 0], [1, 1, 1, 10**400]):
        found: Any = of.result(added(of, values)) if of.result is not None else None
        exact = sorted(values)[math.floor(q * (len(values) - 1))]
        assert found == (math.inf if exact > 1e308 else pytest.approx(exact, rel=0.0101))
    wide = added(of, [10 ** chance.uniform(-300, 300) for _ in range(9_000)])
    assert len(wide[0]) == len(wide[1]) == 2_048
    assert sum(wide[1]) == 9_000
    assert len(PACK.packb(wide)) < 28_700


def test_what_makes_no_sense_is_refused() -> None:
    for wrong in (
        lambda: hg.count_distinct("x", exact_up_to=-1),
        lambda: hg.count_distinct("x", exact_up_to=10**6),
        lambda: hg.count_distinct("x", then="guess"),  # pyright: ignore[reportArgumentType]
        lambda: hg.quantile("x", 2),
        lambda: hg.quantile("x", True),
        lambda: hg.top(0, "x"),
        lambda: hg.top(10**6, "x"),
        lambda: hg.top(3),
    ):
        with pytest.raises(hg.DeclarationError):
            wrong()


class Pair(TypedDict):
    k: str
    x: int | None
    y: int | None


OF_Y: list[Callable[[Any], hg.Aggregate]] = [
    lambda where: hg.arg_max("x", "y", where=where),
    lambda where: hg.arg_min("x", by="y", where=where),
    lambda where: hg.top(2, "x", by="y", where=where),
    lambda where: hg.quantile("y", 0.5, where=where),
]


@pytest.mark.parametrize("of", OF_Y)
def test_rows_are_not_ranked_by_null(of: Callable[[Any], hg.Aggregate], form: Form) -> None:
    """It is an error of its record, unless `where=` leaves it out."""
    there: Any = (lambda row: row["y"] is not None) if form is Form.ROWS else ~hg.col("y").is_null()
    for where, counts in ((None, 1), (there, 2)):
        app = hg.App("job", on_error="skip")
        form.input(app, "in", Pair, key="k").agg(of=of(where), n=hg.count()).to("out")
        with Driver(app) as d:
            d.send_all("in", [{"k": "a", "x": x, "y": y} for x, y in ((1, None), (None, 3))])
            assert d.counters["records_skipped"] == 2 - counts
            assert d.read("out")[-1].value["n"] == counts
