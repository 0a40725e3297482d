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
from headgate.core.progress.producers import SILENT, ForeignProducers, Said, Sources, StreamPhase, StreamStatus
from headgate.core.progress.tracker import ALL, Progress
from headgate.core.task.stored.rows import pack_rows, unpack_rows

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
    return Progress(p.own_job, p.run, owned, producers or p._producers, rows=rows)


def idle(task, ts=NO_TIME, **more):
    return wm(task, ts, idle=True, **more)


def upto(p, partition=0):
    """How far each producer has come in a partition, by itself or lifted."""
    groups = p._streams[S][partition].groups
    found = {(job, task): said.upto for job, group in groups.items() for task, said in group.said.items()}
    return {task if len(groups) == 1 else f"{job} {task}": ts for (job, task), ts in found.items()}


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

    def test_who_says_idle_is_not_lifted_to_the_maximum_that_stands_before_a_drain(self):
        """It drains, too, a moment later: with the maximal time steps flush, and its last records came behind that."""
        p = progress("a", "b")
        assert feed(p, wm("a", 5), wm("b", 50), idle("a"), idle("a")) == [at(5), at(50)]
        assert feed(p, wm("b", MAX_TIME), idle("a"), idle("a")) == []
        p = progress("a", "b")
        feed(p, wm("a", 5), wm("b", 5), idle("a"), wm("b", 50))
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

    def test_who_is_merely_silent_holds(self):
        p = progress("a", "b", "c")
        assert feed(p, wm("a", 5), wm("b", 50), wm("c", 70), wm("b", 60), wm("c", 90)) == [at(5)]

    def test_all_idle_is_told_once_and_taken_back_once(self):
        p = progress("a", "b")
        events = feed(p, wm("a", 5, idle=True), wm("b", 7, idle=True), wm("b", 7, idle=True))
        assert events == [at(5, True)]
        assert p.idle(S)
        assert feed(p, wm("b", 8)) == [at(5)]
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
        q = restored(p)
        for one in (q, p):
            assert feed(one, end("b"), end("c")) == [ENDED]
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

    def test_idle_ones_are_lifted_to_one_that_has_ended_and_no_further_and_are_not_idle_together(self):
        """A task with a part that has ended is not idle: those behind it would lift it, and what it kept with it."""
        p = progress("a", "b")
        assert feed(p, wm("a", 5), wm("b", 3, idle=True), end("a")) == [at(3)]
        assert not p.idle(S)
        assert feed(p, idle("b"), idle("b"), idle("b")) == [at(5)]
        assert not p.idle(S)

    def test_it_holds_no_drain_up(self):
        p = progress("a", "b")
        assert feed(p, wm("a", 5), end("a"), wm("b", MAX_TIME), drain("b")) == [at(MAX_TIME), DRAINED]


class TestLift:
    """Nobody is left out of the minimum. Who confirms that it is idle is lifted to where the others were one confirmation before."""

    def test_the_first_confirmation_only_marks_where_the_others_are_and_the_second_lifts_there(self):
        p = progress("a", "b")
        assert feed(p, wm("a", 5), wm("b", 50)) == [at(5)]
        assert feed(p, idle("a")) == []
        assert upto(p) == {"a": 5, "b": 50}
        assert feed(p, idle("a")) == [at(50)]
        assert upto(p) == {"a": 50, "b": 50}

    def test_a_lift_never_passes_what_the_others_had_at_the_confirmation_before(self):
        """What it had not read by the last fetch may have been written while they went on from there."""
        p = progress("a", "b")
        feed(p, wm("a", 5), wm("b", 50), idle("a"))
        assert feed(p, wm("b", 70), idle("a")) == [at(50)]
        assert feed(p, wm("b", 90), idle("a")) == [at(70)]
        assert feed(p, idle("a")) == [at(90)]

    def test_one_that_was_idle_and_says_no_more_does_not_move(self):
        p = progress("a", "b")
        assert feed(p, idle("a", 5), wm("b", 50), wm("b", 60), wm("b", 70)) == [at(5)]
        assert held(p) == [(5, "a", "idle")]

    def test_one_that_has_confirmed_and_is_then_dead_holds_where_it_was_lifted_to_also_across_a_restore(self):
        """A stored "idle" left it out, and 232 rows that it brought after it had begun again were late."""
        p = progress("a", "b")
        feed(p, wm("a", 5), wm("b", 50), idle("a"), idle("a"))
        for one in (restored(p), restored(restored(p)), p):
            assert one.watermark(S) == 50
            assert feed(one, wm("b", 1000), wm("b", 2000)) == []
            assert upto(one) == {"a": 50, "b": 2000}
        assert held(p) == [(50, "a", "idle")]
        assert held(restored(p)) == [(50, "a", "behind")]
        assert feed(p, wm("a", 7)) == []
        assert held(p) == [(50, "a", "behind")]
        assert feed(p, wm("a", 60)) == [at(60)]

    def test_a_frame_that_is_not_idle_drops_the_mark(self):
        """It read something in between: the next confirmation does not stand on an empty fetch behind the one before."""
        p = progress("a", "b")
        feed(p, wm("a", 5), wm("b", 50), idle("a"))
        assert feed(p, wm("a", 6), wm("b", 60)) == [at(6)]
        assert feed(p, idle("a")) == []
        assert feed(restored(p), idle("a")) == [at(60)]
        assert feed(p, wm("a", 6), idle("a")) == []
        assert feed(p, idle("a")) == [at(60)]

    def test_what_it_was_lifted_to_stays_when_it_goes_on_behind_that(self):
        p = progress("a", "b")
        feed(p, wm("a", 5), wm("b", 50), idle("a", 5), idle("a", 5), wm("b", 80))
        assert feed(p, wm("a", 20), wm("a", 49)) == []
        assert not p.ignored
        assert (p.watermark(S), upto(p)) == (50, {"a": 50, "b": 80})
        assert feed(p, wm("a", 55)) == [at(55)]

    def test_a_mark_outlives_a_restore_and_lifts_with_the_next_confirmation(self):
        """It stands in the log, whoever reads it."""
        p = progress("a", "b")
        feed(p, wm("a", 5), wm("b", 50), idle("a"))
        p = restored(p)
        assert feed(p, idle("a")) == [at(50)]

    def test_those_that_are_idle_too_are_not_what_one_is_lifted_to_and_do_not_hold_the_lift(self):
        p = progress("a", "b", "c")
        feed(p, wm("a", 5), idle("b", 7), wm("c", 50))
        assert feed(p, idle("a"), idle("a")) == [at(7)]
        assert upto(p) == {"a": 50, "b": 7, "c": 50}
        assert feed(p, idle("b"), idle("b")) == [at(50)]

    def test_where_no_one_moves_no_one_is_lifted(self):
        p = progress("a", "b")
        assert feed(p, idle("a", 5), idle("b", 9), idle("a"), idle("b"), idle("a"), idle("b")) == [at(5, True)]
        assert upto(p) == {"a": 5, "b": 9}

    def test_what_was_marked_before_the_others_fell_idle_still_lifts(self):
        p = progress("a", "b")
        feed(p, wm("a", 5), wm("b", 50), idle("a"), idle("b", 60))
        assert feed(p, idle("a")) == [at(50, True)]
        assert feed(p, idle("a"), idle("a")) == []

    def test_as_long_as_one_has_said_nothing_no_one_is_lifted(self):
        p = progress("a", "b", "c")
        feed(p, wm("a", 5), wm("b", 50), idle("a"), idle("a"), idle("a"))
        assert upto(p)["a"] == 5
        assert feed(p, wm("c", 60), idle("a")) == [at(5)]
        assert feed(p, idle("a")) == [at(50)]

    def test_one_that_brought_nothing_is_lifted_too_and_has_no_last_time_when_it_ends(self):
        """Wherever it was lifted to, the others would wait there until all have ended."""
        p = progress("a", "b")
        assert feed(p, idle("a"), wm("b", 50), idle("a"), idle("a")) == [at(50)]
        assert feed(p, end("a"), wm("b", 90)) == [at(90)]
        p = progress("a", "b")
        assert feed(p, wm("a", 5), wm("b", 50), idle("a"), idle("a"), end("a"), wm("b", 90)) == [at(5), at(50)]
        assert held(p) == [(50, "a", "ended")]

    def test_what_does_not_count_confirms_nothing(self):
        """A frame of an older run, or of somebody else, says nothing of who is idle now."""
        p = progress("a", "b")
        feed(p, wm("a", 5), wm("b", 50), idle("a"))
        before = state(p)
        assert feed(p, idle("a", run="r1"), idle("a", run="r1"), idle("x")) == []
        assert (state(p), p.confirmed(S, 0)) == (before, {JOB: {"a": 1}})
        p = foreign("up/1")
        feed(p, *(idle("a", 5, job="up/1", run=run) for run in ("u1", "u2")), wm("b", 50, job="up/1", run="u2"))
        feed(p, idle("a", job="up/1", run="u2"))
        before = state(p)
        assert feed(p, idle("a", job="up/1", run="u1"), idle("a", MAX_TIME, job="up/1", run="u2")) == []
        assert state(p) == before
        assert feed(p, idle("a", job="up/1", run="u2")) == [at(50)]

    def test_one_that_has_ended_or_drained_is_lifted_no_more(self):
        for last in (end("a"), drain("a")):
            p = progress("a", "b")
            feed(p, wm("a", 5), wm("b", 50), idle("a"), last)
            before = state(p)
            assert feed(p, idle("a"), idle("a")) == []
            assert (state(p), upto(p)["a"]) == (before, 5)

    def test_lifts_are_of_one_partition(self):
        p = progress("a", "b", partitions=(0, 1))
        for partition in (0, 1):
            feed(p, wm("a", 5), wm("b", 50), partition=partition)
        assert feed(p, idle("a"), idle("a")) == []
        assert (upto(p, 0)["a"], upto(p, 1)["a"]) == (50, 5)
        assert feed(p, idle("a"), idle("a"), partition=1) == [at(50)]

    def test_a_relay_is_not_lifted_and_lifts_no_one(self):
        """Who owns the aggregating partition has lifted them there."""
        p = progress("a", "b")
        feed(p, wm("a", 5), wm("b", 50), wm(None, 9))
        assert feed(p, idle("a"), idle("a"), idle(None), idle(None)) == [at(9, True)]
        assert upto(p) == {"a": 5, "b": 50}

    def test_old_rows_with_a_stored_idleness_decode_and_it_is_forgotten(self):
        rows = {
            (S, ALL, "told"): (RUN, 0, 5, True, ""),
            (S, 0, "job", JOB): (RUN, RUN, 1, 2, [], [1, 3, True, 0, ""]),
            (S, 0, "said", JOB, "a"): (RUN, 1, 5, True, 0, ""),
            (S, 0, "said", JOB, "b"): (RUN, 1, 50, False, 0, ""),
        }
        rows = unpack_rows(pack_rows(rows).items())
        p = progress("a", "b", rows=rows)
        assert (p.watermark(S), p.idle(S), upto(p)) == (5, False, {"a": 5, "b": 50})
        assert p._streams[S][0].groups[JOB].everyone == Said(1, 3)
        assert held(p) == [(5, "a", "behind")]


class TestConfirmations:
    """What a task asks before it confirms itself, and how it knows that what it reads is silent."""

    def test_one_that_is_idle_moves_while_others_are_further_or_a_mark_waits(self):
        p = progress("a", "b")
        feed(p, idle("a", 5), wm("b", 5))
        assert not p.moves(S, 0, "a")
        feed(p, wm("b", 9))
        assert p.moves(S, 0, "a")
        feed(p, idle("a"), idle("b"))
        assert p.moves(S, 0, "a")  # nobody moves, but it has marked 9
        feed(p, idle("a"))
        assert (upto(p)["a"], p.moves(S, 0, "a")) == (9, False)

    def test_what_cannot_be_seen_moves(self):
        p = progress("a", "b")
        assert p.moves(S, 0, "a")
        assert foreign("up/1").moves(S, 0, "a")
        feed(p, wm(None, 5))
        assert p.moves(S, 0, "a")
        feed(p, idle(None))
        assert not p.moves(S, 0, "a")
        feed(p, wm("b", 9))
        assert p.moves(S, 0, "a")

    def test_before_a_drain_nothing_moves(self):
        p = progress("a", "b")
        feed(p, idle("a", 5), wm("b", 9))
        assert p.moves(S, 0, "a")
        feed(p, wm("b", MAX_TIME))
        assert not p.moves(S, 0, "a")
        feed(p, drain("b"))
        assert not p.moves(S, 0, "a")

    def test_confirmations_are_counted_by_job_and_producer_and_only_while_this_object_lives(self):
        p = foreign("up/1", "side/1")
        feed(p, wm("a", 5, job="up/1"), idle("a", job="up/1"), idle("a", job="up/1"), idle("b", job="side/1", tasks=1))
        assert p.confirmed(S, 0) == {"up/1": {"a": 2}, "side/1": {"b": 1}}
        before = p.confirmed(S, 0)
        feed(p, idle("a", job="up/1"))
        assert before["up/1"]["a"] == 2
        assert restored(p).confirmed(S, 0) == {"up/1": {}, "side/1": {}}

    def test_it_is_silent_when_each_has_confirmed_twice_since(self):
        """The first may stand on what was read before; the second was asked for after the first was written."""
        p = progress("a", "b")
        assert not p.silence(S, 0, {})
        feed(p, idle("a", 5), idle("b", 5))
        since = p.confirmed(S, 0)
        feed(p, idle("a"), idle("b"), idle("a"))
        assert not p.silence(S, 0, since)
        assert p.silence(S, 0, {})
        feed(p, idle("b"))
        assert p.silence(S, 0, since)

    def test_they_confirm_twice_in_a_row(self):
        """The first one of another series stands on no fetch that was asked for after the last one of the series before."""
        p = progress("a")
        feed(p, idle("a", 5), wm("a", 6), idle("a"), wm("a", 7), idle("a"))
        assert not p.silence(S, 0, {})
        feed(p, idle("a"))
        assert p.silence(S, 0, {})
        feed(p, wm("a", 8))
        since = p.confirmed(S, 0)
        feed(p, idle("a"))
        assert not p.silence(S, 0, since)
        feed(p, idle("a"))
        assert p.silence(S, 0, since)

    def test_that_one_waits_for_a_job_that_is_away_begins_another_series(self):
        """It may say that on the same empty fetch as before."""
        p = foreign("up/1")
        say = {"job": "up/1", "run": "u1"}
        feed(p, *[idle("b", 5, **say)] * 2, idle("a", 5, **say), wm("a", 5, away=True, **say))
        assert not p.silence(S, 0, {})
        feed(p, wm("a", 5, away=True, **say))
        assert p.silence(S, 0, {})

    def test_a_job_that_is_away_is_silent(self):
        for last in (wm("a", 5, away=True, job="up/1", tasks=1), drain("a", job="up/1", tasks=1)):
            p = foreign("up/1")
            feed(p, wm("a", 5, job="up/1", tasks=1))
            assert not p.silence(S, 0, {})
            feed(p, last)
            assert p.silence(S, 0, {})

    def test_who_has_ended_is_silent_and_who_has_said_nothing_is_not(self):
        p = progress("a", "b")
        feed(p, idle("a", 5), idle("a"))
        assert not p.silence(S, 0, {})
        feed(p, end("b"))
        assert p.silence(S, 0, {})

    def test_a_relay_confirms_for_all(self):
        p = progress("a", "b")
        feed(p, wm("a", 5), idle(None))
        assert not p.silence(S, 0, {})
        feed(p, idle(None))
        assert p.silence(S, 0, {})
        feed(p, end(None))
        assert not p.silence(S, 0, {})

    def test_of_several_jobs_each_is_to_be_silent(self):
        p = foreign("up/1", "side/1")
        feed(p, *[idle("a", 5, job="up/1", tasks=1)] * 2)
        assert not p.silence(S, 0, {})
        feed(p, *[idle("a", 5, job="side/1", tasks=1)] * 2)
        assert p.silence(S, 0, {})

    def test_where_no_one_is_heard_nothing_is_known_to_be_silent(self):
        assert not Progress(JOB, RUN, {S: [0]}, {S: Sources()}).silence(S, 0, {})


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

    def test_a_stream_of_which_nothing_is_owned_holds_no_one_up(self):
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

    def test_growth_makes_everyone_wait_for_the_newcomer(self):
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

    def test_a_lift_is_not_taken_back_by_who_goes_on_behind_it(self):
        """Also not in the partition: what was said of it to others was true."""
        p = progress("a", "b")
        assert feed(p, wm("a", 2, idle=True), wm("b", 9), idle("a"), idle("a")) == [at(2), at(9)]
        assert feed(p, wm("a", 3)) == []
        assert (p.watermark(S), p.partition(S, 0)) == (9, StreamStatus(ts=9))


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

    def test_the_idle_hold_it_until_they_are_lifted(self):
        p = progress("a", "b", "c")
        feed(p, wm("a", 9), wm("b", 5, idle=True), wm("c", 7))
        assert held(p) == [(5, "b", "idle")]
        feed(p, idle("b"), idle("b"))
        assert held(p) == [(7, "b", "idle"), (7, "c", "behind")]
        feed(p, idle("c"), idle("a"))
        assert held(p) == [(7, "b", "idle"), (7, "c", "idle")]

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

    def test_what_was_said_for_all_names_no_one(self):
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
        p = progress("a", partitions=(0, 1))
        feed(p, wm(None, 5), end(None))
        feed(p, wm(None, 9), partition=1)
        assert held(p) == [(5, "", "ended")]

    def test_a_source_is_named_by_its_partition(self):
        p = Progress(JOB, RUN, {S: (0, 1)}, {S: Sources()})
        p.observe(S, 0, 9)
        p.observe(S, 1, 5)
        assert held(p) == [(5, f"{S}:1", "behind")]
        p.observe(S, 1, 5, idle=True)
        assert held(p) == [(5, f"{S}:1", "idle")]
        p.lift(S, 1, 8)
        assert held(p) == [(8, f"{S}:1", "idle")]
        p.lift(S, 1, 12)
        assert held(p) == [(9, f"{S}:0", "behind")]

    def test_tasks_of_other_jobs_are_named_with_their_job(self):
        p = foreign("up/1", "more/1")
        assert held(p) == [(NO_TIME, "more/1 (1 never seen)", "silent"), (NO_TIME, "up/1 (1 never seen)", "silent")]
        for job, ts in (("up/1", 5), ("more/1", 9)):
            feed(p, wm("a", ts, job=job, run="u1", tasks=1))
        assert held(p) == [(5, "up/1 a", "behind")]

    def test_a_stream_that_has_ended_or_whose_producers_are_not_known_is_held_by_no_one(self):
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
        assert silent(p) == ["up/1 (1 never seen)"]
        assert feed(p, self.say(wm, "a", 5)) == []
        assert silent(p) == ["up/1 (1 never seen)"]
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

    def test_no_one_waits_for_a_job_that_has_drained(self):
        p = foreign("up/1", "side/1")
        feed(p, self.say(wm, "a", 5, tasks=1), self.say(wm, "a", 9, tasks=1, job="side/1"))
        assert feed(p, self.say(drain, "a", tasks=1)) == [at(9)]
        assert feed(p, self.say(wm, "a", 12, tasks=1, job="side/1")) == [at(12)]
        assert feed(p, self.say(wm, "a", 6, tasks=2, run="u2"), self.say(wm, "a", 15, tasks=1, job="side/1")) == []
        assert [(one.who, one.why) for one in p.holders(S)] == [("up/1 (1 never seen)", "silent")]

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

    def test_a_task_that_waits_for_a_job_that_is_away_is_not_lifted_and_lifts_no_one(self):
        """It is left out with all tasks of its job or not at all; one that is merely idle is lifted to those that move."""
        p = foreign("up/1", "side/1")
        feed(p, self.say(wm, "a", 5), self.say(wm, "b", 7), self.say(wm, "x", 50, tasks=1, job="side/1"))
        assert feed(p, self.say(idle, "a"), self.say(wm, "b", 8, away=True), self.say(idle, "a")) == [at(7)]
        assert feed(p, self.say(idle, "a"), self.say(wm, "b", 8, away=True)) == [at(8)]
        assert held(p) == [(8, "up/1 b", "behind")]
        assert upto(p) == {"up/1 a": 50, "up/1 b": 8, "side/1 x": 50}
        assert feed(p, self.say(wm, "a", 5, away=True)) == [at(50)]

    def test_who_confirms_is_lifted_to_the_least_of_all_jobs_that_write_the_partition(self):
        p = foreign("up/1", "side/1", "more/1")
        feed(p, self.say(wm, "a", 5), self.say(wm, "b", 90), self.say(wm, "x", 50, tasks=1, job="side/1"))
        feed(p, self.say(idle, "a"), self.say(idle, "a"))
        assert upto(p)["up/1 a"] == 5  # of the third one nothing is known
        feed(p, self.say(wm, "y", 70, tasks=1, job="more/1"), self.say(idle, "a"))
        assert feed(p, self.say(idle, "a")) == [at(50)]
        assert feed(p, self.say(idle, "x", tasks=1, job="side/1"), self.say(idle, "a")) == []
        assert feed(p, self.say(idle, "x", tasks=1, job="side/1"), self.say(idle, "a")) == [at(70)]
        assert upto(p) == {"more/1 y": 70, "side/1 x": 70, "up/1 a": 70, "up/1 b": 90}

    @pytest.mark.parametrize("gone", [drain, end])
    def test_a_job_that_is_away_or_has_ended_holds_no_lift(self, gone):
        p = foreign("up/1", "side/1")
        feed(p, self.say(wm, "a", 5, tasks=1), self.say(wm, "x", 3, job="side/1"), self.say(wm, "y", 50, job="side/1"))
        assert feed(p, *[self.say(idle, "x", job="side/1")] * 2) == [at(5)]
        assert upto(p)["side/1 x"] == 5
        feed(p, self.say(gone, "a", tasks=1))
        assert feed(p, *[self.say(idle, "x", job="side/1")] * 2) == [at(50)]

    def test_a_job_of_which_one_has_drained_stands_still_and_holds_a_lift(self):
        """Its other tasks may be anywhere, and its next run goes on from there."""
        p = foreign("up/1", "side/1")
        feed(p, self.say(wm, "a", 5), self.say(wm, "b", 20))
        feed(p, self.say(wm, "x", 3, job="side/1"), self.say(wm, "y", 50, job="side/1"))
        feed(p, self.say(drain, "a"), *[self.say(idle, "x", job="side/1")] * 2)
        assert upto(p)["side/1 x"] == 3

    def test_the_next_run_of_a_job_is_lifted_anew(self):
        p = foreign("up/1")
        feed(p, self.say(wm, "a", 5), self.say(wm, "b", 50), self.say(idle, "a"), self.say(idle, "a"))
        assert feed(p, self.say(idle, "a", 5, run="u2"), self.say(wm, "b", 80, run="u2")) == []
        assert (upto(p), p.watermark(S)) == ({"a": 5, "b": 80}, 50)
        assert feed(p, self.say(idle, "a", run="u2"), self.say(idle, "a", run="u2")) == [at(80)]

    def test_one_of_an_older_set_is_lifted_by_no_one(self):
        p = foreign("up/1")
        feed(p, self.say(idle, "old", 5), self.say(wm, "a", 9, epoch=2), self.say(wm, "b", 50, epoch=2))
        before = state(p)
        assert feed(p, self.say(idle, "old", epoch=2)) == []
        assert (state(p), p.ignored[S, "surplus-producer"]) == (before, 1)

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
        assert news(p, lambda: p.observe(S, 1, 3, idle=True)) == []
        assert news(p, lambda: p.observe(S, 0, 5, idle=True)) == [at(3, True)]
        assert news(p, lambda: p.observe(S, 0, 5)) == [at(3)]
        assert news(p, lambda: p.end(S, 0, left=True)) == [at(3, True)]
        assert news(p, lambda: p.observe(S, 0, 99)) == []
        assert news(p, lambda: p.drain(S, 0, "d")) == []
        assert news(p, lambda: p.drain(S, 1, "d")) == [DRAINED]
        assert news(p, lambda: p.observe(S, 1, 99)) == []

    def test_one_that_is_idle_is_lifted_by_the_task_and_keeps_that_when_it_goes_on(self):
        p = self.sources()
        p.observe(S, 0, 5)
        p.observe(S, 1, 3, idle=True)
        assert news(p, lambda: p.lift(S, 1, 4), lambda: p.lift(S, 1, 2), lambda: p.lift(S, 1, 9)) == [at(4), at(5)]
        assert news(p, lambda: p.observe(S, 0, 20)) == [at(9)]
        assert held(p) == [(9, f"{S}:1", "idle")]
        assert news(p, lambda: p.observe(S, 1, 6), lambda: p.observe(S, 1, 12)) == [at(12)]

    def test_what_it_was_lifted_to_lasts_for_this_life_and_what_the_stream_reached_with_it_is_stored(self):
        p = self.sources()
        p.observe(S, 0, 50)
        p.observe(S, 1, 3, idle=True)
        p.lift(S, 1, 40)
        q = restored(p)
        assert (q.watermark(S), q.partition(S, 1).ts) == (40, 3)
        assert news(q, lambda: q.observe(S, 0, 60)) == []
        assert news(q, lambda: q.lift(S, 1, 55)) == [at(55)]

    def test_one_that_has_ended_was_lifted_for_nothing(self):
        """Its last time is that of its records, as far as it brought any."""
        p = self.sources()
        p.observe(S, 0, 50)
        p.observe(S, 1, NO_TIME, idle=True)
        assert news(p, lambda: p.lift(S, 1, 40)) == [at(40)]
        assert news(p, lambda: p.end(S, 1), lambda: p.lift(S, 1, 45)) == [at(50)]

    def test_that_it_was_idle_is_stored_with_its_position_and_the_stream_is_idle_when_that_is_seen_again(self):
        p = self.sources()
        p.observe(S, 0, 5, idle=True)
        p.observe(S, 1, 3, idle=True)
        q = restored(p)
        assert (q.partition(S, 0), q.idle(S)) == (StreamStatus(ts=5, idle=True), False)
        assert news(q, lambda: q.observe(S, 0, NO_TIME, idle=True)) == [at(3, True)]

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
        with pytest.raises(DataError, match="belongs to no known"):
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


RESTART = object()


class Spoken:
    """What one producer has said, as the oracle keeps it."""

    def __init__(self):
        self.done, self.ts, self.idle, self.lift, self.mark = StreamPhase.OPEN, NO_TIME, False, NO_TIME, NO_TIME

    @property
    def upto(self):
        if self.done != StreamPhase.OPEN and self.ts == NO_TIME:
            return NO_TIME  # it has brought nothing
        return max(self.ts, self.lift)

    def hear(self, f):
        if isinstance(f, EndOfStream):
            if self.done < StreamPhase.ENDED:
                self.done = StreamPhase.LEFT if f.left else StreamPhase.ENDED
        elif isinstance(f, Drain):
            self.done = max(self.done, StreamPhase.DRAINED)
        elif self.done == StreamPhase.OPEN:
            self.ts, self.idle = max(self.ts, f.ts), f.idle


class Oracle:
    """The rules, as slowly and as plainly as they can be said: everything is derived from all frames again."""

    def __init__(self, tasks, epoch, partitions):
        self.tasks, self.epoch = tasks, epoch
        self.heard = {partition: [] for partition in partitions}
        self.told = ("open", NO_TIME, False)

    def spoken(self, frames):
        """What each producer has said by these frames, and what was said for all (None: nothing)."""
        said, everyone = {}, None
        for f in frames:
            if f is RESTART:
                for one in [*said.values(), *([everyone] if everyone else [])]:
                    one.idle = False
            elif f.run != RUN or f.job != JOB or (f.task is None and f.epoch != self.epoch):
                continue
            elif f.task is None:
                everyone = everyone or Spoken()
                everyone.hear(f)
            else:
                one = said.setdefault(f.task, Spoken())
                one.hear(f)
                if not isinstance(f, Watermark):
                    continue
                if not f.idle and everyone:
                    everyone.idle = False
                if not f.idle:
                    one.mark = NO_TIME
                elif one.done == StreamPhase.OPEN:
                    others = [other for name, other in said.items() if name != f.task]
                    alone = everyone is not None or len(others) < len(self.tasks) - 1
                    one.lift = max(one.lift, one.mark)
                    one.mark = NO_TIME if alone else self.moving(others)
        return said, everyone

    def moving(self, others):
        """The least time of those that are not idle."""
        if any(one.done == StreamPhase.DRAINED or one.upto == MAX_TIME for one in others):
            return NO_TIME
        times = [one.upto for one in others if one.done == StreamPhase.OPEN and not one.idle]
        times += [one.upto for one in others if one.done == StreamPhase.ENDED and one.upto > NO_TIME]
        return min(times, default=NO_TIME)

    def least(self, parts):
        live = [(ts, idle) for done, ts, idle in parts if done == StreamPhase.OPEN]
        ended = [ts for done, ts, _ in parts if done == StreamPhase.ENDED and ts > NO_TIME]
        left = [ts for done, ts, _ in parts if done == StreamPhase.LEFT and ts > NO_TIME]
        if not live:
            drains = any(done == StreamPhase.DRAINED for done, _, _ in parts)
            return (NO_TIME if drains else min(ended or left, default=NO_TIME)), False
        if any(done == StreamPhase.DRAINED or ts == MAX_TIME for done, ts, _ in parts):
            return (MAX_TIME if all(ts == MAX_TIME for ts, _ in live) else NO_TIME), False
        return min([*(ts for ts, _ in live), *ended]), all(idle for _, idle in live) and not ended

    def partition(self, frames):
        said, everyone = self.spoken(frames)
        done, ts, idle = StreamPhase.OPEN, NO_TIME, False
        if len(said) == len(self.tasks):
            parts = [(one.done, one.upto, one.idle) for one in said.values()]
            done = min(d for d, _, _ in parts)
            ts, idle = self.least(parts)
        if everyone:
            done, ts, idle = max(done, everyone.done), max(ts, everyone.ts), everyone.idle
        return done, ts, idle

    def upto(self, partition):
        said, _ = self.spoken(self.heard[partition])
        return {task: one.upto for task, one in said.items()}

    def restart(self):
        for frames in self.heard.values():
            frames.append(RESTART)
        self.told = (*self.told[:2], False)

    def take(self, partition, frame):
        if frame.task in self.tasks or frame.task is None:
            self.heard[partition].append(frame)
        state, told_ts, _ = self.told
        parts = [self.partition(frames) for frames in self.heard.values()]
        if state != "open":
            return []
        done = min(d for d, _, _ in parts)
        if done != StreamPhase.OPEN:
            self.told = ("done", max(told_ts, self.least(parts)[0]), False)
            return [ENDED] if done >= StreamPhase.ENDED else [DRAINED]
        ts, idle = self.least(parts)
        new = ("open", max(ts, told_ts), idle)
        if new == self.told:
            return []
        self.told = new
        return [at(new[1], new[2])]


NAMED = [
    wm("a", 5),
    wm("a", 9, idle=True),
    wm("a", 12),
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
    wm("b", 3, idle=True),
    end("b"),
    wm(None, 7),
    end(None, epoch=0),
    wm("x", 1, idle=True),
    wm("b", 2, idle=True, run="r1"),
    drain(None),
]


def check(history, partitions=(0,), tasks=("a", "b"), cuts=()):
    """`cuts`: before which steps the task starts again."""
    p, oracle = progress(*tasks, partitions=partitions), Oracle(tasks, 1, partitions)
    for step, (partition, frame) in enumerate(history):
        if step in cuts:
            p = restored(p)
            oracle.restart()
        assert feed(p, frame, partition=partition) == oracle.take(partition, frame), (history, step)
        assert p.watermark(S) == oracle.told[1], (history, step)
        assert upto(p, partition) == oracle.upto(partition), (history, step)


@pytest.mark.parametrize("alphabet", [NAMED, MIXED], ids=["named", "mixed"])
def test_every_short_history_agrees_with_the_oracle(alphabet):
    for length in (1, 2, 3, 4):
        for frames in product(alphabet, repeat=length):
            check([(0, frame) for frame in frames])


def test_every_history_of_two_that_confirm_agrees_with_the_oracle():
    """Six frames of each of these kinds are enough to mark, to lift twice, and to go on in between."""
    for frames in product([idle("a", 5), wm("a", 11), idle("b", 3), wm("b", 20)], repeat=6):
        check([(0, frame) for frame in frames])


def test_every_interleaving_of_three_producers_agrees_with_the_oracle():
    """Scripts of two frames for each of three producers: all ninety orders, each interrupted at each place."""
    scripts = {"a": [wm("a", 5), end("a")], "b": [wm("b", 9), drain("b")], "c": [wm("c", 7, idle=True), end("c")]}
    for order in set(permutations("aabbcc")):
        left = {name: list(script) for name, script in scripts.items()}
        history = [(0, left[name].pop(0)) for name in order]
        for cut in range(7):
            check(history, tasks=("a", "b", "c"), cuts=(cut,))


def test_every_interleaving_of_confirmations_and_times_agrees_with_the_oracle_wherever_it_is_interrupted():
    scripts = {"a": [idle("a", 5), idle("a", 5), idle("a", 5)], "b": [wm("b", 20), wm("b", 30), idle("b", 30)]}
    scripts["c"] = [wm("c", 40)]
    for order in sorted(set(permutations("aaabbbc"))):
        left = {name: list(script) for name, script in scripts.items()}
        history = [(0, left[name].pop(0)) for name in order]
        for cut in range(7):
            check(history, tasks=("a", "b", "c"), cuts=(cut,))


def test_every_interleaving_of_two_partitions_agrees_with_the_oracle():
    scripts = {0: [wm("a", 5), wm("b", 6), end("a"), end("b")], 1: [wm("b", 3), end("a"), end("b")]}
    for order in set(permutations([0, 0, 0, 0, 1, 1, 1])):
        left = {partition: list(script) for partition, script in scripts.items()}
        history = [(partition, left[partition].pop(0)) for partition in order]
        for cuts in ((), (3,), (5,)):
            check(history, partitions=(0, 1), cuts=cuts)


FRAMES = st.sampled_from(
    [
        *NAMED,
        *MIXED,
        wm("a", 2, idle=True),
        wm(None, 12),
        wm(None, 9, idle=True),
        end("x"),
        drain("b"),
        wm("b", MAX_TIME),
    ]
)
CONFIRMING = st.one_of(
    st.sampled_from([idle("a", 5), idle("b", 5), idle("c", 5)]),
    st.builds(wm, st.sampled_from("abc"), st.integers(1, 60)),
    st.sampled_from([end("a"), end("b", left=True), wm("c", 70)]),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from([0, 1]), FRAMES), max_size=14), st.sets(st.integers(0, 14)))
def test_any_history_agrees_with_the_oracle_across_restarts(history, cuts):
    check(history, partitions=(0, 1), cuts=cuts)


@settings(deadline=None, max_examples=60)
@given(st.lists(CONFIRMING, max_size=30), st.sets(st.integers(0, 30)))
def test_any_history_of_confirmations_agrees_with_the_oracle_across_restarts(frames, cuts):
    check([(0, frame) for frame in frames], tasks=("a", "b", "c"), cuts=cuts)


@settings(deadline=None, max_examples=60)
@given(st.lists(CONFIRMING, max_size=30))
def test_no_one_is_lifted_beyond_what_another_had_said_when_it_confirmed_before(frames):
    """Whoever the others were, and whatever they said: this is what makes late records impossible."""
    p = progress("a", "b", "c")
    own, allowed, noted = (dict.fromkeys("abc", NO_TIME) for _ in range(3))
    for frame in frames:
        taken(p, frame, 0)
        if isinstance(frame, Watermark):
            own[frame.task] = max(own[frame.task], frame.ts)
            allowed[frame.task] = max(
                allowed[frame.task], own[frame.task], noted[frame.task] if frame.idle else NO_TIME
            )
            noted[frame.task] = max(own.values()) if frame.idle else NO_TIME
        assert all(ts <= allowed[task] for task, ts in upto(p).items())


STEPS = st.one_of(
    st.tuples(
        st.just("take"),
        st.sampled_from([0, 1]),
        st.sampled_from(
            [f for f in NAMED + MIXED if not getattr(f, "idle", False)]
            + [
                wm("c", 6, epoch=2),
                end("c", epoch=2),
                end(None, epoch=2),
                wm("b", 5, away=True),
                wm(None, 5, away=True),
            ]
        ),
    ),
    st.tuples(st.just("set"), st.integers(1, 3), st.sampled_from([("a", "b"), ("a", "b", "c"), ("b",)])),
    st.tuples(st.just("write"), st.just(0), st.none()),
)


@settings(deadline=None, max_examples=80)
@given(st.lists(STEPS, max_size=20), st.booleans())
def test_one_that_lives_and_one_that_is_restored_after_every_step_say_the_same(steps, other_job):
    """The restored one knows only what was written: the changes, applied to a table, after each step. Of what is idle it knows nothing
    until that is said again, so nobody is idle here; the oracle knows what that makes of confirmations."""
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


@settings(deadline=None, max_examples=50)
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
    with pytest.raises(DataError, match=r"'said', 'sales/1', 'a'.* belongs to no known"):
        progress("a", rows=rows)


def golden(p):
    return {k.hex(): v.hex() for k, v in pack_rows(p.take_changes()).items()}


def test_golden_rows():
    """The bytes of the control table are read by later versions for ever."""
    told, said = "93aa73616c65732d312d6279ffa4746f6c64", "95aa73616c65732d312d627900a473616964a773616c65732f31a161"
    p = progress("a", "b")
    feed(p, idle("a", 5))
    rows = golden(p)
    assert {msgpack.unpackb(bytes.fromhex(k))[2] for k in rows} == {"job", "said"}
    assert rows[said] == "9701a272320105c200a0"
    feed(p, wm("b", 50), idle("a", 5))
    rows = golden(p)
    assert rows[told] == "9601a272320005c2a0"
    assert rows[said] == "9a01a272320105c200a0c2d3800000000000000032"  # the mark
    feed(p, idle("a", 5))
    assert golden(p) == {told: "9601a272320032c2a0", said: "9a01a272320105c200a0c23232"}  # the lift


def test_golden_rows_of_one_that_is_away():
    p = foreign("up/1")
    feed(p, wm("a", 5, away=True, job="up/1", run="u1", tasks=1))
    rows = golden(p)
    assert rows["93aa73616c65732d312d6279ffa4746f6c64"] == "9701a272320005c3a0c3"
    assert rows["95aa73616c65732d312d627900a473616964a475702f31a161"] == "9801a272320105c300a0c3"


def test_whether_a_lift_is_due_and_whether_it_was_said_that_all_are_idle():
    """Who speaks for all says the one only while the other is not true."""
    p = progress("a", "b")
    assert (p.lifts_next(S, 0), p.all_idle(S, 0)) == (False, False)
    feed(p, wm("a", 10), wm("b", 200), wm("a", 10, idle=True))
    assert p.lifts_next(S, 0), "it has marked 200, and reached 10"
    feed(p, wm("a", 10, idle=True))
    assert not p.lifts_next(S, 0)
    for said, idle in ((wm(None, 200, idle=True), True), (wm(None, 210), False)):
        feed(p, said)
        assert p.all_idle(S, 0) is idle
