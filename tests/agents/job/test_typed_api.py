"""What pyright infers of a declared job is what the program beside the packaging tests says, line by line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PYRIGHT = Path(sys.executable).with_name("pyright")


@pytest.mark.skipif(not PYRIGHT.exists(), reason="pyright is installed by `make lint` or `make types`")
def test_the_types_of_the_front_door(tmp_path: Path) -> None:
    """`assert_type` must hold, and every line that is marked wrong must be wrong."""
    tree = tmp_path / "tree" / "headgate"
    tree.mkdir(parents=True)
    for room in ("core", "agents", "spark_bridge"):
        (tree / room).symlink_to(ROOT / room)
    for path in (*(ROOT / "headgate").glob("*.py"), ROOT / "headgate" / "py.typed"):
        (tree / path.name).symlink_to(path)
    program = (ROOT / "tests" / "packaging" / "typed_api.py").read_text(encoding="utf-8")
    (tmp_path / "typed_api.py").write_text(program, encoding="utf-8")
    config = {
        "include": ["typed_api.py"],
        "extraPaths": ["tree"],
        "pythonVersion": "3.11",
        "reportUnnecessaryTypeIgnoreComment": True,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    done = subprocess.run(
        [PYRIGHT, "-p", tmp_path, "--pythonpath", sys.executable],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert "0 errors" in done.stdout, done.stdout
