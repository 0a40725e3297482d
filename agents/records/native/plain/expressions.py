"""Expressions over columns: what `expressions.c` does with a program, `core.columns.evaluate` does with the tree itself."""

from __future__ import annotations

from typing import Any


def program(ops: list[Any], depth: int) -> None:
    """An expression that can be computed. None: nothing computes it faster than evaluating its tree."""
    return
