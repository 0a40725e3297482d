"""The command line: `headgate VERB`.

Decides how verbs are found (by name, in `VERBS`; each module is imported only when its verb is used, so that `--help` costs
nothing) and how commands end: 0 done, 1 failed, 2 usage, 3 deadline passed, 4 not found. What failed is said on standard
error, with what to do about it, and never as a traceback, unless `HEADGATE_DEBUG` is set.
"""

from __future__ import annotations

from .group import LazyGroup, main

__all__ = ["LazyGroup", "main"]
