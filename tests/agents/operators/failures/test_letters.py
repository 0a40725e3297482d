"""A dead letter always fits into its topic, says what was cut from it, and holds bytes as they are."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headgate as hg
from headgate.agents.operators.failures.letters import fitted, row_bytes
from headgate.agents.records.kafka.writable import record_size
from headgate.agents.testing.targets import OWN_LIMIT

ORIGIN = [("hg-topic", b"orders"), ("hg-partition", b"0"), ("hg-offset", b"7"), ("hg-traceback", b"t" * 300)]


@given(st.integers(0, 4000), st.integers(0, 4000), st.integers(0, 4000), st.integers(600, 2000))
def test_a_letter_fits_and_keeps_its_origin(key: int, value: int, header: int, limit: int) -> None:
    headers: list[tuple[str, bytes]] = [("own", b"h" * header), *ORIGIN]
    found = fitted(b"k" * key, b"v" * value, headers, limit)
    assert record_size(*found) <= limit
    told = dict(found[2])
    assert {name: told[name] for name, _ in ORIGIN[:3]} == dict(ORIGIN[:3])
    assert told["hg-size"] == b"%d" % value
    cut = told["hg-cut"].decode().split(",")
    assert ("own" in told) == ("headers" not in cut)
    assert found[0] == b"k" * key or told["hg-key-size"] == b"%d" % key
    assert b"v" * value == (found[1] or b"") + b"v" * (value - len(found[1] or b""))
    if "headers" not in cut and value > limit:
        assert len(found[1] or b"") >= limit - 160 - record_size(b"k" * key, None, headers), "as much as fits"


def test_a_null_value_stays_null() -> None:
    assert fitted(b"k" * 3000, None, ORIGIN, 1000)[1] is None


def job(**policy: Any) -> Any:
    app = hg.App("sales", **policy)
    app.input("orders", serde=hg.json()).to("out")
    return app


@pytest.mark.parametrize("size", [OWN_LIMIT, 3 * OWN_LIMIT])
def test_a_bad_record_of_any_size_is_buried_and_the_job_goes_on(size: int) -> None:
    """The letter was larger than its topic accepts, so the task failed, at each start again."""
    record = b"\xff\x00" * (size // 2)
    with hg.testing.Driver(job(on_bad_data="dead_letter")) as d:
        d.send("orders", record, key=b"k", headers={"own": b"1"})
        d.send("orders", {"v": 1})
        assert [one.value for one in d.read("out")] == [{"v": 1}]
        [letter] = d.dead_letters()
        counters = dict(d.counters)
    assert (letter.topic, letter.partition, letter.offset, letter.key) == ("orders", 0, 0, b"k")
    assert letter.value == record[: len(letter.value or b"")]
    assert OWN_LIMIT - 20_000 < len(letter.value or b"") < OWN_LIMIT
    assert (counters["dead_letters"], counters["dead_letters_cut"]) == (1, 1)


class Silent:
    """It cannot be shown."""

    def __str__(self) -> str:
        raise ValueError


def circle() -> dict[str, Any]:
    made: dict[str, Any] = {"n": 2**64}
    return {**made, "own": made, "again": [made, made]} | made.setdefault("me", made)


@pytest.mark.parametrize(
    ("row", "value"),
    [
        ({"n": 2**70, "m": -(2**63) - 1}, {"n": 2**70, "m": -(2**63) - 1}),
        ({1: "a", None: 2, ("x", 1): b"\xff"}, {"1": "a", "None": 2, "('x', 1)": "/w=="}),
        ({"n": 2**70, "at": datetime(2026, 1, 2, tzinfo=UTC)}, {"n": 2**70, "at": "2026-01-02T00:00:00+00:00"}),
        ({"n": 2**70, "f": float("inf"), "g": 1.5, "b": True}, {"n": 2**70, "f": None, "g": 1.5, "b": True}),
        ({"text": "\udc80"}, {"text": "\\udc80"}),
        ([2**70, (1, {2})], [2**70, [1, "{2}"]]),
        ({"n": 2**100_000}, {"n": hex(2**100_000)}),
        ({"n": 2**70, "x": Silent()}, None),
        (circle(), None),
    ],
)
def test_a_row_that_is_no_record_is_json(row: Any, value: Any) -> None:
    """A number beyond 64 bits made Python's own notation of the whole row, which no tool reads."""
    found = json.loads(row_bytes(row))
    assert found == value or value is None


def test_bytes_of_a_row_that_is_no_record_are_not_made_text() -> None:
    r"""`b'\xff\x00'` was written as that text."""

    def whole(row: Any) -> bytes:
        return b"\xff\x00"

    def failing(row: Any) -> Any:
        raise ValueError("bad")

    app = hg.App("sales", on_error="dead_letter")
    windows = app.input("orders", key="c", timestamp="ts").window(hg.tumbling("10s"), name="tens").agg(n=hg.count())
    windows.map(whole).map(failing).to("out")
    windows.map(lambda row: {"n": row["n"], "raw": b"\xff\x00"}).map(failing).to("other")
    with hg.testing.Driver(app) as d:
        d.send("orders", {"c": "DE", "ts": 1})
        d.drain()
        assert sorted(one.value or b"" for one in d.dead_letters()) == [b'{"n":1,"raw":"/wA="}', b"\xff\x00"]
