"""The stores of copies: which one a worker takes, what it continues from, and what costs it."""

from __future__ import annotations

import pytest

from headgate.agents.runtime.copies.directory import CopyDirectory
from headgate.agents.runtime.copies.positions import CopyPositions, unfit
from headgate.agents.state.rocks import StoreMemory
from headgate.agents.state.store import Owner, StoreUnusable

OWNER = Owner("u1", "the copy of table rates", -1)
MEMORY = StoreMemory(32 << 20)


def disk(path):
    return CopyDirectory(path, "rates", MEMORY)


def test_two_workers_on_one_disk_have_a_store_each_and_find_them_again(tmp_path):
    one = disk(tmp_path).open(OWNER, ["rates"])
    two = disk(tmp_path).open(OWNER, ["rates"])
    assert one.path != two.path
    one.write({"rates": {b"a": b"1"}}, position=0, checkpoint=CopyPositions("t", {0: 1}, 1).packed())
    two.write({"rates": {b"a": b"2"}}, position=0, checkpoint=CopyPositions("t", {0: 2}, 1).packed())
    places = [one.path, two.path]
    two.close()
    one.close()
    again = [disk(tmp_path).open(OWNER, ["rates"]) for _ in range(2)]
    assert [store.path for store in again] == places
    assert [CopyPositions.unpacked(store.meta.checkpoint).next for store in again] == [{0: 1}, {0: 2}]
    assert [store.get("rates", b"a") for store in again] == [b"1", b"2"]
    for store in again:
        store.close()


def test_a_store_of_another_life_of_the_job_is_wiped_and_no_other(tmp_path):
    disk(tmp_path).open(OWNER, ["rates"]).close()
    place = disk(tmp_path)
    with pytest.raises(StoreUnusable, match="belongs to the job u1"):
        place.open(Owner("u2", OWNER.task, -1), ["rates"])
    place.wipe()
    store = place.open(Owner("u2", OWNER.task, -1), ["rates"])
    assert store.meta.checkpoint is None
    store.close()


@pytest.mark.parametrize(
    ("kept", "topic", "bounds", "why"),
    [
        (CopyPositions(), "t1", {0: (5, 9)}, ""),
        (CopyPositions("t1", {0: 5}), "t1", {0: (5, 9)}, ""),
        (CopyPositions("t1", {0: 9}), "t1", {0: (5, 9)}, ""),
        (CopyPositions("t1", {0: 9}), "t1", {0: (5, 9), 1: (0, 4)}, ""),
        (CopyPositions("", {0: 9}), "t1", {0: (5, 9)}, ""),
        (CopyPositions("t1", {0: 9}), "", {0: (5, 9)}, ""),
        (CopyPositions("t1", {0: 9}), "t2", {0: (5, 9)}, "was deleted and re-created"),
        (
            CopyPositions("t1", {0: 4}),
            "t1",
            {0: (5, 9)},
            "1 records from offset 4 on were deleted before they were read",
        ),
        (CopyPositions("t1", {0: 10}), "t1", {0: (5, 9)}, "ends at 9, before the position 10"),
        (CopyPositions("t1", {0: 9, 1: 3}), "t1", {0: (5, 9)}, "has no partition 1 any more"),
    ],
)
def test_a_copy_goes_on_only_where_nothing_is_missing(kept, topic, bounds, why):
    found = unfit(kept, topic, bounds)
    assert why in found
    assert bool(why) == bool(found)
