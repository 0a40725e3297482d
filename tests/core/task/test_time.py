"""The time of a step and what it passes on: derived once, told with the letter, known after a restart."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.names import StreamPartition as SP
from headgate.core.orders import RunChanged, RunView
from headgate.core.progress.frames import MAX_TIME, NO_TIME
from headgate.core.progress.producers import StreamPhase
from headgate.core.task.inputs import NEVER
from headgate.core.task.plan import FOREIGN, INTERMEDIATE, InputPlan, OutputPlan, StepPlan, TaskPlan, TaskSettings
from headgate.core.task.protocol import AtEnd, RunStep, WorkDue
from headgate.core.task.stored.rows import pack_rows, unpack_rows
from headgate.core.task.time import Through, least, passed_on, passing

from ..task_rig import (
    BY,
    BY0,
    JOB,
    ME,
    ORDERS,
    ORDERS0,
    RUN,
    UUID,
    Rig,
    drain,
    eos,
    hearing,
    merged,
    producers,
    reader_plan,
    rows_of,
    run_view,
    source_plan,
    two_inputs,
    wm,
)


@pytest.mark.parametrize(
    ("streams", "found"),
    [
        ({"a": Through(5), "b": Through(9)}, Through(5)),
        ({"a": Through(5, idle=True), "b": Through(9)}, Through(5)),
        ({"a": Through(5, idle=True), "b": Through(9, idle=True)}, Through(5, idle=True)),
        ({"b": Through(9)}, Through(9)),
        ({"b": Through(9, idle=True)}, Through(9, idle=True)),
        ({"a": Through(5, idle=True, away=True), "b": Through(9)}, Through(9)),
        (
            {"a": Through(5, idle=True, away=True), "b": Through(9, idle=True, away=True)},
            Through(5, idle=True, away=True),
        ),
        ({"a": Through(5, idle=True, away=True), "b": Through(MAX_TIME)}, Through(5)),
        ({"a": Through(5, idle=True), "b": Through(MAX_TIME)}, Through(5)),
        ({"a": Through(MAX_TIME, idle=True), "b": Through(MAX_TIME)}, Through(MAX_TIME)),
        ({"c": Through(1)}, None),
        ({}, None),
    ],
)
def test_the_least_of_those_that_are_there(streams, found):
    """What has ended or drained is absent, and nobody is left out for being idle. What is away holds nobody up, except before a drain: what
    it still has comes first. If nothing moves, nothing is said to move."""
    assert least({"a", "b"}, streams) == found


def test_one_that_is_idle_counts_with_the_time_that_it_was_lifted_to_but_not_before_a_drain():
    streams = {"a": Through(5, idle=True), "b": Through(9)}
    assert least({"a", "b"}, streams, {"a": 8, "b": NO_TIME}) == Through(8)
    assert least({"a", "b"}, streams, {"a": 3}) == Through(5)
    assert least({"a", "b"}, {**streams, "b": Through(MAX_TIME)}, {"a": 8}) == Through(5)


@pytest.mark.parametrize(
    ("told", "holds_ms", "owed", "goes_on"),
    [
        (100, 0, None, 100),
        (100, 30, None, 70),
        (100, 30, 80, 70),
        (100, 30, 60, 60),
        (-100, 30, None, -130),
        (NO_TIME, 30, None, NO_TIME),
        (NO_TIME + 1, 30, None, NO_TIME),
        (MAX_TIME, 30, None, MAX_TIME),
        (MAX_TIME, 30, 60, 60),
    ],
)
def test_what_a_step_passes_on(told, holds_ms, owed, goes_on):
    """What it may still emit is not older than that; no time and no more time stay what they are."""
    assert passed_on(told, holds_ms, owed) == goes_on


def test_a_step_that_owes_results_is_not_idle():
    """They come though nothing else does: whoever left it out of the least would find them late."""
    steps = [StepPlan("window", frozenset({"a"})), StepPlan("gone", frozenset({"ended"}))]
    streams = {"a": Through(9, idle=True)}
    assert passing(steps, streams, {"window": 9}, {}) == {**streams, "window": Through(9, idle=True)}
    assert passing(steps, streams, {"window": 9}, {"window": 5}) == {**streams, "window": Through(5)}


def test_when_one_stream_has_left_the_time_goes_on():
    """An actor over two inputs heard no watermark any more, though one of them went on: its timers never fired."""
    rig = merged()
    rig.hear(BY0, eos("a", left=True))
    assert rig.letters(last=True) == [("watermark", None, None), ("end", BY, None)]
    assert rig.times() == {"both": 200, "one": 200}
    rig.chunk(ORDERS0, 9, 300)
    rig.wait(1.0)
    assert rig.times() == {"both": 300, "one": 300}


def test_a_stream_that_has_ended_keeps_its_last_time_while_another_is_open():
    """The next run goes on there: a join whose one side ended first lost what came for it then."""
    rig = merged()
    rig.hear(BY0, eos("a"))
    rig.chunk(ORDERS0, 9, 300)
    rig.wait(1.0)
    assert rig.times() == {"both": 50, "one": 300}
    both, _ = rig.task.plan.steps
    assert rig.task.time.holders(both) == [(50, BY, "ended")]
    assert rig.again(run_view("a")).task.time.holders(both) == [(50, BY, "ended")]


def test_a_stream_that_brought_nothing_does_not_count_and_this_is_heard_before_its_end():
    """The other stream ended first. The last time, which closes windows, must not come behind the end, which closes all of them."""
    steps = (StepPlan("both", frozenset({ORDERS, BY})),)
    rig = Rig(replace(two_inputs(until=5), steps=steps, bounded=True)).start(run_view("a"))
    rig.chunk(ORDERS0, 5, 200)
    assert rig.times() == {}
    rig.hear(BY0, eos("a"))
    assert rig.times() == {"both": 200}
    assert rig.letters()[-3:] == [("watermark", None, None), ("end", BY, None), ("end", None, None)]


def test_while_one_stream_drains_the_time_stands_still():
    """The next run reads both on from here: a window that the other stream closed in between would find records late that were in time."""
    rig = merged()
    before = rig.times()
    rig.hear(BY0, wm("a", MAX_TIME))
    rig.wait(1.0)
    rig.chunk(ORDERS0, 9, 300)
    rig.wait(1.0)
    assert rig.times() == before


def at_end(rig: Rig, at: SP) -> None:
    rig.feed(AtEnd(at, rig.task.position(at)))
    rig.wait(1.0)


def silent(rig: Rig, ts: int, at: SP = BY0) -> None:
    """The partition is read to its end, and then its producer confirms twice that it is idle."""
    at_end(rig, at)
    at_end(rig, at)
    for _ in range(2):
        rig.hear(at, wm("a", ts, idle=True))
        rig.wait(1.0)


def test_a_stream_that_is_idle_is_lifted_to_the_other_one_and_nothing_goes_back():
    """That it says so is not enough: until it is certain to have been silent since the other one was there, it holds."""
    rig = merged()
    rig.hear(BY0, wm("a", 60, idle=True))
    rig.wait(1.0)
    assert rig.times()["both"] == 60
    rig.hear(BY0, wm("a", 60, idle=True))
    rig.hear(BY0, wm("a", 60, idle=True))
    rig.wait(1.0)
    assert rig.times()["both"] == 60
    silent(rig, 60)
    assert rig.times()["both"] == 200
    rig.chunk(ORDERS0, 9, 300)
    rig.wait(1.0)
    assert rig.times()["both"] == 200  # what it has not read yet may be that old
    rig.hear(BY0, wm("a", 70))
    rig.wait(1.0)
    assert rig.times()["both"] == 200
    assert rig.again(run_view("a")).task.step_times["both"] == 200


def test_one_that_has_begun_again_is_not_lifted_by_what_was_noted_before():
    rig = merged()
    rig.hear(BY0, wm("a", 60, idle=True))
    rig.wait(1.0)
    rig.hear(BY0, wm("a", 70))
    rig.wait(1.0)
    at_end(rig, BY0)
    at_end(rig, BY0)
    rig.hear(BY0, wm("a", 70, idle=True))
    rig.wait(1.0)
    assert rig.times()["both"] == 70
    assert not rig.task.time.may_lift()
    rig.hear(BY0, wm("a", 70, idle=True))
    rig.wait(1.0)
    assert rig.times()["both"] == 70  # silent since before it was noted where the other one is
    silent(rig, 70)
    silent(rig, 70)
    assert rig.times()["both"] == 200


def test_when_all_are_idle_time_stands_still_and_no_one_looks():
    rig = merged()
    rig.task.inputs.plan = replace(rig.task.plan, settings=replace(rig.task.plan.settings, idle_timeout_s=0.5))
    rig.hear(BY0, wm("a", 60, idle=True))
    for _ in range(3):
        at_end(rig, ORDERS0)
    assert rig.task.inputs.progress.idle(ORDERS)
    silent(rig, 60)
    silent(rig, 60)
    assert rig.times()["both"] in (60, 200)
    before = rig.times()
    silent(rig, 60)
    assert rig.times() == before
    assert not rig.task.time.may_lift()


def test_an_output_in_which_two_streams_meet_follows_the_same_rule():
    """No step stands before it, so nobody but the task itself knows how far its streams were lifted."""
    rig = Rig(
        replace(two_inputs(), outputs=(OutputPlan("out", 1, frozenset({ORDERS, BY})),)),
    ).start(run_view("a"))
    rig.hear(BY0, wm("a", 50))
    rig.chunk(ORDERS0, 5, 200)
    rig.wait(1.0)
    assert rig.said()[-1] == ("wm", 50, (0,))
    rig.hear(BY0, wm("a", 60, idle=True))
    rig.wait(1.0)
    assert rig.said()[-1] == ("wm", 60, (0,))
    silent(rig, 60)
    assert rig.said()[-1] == ("wm", 200, (0,))
    assert rig.task.time.lifted(">out") == {ORDERS: NO_TIME, BY: 200}
    assert rig.task.time.lifted("unknown") == {}


def test_a_step_that_is_idle_is_lifted_as_its_streams_are_silent():
    """A window, and its stream, is silent; behind it an actor reads another stream, too."""
    steps = (StepPlan("window", frozenset({BY}), 30), StepPlan("actor", frozenset({"window", ORDERS, "elsewhere"})))
    rig = Rig(replace(two_inputs(), steps=steps, outputs=())).start(run_view("a"))
    rig.hear(BY0, wm("a", 50))
    rig.chunk(ORDERS0, 5, 200)
    rig.wait(1.0)
    assert rig.times() == {"window": 50, "actor": 20}
    rig.hear(BY0, wm("a", 50, idle=True))
    rig.wait(1.0)
    silent(rig, 50)
    assert rig.times() == {"window": 50, "actor": 200}
    assert rig.task.time.silent_since("elsewhere") == NEVER  # this task reads nothing of it


FAR0 = SP("far", 0)


def test_a_stream_that_is_away_is_not_lifted_and_keeps_no_one_from_it():
    """A job that has drained confirms nothing: an idle source beside it, behind the same window, waited for that for ever."""
    inputs = (InputPlan("far", (0,), 1, FOREIGN, jobs=("x/1",)), *two_inputs().inputs)
    steps = (StepPlan("window", frozenset({BY, "far"})), StepPlan("actor", frozenset({"window", ORDERS})))
    rig = Rig(TaskPlan(JOB, ME, inputs, (), TaskSettings(watermark_interval_s=0.2), steps)).start(run_view("a"))
    rig.hear(FAR0, replace(wm("t", 10), job="x/1"))
    rig.hear(FAR0, replace(drain("t"), job="x/1"))
    rig.hear(BY0, wm("a", 50))
    rig.chunk(ORDERS0, 5, 200)
    rig.wait(1.0)
    assert rig.times() == {"window": 50, "actor": 50}
    rig.hear(BY0, wm("a", 60, idle=True))
    rig.wait(1.0)
    silent(rig, 60)
    assert rig.times() == {"window": 60, "actor": 200}
    assert rig.task.time.lifted("window") == {BY: NO_TIME, "far": NO_TIME}


def test_a_task_in_which_nothing_meets_lifts_nothing():
    rig = Rig(hearing(reader_plan())).start(run_view("a"))
    assert not rig.task.time.lift(rig.clock())
    assert not rig.task.time.may_lift()


def test_after_a_restart_the_time_is_known_before_the_first_letter():
    """It was unknown until every stream had moved: one that had ended never did."""
    rig = merged()
    rig.hear(BY0, eos("a", left=True))
    rig.commit()
    assert rows_of(rig)[":time", "both"][1:] == (200,)
    stored = [(key, value) for key, value in pack_rows(rows_of(rig)).items() if value is not None]
    assert dict(unpack_rows(stored)) == rows_of(rig)  # what is stored can be read by whoever restores it
    again = rig.again(run_view("a"))
    assert again.task.step_times == {"both": 200, "one": 200}
    again.chunk(ORDERS0, 9, 300)
    again.wait(1.0)
    assert again.times() == {"both": 300, "one": 300}


def chain(*, outputs: bool = True) -> TaskPlan:
    """A window with a grace of 30 ms, and an actor behind it and behind its stream."""
    steps = (StepPlan("window", frozenset({ORDERS}), 30), StepPlan("actor", frozenset({"window", ORDERS})))
    out = (OutputPlan(BY, 2, frozenset({"window"})),) if outputs else ()
    return TaskPlan(JOB, ME, (InputPlan(ORDERS, (0,), 1),), out, TaskSettings(watermark_interval_s=0.2), steps)


def test_a_step_hears_what_the_step_before_it_passes_on_in_a_letter_of_its_own():
    """What the window emits at its letter lies before the time that the actor hears next; and what it owes is known by then."""
    rig = Rig(chain()).start()
    rig.chunk(ORDERS0, 5, 100)
    rig.wait(1.0)
    assert [one.times for one in rig.of(RunStep, last=False)] == [(("window", 100),), (("actor", 70),)]
    assert rig.said()[-1] == ("wm", 70, (0, 1))


def test_what_a_step_owes_holds_the_time_behind_it_over_a_restart():
    """A closed window is at Spark: the time behind it stands before its result, in the next life, too, and goes on with that."""
    rig = Rig(chain()).start()
    rig.owed = (("window", 49),)
    rig.chunk(ORDERS0, 5, 100)
    rig.wait(1.0)
    assert rig.times() == {"window": 100, "actor": 49}
    again = rig.again()
    again.chunk(ORDERS0, 9, 200)
    again.wait(1.0)
    assert again.times() == {"window": 200}
    assert again.said() == []
    again.owed = ()
    again.feed(WorkDue("work", "window/run"))
    again.wait(1.0)
    assert again.times() == {"window": 200, "actor": 170}
    assert again.said() == [("wm", 170, (0, 1))]


def test_who_holds_a_step_is_the_least_of_what_it_reads():
    """A stream that is behind, a step that owes results, or all that is idle."""
    rig = merged()
    both, one = rig.task.plan.steps
    time = rig.task.time
    assert time.holders(both) == [(50, BY, "behind")]
    assert time.holders(one) == [(200, ORDERS, "behind")]
    rig.hear(BY0, wm("a", 60, idle=True))
    rig.wait(1.0)
    assert time.holders(both) == [(60, BY, "idle")]
    silent(rig, 60)
    assert time.holders(both) == [(200, ORDERS, "behind"), (200, BY, "idle")]
    rig.chunk(ORDERS0, 9, 300)
    rig.wait(1.0)
    assert time.holders(both) == [(200, BY, "idle")]
    rig.chunk(ORDERS0, 10, 300)
    rig.hear(BY0, eos("a", left=True))
    assert time.holders(both) == [(300, ORDERS, "behind")]
    rig = Rig(chain()).start()
    rig.owed = (("window", 49),)
    rig.chunk(ORDERS0, 5, 100)
    rig.wait(1.0)
    assert rig.task.time.holders(rig.task.plan.steps[1]) == [(49, "window", "owes")]
    step = StepPlan("other", frozenset({BY}))
    assert rig.task.time.holders(step) == []
    alone = Rig(replace(reader_plan(), steps=(step,))).start(run_view("a"))
    alone.hear(BY0, wm("a", 60, idle=True))
    alone.wait(1.0)
    assert alone.task.time.holders(step) == [(60, BY, "idle")]


def test_a_commit_announces_the_time_of_the_records_that_it_carries():
    """The operators had to be told first, once an interval: then the time came a commit after its records, or two."""
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.commit()
    for upto in range(1, 9):
        rig.chunk(ORDERS0, upto, 100 + upto)
        rig.now += 0.2
        rig.commit()
        assert rig.said()[-1] == ("wm", 100 + upto, (0, 1))
    assert rig.of(RunStep, last=False) == []


def test_commits_in_a_hurry_announce_at_most_two_times_an_interval_and_the_last_one_is_announced():
    """A letter in many steps has a commit for each of them; each marker goes to every partition."""
    rig = Rig(source_plan(), auto_commit=False).start()
    rig.commit()
    for upto in range(1, 21):
        rig.chunk(ORDERS0, upto, 100 + upto)
        rig.now += 0.01
        rig.commit()
    assert [ts for _, ts, _ in rig.said() if ts > NO_TIME] == [101, 111]
    assert rig.task.deadline() is not None
    rig.wait(0.2)
    assert rig.wants_commit
    rig.commit()
    assert rig.said()[-1] == ("wm", 120, (0, 1))


def test_a_time_is_announced_behind_a_step_only_when_the_step_was_told():
    """Its results come with that letter: the records of the commit are newer than what the step may still emit."""
    rig = Rig(chain(), auto_commit=False).start()
    rig.commit()
    rig.chunk(ORDERS0, 5, 100)
    rig.commit()
    assert rig.said()[-1] == ("wm", 70, (0, 1))
    rig.now += 0.04
    rig.chunk(ORDERS0, 6, 200)
    rig.commit()
    assert rig.said()[-1] == ("wm", 70, (0, 1))
    rig.wait(0.2)
    rig.commit()
    assert rig.said()[-1] == ("wm", 170, (0, 1))


def test_a_watermark_that_brings_no_newer_time_does_not_delay_the_next_one():
    """The first producer's watermark counted as told: that of the last one, which closes the window, waited for an interval."""
    rig = Rig(hearing(reader_plan())).start(run_view("a", "b", "c"))
    rig.wait(1.0)
    for producer in "abc":
        rig.hear(BY0, wm(producer, 100))
    assert rig.times() == {"step": 100}


# ------------------------------------------------------------------------------------------ against a plain recursive derivation

STREAMS = ("s0", "s1", "s2")


class Plain:
    """The rule as one would say it, asked from behind; what was told never goes back. Nobody reads to an end, so nobody is lifted."""

    def __init__(self, steps: dict[str, StepPlan]) -> None:
        self.steps = steps
        self.ts = dict.fromkeys(STREAMS, NO_TIME)
        self.idle: set[str] = set()
        self.ended: dict[str, StreamPhase] = {}
        self.owed: dict[str, int] = {}
        self.told = dict.fromkeys(steps, NO_TIME)
        self.said = NO_TIME

    def behind(self, parents: frozenset[str]) -> tuple[int, bool, StreamPhase]:
        found = [self.passes(parent) for parent in parents]
        open_ = [ts for ts, _, how in found if how == StreamPhase.OPEN]
        idle = all(idle for _, idle, how in found if how == StreamPhase.OPEN)
        kept = [ts for ts, _, how in found if how == StreamPhase.ENDED and ts > NO_TIME]
        left = [ts for ts, _, how in found if how == StreamPhase.LEFT]
        if open_:
            return min([*open_, *kept]), idle and not kept, StreamPhase.OPEN
        if kept or not left:
            return min(kept, default=NO_TIME), False, StreamPhase.ENDED
        return min((ts for ts in left if ts > NO_TIME), default=NO_TIME), False, StreamPhase.LEFT

    def passes(self, name: str) -> tuple[int, bool, StreamPhase]:
        if name in STREAMS:
            how = self.ended.get(name, StreamPhase.OPEN)
            return self.ts[name], name in self.idle and how == StreamPhase.OPEN, how
        step = self.steps[name]
        _, idle, how = self.behind(step.parents)
        ts = NO_TIME if self.told[name] == NO_TIME else self.told[name] - step.holds_ms
        return min(ts, self.owed.get(name, MAX_TIME)), idle and name not in self.owed, how

    def settle(self, output: frozenset[str]) -> None:
        for name in self.steps:  # parents first
            self.told[name] = max(self.told[name], self.behind(self.steps[name].parents)[0])
        self.said = max(self.said, self.behind(output)[0])


@st.composite
def step_graphs(draw: st.DrawFn) -> tuple[StepPlan, ...]:
    steps: list[StepPlan] = []
    for number in range(draw(st.integers(1, 5))):
        before = [*STREAMS, *(one.name for one in steps)]
        parents = draw(st.frozensets(st.sampled_from(before), min_size=1, max_size=3))
        steps.append(StepPlan(f"step{number}", parents, draw(st.sampled_from([0, 0, 7, 30]))))
    return tuple(steps)


@given(step_graphs(), st.data())
def test_any_steps_hear_and_pass_on_what_the_plain_rule_says(steps, data):
    """Whatever the steps are, whoever ends, is idle or owes something, and wherever the task is started again."""
    output = data.draw(st.frozensets(st.sampled_from([*STREAMS, *(one.name for one in steps)]), min_size=1))
    run = RunView(RUN, UUID, producers={one: producers("a", stream=one) for one in (*STREAMS, "out")})
    inputs = tuple(InputPlan(one, (0,), 1, INTERMEDIATE) for one in STREAMS)
    plan = TaskPlan(JOB, ME, inputs, (OutputPlan("out", 1, output),), TaskSettings(watermark_interval_s=0.2), steps)
    rig, plain = Rig(plan).start(run), Plain({one.name: one for one in steps})
    for _ in range(data.draw(st.integers(1, 25))):
        what = data.draw(st.sampled_from(["time", "time", "time", "end", "owe", "restart"]))
        stream = data.draw(st.sampled_from(STREAMS))
        open_ = stream not in plain.ended and len(plain.ended) < len(STREAMS)
        if what == "restart":
            rig = rig.again(run)
            assert {name: rig.task.step_times.get(name, NO_TIME) for name in plain.told} == plain.told
        elif what == "time" and open_:
            idle = data.draw(st.booleans())
            plain.ts[stream] += data.draw(st.integers(0, 50)) if plain.ts[stream] > NO_TIME else -NO_TIME - 20
            (plain.idle.add if idle else plain.idle.discard)(stream)
            rig.hear(SP(stream, 0), wm("a", plain.ts[stream], idle=idle))
        elif what == "end" and open_ and len(plain.ended) < len(STREAMS) - 1:
            left = data.draw(st.booleans())
            plain.ended[stream] = StreamPhase.LEFT if left else StreamPhase.ENDED
            rig.hear(SP(stream, 0), eos("a", left=left))
        elif what == "owe" and open_:
            owing = data.draw(st.frozensets(st.sampled_from([one.name for one in steps])))
            plain.owed = {name: data.draw(st.integers(-50, 300)) for name in owing}
            rig.owed = tuple(plain.owed.items())
            rig.chunk(SP(stream, 0), rig.task.position(SP(stream, 0)) + 1)
        rig.wait(1.0)
        plain.settle(output)
        assert {name: rig.task.step_times.get(name, NO_TIME) for name in plain.told} == plain.told
        assert rig.task.announcer.said(":said", "out").ts == plain.said


def test_time_waits_for_records_of_a_stream_that_are_put_aside():
    """Until they are not, or the stream drains. What it has told before stays."""
    rig = Rig(hearing(source_plan())).start()
    rig.chunk(ORDERS0, 5, 100)
    rig.wait(1.0)
    assert rig.times() == {"step": 100}
    rig.owed = ((ORDERS, 150),)
    rig.chunk(ORDERS0, 6, 200)
    rig.wait(1.0)
    assert (rig.times(), rig.task.time.heard[ORDERS].ts) == ({"step": 150}, 200)
    again = rig.again()
    again.chunk(ORDERS0, 7, 300)
    again.wait(1.0)
    assert again.times() in ({}, {"step": 150})
    again.owed = ((ORDERS, 90),)
    again.chunk(ORDERS0, 8, 310)
    again.wait(1.0)
    assert again.times() in ({}, {"step": 150})
    again.owed = ()
    again.feed(WorkDue("work", "hg.parked/held"))
    again.wait(1.0)
    assert again.times()["step"] == 310


def test_a_drain_waits_for_none_of_them():
    rig = Rig(hearing(source_plan())).start()
    rig.owed = ((ORDERS, 150),)
    rig.chunk(ORDERS0, 6, 200)
    rig.feed(RunChanged(run_view(draining="d1")))
    rig.wait(1.0)
    assert rig.times()["step"] == MAX_TIME
    assert rig.task.phase == "drained"
