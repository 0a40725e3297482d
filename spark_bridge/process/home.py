"""The temporary directory of one JVM: everything that Spark writes alongside the results, so that nothing leaks when the JVM is killed.

Spark deletes its directories (`spark-*`, `blockmgr-*`, artifacts, sockets) when its JVM ends in good order. One that is killed leaves them.
So each JVM gets a directory of its own, which is deleted with it; a lock shows that it is in use, and the JVM inherits the lock: a
directory whose worker *and* JVM are both dead is deleted when the next JVM of this user starts on the machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "headgate-spark-"
DRAFT = "headgate-sparking-"
LOCK = "lock"


class Home:
    """A directory that no one else uses."""

    def __init__(self, parent: str | None = None) -> None:
        """`parent`: by default the directory for temporary files."""
        above = Path(parent or tempfile.gettempdir())
        above.mkdir(parents=True, exist_ok=True)
        sweep(above)
        draft = Path(tempfile.mkdtemp(prefix=DRAFT, dir=above))
        self.lock = os.open(draft / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.path = draft.rename(above / draft.name.replace(DRAFT, PREFIX))
        """A sweep looks at names of this form only: it never meets one that is not locked yet."""

    def delete(self) -> None:
        """Delete it. Its JVM has ended."""
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self.lock)


def sweep(above: Path) -> None:
    """Delete the directories of dead processes."""
    for path in above.glob(PREFIX + "*"):
        try:
            lock = os.open(path / LOCK, os.O_RDWR)
        except OSError:
            continue  # someone else's, or half deleted by someone else
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            pass  # in use
        finally:
            os.close(lock)
