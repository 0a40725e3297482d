"""How often steps have failed with which error, as the counters of tasks say it.

    failed.<step>|<error>       records that failed so, and letters that failed so, each try of them

Promise: a step may have any name; what stands behind the last bar is the class of the error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

FAILED = "failed."
BETWEEN = "|"


class ErrorKind(NamedTuple):
    """An error of a step."""

    step: str
    error: str


def failed_so(counters: Iterable[Mapping[str, int]]) -> dict[ErrorKind, int]:
    """How often each error came, over all tasks of a process.

    >>> failed_so([{"failed.map|ValueError": 2, "ticks": 9}, {"failed.map|ValueError": 1}])
    {ErrorKind(step='map', error='ValueError'): 3}
    """
    found: dict[ErrorKind, int] = {}
    for counts in counters:
        for name, times in counts.items():
            if name.startswith(FAILED):
                step, _, error = name.removeprefix(FAILED).rpartition(BETWEEN)
                kind = ErrorKind(step, error)
                found[kind] = found.get(kind, 0) + times
    return found
