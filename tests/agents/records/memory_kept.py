"""What compiled code keeps of memory: nothing that it was given, whether it succeeds or raises."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

ROUNDS = 3


def keeps_nothing(work: Callable[[], object]) -> None:
    """Work that is done again takes no more memory than the first time. What leaks does so each time; other threads only at times."""
    work()
    gc.collect()
    tracemalloc.start()
    try:
        assert min(_grown(work) for _ in range(ROUNDS)) < 50_000
    finally:
        tracemalloc.stop()


def _grown(work: Callable[[], object]) -> int:
    before = tracemalloc.get_traced_memory()[0]
    work()
    gc.collect()
    return tracemalloc.get_traced_memory()[0] - before
