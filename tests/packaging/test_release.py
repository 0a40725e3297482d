"""What `make release` refuses before it builds anything. That a build is whole is in the tests beside this one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from .conftest import ROOT


def released(here: Path) -> str:
    """What the script complains of."""
    done = subprocess.run([here / ".ci/release"], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 1
    return done.stderr


def test_a_release_is_one_version_everywhere_and_committed(tmp_path: Path) -> None:
    """A wheel of one version with the changelog of another is never built."""
    for name in (".ci/release", "setup.cfg", "headgate/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
    changes = tmp_path / "CHANGELOG.md"
    changes.write_text("# Changelog\n\n## [Unreleased]\n")
    assert "the newest heading of CHANGELOG.md is '## [Unreleased]'" in released(tmp_path)
    changes.write_text("# Changelog\n\n## [0.1.0] - 2026-01-31\n")
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    assert "changes that are not committed" in released(tmp_path)
    init = tmp_path / "headgate/__init__.py"
    init.write_text(init.read_text().replace('__version__ = "', '__version__ = "9.'))
    assert "headgate/__init__.py says something else" in released(tmp_path)
    assert not (tmp_path / "dist").exists()
