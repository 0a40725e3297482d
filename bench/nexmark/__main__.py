"""Nexmark, q0 to q22, YSB and ShuffleBench: from Kafka to Kafka, exactly once, beside Flink in one run.

    python -m bench nexmark [--queries q0,q1,q17,ysb,shuffle] [--engines headgate,flink,flink-2] [--events 300000] [--rounds 3] [--quick]

`--events` is how many events of the generator a round has, and `--warm` how many come before the first one; `--quick` has
50,000 of each, and no JVM is warm. Queries that read no bids get ten times as many. The figures are of the records that a
query reads. All results are compared row by row with those of a few lines of Python. `--delays` and `--pace` say for how
long, and with how many events a second, the delay of results is measured. Prints a line for each figure and a table; writes
`bench/out/nexmark.json`. The engines `streams` and `streams-tuned` are Kafka Streams, which has q0 to q8, ysb and shuffle.
"""

from __future__ import annotations

import argparse
import sys
from functools import cache
from statistics import median

from confluent_kafka import KafkaException

from headgate.agents.broker.broker import Broker

from .. import report
from ..rig import scratch
from .delays import CAUSES
from .feed import Load
from .judging import truth
from .queries import QUERIES, Input
from .trial import ENGINES, Measured, Place

NEXMARK = [name for name in QUERIES if name.startswith("q")]


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench nexmark", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--queries", default=",".join(NEXMARK), help="also: ysb, shuffle")
    words.add_argument("--engines", default="headgate,flink,flink-2")
    words.add_argument("--events", type=int, default=300_000, help="events of a round")
    words.add_argument("--warm", type=int, default=600_000, help="events before the first round")
    words.add_argument("--rounds", type=int, default=0, help="3, or 2 in a quick run")
    words.add_argument("--delays", type=float, default=10.0, metavar="SECONDS", help="of a steady rate; 0: no delays")
    words.add_argument("--pace", type=float, default=10_000, help="events a second of that rate")
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--quick", action="store_true", help="small rounds: nothing is warm, so the JVM looks bad")
    words.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of headgate")
    given = words.parse_args()
    queries, engines = given.queries.split(","), given.engines.split(",")
    if unknown := [name for name in queries if name not in QUERIES] + [name for name in engines if name not in ENGINES]:
        words.error(f"no {', '.join(unknown)}; there are: {', '.join([*QUERIES, *ENGINES])}")
    size, warm = (50_000, 50_000) if given.quick else (given.events, given.warm)
    rounds = given.rounds or (2 if given.quick else 3)

    @cache
    def load_of(like: Input, paced: bool) -> Load:
        pace = [round(given.pace * given.delays)] if paced else []
        return Load([warm * like.times] + [size * like.times] * rounds + pace, like.kinds, like.source(given.seed))

    measured: list[Measured] = []
    left_out: dict[str, str] = {}
    with scratch() as directory, Broker.start(directory / "kafka") as broker:
        place = Place(broker.bootstrap, directory, given.set)
        shapes = {query: (QUERIES[query].input, given.delays > 0 and query in CAUSES) for query in queries}
        for shape in dict.fromkeys(shapes.values()):
            load, seconds = load_of(*shape), given.delays if shape[1] else 0.0
            events, phases = load.made()
            print(f"# {len(events):,} events of {', '.join(kind.__name__ for kind in load.kinds)}", flush=True)
            for query in (query for query in queries if shapes[query] == shape):
                wanted = truth(query, events)
                for engine in engines:
                    why = ENGINES[engine].lacks(query)
                    try:
                        if not why:
                            measured.append(place.measure(query, engine, load, phases, wanted, seconds))
                            print(measured[-1].line, flush=True)
                    except (AssertionError, KafkaException, OSError) as error:  # the others go on
                        why = str(error) or repr(error)
                        print(f"! {query} {engine}: {why}", flush=True)
                    if why:
                        left_out[f"{query} {engine}"] = why
    table(measured, queries, engines)
    for what, why in left_out.items():
        print(f"left out: {what}: {why}")
    figures = [one.document() for one in measured]
    kept = {
        "quick": given.quick,
        "events": size,
        "warm": warm,
        "rounds": rounds,
        "figures": figures,
        "left_out": left_out,
    }
    report.keep("nexmark", kept)
    ours = [one.wrong for one in measured if one.engine == "headgate"]
    return 0 if ours and not any(ours) else 1


def table(measured: list[Measured], queries: list[str], engines: list[str]) -> None:
    """Thousand records per CPU second, and how many times those of the others headgate makes."""
    by = {(one.query, one.engine): median(one.per_cpu) for one in measured}
    print(f"\nthousand records per CPU second\n{'':8}" + "".join(f"{name:>22}" for name in engines))
    ratios: dict[str, list[float]] = {}
    for query in queries:
        cells: list[str] = []
        for engine in engines:
            figure, ours = by.get((query, engine)), by.get((query, "headgate"))
            cell = f"{figure / 1e3:.0f}" if figure else "–"
            if figure and ours and engine != "headgate":
                ratios.setdefault(engine, []).append(ours / figure)
                cell += f" ({ours / figure:.1f}x)"
            cells.append(f"{cell:>22}")
        print(f"{query:8}" + "".join(cells))
    for engine, of in ratios.items():
        spread = f"median; {min(of):.1f} to {max(of):.1f}"
        print(f"headgate makes {median(of):.1f} times as many as {ENGINES[engine].label} ({spread})")


if __name__ == "__main__":
    sys.exit(main())
