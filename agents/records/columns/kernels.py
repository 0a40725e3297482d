"""Operations of expressions that kernels of pyarrow compute: letters, replacing, patterns and putting together, of text.

What it decides: which operations these are, and for which texts. Promises:

- A kernel gives what `core/columns/evaluate.py` says, or is not used. pyarrow changes the letters of each character alone, and has other
  tables of Unicode, so texts with other letters than those of ASCII are changed by Python. A pattern is left to pyarrow if all that it
  contains means the same in RE2 and in Python.
- No operation here fails for a row: rows that are not selected are computed, too, and their values are of no meaning.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

from ....core.columns import expressions as e
from ....core.columns.schema import BOOL, TEXT
from ..memory.vectors import Vector

KERNELS = frozenset((e.LOWER, e.UPPER, e.REPLACE, e.MATCHES, e.CONCAT))
Kernel = Callable[[list[Vector]], Vector | None]
"""Computes an operation of these columns, which are not empty; None: of these, the kernel does not give what is wanted."""

_ALIKE = re.compile(
    r"""(?: [\w\ \-/&=:;,<>@!"\#%'~`.*+?|)^] | \((?!\?) | \(\?: | \{\d+(?:,\d*)?\}
          | \\[dDwWb.*+?|()\[\]{}^$\\/-]
          | \[\^?(?: [a-zA-Z0-9]-[a-zA-Z0-9] | [\w\ /=:;,@!%.+*] | &(?!&) )+\] )*
        (?P<end> \$)?""",
    re.VERBOSE | re.ASCII,
)
"""The patterns whose parts mean the same in both."""


def kernel_of(node: e.Operation) -> Kernel | None:
    """The kernel for an operation; None if there is none for it."""
    pattern = _pattern(str(node.options[0])) if node.name == e.MATCHES else ""
    if node.name not in KERNELS or pattern is None:
        return None
    pa: Any = importlib.import_module("pyarrow")
    pc: Any = importlib.import_module("pyarrow.compute")
    options: tuple[Any, ...] = node.options

    def compute(of: list[Vector]) -> Vector | None:
        if node.name in (e.LOWER, e.UPPER) and not bytes(of[0].data).isascii():
            return None
        arrays = [pa.array(one) for one in of]
        match node.name:
            case e.LOWER:
                return _taken(pc.ascii_lower(*arrays))
            case e.UPPER:
                return _taken(pc.ascii_upper(*arrays))
            case e.REPLACE:
                return _taken(pc.replace_substring(*arrays, pattern=options[0], replacement=options[1]))
            case e.MATCHES:
                return _taken(pc.match_substring_regex(*arrays, pattern=pattern))
            case _:
                return _taken(pc.binary_join_element_wise(*arrays, ""))

    return compute


def _pattern(pattern: str) -> str | None:
    """The same pattern for RE2; None if it may be another one there."""
    found = _ALIKE.fullmatch(pattern)
    if found is None:
        return None
    if found["end"]:  # in Python also before a last line break
        pattern = pattern[:-1] + r"(?:\n?\z)"
    pa: Any = importlib.import_module("pyarrow")
    try:
        importlib.import_module("pyarrow.compute").match_substring_regex(pa.array(["a"]), pattern=pattern)
    except pa.ArrowInvalid:  # what RE2 has not, such as a possessive +
        return None
    return pattern


def _taken(array: Any) -> Vector:
    """A column of text or of booleans, as it lies in memory."""
    validity, *rest = array.buffers()
    kind = TEXT if len(rest) == 2 else BOOL
    data, offsets = rest[-1], rest[0] if kind == TEXT else None
    return Vector(kind, len(array), b"" if data is None else data, offsets, validity, array.null_count)
