"""Children of `run --workers N`: restarted, reported, and never left behind. The children here are small programs, not workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from headgate.agents.process import supervisor as s

pytestmark = pytest.mark.asyncio

CHILD = """
import json, os, pathlib, signal, sys, time
words = sys.argv[1:]
if spare := "--spare" in words:
    (pathlib.Path(os.environ["LIVES"]) / f"spare-{os.getpid()}").touch()
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    role = json.loads(line)
    words = ["--processor-id", role["processor"], "--supervised", role["process"], "--since", str(role["since_ms"])]
    words += ["--successor"] * role["successor"] + ["--web-port", str(role["web_port"])] * bool(role["web_port"])
name = words[words.index("--processor-id") + 1]
lives = pathlib.Path(os.environ["LIVES"])
signal.signal(signal.SIGTERM, signal.SIG_IGN if os.environ.get("DEAF") else lambda *_: sys.exit(0))
with (lives / name).open("a") as file:
    port = words[words.index("--web-port") + 1] if "--web-port" in words else ""
    process, since = (words[words.index(name) + 1] for name in ("--supervised", "--since"))
    file.write(f"{os.getpid()} {process} {'--successor' in words} {since} {port}\\n")
code = os.environ.get("CODE", "")
if code:
    sys.exit(int(code))
while True:
    time.sleep(60)
"""


class Rig:
    def __init__(self, tmp_path: Path, processors: list[str], **environment: str) -> None:
        self.lives = tmp_path
        program = tmp_path / "child.py"
        program.write_text(CHILD)
        self.dead: list[tuple[str, str]] = []
        self.told = asyncio.Event()

        async def report(processor: str, process: str) -> None:
            self.dead.append((processor, process))
            self.told.set()

        self.supervisor = s.Supervisor(
            [sys.executable, str(program)], processors, report, {**os.environ, "LIVES": str(tmp_path), **environment}
        )

    def lines(self, processor: str) -> list[list[str]]:
        path = self.lives / processor
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    async def until(self, true) -> None:
        async with asyncio.timeout(60):
            while not true():  # noqa: ASYNC110 - what is waited for happens in another process
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def running(rig: Rig):
    task = asyncio.get_running_loop().create_task(rig.supervisor.run())
    try:
        yield task
    finally:
        rig.supervisor.signal(signal.SIGKILL)
        await asyncio.wait_for(task, 60)


async def test_a_killed_child_is_reported_and_comes_back_under_its_name(tmp_path: Path) -> None:
    """The next life is told that the one before is dead; the sibling notices nothing."""
    rig = Rig(tmp_path, ["w-0", "w-1"])
    async with running(rig):
        await rig.until(lambda: rig.lines("w-0") and rig.lines("w-1"))
        pid, process, successor, since = rig.lines("w-0")[0]
        os.kill(int(pid), signal.SIGKILL)
        await rig.until(lambda: len(rig.lines("w-0")) == 2)
        assert (successor, rig.lines("w-0")[1][2]) == ("False", "True")
        assert since == rig.lines("w-0")[1][3] == str(rig.supervisor.since_ms)
        assert rig.dead == [("w-0", process)]
        assert len(rig.lines("w-1")) == 1


async def test_sigterm_goes_to_all_and_the_exit_code_is_zero(tmp_path: Path) -> None:
    """All children leave by themselves, and nothing is started again."""
    rig = Rig(tmp_path, ["w-0", "w-1", "w-2"])
    async with running(rig) as task:
        await rig.until(lambda: all(rig.lines(f"w-{n}") for n in range(3)))
        pids = [int(rig.lines(f"w-{n}")[0][0]) for n in range(3)]
        rig.supervisor.signal(signal.SIGTERM)
        assert await asyncio.wait_for(task, 60) == 0
        assert [psutil.pid_exists(pid) for pid in pids] == [False, False, False]
        assert rig.dead == []


async def test_a_child_that_is_killed_while_it_leaves_has_not_left(tmp_path: Path) -> None:
    """The kernel was short of memory, or somebody impatient: what it had not committed it has not committed, so the code is not 0."""
    rig = Rig(tmp_path, ["w-0", "w-1"], DEAF="1")
    async with running(rig) as task:
        await rig.until(lambda: all(rig.lines(f"w-{n}") for n in range(2)))
        rig.supervisor.signal(signal.SIGTERM)
        for n in range(2):
            os.kill(int(rig.lines(f"w-{n}")[0][0]), signal.SIGKILL)
        assert await asyncio.wait_for(task, 60) == 128 + signal.SIGKILL
        assert sorted(dead for dead, _ in rig.dead) == ["w-0", "w-1"]


async def test_a_second_ctrl_c_kills_all_and_is_exit_code_130(tmp_path: Path) -> None:
    """As it is for one worker; nobody is told of deaths, for nobody stays to tell."""
    rig = Rig(tmp_path, ["w-0", "w-1"], DEAF="1")
    async with running(rig) as task:
        await rig.until(lambda: all(rig.lines(f"w-{n}") for n in range(2)))
        rig.supervisor.signal(signal.SIGTERM)
        rig.supervisor.signal(signal.SIGKILL)
        assert await asyncio.wait_for(task, 60) == s.ENDED_AT_ONCE == 130
        assert rig.dead == []


async def test_a_child_whose_run_is_closed_is_not_started_again(tmp_path: Path) -> None:
    """Exit 0 means that the run closed."""
    rig = Rig(tmp_path, ["w-0", "w-1"], CODE="0")
    assert await asyncio.wait_for(rig.supervisor.run(), 240) == 0
    assert [len(rig.lines(f"w-{n}")) for n in range(2)] == [1, 1]


@pytest.mark.parametrize("code", [2, 4])
async def test_a_child_that_must_not_run_is_not_started_again(tmp_path: Path, code: int) -> None:
    """Usage, or a closed run with --no-wait: trying again changes nothing."""
    rig = Rig(tmp_path, ["w-0"], CODE=str(code))
    assert await asyncio.wait_for(rig.supervisor.run(), 240) == code
    assert len(rig.lines("w-0")) == 1


async def test_a_child_that_always_fails_stays_down_in_the_end(tmp_path: Path, monkeypatch) -> None:
    """Five short lives in a row, and its code is the exit code."""
    monkeypatch.setattr(s, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(s, "SHORT_RUN_S", 600.0)
    rig = Rig(tmp_path, ["w-0"], CODE="1")
    assert await asyncio.wait_for(rig.supervisor.run(), 240) == 1
    assert len(rig.lines("w-0")) == s.SHORT_RUNS == len(rig.dead)


async def test_a_signal_during_the_pause_before_a_restart_ends_it(tmp_path: Path, monkeypatch) -> None:
    """Nobody is started once a signal has come."""
    monkeypatch.setattr(s, "FIRST_PAUSE_S", 600.0)
    rig = Rig(tmp_path, ["w-0"], CODE="1")
    async with running(rig) as task:
        await asyncio.wait_for(rig.told.wait(), 60)
        rig.supervisor.signal(signal.SIGTERM)
        await asyncio.wait_for(task, 60)
        assert len(rig.lines("w-0")) == 1


async def test_children_go_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    """Kill -9 of the supervisor: the kernel tells its children."""
    program = tmp_path / "outer.py"
    program.write_text(
        "import asyncio, os, sys\nfrom headgate.agents.process.supervisor import Supervisor\n"
        "async def report(*_): pass\n"
        f"asyncio.run(Supervisor([sys.executable, {str(tmp_path / 'child.py')!r}], ['w-0'], report).run())\n"
    )
    rig = Rig(tmp_path, [])
    outer = await asyncio.create_subprocess_exec(
        sys.executable, str(program), env={**os.environ, "LIVES": str(tmp_path)}
    )
    await rig.until(lambda: rig.lines("w-0"))
    pid = int(rig.lines("w-0")[0][0])
    outer.kill()
    await outer.wait()
    await rig.until(lambda: gone(pid))


def gone(pid: int) -> bool:
    """Whether this process has ended; who collects it in the end is not ours to wait for."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class Scripted:
    """A follower whose wanted numbers a test says, one after the other."""

    def __init__(self, number: int) -> None:
        self.alone = number
        self.supervisor: s.Supervisor | None = None

    async def first(self) -> int:
        return self.alone

    async def follow(self, supervisor: s.Supervisor) -> None:
        self.supervisor = supervisor
        await asyncio.Event().wait()


async def test_children_come_and_go_by_number_and_the_others_stay(tmp_path: Path) -> None:
    """A child that is no longer wanted leaves, is not restarted, and its end is not the end of the others; it may come back."""
    rig = Rig(tmp_path, [f"w-{n}" for n in range(9)])
    rig.supervisor.follower = Scripted(1)
    async with running(rig) as task:
        await rig.until(lambda: rig.lines("w-0"))
        assert rig.supervisor.numbers() == {0}
        for number in (1, 2):
            rig.supervisor.begin(number)
        await rig.until(lambda: rig.lines("w-1") and rig.lines("w-2"))
        for number in (2, 1):
            assert rig.supervisor.retire(number) == f"w-{number}"
            rig.supervisor.dismiss(number)
        assert rig.supervisor.numbers() == {0}
        rig.supervisor.begin(1)  # while the one before is leaving: never two of one name
        await rig.until(lambda: len(rig.lines("w-1")) == 2)
        assert gone(int(rig.lines("w-1")[0][0]))
        await rig.until(lambda: len(rig.supervisor.children) == 2)
        assert [len(rig.lines(f"w-{n}")) for n in range(3)] == [1, 2, 1]
        assert rig.dead == []
        rig.supervisor.signal(signal.SIGTERM)
        assert await asyncio.wait_for(task, 60) == 0


async def test_a_retired_child_that_rests_before_its_restart_is_not_started_again(tmp_path: Path, monkeypatch) -> None:
    """It died, and while it waits its number is not wanted any more."""
    monkeypatch.setattr(s, "FIRST_PAUSE_S", 600.0)
    rig = Rig(tmp_path, ["w-0", "w-1"])
    async with running(rig):
        await rig.until(lambda: rig.lines("w-0") and rig.lines("w-1"))
        os.kill(int(rig.lines("w-1")[0][0]), signal.SIGKILL)
        await asyncio.wait_for(rig.told.wait(), 60)
        rig.supervisor.retire(1)
        await rig.until(lambda: len(rig.supervisor.children) == 1)
        assert [len(rig.lines(f"w-{n}")) for n in range(2)] == [1, 1]


async def test_a_signal_while_the_job_is_read_starts_nobody(tmp_path: Path) -> None:
    """The brokers do not answer, and somebody presses Ctrl-C."""
    rig = Rig(tmp_path, ["w-0"])

    class Hangs(Scripted):
        async def first(self) -> int:
            rig.told.set()
            await asyncio.Event().wait()
            return 1

    rig.supervisor.follower = Hangs(1)
    async with running(rig) as task:
        await asyncio.wait_for(rig.told.wait(), 60)
        rig.supervisor.signal(signal.SIGTERM)
        assert await asyncio.wait_for(task, 60) == 0
        assert rig.lines("w-0") == []


async def test_children_have_stable_ports_by_their_number(tmp_path: Path) -> None:
    """Prometheus finds each under one address, whenever it was restarted. Without a port, each takes a free one."""
    rig = Rig(tmp_path, ["w-0", "w-1"])
    rig.supervisor.web_port = 8080
    async with running(rig):
        await rig.until(lambda: rig.lines("w-0") and rig.lines("w-1"))
        assert [rig.lines(name)[0][4:] for name in ("w-0", "w-1")] == [["8080"], ["8081"]]
        os.kill(int(rig.lines("w-1")[0][0]), signal.SIGKILL)
        await rig.until(lambda: len(rig.lines("w-1")) == 2)
        assert rig.lines("w-1")[1][4:] == ["8081"]


def spares(rig: Rig) -> list[int]:
    """The processes of all spares so far, in the order of their starts."""
    found = sorted(rig.lives.glob("spare-*"), key=lambda path: path.stat().st_mtime_ns)
    return [int(path.name.removeprefix("spare-")) for path in found]


async def test_a_spare_becomes_the_next_child_and_another_takes_its_place(tmp_path: Path, monkeypatch) -> None:
    """It gets all that a child is started with. One that died is replaced, and a child is then started as without one."""
    monkeypatch.setattr(s, "SPARE_AFTER_S", 0.0)
    monkeypatch.setattr(s, "SHORT_RUN_S", 0.0)
    rig = Rig(tmp_path, ["w-0"])
    rig.supervisor.web_port = 8080
    async with running(rig) as task:
        await rig.until(lambda: rig.lines("w-0") and len(spares(rig)) == 1)
        os.kill(int(rig.lines("w-0")[0][0]), signal.SIGKILL)
        await rig.until(lambda: len(rig.lines("w-0")) == 2 and len(spares(rig)) == 2)
        pid, process, *rest = rig.lines("w-0")[1]
        assert int(pid) == spares(rig)[0]
        assert process == rig.supervisor.children[0].process
        assert rest == ["True", str(rig.supervisor.since_ms), "8080"]
        os.kill(spares(rig)[1], signal.SIGKILL)
        await rig.until(lambda: len(spares(rig)) == 3)
        os.kill(int(pid), signal.SIGKILL)
        await rig.until(lambda: len(rig.lines("w-0")) == 3 and len(spares(rig)) == 4)
        assert int(rig.lines("w-0")[2][0]) == spares(rig)[2]
        rig.supervisor.signal(signal.SIGTERM)
        assert await asyncio.wait_for(task, 60) == 0
        assert gone(spares(rig)[-1])


async def test_a_spare_that_is_dead_is_not_taken(tmp_path: Path) -> None:
    """It died, and the supervisor has not yet noticed or has; the child is started as without one."""
    rig = Rig(tmp_path, ["w-0"])
    dead = await asyncio.create_subprocess_exec(sys.executable, "-c", "", stdin=asyncio.subprocess.PIPE)
    await dead.wait()
    rig.supervisor.spare = s.Spare(dead)
    async with running(rig):
        await rig.until(lambda: rig.lines("w-0"))
        assert spares(rig) == []


async def test_no_process_can_be_started_for_a_while(tmp_path: Path, monkeypatch) -> None:
    """The machine is short of processes or memory: a start that fails is a short run, of a spare it is only said."""
    monkeypatch.setattr(s, "SPARE_AFTER_S", 0.0)
    monkeypatch.setattr(s, "FIRST_PAUSE_S", 0.01)
    rig = Rig(tmp_path, ["w-0"])
    real, refused = s.Supervisor._process, []

    async def process(
        supervisor: s.Supervisor, words: list[str], stdin: int | None = None
    ) -> asyncio.subprocess.Process:
        if len(refused) < 3:
            refused.append(words)
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return await real(supervisor, words, stdin)

    monkeypatch.setattr(s.Supervisor, "_process", process)
    async with running(rig):
        await rig.until(lambda: rig.lines("w-0") and spares(rig))
    assert ["--spare"] in refused
    assert len(refused) == 3


async def test_without_a_spare_none_is_started(tmp_path: Path, monkeypatch) -> None:
    """`workers.spare=false`: a child that died is started as it was at first."""
    monkeypatch.setattr(s, "SPARE_AFTER_S", 0.0)
    monkeypatch.setattr(s, "SHORT_RUN_S", 0.0)
    rig = Rig(tmp_path, ["w-0"])
    rig.supervisor.has_spare = False
    async with running(rig):
        await rig.until(lambda: rig.lines("w-0"))
        os.kill(int(rig.lines("w-0")[0][0]), signal.SIGKILL)
        await rig.until(lambda: len(rig.lines("w-0")) == 2)
        assert spares(rig) == []
