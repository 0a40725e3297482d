"""A command that cannot go on, or is told to end before it has begun: what whoever sits there reads."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from headgate.agents.cli.begin import begin
from headgate.agents.cli.group import LazyGroup

JOB = "import headgate as hg\napp = hg.App('nobody')\napp.input('orders').to('out')\n"
NOBODY = "127.0.0.1:1"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "job.py").write_text(JOB)
    return tmp_path


def terminal() -> None:
    """Ctrl-C as a terminal gives it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def background() -> None:
    """A background job of a shell, `nohup`: it is started with its signals ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def blocking() -> None:
    """Whoever started it had blocked its own signals, and forgot them at the fork."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))


def begun(here: Path, *words: str, started: Callable[[], None] = terminal) -> subprocess.Popen[str]:
    """A command, and how it is started."""
    return subprocess.Popen(
        [sys.executable, "-m", "headgate.agents.cli", *words],
        cwd=here,
        env={**os.environ, "HEADGATE_STATE_DIR": str(here / "state"), "PYTHONUNBUFFERED": "1"},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        preexec_fn=started,
    )


def test_a_worker_without_a_broker_says_so_within_seconds_and_ends_at_ctrl_c(here: Path) -> None:
    """Not after a minute of silence; and whoever then sees his mistake gets his prompt back, without a traceback."""
    worker = begun(here, "run", "job:app", "-b", NOBODY, "--log-format", "json")
    assert worker.stderr is not None
    said = ""
    try:
        while "no broker answers" not in said:
            line = worker.stderr.readline()
            assert line, said
            said += line
        assert "check the address given with -b" in said
        found = re.search(r'"for_s": (\d+)', said)
        assert found is not None
        assert 3 <= int(found[1]) < 30
        worker.send_signal(signal.SIGINT)
        said += worker.stderr.read()
        assert worker.wait(120) in (0, 130)
    finally:
        worker.kill()
        worker.communicate()
    assert "Traceback" not in said
    assert "Aborted!" not in said


SLOW = """\
import sys, threading
print("importing", file=sys.stderr)
for _ in range(2400):
    threading.Event().wait(0.05)  # no import of its own; short, for Python sees a signal that comes just before a wait behind it
"""


@pytest.mark.parametrize("started", [terminal, background])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_ctrl_c_while_the_job_is_imported_ends_with_130_and_a_word(
    here: Path, workers: str, started: Callable[[], None]
) -> None:
    """Somebody sees the mistake in his command while it begins."""
    (here / "slow.py").write_text(SLOW)
    ends(begun(here, "run", "slow:app", "-b", NOBODY, "--workers", workers, started=started), signal.SIGINT)


@pytest.mark.parametrize(
    ("words", "number", "started"),
    [
        ("run job:app", signal.SIGINT, terminal),
        ("run job:app", signal.SIGINT, background),
        ("run job:app", signal.SIGINT, blocking),
        ("run job:app", signal.SIGTERM, background),
        ("run job:app", signal.SIGTERM, blocking),
        ("run job:app --processor-id p --supervised x", signal.SIGINT, background),
        ("status nobody", signal.SIGINT, background),
    ],
)
def test_a_signal_while_the_command_itself_is_imported_ends_it_however_it_was_started(
    here: Path, words: str, number: signal.Signals, started: Callable[[], None]
) -> None:
    """The first second of a command is all imports. Behind `nohup`, or in the background, a Ctrl-C in it was lost, and the job ran on."""
    (here / "click.py").write_text(SLOW)  # the first that the front door imports beside the standard library
    ends(begun(here, *words.split(), "-b", NOBODY, started=started), number)


def ends(command: subprocess.Popen[str], number: signal.Signals) -> None:
    """It is importing; now it is told to go: with a word and 130 at Ctrl-C; SIGTERM ends what has begun nothing at once."""
    assert command.stderr is not None
    try:
        assert command.stderr.readline() == "importing\n"
        command.send_signal(number)
        said = command.communicate(timeout=240)[1]
    finally:
        command.kill()
        command.communicate()
    expected = (130, "Interrupted.\n") if number == signal.SIGINT else (-signal.SIGTERM, "")
    assert (command.returncode, said) == expected


class Asking(LazyGroup):
    """A front door with one verb, which asks."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return ["ask"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        def ask() -> None:
            raise click.Abort

        return click.Command("ask", callback=ask)


def test_whoever_says_no_reads_that_nothing_was_done(capsys: pytest.CaptureFixture[str]) -> None:
    """`Aborted!` says neither what was nor what was not."""
    with pytest.raises(SystemExit) as ended:
        Asking("asking")(["ask"])
    assert (ended.value.code, capsys.readouterr().err) == (1, "Nothing was done.\n")


def test_nothing_is_imported_before_someone_knows_what_ctrl_c_means() -> None:
    """The front door brings each name when it is used: the first tenth of a second of a command has no traceback in it either."""
    code = (
        "import sys, headgate.agents.cli.begin as c\n"
        "print([m for m in sys.modules if m in ('click', 'headgate.agents.job.declare.app')], c.begin)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.startswith("[] ")


def test_ctrl_c_while_the_command_itself_is_imported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is just being read."""

    def interrupted(**_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("headgate.agents.cli.group.main", interrupted)
    with pytest.raises(SystemExit) as ended:
        begin()
    assert (ended.value.code, capsys.readouterr().err) == (130, "Interrupted.\n")
