"""Memory that is kept: glibc gives freed memory back to the kernel after every chunk, and asks for it again for the next one.

Encoding 2,000 records of 100 bytes allocates and frees 2 MB, and zeroed pages are faulted in each time. With the thresholds raised a
job that parses and writes runs two to three times as fast; a process keeps up to so much more memory than it uses at the moment.
"""

from __future__ import annotations

import ctypes
import gc
import sys

M_TRIM_THRESHOLD = -1
M_TOP_PAD = -2
M_MMAP_THRESHOLD = -3
KEPT_BYTES = 256 << 20
STEP_BYTES = 64 << 20


def keep_memory() -> bool:
    """Tell the C library to keep what is freed; whether there is one that listens. Call it once, when a worker starts."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    found = [mallopt(M_TRIM_THRESHOLD, KEPT_BYTES), mallopt(M_TOP_PAD, STEP_BYTES), mallopt(M_MMAP_THRESHOLD, 32 << 20)]
    return all(found)


def prepare_process() -> None:
    """What a worker process does once, when everything is imported: keep memory, and look for garbage less often.

    A chunk makes thousands of objects that die together; the collector's own thresholds would look through all of them several times.
    What was imported never dies, so it is not looked at again.
    """
    keep_memory()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
