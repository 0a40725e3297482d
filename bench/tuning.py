"""What settings of the hot path are worth: the same work with each of some values, beside the default.

    python -m bench tuning [--quick] [--settings commit.interval,compression] [--passes 2]

Each setting has the work on which it matters most. All values of a setting run one after the other, and then again in the other order, so
that a machine that gets busier harms no value more than another; the median over the passes counts. Prints for each value thousands of
records a second and a CPU second, the memory of the worker, and megabytes of output; the tables of `docs/tuning.md` are made of it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from headgate.agents.broker.broker import Broker

from .rig import USERS, Figures, scratch
from .run import Run, Trial


@dataclass(frozen=True, slots=True)
class Knob:
    """A setting, what it is tried with, and the work. The default is among the values."""

    setting: str
    values: tuple[str, ...]
    peer: str
    work: str
    keys: int = USERS


KNOBS = (
    Knob("commit.interval", ("50ms", "200ms", "1s"), "headgate", "A"),
    Knob("guarantee", ("exactly_once", "at_least_once"), "headgate", "A"),
    Knob("chunk.max-records", ("50", "2000", "10000"), "headgate", "A"),
    Knob("chunk.max-bytes", ("64KiB", "1MiB", "4MiB"), "headgate-columns", "A"),
    Knob("buffer.bytes", ("256KiB", "4MiB", "16MiB"), "headgate-columns", "A"),
    Knob("compression", ("none", "lz4", "zstd"), "headgate-columns", "A"),
    Knob("state.memory", ("16MiB", "256MiB"), "headgate-columns", "B", keys=1_000_000),
)


def written(directory: Path, names: Sequence[str]) -> float:
    """Megabytes of these topics on the disk of the broker."""
    outputs = [name for name in names if name.endswith("-out")]
    logs = (path for name in outputs for path in directory.glob(f"kafka/*/data/{name}-*/*.log"))
    return sum(path.stat().st_blocks * 512 for path in logs) / 1e6


def shown(knob: Knob, value: str, found: Sequence[tuple[Figures, float]]) -> str:
    """One line."""
    per_s = median(rate for figures, _ in found for rate in figures.rates) / 1e3
    per_cpu = median(rate for figures, _ in found for rate in figures.per_cpu) / 1e3
    memory = max(figures.rss_mb for figures, _ in found)
    return (
        f"{knob.setting:20} {value:14} {knob.peer:17} {knob.work}  {per_s:7.0f} k/s  {per_cpu:7.0f} k/CPU s  {memory:6.0f} MB  "
        f"output {max(size for _, size in found):6.0f} MB  load {os.getloadavg()[0]:.1f}"
    )


def main() -> int:
    """Measure and print."""
    words = argparse.ArgumentParser(prog="python -m bench tuning", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--quick", action="store_true", help="small rounds")
    words.add_argument("--settings", default=",".join(knob.setting for knob in KNOBS))
    words.add_argument("--passes", type=int, default=2)
    given = words.parse_args()
    wrong = 0
    for knob in (one for one in KNOBS if one.setting in given.settings.split(",")):
        found: dict[str, list[tuple[Figures, float]]] = {value: [] for value in knob.values}
        with scratch() as directory, Broker.start(directory / "kafka") as broker:
            run = Run(broker, directory, quick=given.quick, rounds=3)
            for turn in range(given.passes):
                for value in knob.values if turn % 2 == 0 else reversed(knob.values):
                    run.settings, sizes = (f"{knob.setting}={value}",), list[float]()
                    trial = Trial(knob.peer, knob.work, keys=knob.keys)
                    figures = run.measure(trial, lambda names, sizes=sizes: sizes.append(written(directory, names)))
                    if figures is None or figures.proven != "equal":
                        wrong = 1
                    else:
                        found[value].append((figures, *sizes))
        for value, some in found.items():
            print(shown(knob, value, some) if some else f"{knob.setting} {value}: nothing was measured", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
