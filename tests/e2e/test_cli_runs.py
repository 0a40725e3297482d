"""How runs begin and end from the command line: exit codes of verbs and of workers, deadlines, signals, supervision, reset."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

import headgate

from .test_cli_operations import Headgate, filled, good_orders

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def hg(kafka: Any, tmp_path: Any) -> Iterator[Headgate]:
    with good_orders(kafka, tmp_path) as found:
        yield found


def test_a_run_is_stopped_resumed_drained_and_begun_again(hg: Headgate) -> None:
    """Every step ends with the exit code that it should, worker and verb; nothing is counted twice on the way."""
    hg.start("--run-id", "r1")
    hg.running()
    hg.until(lambda: counted(hg) == 40, "all orders are counted")
    stopped = hg.json("answer", "stop", hg.job, "--wait", "--timeout", "150s")
    assert (stopped["state"], stopped["run"], stopped["run_state"]) == ("done", "r1", "stopped")
    assert hg.ended() == 0
    hg.run("drain", hg.job, code=4)
    hg.run("pause", hg.job, code=4)
    assert hg.json("status", "status", hg.job)["workers"] == []

    hg.start()
    started = hg.json("answer", "start", hg.job, "--timeout", "150s")
    assert (started["state"], started["run"], started["run_state"]) == ("done", "r1", "running")
    hg.running()
    drained = hg.json("answer", "drain", hg.job, "--wait", "--timeout", "150s")
    assert (drained["state"], drained["run_state"]) == ("done", "drained")
    assert hg.ended() == 0
    rows = hg.json("tables", "tables", hg.job, "totals")["rows"]
    assert {row["key"]: row["value"]["n"] for row in rows} == {"u0": 10, "u1": 10, "u2": 10, "u3": 10}

    hg.start("--no-wait")
    assert hg.ended() == 4


def test_a_drain_may_be_asked_for_before_its_run_begins(hg: Headgate) -> None:
    """The worker of that run drains what it is given at once, reads no new input, and goes."""
    hg.start()
    hg.running()
    hg.run("stop", hg.job, "--wait", "--timeout", "150s")
    hg.ended()
    hg.run("start", hg.job, "--timeout", "1s", code=3)
    assert "it has not been accepted yet" in hg.said
    other = hg.json("status", "status", hg.job)["run"]["id"]
    hg.start("--run-id", other)
    hg.running()
    hg.run("drain", hg.job, "--wait", "--timeout", "150s")
    assert hg.ended() == 0
    hg.run("drain", hg.job, "--run-id", "tonight", "--mode", "fast", code=1)
    assert "unknown drain mode 'fast'" in hg.said
    hg.run("drain", hg.job, "--run-id", "tonight")
    [first] = hg.json("drain-list", "drain", hg.job, "--list")["drains"]
    assert (first["run"], first["mode"], first["state"]) == ("tonight", "default", "written")
    assert first["why"] == "it waits for run tonight to begin"
    assert headgate.drains(hg.job, bootstrap=hg.bootstrap) == [first]
    assert headgate.drain(hg.job, run_id="tomorrow", wait=False, bootstrap=hg.bootstrap).state == "written"
    [_, tomorrow] = headgate.drains(hg.job, bootstrap=hg.bootstrap)
    assert headgate.withdraw(hg.job, tomorrow["request"], bootstrap=hg.bootstrap).state == "written"
    hg.run("drain", hg.job, "--withdraw", "no-such-drain", code=4)
    assert hg.json("answer", "drain", hg.job, "--withdraw", first["request"][:12])["state"] == "written"
    assert hg.json("answer", "drain", hg.job, "--run-id", "tonight")["state"] == "written"
    hg.run("drain", hg.job, "--withdraw", code=4)
    assert "there are 3 pending drains" in hg.said
    before = counted(hg)
    asyncio.run(filled(hg.bootstrap, hg.job, bad=0))
    hg.start("--run-id", "tonight")
    assert hg.ended() == 0
    found = hg.json("status", "status", hg.job)
    assert (found["run"]["id"], found["run"]["state"]) == ("tonight", "drained")
    assert {task["state"] for task in found["tasks"]} == {"drained"}
    assert counted(hg) == before <= 40


def test_a_drain_asked_for_before_its_run_waits_or_is_refused_with_a_word(hg: Headgate) -> None:
    """Whatever the job is doing: what waits is listed until its run is over, and what nobody can carry out is not written."""
    hg.run("drain", hg.job, "--run-id", "r1", code=4)  # never started: there is nothing in which it could wait
    assert f"there is no job '{hg.job}'" in hg.said
    hg.start("--run-id", "r1")
    hg.running()
    hg.run("drain", hg.job, "--run-id", "r2", code=1)
    assert "the live run is r1" in hg.said
    assert hg.worker is not None
    hg.worker.kill()
    hg.worker.wait()
    hg.worker = None
    hg.until(lambda: not any(one["alive"] for one in hg.json("status", "status", hg.job)["workers"]), "it is gone")
    hg.run("drain", hg.job, "--run-id", "r2", code=1)  # live, and nobody there who could refuse it
    assert "the live run is r1" in hg.said
    assert hg.json("drain-list", "drain", hg.job, "--list")["drains"] == []
    assert hg.json("answer", "drain", hg.job, "--run-id", "r1")["why"] == "it waits for a worker"
    [one] = hg.json("drain-list", "drain", hg.job, "--list")["drains"]
    assert (one["run"], one["state"]) == ("r1", "written")
    hg.start()
    assert hg.ended() == 0
    assert hg.json("status", "status", hg.job)["run"]["state"] == "drained"
    assert hg.json("drain-list", "drain", hg.job, "--list")["drains"] == []

    hg.run("drain", hg.job, "--run-id", "r3")
    hg.start("--run-id", "r2")  # another run begins first
    hg.running()
    [one] = hg.json("drain-list", "drain", hg.job, "--list")["drains"]
    assert (one["run"], one["why"]) == ("r3", "it waits for run r3 to begin; the live run is r2")
    hg.run("drain", hg.job, "--wait", "--timeout", "150s")
    assert hg.ended() == 0
    hg.run("drain", hg.job, "--withdraw")
    [both] = hg.json("drain-list", "drain", hg.job, "--list")["drains"]
    assert both["run"] == "r3"  # the withdrawal waits for a worker, as it says
    hg.start("--run-id", "r3")
    assert hg.running()["run"]["state"] == "running"


def test_a_drain_of_what_is_drained_is_done_and_who_comes_then_waits_and_is_not_ready(hg: Headgate) -> None:
    """A script that was interrupted asks again, and learns that it may go on. A worker without a run lives, and its readiness is 503
    from the first moment."""
    hg.start("--run-id", "r1")
    hg.running()
    hg.run("drain", hg.job, "--wait", "--timeout", "150s")
    assert hg.ended() == 0
    for words in ((), ("--run-id", "r1")):
        again = hg.json("answer", "drain", hg.job, "--wait", *words)
        assert (again["state"], again["run_state"], again["why"]) == ("done", "drained", "run r1 is drained")
    assert headgate.drain(hg.job, bootstrap=hg.bootstrap).run_state == "drained"
    hg.run("drain", hg.job, code=4)  # it means the live run
    hg.log.write_text("")
    hg.start("--web-port", "0")
    url = hg.until(lambda: page_of(hg.log.read_text()), "the page")
    hg.until(lambda: "drained" in answer(url + "/readyz")[1], "it waits")
    hg.until_said("is drained.\nTo continue: `headgate start ")
    assert answer(url + "/readyz")[0] == 503
    assert answer(url + "/livez")[0] == 200


def test_one_worker_of_a_name_goes_on_over_deadlines_and_signals(hg: Headgate) -> None:
    """A second worker of a living name, and one whose port is taken, are refused with the reason. One that is stopped in its tracks answers
    no one: exit 3. SIGTERM: exit 0; the run stays, and the next worker of that name joins it without waiting for a session. Ctrl-C twice
    ends it at once, for a user who cannot wait: nothing of it is left."""
    hg.start()
    first = hg.running()
    given = ("--log-format", "json", "--set", "session.timeout=6s")
    assert hg.run("run", "cli_job:app", "--processor-id", "w1", *given, code=1) == ""
    assert "another process is 'w1'" in hg.said
    hg.run("run", "cli_job:app", "--processor-id", "w2", "--web-port", hg.url.rpartition(":")[2], code=1)
    assert "cannot be served" in hg.said
    assert hg.running()["workers"][0]["incarnation"] == first["workers"][0]["incarnation"]
    assert json.loads(hg.get("/api/status")[1])["worker"]["ready"] is True

    assert hg.worker is not None
    hg.worker.send_signal(signal.SIGSTOP)
    try:
        hg.run("pause", hg.job, "--wait", "--timeout", "2s", code=3)
    finally:
        hg.worker.send_signal(signal.SIGCONT)
    assert "not done after 2 s" in hg.said
    assert "it has not been accepted yet: the leader, w1," in hg.said
    hg.run("resume", hg.job, "--wait", "--timeout", "150s")

    hg.worker.send_signal(signal.SIGTERM)
    assert hg.ended() == 0
    assert hg.json("status", "status", hg.job)["run"]["state"] == "running"
    hg.log.write_text("")
    hg.start()
    assert hg.running()["run"]["id"] == first["run"]["id"]

    process = psutil.Process(hg.worker.pid)
    process.suspend()
    process.send_signal(signal.SIGINT)
    process.resume()
    hg.until_said("SIGINT: committing and leaving")
    with contextlib.suppress(psutil.NoSuchProcess):  # it may have left by now
        process.send_signal(signal.SIGINT)
    assert hg.ended() in (0, 130, -signal.SIGINT)  # a shell calls both of the latter 130


def counted(hg: Headgate) -> int:
    return sum(row["value"]["n"] for row in hg.json("tables", "tables", hg.job, "totals")["rows"])


def test_the_same_batch_is_started_again_and_again(hg: Headgate) -> None:
    """Cron starts it each night: it counts what came since. Who comes just behind the end, or retries a run that has ended, is done."""
    hg.start("--bounded", "--run-id", "monday")
    assert hg.ended() == 0
    hg.start("--bounded", "--set", "session.timeout=1h")
    assert hg.ended() == 0
    assert "run monday had just ended" in hg.log.read_text()
    hg.start("--bounded", "--run-id", "monday")
    assert hg.ended() == 0
    assert "Done: run monday has ended" in hg.log.read_text()
    asyncio.run(filled(hg.bootstrap, hg.job, bad=0))
    while hg.json("status", "status", hg.job)["run"]["id"] == "monday":
        hg.start("--bounded", "--set", "session.timeout=3s")
        assert hg.ended() == 0
    assert counted(hg) == 80
    assert "to continue" in hg.run("status", hg.job)


FAILS = """
import os
import headgate as hg
app = hg.App("JOB")
def checked(order):
    if order["user"] == os.environ.get("FAILS"):
        raise ValueError("user of last year")
    return order
app.input("JOB-orders", on_bad_data="skip").map(checked).repartition("user").agg(n=hg.count(), name="totals").to("JOB-out")
"""


def test_a_batch_that_has_failed_ends_with_1_and_is_gone_on_with(hg: Headgate) -> None:
    """Nobody waits for ever for a task that has given up: 1, and the reason. Mended, the same run counts the rest, once."""
    (hg.directory / "cli_job.py").write_text(FAILS.replace("JOB", hg.job))
    hg.environment["FAILS"] = "u1"
    hg.start("--bounded", "--workers", "2", "--set", "error.retries=0")
    assert hg.ended() == 1
    assert "user of last year" in hg.log.read_text()
    assert "To do: fix what has failed and run the job again" in hg.log.read_text()
    failed = hg.json("status", "status", hg.job)["run"]
    assert failed["state"] == "stopped"
    assert "user of last year" in failed["why"]
    del hg.environment["FAILS"]
    hg.start("--bounded", "--set", "placement.rejoin-grace=0s")  # it has another name than those that had the tasks
    assert hg.ended() == 0
    run = hg.json("status", "status", hg.job)["run"]
    assert (run["id"], run["state"], counted(hg)) == (failed["id"], "ended", 40)


def test_a_supervisor_replaces_a_killed_worker_at_once_and_ends_with_the_run(hg: Headgate) -> None:
    """Well below a session: its death was reported. The spare takes its place, and a drain ends all of them with 0."""
    hg.start("--workers", "2", "--set", "session.timeout=1h", "--set", "placement.debounce=1s")

    def both() -> Any:
        if len(hg.ready()) < 2:
            return None
        found = hg.json("status", "status", hg.job)
        fine = [w for w in found["workers"] if w["alive"] and w["ready"] and len(w["tasks"]) == 1]
        return found if len(fine) == 2 else None

    before = {w["processor"]: w for w in hg.until(both, "two workers with a task each")["workers"]}
    assert sorted(before) == ["w1-0", "w1-1"]
    assert hg.worker is not None
    supervisor, pids = psutil.Process(hg.worker.pid), {worker["pid"] for worker in before.values()}

    def spare() -> Any:
        return next((one.pid for one in supervisor.children() if one.pid not in pids), None)

    spare_pid = hg.until(spare, "a spare")
    os.kill(before["w1-1"]["pid"], signal.SIGKILL)

    def back() -> Any:
        found = both()
        return found if found and found["workers"][1]["pid"] != before["w1-1"]["pid"] else None

    assert hg.until(back, "the killed one is back")["workers"][1]["pid"] == spare_pid
    hg.run("drain", hg.job, "--wait", "--timeout", "150s")
    assert hg.ended() == 0
    assert "w1-1 ended by SIGKILL" in hg.log.read_text()


def page_of(log: str) -> str:
    found = [word for word in log.split() if word.startswith("http://127.0.0.1:")]
    return found[0] if found and "readiness" in log else ""


def answer(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=120) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_reset_forgets_a_job_and_it_begins_anew_but_not_under_who_came_while_it_asked(hg: Headgate) -> None:
    """Somebody goes for a coffee before he answers, and a colleague starts the job: nothing is deleted under its feet, and it goes on.
    Later tables, positions and runs are gone; the inputs are read from their beginning again."""
    hg.start("--bounded")
    assert hg.ended() == 0
    hg.run("reset", hg.job, code=1)
    reset = subprocess.Popen(
        hg.command("reset", hg.job),
        env=hg.environment,
        cwd=hg.directory,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert reset.stderr is not None
        said = ""
        while "Continue?" not in said:
            more = reset.stderr.read(1)
            assert more, said
            said += more
        hg.log.write_text("")
        hg.start("--run-id", "again")
        hg.running()
        _, said = reset.communicate("y\n", timeout=180)
        assert reset.returncode == 1
        assert f"workers of {hg.job}/1 are running: w1" in said
        assert hg.running()["run"]["id"] == "again"
    finally:
        reset.kill()
    hg.run("drain", hg.job, "--wait", "--timeout", "150s")
    assert hg.ended() == 0
    assert hg.json("reset", "reset", hg.job, "--yes")["done"] is True
    hg.run("status", hg.job, code=4)
    hg.log.write_text("")
    hg.start("--bounded")
    assert hg.ended() == 0
    assert counted(hg) == 40


def test_what_cannot_start_says_why_and_what_to_do(hg: Headgate) -> None:
    """No input topic; a setting that is none; offsets that leave out a partition, by `headgate plan`, and by `headgate run`, which no
    supervisor need restart: it exits with 2."""
    (hg.directory / "lost_job.py").write_text(
        'import headgate as hg\napp = hg.App("lost")\napp.input("no-such-topic-at-all").to("x")\n'
    )
    hg.run("run", "lost_job:app", code=1)
    assert "the input topic 'no-such-topic-at-all' does not exist" in hg.said
    hg.run("run", "cli_job:app", "--set", "comit.interval=1s", code=2)
    assert "did you mean 'commit.interval'" in hg.said
    (hg.directory / "until_job.py").write_text(
        f'import headgate as hg\napp = hg.App("{hg.job}")\napp.input("{hg.job}-orders", until={{0: 5}}).to("{hg.job}-out")\n'
    )
    for words in (("plan", "until_job:app"), ("run", "until_job:app"), ("run", "until_job:app", "--workers", "2")):
        hg.run(*words, code=2)
        assert f"input('{hg.job}-orders'): until= gives no end for partition 1; the topic has 2 partitions" in hg.said
        assert "until='newest'" in hg.said
