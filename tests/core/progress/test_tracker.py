"""Reconciliation of control messages, case by case, and against a naive oracle over every short history."""

from __future__ import annotations

from functools import partial
from itertools import permutations, product

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.errors import DataError
from headgate.core.orders import ProducerSet
from headgate.core.progress.frames import MAX_TIME, NO_TIME, Drain, EndOfStream, Watermark
from headgate.core.progress.producers import SILENT, ForeignProducers, Sources, StreamPhase, StreamStatus
from headgate.core.progress.tracker import ALL, Progress
from headgate.core.task.rows import pack_rows, unpack_rows

JOB, RUN, S = "sales/1", "r2", "sales-1-by"


def wm(task, ts, *, idle=False, epoch=1, run=RUN, job=JOB, tasks=2, away=False):
    return Watermark(job, run, task, tasks, epoch, ts, idle or away, away)


def end(task, *, epoch=1, run=RUN, job=JOB, tasks=2, left=False):
    return EndOfStream(job, run, task, tasks, epoch, left)


def drain(task, *, epoch=1, run=RUN, job=JOB, tasks=2, id="d1"):
    return Drain(job, run, task, tasks, epoch, id)


def known(*tasks, epoch=1):
    return ProducerSet(S, epoch, frozenset(tasks))


def progress(*tasks, partitions=(0,), epoch=1, **more):
    return Progress(JOB, RUN, {S: partitions}, {S: known(*tasks, epoch=epoch)}, **more)


def foreign(*jobs, partitions=(0,), **more):
    return Progress(JOB, RUN, {S: partitions}, {S: ForeignProducers(frozenset(jobs))}, **more)


ENDED, DRAINED = "ended", "drained"


def at(ts, idle=False):
    return ts, idle


def silent(p):
    """Who has not spoken, and so holds the watermark."""
    return [one.who for one in p.holders(S) if one.why == SILENT]


def held(p):
    """Who holds the watermark: where they stand themselves, who, and why."""
    return [tuple(one) for one in p.holders(S)]


def status(p):
    """How far the stream is, as a task asks for it."""
    return ENDED if p.ended(S) else DRAINED if p.drained(S) else at(p.watermark(S), p.idle(S))


def news(p, *steps):
    """What the stream has come to, one after the other, by these steps."""
    found = [status(p)]
    for step in steps:
        step()
        if status(p) != found[-1]:
            found.append(status(p))
    return found[1:]


def taken(p, frame, partition):
    assert p.take(S, partition, frame)


def feed(p, *frames, partition=0):
    """What the stream has come to by these frames, each of which is taken."""
    return news(p, *(partial(taken, p, frame, partition) for frame in frames))


def changed(p, producers):
    return news(p, lambda: p.producers_changed({S: producers}))


def state(p):
    """All rows that a table holds when every change was written to it."""
    places = sorted((stream, at) for stream, owned in p._streams.items() for at in (ALL, *owned))
    return [row for place in places for row in p._rows(place)]


def restored(p, producers=None):
    """The same through the bytes of the control table."""
    rows = unpack_rows((k, v) for k, v in pack_rows(dict(state(p))).items() if v is not None)
    owned = {stream: list(parts) for stream, parts in p._streams.items()}
    return Progress(p.own_job, p.run, owned, producers or p._producers, quorum=p.quorum, rows=rows)


class TestWatermark:
    def test_it_is_the_least_of_all_producers_and_waits_for_who_has_not_spoken(self):
        p = progress("a", "b")
        assert feed(p, wm("a", 9)) == []
        assert silent(p) == ["b"]
        assert feed(p, wm("b", 5)) == [at(5)]
        assert silent(p) == []
        assert feed(p, wm("b", 20)) == [at(9)]

    def test_it_never_goes_back(self):
        p = progress("a")
        assert feed(p, wm("a", 9), wm("a", 4), wm("a", 9)) == [at(9)]
        assert p.ignored == {(S, "regressed"): 1}
        assert p.watermark(S) == 9

    def test_every_owned_partition_must_have_it(self):
        p = progress("a", partitions=(0, 3))
        assert feed(p, wm("a", 9)) == []
        assert feed(p, wm("a", 4), partition=3) == [at(4)]
        assert p.partition(S, 0).ts == 9

    def test_who_says_idle_is_left_out_while_the_quorum_is_active(self):
        p = progress("a", "b")
        feed(p, wm("a", 5), wm("b", 5))
        assert feed(p, wm("a", 5, idle=True), wm("b", 50)) == [at(50)]

    def test_who_says_idle_is_not_left_out_before_a_drain(self):
        """It drains, too, a moment later: with the maximal time steps flush, and its last records came behind that."""
        p = progress("a", "b")
        feed(p, wm("a", 5), wm("b", 5), wm("a", 5, idle=True), wm("b", 50))
        assert feed(p, wm("b", MAX_TIME)) == []
        assert feed(p, drain("b")) == []
        assert feed(p, wm("a", MAX_TIME)) == [at(MAX_TIME)]

    def test_time_does_not_pass_who_drains_first(self):
        """The next run continues where this one stopped: a window that closed in between would find its records late."""
        p = progress("a", "b")
        feed(p, wm("a", 5), wm("b", 50))
        assert feed(p, wm("a", MAX_TIME), drain("a"), wm("b", 60)) == []
        assert p.watermark(S) == 5
        assert feed(p, wm("b", MAX_TIME), drain("b")) == [at(MAX_TIME), DRAINED]

    def test_below_the_quorum_the_idle_hold(self):
        p = progress("a", "b", "c")
        feed(p, wm("a", 5), wm("b", 5), wm("c", 5))
        assert feed(p, wm("a", 5, idle=True), wm("b", 5, idle=True), wm("c", 50)) == []
        assert feed(p, wm("b", 30)) == [at(30)]

    def test_another_quorum_is_judged_by_at_once(self):
        """What the idle held goes on without a further message of anybody; what was told is not taken back."""
        p = progress("a", "b", "c")
        feed(p, wm("a", 5), wm("b", 5), wm("c", 5), wm("a", 5, idle=True), wm("b", 5, idle=True), wm("c", 50))
        assert news(p, lambda: p.judge_by(0.3)) == [at(50)]
        assert news(p, lambda: p.judge_by(0.3)) == []
        assert news(p, lambda: p.judge_by(1.0)) == []
        assert p.watermark(S) == 50

    def test_who_is_merely_silent_holds(self):
        p = progress("a", "b", "c")
        assert feed(p, wm("a", 5), wm("b", 50), wm("c", 70), wm("b", 60), wm("c", 90)) == [at(5)]

    def test_all_idle_is_told_once_and_taken_back_once(self):
        p = progress("a", "b")
        events = feed(p, wm("a", 5, idle=True), wm("b", 7, idle=True), wm("b", 7, idle=True))
        assert events == [at(5, True)]
        assert p.idle(S)
        assert feed(p, wm("b", 8)) == [at(8)]
        assert not p.idle(S)

    def test_one_that_has_ended_and_left_no_longer_counts_and_cannot_come_back(self):
        p = progress("a", "b")
        assert feed(p, wm("a", 5), wm("b", 9), end("a", left=True)) == [at(5), at(9)]
        assert feed(p, wm("a", 99), end("a")) == []
        assert p.ignored == {(S, "after-end"): 1}
        assert feed(p, wm("b", 20), end("b", left=True)) == [at(20), ENDED]
        assert (p.phase(S), p.watermark(S)) == (StreamPhase.LEFT, 20)

    def test_one_that_has_ended_keeps_its_last_time_until_all_have(self):
        """Time ran on to the fastest, and what the next run read of the slower ones was late: 40 of 300 rows in two runs."""
        p = progress("a", "b", "c")
        assert feed(p, wm("a", 5), wm("b", 3), wm("c", 1), end("a"), wm("b", 9), wm("c", 20)) == [at(1), at(5)]
        assert held(p) == [(5, "a", "ended")]
        assert feed(restored(p), end("b"), end("c")) == [ENDED]
        assert feed(p, end("b"), end("c")) == [ENDED]
        assert (p.phase(S), p.watermark(S)) == (StreamPhase.ENDED, 5)
        assert restored(p).watermark(S) == 5

    def test_one_that_brought_no_record_in_this_run_does_not_count_while_another_did(self):
        p = progress("a", "b", "c")
        assert feed(p, wm("a", 5), end("b"), wm("c", 8), wm("a", 9), end("a")) == [at(5), at(8)]
        assert feed(p, wm("c", 10), end("c")) == [at(9), ENDED]
        nothing = progress("a", "b")
        assert feed(nothing, end("a"), end("b")) == [ENDED]
        assert (nothing.phase(S), nothing.watermark(S)) == (StreamPhase.ENDED, NO_TIME)

    def test_the_last_time_is_known_when_all_have_ended_also_if_it_was_not_before(self):
        """`b` held the time, for it had sent nothing; that it has brought nothing is known with its end."""
        p = progress("a", "b")
        assert feed(p, wm("a", 7), end("a")) == []
        assert feed(p, end("b")) == [ENDED]
        assert p.watermark(S) == 7

    def test_idle_ones_wait_for_one_that_has_ended_and_say_nothing_of_it(self):
        """A task with a part that has ended is not idle: those behind it would leave it out, and what it kept with it."""
        p = progress("a", "b")
        assert feed(p, wm("a", 5), wm("b", 3, idle=True), end("a")) == [at(5)]
        assert not p.idle(S)

    def test_it_holds_no_drain_up(self):
        p = progress("a", "b")
        assert feed(p, wm("a", 5), end("a"), wm("b", MAX_TIME), drain("b")) == [at(MAX_TIME), DRAINED]


class TestEndAndDrain:
    def test_an_end_is_told_once_whatever_is_repeated(self):
        p = progress("a", "b")
        assert feed(p, end("a"), end("a")) == []
        assert feed(p, end("b"), end("b"), end("a")) == [ENDED]
        assert (p.ended(S), p.drained(S)) == (True, True)

    def test_ended_producers_count_as_drained(self):
        p = progress("a", "b")
        assert feed(p, end("a"), drain("b")) == [DRAINED]
        assert (p.ended(S), p.drained(S)) == (False, True)
        assert feed(p, end("b"), wm("b", 3)) == []

    def test_a_drain_that_is_followed_by_an_end_is_an_end(self):
        assert feed(progress("a", "b"), drain("a"), end("a"), end("b")) == [ENDED]

    def test_the_maximal_watermark_stands_before_the_drain(self):
        p = progress("a")
        assert feed(p, wm("a", MAX_TIME), drain("a")) == [at(MAX_TIME), DRAINED]

    def test_a_drain_said_again_under_another_id_keeps_one(self):
        assert feed(progress("a", "b"), drain("a", id="d1"), drain("a", id="d2"), drain("b")) == [DRAINED]
        assert feed(progress("a", "b"), end("a"), drain("a"), end("b")) == [ENDED]

    def test_an_empty_stream_ends_without_any_watermark(self):
        p = progress("a")
        assert feed(p, end("a")) == [ENDED]
        assert p.watermark(S) == NO_TIME

    def test_a_stream_of_which_nothing_is_owned_holds_nobody_up(self):
        p = progress("a", partitions=())
        assert (p.ended(S), p.drained(S), silent(p), p.ended("other")) == (True, True, [], True)
        assert changed(p, known("a", "b", epoch=2)) == []

    def test_an_empty_producer_set_has_not_been_told_yet(self):
        p = progress()
        assert (p.ended(S), p.partition(S, 0).status) == (False, StreamPhase.OPEN)


class TestWhoSpeaks:
    def test_an_unknown_producer_changes_nothing_and_is_counted(self):
        p = progress("a")
        before = state(p)
        assert feed(p, end("x"), wm("x", 1), end("a", job="other/1")) == []
        assert (state(p), p.ended(S)) == (before, False)
        assert p.ignored == {(S, "unknown-producer"): 2, (S, "unknown-job"): 1}

    def test_an_old_run_changes_nothing(self):
        p = progress("a")
        assert feed(p, end("a", run="r1"), drain(None, run="r1"), wm("a", 9, run="r1", epoch=7)) == []
        assert p.ignored == {(S, "old-run"): 3}

    def test_a_newer_epoch_waits_until_the_set_is_known(self):
        p = progress("a")
        before = state(p)
        assert not p.take(S, 0, wm("b", 5, epoch=2))
        assert state(p) == before
        assert changed(p, known("a", "b", epoch=2)) == []
        assert feed(p, wm("b", 5, epoch=2), wm("a", 6, epoch=2)) == [at(5)]

    def test_a_stream_whose_set_is_not_known_waits(self):
        p = Progress(JOB, RUN, {S: [0]}, {})
        assert not p.take(S, 0, end("a", epoch=0))
        p.producers_changed({S: known("a", epoch=0), "other": known("a")})
        assert feed(p, end("a", epoch=0)) == [ENDED]

    def test_a_named_message_of_an_older_epoch_counts_and_an_unnamed_one_does_not(self):
        p = progress("a", "b", epoch=2)
        assert feed(p, wm("a", 5, epoch=1), wm("b", 6, epoch=2)) == [at(5)]
        assert feed(p, end(None, epoch=1)) == []
        assert p.ignored == {(S, "old-epoch"): 1}
        assert feed(p, end(None, epoch=2)) == [ENDED]

    def test_growth_makes_everybody_wait_for_the_newcomer(self):
        p = progress("a", "b")
        feed(p, end("a"))
        assert changed(p, known("a", "b", "c", epoch=2)) == []
        assert feed(p, end("b")) == []
        assert silent(p) == ["c"]
        assert feed(p, end("c", epoch=2)) == [ENDED]

    def test_who_leaves_the_set_is_no_longer_waited_for(self):
        p = progress("a", "b")
        feed(p, end("a"))
        assert changed(p, known("a", epoch=2)) == [ENDED]
        assert changed(p, known("a", "b", epoch=1)) == []

    def test_what_was_said_for_all_of_an_older_set_is_forgotten(self):
        p = progress("a", partitions=(0, 1))
        feed(p, end(None))
        p.producers_changed({S: known("a", "b", epoch=2)})
        assert p.partition(S, 0).status == StreamPhase.OPEN
        assert feed(p, end(None, epoch=2)) == []
        assert feed(p, end(None, epoch=2), partition=1) == [ENDED]

    def test_unnamed_and_named_may_be_mixed(self):
        p = progress("a", "b")
        assert feed(p, wm("a", 3), wm(None, 5), wm("b", 9)) == [at(5)]
        assert feed(p, wm("a", 8), wm(None, 8, idle=True)) == [at(8), at(8, True)]
        assert silent(p) == []
        assert feed(p, wm("a", 9)) == [at(9)]
        assert feed(p, drain(None)) == [DRAINED]


class TestOnePartition:
    """What is aggregated: the owner of one partition says to all others what that one has reached."""

    def test_one_partition_is_complete_whatever_its_siblings_wait_for(self):
        """The siblings get theirs from what its owner says, so that must not wait for them."""
        p = progress("a", "b", partitions=(0, 1, 2))
        assert feed(p, end("a"), end("b"), partition=1) == []
        assert p.partition(S, 1).status == StreamPhase.ENDED
        assert feed(p, end(None), partition=0) == []
        assert feed(p, end(None), partition=2) == [ENDED]

    def test_a_drain_names_its_id_and_a_watermark_its_time(self):
        p = progress("a", "b")
        feed(p, wm("a", 5), wm("b", 3))
        assert p.partition(S, 0) == StreamStatus(ts=3)
        feed(p, drain("a", id="d1"), drain("b", id="d2"))
        assert p.partition(S, 0) == StreamStatus(StreamPhase.DRAINED, id="d2")

    def test_another_set_is_waited_for_anew(self):
        p = progress("a")
        feed(p, wm("a", 4))
        p.producers_changed({S: known("a", "b", epoch=2)})
        assert p.partition(S, 0) == StreamStatus()
        feed(p, wm("b", 6, epoch=2))
        assert p.partition(S, 0) == StreamStatus(ts=4)

    def test_idleness_that_is_taken_back_does_not_take_time_back(self):
        """It may in the partition: there somebody goes on where he was; the stream, and what was said of it, keep what they had."""
        p = progress("a", "b")
        assert feed(p, wm("a", 2, idle=True), wm("b", 9)) == [at(9)]
        assert feed(p, wm("a", 3)) == []
        assert (p.watermark(S), p.partition(S, 0).ts) == (9, 3)


class TestHolders:
    """Whoever asks why a watermark stands is told a name."""

    def test_the_least_is_named_and_whoever_has_said_nothing_before_it(self):
        p = progress("a", "b", "c")
        feed(p, wm("a", 9), wm("b", 5))
        assert held(p) == [(NO_TIME, "c", "silent")]
        feed(p, wm("c", 5))
        assert held(p) == [(5, "b", "behind"), (5, "c", "behind")]
        feed(p, end("b"))
        assert held(p) == [(5, "b", "ended"), (5, "c", "behind")]
        feed(p, wm("c", 8))
        assert held(p) == [(5, "b", "ended")]

    def test_the_idle_hold_it_only_where_nobody_goes_on_or_too_few(self):
        p = progress("a", "b", "c")
        feed(p, wm("a", 9), wm("b", 5, idle=True), wm("c", 7))
        assert held(p) == [(7, "c", "behind")]
        feed(p, wm("c", 7, idle=True))
        assert held(p) == [(5, "b", "no-quorum")]
        feed(p, wm("a", 9, idle=True))
        assert held(p) == [(5, "b", "idle")]

    def test_each_once_over_the_partitions_that_are_farthest_behind(self):
        p = progress("a", "b", partitions=(0, 1, 2))
        feed(p, wm("a", 9), wm("b", 5))
        feed(p, wm("a", 5), wm("b", 9), partition=1)
        feed(p, wm("a", 50), wm("b", 60), partition=2)
        assert held(p) == [(5, "a", "behind"), (5, "b", "behind")]
        feed(p, end("a"), end("b"), partition=0)
        assert held(p) == [(5, "a", "behind"), (5, "b", "ended")]
        feed(p, wm("a", 30), partition=1)
        assert held(p) == [(5, "b", "ended")]

    def test_what_was_said_for_all_names_nobody(self):
        """The owner of the aggregating partition knows who it is."""
        p = progress("a", "b")
        feed(p, wm(None, 5))
        assert held(p) == [(5, "", "relayed")]
        feed(p, wm(None, 6, idle=True))
        assert held(p) == [(6, "", "idle")]
        feed(p, wm("a", 9), wm("b", 8))
        assert held(p) == [(8, "b", "behind")]
        feed(p, end(None))
        assert held(p) == []

    def test_a_source_is_named_by_its_partition(self):
        p = Progress(JOB, RUN, {S: (0, 1)}, {S: Sources()})
        p.observe(S, 0, 9)
        p.observe(S, 1, 5)
        assert held(p) == [(5, f"{S}:1", "behind")]
        p.observe(S, 1, 5, idle=True)
        assert held(p) == [(9, f"{S}:0", "behind")]
        p.observe(S, 0, 9, idle=True)
        assert held(p) == [(5, f"{S}:1", "idle")]

    def test_tasks_of_other_jobs_are_named_with_their_job(self):
        p = foreign("up/1", "more/1")
        assert held(p) == [(NO_TIME, "more/1 (1 not heard of)", "silent"), (NO_TIME, "up/1 (1 not heard of)", "silent")]
        for job, ts in (("up/1", 5), ("more/1", 9)):
            feed(p, wm("a", ts, job=job, run="u1", tasks=1))
        assert held(p) == [(5, "up/1 a", "behind")]

    def test_a_stream_that_has_ended_or_whose_producers_are_not_known_is_held_by_nobody(self):
        p = progress("a")
        feed(p, end("a"))
        assert held(p) == held(progress()) == []
        p = foreign("up/1")
        p.drain(S, 0, "d1")
        assert held(p) == []


class TestForeign:
    def say(self, make, task, *more, **kw):
        return make(task, *more, **{"job": "up/1", "run": "u1", **kw})

    def test_the_set_is_who_spoke_and_complete_when_the_number_is_there(self):
        """Samza's hole 1: its messages no longer carry the number of producers, so a stream of another job never ends."""
        p = foreign("up/1")
        assert silent(p) == ["up/1 (1 not heard of)"]
        assert feed(p, self.say(wm, "a", 5)) == []
        assert silent(p) == ["up/1 (1 not heard of)"]
        assert feed(p, self.say(wm, "b", 9)) == [at(5)]
        assert feed(p, self.say(end, "a"), self.say(end, "b")) == [ENDED]
        assert (p.phase(S), p.watermark(S)) == (StreamPhase.LEFT, 5)

    def test_a_job_that_has_ended_leaves_the_time_to_the_others(self):
        """Its next run belongs to a later run of this job."""
        p = foreign("up/1", "other/1")
        feed(p, self.say(wm, "a", 5, tasks=1), self.say(wm, "x", 9, tasks=1, job="other/1"))
        assert p.watermark(S) == 5
        assert feed(p, self.say(end, "a", tasks=1)) == [at(9)]
        assert feed(p, self.say(wm, "x", 20, tasks=1, job="other/1")) == [at(20)]

    def test_a_newer_epoch_needs_no_job_state(self):
        p = foreign("up/1")
        feed(p, self.say(wm, "a", 5, tasks=1))
        assert feed(p, self.say(wm, "b", 7, epoch=2)) == []
        assert feed(p, self.say(end, "a", epoch=1)) == []
        assert feed(p, self.say(end, "a", epoch=2), self.say(end, "b", epoch=2)) == [ENDED]

    def test_surplus_producers_are_counted(self):
        p = foreign("up/1")
        assert feed(p, self.say(end, "a"), self.say(wm, "b", 1), self.say(end, "c")) == [at(1)]
        assert p.ignored == {(S, "surplus-producer"): 1}

    def test_the_greater_number_within_an_epoch_is_believed(self):
        p = foreign("up/1")
        assert feed(p, self.say(end, "a", tasks=2), self.say(end, "b", tasks=3)) == []
        assert feed(p, self.say(end, "c", tasks=3)) == [ENDED]

    def test_a_new_run_replaces_what_the_old_one_said(self):
        p = foreign("up/1")
        feed(p, self.say(end, "a"), self.say(wm, "b", 5))
        assert feed(p, self.say(end, "b", run="u2")) == []
        assert feed(p, self.say(end, "a", run="u1"), self.say(end, "b", run="u1")) == []
        assert p.ignored == {(S, "old-run"): 2}
        assert feed(restored(p), self.say(end, "a", run="u2")) == [ENDED]

    def test_read_again_from_an_earlier_position_its_runs_come_again_in_order(self):
        """Otherwise the newest run, which was left for an older one, would count as an old one for ever."""
        p = foreign("up/1")
        feed(p, self.say(wm, "a", 9, tasks=1, run="u2"))
        p.forget(S, 0)
        assert feed(p, self.say(wm, "a", 5, tasks=1, run="u1")) == []
        assert feed(p, self.say(wm, "a", 12, tasks=1, run="u2")) == [at(12)]
        assert not p.ignored

    def test_its_maximal_watermark_does_not_count(self):
        p = foreign("up/1")
        feed(p, self.say(wm, "a", 5, tasks=1))
        assert feed(p, self.say(wm, "a", MAX_TIME, tasks=1)) == []
        assert p.ignored == {(S, "foreign-maximum"): 1}

    def test_its_drain_closes_nothing_and_its_next_run_goes_on(self):
        """Its task `b` is further than `a`, whose records from there on come in the next run: they must not be late then."""
        p = foreign("up/1")
        feed(p, self.say(wm, "a", 5), self.say(wm, "b", 20))
        assert feed(p, self.say(drain, "a")) == []
        assert feed(p, self.say(wm, "b", 30)) == []
        assert feed(p, self.say(drain, "b")) == [at(5, True)]
        assert [(one.who, one.why) for one in p.holders(S)] == [("up/1", "away")]
        p = restored(p)
        assert feed(p, self.say(wm, "a", 7, run="u2", tasks=1)) == [at(7)]

    def test_nobody_waits_for_a_job_that_has_drained(self):
        p = foreign("up/1", "side/1")
        feed(p, self.say(wm, "a", 5, tasks=1), self.say(wm, "a", 9, tasks=1, job="side/1"))
        assert feed(p, self.say(drain, "a", tasks=1)) == [at(9)]
        assert feed(p, self.say(wm, "a", 12, tasks=1, job="side/1")) == [at(12)]
        assert feed(p, self.say(wm, "a", 6, tasks=2, run="u2"), self.say(wm, "a", 15, tasks=1, job="side/1")) == []
        assert [(one.who, one.why) for one in p.holders(S)] == [("up/1 (1 not heard of)", "silent")]

    def test_a_partition_in_which_it_has_not_begun_again_yet_holds_the_time_of_the_stream(self):
        """Its next run is read in one partition, and still to come in the other: there, nothing may be late because of that."""
        p = foreign("up/1", partitions=(0, 3))
        for partition in (0, 3):
            feed(p, self.say(wm, "a", 5, tasks=1), self.say(drain, "a", tasks=1), partition=partition)
        assert status(p) == at(5, True)
        assert feed(p, self.say(wm, "a", 20, tasks=1, run="u2")) == [at(5)]
        assert held(p) == [(NO_TIME, f"{S}:3", "behind")]
        p = restored(p)
        assert feed(p, self.say(drain, "a", tasks=1, run="u2"), self.say(wm, "a", 30, tasks=1, run="u3")) == []
        assert feed(p, self.say(wm, "a", 20, tasks=1, run="u2"), partition=3) == [at(20)]
        assert feed(p, self.say(drain, "a", tasks=1, run="u2"), partition=3) == []
        assert feed(p, self.say(wm, "a", 25, tasks=1, run="u3"), partition=3) == [at(25)]

    def test_a_partition_that_is_read_less_far_does_not_hold_one_in_which_all_have_drained(self):
        p = foreign("up/1", partitions=(0, 3))
        feed(p, self.say(wm, "a", 5, tasks=1), self.say(drain, "a", tasks=1))
        assert feed(p, self.say(wm, "a", 3, tasks=1), self.say(wm, "a", 5, tasks=1), partition=3) == [at(3), at(5)]

    def test_it_is_away_when_it_is_in_every_partition(self):
        p = foreign("up/1", "side/1", partitions=(0, 3))
        both = [self.say(drain, "a", tasks=1), self.say(drain, "a", tasks=1, job="side/1")]
        feed(p, *both)
        assert not p.away(S)
        feed(p, *both, partition=3)
        assert p.away(S)
        feed(p, self.say(wm, "a", 5, tasks=1, job="side/1", run="u2"))
        assert not p.away(S)
        assert not progress("a").away(S)

    def test_its_tasks_that_wait_for_a_job_that_is_away_are_left_out_all_or_none(self):
        """A chain of three jobs. When the first begins again, one task in the middle hears of it before the other: time must not go on with
        that one alone, because the rows that come through the other would be late."""
        p = foreign("up/1", "side/1")
        feed(p, self.say(wm, "a", 5), self.say(wm, "b", 7), self.say(wm, "a", 9, tasks=1, job="side/1"))
        assert status(p) == at(5)
        assert feed(p, self.say(wm, "a", 6, away=True)) == [at(6)]
        assert held(p) == [(6, "up/1 a", "behind")]
        assert feed(p, self.say(wm, "b", 8, away=True)) == [at(9)]
        assert feed(restored(p), self.say(wm, "a", 12, tasks=1, job="side/1")) == [at(12)]
        assert not p.away(S)
        feed(p, self.say(drain, "a", tasks=1, job="side/1"))
        assert p.away(S)
        assert held(p) == [(NO_TIME, "side/1", "away")]
        p = restored(p)
        assert p.away(S)
        assert feed(p, self.say(wm, "b", 30)) == [at(9)]
        assert held(p) == [(6, "up/1 a", "behind")]
        assert feed(p, self.say(wm, "a", 20)) == [at(20)]

    def test_a_task_that_is_idle_is_left_out_while_others_wait_for_a_job_that_is_away(self):
        p = foreign("up/1", quorum=0.5)
        feed(p, self.say(wm, "a", 5), self.say(wm, "b", 7))
        assert feed(p, self.say(wm, "a", 5, idle=True), self.say(wm, "b", 8, away=True)) == [at(7), at(8)]

    def test_a_partition_in_which_its_tasks_are_still_away_holds_the_time_of_the_stream(self):
        """What they have written since stands behind that, and is read in one partition before the other."""
        p = foreign("up/1", partitions=(0, 3))
        for partition in (0, 3):
            feed(p, self.say(wm, "a", 5, tasks=1), self.say(wm, "a", 6, tasks=1, away=True), partition=partition)
        assert status(p) == at(6, True)
        assert held(p) == [(NO_TIME, "up/1", "away")]
        assert feed(p, self.say(wm, "a", 20, tasks=1)) == [at(6)]
        assert held(p) == [(NO_TIME, f"{S}:3", "behind")]
        assert feed(restored(p), self.say(wm, "a", 30, tasks=1)) == []
        assert feed(p, self.say(wm, "a", 20, tasks=1), partition=3) == [at(20)]

    def test_one_that_drains_while_others_are_away_is_waited_for_until_all_have_drained(self):
        p = foreign("up/1")
        feed(p, self.say(wm, "a", 5, away=True), self.say(wm, "b", 7, away=True))
        assert p.away(S)
        feed(p, self.say(drain, "a"))
        assert not p.away(S)
        feed(p, self.say(drain, "b"))
        assert p.away(S)

    def test_two_jobs_are_both_waited_for(self):
        p = foreign("up/1", "side/1")
        assert feed(p, self.say(wm, "a", 5, tasks=1)) == []
        assert feed(p, self.say(wm, "a", 3, tasks=1, job="side/1")) == [at(3)]
        assert feed(p, self.say(end, "a", tasks=1, job="side/1")) == [at(5)]
        assert feed(p, self.say(end, None, tasks=1)) == [ENDED]

    def test_an_unnamed_frame_counts_in_its_own_epoch_only(self):
        p = foreign("up/1")
        feed(p, self.say(wm, "a", 5, epoch=2))
        assert feed(p, self.say(end, None, epoch=1)) == []
        assert feed(p, self.say(end, None, epoch=3)) == [ENDED]

    def test_a_drain_of_this_job_finishes_it_where_it_stands(self):
        p = foreign("up/1")
        assert news(p, lambda: p.observe(S, 0, MAX_TIME)) == [at(MAX_TIME)]
        assert news(p, lambda: p.drain(S, 0, "d1")) == [DRAINED]
        assert news(p, lambda: p.drain(S, 0, "d2")) == []

    def test_the_expected_jobs_may_change(self):
        p = foreign("up/1", "side/1")
        feed(p, self.say(end, "a", tasks=1))
        assert changed(p, ForeignProducers(frozenset({"up/1"}))) == [ENDED]

    def test_where_their_end_is_no_end_who_has_ended_is_idle_until_the_next_run(self):
        """A service behind a batch job: each of its runs goes on where the last one stopped, and time never goes back."""
        p = Progress(JOB, RUN, {S: [0]}, {S: ForeignProducers(frozenset({"up/1"}), ends=False)})
        feed(p, self.say(wm, "a", 5, tasks=1))
        assert feed(p, self.say(end, "a", tasks=1)) == [at(5, True)]
        assert not p.ended(S)
        assert feed(p, self.say(wm, "a", 3, tasks=1, run="u2")) == [at(5)]
        assert feed(p, self.say(wm, "a", 9, tasks=1, run="u2")) == [at(9)]

    @pytest.mark.parametrize("goes_on", [True, False])
    def test_behind_a_drain_of_this_job_what_others_said_still_counts(self, goes_on):
        """The upstream goes on over a drain of ours: who ended or fell idle before our position does not say it again.
        Behind an end of ours, everything of theirs is to come from a new run."""
        p = foreign("up/1")
        feed(p, self.say(end, "a"), self.say(wm, "b", 5))
        rows = [(key, row) for key, row in state(p)]
        producers = {S: ForeignProducers(frozenset({"up/1"}))}
        new = Progress(JOB, "r-new", {S: [0]}, producers, rows=rows, goes_on=goes_on)
        assert new.watermark(S) == (5 if goes_on else NO_TIME)
        assert feed(new, self.say(end, "b")) == ([ENDED] if goes_on else [])
        again = Progress(JOB, "r-new", {S: [0]}, producers, rows=[*rows, *state(new)])
        assert again.ended(S) == goes_on


class TestSources:
    def sources(self, **more):
        return Progress(JOB, RUN, {S: [0, 1]}, {S: Sources()}, **more)

    def test_their_reader_says_how_far_they_are(self):
        p = self.sources()
        assert news(p, lambda: p.observe(S, 0, 5)) == []
        assert news(p, lambda: p.observe(S, 1, 3)) == [at(3)]
        assert news(p, lambda: p.observe(S, 1, 1)) == []
        assert news(p, lambda: p.observe(S, 1, 3, idle=True)) == [at(5)]
        assert news(p, lambda: p.end(S, 0, left=True)) == [at(5, True)]
        assert news(p, lambda: p.observe(S, 0, 99)) == []
        assert news(p, lambda: p.drain(S, 0, "d")) == []
        assert news(p, lambda: p.drain(S, 1, "d")) == [DRAINED]

    def test_no_frames_are_expected(self):
        p = self.sources()
        assert feed(p, end("a")) == []
        assert p.ignored == {(S, "unknown-job"): 1}

    def test_all_ended(self):
        p = self.sources()
        assert news(p, lambda: p.end(S, 0), lambda: p.end(S, 1)) == [ENDED]

    def test_a_partition_that_has_ended_keeps_its_last_time_until_all_have(self):
        p = self.sources()
        p.observe(S, 0, 5)
        assert news(p, lambda: p.end(S, 0, 7), lambda: p.observe(S, 1, 99)) == [at(7)]
        assert held(p) == [(7, f"{S}:0", "ended")]
        assert news(p, lambda: p.end(S, 1, 100)) == [ENDED]
        assert p.watermark(S) == 7

    def test_what_executors_have_read_counts_also_after_the_end_of_its_offsets(self):
        """The offsets of a batch by reference end before anybody has seen its times."""
        p = self.sources()
        p.end(S, 0)
        assert news(p, lambda: p.end(S, 1)) == [ENDED]
        p.observe(S, 0, 8)
        p.observe(S, 1, 6, idle=True)
        assert (p.phase(S), p.watermark(S), p.idle(S)) == (StreamPhase.ENDED, 6, False)
        assert restored(p).watermark(S) == 6


class TestRows:
    def test_what_was_heard_before_a_restart_is_not_waited_for_again(self):
        """Samza's hole 3: positions behind control messages were stored, and what they had said was not. A restart waited for ever."""
        p = progress("a", "b")
        feed(p, drain("a"))
        q = restored(p, {S: known("a", "b")})
        assert not q.drained(S)
        feed(q, drain("b"))
        assert q.drained(S)

    def test_only_what_changed_is_written(self):
        p = progress("a", "b", partitions=(0, 1))
        feed(p, wm("a", 5), wm("b", 6))
        assert len(p.take_changes()) == 3
        assert p.take_changes() == {}
        feed(p, wm("a", 7))
        assert list(p.take_changes()) == [(S, 0, "said", JOB, "a")]
        p.producers_changed({S: known("a", epoch=2)})
        assert p.take_changes()[S, 0, "said", JOB, "b"] is None

    def test_rows_of_an_older_run_are_dropped_and_deleted(self):
        p = progress("a")
        feed(p, end("a"))
        q = Progress(JOB, "r3", {S: [0]}, {S: known("a")}, rows=state(p))
        assert not q.ended(S)
        assert q.take_changes() == {key: None for key, _ in state(p)}
        assert q.take_changes() == {}

    def test_rows_of_partitions_that_are_no_longer_owned_are_deleted(self):
        p = progress("a", partitions=(0, 1))
        feed(p, wm("a", 5), partition=1)
        q = Progress(JOB, RUN, {}, {}, rows=state(p))
        assert set(q.take_changes().values()) == {None}
        r = Progress(JOB, RUN, {S: [0]}, {S: known("a")}, rows=state(p))
        assert set(r.take_changes().values()) == {None}

    def test_a_state_that_is_ahead_of_the_job_state_waits_for_it(self):
        p = progress("a", "b", epoch=2)
        feed(p, wm("a", 5, epoch=2), wm(None, 6, epoch=2), end("b", epoch=2))
        q = restored(p, {S: known("a", epoch=1)})
        assert not q.take(S, 0, wm("a", 7, epoch=2))
        q.producers_changed({S: known("a", "b", epoch=2)})
        assert feed(q, end("a", epoch=2)) == [ENDED]

    def test_an_unknown_row_names_the_remedy(self):
        with pytest.raises(DataError, match="nobody knows it"):
            progress("a", rows=[((S, 0, "what"), (RUN, 1))])

    def test_everything_comes_back(self):
        p = progress("a", "b")
        feed(p, wm("a", 5), wm("b", 3, away=True), wm(None, 3, away=True))
        assert state(restored(p)) == state(p)
        feed(p, end(None))
        q = restored(p)
        assert (q.partition(S, 0), state(q)) == (p.partition(S, 0), state(p))
        p = foreign("up/1")
        p.observe(S, 0, 4)
        assert state(restored(p)) == state(p)


# ----------------------------------------------------------------------------------------------------------- the oracle


class Oracle:
    """The rules, as slowly and as plainly as they can be said: everything is derived from all frames again."""

    def __init__(self, tasks, epoch, partitions, quorum=0.5):
        self.tasks, self.epoch, self.quorum = tasks, epoch, quorum
        self.heard = {partition: [] for partition in partitions}
        self.told = ("open", NO_TIME, False)

    def producer(self, frames):
        done, ts, idle = StreamPhase.OPEN, NO_TIME, False
        for f in frames:
            if isinstance(f, EndOfStream):
                done = max(done, StreamPhase.LEFT if f.left else StreamPhase.ENDED) if done < 2 else done
            elif isinstance(f, Drain):
                done = max(done, StreamPhase.DRAINED)
            elif done == StreamPhase.OPEN:
                ts, idle = max(ts, f.ts), f.idle
        return done, ts, idle

    def least(self, parts, quorum):
        live = [(ts, idle) for done, ts, idle in parts if done == StreamPhase.OPEN]
        active = [ts for ts, idle in live if not idle]
        ended = [ts for done, ts, _ in parts if done == StreamPhase.ENDED and ts > NO_TIME]
        left = [ts for done, ts, _ in parts if done == StreamPhase.LEFT and ts > NO_TIME]
        if not live:
            drains = any(done == StreamPhase.DRAINED for done, _, _ in parts)
            return (NO_TIME if drains else min(ended or left, default=NO_TIME)), False
        if any(done == StreamPhase.DRAINED or ts == MAX_TIME for done, ts, _ in parts):
            return (MAX_TIME if all(ts == MAX_TIME for ts, _ in live) else NO_TIME), False
        if active and len(active) / len(live) >= quorum:
            return min(active + ended), False
        return min([*(ts for ts, _ in live), *ended]), not active and not ended

    def partition(self, frames):
        frames = [f for f in frames if f.run == RUN and f.job == JOB]
        spoken = [[f for f in frames if f.task == t] for t in self.tasks]
        unnamed = [f for f in frames if f.task is None and f.epoch == self.epoch]
        done, ts, idle = StreamPhase.OPEN, NO_TIME, False
        if all(spoken):
            parts = [self.producer(s) for s in spoken]
            done = min(d for d, _, _ in parts)
            ts, idle = self.least(parts, self.quorum)
        if unnamed:
            d, t, i = self.producer(unnamed)
            done, ts, idle = max(done, d), max(ts, t), i
        return done, ts, idle

    def take(self, partition, frame):
        if frame.task in self.tasks or frame.task is None:
            self.heard[partition].append(frame)
        state, told_ts, _ = self.told
        parts = [self.partition(frames) for frames in self.heard.values()]
        if state != "open":
            return []
        done = min(d for d, _, _ in parts)
        if done != StreamPhase.OPEN:
            self.told = ("done", max(told_ts, self.least(parts, 0)[0]), False)
            return [ENDED] if done >= StreamPhase.ENDED else [DRAINED]
        ts, idle = self.least(parts, 0)
        new = ("open", max(ts, told_ts), idle)
        if new == self.told:
            return []
        self.told = new
        return [at(new[1], new[2])]


# without idle unnamed frames the oracle needs no memory of what came last
NAMED = [
    wm("a", 5),
    wm("a", 9, idle=True),
    wm("a", 3),
    end("a"),
    drain("a"),
    wm("b", 4),
    wm("b", 8),
    wm("b", 8, idle=True),
    end("b"),
    end("b", left=True),
]
MIXED = [
    wm("a", 5),
    drain("a"),
    wm("b", 8),
    end("b"),
    wm(None, 7),
    end(None, epoch=0),
    wm("x", 1),
    end("b", run="r1"),
    drain(None),
]


def check(history, partitions=(0,), tasks=("a", "b"), cut=None):
    p, oracle = progress(*tasks, partitions=partitions), Oracle(tasks, 1, partitions)
    for step, (partition, frame) in enumerate(history):
        if step == cut:
            p = restored(p)
        assert feed(p, frame, partition=partition) == oracle.take(partition, frame), (history, step)
        assert p.watermark(S) == oracle.told[1], (history, step)


@pytest.mark.parametrize("alphabet", [NAMED, MIXED], ids=["named", "mixed"])
def test_every_short_history_agrees_with_the_oracle(alphabet):
    for length in (1, 2, 3, 4):
        for frames in product(alphabet, repeat=length):
            check([(0, frame) for frame in frames])


def test_every_interleaving_of_three_producers_agrees_with_the_oracle():
    """Scripts of two frames for each of three producers: all ninety orders, each interrupted at each place."""
    scripts = {"a": [wm("a", 5), end("a")], "b": [wm("b", 9), drain("b")], "c": [wm("c", 7, idle=True), end("c")]}
    for order in set(permutations("aabbcc")):
        left = {name: list(script) for name, script in scripts.items()}
        history = [(0, left[name].pop(0)) for name in order]
        for cut in range(7):
            check(history, tasks=("a", "b", "c"), cut=cut)


def test_every_interleaving_of_two_partitions_agrees_with_the_oracle():
    scripts = {0: [wm("a", 5), wm("b", 6), end("a"), end("b")], 1: [wm("b", 3), end("a"), end("b")]}
    for order in set(permutations([0, 0, 0, 0, 1, 1, 1])):
        left = {partition: list(script) for partition, script in scripts.items()}
        history = [(partition, left[partition].pop(0)) for partition in order]
        for cut in (None, 3, 5):
            check(history, partitions=(0, 1), cut=cut)


FRAMES = st.sampled_from(
    [f for f in NAMED + MIXED if not (f.task is None and getattr(f, "idle", False))]
    + [wm("a", 2, idle=True), wm(None, 12), end("x"), drain("b")]
)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(st.sampled_from([0, 1]), FRAMES), max_size=14), st.integers(0, 14))
def test_any_history_agrees_with_the_oracle_across_a_restart(history, cut):
    check(history, partitions=(0, 1), cut=cut)


STEPS = st.one_of(
    st.tuples(
        st.just("take"),
        st.sampled_from([0, 1]),
        st.sampled_from(
            NAMED + MIXED + [wm("c", 6, epoch=2), end("c", epoch=2), end(None, epoch=2), wm(None, 5, idle=True)]
        ),
    ),
    st.tuples(st.just("set"), st.integers(1, 3), st.sampled_from([("a", "b"), ("a", "b", "c"), ("b",)])),
    st.tuples(st.just("write"), st.just(0), st.none()),
)


@settings(deadline=None, max_examples=200)
@given(st.lists(STEPS, max_size=20), st.booleans())
def test_one_that_lives_and_one_that_is_restored_after_every_step_say_the_same(steps, other_job):
    """The restored one knows only what was written: the changes, applied to a table, after each step."""
    make = (
        (lambda **kw: foreign(JOB, partitions=(0, 1), **kw))
        if other_job
        else (lambda **kw: progress("a", "b", partitions=(0, 1), **kw))
    )
    live, again, table, now = make(), make(), {}, None
    for what, number, argument in steps:
        answers = []
        for p in (live, again):
            if what == "take":
                answers.append(p.take(S, number, argument))
            elif what == "set" and not other_job:
                p.producers_changed({S: known(*argument, epoch=number)})
        if what == "set" and not other_job and number > (now.epoch if now else 1):
            now = known(*argument, epoch=number)
        assert answers[:1] == answers[1:]
        for key, row in pack_rows(again.take_changes()).items():
            if row is None:
                del table[key]
            else:
                table[key] = row
        assert table == pack_rows(dict(state(again)))
        again = (
            make(rows=unpack_rows(table.items()))
            if now is None
            else Progress(JOB, RUN, {S: (0, 1)}, {S: now}, rows=unpack_rows(table.items()))
        )
        assert state(again) == state(live)
        assert again.holders(S) == live.holders(S)


@settings(deadline=None, max_examples=100)
@given(st.permutations(["a", "b", "c", "d"]), st.randoms(use_true_random=False))
def test_the_order_between_producers_makes_no_difference_in_the_end(names, random):
    scripts = {name: [wm(name, 3), wm(name, 8 + i), end(name)] for i, name in enumerate(names)}
    queue = [name for name in names for _ in range(3)]
    random.shuffle(queue)
    p = progress(*names)
    *marks, last = feed(p, *[scripts[name].pop(0) for name in queue])
    assert last == ENDED
    assert marks == sorted(set(marks))


def test_rows_that_stand_alone_are_damage_and_are_named():
    """What a producer said belongs to a job's row; one without the other can only be a log that has lost rows."""
    p = progress("a")
    feed(p, wm("a", 5))
    rows = [(key, row) for key, row in state(p) if key[2] != "job"]
    with pytest.raises(DataError, match=r"'said', 'sales/1', 'a'.* stands alone"):
        progress("a", rows=rows)


def test_golden_rows():
    """The bytes of the control table are read by later versions for ever."""
    p = progress("a")
    feed(p, wm("a", 5, idle=True))
    rows = {k.hex(): v.hex() for k, v in pack_rows(p.take_changes()).items()}
    assert {msgpack.unpackb(bytes.fromhex(k))[2] for k in rows} == {"told", "job", "said"}
    assert rows["95aa73616c65732d312d627900a473616964a773616c65732f31a161"] == "9701a272320105c300a0"
