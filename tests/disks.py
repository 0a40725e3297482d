"""Disks that a test can fill: file systems in memory that only this process and its children see.

`private()` gives this process a view of its own of what is mounted. The kernel drops it with the last process in it, so nothing is left
over, however that ends. Without root it takes a user namespace; where neither is allowed, `private` says so, and no disk can be filled.
"""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

SIZE_MB = 192
NEWNS, NEWUSER, REC, PRIVATE = 0x00020000, 0x10000000, 0x4000, 1 << 18
CHUNK = bytes(1 << 20)


def private() -> bool:
    """Whether this process may mount now. It must have one thread only."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "unshare"):
        return False
    uid, gid = os.geteuid(), os.getegid()
    if libc.unshare(NEWNS | (NEWUSER if uid else 0)):
        return False
    if uid:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    return not libc.mount(b"none", b"/", None, REC | PRIVATE, None)


class Disk:
    """A disk at a path, which is an empty directory before."""

    def __init__(self, path: Path, size_mb: int = SIZE_MB) -> None:
        path.mkdir(parents=True, exist_ok=True)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"tmpfs", str(path).encode(), b"tmpfs", 0, f"size={size_mb}m".encode()):
            raise OSError(ctypes.get_errno(), f"cannot mount a disk at {path}")
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Leave no byte of it."""
        with self._ballast.open("wb", buffering=0) as file:
            for chunk in (CHUNK, CHUNK[:4096]):
                try:
                    while True:
                        file.write(chunk)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        """Give the space back."""
        self._ballast.unlink(missing_ok=True)
