"""Lives that end one after the other: the pauses between them."""

from __future__ import annotations

from headgate.core.coordination.member.pauses import LONGEST, Pauses


def test_the_first_loss_costs_no_time_and_the_pauses_then_double_to_a_bound():
    pauses, now, found = Pauses(0.5), 100.0, []
    for _ in range(9):
        pauses.began(now)
        found.append(pauses.lost(now) - now)
        assert pauses.until == now + found[-1]
        now = pauses.until
    assert found == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0]


def test_a_life_that_lasted_begins_anew():
    """A producer that is lost once a day is replaced at once, each time."""
    pauses = Pauses(1.0)
    for n in range(3):
        pauses.lost(float(n))
    pauses.began(10.0)
    assert pauses.lost(10.0 + LONGEST) > 10.0 + LONGEST
    pauses.began(100.0)
    assert pauses.lost(100.1 + LONGEST) == 100.1 + LONGEST


def test_whose_culprit_is_known_costs_no_one_else_any_time():
    pauses = Pauses(1.0)
    pauses.lost(0.0)
    pauses.lost(0.0)
    pauses.blamed()
    assert pauses.until < 0.0
    assert pauses.lost(1.0) == 1.0
