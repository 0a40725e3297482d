"""Who may read the files that hold rows of batches and results."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from headgate.spark_bridge.base.errors import SparkPlanError
from headgate.spark_bridge.data.spool import Spool


def made(path: Path, mode: int) -> Path:
    path.mkdir()
    path.chmod(mode)
    return path


def modes(spool: Spool) -> list[str]:
    """Of the spool, the directory of this process and that of one batch."""
    batch = spool.directory()
    found = [oct(stat.S_IMODE(path.stat().st_mode)) for path in (spool.root, batch.parent, batch)]
    spool.close()
    return found


def test_the_workers_own_spool_is_for_its_user_alone(tmp_path: Path) -> None:
    """A new one, and one that an older version made for everybody."""
    assert modes(Spool(tmp_path / "state" / "spark-spool")) == ["0o700"] * 3
    assert modes(Spool(made(tmp_path / "old", 0o755))) == ["0o700"] * 3


def test_an_old_spool_is_taken_from_others_before_it_is_used(tmp_path: Path) -> None:
    """What a killed process of an older version has left lies there until the first batch that does not fit."""
    old, shared, none = made(tmp_path / "old", 0o755), made(tmp_path / "shared", 0o755), tmp_path / "none"
    for spool in (Spool(old), Spool(shared, shared=True), Spool(none)):
        spool.take()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (old, shared)] == [0o700, 0o755]
    assert not none.exists()


def test_so_is_the_one_in_the_systems_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(made(tmp_path / "tmp", 0o1777)))
    spool = Spool()
    assert spool.root.parent == tmp_path / "tmp"
    assert modes(spool) == ["0o700"] * 3


@pytest.mark.parametrize(
    ("mode", "below"),
    [(0o700, 0o700), (0o755, 0o755), (0o750, 0o750), (0o1777, 0o755), (0o2770, 0o2750)],
)
def test_the_mode_of_a_shared_spool_is_its_operators(tmp_path: Path, mode: int, below: int) -> None:
    """Executors may run as another user: who may read the spool may read what is below, and write nowhere."""
    assert modes(Spool(made(tmp_path / "shared", mode), shared=True)) == [oct(mode), oct(below), oct(below)]


def test_a_shared_spool_that_is_not_there_is_made_for_this_user(tmp_path: Path) -> None:
    assert modes(Spool(tmp_path / "shared", shared=True)) == ["0o700"] * 3


def test_someone_elses_directory_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes `/tmp/headgate-spool-1000` first could read the batches of user 1000; likewise a link to a place of their own."""
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(SparkPlanError, match=f"belongs to user {owner}") as error:
        Spool(tmp_path).directory()
    assert "spark.spool" in error.value.remedy
