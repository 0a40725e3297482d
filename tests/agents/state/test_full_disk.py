"""A disk that is full when a store is opened: the store is sound, so it stays, and is opened when there is space again.

The disk is a real one, of eight megabytes, which only the process of the test sees (`tests.disks`).
"""

from __future__ import annotations

import subprocess
import sys

import pytest

SCENE = """
import gc, sys
from pathlib import Path
from tests import disks
if not disks.private():
    print("no disk can be mounted here")
    sys.exit(0)

from headgate.agents.state.directory import Directory
from headgate.agents.state.rocks import StoreMemory, open_rocks, wipe
from headgate.agents.state.store import Owner, StoreUnusable, WriteRefused

path, memory, owner = Path(sys.argv[1]), StoreMemory(8 << 20), Owner("u", "Partition 1", 1)
disk = disks.Disk(path, 24)

def tried(what):
    try:
        what()
    except (WriteRefused, StoreUnusable) as error:
        return type(error).__name__, str(error)
    return "opened", ""

store = open_rocks(path / "t", memory, owner)
store.write({"a": {b"x": b"1"}}, position=7)
if sys.argv[2] == "damaged":
    store.close()
    (path / "t" / "db" / "CURRENT").write_bytes(b"nothing")
else:
    store.close()
disk.fill()
print(*tried(lambda: open_rocks(path / "t", memory, owner)))
print(*tried(lambda: open_rocks(path / "new", memory, owner)))
disk.free()
kind, why = tried(lambda: globals().update(again=open_rocks(path / "t", memory, owner)))
print(kind, again.meta.position if kind == "opened" else why)
print(tried(lambda: open_rocks(path / "new", memory, owner))[0])
"""


@pytest.mark.parametrize("state", ["sound", "damaged"])
def test_a_store_on_a_full_disk_is_not_judged(tmp_path, state):
    """Neither can be opened, and both say that it is the disk. Once there is space, the sound one has its rows, and the damaged one is
    found to be damaged. A store that could not be made leaves nothing behind that keeps the next one from being made."""
    said = subprocess.run(
        [sys.executable, "-c", SCENE, str(tmp_path / "disk"), state], capture_output=True, text=True, timeout=240
    )
    if "no disk can be mounted" in said.stdout:
        pytest.skip("no disk can be mounted here")
    assert said.returncode == 0, said.stderr
    full, new, then, made = said.stdout.splitlines()
    for line in (full, new):
        assert line.startswith("WriteRefused the store in "), line
        assert "accepts no write" in line
        assert "free some disk space" in line
    assert then == "opened 7" if state == "sound" else then.startswith("StoreUnusable the store in "), then
    assert made == "opened"
