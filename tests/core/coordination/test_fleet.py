"""The number of workers: who follows it, which ones start and stop, and when nobody would."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from headgate.core.coordination import fleet as f
from headgate.core.coordination import messages as c
from headgate.core.coordination.state import JobState
from headgate.core.graph.model import JobModel
from headgate.core.names import StreamPartition
from headgate.core.orders import TaskState
from headgate.core.settings import Resolved


def a_job(*workers: tuple[str, int, str]) -> JobState:
    """The job with these members: processor, when its supervisor began, state."""
    state = JobState()
    offset = itertools.count()
    for processor, since_ms, says in workers:
        life = c.SetProcessor(processor, "000001-a", processor, "h", c.ProcessorState(says), since_ms=since_ms)
        for message in (life, c.SetMember(processor, "000001-a", "h")):
            state.apply(c.Entry(next(offset), c.key_of(message), message))
    return state


@given(st.integers(1, 12), st.sets(st.integers(0, 12)))
def test_a_supervisor_ends_with_exactly_the_wanted_numbers_and_touches_no_other(number: int, present: set[int]):
    """Whatever is there: one step, and a second one has nothing to do."""
    found = f.crew(number, present, ())
    after = (present | set(found.start)) - set(found.stop)
    assert after == set(range(number))
    assert not set(found.stop) & set(range(number))
    assert not set(found.start) & present
    assert list(found.stop) == sorted(found.stop, reverse=True)
    assert list(found.start) == sorted(found.start)
    assert f.crew(number, after, ()) == f.Crew()


@given(st.integers(1, 12), st.sets(st.integers(0, 12)), st.sets(st.sampled_from(["a-0", "b-0", "c"]), min_size=1))
def test_with_workers_of_others_nobody_is_started_or_stopped(number: int, present: set[int], others: set[str]):
    """Two supervisors that both followed would start twice as many, or stop each other's share."""
    found = f.crew(number, present, others)
    assert (found.start, found.stop) == ((), ())
    assert "did not start" in found.why


def test_the_setting_comes_before_the_flag_where_it_is_nearer_or_newer():
    """An override is what the operator said last; a file is what the deployment began with."""
    for origin in ("override", "flag", "environment"):
        assert f.wanted(Resolved(3, origin, 3), 2) == 3
    for origin in ("headgate.toml", "app"):
        assert f.wanted(Resolved(3, origin, 3), 2) == 2
        assert f.wanted(Resolved(3, origin, 3), 0) == 3
    assert f.wanted(Resolved(0, "override", 0), 2) == 2
    assert f.wanted(Resolved(0, "default", 0), 0) == 0


def test_strangers_are_living_members_of_another_front_or_of_none():
    """Those that have left do not count, so a claim ends with its workers."""
    job = a_job(("a-0", 5, "joined"), ("a-1", 0, "joined"), ("b-0", 5, "joined"), ("c-0", 5, "left"))
    assert f.strangers(job, "a") == ["a-1", "b-0"]
    assert f.strangers(a_job(("a-0", 5, "joined"), ("a-1", 9, "joined")), "a") == []
    assert f.present(job) == 3


def test_a_number_that_nobody_would_follow_is_named_with_the_reason():
    """One supervisor, and no worker beside it."""
    a, other, alone = (
        c.SetProcessor(name, "000001-a", name, "h", c.ProcessorState.JOINED, since_ms=since)
        for name, since in (("a-0", 5), ("b-0", 5), ("solo", 0))
    )
    assert f.follower_problem([a]) == f.follower_problem([]) == ""
    assert "solo was not started by `headgate run --workers`" in f.follower_problem([a, alone])
    assert "2 supervisors have started workers (a, b)" in f.follower_problem([a, other])


def test_a_job_is_settled_once_its_workers_are_there_and_its_tasks_run_where_they_are_to_run():
    """A grant that was given is no task that runs, and one elsewhere is on its way."""
    job, offset = a_job(("a-0", 5, "joined"), ("a-1", 5, "joined")), itertools.count(100)

    def apply(*messages: c.Message) -> None:
        for message in messages:
            job.apply(c.Entry(next(offset), c.key_of(message), message))

    assert f.unsettled(job, 3) == "2 of 3 workers are there"
    assert f.unsettled(job, 2) == "the tasks are not placed on them yet"
    tasks = {f"Partition {n}": (StreamPartition("orders", n),) for n in range(2)}
    wanted = {"Partition 0": "a-0", "Partition 1": "a-1"}
    apply(c.SetJobModel(JobModel(tasks=tasks, wanted=wanted, processors=("a-0", "a-1"))))
    grants = [c.SetGrant(task, 1, processor, "000001-a") for task, processor in wanted.items()]
    apply(*grants)
    assert f.unsettled(job, 2) == "2 of 2 tasks do not run where they are to run: Partition 0, Partition 1"
    apply(*(c.SetTaskState(task, 1, TaskState.RUNNING) for task in tasks))
    assert f.unsettled(job, 2) == ""
    apply(c.SetJobModel(JobModel(tasks=tasks, wanted=dict.fromkeys(tasks, "a-0"), processors=("a-0", "a-1"))))
    assert f.unsettled(job, 2) == "1 of 2 tasks do not run where they are to run: Partition 1"
    apply(c.SetMember("a-1", "000001-a", "h", "for good", 60_000))
    assert f.unsettled(job, 1) == "2 of 1 workers are there; others prepare the tasks of a-1"
    apply(c.SetMember("a-1", "000001-a", "h", "for good"))
    assert f.present(job) == 1
