"""How much memory the processes of a session take, and what bounds it.

    jvm                resident memory of the JVM alongside the worker: its heap, and what it needs besides
    heap               what is in use of its heap                                               ≤ spark.driver.memory
    python             resident memory of the Python workers below that JVM                     each ≤ spark.executor.pyspark.memory
    executor           the heap of the executor of a cluster that has needed most               ≤ spark.executor.memory
    executor-python    the Python workers of the executor that has needed most                  ≤ spark.executor.pyspark.memory

Resident memory is read from /proc. What executors need comes with their heartbeats, which are ten seconds apart.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...core.batching.batch_progress import SparkMemory
from . import conf

PYTHON = "pyspark"
PROC = Path("/proc")


def taken(session: Any, pid: int, settings: Mapping[str, str]) -> tuple[SparkMemory, ...]:
    """What is taken now. It asks the JVM: not for the event loop. `pid`: of the JVM. `settings`: those of the session."""
    bounds = {name: conf.bytes_of(value) for name, value in conf.memory(settings).items()}
    each = bounds.get("spark.executor.pyspark.memory")
    found = [SparkMemory("jvm", size) for size in _resident([pid])]
    runtime = session._jvm.java.lang.Runtime.getRuntime()
    found.append(SparkMemory("heap", runtime.totalMemory() - runtime.freeMemory(), runtime.maxMemory()))
    if conf.is_local(settings["spark.master"]):
        workers = list(_resident(one for one in _below(pid) if PYTHON in _command(one)))
        return (*found, SparkMemory("python", sum(workers), each, len(workers)))
    peaks = list(_peaks(session))
    heap = max((one for one, _ in peaks), default=0)
    python = max((one for _, one in peaks), default=0)
    return (
        *found,
        SparkMemory("executor", heap, bounds.get("spark.executor.memory"), len(peaks)),
        SparkMemory("executor-python", python, each, len(peaks)),
    )


def _peaks(session: Any) -> Iterator[tuple[int, int]]:
    """The heap and the Python workers of each executor that lives, at their largest."""
    executors = session.sparkContext._jsc.sc().statusStore().executorList(True)
    for at in range(executors.size()):
        one = executors.apply(at)
        if one.id() != "driver":
            peak = one.peakMemoryMetrics()
            names = ("JVMHeapMemory", "ProcessTreePythonRSSMemory")
            heap, python = (peak.get().getMetricValue(name) if peak.isDefined() else 0 for name in names)
            yield heap, python


def _resident(pids: Any) -> Iterator[int]:
    for pid in pids:
        try:
            yield int((PROC / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            continue  # it has ended, or this system has no /proc


def _command(pid: int) -> str:
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _below(pid: int) -> Iterator[int]:
    """All processes that a process has begun, and what these have begun."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for one in PROC.iterdir() if PROC.is_dir() else ():
        if one.name.isdecimal():
            try:
                above = int((one / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            children[above].append(int(one.name))
    left = [pid]
    while left:
        found = children[left.pop()]
        yield from found
        left += found
