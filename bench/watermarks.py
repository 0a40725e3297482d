"""What watermarks cost: work B on two inputs that differ in their timestamps only.

    python -m bench watermarks [--quick] [--pairs 9]

A task announces a new watermark to each of its streams when a commit begins: every 200 ms. On the first input Kafka's timestamps are the
times of writing, so each commit has new watermarks to announce. On the second one (work S) all timestamps are equal, so there is one
watermark, and no other. Each pair measures both, one right after the other, in changing order. Compared are records per CPU second of all
rounds of a run together, within each pair, because what else runs on the machine changes from pair to pair. The watermarks in the stream of
the shuffle are counted after each run, so it is not trimmed.

Prints the median over all pairs of the share of CPU time that watermarks cost: at most 5 % is promised. Writes
`bench/out/watermarks.json`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from statistics import harmonic_mean, median, quantiles
from typing import Any

from headgate.agents.broker.broker import Broker
from headgate.core.progress.frames import HEADER

from . import report
from .rig import Figures, read_all, scratch
from .run import Run, Trial


def cost(with_them: Figures, without: Figures) -> float:
    """How many percent fewer records a CPU second processes."""
    return 100 * (1 - harmonic_mean(with_them.per_cpu) / harmonic_mean(without.per_cpu))


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench watermarks", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--quick", action="store_true", help="fewer rounds")
    words.add_argument("--pairs", type=int, default=9)
    given = words.parse_args()
    counted: dict[str, list[int]] = {"B": [], "S": []}
    with scratch() as directory, Broker.start(directory / "kafka") as broker:
        # many rounds behind a short warm-up: a commit more or less at either end must not count
        run = Run(
            broker, directory, quick=True, rounds=10 if given.quick else 25, settings=("intermediate.trim=false",)
        )

        def look(topics: Sequence[str]) -> None:
            (stream,) = (topic for topic in topics if topic.endswith("-by-user"))
            marks = ((HEADER, b"watermark") in (message.headers() or ()) for message in read_all(run.bootstrap, stream))
            counted[run.figures[-1].work].append(sum(marks))

        for number in range(given.pairs):
            for work in "BS"[:: 1 if number % 2 else -1]:
                if run.measure(Trial("headgate", work), look) is None:
                    return 1
    moving, still = ([one for one in run.figures if one.work == work] for work in "BS")
    costs = [cost(*pair) for pair in zip(moving, still, strict=True)]
    low, middle, high = quantiles(costs, n=4) if len(costs) > 1 else costs * 3
    found: dict[str, Any] = {
        "percent_of_cpu": middle, "quartiles": [low, high], "pairs": costs, "watermarks": counted["B"],
        "watermarks_where_time_stands_still": counted["S"],
    }  # fmt: skip
    print(
        f"watermarks cost {middle:.1f} % of CPU time (half of {len(costs)} pairs between {low:.1f} and {high:.1f} %); "
        f"{median(counted['B']):.0f} in the stream of the shuffle, {median(counted['S']):.0f} where time stands still"
    )
    report.keep("watermarks", {"quick": given.quick, "figures": [one.document() for one in run.figures], **found})
    return 0 if all(one.proven == "equal" for one in run.figures) else 1


if __name__ == "__main__":
    sys.exit(main())
