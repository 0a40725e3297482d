"""The account of the fleet sees what it must: each loss, each doubling, and a time that stands still in one output of one task."""

from __future__ import annotations

from collections import Counter

import pytest

from .fleet_account import Account, Progress
from .pairs import Row, wanted

ORDERS = [("a", 1000, 0, 5), ("a", 1500, 1, 6), ("a", 2500, 2, 7), ("b", 1000, 0, 8)]
"""Key, time, number, amount."""
WINDOWS = [("a", 0, 2, 11), ("a", 2000, 1, 7), ("b", 0, 1, 8)]
LEFTS = [Row("a", 0, 1000, "r"), Row("a", 1, 5000, "r")]
RIGHTS = [Row("a", 0, 1400, "r"), Row("a", 1, 9000, "r")]


def judged(found):
    """How many windows there must be, how many findings of loss, and how many of doubling."""
    account = Account()
    return account.windows(ORDERS, found), len(account.lost), len(account.doubled)


@pytest.mark.parametrize(
    ("found", "lost", "doubled"),
    [
        (WINDOWS, 0, 0),
        (WINDOWS[1:], 1, 0),
        ([*WINDOWS, WINDOWS[0]], 0, 1),
        ([("a", 0, 1, 5), *WINDOWS[1:]], 1, 0),
        ([("a", 0, 3, 16), *WINDOWS[1:]], 0, 1),
        ([("a", 0, 2, 10), *WINDOWS[1:]], 1, 1),
        ([*WINDOWS, ("c", 0, 1, 1)], 0, 1),
    ],
    ids=["right", "none", "twice", "too few", "too many", "one lost and one doubled", "never in the input"],
)
def test_each_window_speaks_once_for_each_of_its_records(found, lost, doubled):
    """A result that came twice is doubled whatever it says; a sum that is wrong for the right number is both."""
    assert judged(found) == (3, lost, doubled)


def test_each_pair_and_each_row_without_a_partner_comes_out_once():
    """A row that came out alone although it had a partner is one too many, and its pair is lost."""
    account = Account()
    assert account.pairs(LEFTS, RIGHTS, wanted(LEFTS, RIGHTS)) == 3
    assert account.wrong == []
    account.pairs(LEFTS, RIGHTS, Counter({("a", 0, None): 1, ("a", 1, None): 2, ("a", None, 1): 1}))
    assert account.lost == ["pair ('a', 0, 0): 1 times too few"]
    assert account.doubled == ["pair ('a', 0, None): 1 times too many", "pair ('a', 1, None): 1 times too many"]
    assert str(account) == "lost 1, doubled 2, late 0"


def test_time_goes_on_only_if_it_does_in_each_output_of_each_task():
    """The join has a time of its own: windows that close say nothing of it, and one task nothing of another."""
    progress = Progress(2)
    for partition in range(2):
        progress.window(partition, 4000, 4300)
    assert (progress.open(4000, "windows"), progress.open(4000, "pairs")) == ({}, {0: 4000, 1: 4000})
    progress.alone(0, 3600, 4400, left=True)
    progress.alone(1, 3700, 4400, left=False)
    assert progress.open(4000, "pairs") == {1: 100}
    progress.alone(1, 3600, 9000, left=True)
    progress.window(0, 2000, 9000)  # of another key, and no news
    assert (progress.open(4000, "windows"), progress.open(4000, "pairs")) == ({}, {})
    assert progress.slowest == {"windows": 300, "pairs": 5000}


COUNTS = [("a", 1, 5), ("b", 1, 8), ("a", 3, 18)]


@pytest.mark.parametrize(
    ("found", "lost", "doubled"),
    [
        (COUNTS, 0, 0),
        (COUNTS[:2], 1, 0),
        ([*COUNTS, COUNTS[2]], 0, 1),
        ([*COUNTS[:2], ("a", 4, 23)], 0, 1),
        ([*COUNTS, ("a", 2, 11)], 1, 1),
        ([COUNTS[0], COUNTS[2]], 1, 0),
        ([*COUNTS, ("c", 1, 1)], 0, 1),
    ],
    ids=["right", "not to the end", "twice", "one too many", "back", "a key is missing", "never in the input"],
)
def test_each_record_is_counted_once(found, lost, doubled):
    """The last count of a key is that of its records, and no count comes twice or goes back."""
    account = Account()
    assert account.counts(ORDERS, found, "output") == 2
    assert (len(account.lost), len(account.doubled)) == (lost, doubled)
