"""What has happened to a job, told from the records of its stream that a worker keeps."""

from __future__ import annotations

from headgate.agents.coordinator.passed import KEPT, PassedEntries
from headgate.agents.status.history import history_of
from headgate.core.coordination import messages as c

RUN = c.SetRun("r1", "d", c.RunState.RUNNING, "u")


def entries(*messages: c.Message, each_ms: int = 1000) -> list[c.Entry]:
    return [c.Entry(n, c.key_of(m), m, append_ms=1 + n * each_ms) for n, m in enumerate(messages)]


def told(*messages: c.Message) -> list[tuple[str, str, str]]:
    """Kind, what and who, newest first."""
    passed = PassedEntries()
    passed.take(entries(*messages))
    return [(one["kind"], one["what"], one["by"]) for one in history_of(passed.all())]


def test_what_changed_in_the_run_is_told_and_nothing_twice() -> None:
    """A run is written again for each seek."""
    paused = c.SetRun("r1", "d", c.RunState.RUNNING, "u", paused_job=True, paused_streams=frozenset({"orders"}))
    drains = c.SetRun("r1", "d", c.RunState.DRAINING, "u", drain="q", drain_by="ann")
    assert told(RUN, RUN, paused, RUN, drains, c.SetRun("r2", "d", c.RunState.RUNNING, "u")) == [
        ("run", "run r2 is running", ""),
        ("run", "run r1 is draining", "ann"),
        ("run", "orders goes on", ""),
        ("run", "the job goes on", ""),
        ("run", "orders was paused", ""),
        ("run", "the job was paused", ""),
        ("run", "run r1 is running", ""),
    ]


def test_grants_that_were_written_together_are_one_event() -> None:
    """Of 64 tasks, a few are named."""
    grants = [c.SetGrant(f"Partition {n}", 1, "w1", "000001-aa") for n in range(6)]
    passed = PassedEntries()
    passed.take(entries(*grants, each_ms=0))
    [one] = history_of(passed.all())
    assert one["what"] == "Partition 0, Partition 1, Partition 2, Partition 3 and 2 more to w1"


def test_requests_have_their_authors_and_answers_their_reasons() -> None:
    """Progress is no event."""
    asked = c.SetRequest("q", "seek", requested_by="ann")
    running = c.SetAnswer("q", c.AnswerState.RUNNING, progress={"done": 1})
    refused = c.SetAnswer("q", c.AnswerState.REFUSED, "no such stream")
    assert told(asked, running, c.SetAnswer("q", c.AnswerState.RUNNING, progress={"done": 2}), refused) == [
        ("request", "seek: refused", "leader"),
        ("request", "seek: running", "leader"),
        ("request", "seek was requested", "ann"),
    ]


def test_workers_leaders_failures_and_settings_are_told() -> None:
    """Of the states of tasks only failures; a worker that says more about itself has not joined again."""
    joined = c.SetProcessor("w1", "000001-aa", "p", "here", c.ProcessorState.JOINED)
    prepared = c.SetProcessor("w1", "000001-aa", "p", "here", c.ProcessorState.JOINED, prepared={"Partition 0": 1})
    config = c.SetConfig("chunk.max-records", 10, (c.Change(10, "ann", 5),))
    messages = (c.SetLeader(1, "w1", "p"), joined, prepared, c.SetTaskState("Partition 0", 1, "running"), config)
    assert told(*messages, c.SetTaskState("Partition 0", 1, "failed", "boom"), c.SetLeader(1, "", "")) == [
        ("leader", "the leader resigned", ""),
        ("failure", "Partition 0 failed", ""),
        ("configuration", "chunk.max-records = 10", "ann"),
        ("worker", "w1 joined", "w1"),
        ("leader", "w1 leads, term 1", "w1"),
    ]


def test_many_grants_do_not_displace_a_change_of_the_leader() -> None:
    """Each kind has its own bound."""
    passed = PassedEntries()
    grants = [c.SetGrant(f"Partition {n}", n, "w1", "000001-aa") for n in range(1000)]
    passed.take(entries(c.SetLeader(1, "w1", "p"), *grants))
    assert len(passed.all()) == 1 + KEPT["set-grant"]
    assert isinstance(passed.all()[0].message, c.SetLeader)
