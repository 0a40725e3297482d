"""Every query of the bench gives what a few lines of Python give, in a driver without Kafka; and the judge sees what is wrong."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import orjson
import pytest

import headgate as hg
from bench.nexmark import flink, judging
from bench.nexmark.feed import Load
from bench.nexmark.queries import QUERIES
from bench.nexmark.queries.records import Topics
from bench.nexmark.source import topic_of

PARTITIONS = 2
EVENTS = {"q3": 6_000, "q8": 6_000, "q5": 2_500, "q11": 2_500, "q12": 2_500}
"""All others: 2,000, in ten seconds of event time or more."""


@cache
def load_of(query: str) -> Load:
    """A load of two phases."""
    count = EVENTS.get(query, 2_000)
    like = QUERIES[query].input
    source = like.source(7) if query in BY_TIME else like.source(7, per_second=count // 40)
    return Load([count // 2, count // 2], like.kinds, source)


BY_TIME = ("q4", "q6", "q9", "q20", "q3")
"""Auctions are as long as so many events take, and the distance of their joins is made for the published rate."""


def outputs(query: str, side: Path) -> list[tuple[bytes | None, bytes | None]]:
    """What a query writes, phase by phase."""
    load = load_of(query)
    _, phases = load.made()
    app = hg.App("nexmark")
    QUERIES[query].build(app, Topics(side=side))
    topics = {topic_of(kind) for kind in load.kinds}
    with hg.testing.Driver(app, partitions=dict.fromkeys(topics, PARTITIONS)) as driver:
        for phase in phases:
            for topic in sorted(topics):
                for partition in range(PARTITIONS):
                    mine = (one for one in phase if one.kind == topic and one.partition % PARTITIONS == partition)
                    driver.send_all(topic, [hg.Record(one.key, one.value, 0) for one in mine], partition=partition)
            driver.advance("11s")
        written = driver.read("out")
    return [(str(one.key).encode() if one.key is not None else None, orjson.dumps(one.value)) for one in written]


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_gives_what_the_oracle_gives(query: str, tmp_path: Path) -> None:
    side = tmp_path / "side.txt"
    load = load_of(query)
    side.write_text("".join(f"{key},{value}\n" for key, value in load.source.side()))
    events, _ = load.made()
    assert judging.wrong(query, judging.truth(query, events), outputs(query, side)) == ""


@pytest.mark.parametrize("query", [query for query in QUERIES if query != "q6"])
def test_all_that_the_statements_of_flink_leave_open_is_filled_in(query: str) -> None:
    source = QUERIES[query].input.source(1)
    kinds = [topic_of(kind).upper() for kind in source.kinds]
    names = ["BOOTSTRAP", "JOB", "OUT", *kinds, *(f"{kind}_TOPIC" for kind in kinds)]
    text = flink.statements(query, {name: f"<{name}>" for name in names}, source.declarations)
    assert "${" not in text
    assert "<OUT>" in text
