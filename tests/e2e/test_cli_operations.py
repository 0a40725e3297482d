"""The command line against a running job: what operators see and type, through real processes, with exit codes and schemas.

One worker runs for the whole module; the verbs are asked in any order. What ends a run has a module of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import orjson
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from headgate.agents.kafka.plainwrite import Plain, put
from headgate.agents.kafka.scan import scan_topic
from headgate.agents.kafka.settings import ClientSettings
from headgate.core.names import JobName, Topics

from .. import forked
from .schemas import schema, wrong

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SOURCE = """
import headgate as hg
app = hg.App("JOB", settings={"chunk.max-records": 777})
orders = app.input("JOB-orders", on_bad_data="dead_letter")
orders.repartition("user").agg(n=hg.count(), total=hg.sum("amount"), name="totals").to("JOB-out")
"""
PASSWORD = "planted-hunter2-planted"
QUICK = {
    "placement.debounce": "20ms",
    "commit.interval": "50ms",
    "heartbeat.interval": "200ms",
    "intermediate.trim": "false",
}
WAIT_S = 200.0
GIVEN = ("accepted", "done")
"""Answers to a request that nobody waited for."""


class Headgate:
    """One job, and the command line about it."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.bootstrap = bootstrap
        self.directory = directory
        self.job = f"cli-{uuid.uuid4().hex[:8]}"
        self.log = directory / "worker.log"
        self.worker: forked.Forked | None = None
        (directory / "cli_job.py").write_text(SOURCE.replace("JOB", self.job))
        self.environment = {
            **os.environ,
            "HEADGATE_BOOTSTRAP": bootstrap,
            "HEADGATE_CLIENT_SASL_PASSWORD": PASSWORD,
            "HEADGATE_STATE_DIR": str(directory / "state"),
        }

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "headgate.agents.cli", *words]

    def run(self, *words: str, code: int = 0) -> str:
        """Standard output of a command; the exit code is asserted."""
        done = forked.run(words, env=self.environment, cwd=self.directory, timeout=180)
        assert done.returncode == code, f"{words} ended with {done.returncode}: {done.stdout}\n{done.stderr}"
        assert PASSWORD not in done.stdout + done.stderr
        self.said = done.stderr
        return done.stdout

    def json(self, name: str, *words: str) -> Any:
        """A verb's document, checked against its schema."""
        document = json.loads(self.run(*words, "-o", "json"))
        assert wrong(document, schema(name)) == []
        return document

    def start(self, *words: str) -> None:
        """A worker in a process of its own."""
        settings = [word for name, value in QUICK.items() for word in ("--set", f"{name}={value}")]
        with self.log.open("ab") as out:
            self.worker = forked.popen(
                ["run", "cli_job:app", "--processor-id", "w1", "--log-format", "json", *settings, *words],
                env=self.environment,
                cwd=self.directory,
                stdout=out,
            )

    def ended(self) -> int:
        assert self.worker is not None
        try:
            return self.worker.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            stream = self.run("coordinator", "cat", self.job)
            raise AssertionError(f"{self.log.read_text()[-4000:]}\n{stream[-6000:]}") from None

    def end(self) -> None:
        """As kill -9 does, if it still runs."""
        if self.worker is not None and self.worker.poll() is None:
            self.worker.kill()
            self.worker.wait(60)

    def until(self, true: Any, what: str) -> Any:
        """Wait for a cause in another process. To ask with a command costs a process, so the pause is as long as the question."""
        give_up = (asked := time.monotonic()) + WAIT_S
        while not (found := true()):
            pause = max(0.1, time.monotonic() - asked)
            assert time.monotonic() < give_up, f"{what} did not come true:\n{self.log.read_text()[-3000:]}"
            if self.worker is not None and self.worker.poll() is not None:
                found = true()  # it may have been the last thing that it did
                assert found, self.log.read_text()[-3000:]
                return found
            time.sleep(pause)
            asked = time.monotonic()
        return found

    def running(self) -> dict[str, Any]:
        """The status once every task runs and nothing waits."""

        def look() -> Any:
            if not self.ready():
                return None
            found = self.json("status", "status", self.job)
            tasks = found["tasks"]
            done = len(tasks) == 2 and all(t["state"] == "running" for t in tasks)
            return found if done and found["workers"] and found["workers"][0]["ready"] else None

        return self.until(look, "every task runs")

    def ready(self) -> set[str]:
        """The workers that have logged last that they are ready. A look at the log costs nothing, and one at the status a process."""
        said = [line for line in self.log.read_text().splitlines() if line.startswith("{")]
        events = [json.loads(line) for line in said if line.endswith('"event": "readiness"}')]
        last = {event["worker"]: event["ready"] for event in events}
        return {worker for worker, ready in last.items() if ready}

    def until_said(self, text: str) -> None:
        """Wait for a word in the worker's output."""
        self.until(lambda: text in self.log.read_text(), text)

    @property
    def url(self) -> str:
        return self.json("status", "status", self.job)["workers"][0]["url"]

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.url + path, timeout=120) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


async def filled(bootstrap: str, job: str, bad: int = 1) -> None:
    """Topics, and forty orders of four users; some are no JSON."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(f"{job}-orders", 2, 1), NewTopic(f"{job}-out", 2, 1)])
    await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    for number in range(40):
        body = orjson.dumps({"user": f"u{number % 4}", "amount": number})
        await producer.send_and_wait(f"{job}-orders", body, partition=number % 2)
    for _ in range(bad):
        await producer.send_and_wait(f"{job}-orders", b"{no json", key=b"k", partition=1, headers=[("trace", b"t1")])
    await producer.stop()


@contextlib.contextmanager
def good_orders(kafka: Any, directory: Path) -> Iterator[Headgate]:
    """A job of one's own over forty orders that are all well; no worker yet."""
    found = Headgate(kafka.bootstrap, directory)
    asyncio.run(filled(found.bootstrap, found.job, bad=0))
    try:
        yield found
    finally:
        found.end()


@pytest.fixture(scope="module")
def hg(kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headgate]:
    found = Headgate(kafka.bootstrap, tmp_path_factory.mktemp("cli"))
    asyncio.run(filled(found.bootstrap, found.job))
    try:
        yield from ready(found)
    finally:
        found.end()


def ready(found: Headgate) -> Iterator[Headgate]:
    """With a worker that runs, and a dead letter."""
    found.start()
    found.running()
    found.until(
        lambda: len(found.json("dead-letters-list", "dead-letters", "list", found.job)["letters"]) == 1, "a letter"
    )
    yield found


def test_status_names_leader_workers_and_tasks(hg: Headgate) -> None:
    """For programs and for people."""
    found = hg.running()
    assert found["job"] == f"{hg.job}/1"
    assert found["leader"]["processor"] == "w1"
    assert found["run"]["state"] == "running"
    assert [(t["task"], t["worker"], t["state"]) for t in found["tasks"]] == [
        ("Partition 0", "w1", "running"),
        ("Partition 1", "w1", "running"),
    ]
    text = hg.run("status", hg.job)
    for word in (hg.job, "w1", "Partition 1", "running", "WATERMARK"):
        assert word in text


def test_watch_shows_the_status_again_and_again(hg: Headgate) -> None:
    """As JSON one document a line."""
    lines = hg.run("watch", hg.job, "--times", "2", "--every", "200ms", "-o", "json").splitlines()
    assert [wrong(json.loads(line), schema("status")) for line in lines] == [[], []]


def total(k: int) -> dict[str, int]:
    """What the table says of one user: ten of forty orders."""
    return {"n": 10, "total": sum(range(k, 40, 4))}


def test_tables_are_read_while_the_job_runs(hg: Headgate) -> None:
    """A user's table, one key of it, and the control table."""
    names = {one["table"]: one["kind"] for one in hg.json("tables", "tables", hg.job)["tables"]}
    assert (names["totals"], names["__control"], names["__checkpoint"]) == ("user", "control", "control")

    def counted() -> Any:
        rows = hg.json("tables", "tables", hg.job, "totals")["rows"]
        return {row["key"]: row["value"] for row in rows} == {f"u{k}": total(k) for k in range(4)}

    hg.until(counted, "forty orders are counted")
    assert hg.run("tables", hg.job, "totals", "u3").strip() == str(total(3))
    assert hg.json("tables", "tables", hg.job, "__control")["rows"] != []
    hg.run("tables", hg.job, "totals", "nobody", code=4)
    hg.run("tables", hg.job, "nothing", code=4)


def test_tables_can_be_read_from_the_log_alone(hg: Headgate) -> None:
    """When no worker lives, or none can be reached."""
    hg.until(lambda: hg.run("tables", hg.job, "totals", "u2").strip() == str(total(2)), "counted")
    found = hg.json("tables", "tables", hg.job, "totals", "u2", "--from-log")
    assert [row["value"] for row in found["rows"]] == [total(2)]


def test_a_job_without_batches_says_so(hg: Headgate) -> None:
    """An empty table would look like a job that waits for Spark."""
    found = hg.json("batches", "batches", hg.job)
    assert (found["steps"], found["batches"], found["spark"], found["unseen"]) == ([], [], [], [])
    hg.run("batches", hg.job)
    assert "has no .batch(), no .spark() and no sink: there are no batches" in hg.said
    hg.run("batches", hg.job, "--task", "Partition 99", code=4)


def test_frames_and_coordinator_messages_are_shown_for_people(hg: Headgate) -> None:
    """Control messages between the stages, and every message of the coordinator stream."""
    between = next(s for s in hg.json("model", "model", hg.job)["streams"] if s.startswith(f"{hg.job}-1-"))
    frames = hg.until(
        lambda: [f for f in hg.json("frames-cat", "frames", "cat", between)["frames"] if f["type"] == "watermark"],
        "a marker",
    )
    assert {frame["task"] for frame in frames} <= {"Partition 0", "Partition 1"}
    messages = hg.json("coordinator-cat", "coordinator", "cat", hg.job)["messages"]
    assert {"set-run", "set-leader", "set-grant", "set-processor", "set-job-model"} <= {m["type"] for m in messages}
    assert [m for m in messages if m["problem"]] == []
    assert "set-run" in hg.run("coordinator", "cat", hg.job, "--type", "set-run")


def test_what_is_written_by_hand_is_a_request_and_garbage_in_the_stream_ends_no_one(hg: Headgate) -> None:
    """One typing error in a repair would have ended every worker of the job, and every later one at its start."""
    request = json.dumps({"verb": "pause", "arguments": {"stream": f"{hg.job}-orders"}})
    hg.run("coordinator", "write", hg.job, "set-request", request, code=1)
    assert hg.json("answer", "coordinator", "write", hg.job, "set-request", request, "--yes")["state"] == "done"
    assert hg.json("answer", "resume", hg.job)["state"] == "done"
    hg.run("coordinator", "write", hg.job, "set-request", '{"verb": 5}', "--yes", code=2)
    override = json.dumps({"setting": "stall.timeout", "value": "soon"})
    hg.run("coordinator", "write", hg.job, "set-config", override, "--yes", code=1)
    assert "'soon' is not a duration" in hg.said
    run = json.dumps({"run_id": "r", "deployment": "d", "state": "running", "job_uuid": "u", "closing": True})
    hg.run("coordinator", "write", hg.job, "set-run", run, "--yes", code=2)
    assert "`headgate start`" in hg.said
    before = hg.running()["run"]
    told = asyncio.run(by_hand(hg, [("set-run", (), run), ("set-config", ("stall.timeout",), override)]))

    def healed() -> Any:
        messages = hg.json("coordinator-cat", "coordinator", "cat", hg.job, "--type", "set-run")["messages"]
        return messages[-1]["offset"] > told and not messages[-1]["problem"]

    hg.until(healed, "the leader has written the run again")
    found = hg.running()
    assert found["run"] == before
    assert [one for one in found["warnings"] if "'stall.timeout' has no effect" in one]
    assert "1 records of the coordinator stream cannot be decoded" in hg.run("status", hg.job)
    assert hg.json("answer", "config", "unset", hg.job, "stall.timeout")["state"] == "done"


async def by_hand(hg: Headgate, messages: list[tuple[str, tuple[str, ...], str]]) -> int:
    """Write messages as a producer of the user's own may; the offset of the first."""
    from headgate.agents.kafka.plainwrite import Plain, put
    from headgate.agents.kafka.settings import ClientSettings
    from headgate.core.coordination.wire import encode_key

    topic = f"__headgate_coordinator_{hg.job}_1"
    records = [
        Plain(topic, encode_key((kind, key)), msgpack.packb({"values": json.loads(values)}), 0)
        for kind, key, values in messages
    ]
    return (await put(ClientSettings(hg.bootstrap), records))[0]


def test_plan_says_what_there_is_and_would_be(hg: Headgate) -> None:
    """Nothing is changed by asking."""
    found = hg.json("plan", "plan", "cli_job:app", "--workers", "2")
    assert {t["topic"]: t["now"] for t in found["topics"]}[f"{hg.job}-orders"] == "there"
    assert sorted(t["worker"] for t in found["tasks"]) == ["worker-0", "worker-1"]
    assert hg.json("topics-plan", "topics", "plan", "cli_job:app") == {
        "job": f"{hg.job}/1",
        "commands": [],
        "problems": [],
    }
    (hg.directory / "other_job.py").write_text(SOURCE.replace('"JOB"', '"other-JOB"').replace("JOB", hg.job))
    commands = hg.json("topics-plan", "topics", "plan", "other_job:app")["commands"]
    assert [c for c in commands if f"__headgate_coordinator_other-{hg.job}_1" in c and "cleanup.policy=compact" in c]


def test_overrides_are_set_seen_and_taken_back(hg: Headgate) -> None:
    """Who, what and when is kept; what may not be is refused."""
    assert hg.json("answer", "config", "set", hg.job, "stall.timeout", "4m")["state"] == "done"
    rows = hg.json("config-get", "config", "get", hg.job, "stall.timeout", "--origin")["settings"]
    assert [(row["value"], row["origin"]) for row in rows] == [("4m", "override")]
    assert [o["name"] for o in hg.json("config-diff", "config", "diff", hg.job)["settings"]] == ["stall.timeout"]
    assert hg.json("config-history", "config", "history", hg.job)["changes"][-1]["value"] == "4m"
    assert hg.json("answer", "config", "unset", hg.job, "stall.timeout")["state"] == "done"
    hg.run("config", "set", hg.job, "stal.timeout", "4m", code=2)
    assert "stall.timeout" in hg.said
    hg.run("config", "set", hg.job, "job.id", "9", code=1)


def test_the_settings_are_those_of_the_live_workers_and_what_a_flag_masks_is_said(hg: Headgate) -> None:
    """Whoever asks has other flags, variables and files than the workers, and knows nothing of the settings in the app."""
    name, value = "commit.interval", QUICK["commit.interval"]
    found = hg.json("config-get", "config", "get", hg.job)
    rows = {row["name"]: (row["value"], row["origin"], row["masks"], row["workers"]) for row in found["settings"]}
    assert rows[name] == (value, "flag", [], ["w1"])
    assert rows["chunk.max-records"] == (777, "app", [], ["w1"])
    assert (found["workers"], found["unseen"]) == (["w1"], [])
    assert hg.run("config", "get", hg.job, name) == f"{value}\n"
    assert hg.json("answer", "config", "set", hg.job, name, "3s")["state"] == "done"
    assert f"overridden: a flag or variable of w1 masks {name}" in hg.said
    (masked,) = hg.json("config-get", "config", "get", hg.job, name, "--origin")["settings"]
    assert (masked["value"], masked["origin"], masked["masks"]) == (value, "flag", ["override"])
    assert [one["overridden"] for one in hg.json("config-diff", "config", "diff", hg.job)["workers"]] == [[name]]
    assert hg.json("answer", "config", "unset", hg.job, name)["state"] == "done"
    assert hg.json("answer", "config", "set", hg.job, "stall.timeout", "4m")["state"] == "done"
    assert "overridden" not in hg.said
    assert hg.json("answer", "config", "unset", hg.job, "stall.timeout")["state"] == "done"


def test_pause_and_resume_are_in_the_status(hg: Headgate) -> None:
    """Intake stops and starts; a stream that is not there is refused."""
    assert hg.json("answer", "pause", hg.job, "--stream", f"{hg.job}-orders")["state"] == "done"
    assert hg.json("status", "status", hg.job)["run"]["paused_streams"] == [f"{hg.job}-orders"]
    assert f", running, paused: {hg.job}-orders\n" in hg.run("status", hg.job)
    assert hg.json("answer", "resume", hg.job)["state"] == "done"
    assert hg.json("status", "status", hg.job)["run"]["paused_streams"] == []
    hg.run("pause", hg.job, "--stream", "nothing", code=1)


def test_seek_and_move_answer_like_every_request(hg: Headgate) -> None:
    """To where everything stands already: taken up, and nothing is read again."""
    hg.running()
    assert hg.json("answer", "seek", hg.job, f"{hg.job}-orders", "--to", "newest", "--yes")["state"] in GIVEN
    assert hg.json("answer", "move", hg.job, "Partition 0", "--to", "w1")["state"] in GIVEN
    hg.run("move", hg.job, "Partition 9", "--to", "w1", code=1)
    assert "Partition 1" in hg.said


def test_the_verbs_are_functions_too(hg: Headgate) -> None:
    """For programs that steer jobs: the same requests, answers and errors."""
    import headgate
    from headgate.core.errors import NotFound

    assert headgate.pause(hg.job, bootstrap=hg.bootstrap).state == "done"
    assert hg.json("status", "status", hg.job)["run"]["paused"] is True
    assert headgate.resume(hg.job, bootstrap=hg.bootstrap, timeout="150s").run_state == "running"
    with pytest.raises(NotFound, match="no job"):
        headgate.drain("no-such-job", bootstrap=hg.bootstrap)


def test_dead_letters_are_listed_shown_and_replayed(hg: Headgate) -> None:
    """Origin, exception and traceback; a replayed record comes back as it was, and fails again."""
    (first, *_) = hg.json("dead-letters-list", "dead-letters", "list", hg.job)["letters"]
    assert (first["topic"], first["partition"], first["origin_offset"]) == (f"{hg.job}-orders", 1, 20)
    whole = hg.json("dead-letters-show", "dead-letters", "show", hg.job, str(first["offset"]))
    assert (whole["key"], whole["value"], whole["headers"]) == ("k", "{no json", {"trace": "t1"})
    assert "DataError" in whole["traceback"]
    hg.run("dead-letters", "show", hg.job, "99999", code=4)
    hg.run("dead-letters", "replay", hg.job, str(first["offset"]), code=1)
    hg.run("dead-letters", "replay", hg.job, "--all", "--to", f"{hg.job}-outt", "--yes", code=4)
    assert f"did you mean '{hg.job}-out'?" in hg.said
    hg.json("dead-letters-replay", "dead-letters", "replay", hg.job, str(first["offset"]), "--yes")
    letters = hg.until(
        lambda: [x for x in [hg.json("dead-letters-list", "dead-letters", "list", hg.job)["letters"]] if len(x) > 1],
        "the letter is back",
    )[0]
    assert letters[-1]["origin_offset"] > first["origin_offset"]
    gone = hg.json("dead-letters-purge", "dead-letters", "purge", hg.job, "--before", str(first["offset"] + 1), "--yes")
    assert gone["purged"] == 1
    left = hg.json("dead-letters-list", "dead-letters", "list", hg.job)["letters"]
    assert first["offset"] not in [one["offset"] for one in left]


def test_what_is_replayed_is_the_record_and_not_what_was_made_of_it(hg: Headgate) -> None:
    """A row of Spark was written as JSON beside the records that such rows are made of, and every letter with the time of its failure."""
    client, topic = ClientSettings(hg.bootstrap), f"{hg.job}-other"
    letters = Topics(JobName(hg.job)).dead_letters

    async def prepared() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=hg.bootstrap)
        await admin.start()
        await admin.create_topics([NewTopic(topic, 2, 1)])
        await admin.close()
        await put(client, [Plain(topic, b"k", b'{"user": "zoe"}', 1, 1_700_000_000_000, [("trace", b"t9")])])
        row = [("hg-batch", b"b1"), ("hg-exception", b"ValueError: no"), ("hg-timestamp", b"7")]
        at = [("hg-topic", topic.encode()), ("hg-partition", b"1"), ("hg-offset", b"0")]
        gone = [*at[:2], ("hg-offset", b"99999")]
        plain = [("hg-exception", b"no"), ("hg-timestamp", b"1600000000000"), *at]
        other = [*at, ("hg-topic-id", b"AAAAAAAAAAAAAAAAAAAAAQ")]  # of a topic that had the name before
        written = [
            [*row, *at],
            [*row, *gone],
            [*row, *at, ("hg-offset-last", b"9")],
            [*row, at[0]],
            [*row, *other],
            plain,
        ]
        await put(client, [Plain(letters, b"k", b'{"n":1}', 0, None, one) for one in written])

    async def found() -> list[Any]:
        return [record async for record in scan_topic(client, topic, partition=1)]

    asyncio.run(prepared())
    there = hg.json("dead-letters-list", "dead-letters", "list", hg.job)["letters"][-6:]
    whole, gone, several, nowhere, other, plain = (str(one["offset"]) for one in there)
    hg.run("dead-letters", "replay", hg.job, whole, gone, "--yes", code=1)
    assert "no longer exists" in hg.said
    hg.run("dead-letters", "replay", hg.job, several, "--yes", code=1)
    assert f"the records 0 to 9 of {topic}[1]" in hg.said
    hg.run("dead-letters", "replay", hg.job, nowhere, "--yes", code=1)
    assert "--to TOPIC writes the row itself" in hg.said
    hg.run("dead-letters", "replay", hg.job, whole, other, "--yes", code=1)
    assert f"'{topic}' was deleted and re-created since" in hg.said
    hg.run("dead-letters", "replay", hg.job, whole, plain, "--yes")
    _, first, second = asyncio.run(found())
    assert (first.key, first.value, first.timestamp) == (b"k", b'{"user": "zoe"}', 1_700_000_000_000)
    assert first.headers == (("trace", b"t9"),)
    assert (second.value, second.timestamp, second.headers) == (b'{"n":1}', 1_600_000_000_000, ())


def test_verbs_speak_to_people_too(hg: Headgate) -> None:
    """What is a document for programs is lines for people: names at the top, what they know of a thing beside it."""
    hg.running()
    between = next(s for s in hg.json("model", "model", hg.job)["streams"] if s.startswith(f"{hg.job}-1-"))
    marked = ["watermark", "task=Partition 0"]
    hg.until(lambda: all(word in hg.run("frames", "cat", between, "--control") for word in marked), "a marker")
    (letter, *_) = hg.json("dead-letters-list", "dead-letters", "list", hg.job)["letters"]
    hg.run("config", "set", hg.job, "stall.timeout", "4m")
    told: list[tuple[list[str], list[str]]] = [
        (["watch", hg.job, "--times", "1"], ["Ctrl-C exits", "WATERMARK", "Partition 1"]),
        (["tables", hg.job], ["TABLE", "totals", "__control"]),
        (["tables", hg.job, "totals"], ["KEY", "u3"]),
        (["model", hg.job], ["PRODUCERS", between, "Partition 1"]),
        (["coordinator", "cat", hg.job], ["set-run", "set-grant", "set-leader"]),
        (["frames", "cat", between, "--control"], marked),
        (["plan", "cli_job:app", "--workers", "2"], ["worker-1", f"{hg.job}-orders", "Partition 1"]),
        (["topics", "plan", "other_job:app"], ["kafka-topics", f"__headgate_coordinator_other-{hg.job}_1"]),
        (["dead-letters", "list", hg.job], [f"{hg.job}-orders", "DataError"]),
        (["dead-letters", "show", hg.job, str(letter["offset"])], ["{no json", "headgate.core.errors.DataError"]),
        (["config", "get", hg.job, "--origin"], ["stall.timeout", "4m", "override"]),
        (["config", "diff", hg.job], ["stall.timeout"]),
        (["config", "history", hg.job], ["stall.timeout", "4m"]),
        (["pause", hg.job], ["done"]),
        (["resume", hg.job], ["done"]),
        (["config", "unset", hg.job, "stall.timeout"], []),
    ]
    (hg.directory / "other_job.py").write_text(SOURCE.replace('"JOB"', '"other-JOB"').replace("JOB", hg.job))
    for words, wanted in told:
        text = hg.run(*words)
        assert [word for word in wanted if word not in text] == [], f"{words}: {text}"
        assert not text.lstrip().startswith(("{", "[{"))


def test_pages_answer_and_change_nothing(hg: Headgate) -> None:
    """A page for people, documents for programs, probes, metrics; anything but reading is refused."""
    hg.running()  # again, whatever has been paused, moved and sought before
    assert hg.get("/")[1].lstrip().startswith("<!doctype html>")
    assert hg.get("/livez") == (200, "ok\n")
    hg.until(lambda: hg.get("/readyz") == (200, "ready\n"), "it is ready")
    status = json.loads(hg.get("/api/status")[1])
    assert (status["worker"]["processor"], status["worker"]["leads"]) == ("w1", True)
    assert json.loads(hg.get("/api/model")[1])["streams"][f"{hg.job}-orders"] == 2
    assert "totals" in {one["table"] for one in json.loads(hg.get("/api/tables")[1])["tables"]}
    every = {"u0", "u1", "u2", "u3"}
    hg.until(lambda: {row["key"] for row in json.loads(hg.get("/api/tables/totals")[1])["rows"]} == every, "rows")
    assert [row["key"] for row in json.loads(hg.get("/api/tables/totals/u3")[1])["rows"]] == ["u3"]
    settings = {one["name"]: one for one in json.loads(hg.get("/api/config")[1])["settings"]}
    assert settings["commit.interval"]["value"] == "50ms"
    assert hg.get("/api/tables/nothing")[0] == 404
    assert hg.get("/api/tables/totals?limit=x")[0] == 400
    line = f'headgate_tasks{{job="{hg.job}/1",state="running",worker="w1"}} 2.0'
    hg.until(lambda: line in hg.get("/metrics")[1], line)
    request = urllib.request.Request(hg.url + "/api/status", method="POST", data=b"{}")
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(request, timeout=120)


def test_a_planted_password_is_in_no_log_topic_or_page(hg: Headgate) -> None:
    """It came through the environment of worker and commands; every place where text ends up is looked through."""
    pages = ["/", "/api/status", "/api/model", "/api/config", "/api/tables", "/api/tables/__control", "/metrics"]
    assert [path for path in pages if PASSWORD in hg.get(path)[1]] == []
    assert '"sasl.password": "***"' in hg.get("/api/config")[1]
    assert PASSWORD not in hg.log.read_text()
    topics = [f"__headgate_{kind}_{hg.job}_1" for kind in ("coordinator", "heartbeat", "log")]
    found = asyncio.run(everything(hg.bootstrap, [*topics, f"{hg.job}-1-dead-letters", f"{hg.job}-out"]))
    assert len(found) > 20
    assert [data for data in found if PASSWORD.encode() in data] == []


async def everything(bootstrap: str, topics: list[str]) -> list[bytes]:
    """All bytes of these topics."""
    from headgate.agents.kafka.scan import scan_topic
    from headgate.agents.kafka.settings import ClientSettings

    return [
        b"".join([record.key or b"", record.value or b"", *(value for _, value in record.headers)])
        for topic in topics
        async for record in scan_topic(ClientSettings(bootstrap), topic, committed=False)
    ]


def test_what_is_not_there_is_exit_code_four_and_nonsense_is_two(hg: Headgate) -> None:
    """No such job, no such verb, no such option, no broker."""
    hg.run("status", "no-such-job", code=4)
    hg.run("drain", "no-such-job", code=4)
    hg.run("statuss", hg.job, code=2)
    hg.run("drain", hg.job, "--sideways", code=2)
    hg.run("run", "nowhere:app", code=2)
    hg.run("seek", hg.job, f"{hg.job}-orders", "--to", "somewhere", "--yes", code=2)


def test_reset_is_refused_while_a_worker_lives_and_its_plan_is_shown(hg: Headgate) -> None:
    """It cannot be undone."""
    plan = json.loads(hg.run("reset", hg.job, "--plan", "-o", "json", code=1))  # it refuses what the act refuses
    assert "workers of" in hg.said
    assert wrong(plan, schema("reset")) == []
    assert plan["alive"] == ["w1"]
    assert f"__headgate_log_{hg.job}_1" in plan["topics"]
    assert f"{hg.job}-orders" not in plan["topics"]
    hg.run("reset", hg.job, "--yes", code=1)
