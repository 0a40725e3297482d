"""What watermarks cost: work B on two inputs that differ in their timestamps only.

    python -m bench watermarks [--quick] [--pairs 3]

A task announces a new watermark to each of its streams when a commit begins: every 200 ms. On the first input Kafka's timestamps are the
times of writing, so each commit has new watermarks to announce. On the second one (work S) all timestamps are equal, so there is one
watermark, and no other. Both are measured in turns, `pairs` times. The
watermarks in the stream of the shuffle are counted after each run, so it is not trimmed.

Prints the share of the rate that watermarks cost: at most 5 % is promised. Writes `bench/out/watermarks.json`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import chain
from statistics import median
from typing import Any

from headgate.agents.broker.broker import Broker
from headgate.core.progress.frames import HEADER

from . import report
from .rig import read_all, scratch
from .throughput import Run


def cost(with_them: Sequence[Sequence[float]], without: Sequence[Sequence[float]]) -> float:
    """How many percent slower the median of all rounds is."""
    return 100 * (1 - median(chain(*with_them)) / median(chain(*without)))


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench watermarks", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--quick", action="store_true", help="small rounds")
    words.add_argument("--pairs", type=int, default=3)
    given = words.parse_args()
    counted: dict[str, list[int]] = {"B": [], "S": []}
    with scratch() as directory, Broker.start(directory / "kafka") as broker:
        run = Run(broker, directory, quick=given.quick, rounds=5, settings=("intermediate.trim=false",))

        def look(topics: Sequence[str]) -> None:
            (stream,) = (topic for topic in topics if topic.endswith("-by-user"))
            marks = ((HEADER, b"watermark") in (message.headers() or ()) for message in read_all(run.bootstrap, stream))
            counted[run.figures[-1].work].append(sum(marks))

        for _ in range(given.pairs):
            for work in "BS":
                run.measure("headgate", work, look)
    moving, still = ([one for one in run.figures if one.work == work] for work in "BS")
    costs: dict[str, Any] = {
        "percent_of_rate": cost([one.rates for one in moving], [one.rates for one in still]),
        "percent_per_cpu_s": cost([one.per_cpu for one in moving], [one.per_cpu for one in still]),
        "watermarks": counted["B"],
        "watermarks_where_time_stands_still": counted["S"],
    }
    print(
        f"watermarks cost {costs['percent_of_rate']:.1f} % of the rate, {costs['percent_per_cpu_s']:.1f} % a CPU second; "
        f"{median(counted['B']):.0f} in the stream of the shuffle, {median(counted['S']):.0f} where time stands still"
    )
    report.keep("watermarks", {"quick": given.quick, "figures": [one.document() for one in run.figures], **costs})
    return 0 if all(one.proven == "equal" for one in run.figures) else 1


if __name__ == "__main__":
    sys.exit(main())
