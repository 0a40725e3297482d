"""Works A, B and C on headgate (rows, typed rows, columns) and its peers, side by side, in one run on one broker.

    python -m bench throughput [--quick] [--works AB] [--peers headgate,streams] [--rounds 5] [--shape nested] [--keys 1000000]

A: parse, keep nine of ten, add a field, write. B: re-key by another field, count and sum per key in a changelogged store, updates out. C:
parse and add up. Four partitions, one worker process, everything read from the beginning of the topic. The input is about 100 bytes of
JSON a record, or has another shape: its fields in random order, a nested record of about 400 bytes with four fields used, compressed with
lz4, or Avro with a real schema registry, where outputs are Avro, too. All programs commit every 200 ms. librdkafka reads back the outputs,
read committed, and compares them with the expected ones: A record by record, B user by user, C as a sum.

Two more works are run by other scripts: W, counts and sums per key and window (`bench windows`), and S, which is B on an input whose
timestamps stand still (`bench watermarks`). `bench shapes` compares columns with Kafka Streams on all shapes.

Prints a table; writes `bench/out/throughput.json` and `bench/out/throughput.png`.
"""

from __future__ import annotations

import argparse
import sys

from headgate.agents.broker.broker import Broker

from . import report
from .avro_records import schema_server
from .inputs import SHAPES
from .programs import PEERS
from .rig import USERS, scratch
from .run import Run, Trial

SHOWN = (
    *("headgate-columns", "headgate-typed", "headgate", "streams", "streams-tuned"),
    *("polars", "bare", "quix", "bytewax", "faust"),
)


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench throughput", description=(__doc__ or "").partition("\n")[0])
    words.add_argument(
        "--quick", action="store_true", help="small rounds: minutes; nothing is warm, so the JVM looks bad"
    )
    words.add_argument("--works", default="ABC")
    words.add_argument("--peers", default=",".join(SHOWN))
    words.add_argument("--rounds", type=int, default=0, help="5, or 3 in a quick run")
    words.add_argument("--shape", choices=SHAPES, default="as-is", help="of the input")
    words.add_argument("--keys", type=int, default=USERS, help="of B")
    words.add_argument(
        "--size", type=int, default=0, help="records of a round: more than a program does between two updates"
    )
    words.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of headgate")
    given = words.parse_args()
    peers = given.peers.split(",")
    if unknown := [name for name in peers if name not in PEERS]:
        words.error(f"no program {', '.join(unknown)}; there are: {', '.join(PEERS)}")
    with (
        scratch() as directory,
        schema_server(directory, given.shape) as registry,
        Broker.start(directory / "kafka") as broker,
    ):
        rounds = given.rounds or (3 if given.quick else 5)
        run = Run(
            broker, directory, quick=given.quick, rounds=rounds, settings=given.set, registry=registry, size=given.size
        )
        for work in given.works:
            for peer in peers:
                run.measure(Trial(peer, work, given.shape, given.keys if work == "B" else USERS))
    report.throughput(run.figures, run.left_out, quick=given.quick)
    ours = [figures.proven for figures in run.figures if figures.peer.startswith("headgate")]
    return 0 if all(word == "equal" for word in ours) else 1


if __name__ == "__main__":
    sys.exit(main())
