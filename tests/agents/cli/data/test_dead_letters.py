"""Which dead letters can be written to their inputs again, as far as it can be seen without a broker."""

from __future__ import annotations

import re
from base64 import b64decode
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypedDict

import pytest

import headgate as hg
from headgate.agents.cli.data.dead_letters import again, dead_letter_document, must_be_same, open_target, timed
from headgate.agents.cli.data.frames import frame_document
from headgate.agents.cli.options import Target
from headgate.agents.cli.output import as_typed
from headgate.agents.records.kafka.target_rules import Rules
from headgate.agents.testing.driver import Driver
from headgate.agents.testing.logs import in_columns
from headgate.core.names import JobName, StreamPartition, Topics
from headgate.core.progress.frames import BatchFrame, encode


@pytest.fixture
def to() -> Target:
    nothing: Any = None
    return Target(JobName("sales"), Topics(JobName("sales")), nothing)


def failing(row: Any) -> Any:
    raise ValueError("bad")


def letter_of(app: hg.App, *rows: dict[str, Any]) -> Any:
    """The only dead letter of a job, as it lies in its topic."""
    with Driver(app) as d:
        for row in rows:
            d.send("orders", row, key=row["c"], at=5)
        d.drain()
        (letter,) = d.topics.records(StreamPartition("sales-1-dead-letters", 0))
    return letter


def test_a_row_that_came_from_no_chunk_is_replayed_to_a_given_topic_alone(to: Target) -> None:
    """A result of a window is no record of the input: written there, it would be counted as an order."""
    app = hg.App("sales", on_error="dead_letter")
    app.input("orders", key="c", timestamp="ts").window(hg.tumbling("10s"), name="tens").agg(n=hg.count()).map(
        failing
    ).to("out")
    letter = letter_of(app, {"c": "DE", "ts": 1}, {"c": "DE", "ts": 2})
    with pytest.raises(hg.HeadgateError, match=r"holds a result of Partition 0.*several records or none.*--to TOPIC"):
        again(to, letter, "", {})
    made: Any = again(to, letter, "elsewhere", {})
    assert (made.topic, made.key, made.partition, made.timestamp_ms) == ("elsewhere", b"DE", None, 9_999)
    assert b'"n":2' in made.value
    assert [name for name, _ in made.headers if name.startswith("hg-")] == []


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "Arrow"])
def test_a_letter_from_behind_a_shuffle_names_its_row_and_the_record_that_it_was_made_of(columns: bool) -> None:
    """A frame has one offset for all of its rows, which found no record. Others lie between them, and some were filtered."""

    class Order(TypedDict):
        c: str
        n: int

    app = hg.App("sales", on_error="dead_letter")
    orders = app.input("orders", serde=hg.json(Order))
    stream: Any = orders.columns() if columns else orders
    if columns:
        stream = stream.filter(hg.col("n") != 1)
    else:
        stream = stream.filter(lambda o: o["n"] != 1)
    behind = stream.repartition("c", name="by")
    (behind.rows() if columns else behind).map(lambda o: {"x": 1 // o["n"]}).to("out")
    with Driver(app) as d:
        d.send_all("orders", [{"c": "DE", "n": n % 40} for n in range(100)])
        letters = list(d.topics.records(StreamPartition("sales-1-dead-letters", 0)))
    found = [dead_letter_document(one, whole=True) for one in letters]
    assert [(one["topic"], one["row"]) for one in found] == [("sales-1-by", row) for row in (0, 39, 78)]
    assert [one["from"] for one in found] == [f"orders[0] offset {offset}" for offset in (0, 40, 80)]
    assert len({one["origin_offset"] for one in found}) == 1


def test_each_of_the_rows_of_a_record_names_it_also_behind_a_second_shuffle(to: Target) -> None:
    """A record may make many rows, or none. The rows of a frame have no offset of their own."""
    app = hg.App("sales", on_error="dead_letter")
    many = app.input("orders").flat_map(lambda o: [{"c": o["c"], "n": n} for n in range(o["n"])])
    first = many.repartition("c", name="by").map(lambda o: {**o, "x": 1 // o["n"]})
    first.repartition("n", name="again").map(failing).to("out")
    with Driver(app) as d:
        d.send_all("orders", [{"c": "DE", "n": n} for n in (3, 0, 2)])
        letters = list(d.topics.records(StreamPartition("sales-1-dead-letters", 0)))
    found = [dead_letter_document(one, whole=True) for one in letters]
    assert [(one["row"], one["from"]) for one in found if one["topic"] == "sales-1-by"] == [
        (0, "orders[0] offset 0"),
        (3, "orders[0] offset 2"),
    ]
    assert [(one["row"], one["from"]) for one in found if one["topic"] == "sales-1-again"] == [
        (0, "orders[0] offset 0"),
        (1, "orders[0] offset 0"),
        (2, "orders[0] offset 2"),
    ]


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
def test_behind_two_shuffles_of_several_tasks_each_row_has_its_own_record(columns: bool) -> None:
    """Frames of all partitions of the input come together in one chunk; rows of it go on in many frames. The results of an aggregate are
    made of all chunks since the last commit: their frames say nothing."""

    class Order(TypedDict):
        c: str
        n: int

    app = hg.App("sales", on_error="dead_letter")
    orders: Any = app.input("orders", serde=hg.json(Order))
    stream = orders.columns().filter(hg.col("n") != 7) if columns else orders.filter(lambda o: o["n"] != 7)
    stream = stream.repartition("c", name="by", partitions=2)
    stream = stream.filter(hg.col("n") != 8) if columns else stream.filter(lambda o: o["n"] != 8)
    behind = stream.repartition("n", name="again", partitions=2)
    (behind.rows() if columns else behind).map(lambda o: {"x": 1 // (o["n"] % 5)}).to("out")
    totals = stream.agg(total=hg.sum("n"), name="totals").repartition("total", name="of-totals")
    totals.map(failing).to("never")
    wanted = {n: f"orders[{n % 3}] offset {n // 3}" for n in range(600)}
    with Driver(app, partitions={"orders": 3}) as d:
        d.metadata.put("requests", "p", {"verb": "pause"})
        for part in range(3):
            rows = [{"c": "DEFRIT"[n // 3 % 3 * 2 :][:2], "n": n} for n in range(part, 600, 3)]
            d.send_all("orders", rows, partition=part)
        d.metadata.put("requests", "r", {"verb": "resume"})
        d.drain()
        letters = list(d.topics.records(StreamPartition("sales-1-dead-letters", 0)))
        again = [dict(one.headers) for n in range(2) for one in d.topics.records(StreamPartition("sales-1-again", n))]
    assert any(b", orders[" in one.get("hg-from", b"") for one in again), "rows of several partitions are in a frame"
    found = [dead_letter_document(one, whole=True) for one in letters]
    told = {one["value"]["n"]: one["from"] for one in found if one["topic"] == "sales-1-again"}
    assert told == {n: wanted[n] for n in range(0, 600, 5)}
    assert {one["from"] for one in found if one["topic"] == "sales-1-of-totals"} == {""}


def test_behind_a_join_of_streams_a_letter_names_the_frames_that_were_joined_last() -> None:
    """Its rows were made of two streams, of which one came before. The frames of the chunk that made them are known."""
    app = hg.App("sales", on_error="dead_letter")
    orders = app.input("orders").repartition("c", name="o")
    payments = app.input("payments").repartition("c", name="p")
    paid = orders.join(payments, within="10s", into=lambda order, paid: {"n": order["n"] + paid["n"]})
    paid.repartition("n", name="paid").map(failing).to("out")
    with Driver(app) as d:
        d.send("orders", {"c": "DE", "n": 1})
        d.send_all("payments", [{"c": "DE", "n": n} for n in (2, 3)])
        letters = list(d.topics.records(StreamPartition("sales-1-dead-letters", 0)))
    found = [dead_letter_document(one, whole=True) for one in letters]
    assert [one["topic"] for one in found] == ["sales-1-paid"] * 2
    assert all(re.fullmatch(r"frame sales-1-p\[0\] offset \d+", one["from"]) for one in found)


def test_rows_of_a_frame_of_another_kind_are_left_out_as_bad_data_is() -> None:
    """Somebody has written rows where partial states are expected: the task failed whatever the policy was, and no skip passed them."""
    app = hg.App("sales", on_bad_data="dead_letter", on_error="dead_letter")
    app.input("orders").repartition("c", name="by").agg(n=hg.count()).to("out")
    by = StreamPartition("sales-1-by", 0)
    with Driver(app) as d:
        foreign = encode(BatchFrame([b"DE"] * 2, [1, 2], [b'{"c":"DE"}'] * 2))
        d.topics.write(by, *in_columns([(b"k", foreign, 1, ())]))
        d.send_all("orders", [{"c": "DE"}] * 3)
        d.drain()
        assert [one.value["n"] for one in d.read("out")] == [3]
        letters = [
            dead_letter_document(one, whole=True)
            for one in d.topics.records(StreamPartition("sales-1-dead-letters", 0))
        ]
    assert [(one["topic"], one["row"]) for one in letters] == [(by.stream, 0), (by.stream, 1)]
    assert all("rows instead of partial states" in one["exception"] for one in letters)


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
def test_frames_of_a_shared_stream_name_the_record_of_each_row(columns: bool) -> None:
    """As `headgate frames cat -o json` shows them: whoever reads another job's stream finds the record, too."""

    class Order(TypedDict):
        c: str
        n: int

    app = hg.App("sales")
    stream: Any = app.input("orders", serde=hg.json(Order))
    stream = stream.columns().filter(hg.col("n") > 1) if columns else stream.filter(lambda o: o["n"] > 1)
    stream.share("orders-of-all", key="c")
    with Driver(app) as d:
        d.send_all("orders", [{"c": "DE", "n": n % 4} for n in range(300)])
        frames = [
            frame_document(SimpleNamespace(partition=0, **vars_of(one)))
            for one in d.topics.records(StreamPartition("orders-of-all", 0))
        ]
    told = [row["from"] for one in frames for row in one.get("rows", ())]
    assert told == [f"orders[0] offset {n}" for n in range(300) if n % 4 > 1]
    assert {one["type"] for one in frames if "rows" in one} == {"arrow" if columns else "batch"}


def vars_of(record: Any) -> dict[str, Any]:
    """What a record of a driver has."""
    return {name: getattr(record, name) for name in ("offset", "timestamp", "key", "value", "headers")}


def test_frames_are_written_by_jobs_alone(to: Target) -> None:
    """A plain record in a shared stream stops every job that reads it."""
    app = hg.App("sales", on_error="dead_letter")
    app.input("orders", timestamp="ts").map(failing).to("out")
    letter = letter_of(app, {"c": "DE", "ts": 7})
    with pytest.raises(hg.HeadgateError, match=r"between two stages of the job.*--to TOPIC"):
        again(to, letter, "", {"orders": "sales/1"})
    with pytest.raises(hg.HeadgateError, match=r"'orders': it holds the frames of the job 'pricing/1'.*--to TOPIC"):
        again(to, letter, "", {"orders": "pricing/1"})
    for topic in ("sales-1-by-user", "__headgate_coordinator_pricing_1", "priced"):
        with pytest.raises(hg.HeadgateError, match=f"nothing is written to '{topic}'"):
            open_target(to, topic, {"priced": "pricing/1"})
    open_target(to, "orders", {"priced": "pricing/1"})


def test_a_record_is_replayed_to_where_it_came_from(to: Target) -> None:
    """With its own partition and the time that Kafka had for it."""
    app = hg.App("sales", on_error="dead_letter")
    app.input("orders", timestamp="ts").map(failing).to("out")
    letter = letter_of(app, {"c": "DE", "ts": 7})
    made: Any = again(to, letter, "", {})
    assert (made.topic, made.partition, made.key, made.timestamp_ms) == ("orders", 0, b"DE", 5)
    said = dead_letter_document(letter, whole=True)
    assert (said["row"], said["from"]) == (None, ""), "it came in no frame"


def stored(value: bytes | None, *headers: tuple[str, bytes], key: bytes | None = None) -> Any:
    """A letter as it lies in the topic."""
    origin = (
        ("hg-topic", b"orders"),
        ("hg-partition", b"2"),
        ("hg-offset", b"7"),
        ("hg-timestamp", b"5"),
        ("hg-exception", b"x"),
    )
    return SimpleNamespace(offset=3, timestamp=9, key=key, value=value, headers=[*headers, *origin])


@pytest.mark.parametrize(
    ("rules", "headers", "stamp", "then"),
    [
        (None, [], 5, []),
        (Rules(before_ms=1000), [], 99_500, [("hg-time", b"5")]),
        (Rules(before_ms=1000), [("hg-event-time", b"-3")], 99_500, [("hg-time", b"-3")]),
        (Rules(before_ms=200_000), [("hg-event-time", b"-3")], 5, [("hg-time", b"-3")]),
    ],
)
def test_a_replayed_record_keeps_its_event_time_where_its_topic_no_longer_accepts_it(
    to: Target, rules: Rules | None, headers: list[tuple[str, bytes]], stamp: int, then: list[tuple[str, bytes]]
) -> None:
    """The broker refused the record, and with it the whole replay. One that has a time beside its timestamp keeps that one."""
    made: Any = again(to, stored(b"v", *headers), "", {})
    found = timed(made, rules, 100_000)
    assert (found.timestamp_ms, list(found.headers)) == (stamp, then)
    assert timed(replace(made, timestamp_ms=None), rules, 100_000).timestamp_ms is None


def test_the_exact_bytes_are_shown_and_replayed(to: Target) -> None:
    """What cannot be read is often no text: shown as text, nobody could say which bytes it was."""
    letter = stored(b"\xff\x00", ("own", b"\xfe"), key=b"\x80")
    raw = dead_letter_document(letter, whole=True)["raw"]
    decoded = [b64decode(raw["key"]), b64decode(raw["value"]), [(name, b64decode(one)) for name, one in raw["headers"]]]
    assert decoded == [b"\x80", b"\xff\x00", [("own", b"\xfe")]]
    made: Any = again(to, letter, "", {})
    assert (made.key, made.value, made.headers) == (b"\x80", b"\xff\x00", [("own", b"\xfe")])


def test_the_key_is_shown_as_people_type_it() -> None:
    """As `headgate tables` shows any other key."""
    letter = stored(b"v", key=hg.key().dumps((1, "DE")))
    assert as_typed(dead_letter_document(letter, whole=True)["key"]) == '[1, "DE"]'


def test_of_a_letter_that_was_cut_the_record_itself_is_replayed(to: Target) -> None:
    """A part of a record is another record."""
    letter = stored(b"abc", ("hg-cut", b"value"), ("hg-size", b"9000000"))
    assert dead_letter_document(letter, whole=True)["cut"] == "value"
    assert again(to, letter, "", {}) == again(to, letter, "elsewhere", {}) == (3, "orders", 2, 7)
    letter.headers[2] = ("hg-topic", b"sales-1-by-user")
    with pytest.raises(hg.HeadgateError, match="holds only the first 3 of 9000000 bytes"):
        again(to, letter, "elsewhere", {"sales-1-by-user": "sales"})


@pytest.mark.parametrize(("found", "same"), [("orders.0", True), ("orders.1", False), ("", True)])
def test_a_record_of_a_topic_that_was_made_again_is_not_that_of_the_letter(found: str, same: bool) -> None:
    """What stands at its offset now is another record: replay wrote that one. An unknown id equals any."""
    app = hg.App("sales", on_error="dead_letter")
    app.input("orders", timestamp="ts").map(failing).to("out")
    letter = letter_of(app, {"c": "DE", "ts": 7})
    assert dict(letter.headers)["hg-topic-id"] == b"orders.0"
    must_be_same(stored(b"abc"), "orders", "another", {})  # a letter of an earlier version
    must_be_same(letter, "orders", found, {"orders.0": found})
    if same:
        must_be_same(letter, "orders", found, {})
    else:
        for adopted in ({}, {"orders.0": "orders.2"}):
            with pytest.raises(hg.HeadgateError, match=r"re-created since: its id was orders.0, and is orders.1 now"):
                must_be_same(letter, "orders", found, adopted)


def test_a_batch_that_was_not_decompressed_is_no_record(to: Target) -> None:
    letter = stored(b"abc", ("hg-offset-last", b"9"))
    with pytest.raises(
        hg.HeadgateError, match=r"raise fetch.max-batch-bytes, and `headgate seek sales/1 orders:2 --to 7`"
    ):
        again(to, letter, "", {})
