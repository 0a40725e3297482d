"""`headgate doctor` on a new machine, before there is a broker. What it says of brokers and rights is tested on real ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.agents.cli.group import main


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings file, no broker of a variable, and none that runs here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADGATE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HEADGATE_BOOTSTRAP", raising=False)


def test_the_machine_is_looked_at_without_a_broker() -> None:
    """It is the first command of whoever has installed headgate, and Java and the disk are what they ask for."""
    done = CliRunner().invoke(main, ["doctor", "-o", "json"])
    found = {one["what"]: one["state"] for one in json.loads(done.stdout)["findings"]}
    assert {"python", "java", "disk", "clock"} <= set(found)
    assert (found["broker"], done.exit_code) == ("warning", 1 if "wrong" in found.values() else 0)


def test_a_job_needs_a_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is wrong that there is none, and the remedy says what helps."""
    (tmp_path / "a_doctors_job.py").write_text(
        "import headgate as hg\napp = hg.App('shop')\napp.input('a').map(str).to('b')\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    done = CliRunner().invoke(main, ["doctor", "a_doctors_job:app"])
    assert done.exit_code == 1
    assert "broker: -b HOST:PORT, HEADGATE_BOOTSTRAP" in done.output
