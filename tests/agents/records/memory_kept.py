"""What compiled code keeps of memory: nothing that it was given, whether it succeeds or raises."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable


def keeps_nothing(work: Callable[[], object]) -> None:
    """Work that is done again takes no more memory than the first time."""
    work()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 50_000
    finally:
        tracemalloc.stop()
