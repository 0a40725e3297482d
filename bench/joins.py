"""Work J: a join of two streams by key within 10 s, beside Kafka Streams in one run: throughput and memory.

    python -m bench joins [--quick] [--peers headgate,headgate-typed,headgate-columns,streams] [--rounds 5]

All programs commit every 200 ms, and each pair of each program is compared. `pairing.py` describes the inputs. Records are those of both
streams. Wanted: of rows twice as many as Kafka Streams, aimed at three times; of columns six times as many. Prints a line for each figure;
writes `bench/out/joins.json`.
"""

from __future__ import annotations

import argparse
import sys
from statistics import median

from headgate.agents.broker.broker import Broker

from . import report
from .rig import scratch
from .run import Run, Trial


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench joins", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--quick", action="store_true", help="small rounds; no JVM is warm")
    words.add_argument("--peers", default="headgate,headgate-typed,headgate-columns,streams,streams-tuned")
    words.add_argument("--rounds", type=int, default=0, help="5, or 3 in a quick run")
    words.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of headgate")
    given = words.parse_args()
    with scratch() as directory, Broker.start(directory / "kafka") as broker:
        rounds = given.rounds or (3 if given.quick else 5)
        run = Run(broker, directory, quick=given.quick, rounds=rounds, settings=given.set)
        for peer in given.peers.split(","):
            run.measure(Trial(peer, "J"))
            run.forget()
    for theirs in (one for one in run.figures if not one.peer.startswith("headgate")):
        for ours in (one for one in run.figures if one.peer.startswith("headgate")):
            print(
                f"{ours.peer} against {theirs.peer}: {median(ours.rates) / median(theirs.rates):.2f} times as fast, "
                f"{median(ours.per_cpu) / median(theirs.per_cpu):.2f} times a CPU second, {ours.rss_mb / theirs.rss_mb:.2f} of its memory"
            )
    for what, why in run.left_out.items():
        print(f"left out: {what}: {why}")
    throughput = [figures.document() for figures in run.figures]
    report.keep("joins", {"quick": given.quick, "throughput": throughput, "left_out": run.left_out})
    proven = [one["outputs_are"] for one in throughput if one["peer"].startswith("headgate")]
    return 0 if proven and all(word == "equal" for word in proven) else 1


if __name__ == "__main__":
    sys.exit(main())
