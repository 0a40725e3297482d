"""Which jobs a cascade drains, and in which order."""

from __future__ import annotations

import pytest

from headgate.core.coordination.cascade import Following, followers
from headgate.core.errors import HeadgateError

READS = {
    "a/1": {},
    "b/1": {"ab": ("a/1",)},
    "c/1": {"ab": ("a/1",), "bc": ("b/1", "x/1")},
    "d/1": {"x": ("x/1",)},
    "x/1": {},
}


@pytest.mark.parametrize(
    ("first", "order"),
    [
        ("a/1", [Following("b/1", ("ab",)), Following("c/1", ("ab", "bc"))]),
        ("b/1", [Following("c/1", ("bc",))]),
        ("x/1", [Following("c/1", ("bc",)), Following("d/1", ("x",))]),
        ("c/1", []),
        ("unknown/1", []),
    ],
)
def test_each_job_comes_after_its_producers_and_reads_what_these_share(first, order):
    assert followers(first, READS) == order


@pytest.mark.parametrize(
    ("first", "named"), [("a/1", "a/1, b/1"), ("up/1", "a/1, b/1")], ids=["through the first", "behind the first"]
)
def test_a_circle_has_no_order(first, named):
    reads = {"a/1": {"s": ("b/1", "up/1")}, "b/1": {"t": ("a/1",)}, "up/1": {}}
    with pytest.raises(HeadgateError, match=f"the jobs {named} read each other in a cycle"):
        followers(first, reads)
