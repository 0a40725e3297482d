"""Stores that tasks have left behind: removed when they are old, and never one that is in use or is someone else's."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from headgate.agents.runtime.copies.directory import CopyDirectory
from headgate.agents.state.directory import Directory
from headgate.agents.state.leftovers import remove_copies, remove_left
from headgate.agents.state.rocks import REMOVED, RocksStore, StoreMemory, open_rocks, wipe
from headgate.agents.state.store import Owner, StoreHeld
from headgate.core.coordination.leftovers import over

OWNER = Owner("u1", "Partition 1", 1)
NOW_S = 2_000_000_000.0
DELAY_S = 3600.0


@pytest.fixture
def memory() -> StoreMemory:
    return StoreMemory(8 << 20)


def left(job: Path, memory: StoreMemory, *, age_s: float, owner: Owner = OWNER, spare: bool = False) -> Path:
    """A store with a row, not written to for so long."""
    here, task = Directory(job, OWNER.task, memory), job / "tasks" / "Partition-1"
    held = here.open(owner) if spare else None
    store = Directory(job, OWNER.task, memory).open(owner)
    store.write({"t": {b"k": b"v"}}, position=7)
    store.close()
    if held is not None:
        held.close()
    aged(store.path, age_s)
    assert (store.path == task) != spare
    return store.path


def aged(path: Path, age_s: float) -> None:
    for file in (path / "db").iterdir():
        os.utime(file, (NOW_S - age_s, NOW_S - age_s))


def swept(job: Path, memory: StoreMemory, foreign: set[Path] | None = None, delay_s: float = DELAY_S):
    seen = set() if foreign is None else foreign
    return remove_left(job, OWNER, memory, partial(over, delay_s=delay_s), NOW_S, seen)


def test_a_store_is_removed_once_it_is_unused_for_the_delay(tmp_path: Path, memory: StoreMemory) -> None:
    """Its time is that of its files: a process that has just started removes what its forerunners have left. It says how much it was."""
    path = left(tmp_path, memory, age_s=DELAY_S - 1)
    assert swept(tmp_path, memory) == []
    aged(path, DELAY_S)
    size = sum(file.stat().st_size for file in (path / "db").iterdir())
    (gone,) = swept(tmp_path, memory)
    assert (gone.task, gone.path, gone.size, gone.unused_s) == (OWNER.task, path, size, DELAY_S)
    assert not path.exists()
    assert swept(tmp_path, memory) == []
    again = Directory(tmp_path, OWNER.task, memory).open(OWNER)  # it comes back, to an empty store
    assert (again.meta.position, again.get("t", b"k")) == (None, None)
    again.close()


def test_a_spare_store_goes_likewise(tmp_path: Path, memory: StoreMemory) -> None:
    """That of a task which found its directory locked by a frozen process. Its own directory is younger, and stays."""
    spare, own = left(tmp_path, memory, age_s=2 * DELAY_S, spare=True), tmp_path / "tasks" / "Partition-1"
    aged(own, 0)
    assert [one.path for one in swept(tmp_path, memory)] == [spare]
    assert own.exists()


def test_a_store_in_use_stays_however_old_it_looks(tmp_path: Path, memory: StoreMemory) -> None:
    """Its lock decides, not what the stream says, nor the time of its files: that of an owner whose clock is wrong may be anything."""
    path = left(tmp_path, memory, age_s=9 * DELAY_S)
    store = open_rocks(path, memory, OWNER)
    aged(path, 9 * DELAY_S)
    assert swept(tmp_path, memory) == []
    store.write({"t": {b"k": b"w"}}, position=8)
    assert store.get("t", b"k") == b"w"
    store.close()


@pytest.mark.parametrize("owner", [Owner("u2", "Partition 1", 1), Owner("u1", "Partition 1", 2), Owner("u1", "x", 1)])
def test_a_store_of_another_job_or_task_stays_and_is_not_opened_again(
    tmp_path: Path, memory: StoreMemory, owner: Owner
) -> None:
    """A job of the same name on another cluster may share the state directory."""
    path, foreign = left(tmp_path, memory, age_s=2 * DELAY_S, owner=owner), set[Path]()
    assert swept(tmp_path, memory, foreign) == []
    assert foreign == {path}
    aged(path, 2 * DELAY_S)
    before = {file.name: file.stat().st_mtime for file in (path / "db").iterdir()}
    assert swept(tmp_path, memory, foreign) == []
    assert {file.name: file.stat().st_mtime for file in (path / "db").iterdir()} == before
    kept = open_rocks(path, memory, owner)
    assert kept.get("t", b"k") == b"v"
    kept.close()


def test_a_store_that_cannot_say_whose_it_is_stays(tmp_path: Path, memory: StoreMemory) -> None:
    """Damaged: who looks after it is the next owner of the task here."""
    path = left(tmp_path, memory, age_s=DELAY_S)
    (path / "db" / "CURRENT").write_text("nonsense")
    aged(path, 2 * DELAY_S)
    assert swept(tmp_path, memory) == []
    assert path.exists()


def test_a_delay_of_nothing_keeps_everything_and_no_directory_is_no_error(tmp_path: Path, memory: StoreMemory) -> None:
    assert swept(tmp_path, memory) == []
    left(tmp_path, memory, age_s=9 * DELAY_S)
    assert swept(tmp_path, memory, delay_s=0.0) == []


def copied(job: Path, memory: StoreMemory, table: str, *, uuid: str = "u1", age_s: float = DELAY_S) -> Path:
    """A copy of a table that no process has open."""
    store = CopyDirectory(job, table, memory).open(Owner(uuid, f"the copy of table {table}", -1), [table])
    store.write({table: {b"k": b"v"}}, position=7)
    store.close()
    path = job / "copies" / table / "1"
    aged(path, age_s)
    return path


def test_copies_of_tables_go_once_no_process_uses_them(tmp_path: Path, memory: StoreMemory) -> None:
    """Whether the job still has the table or not. One that is open, young, or of another life of the job stays."""
    old, of_other = copied(tmp_path, memory, "old"), copied(tmp_path, memory, "other", uuid="u2")
    young, used = copied(tmp_path, memory, "young", age_s=1), copied(tmp_path, memory, "used")
    half = copied(tmp_path, memory, "half", age_s=0)
    (half / "db").rename(half / REMOVED)
    for file in (half / REMOVED).iterdir():
        os.utime(file, (0, 0))
    opened = open_rocks(used, memory, Owner("u1", "the copy of table used", -1))
    aged(used, 9 * DELAY_S)
    foreign: set[Path] = set()
    for gone in ([("half", half), ("the copy of table old", old)], []):
        found = remove_copies(tmp_path, "u1", memory, partial(over, delay_s=DELAY_S), NOW_S, foreign)
        assert [(one.task, one.path) for one in found] == gone
    assert (foreign, old.exists(), half.exists()) == ({of_other}, False, False)
    assert opened.get("used", b"k") == b"v"
    assert young.exists()
    opened.close()


KILLED = """
import os, shutil, sys
from pathlib import Path
from headgate.agents.state.rocks import StoreMemory, open_rocks
from headgate.agents.state.store import Owner

shutil.rmtree = lambda path, **_: os._exit(9) if path.exists() else None
open_rocks(Path(sys.argv[1]), StoreMemory(8 << 20), Owner("u1", "Partition 1", 1)).remove()
"""


@pytest.mark.parametrize("then", ["it is removed", "the task returns", "it is wiped"])
def test_a_process_that_is_killed_while_it_removes_leaves_nothing_that_could_be_read(
    tmp_path: Path, memory: StoreMemory, then: str
) -> None:
    """A half removed database would replay what is left of its log into the next one. It is out of the way at once."""
    path = left(tmp_path, memory, age_s=0)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], timeout=180, check=False)
    assert killed.returncode == 9
    assert sorted(one.name for one in path.iterdir()) == [REMOVED, "lock"]
    if then == "it is removed":
        for file in (path / REMOVED).iterdir():
            os.utime(file, (0, 0))
        assert [one.path for one in swept(tmp_path, memory)] == [path]
        assert not path.exists()
        return
    if then == "it is wiped":
        wipe(path)
    store = Directory(tmp_path, OWNER.task, memory).open(OWNER)
    assert (store.meta.position, store.get("t", b"k")) == (None, None)
    assert not (path / REMOVED).exists()
    store.close()


def test_who_opens_it_while_it_is_removed_finds_it_locked(
    tmp_path: Path, memory: StoreMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the directory is gone by its lock, and just behind that by the file which is not the directory's any more: the task
    restores into a spare store, and nobody removes that under it."""
    path = left(tmp_path, memory, age_s=0)
    close, opened = RocksStore.close, []

    def opens(self: RocksStore) -> None:
        close(self)
        with pytest.raises(StoreHeld, match="locked by another process"):
            open_rocks(path, memory, OWNER)
        opened.append(True)

    store = open_rocks(path, memory, OWNER)
    monkeypatch.setattr(RocksStore, "close", opens)
    store.remove()
    monkeypatch.undo()
    assert opened == [True]

    path = left(tmp_path, memory, age_s=0)
    store, lock = open_rocks(path, memory, OWNER), os.open

    def late(name: os.PathLike[str], *more: int, **named: int) -> int:
        held = lock(name, *more, **named)
        if Path(name) == path / "lock":
            store.remove()
        return held

    monkeypatch.setattr(os, "open", late)
    with pytest.raises(StoreHeld, match="being removed"):
        open_rocks(path, memory, OWNER)
