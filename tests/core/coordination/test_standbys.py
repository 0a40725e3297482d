"""Standbys: never with the owner, elsewhere, spread, and stable."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.coordination.standbys import standbys

PLACES = [None, "x", "y", "z"]


@st.composite
def situations(draw):
    workers = [f"p{n}" for n in range(draw(st.integers(1, 7)))]
    tasks = [f"Partition {n}" for n in range(draw(st.integers(0, 24)))]
    some = st.sampled_from([*workers, "gone"])
    return (
        {task: draw(st.sampled_from(workers)) for task in tasks},
        {one: draw(st.sampled_from(PLACES)) for one in workers},
        [one for one in workers if draw(st.booleans())],
        {task: draw(some) for task in tasks if draw(st.booleans())},
    )


def fits(situation, task, one):
    owners, locations, _, _ = situation
    owner = owners[task]
    return one != owner and (locations[owner] is None or locations[one] != locations[owner])


@given(situations())
@settings(deadline=None)
def test_a_standby_is_elsewhere_and_every_task_has_one_that_can(situation):
    owners, _, able, previous = situation
    found = standbys(*situation)
    for task in owners:
        kept = previous.get(task)
        if task in found:
            assert fits(situation, task, found[task])
            assert found[task] in able or found[task] == kept
        else:
            assert not any(fits(situation, task, one) for one in able)


@given(situations())
@settings(deadline=None)
def test_choosing_again_changes_nothing(situation):
    owners, locations, able, _ = situation
    found = standbys(*situation)
    assert standbys(owners, locations, able, found) == found


@given(situations(), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_the_order_of_the_arguments_does_not_matter(situation, random):
    def shuffled(items):
        listed = list(items)
        random.shuffle(listed)
        return listed

    owners, locations, able, previous = situation
    other = standbys(
        *(dict(shuffled(one.items())) for one in (owners, locations)), shuffled(able), dict(shuffled(previous.items()))
    )
    assert other == standbys(*situation)


@given(situations())
@settings(deadline=None)
def test_no_one_has_far_more_to_do_than_another_who_could_help(situation):
    owners, locations, able, _ = situation
    found = standbys(*situation)
    load = Counter(dict.fromkeys(locations, 0))
    load.update(owners.values())
    load.update(found.values())
    for task, here in found.items():
        assert all(load[here] - load[one] < 2 for one in able if fits(situation, task, one))


@given(situations())
@settings(deadline=None)
def test_who_follows_goes_on_unless_another_has_far_less_to_do(situation):
    """What moved away from a worker that could go on has left it no emptier than balance needs."""
    owners, locations, able, previous = situation
    found = standbys(*situation)
    load = Counter(owners.values()) + Counter(found.values())
    for task, kept in previous.items():
        if task in found and kept in locations and fits(situation, task, kept) and found[task] != kept:
            assert load[kept] >= min(load[one] for one in able) - 1
