"""`headgate new`: what it makes works as it is, and nothing that exists is touched."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.agents.cli.group import main


def test_a_new_job_passes_its_own_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From nothing to a green test; a second time nothing is overwritten."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "web-sales").mkdir()  # an empty one is taken
    done = CliRunner().invoke(main, ["new", "web-sales"])
    assert done.exit_code == 0, done.output
    home = tmp_path / "web-sales"
    made = {path.relative_to(home).as_posix(): path.read_text() for path in home.rglob("*") if path.is_file()}
    assert made.keys() == {
        ".github/workflows/test.yml", ".gitignore", "Dockerfile", "README.md", "headgate.toml", "requirements.txt", "test_web_sales.py",
        "web_sales.py",
    }  # fmt: skip
    assert [name for name, text in made.items() if re.search(r"\{[A-Z]+\}", text)] == []
    tomllib.loads((home / "headgate.toml").read_text())
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"], cwd=home, capture_output=True, text=True, timeout=240, check=False
    )
    assert (tested.returncode, "1 passed" in tested.stdout) == (0, True), tested.stdout + tested.stderr
    (home / "web_sales.py").write_text("mine")
    again = CliRunner().invoke(main, ["new", "web-sales"])
    assert (again.exit_code, "exists and is not an empty directory" in again.output) == (2, True)
    assert (home / "web_sales.py").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a/b", "not a legal name"),
        ("..", "not a legal name"),
        ("2sales", "cannot be the name of a Python module"),
        ("class", "cannot be the name of a Python module"),
        ("json", "would hide the module json"),
        ("msgspec", "would hide the module msgspec"),
    ],
)
def test_a_name_that_cannot_be_taken_is_refused(
    name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is written."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["new", name])
    assert (done.exit_code, said in done.output) == (2, True), done.output
    assert list(tmp_path.iterdir()) == []
