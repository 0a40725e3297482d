"""A command that cannot go on, or is told to end before it has begun: what whoever sits there reads."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from headgate.agents.cli import begin
from headgate.agents.cli.group import LazyGroup

JOB = "import headgate as hg\napp = hg.App('nobody')\napp.input('orders').to('out')\n"
NOBODY = "127.0.0.1:1"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "job.py").write_text(JOB)
    return tmp_path


def begun(here: Path, *words: str) -> subprocess.Popen[str]:
    """A command, with Ctrl-C as a terminal gives it."""
    return subprocess.Popen(
        [sys.executable, "-m", "headgate.agents.cli", *words],
        cwd=here,
        env={**os.environ, "HEADGATE_STATE_DIR": str(here / "state"), "PYTHONUNBUFFERED": "1"},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
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


def test_ctrl_c_while_the_job_is_imported_ends_with_130_and_a_word(here: Path) -> None:
    """Somebody sees the mistake in his command while it begins."""
    (here / "slow.py").write_text(
        "import sys, threading\nprint('importing', file=sys.stderr)\nthreading.Event().wait(120)\n"  # in no import of its own
    )
    worker = begun(here, "run", "slow:app", "-b", NOBODY)
    assert worker.stderr is not None
    assert worker.stderr.readline() == "importing\n"
    worker.send_signal(signal.SIGINT)
    assert worker.communicate(timeout=120)[1] == "Interrupted.\n"
    assert worker.returncode == 130


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


def test_nothing_is_imported_before_somebody_knows_what_ctrl_c_means() -> None:
    """The front door brings each name when it is used: the first tenth of a second of a command has no traceback in it either."""
    code = "import sys, headgate.agents.cli as c\nprint([m for m in sys.modules if m in ('click', 'headgate.agents.app')], c.begin)"
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
