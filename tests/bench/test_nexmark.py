"""Every query of Nexmark gives what a few lines of Python give, in a driver without Kafka; and the judge sees what is wrong."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import orjson
import pytest

import headgate as hg
from bench.nexmark import judging
from bench.nexmark.feed import Load, side_input
from bench.nexmark.generator import KINDS, Generator
from bench.nexmark.queries import QUERIES
from bench.nexmark.queries.records import Topics

PARTITIONS = 2
EVENTS = {"q3": 6_000, "q8": 6_000, "q5": 2_500, "q11": 2_500, "q12": 2_500}
"""All others: 2,000, in ten seconds of event time or more."""


@cache
def load_of(query: str) -> Load:
    """A load of two phases."""
    count = EVENTS.get(query, 2_000)
    slow = Generator(seed=7, per_second=count // 40)
    return Load([count // 2, count // 2], QUERIES[query].kinds, Generator(seed=7) if query in BY_TIME else slow)


BY_TIME = ("q4", "q6", "q9", "q20", "q3")
"""Auctions are as long as so many events take, and the distance of their joins is made for the published rate."""


def outputs(query: str, side: Path) -> list[tuple[bytes | None, bytes | None]]:
    """What a query writes, phase by phase."""
    load = load_of(query)
    _, phases = load.made()
    app = hg.App("nexmark")
    QUERIES[query].build(app, Topics(side=side))
    topics = {kind.__name__.lower() for kind in KINDS if kind in load.kinds}
    with hg.testing.Driver(app, partitions=dict.fromkeys(topics, PARTITIONS)) as driver:
        for phase in phases:
            for topic in sorted(topics):
                for partition in range(PARTITIONS):
                    values = [value for kind, p, value, _ in phase if kind == topic and p % PARTITIONS == partition]
                    driver.send_all(topic, values, partition=partition)
            driver.advance("11s")
        written = driver.read("out")
    return [(str(one.key).encode() if one.key is not None else None, orjson.dumps(one.value)) for one in written]


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_gives_what_the_oracle_gives(query: str, tmp_path: Path) -> None:
    side = tmp_path / "side.txt"
    side.write_text("".join(f"{key},{value}\n" for key, value in side_input()))
    events, _ = load_of(query).made()
    assert judging.wrong(query, judging.truth(query, events), outputs(query, side)) == ""
