"""The compiled part, or None: this file alone decides whether it is used.

It is built at installation if there is a compiler. Without it, with `AIOKAFKA_NO_EXTENSIONS=1`, or in a further interpreter of a process,
Python does the same work, more slowly. Promise: both ways give the same; every test of them runs both.
"""

from __future__ import annotations

import importlib
import os
from typing import Any


def _built() -> Any:
    if os.environ.get("AIOKAFKA_NO_EXTENSIONS"):  # the same variable that aiokafka reads
        return None
    try:
        return importlib.import_module("._columns", __package__)
    except ImportError:
        return None


compiled: Any = _built()
