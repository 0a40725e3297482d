"""Which files make `headgate dev` run a job again."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from headgate.agents.process.changes import files_of, until_changed


def test_python_files_and_settings_count_and_nothing_that_is_installed(tmp_path: Path) -> None:
    """Environments, caches and hidden directories change without the job's doing."""
    for file in (
        "job.py", "headgate.toml", "rules/tax.py", "rules/headgate.toml", "rules/notes.txt", ".git/hook.py",
        "__pycache__/job.py", "env/pyvenv.cfg", "env/lib/their.py",
    ):  # fmt: skip
        (tmp_path / file).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / file).touch()
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    found = {str(Path(path).relative_to(tmp_path)) for path in files_of(tmp_path)}
    assert found == {"job.py", "headgate.toml", "rules/tax.py"}


def test_a_change_is_told_by_the_names_of_its_files(tmp_path: Path) -> None:
    """Also one that was made before anybody looked again, and a file whose size stays."""
    job = tmp_path / "job.py"
    job.write_text("a = 1")
    before = files_of(tmp_path)
    job.write_text("a = 2")
    os.utime(job, ns=(1, 1))
    assert asyncio.run(asyncio.wait_for(until_changed(tmp_path, before), 60)) == ["job.py"]
