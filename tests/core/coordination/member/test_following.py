"""Which logs a worker follows, and when it says that it is near their end: derived from the stream each time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.core.coordination import messages as c
from headgate.core.coordination.member.following import STANDBY, FollowedLogs
from headgate.core.coordination.member.protocol import Follow, Followed, FollowedLog, WriteOut
from headgate.core.coordination.state import JobState
from headgate.core.graph.model import PUT_OFF, JobModel, Preparation
from headgate.core.names import StreamPartition

MODEL = JobModel(
    term=1, version=1, run_id="r", deployment="d", tasks={"t": (StreamPartition("orders", 0),)},
    wanted={"t": "w2"}, processors=("w1", "w2"), producers={}, shared={},
)  # fmt: skip
AHEAD = {"t": Preparation("w1", 2)}
PUT_OFF_HERE = {"t": Preparation("w1", PUT_OFF)}


def job(
    *, preparing: dict[str, Preparation] | None = None, standby: str = "", wanted: str = "w2",
    run: c.RunState | None = c.RunState.RUNNING, log: bool = True, deployment: str = "d",
) -> JobState:  # fmt: skip
    """One task that `w2` runs, and whoever follows its log."""
    model = replace(
        MODEL, preparing=preparing or {}, standby={"t": standby} if standby else {}, wanted={"t": wanted},
        deployment=deployment,
    )  # fmt: skip
    messages: list[c.Message] = [c.SetJobModel(model)]
    messages += [c.SetRun("r", "d", run, "uuid")] if run is not None else []
    messages += [c.SetChangelog("t", 5)] if log else []
    return JobState().fold([c.Entry(n, c.key_of(one), one, 1_000 + n) for n, one in enumerate(messages)])


def test_what_is_prepared_here_is_followed_under_the_grant_of_its_holder() -> None:
    """And it is said once, not each time."""
    here = FollowedLogs("w1")
    assert here.orders(job(preparing=AHEAD), "") == [Follow({"t": FollowedLog(2, 5, "uuid")})]
    assert here.orders(job(preparing=AHEAD), "") == []
    assert FollowedLogs("w3").orders(job(preparing=AHEAD), "") == []


def test_a_standby_follows_whoever_holds_the_task() -> None:
    """It says nothing of being near: nobody waits for it."""
    here = FollowedLogs("w1")
    assert here.orders(job(standby="w1"), "") == [Follow({"t": FollowedLog(STANDBY, 5, "uuid")})]
    here.followed(Followed("t", STANDBY))
    assert here.prepared(job(standby="w1")) == {}
    assert here.prepared(job(standby="w1", preparing=PUT_OFF_HERE)) == {}


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(JobState(), id="nothing is known"),
        pytest.param(job(preparing=AHEAD, run=None), id="there is no run"),
        pytest.param(job(preparing=AHEAD, run=c.RunState.DRAINING), id="the run drains"),
        pytest.param(job(preparing=AHEAD, deployment="other"), id="the model is of another deployment"),
        pytest.param(job(preparing=AHEAD, log=False), id="the task has no log"),
        pytest.param(job(), id="it was withdrawn"),
        pytest.param(job(preparing=PUT_OFF_HERE), id="it was put off"),
        pytest.param(job(preparing={"t": Preparation("w3", 2)}), id="it is prepared elsewhere"),
    ],
)
def test_everything_else_ends_it(state: JobState) -> None:
    """So does leaving, and a task that is still here."""
    here = FollowedLogs("w1")
    here.orders(job(preparing=AHEAD), "")
    assert here.orders(state, "") == [Follow({})]
    assert here.orders(job(preparing=AHEAD), "SIGTERM") == []
    assert here.orders(job(preparing=AHEAD), "", here={"t"}) == []


def test_a_log_goes_on_to_be_named_until_its_task_takes_over_the_store() -> None:
    """The model wants the task here now: its preparation is over, and the store must not be closed before the task has it."""
    here = FollowedLogs("w1")
    here.orders(job(preparing=AHEAD), "")
    assert here.orders(job(wanted="w1"), "", here={"t"}) == []
    assert here.orders(job(wanted="w2"), "") == [Follow({})]


def test_near_the_end_is_said_of_one_grant() -> None:
    """A late answer of a former one says nothing; and it is withdrawn with the preparation."""
    here = FollowedLogs("w1")
    here.followed(Followed("t", 2))
    assert here.prepared(JobState()) == {}
    here.orders(job(preparing=AHEAD), "")
    here.followed(Followed("t", 1))
    assert here.prepared(job(preparing=AHEAD)) == {}
    here.followed(Followed("t", 2))
    assert here.prepared(job(preparing=AHEAD)) == {"t": 2}
    assert here.prepared(job()) == {}
    here.orders(job(preparing={"t": Preparation("w1", 3)}), "")
    assert here.prepared(job(preparing={"t": Preparation("w1", 3)})) == {}


def test_a_task_that_is_prepared_elsewhere_writes_out_its_store_once() -> None:
    """For each preparation; not where this worker prepares it, or does not have it."""
    here = FollowedLogs("w2")
    assert here.written_out(JobState(), {"t"}) == []
    assert here.written_out(job(preparing=AHEAD), set()) == []
    assert here.written_out(job(preparing=AHEAD), {"t"}) == [WriteOut(("t",))]
    assert here.written_out(job(preparing=AHEAD), {"t"}) == []
    assert here.written_out(job(preparing={"t": Preparation("w3", 2)}), {"t"}) == [WriteOut(("t",))]
    assert here.written_out(job(), {"t"}) == []
    assert FollowedLogs("w1").written_out(job(preparing=AHEAD), {"t"}) == []
    assert FollowedLogs("w2").written_out(job(preparing=PUT_OFF_HERE), {"t"}) == []
