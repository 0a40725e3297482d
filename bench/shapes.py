"""Columns against Kafka Streams on every shape of JSON: works A, B and C, records per CPU second, and the median.

    python -m bench shapes [--quick] [--works ABC] [--shapes as-is,nested] [--keys 10000,1000000] [--peers headgate-columns,streams]

The shapes are the record as it is, its fields in random order, a nested record of about 400 bytes with four fields used, and the record
compressed with lz4. B runs on each shape with each number of keys. Programs are warm, outputs proven, and all commit every 200 ms, as in
`bench throughput`. The first program is compared with the second, and any further ones with the second, too.

Wanted of columns, as the median over the shapes: 5 times Kafka Streams in A, 12 times in B, 5 times in C. Prints a table; writes
`bench/out/shapes.json`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from statistics import median

from headgate.agents.broker.broker import Broker

from . import report
from .avro_records import SHAPE, schema_server
from .inputs import SHAPES
from .programs import PEERS
from .rig import USERS, Figures, scratch
from .run import Run, Trial

WANTED = {"A": 5.0, "B": 12.0, "C": 5.0}
Case = tuple[str, str, int]
"""Work, shape, keys."""


def ratios(figures: Sequence[Figures], peer: str, base: str) -> dict[Case, float]:
    """How many times as many records a CPU second one program processes as another, by case."""
    by = {(f.peer, f.work, f.shape, f.keys): median(f.per_cpu) for f in figures}
    found: dict[Case, float] = {}
    for (label, *case), rate in by.items():
        work, shape, keys = case
        other = by.get((PEERS[base].label, work, shape, keys))
        if label == PEERS[peer].label and other is not None:
            found[work, shape, keys] = rate / other
    return found


def table(found: dict[Case, float], peer: str, base: str) -> dict[str, float]:
    """Print the ratios. Returns the median of each work."""
    works = sorted({work for work, _, _ in found})
    print(f"\n{PEERS[peer].label} against {PEERS[base].label}: records per CPU second, times as many")
    print(f"{'':40}" + "".join(f"{work:>10}" for work in works))
    for shape, keys in dict.fromkeys((shape, keys) for _, shape, keys in found):
        cells = [found.get((work, shape, keys)) for work in works]
        title = shape if keys == USERS else f"{shape}, {keys:,} keys"
        print(f"{title:40}" + "".join(f"{'-' if cell is None else f'{cell:.1f}':>10}" for cell in cells))
    medians = {work: median(ratio for case, ratio in found.items() if case[0] == work) for work in works}
    print(f"{'median':40}" + "".join(f"{medians[work]:>10.1f}" for work in works))
    return medians


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench shapes", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--quick", action="store_true", help="small rounds; nothing is warm, so the JVM looks bad")
    words.add_argument("--works", default="ABC")
    words.add_argument("--shapes", default=",".join(one for one in SHAPES if one != SHAPE))
    words.add_argument("--keys", default="10000,1000000", help="of B")
    words.add_argument("--peers", default="headgate-columns,streams")
    words.add_argument("--rounds", type=int, default=0, help="5, or 3 in a quick run")
    words.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of headgate")
    given = words.parse_args()
    shapes, peers, keys = given.shapes.split(","), given.peers.split(","), [int(word) for word in given.keys.split(",")]
    if unknown := [one for one in shapes if one not in SHAPES] + [one for one in peers if one not in PEERS]:
        words.error(f"unknown: {', '.join(unknown)}; shapes: {', '.join(SHAPES)}; programs: {', '.join(PEERS)}")
    with (
        scratch() as directory,
        schema_server(directory, *shapes) as registry,
        Broker.start(directory / "kafka") as broker,
    ):
        rounds = given.rounds or (3 if given.quick else 5)
        run = Run(broker, directory, quick=given.quick, rounds=rounds, settings=given.set, registry=registry)
        for shape in shapes:
            for work in given.works:
                for number in keys if work == "B" else (USERS,):
                    for peer in peers:
                        run.measure(Trial(peer, work, shape, number))
            run.forget()
    base = peers[min(1, len(peers) - 1)]
    medians = {
        peer: table(found, peer, base) for peer in peers if peer != base and (found := ratios(run.figures, peer, base))
    }
    for what, why in run.left_out.items():
        print(f"left out: {what}: {why}")
    document = {"base": base, "medians": medians, "wanted": WANTED, "figures": [one.document() for one in run.figures]}
    report.keep("shapes", {"quick": given.quick, **document, "left_out": run.left_out})
    proven = [one.proven == "equal" for one in run.figures if one.peer.startswith("headgate")]
    return 0 if proven and all(proven) else 1


if __name__ == "__main__":
    sys.exit(main())
