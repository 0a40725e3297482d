"""Files that hold what is too large for a worker's memory: rows of batches on their way to Spark, and results on their way back.

Each process has a directory of its own in the spool, and a lock on a file alongside it for as long as it lives. Promises:

- The files of a batch are removed when the batch has run; all files of a process when it closes its spool.
- What a killed process has left is removed by the next one that uses the spool: a lock that no one holds means that its owner is dead.
- Two processes, also on two machines that share the directory, never have the same directory.
- The worker's own spool, and all below it, is readable only by the user who runs the worker. A spool that `spark.spool` names belongs to
  its operator, because executors may run as other users: whoever may read it may read what is below, and no one else may write there. If it
  does not exist yet, it is made for this user alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import stat
import tempfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

from ...core.errors import SettingError
from ..base.errors import SparkPlanError

LOCK = ".lock"
PRIVATE = 0o700
READING = 0o755
"""What the mode of a spool that `spark.spool` names gives to others below it, at most."""


def path_of(text: str) -> Path:
    """The directory that `spark.spool` names. Raises `SettingError` for one that is not in a file system of this machine."""
    if "://" in text:
        raise SettingError(
            f"spark.spool is {text}, and must be a directory",
            remedy="name a directory that this worker and all executors have mounted under the same path",
        )
    return Path(text).expanduser().absolute()


class Spool:
    """The files of this process. The directory is made when something is first written; without one, it is in the system's own.

    `shared`: executors read it, perhaps as other users.
    """

    def __init__(self, root: str | Path | None = None, *, shared: bool = False) -> None:
        self.root = Path(root) if root else Path(tempfile.gettempdir()) / f"headgate-spool-{os.geteuid()}"
        self._shared = shared
        self._mode = PRIVATE
        self._own: Path | None = None
        self._lock = -1
        self._guard = threading.Lock()

    def directory(self) -> Path:
        """A new directory for the files of one batch."""
        with self._guard:
            if self._own is None:
                self._open()
            assert self._own is not None
            return self._made(self._own / uuid.uuid4().hex[:12])

    @contextlib.contextmanager
    def marked(self) -> Iterator[tuple[str, str]]:
        """A file in the spool, as long as the context is open, and its text: whoever reads the spool must find it."""
        directory = self.directory()
        file, text = directory / "seen", uuid.uuid4().hex
        try:
            file.write_text(text)
            yield str(file), text
        finally:
            remove(directory)

    def take(self) -> None:
        """Take a spool that is there already from other users, before anything is written: it may hold what a killed process has left."""
        if not self._shared and self.root.exists():
            make_private(self.root)

    def _open(self) -> None:
        try:
            self.root.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            if self._shared:
                self._mode = PRIVATE | stat.S_IMODE(self.root.stat().st_mode) & READING
            else:
                make_private(self.root)
            sweep(self.root)
            while self._own is None:
                name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
                path = self.root / (name + LOCK)
                lock = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
                if not _locked(lock) or not _same(lock, path):  # another process has just swept it away
                    os.close(lock)
                    continue
                self._lock, self._own = lock, self._made(self.root / name)
        except OSError as error:
            raise SparkPlanError(
                f"spark.spool: {self.root} cannot be written: {error}",
                remedy="set spark.spool to a directory that this worker can write, and executors can read",
            ) from error

    def _made(self, path: Path) -> Path:
        path.mkdir(mode=PRIVATE)
        if self._mode != PRIVATE:  # the bit that gives files their directory's group is kept
            path.chmod(self._mode | stat.S_IMODE(path.stat().st_mode) & stat.S_ISGID)
        return path

    def close(self) -> None:
        """Remove all files of this process."""
        with self._guard:
            if self._own is not None:
                shutil.rmtree(self._own, ignore_errors=True)
                (self.root / (self._own.name + LOCK)).unlink(missing_ok=True)
                os.close(self._lock)
                self._own = None


def make_private(path: Path) -> None:
    """Take a directory from all other users; one of an older version was open to them. Raises `SparkPlanError` if it belongs to
    another user, who could read it all the same.
    """
    me = os.geteuid()
    owner = next((found.st_uid for found in (path.lstat(), path.stat()) if found.st_uid != me), me)
    if owner != me:
        raise SparkPlanError(
            f"the directory for batches, {path}, belongs to user {owner}, and this worker runs as user {me}",
            remedy="remove it, or set state.dir or spark.spool to a directory of this user",
        )
    if stat.S_IMODE(path.stat().st_mode) & ~PRIVATE:
        path.chmod(PRIVATE)


def remove(directory: Path) -> None:
    """Remove the files of one batch."""
    shutil.rmtree(directory, ignore_errors=True)


def sweep(root: Path) -> None:
    """Remove what dead processes have left in a spool."""
    for path in root.glob("*" + LOCK):
        with contextlib.suppress(OSError):  # a sibling sweeps, too
            lock = os.open(path, os.O_RDWR)
            try:
                if _locked(lock) and _same(lock, path):
                    shutil.rmtree(path.with_name(path.name.removesuffix(LOCK)), ignore_errors=True)
                    path.unlink(missing_ok=True)
            finally:
                os.close(lock)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _same(lock: int, path: Path) -> bool:
    """Whether the path still names the file that is locked."""
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False
