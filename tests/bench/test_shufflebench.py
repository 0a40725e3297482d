"""The records and rules of ShuffleBench have the published selectivity, its tail completes each batch, and a judge sees what is wrong."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import mean

import orjson
import pytest

from bench.nexmark import judging, oracle
from bench.nexmark.feed import PARTITIONS, Load
from bench.nexmark.queries.shuffled import matcher
from bench.nexmark.shufflebench import (
    OUTPUT_RATE,
    RULES,
    SELECTIVITY,
    SIZE,
    WIDTH,
    Blob,
    Blobs,
    consumer,
    matching,
    offsets,
)

COUNT = 20_000


def test_a_record_is_a_kilobyte_without_a_key_and_matches_a_fifth_of_a_rule() -> None:
    blobs = [blob for _, blob in Blobs(seed=3).events(COUNT)]
    assert {len(blob.data) for blob in blobs} == {SIZE}
    assert mean(len(matching(blob.data)) for blob in blobs) == pytest.approx(SELECTIVITY, rel=0.05)
    assert max(len(matching(blob.data)) for blob in blobs) > 1
    assert Blobs.record(Blobs(), blobs[0]) == (None, blobs[0].data)


def test_the_job_finds_the_same_rules_by_another_index(tmp_path: Path) -> None:
    file = tmp_path / "rules"
    file.write_text("".join(f"{name},{ends}\n" for name, ends in Blobs().side()))
    matched = matcher(file)
    edges = [edge for offset in offsets() for edge in (offset - 1, offset, offset + WIDTH - 1, offset + WIDTH)]
    datas = [edge.to_bytes(8, "big") for edge in (0, *edges, (1 << 64) - 1)] + [
        blob.data for _, blob in Blobs(seed=3).events(2_000)
    ]
    for data in datas:
        assert set(matched(data)) == set(map(consumer, matching(data)))


def test_the_tail_lets_each_consumer_have_a_multiple_of_ten_records() -> None:
    source = Blobs(seed=3)
    events, phases = Load([400, 100], source.kinds, source).made()
    got = Counter(rule for blob in events for rule in matching(blob.data))
    assert len(got) < RULES
    assert {n % OUTPUT_RATE for n in got.values()} == {0}
    assert {len(matching(blob.data)) for blob in events[500:]} == {1}
    assert {one.partition for one in phases[-1]} == set(range(PARTITIONS))


def test_a_seed_gives_the_same_records_again_and_another_one_others() -> None:
    assert list(Blobs(seed=3).events(50)) == list(Blobs(seed=3).events(50))
    assert list(Blobs(seed=4).events(50)) != list(Blobs(seed=3).events(50))


def event(name: str, total: int, count: int = OUTPUT_RATE) -> tuple[bytes, bytes]:
    """An output."""
    return name.encode(), orjson.dumps({"consumer": name, "count": count, "total": total, "first": 1, "last": 2})


def test_the_judge_adds_up_batches_in_64_bits_and_tells_what_is_wrong() -> None:
    number = (1 << 62) // RULES * RULES
    own = next(offset for n, offset in enumerate(offsets()) if n and offset - offsets()[n - 1] > WIDTH)
    data = own.to_bytes(8, "big") + bytes(8)
    (rule,) = matching(data)
    wanted = oracle.shuffle([Blob(data, 0)] * 20)
    total = (20 * own + (1 << 63)) % (1 << 64) - (1 << 63)
    assert wanted == {consumer(rule): (2, 20, total)}
    halves = [
        event(consumer(rule), number),
        event(consumer(rule), (total - number + (1 << 63)) % (1 << 64) - (1 << 63)),
    ]
    assert judging.wrong("shuffle", wanted, halves) == ""
    assert "1 wrong" in judging.wrong("shuffle", wanted, halves[:1])
    assert "1 wrong" in judging.wrong("shuffle", wanted, [halves[0], event(consumer(rule), 7)])
    assert "1 wrong" in judging.wrong(
        "shuffle", wanted, [halves[0], (b"", halves[1][1].replace(b'"count":10', b'"count":9'))]
    )
    assert "1 too many" in judging.wrong("shuffle", wanted, [*halves, event("consumer_x", 1)])
