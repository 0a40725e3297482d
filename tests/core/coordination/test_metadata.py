"""Metadata of a job: what the fold says by namespace, and the requests that writes become."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headgate.core.coordination import messages as c
from headgate.core.coordination.metadata import (
    ASSIGNMENTS,
    CONFIG,
    LOCALITY,
    REQUESTS,
    MetadataStore,
    open_requests,
    put,
    removed,
    stored,
)
from headgate.core.coordination.state import JobState
from headgate.core.coordination.wire import encode
from headgate.core.errors import DataError, SettingError
from headgate.core.graph.model import PUT_OFF, JobModel, Preparation
from headgate.core.names import StreamPartition

FIRST, SECOND = "000001-aa", "000002-bb"
TASK = "Partition 0"


def folded(*messages: c.Message) -> JobState:
    return JobState().fold(c.Entry(n, c.key_of(one), one, append_ms=1000 + n) for n, one in enumerate(messages))


MODEL = JobModel(tasks={TASK: (StreamPartition("orders", 0),)}, wanted={TASK: "w2"}, processors=("w2",))
STATE = folded(
    c.SetProcessor("w1", FIRST, "a", "rack-1", c.ProcessorState.JOINED, url="http://w1", pid=7, version="1"),
    c.SetProcessor("w2", FIRST, "b", "rack-2", c.ProcessorState.LEFT),
    c.SetMember("w1", FIRST, "rack-1"),
    c.SetJobModel(MODEL),
    c.SetGrant(TASK, 3, "w1", FIRST, "rack-9"),
    c.SetTaskState(TASK, 3, "running"),
    c.SetGrant("Partition 10", 1, "w2", FIRST, "rack-2"),
    c.SetTaskState("Partition 10", 1, "released", "moved"),
    c.SetConfig("chunk.max-records", 7),
    c.SetConfig("no.such", 1),
    c.SetRequest("u2", "drain", "r", {}, 5000, "me"),
    c.SetRequest("u1", "pause", "", {"stream": "orders"}, 5000, "me"),
    c.SetAnswer("u1", "refused", "no live run", {"a": 1}),
    c.SetAnswer("u0", "done"),
)


def test_overrides_that_count_are_config() -> None:
    assert stored(STATE, CONFIG) == {"chunk.max-records": 7}


def test_locality_is_of_those_that_have_not_left() -> None:
    """With the incarnation that lives, and the tasks that it holds."""
    assert stored(STATE, LOCALITY) == {
        "w1": {
            "processor": "w1",
            "incarnation": FIRST,
            "process": "a",
            "state": c.ProcessorState.JOINED,
            "counts": True,
            "location": "rack-1",
            "url": "http://w1",
            "pid": 7,
            "version": "1",
            "tasks": [TASK],
        }
    }


def test_a_worker_that_is_dismissed_does_not_count() -> None:
    state = folded(
        c.SetProcessor("w1", FIRST, "a", "here", c.ProcessorState.JOINED), c.SetMember("w1", FIRST, "here", "stopped")
    )
    assert stored(state, LOCALITY)["w1"]["counts"] is False


def test_one_that_is_dismissed_and_works_on_counts_until_it_leaves() -> None:
    worker = c.SetProcessor("w1", FIRST, "a", "here", c.ProcessorState.JOINED)
    state = folded(worker, c.SetMember("w1", FIRST, "here", "stopped", 60_000))
    assert stored(state, LOCALITY)["w1"]["counts"] is True


def test_assignments_say_who_runs_a_task_who_should_and_where_its_store_lies() -> None:
    """Also of tasks that have run and are in no model any more."""
    found = stored(STATE, ASSIGNMENTS)
    assert list(found) == [TASK, "Partition 10"]
    assert found[TASK] == {
        "task": TASK,
        "worker": "w1",
        "wanted": "w2",
        "preparing": None,
        "standby": None,
        "grant": 3,
        "said": "running",
        "why": "",
        "location": "rack-1",
    }
    gone = found["Partition 10"]
    assert (gone["worker"], gone["said"], gone["why"], gone["location"]) == (None, "released", "moved", "rack-2")


@pytest.mark.parametrize(("grant", "shown"), [(3, "w2"), (PUT_OFF, None)])
def test_a_preparation_that_is_put_off_is_not_shown_as_under_way(grant: int, shown: str | None) -> None:
    """No one follows the log of a task while its run is stopped."""
    ahead = replace(MODEL, wanted={TASK: "w1"}, processors=("w1", "w2"), preparing={TASK: Preparation("w2", grant)})
    found = stored(folded(c.SetJobModel(ahead)), ASSIGNMENTS)[TASK]
    assert (found["wanted"], found["preparing"]) == ("w1", shown)


def test_requests_say_what_has_become_of_them() -> None:
    """In the order in which they were written. Whether one has expired the leader says, not the clock of the machine that lists it."""
    found = stored(STATE, REQUESTS)
    assert list(found) == ["u2", "u1", "u0"]
    assert (found["u2"]["state"], found["u2"]["not_after_ms"]) == ("written", 5000)
    assert found["u1"] == {
        "request": "u1",
        "verb": "pause",
        "arguments": {"stream": "orders"},
        "run": None,
        "by": "me",
        "state": "refused",
        "why": "no live run",
        "progress": {"a": 1},
        "written_ms": 1011,
        "not_after_ms": None,
    }
    answered = found["u0"]
    assert (answered["state"], answered["verb"], answered["run"], answered["written_ms"]) == ("done", None, None, None)
    assert [one["request"] for one in open_requests(STATE)] == ["u2"]


@pytest.mark.parametrize("namespace", [CONFIG, LOCALITY, ASSIGNMENTS, REQUESTS])
def test_a_job_that_never_ran_has_none(namespace: str) -> None:
    assert stored(JobState(), namespace) == {}


def test_writes_become_requests() -> None:
    asked: list[c.SetRequest] = []
    store = MetadataStore(lambda: STATE, asked.append)
    store.put(CONFIG, "chunk.max-records", 10)
    store.remove(CONFIG, "chunk.max-records")
    store.put(REQUESTS, "nightly", {"verb": "drain", "run": "r7"})
    store.put(REQUESTS, "still", {"verb": "pause", "run": None, "arguments": {"stream": "orders"}})
    store.remove(REQUESTS, "nightly")
    assert asked == [
        c.SetRequest("", "set-config", arguments={"setting": "chunk.max-records", "value": 10}),
        c.SetRequest("", "unset-config", arguments={"setting": "chunk.max-records"}),
        c.SetRequest("nightly", "drain", "r7"),
        c.SetRequest("still", "pause", arguments={"stream": "orders"}),
        c.SetRequest("", "withdraw", arguments={"request": "nightly"}),
    ]
    assert store.get(CONFIG, "chunk.max-records") == 7
    assert store.get(CONFIG, "commit.interval") is None


@pytest.mark.parametrize(
    ("namespace", "says", "remedy"),
    [
        (LOCALITY, "'locality' is written only by a worker, about itself", "headgate stop JOB --worker P"),
        (ASSIGNMENTS, "'assignments' is written only by the leader", "headgate move JOB TASK --to P"),
        ("confg", "there is no namespace 'confg'", "did you mean 'config'?"),
    ],
)
def test_what_no_one_may_write_is_refused_with_what_does_it(namespace: str, says: str, remedy: str) -> None:
    for write in (lambda: put(namespace, "x", {}), lambda: removed(namespace, "x")):
        with pytest.raises(DataError, match=says) as told:
            write()
        assert remedy in told.value.remedy


def test_reading_a_namespace_that_is_none_folds_nothing() -> None:
    def never() -> Any:
        raise AssertionError("nobody asked for it")

    store = MetadataStore(never, never)
    with pytest.raises(DataError, match="there is no namespace 'tables'"):
        store.all("tables")


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("", {"verb": "drain"}, "it needs an id"),
        ("u", "drain", "unknown request ''"),
        ("u", {"verb": "drian"}, "unknown request 'drian'"),
        ("u", {"verb": "drain", "runs": "r"}, "it has no field 'runs'"),
        ("u", {"verb": 7}, "are strings"),
        ("u", {"verb": "drain", "run": 7}, "are strings"),
        ("u", {"verb": "drain", "arguments": [1]}, "is an object"),
        ("u", {"verb": "move", "arguments": {"task": "x"}}, "move needs 'to'"),
    ],
)
def test_what_is_no_request_is_refused(key: str, value: Any, says: str) -> None:
    with pytest.raises(DataError, match=f"not a request: .*{says}"):
        put(REQUESTS, key, value)


@pytest.mark.parametrize(("setting", "value"), [("chunk.max-record", 1), ("chunk.max-records", "many")])
def test_a_setting_that_is_none_is_refused_before_anyone_is_asked(setting: str, value: Any) -> None:
    with pytest.raises(SettingError, match=setting):
        put(CONFIG, setting, value)


SECRETS = [
    ("spark.remote", "sc://h/;token=hunter2"),
    ("spark.hadoop.fs.s3a.secret.key", "hunter2"),
    ("spark.driver.extraJavaOptions", "-Dx.password=hunter2"),
    ("web.token", "hunter2"),
]


@pytest.mark.parametrize(("name", "value"), SECRETS)
def test_a_secret_becomes_no_request(name: str, value: str) -> None:
    """It stood in the request, in clear and for ever, before the leader refused it."""
    written: list[bytes] = []

    def ask(request: c.SetRequest) -> None:
        written.extend(encode(request))

    store = MetadataStore(JobState, ask)
    store.put("config", "chunk.max-records", 10)
    with pytest.raises(SettingError, match="never written to a topic") as error:
        store.put("config", name, value)
    assert "hunter2" not in str(error.value)
    assert "each worker" in error.value.remedy
    with pytest.raises(SettingError, match="never written to a topic") as error:
        store.put("requests", "r1", {"verb": "set-config", "arguments": {"setting": name, "value": value}})
    assert "hunter2" not in str(error.value)
    assert (len(written), b"hunter2" in b"".join(written)) == (2, False)
