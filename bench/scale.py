"""How throughput scales: with workers, with partitions, and B with the number of its keys.

    python -m bench scale [--quick] [--what workers,partitions,keys] [--works ABC] [--peers headgate-columns,headgate]

- `workers`: 1, 2 and 4 workers, four partitions. Two workers and the broker need more than two cores. Also the parts of the time in which
  the main thread of a worker ran, and waited for a core; in the rest it waited for the broker.
- `partitions`: one worker with 1, 4, 16 and 64 partitions.
- `keys`: B with 10^5, 10^6 and 10^7 keys, of which each is there before the first round begins.

Measured and proven as in `bench throughput`. Prints a table for each; writes `bench/out/scale.json`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from statistics import median

from headgate.agents.broker.broker import Broker

from . import report
from .programs import PEERS
from .rig import Figures, scratch
from .run import Run, Trial

WORKERS = (1, 2, 4)
PARTITIONS = (1, 4, 16, 64)
KEYS = (100_000, 1_000_000, 10_000_000)
QUICK_KEYS = (100_000, 1_000_000)


def trials(what: str, peer: str, works: str, quick: bool) -> dict[str, list[Trial]]:
    """What is measured, by work or, for keys, of B."""
    match what:
        case "workers":
            return {work: [Trial(peer, work, workers=n) for n in WORKERS] for work in works}
        case "partitions":
            return {work: [Trial(peer, work, partitions=n) for n in PARTITIONS] for work in works}
        case _:
            return {"B": [Trial(peer, "B", keys=n) for n in (QUICK_KEYS if quick else KEYS)]}


def table(what: str, found: dict[tuple[str, str], Sequence[Figures | None]], sizes: Sequence[int]) -> None:
    """Print thousand records a second (and a CPU second) of one kind."""
    print(f"\n{what}: thousand records a second (thousand a CPU second; MB)")
    print(f"{'':48}" + "".join(f"{size:>26,}" for size in sizes))
    for (peer, work), row in found.items():
        cells = [
            "-" if f is None else f"{median(f.rates) / 1e3:.0f} ({median(f.per_cpu) / 1e3:.0f}; {f.rss_mb:.0f})" for f in row
        ]  # fmt: skip
        print(f"{work} {PEERS[peer].label:46}" + "".join(f"{cell:>26}" for cell in cells))
        if what == "workers":
            parts = ["-" if f is None else f"runs {f.ran:.0%}, for a core {f.ready:.0%}" for f in row]
            print(f"{'':48}" + "".join(f"{part:>26}" for part in parts))


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench scale", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--quick", action="store_true", help="small rounds, up to 10^6 keys")
    words.add_argument("--what", default="workers,partitions,keys")
    words.add_argument("--works", default="ABC", help="for workers and partitions")
    words.add_argument("--peers", default="headgate-columns,headgate")
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of headgate")
    given = words.parse_args()
    sizes = {"workers": WORKERS, "partitions": PARTITIONS, "keys": QUICK_KEYS if given.quick else KEYS}
    wanted, peers = given.what.split(","), given.peers.split(",")
    if unknown := [one for one in wanted if one not in sizes] + [one for one in peers if one not in PEERS]:
        words.error(f"unknown: {', '.join(unknown)}; there are: {', '.join(sizes)}; programs: {', '.join(PEERS)}")
    with scratch() as directory, Broker.start(directory / "kafka") as broker:
        run = Run(broker, directory, quick=given.quick, rounds=given.rounds, settings=given.set)
        tables: dict[str, dict[tuple[str, str], Sequence[Figures | None]]] = {}
        for what in wanted:
            tables[what] = {
                (peer, work): [run.measure(one) for one in row]
                for peer in peers
                for work, row in trials(what, peer, given.works, given.quick).items()
            }
            run.forget()
    for what, found in tables.items():
        table(what, found, sizes[what])
    for what, why in run.left_out.items():
        print(f"left out: {what}: {why}")
    figures = [one.document() for one in run.figures]
    report.keep("scale", {"quick": given.quick, "figures": figures, "left_out": run.left_out})
    return 0 if figures and not run.left_out and all(one.proven == "equal" for one in run.figures) else 1


if __name__ == "__main__":
    sys.exit(main())
