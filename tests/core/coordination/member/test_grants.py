"""What a member tells its tasks, and what it says about them: every state of a grant against every state of the job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.core import orders as o
from headgate.core.coordination import messages as c
from headgate.core.coordination.member.grants import GrantPhase, Tasks
from headgate.core.coordination.member.protocol import Probe, Probed, SendOrder
from headgate.core.coordination.messages import Entry, key_of
from headgate.core.coordination.state import NEVER_RAN, JobState
from headgate.core.graph.model import JobModel
from headgate.core.names import StreamPartition

INC = "000001-a"
RUN = c.SetRun("r1", "d1", "running", "u")
MODEL = JobModel(
    run_id="r1", deployment="d1", tasks={"t": (StreamPartition("s", 0),)}, wanted={"t": "p1"}, processors=("p1",)
)
GRANT = c.SetGrant("t", 3, "p1", INC)
OUT = StreamPartition("out", 0)


class Scene:
    """A job state and the bookkeeping of one incarnation."""

    def __init__(self, *messages: c.Message) -> None:
        self.job = JobState()
        self.tasks = Tasks("p1", 5.0)
        self.tasks.incarnation = INC
        self.say(*(messages or (RUN, c.SetJobModel(MODEL), c.SetChangelog("t", 7), GRANT)))

    def say(self, *messages: c.Message) -> None:
        for message in messages:
            self.job.apply(Entry(self.job.position, key_of(message), message))

    def told(self, going: str = "", mono: float = 0.0, *, sure: bool = True) -> list[o.Order]:
        return [tell.order for tell in self.tasks.orders(self.job, going, mono, sure=sure)]


def test_a_grant_starts_its_task_once():
    scene = Scene()
    assert scene.told() == [o.Start("t", 3, scene.job.run_view(), 7)]
    assert scene.told() == []
    assert scene.tasks.not_ready()
    scene.tasks.reported(o.TaskReported("t", 3, o.TaskState.RUNNING))
    assert not scene.tasks.not_ready()
    assert not scene.tasks.all_over()
    assert scene.tasks.wanted(scene.job) == [c.SetTaskState("t", 3, "running")]
    scene.say(c.SetTaskState("t", 3, "running"))
    assert scene.tasks.wanted(scene.job) == []


def test_nothing_starts_before_it_is_sure():
    """And everything else happens all the same: a release, and what must be abandoned."""
    scene = Scene()
    assert scene.told(sure=False) == []
    assert scene.tasks.eager
    assert len(scene.told()) == 1
    assert not scene.tasks.eager
    scene.say(c.SetGrant("t", 4, "p2", "000001-other"))
    assert scene.told(sure=False) == [o.Abandon("the task was granted to another worker")]
    scene = Scene()
    assert scene.told("leaving", sure=False) == []
    assert not scene.tasks.eager


def test_it_waits_for_its_log_partition():
    scene = Scene(RUN, c.SetJobModel(MODEL), GRANT)
    assert scene.told() == []
    assert scene.tasks.grants["t"].phase == GrantPhase.HELD_BACK
    scene.say(c.SetChangelog("t", 0))
    assert len(scene.told()) == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (c.SetRun("r1", "d1", "stopping", "u"), "stop"),
        (c.SetRun("r1", "d1", "draining", "u", "q", True), "the run closes"),
        (c.SetRun("r1", "d1", "drained", "u", "q"), "the run is closed"),
        (c.SetRun("r2", "d1", "running", "u"), "moved"),
        (c.SetRun("r1", "d2", "running", "u"), "moved"),
        (c.SetJobModel(JobModel(run_id="r1", deployment="d1", tasks=MODEL.tasks, wanted={"t": "p2"})), "moved"),
    ],
)
def test_what_releases_a_task(change: c.Message, why: str):
    """And a grant that is not used for that reason is released without ever being started."""
    scene = Scene()
    scene.told()
    scene.say(change)
    told = scene.told()
    assert told[-1] == o.Release(why)
    assert scene.tasks.grants["t"].phase == GrantPhase.RELEASING
    assert scene.told() == []
    scene.tasks.reported(o.TaskReported("t", 3, o.TaskState.RELEASED))
    assert scene.tasks.all_over()
    scene.tasks.reported(o.TaskReported("t", 3, o.TaskState.RUNNING))
    assert scene.tasks.wanted(scene.job) == [c.SetTaskState("t", 3, "released")]

    unused = Scene()
    unused.say(change)
    assert unused.told() == []
    assert unused.tasks.wanted(unused.job) == [c.SetTaskState("t", 3, "released", NEVER_RAN)]
    assert unused.tasks.grants["t"].phase == GrantPhase.OVER


def test_going_releases_everything():
    scene = Scene()
    scene.told()
    assert scene.told("SIGTERM") == [o.Release("SIGTERM")]


@pytest.mark.parametrize(
    "grant", [c.SetGrant("t", 4, "p2", INC), c.SetGrant("t", 4, "p1", "000002-b"), c.SetGrant("t", 5, "p1", INC)]
)
def test_a_grant_that_is_someone_elses_is_abandoned(grant: c.SetGrant):
    """And a newer one of our own starts anew."""
    scene = Scene()
    scene.told()
    scene.say(grant)
    told = scene.told()
    assert told[0] == o.Abandon("the task was granted to another worker")
    assert (len(told) == 2) == (grant.processor == "p1" and grant.incarnation == INC)


def test_a_grant_that_is_deleted_stands_and_one_that_was_over_is_only_forgotten():
    """Nobody may delete it, so whoever did is not heard; two would run the task."""
    scene = Scene()
    scene.told()
    scene.job.apply(Entry(99, key_of(GRANT), None))
    assert scene.told() == []
    over = Scene()
    over.told("bye")
    over.say(c.SetGrant("t", 4, "p2", INC))
    assert over.told() == []
    assert over.tasks.grants == {}


def test_one_that_the_stream_calls_released_is_not_started_again():
    scene = Scene()
    scene.say(c.SetTaskState("t", 3, "released"))
    assert scene.told() == []
    assert scene.tasks.grants == {}


def test_words_about_other_grants_change_nothing():
    scene = Scene()
    scene.told()
    scene.tasks.reported(o.TaskReported("t", 2, o.TaskState.RELEASED))
    scene.tasks.reported(o.TaskReported("other", 3, o.TaskState.RELEASED))
    scene.tasks.sought(o.SeekApplied("other", "q:0"))
    assert scene.tasks.grants["t"].phase == GrantPhase.STARTED
    assert scene.tasks.wanted(scene.job) == []


def test_tasks_hear_of_the_run_when_it_changes():
    scene = Scene()
    scene.told()
    scene.say(c.SetRun("r1", "d1", "running", "u", paused_job=True))
    assert scene.told() == [o.RunChanged(scene.job.run_view())]
    assert scene.told() == []


def test_a_seek_is_told_once_and_its_effect_said_while_the_run_asks():
    scene = Scene()
    scene.told()
    request = c.SeekRequest("q:0", "q", "s", 0, "oldest")
    other = c.SeekRequest("q:1", "q", "s", 1, "oldest")
    scene.say(c.SetRun("r1", "d1", "running", "u", seeks=(request, other)))
    assert scene.told() == [o.Seek("q:0", "s", 0, "oldest")]
    assert scene.told() == []
    scene.tasks.reported(o.TaskReported("t", 3, o.TaskState.RUNNING))
    scene.tasks.sought(o.SeekApplied("t", "q:0"))
    scene.tasks.sought(o.SeekApplied("t", "q:0"))
    assert scene.tasks.wanted(scene.job) == [c.SetTaskState("t", 3, "running", "", ("q:0",))]
    scene.tasks.sought(o.SeekApplied("t", "q:0", "too far"))
    assert scene.tasks.wanted(scene.job)[0].applied == ("q:0",)
    assert scene.tasks.wanted(scene.job)[0].refused == {"q:0": "too far"}
    scene.say(RUN)
    assert scene.tasks.wanted(scene.job)[0].applied == ()


def test_a_seek_stands_behind_the_start():
    """So the first record that it reads is the right one."""
    scene = Scene()
    scene.say(c.SetRun("r1", "d1", "running", "u", seeks=(c.SeekRequest("q:0", "q", "s", 0, 5),)))
    assert [type(order) for order in scene.told()] == [o.Start, o.Seek]


def test_a_lost_incarnation_releases_nothing():
    """Its last transaction may still be open: only a fence frees its grants."""
    scene = Scene()
    scene.told()
    assert scene.tasks.lost() == [SendOrder("t", o.Abandon("fenced"))]
    assert scene.told("leaving") == []
    assert scene.tasks.wanted(scene.job) == []
    assert scene.tasks.all_over()


def test_a_task_whose_target_is_broken_waits_until_the_target_can_be_written():
    """It says `failed`, with the reason, in whatever incarnation; the target is asked, and the task is started on a good answer only."""
    scene = Scene()
    scene.told()
    scene.tasks.lost((("t", "no such topic"),), 100.0, OUT)
    scene.tasks.incarnation = INC
    scene.say(c.SetGrant("t", 4, "p1", INC))
    assert scene.told(mono=100.0) == []
    assert scene.tasks.wanted(scene.job) == [c.SetTaskState("t", 4, "failed", "no such topic")]
    assert scene.tasks.not_ready()
    assert scene.tasks.probes(104.9) == []
    assert scene.tasks.wake() == 105.0
    assert scene.tasks.probes(105.0) == [Probe(OUT)]
    assert scene.told(mono=105.0) == []
    assert scene.tasks.wake() is None
    scene.tasks.targets.probed(Probed(OUT, "still gone"), 105.1)
    assert scene.told(mono=106.0) == []
    scene.tasks.lost((), 107.0)  # the incarnation ends for another reason: what was broken is still known
    scene.tasks.incarnation = INC
    scene.say(c.SetGrant("t", 5, "p1", INC))
    assert scene.told(mono=107.0) == []
    assert scene.tasks.probes(115.1) == [Probe(OUT)]
    scene.tasks.targets.probed(Probed(OUT), 115.2)
    assert [type(order) for order in scene.told(mono=115.2)] == [o.Start]
    assert scene.tasks.wake() is None


def test_a_secret_in_what_user_code_raises_is_not_written_to_the_stream():
    """The stream keeps it, and everybody who may look at the job reads it."""
    scene = Scene()
    scene.told()
    scene.tasks.reported(
        o.TaskReported("t", 3, o.TaskState.FAILED, "no answer of postgres://me:hunter2@db/x, password=hunter2")
    )
    (said,) = scene.tasks.wanted(scene.job)
    assert said.why == "no answer of postgres://me:***@db/x, password=***"


def test_a_task_that_failed_by_itself_is_started_after_a_pause():
    scene = Scene()
    scene.told()
    scene.tasks.lost((("t", "user code"),), 100.0)
    scene.tasks.incarnation = INC
    scene.say(c.SetGrant("t", 4, "p1", INC))
    assert scene.told(mono=100.0) == []
    assert scene.tasks.wake() == 105.0
    assert scene.tasks.probes(105.0) == []
    assert [type(order) for order in scene.told(mono=105.0)] == [o.Start]


def test_a_task_whose_disk_was_full_is_started_again_under_its_grant_and_never_given_up():
    """Without this it stood still until somebody restarted the worker, long after the disk had room again."""
    scene, now = Scene(), 0.0
    for pause in (5.0, 10.0, 20.0, 40.0, 80.0, 150.0, 150.0):
        assert [type(order) for order in scene.told(mono=now)] == [o.Start]
        scene.tasks.reported(o.TaskReported("t", 3, o.TaskState.FAILED, "disk full", gone=True, passing=True), now)
        assert scene.told(mono=now) == []
        assert scene.tasks.wanted(scene.job) == [c.SetTaskState("t", 3, "failed", "disk full")]
        assert scene.tasks.wake() == now + pause
        now += pause
    assert [type(order) for order in scene.told(mono=now)] == [o.Start]


def test_a_task_whose_state_does_not_fit_is_gone_until_someone_seeks():
    """Nothing that passes by itself is wrong: a bounded run would try for ever, and never exit."""
    scene = Scene(replace(RUN, untils={"s": (9,)}), c.SetJobModel(MODEL), c.SetChangelog("t", 7), GRANT)
    scene.told()
    scene.tasks.reported(o.TaskReported("t", 3, o.TaskState.FAILED, "its schema differs", gone=True), 1.0)
    assert scene.told(mono=1e9) == []
    assert scene.tasks.wake() is None
    assert scene.tasks.wanted(scene.job) == [c.SetTaskState("t", 3, "failed", "its schema differs", (), True)]
    scene.say(replace(RUN, seeks=(c.SeekRequest("s1", "t", "s", 0, "newest"),)))
    assert [type(order) for order in scene.told(mono=1e9)] == [o.Start, o.Seek]


def test_a_task_that_is_gone_when_it_should_release_has_released():
    """Its order to release met nobody: the worker was fenced for it."""
    scene = Scene()
    scene.told()
    assert scene.told("SIGTERM") == [o.Release("SIGTERM")]
    scene.tasks.reported(o.TaskReported("t", 3, o.TaskState.FAILED, "disk full", gone=True, passing=True), 1.0)
    assert scene.tasks.wanted(scene.job) == [c.SetTaskState("t", 3, "released", "disk full")]
    assert scene.tasks.all_over()
    held = Scene()
    held.told()
    held.tasks.reported(o.TaskReported("t", 3, o.TaskState.FAILED, "disk full", gone=True, passing=True), 1.0)
    assert held.told("SIGTERM", 1.0) == []
    assert held.tasks.all_over()


def test_a_task_that_had_failed_is_released_with_the_reason():
    """Its worker left, and it was said that it never ran: nothing told why the partition was not read."""
    scene = Scene()
    scene.told()
    scene.tasks.reported(o.TaskReported("t", 3, o.TaskState.FAILED, "the disk is full", gone=True))
    assert scene.told(going="leaving") == []
    assert scene.tasks.wanted(scene.job) == [c.SetTaskState("t", 3, "released", "the disk is full")]


def test_without_a_run_nothing_runs():
    scene = Scene(GRANT)
    assert scene.told() == []
    assert scene.tasks.wanted(scene.job) == [c.SetTaskState("t", 3, "released", NEVER_RAN)]


def seek_request(n: int) -> c.SeekRequest:
    return c.SeekRequest(f"u{n}:0", f"u{n}", "s", 0, "oldest", None)


def test_what_was_refused_is_told_to_no_one_again():
    """It would be carried out after its operator was told that it is not."""
    scene = Scene()
    scene.say(replace(RUN, seeks=(seek_request(1), seek_request(2))))
    assert len(scene.told()) == 3
    scene.tasks.sought(o.SeekApplied("t", "u1:0", "no such offset"))
    scene.tasks.sought(o.SeekApplied("t", "u2:0"))
    scene.tasks.reported(o.TaskReported("t", 3, o.TaskState.FAILED, "disk full", gone=True, passing=True), 1.0)
    assert [type(one) for one in scene.told(mono=100.0)] == [o.Start]
    scene = Scene()
    scene.say(c.SetTaskState("t", 2, "released", "", ("u2:0",), refused={"u1:0": "no such offset"}))
    scene.say(replace(RUN, seeks=(seek_request(1), seek_request(2))))
    assert [one.request for one in scene.told() if isinstance(one, o.Seek)] == ["u2:0"]


def test_seeks_that_left_the_run_are_forgotten():
    scene = Scene()
    scene.say(replace(RUN, seeks=(seek_request(1),)))
    scene.told()
    assert scene.tasks.grants["t"].delivered == {"u1:0"}
    scene.say(RUN)
    scene.told()
    assert scene.tasks.grants["t"].delivered == set()


def test_a_task_that_comes_back_is_tried_though_it_was_given_up_before():
    scene = Scene()
    scene.told()
    scene.tasks.reported(o.TaskReported("t", 3, o.TaskState.FAILED, "its schema differs", gone=True), 1.0)
    assert scene.told(mono=100.0) == []
    scene.say(c.SetGrant("t", 4, "p2", "000001-other"))
    assert scene.told(mono=100.0) == []
    scene.say(replace(GRANT, grant=5))
    assert [type(one) for one in scene.told(mono=101.0)] == [o.Start]
