"""`part`: the compiled part, or its plain twin. This file alone decides which, once.

The compiled part is built at installation if there is a compiler. Without it, with `AIOKAFKA_NO_EXTENSIONS=1`, or in a further interpreter
of a process, the twin does the same work in Python, more slowly; code that chooses by speed asks whether the part is `FAST`. Promise:
both have the same functions, which take and give the same; every test of them runs both.
"""

from __future__ import annotations

import importlib
import os
from types import SimpleNamespace
from typing import Any

from ....core.windows.matching import PlainIndex, find_pairs
from .frames import opener
from .plain import (
    avro,
    avro_write,
    decoded,
    expressions,
    frames,
    groups,
    json,
    numbers,
    octets,
    protobuf,
    records,
    spans,
    spread,
    vectors,
    windows,
)


def _compiled() -> Any:
    if os.environ.get("AIOKAFKA_NO_EXTENSIONS"):  # the same variable that aiokafka reads
        return None
    try:
        built = importlib.import_module("._columns", __package__)
    except ImportError:
        return None
    return SimpleNamespace(**vars(built), open_frame=opener(built), FAST=True)


COMPILED: Any = _compiled()
"""None if it is not used."""
_TWINS = (
    avro,
    avro_write,
    protobuf,
    decoded,
    numbers,
    octets,
    spans,
    vectors,
    records,
    groups,
    windows,
    json,
    expressions,
    frames,
    spread,
)
PLAIN: Any = SimpleNamespace(
    **{
        name: what
        for module in _TWINS
        for name, what in vars(module).items()
        if getattr(what, "__module__", "") == module.__name__
    },
    RowIndex=PlainIndex,
    find_pairs=find_pairs,
    ROW_BYTES=windows.ROW_BYTES,
    PACKED_BYTES=windows.PACKED_BYTES,
    FAST=False,
)
part: Any = PLAIN if COMPILED is None else COMPILED
