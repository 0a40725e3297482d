"""A store is trusted only while nothing can have been missed; starts and ends are decided once."""

from __future__ import annotations

import random

import pytest

from headgate.core.names import StreamPartition as SP
from headgate.core.task.plan import FOREIGN, INTERMEDIATE, InputPlan
from headgate.core.task.protocol import LogEnds, StoreOpened
from headgate.core.task.store_trust import beginning, distrust

LOG = LogEnds(10, 50, 1000)


@pytest.mark.parametrize(
    ("store", "why"),
    [
        (StoreOpened(), ""),
        (StoreOpened(50, "u", 0), ""),
        (StoreOpened(50, "u", None), ""),
        (StoreOpened(20, "u", 9_501), ""),
        (StoreOpened(20, "u", 9_500), "500 ms ago"),
        (StoreOpened(20, "u", None), "it is unknown when"),
        (StoreOpened(20, "u", 10_001), "the clock was set back"),
        (StoreOpened(50, "u", 10_001), ""),
        (StoreOpened(9, "u", 10_000), "begins at 10"),
        (StoreOpened(51, "u", 10_000), "re-created"),
        (StoreOpened(50, "v", 10_000), "job uuid v"),
        (StoreOpened(50, None, 10_000), "job uuid None"),
    ],
)
def test_whether_a_store_may_be_used(store, why):
    answer = distrust(store, LOG, "u", 10_000)
    assert (why in answer) if why else answer == ""


A0, A1 = SP("a", 0), SP("a", 1)


def test_a_first_start_asks_for_what_is_not_a_number():
    plans = [
        InputPlan("a", (0, 1), 2, start="newest", until=("time", 5), until_of={1: 30}),
        InputPlan("b", (0,), 1, start=7),
        InputPlan("i", (0,), 1, INTERMEDIATE, until=3),
        InputPlan("f", (0,), 1, FOREIGN),
    ]
    begin = beginning(plans, {}, {}, new_run=True)
    assert begin.positions == {SP("b", 0): 7}
    assert begin.until == {A1: 30}
    assert begin.ask_positions == {A0: "newest", A1: "newest", SP("i", 0): "oldest", SP("f", 0): "oldest"}
    assert begin.ask_until == {A0: ("time", 5)}
    assert begin.news


def test_a_restart_knows_everything():
    plans = [InputPlan("a", (0, 1), 2, until="newest")]
    begin = beginning(plans, {A0: 5, A1: 6}, {A0: 10, A1: 10}, new_run=False)
    assert (begin.positions, begin.until, begin.ask_until, begin.news) == ({A0: 5, A1: 6}, {A0: 10, A1: 10}, {}, False)


def test_a_partition_that_is_new_to_the_task_begins_where_it_was_declared():
    begin = beginning([InputPlan("a", (0, 1), 2)], {A0: 5}, {}, new_run=False)
    assert (begin.positions, begin.ask_positions, begin.news) == ({A0: 5}, {A1: "oldest"}, True)


def test_a_new_run_asks_for_its_bounds_again():
    begin = beginning([InputPlan("a", (0,), 1, until="newest")], {A0: 5}, {A0: 10}, new_run=True)
    assert (begin.positions, begin.ask_until, begin.news) == ({A0: 5}, {A0: "newest"}, True)


RETENTION_MS = 1000


class CompactedLog:
    """A compacted topic. As in Kafka, a tombstone is kept for `RETENTION_MS` from the first compaction that has seen it, and that one has
    removed all older values of its key."""

    def __init__(self):
        self.records, self.end, self.forget_ms = [], 0, {}

    def write(self, key, value):
        self.records.append((self.end, key, value))
        self.end += 1

    def compact(self, now_ms, upto):
        last = {key: offset for offset, key, _ in self.records if offset < upto}
        kept = [one for one in self.records if one[0] >= upto or last[one[1]] == one[0]]
        self.records = [one for one in kept if self.forget_ms.get(one[0], now_ms) >= now_ms]
        for offset, _, value in self.records:
            if value is None and offset < upto:
                self.forget_ms.setdefault(offset, now_ms + RETENTION_MS)


class RestoredStore:
    """A store that is filled as `restore` does it: row by row of a part, and behind it with the last one."""

    def __init__(self):
        self.rows, self.opened = {}, StoreOpened()

    def begin(self, log, now_ms):
        """Begin a restore."""
        if distrust(self.opened, LogEnds(0, log.end, RETENTION_MS), "u", now_ms):
            self.rows, self.opened = {}, StoreOpened()
        self.began_ms = now_ms
        self.unsure_ms = now_ms if self.opened.position is None else self.opened.followed_until_ms
        self.at = self.opened.position or 0

    def part(self, log, records, killed_after):
        """Restore so many records, or be killed after so many rows. Returns whether the store is at the log's end."""
        found = [one for one in log.records if one[0] >= self.at][:records]
        folded = {key: value for _, key, value in found}
        for key in sorted(folded)[:killed_after]:
            self.rows[key] = folded[key]
            self.opened = StoreOpened(self.at, "u", self.unsure_ms)
        if killed_after is not None:
            return False
        self.at = found[-1][0] + 1 if len(found) == records else log.end
        done = self.at == log.end
        self.opened = StoreOpened(self.at, "u", self.began_ms if done else self.unsure_ms)
        return done


def alive(rows):
    return {key: value for key, value in rows.items() if value is not None}


def test_no_deleted_key_rises_again_however_often_a_restore_is_interrupted():
    """Keys are set and deleted, the log is compacted at any time, restores are killed at any row and tried again later. An older value
    that a restore reads is not compacted yet, so the tombstone behind it is kept for the whole retention from then on: a new store is as
    old as its first restore."""
    for seed in range(2_000):
        chance = random.Random(seed)
        log, store, truth, now_ms = CompactedLog(), RestoredStore(), {}, 0
        for life in range(12):
            for key in chance.choices("abcd", k=chance.randrange(2) if life else 10):
                truth[key] = chance.choice((log.end, None))
                log.write(key, truth[key])
            now_ms += chance.choice((1, RETENTION_MS, *[RETENTION_MS // 2 - 20] * 4))
            store.begin(log, now_ms)
            left, done = chance.choice((0, 0, 1, 99)), False
            while not done and left >= 0:
                now_ms += 1
                log.compact(now_ms, chance.randint(0, log.end))
                done = store.part(log, chance.randint(1, 2), None if left else chance.randrange(3))
                left -= 1
            assert not done or alive(store.rows) == alive(truth), seed
