"""`headgate story --state-dir`: what is shown of a disk, for people and for programs, without a broker."""

from __future__ import annotations

import doctest
import json
import time
from pathlib import Path

from click.testing import CliRunner, Result

from headgate.agents.cli.group import main
from headgate.agents.cli.see import story as module
from headgate.core.names import JobName
from headgate.core.task import protocol as t

from ...stories import machines
from ...stories.machines import Clock, chunk, feed, recorder, started

CLEARS = "\x1b[2J\x9b31m\x07"


def ran(*words: str) -> Result:
    return CliRunner().invoke(main, ["story", "sales", *words])


def written(state_dir: Path) -> None:
    clock = Clock()
    clock.mono = time.time() - machines.WALL / 1000 - 60
    keeper = recorder(state_dir / JobName("sales").directory / "stories" / "w1", clock)
    task = started(keeper, clock)
    feed(task, clock, chunk(10)[0], t.WorkFailed(f"ValueError: {CLEARS}", final=True))
    keeper.turn()


def test_the_examples_in_the_code_are_true() -> None:
    assert doctest.testmod(module).failed == 0


def test_a_story_says_what_changed_why_and_what_was_decided(tmp_path: Path) -> None:
    """Without routine; and nothing in it steers the terminal."""
    written(tmp_path)
    done = ran("--state-dir", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert all(line.isprintable() for line in done.stdout.split("\n"))
    lines = done.stdout.splitlines()
    assert "w1  Partition 0 #3  waiting → restoring" in lines[0]
    assert lines[1].startswith("    Start task=Partition 0 grant=3 run=RunView(run_id=r1, job_uuid=u1)")
    assert lines[1].endswith("(the predecessor has released it, or is fenced)")
    assert lines[2:4] == ["      → OpenStore", "      → AskLogEnds"]
    assert "WorkFailed why=ValueError: \\x1b[2J\\x9b31m\\x07 final=True" in done.stdout
    assert "ChunkTaken" not in done.stdout
    assert "ChunkTaken at=orders:0 upto=10" in ran("--state-dir", str(tmp_path), "--all").stdout


def test_what_is_shown_is_chosen_by_time_and_by_name(tmp_path: Path) -> None:
    written(tmp_path)
    found = json.loads(ran("Partition 0", "--state-dir", str(tmp_path), "-o", "json", "--lines", "2").stdout)
    assert [line["event_number"] for line in found["lines"]] == [6, 8]
    assert found["more"] == 5
    nothing = ran("Partition 1", "--state-dir", str(tmp_path))
    assert nothing.stdout == ""
    assert "nothing but routine since" in nothing.stderr
    assert json.loads(ran("--state-dir", str(tmp_path), "-o", "json", "--last", "10s").stdout)["lines"] == []
    since = found["lines"][-1]["at"]
    assert len(json.loads(ran("--state-dir", str(tmp_path), "-o", "json", "--since", since).stdout)["lines"]) == 1


def test_what_cannot_be_shown_says_what_to_do(tmp_path: Path) -> None:
    none = ran("--state-dir", str(tmp_path))
    assert (none.exit_code, "has no story of sales/1" in none.stderr) == (4, True)
    assert ran("--state-dir", str(tmp_path), "--last", "1h", "--since", "1").exit_code == 2
    disk = ran("--state-dir", str(tmp_path), "--follow")
    assert (disk.exit_code, "leave out --state-dir" in disk.stderr) == (2, True)
    wrong = ran("--state-dir", str(tmp_path), "--since", "yesterday")
    assert (wrong.exit_code, "'yesterday' is not a time" in wrong.stderr) == (2, True)
