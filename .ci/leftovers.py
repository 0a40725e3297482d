"""Find the processes that a run of the checks has left behind: those that carry its mark in their environment.

Prints and ends each of them (by its id), and exits 1 if there was one. A process that is just going gets a moment first.
"""

from __future__ import annotations

import os
import sys

import psutil

PATIENCE_S = 10.0


def marked(mark: str) -> list[psutil.Process]:
    """Processes of this user whose environment holds the mark, without this one and its ancestors."""
    mine = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if process.pid not in mine and process.environ().get("HG_CI_MARK") == mark:
                found.append(process)
        except (psutil.Error, OSError):
            continue  # gone meanwhile, or another user's
    return found


def main(mark: str) -> int:
    """Zero if nothing that carries the mark lives on."""
    _, left = psutil.wait_procs(marked(mark), timeout=PATIENCE_S)
    for process in left:
        try:
            print(f"left behind: pid {process.pid}: {' '.join(process.cmdline())[:200]}")
            process.kill()
        except psutil.NoSuchProcess:
            continue
    print(f"{len(left)} processes left behind")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
