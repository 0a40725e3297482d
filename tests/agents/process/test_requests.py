"""What an answer means to whoever asked: done, refused, failed, too late, nobody there."""

from __future__ import annotations

import asyncio

import pytest

import headgate as hg
from headgate.agents.cli.group import exit_code
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.process import requests as a
from headgate.core.coordination import messages as c
from headgate.core.coordination import requests as r
from headgate.core.coordination.state import JobState
from headgate.core.errors import DeadlinePassed, NotFound, SettingError
from headgate.core.graph.model import JobModel, Preparation
from headgate.core.names import JobName, StreamPartition, Topics

JOB = JobName("sales")


def state(*messages: c.Message) -> JobState:
    return JobState().fold(c.Entry(n, c.key_of(m), m) for n, m in enumerate(messages))


def run(of: str) -> c.SetRun:
    return c.SetRun("r1", "d", of, "u")


def request(verb: str, **more) -> c.SetRequest:
    return c.SetRequest("u1", verb, **more)


def test_a_final_answer_is_a_value_or_the_error_that_it_means() -> None:
    """Exit codes follow from the class: refused and failed 1, no live run 4."""
    live = state(run("running"))
    assert a.outcome(request("pause"), c.SetAnswer("u1", "done"), live, JOB) == a.Outcome(
        "u1", "done", "", {}, "r1", "running"
    )
    with pytest.raises(a.Refused, match="drain of 'sales' was refused: other run"):
        a.outcome(request("drain"), c.SetAnswer("u1", "refused", "other run"), live, JOB)
    with pytest.raises(a.AnsweredFailed, match="Partition 3: boom") as failed:
        a.outcome(request("drain"), c.SetAnswer("u1", "failed", "Partition 3: boom"), live, JOB)
    with pytest.raises(NotFound, match="run r1 is drained") as absent:
        a.outcome(
            request("drain"),
            c.SetAnswer("u1", "refused", "no live run", reason=c.Reason.NO_LIVE_RUN),
            state(run("drained")),
            JOB,
        )
    assert [exit_code(one.value) for one in (failed, absent)] == [1, 4]


@pytest.mark.parametrize("verb", ["drain", "stop", "pause", "resume", "move", "grow"])
def test_what_needs_a_live_run_is_not_written_when_there_is_none(verb: str) -> None:
    """Nobody may be there to refuse it, so it is refused here."""
    for found in (state(), state(run("stopped")), state(run("ended"))):
        with pytest.raises(NotFound):
            a.absent(found, a.Request(verb), JOB)
    a.absent(state(run("draining")), a.Request(verb), JOB)
    a.absent(state(), a.Request(verb, run_id="tonight"), JOB)


def test_a_start_and_a_worker_that_goes_need_no_live_run() -> None:
    """`start` begins one; `stop --worker P --for-good` is about a processor."""
    a.absent(state(run("stopped")), a.Request("start"), JOB)
    a.absent(state(run("stopped")), a.Request("stop", arguments={"worker": "w1"}), JOB)


GRANTS = (
    run("draining"),
    c.SetGrant("Partition 0", 1, "w1", "000001-aa"),
    c.SetGrant("Partition 1", 1, "w2", "000001-bb"),
    c.SetTaskState("Partition 0", 1, "drained"),
    c.SetTaskState("Partition 1", 1, "running"),
    c.SetAnswer("u1", "running"),
)


def test_a_deadline_lists_the_tasks_that_are_not_drained() -> None:
    """And not those that are."""
    assert a.missing(state(*GRANTS), request("drain")) == ["Partition 1 on w2: running, not drained"]


def test_a_deadline_of_a_stop_lists_what_is_not_released() -> None:
    """Of the whole job, or of the one worker."""
    assert a.missing(state(*GRANTS), request("stop")) == [
        "Partition 0 on w1: drained, not released",
        "Partition 1 on w2: running, not released",
    ]
    assert a.missing(state(*GRANTS), request("stop", arguments={"worker": "w1"})) == [
        "Partition 0 on w1: drained, not released"
    ]


def test_a_deadline_of_a_worker_that_works_on_names_who_prepares_its_tasks() -> None:
    """And what else it holds."""
    model = JobModel(wanted={"Partition 0": "w1"}, preparing={"Partition 0": Preparation("w2", 1)})
    found = state(*GRANTS, c.SetTaskState("Partition 0", 1, "running"), c.SetJobModel(model))
    assert a.missing(found, request("stop", arguments={"worker": "w1"})) == [
        "Partition 0 on w1: running, until w2 has prepared it"
    ]


def test_a_deadline_without_any_answer_says_who_should_have_given_it() -> None:
    """The leader by name, or that nobody leads."""
    assert a.missing(state(run("running"), c.SetLeader(3, "w1", "p1")), request("drain")) == [
        "it has not been accepted yet: the leader, w1, has not answered"
    ]
    assert a.missing(state(), request("start")) == [
        "it has not been accepted yet: there is no leader; a worker has not answered"
    ]


def test_a_deadline_that_passes_is_exit_code_three() -> None:
    """Between failed and not found."""
    assert exit_code(DeadlinePassed("too late")) == 3


MODEL = c.SetJobModel(
    JobModel(
        tasks={f"Partition {n}": (StreamPartition("orders", n),) for n in range(2)}, run_id="r1", version=1, term=1
    )
)
JOINED = (
    c.SetProcessor("w1", "000001-aa", "p1", "here", c.ProcessorState.JOINED),
    c.SetMember("w1", "000001-aa", "here"),
)


@pytest.mark.parametrize(
    ("verb", "arguments", "remedy"),
    [
        ("move", {"task": "Partition 9", "to": "w1"}, "there are 'Partition 0', 'Partition 1'"),
        ("move", {"task": "partition 1", "to": "w1"}, "did you mean 'Partition 1'?"),
        ("move", {"task": "zzz", "to": "w1"}, "there are 'Partition 0', 'Partition 1'"),
        ("move", {"task": "Partition 0", "to": "worker"}, "there is 'w1'"),
        ("stop", {"worker": "w2"}, "there is 'w1'"),
        ("seek", {"stream": "oders", "to": "oldest"}, "did you mean 'orders'?"),
        ("pause", {"stream": "orders"}, ""),
    ],
)
def test_a_refused_request_names_what_was_probably_meant(verb: str, arguments: dict, remedy: str) -> None:
    """Tasks, workers and streams are known here; a name that is right brings no advice."""
    with pytest.raises(a.Refused) as refused:
        a.outcome(
            request(verb, arguments=arguments),
            c.SetAnswer("u1", "refused", "no"),
            state(run("running"), MODEL, *JOINED),
            JOB,
        )
    assert refused.value.remedy == remedy


def test_a_request_that_an_older_leader_does_not_know_says_whom_to_upgrade() -> None:
    """The list of its verbs says what it can do; the one that was asked for is right."""
    with pytest.raises(a.Refused) as refused:
        a.outcome(
            request("grow"), c.SetAnswer("u1", "refused", "unknown request 'grow'; one of start, stop"), state(), JOB
        )
    assert "unknown request 'grow'" in refused.value.what
    assert "upgrade the workers" in refused.value.remedy


def test_a_deadline_of_grow_lists_what_does_not_run_yet() -> None:
    """With what it has got, as far as the caller can see."""
    found = state(*GRANTS, c.SetTaskState("Partition 0", 1, "releasing"))
    assert a.missing(found, request("grow")) == ["Partition 0 on w1: releasing"]


def test_a_request_for_another_run_is_told_the_live_one() -> None:
    """And nothing, when there is none."""
    for found, remedy in ((run("running"), "use --run-id r1, or omit it"), (run("ended"), "")):
        with pytest.raises(a.Refused) as refused:
            a.outcome(
                request("drain"),
                c.SetAnswer("u1", "refused", "other run: x", reason=c.Reason.OTHER_RUN),
                state(found),
                JOB,
            )
        assert refused.value.remedy == remedy


def test_whoever_helps_is_named_when_no_one_has_taken_a_request_up() -> None:
    """A worker that is there may be stuck; where none is, one must be started. A request for a run to come stays."""
    there, nobody = state(run("running"), *JOINED), state(run("stopped"))
    later = request("start", not_after=1)
    assert a.unheard(there, later, JOB) == "is a worker alive? `headgate status sales`; the request has expired"
    assert a.unheard(nobody, later, JOB).startswith("no worker is running: start one with `headgate run MODULE:app`")
    assert a.unheard(nobody, request("drain"), JOB).endswith("`headgate requests withdraw sales u1` withdraws it")


@pytest.mark.parametrize(
    "call",
    [
        lambda: hg.drain("sales", bootstrap="127.0.0.1:1"),
        lambda: hg.metadata("sales", bootstrap="127.0.0.1:1").all("config"),
        lambda: hg.metadata("sales", bootstrap="127.0.0.1:1").put("requests", "x", {"verb": "drain"}),
    ],
)
def test_a_call_that_would_block_an_event_loop_is_refused(call) -> None:
    """`asyncio.run() cannot be called from a running event loop` said neither why nor what to do."""

    async def inside() -> None:
        call()

    with pytest.raises(hg.HeadgateError, match="an event loop runs in this thread") as told:
        asyncio.run(inside())
    assert "asyncio.to_thread" in told.value.remedy


def test_a_secret_is_refused_before_anything_is_written() -> None:
    """Whoever asks: the last place before the stream asks again. No broker is there, and none is needed."""
    request = a.Request(r.SET_CONFIG, arguments={"setting": "spark.remote", "value": "sc://h/;token=hunter2"})
    with pytest.raises(SettingError, match="never written to a topic") as error:
        asyncio.run(a.ask(ClientSettings("127.0.0.1:1"), Topics(JOB), request, timeout_s=0.1))
    assert "hunter2" not in str(error.value)
