"""Streams of columns do what streams of rows do: the same job is written both ways, and gets the same records, good and bad."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import msgspec
import orjson
import pyarrow
import pytest

import headgate as hg
from headgate.agents.operators.base.stateless import UserCodeError
from headgate.agents.operators.plain.aggregating import AggregateOp
from headgate.agents.operators.shuffle.shuffles import CombineOp
from headgate.agents.records.columns.decoder import Decoder
from headgate.agents.records.kafka.target_rules import Rules
from headgate.agents.records.native import chosen
from headgate.agents.testing.driver import Driver

from ..pipeline.test_pipeline import Rig, chunk


class Order(TypedDict):
    user: str
    amount: float
    ts: int
    country: str | None


class OrderStruct(msgspec.Struct):
    user: str
    amount: float
    ts: int
    country: str | None = None


@dataclass
class OrderData:
    user: str
    amount: float
    ts: int
    country: str | None = None


class Big(TypedDict):
    user: str
    total: float


class Total(TypedDict):
    ts: int
    total: float


Job = Callable[[hg.App, hg.Stream[Any, Any]], object]


def rows_to(app: hg.App, orders: hg.Stream[Any, Any]) -> object:
    return (
        orders.filter(lambda o: o["amount"] >= 10, on_error="skip")
        .map(lambda o: {**o, "total": o["amount"] * 1.2})
        .to("out")
    )


def columns_to(app: hg.App, orders: hg.Stream[Any, Any]) -> object:
    kept = orders.columns().filter(hg.col("amount") >= 10)
    return kept.with_columns(total=hg.col("amount") * 1.2).to("out")


def rows_derived(app: hg.App, orders: hg.Stream[Any, Any]) -> object:
    def derived(o: Any) -> Any:
        country = o["country"]
        return {
            **o,
            "amount": int(o["amount"]),
            "late": o["ts"] > 1_020,
            "german": None if country is None else country == "DE",
            "again": country,
            "text": str(o["ts"]),
            "same": "ü",
        }

    return orders.filter(lambda o: o["user"] != "a").map(derived).filter(lambda o: o["late"]).to("out", key="text")


def columns_derived(app: hg.App, orders: hg.Stream[Any, Any]) -> object:
    made = (
        orders.columns()
        .filter(hg.col("user") != "a")
        .with_columns(
            amount=hg.col("amount").cast(int),
            late=hg.col("ts") > 1_020,
            german=hg.col("country") == "DE",
            again=hg.col("country"),
            text=hg.col("ts").cast(str),
            same="ü",
        )
    )
    return made.filter(hg.col("late")).to("out", key="text")


def rows_packed(app: hg.App, orders: hg.Stream[Any, Any]) -> object:
    return orders.filter(lambda o: o["ts"] % 2 == 0).to("out", serde=hg.msgpack())


def columns_packed(app: hg.App, orders: hg.Stream[Any, Any]) -> object:
    return orders.columns().filter(hg.col("ts") % 2 == 0).to("out", serde=hg.msgpack())


def rows_agg(app: hg.App, orders: hg.Stream[Any, Any]) -> object:
    return orders.repartition("user").agg(**AGGREGATES).to("out")


def columns_agg(app: hg.App, orders: hg.Stream[Any, Any]) -> object:
    return orders.columns().repartition("user").agg(**AGGREGATES).to("out")


def rows_in_order(app: hg.App, orders: hg.Stream[Any, Any]) -> object:
    return orders.repartition("user").agg(n=hg.count(), first=hg.first("amount"), all=hg.collect("country")).to("out")


def columns_in_order(app: hg.App, orders: hg.Stream[Any, Any]) -> object:
    shuffled = orders.columns().repartition("user")
    return shuffled.agg(n=hg.count(), first=hg.first("amount"), all=hg.collect("country")).to("out")


def rows_text(app: hg.App, orders: hg.Stream[Any, Any]) -> object:
    return orders.repartition("user").agg(low=hg.min("user"), high=hg.max("ts"), sum=hg.sum("amount")).to("out")


def columns_text(app: hg.App, orders: hg.Stream[Any, Any]) -> object:
    return (
        orders.columns().repartition("user").agg(low=hg.min("user"), high=hg.max("ts"), sum=hg.sum("amount")).to("out")
    )


def rows_shuffled(app: hg.App, orders: hg.Stream[Any, Any]) -> object:
    shuffled = orders.repartition("ts", key_serde=hg.key())
    shuffled.agg(n=hg.count()).to("counts")
    return shuffled.filter(lambda o: o["country"] != "FR" and o["country"] is not None).to("out")


def columns_shuffled(app: hg.App, orders: hg.Stream[Any, Any]) -> object:
    shuffled = orders.columns().repartition("ts", key_serde=hg.key())
    shuffled.agg(n=hg.count()).to("counts")
    return shuffled.filter(hg.col("country") != "FR").to("out")


def rows_keyed(app: hg.App, orders: hg.Stream[Any, Any]) -> object:
    return orders.map(lambda o: {"user": o["user"], "total": o["amount"]}).to("out", key="user")


def columns_keyed(app: hg.App, orders: hg.Stream[Any, Any]) -> object:
    """From rows to columns and back."""
    made = orders.map(lambda o: {"user": o["user"], "total": o["amount"], "more": 1}).columns(Big)
    return made.rows().columns(Big).to("out", key="user")


AGGREGATES = {
    "n": hg.count(),
    "total": hg.sum("amount"),
    "low": hg.min("ts"),
    "high": hg.max("amount"),
    "mean": hg.mean("amount"),
}
JOBS = [
    (rows_to, columns_to),
    (rows_derived, columns_derived),
    (rows_packed, columns_packed),
    (rows_agg, columns_agg),
    (rows_in_order, columns_in_order),
    (rows_text, columns_text),
    (rows_shuffled, columns_shuffled),
    (rows_keyed, columns_keyed),
]
BAD = [
    b"",
    b"{",
    b"[1]",
    b'{"user":"a"}',
    b'{"user":"a","amount":"12","ts":1}',
    b'{"user":"a","amount":12,"ts":1.5}',
    b'{"user":"a","amount":12,"ts":9223372036854775808}',
    b'{"user":null,"amount":12,"ts":1}',
    b'{"user":"\xff","amount":12,"ts":1}',
    b'{"user":"a","amount":12,"ts":1}{}',
]


def records(seed: int, bad: bool) -> list[hg.Record[Any, Any]]:
    """Orders as producers write them, with keys, headers and times of their own."""
    chance = random.Random(seed)
    made: list[hg.Record[Any, Any]] = []
    for number in range(60):
        value: Any = orjson.dumps(
            {
                "user": chance.choice(["a", "b", "ü"]),
                "amount": chance.choice([1, 9.5, 10, 12.25, 0.1]),
                "ts": 1_000 + chance.randrange(50),
                **({"country": chance.choice(["DE", "FR", None])} if chance.random() < 0.7 else {}),
                "other": [number],
            }
        )
        if bad and chance.random() < 0.2:
            value = chance.choice(BAD)
        headers = (("n", str(number).encode()),) if chance.random() < 0.3 else ()
        made.append(hg.Record(chance.choice([None, "k"]), value, number, headers))
    return made


def outcome(job: Job, sent: list[hg.Record[Any, Any]], chunk: int, **policies: Any) -> dict[str, Any]:
    """Everything that a job does with these records."""
    app = hg.App("job", **policies)
    job(app, app.input("orders", serde=hg.json(Order), key_serde=hg.text(), timestamp="ts"))
    with Driver(app) as d:
        for start in range(0, len(sent), chunk):
            d.send_all("orders", sent[start : start + chunk])
        d.drain()
        return {
            **{topic: d.read(topic) for topic in sorted(d.declared.graph.outputs)},
            "dead": [(one.key, one.value, one.offset) for one in d.dead_letters()],
            "counters": {name: n for name, n in d.counters.items() if name != "tombstones_dropped"},
        }


@pytest.mark.parametrize(("by_rows", "by_columns"), JOBS, ids=[one.__name__ for _, one in JOBS])
@pytest.mark.parametrize("chunk", [1, 7, 60])
@pytest.mark.parametrize("policies", [{}, {"on_bad_data": "skip"}, {"on_bad_data": "dead_letter"}], ids=str)
def test_columns_give_what_rows_give(by_rows: Job, by_columns: Job, chunk: int, policies: dict[str, Any]) -> None:
    """Values, keys, times, headers, their order, dead letters and counters; also with bad records among the good ones."""
    sent = records(chunk, bad=bool(policies))
    wanted = outcome(by_rows, sent, chunk, **policies)
    assert wanted["out"]
    assert outcome(by_columns, sent, chunk, **policies) == wanted


@pytest.mark.parametrize(("by_rows", "by_columns"), JOBS[:2], ids=[one.__name__ for _, one in JOBS[:2]])
@pytest.mark.parametrize("policies", [{}, {"on_bad_data": "dead_letter"}], ids=str)
def test_records_of_declared_fields_alone_hold_the_same(
    by_rows: Job, by_columns: Job, policies: dict[str, Any]
) -> None:
    """They are written as their original bytes: an optional field that was not there is not there, where rows have null."""

    def plain(value: Any) -> Any:
        found = orjson.loads(value) if isinstance(value, bytes) and value not in BAD else value
        return {k: v for k, v in found.items() if k != "other"} if isinstance(found, dict) else found

    sent = [
        hg.Record(one.key, _without_other(one.value), one.timestamp, one.headers) for one in records(5, bool(policies))
    ]
    found, wanted = outcome(by_columns, sent, 7, **policies), outcome(by_rows, sent, 7, **policies)
    for one in (found, wanted):
        one["out"] = [replace(r, value={"country": None, **plain(r.value)}) for r in one["out"]]
    assert found == wanted


def _without_other(value: bytes) -> bytes:
    return value if value in BAD else orjson.dumps({k: v for k, v in orjson.loads(value).items() if k != "other"})


AS_WRITTEN = b'{ "ts" : 5, "amount":1e1,"user":"\\u0061"} '


@pytest.mark.parametrize(
    ("make", "record", "written"),
    [
        (lambda c: c, AS_WRITTEN, AS_WRITTEN),
        (lambda c: c.filter(hg.col("ts") > 1), AS_WRITTEN, AS_WRITTEN),
        (lambda c: c.with_columns(n=hg.col("ts") + 1), AS_WRITTEN, b'{ "ts" : 5, "amount":1e1,"user":"\\u0061","n":6}'),
        (
            lambda c: c.with_columns(n=1).filter(hg.col("n") == 1).with_columns(m="x"),
            AS_WRITTEN,
            b'{ "ts" : 5, "amount":1e1,"user":"\\u0061","n":1,"m":"x"}',
        ),
        (
            lambda c: c.with_columns(ts=hg.col("ts") + 1),
            AS_WRITTEN,
            b'{"user":"a","amount":10.0,"ts":6,"country":null}',
        ),
        (
            lambda c: c.filter(hg.col("ts") > 1),
            b'{"user":"a","amount":1,"ts":5,"more":1}',
            b'{"user":"a","amount":1.0,"ts":5,"country":null}',
        ),
        (
            lambda c: c.with_columns(n=1),
            b'{"user":"a","amount":1,"ts":5,"n":7}',
            b'{"user":"a","amount":1.0,"ts":5,"country":null,"n":1}',
        ),
        (lambda c: c.rows().columns(Order), AS_WRITTEN, b'{"user":"a","amount":10.0,"ts":5,"country":null}'),
    ],
)
def test_when_a_record_is_written_as_it_was_read(make: Any, record: bytes, written: bytes) -> None:
    """If no declared column is replaced and it holds just declared fields, none of which is added; otherwise in full."""
    app = hg.App("job")
    make(app.input("in", serde=hg.json(Order)).columns()).to("out")
    rig = Rig(app)
    asyncio.run(rig.run(chunk(record)))
    assert rig.out() == [written]


@pytest.mark.parametrize("key", ["user", "ts", "country", None])
@pytest.mark.parametrize("key_serde", [None, hg.text(), hg.key(), hg.json()], ids=str)
@pytest.mark.parametrize("own", [None, "user"])
def test_keys_of_outputs_are_those_of_rows(key: str | None, key_serde: Any, own: str | None) -> None:
    """Taken from a column or from the record, in the encoding that the step declares; also where it refuses one."""
    found: list[Any] = []
    sent = [
        b'{"user":"a","amount":1,"ts":5,"country":"DE"}',
        b'{"user":"\xc3\xbc","amount":1,"ts":-7,"country":null}',
    ]
    for columns in (False, True):
        app = hg.App("job")
        orders: Any = app.input("in", serde=hg.json(Order), key=own)
        (orders.columns() if columns else orders).filter(
            hg.col("amount") > 0 if columns else lambda o: o["amount"] > 0
        ).to("out", key=key, key_serde=key_serde)
        rig = Rig(app, width=2)
        try:
            asyncio.run(rig.run(chunk(*sent, keys=[b"k", None])))
            found.append(sorted((one.at.partition, one.keys, one.timestamps) for one in rig.topics.open))
        except Exception as error:  # noqa: BLE001 - both refuse it, or none
            found.append((str(error).partition("): ")[2], getattr(error, "index", None)))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("rules", "limit", "bad"),
    [
        (None, 200, b'{"user":"' + b"x" * 200 + b'","amount":1,"ts":5}'),
        (Rules(compacted=True), 1 << 20, b'{"user":"a","amount":1,"ts":5}'),
    ],
    ids=["too large", "without a key"],
)
def test_what_a_topic_refuses_is_the_record_that_rows_would_blame(rules: Rules | None, limit: int, bad: bytes) -> None:
    """With its index in the chunk that is written, and the same words."""
    good, found = b'{"user":"a","amount":1,"ts":5}', []
    for columns in (False, True):
        app = hg.App("job")
        orders: Any = app.input("in", serde=hg.json(Order), timestamp="ts")
        kept = orders.columns().filter(hg.col("amount") > 0) if columns else orders.filter(lambda o: o["amount"] > 0)
        kept.to("out")
        rig = Rig(app)
        rig.topics.know("out", 1, limit, rules)
        with pytest.raises(UserCodeError) as raised:
            asyncio.run(
                rig.run(chunk(b'{"user":"a","amount":0,"ts":5}', good, bad, good, keys=[b"k", b"k", None, b"k"]))
            )
        found.append((raised.value.index, str(raised.value.__cause__)))
        assert rig.out() == []
    assert found[0][0] == 1
    if limit > 200:
        assert found[0] == found[1]
    else:  # rows are written in other bytes
        assert found[1][0] == 1
        assert "a record for out takes" in found[1][1]


@pytest.mark.parametrize("ms", [-7, 4102444800000])
def test_a_time_that_a_topic_does_not_accept_is_written_alike_by_rows_and_columns(ms: int) -> None:
    """Before 1970, or too new: the nearest timestamp, and the event time in a header. It is counted."""
    found = []
    for columns in (False, True):
        app = hg.App("job")
        orders: Any = app.input("in", serde=hg.json(Order), timestamp="ts", earliest=None)
        (orders.columns() if columns else orders).to("out")
        rig = Rig(app)
        rig.topics.know("out", 1, 1 << 20, Rules(after_ms=1_000))
        asyncio.run(rig.run(chunk(b'{"user":"a","amount":1,"ts":5}', b'{"user":"a","amount":1,"ts":%d}' % ms)))
        (one,) = rig.topics.open
        found.append((one.timestamps, one.headers, rig.counted["records_restamped"]))
    assert found == [([5, 0], [[], [("hg-time", b"%d" % ms)]], 1)] * 2


@pytest.mark.parametrize(
    ("make", "spanned", "bulk"),
    [
        (lambda s: s.map(str).to("out"), False, False),
        (lambda s: s.to("out"), True, True),
        (lambda s: s.columns().to("out"), True, True),
        (lambda s: s.columns().repartition("user").agg(n=hg.count()).to("out"), True, True),
        (lambda s: s.columns().filter(hg.col("ts") > 1).rows().map(str).to("out"), True, False),
        (lambda s: (s.columns().to("out"), s.to("rows")), False, False),
    ],
)
def test_how_an_input_is_read(make: Any, spanned: bool, bulk: bool) -> None:
    """In spans if nothing but columns is made of it; with chunks bounded in bytes if no row is made up to the next shuffle."""
    app = hg.App("job")
    make(app.input("in", serde=hg.json(Order)))
    source = Rig(app).pipeline.sources["in"]
    assert (source.spanned, source.bulk) == (spanned, bulk)


def test_a_chunk_of_columns_is_bounded_in_bytes() -> None:
    """A setting of the job; `chunk.max-records` is for rows."""
    app = hg.App("job", on_bad_data="skip")
    app.input("in", serde=hg.json(Order)).columns().to("out")
    value = b'{"user":"a","amount":1,"ts":1}'
    with Driver(app, settings={"chunk.max-records": 1, "chunk.max-bytes": 3 * len(value)}) as d:
        taken: list[int] = []
        source = d.tasks["Partition 0"].site.pipeline.sources["in"]
        whole = source.read
        source.read = lambda chunk, skip: (taken.append(len(chunk)), whole(chunk, skip))[1]
        d.send_all("in", [value] * 8)
        assert taken == [3, 3, 2]
        assert len(d.read("out")) == 8


def test_an_error_names_the_record_and_fails_the_task() -> None:
    """The default for bad data, as for rows."""
    for job in (rows_to, columns_to):
        app = hg.App("job")
        job(app, app.input("orders", serde=hg.json(Order)))
        with Driver(app) as d:
            with pytest.raises(Exception, match="ts"):
                d.send_all("orders", [b'{"user":"a","amount":12,"ts":1}', b'{"user":"a","amount":12,"ts":"1"}'])
            assert d.states == {"Partition 0": "failed"}
            assert "orders[0] offset 1" in d.tasks["Partition 0"].machine.why
            assert d.read("out") == []


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (b"{", "not json: "),
        (b"[1]", "the record is b'[1]', not an object with fields"),
        (b'{"user":"a","ts":1}', "the field 'amount' is missing"),
        (b'{"user":null,"amount":1,"ts":1}', "the field 'user' is null"),
        (b'{"user":"a","amount":"1","ts":1}', "the field 'amount' is of another type in "),
        (b'{"user":"a","amount":1,"ts":9223372036854775808}', "the field 'ts' has a number of more than 64 bits in "),
        (
            b'{"user":"a","amount":1,"ts":4611686018427387904}',
            "a timestamp is 4611686018427387904: out of the 64-bit range",
        ),
    ],
)
def test_a_dead_letter_says_what_is_wrong_with_the_record(record: bytes, told: str) -> None:
    """In words, with the bytes as they came."""
    app = hg.App("job", on_bad_data="dead_letter")
    columns_to(app, app.input("orders", serde=hg.json(Order), timestamp="ts"))
    with Driver(app) as d:
        d.send_all("orders", [b'{"user":"a","amount":12,"ts":1}', hg.Record(b"k", record, 5), None])
        (letter,) = d.dead_letters()
        assert (letter.key, letter.value, letter.offset, letter.step) == (b"k", record, 1, "decode")
        assert told in letter.exception
        assert len(d.read("out")) == 1


@pytest.mark.parametrize(
    ("failing", "left"),
    [
        (lambda c: c.filter(hg.col("ts") // (hg.col("ts") - 5) > -9), [1, 2, 6]),
        (lambda c: c.with_columns(x=hg.col("ts") + 9223372036854775802), [1, 2, 5]),
        (lambda c: c.with_columns(x=hg.col("user").cast(int)), [1, 2, 5]),
        (lambda c: c.rows().map(lambda o: {**o, "total": 1 / (o["ts"] - 2)}).columns(Total), [1, 6, 5]),
        (
            lambda c: c.rows().map(lambda o: {"total": 1.0, "ts": str(o["ts"]) if o["ts"] == 1 else 7}).columns(Total),
            [7] * 3,
        ),
    ],
)
@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_what_has_no_value_costs_its_record_alone(failing: Any, left: list[int], policy: str) -> None:
    """The policy of the step decides, and the other records of the chunk go on."""
    app = hg.App("job", on_error=policy)
    failing(app.input("orders", serde=hg.json(Order)).columns()).to("out")
    with Driver(app) as d:
        users = {1: "1", 2: "2", 6: "x", 5: "3"}
        d.send_all("orders", [{"user": u, "amount": 1.0, "ts": ts, "country": None} for ts, u in users.items()])
        assert [r.value["ts"] for r in d.read("out")] == left
        assert d.counters["records_failed"] == 1
        assert len(d.dead_letters()) == (policy == "dead_letter")


def test_a_null_in_a_sum_is_an_error_of_its_record() -> None:
    """As None is for rows; the message says how to leave it out."""
    app = hg.App("job", on_error="dead_letter")
    amounts = app.input("orders", serde=hg.json(OrderStruct)).columns().with_columns(x=hg.col("country").cast(int))
    amounts.repartition("user").agg(total=hg.sum("x")).to("out")
    with Driver(app) as d:
        d.send_all("orders", [OrderStruct("a", 1.0, 1, "4"), OrderStruct("a", 1.0, 1), OrderStruct("a", 1.0, 1, "5")])
        assert [r.value for r in d.read("out")] == [{"total": 9}]
        (letter,) = d.dead_letters()
        assert "'x' is null" in letter.exception
        assert letter.offset == 1


@pytest.mark.parametrize("kind", [Order, OrderStruct, OrderData])
def test_rows_of_columns_are_values_of_the_declared_type(kind: Any) -> None:
    """Until a column is added: then they are dicts."""
    seen: list[Any] = []
    app = hg.App("job")
    orders = app.input("orders", serde=hg.json(kind)).columns()
    orders.filter(hg.col("amount") > 1).rows().sink(lambda batch: seen.extend(batch.values))
    orders.with_columns(n=1).rows().sink(lambda batch: seen.extend(batch.values))
    one = {"user": "a", "amount": 2.0, "ts": 1, "country": None}
    with Driver(app) as d:
        d.send("orders", kind(**one))
    assert seen == [kind(**one), {**one, "n": 1}]


def test_rows_and_columns_of_one_input() -> None:
    """Both see each record, and the event time is the same."""
    app = hg.App("job", on_bad_data="skip")
    orders = app.input("orders", serde=hg.json(Order), timestamp="ts")
    orders.filter(lambda o: o is not None).map(lambda o: o["ts"]).to("rows")
    orders.columns().to("columns")
    orders.columns().repartition("user").agg(n=hg.count()).to("counts")
    with Driver(app) as d:
        d.send_all("orders", [{"user": "a", "amount": 2.0, "ts": 9, "country": "DE"}, b"{", None])
        assert [(r.value, r.timestamp) for r in d.read("columns")] == [
            ({"user": "a", "amount": 2.0, "ts": 9, "country": "DE"}, 9)
        ]
        assert [r.value for r in d.read("counts")] == [{"n": 1}]
        assert d.counters["tombstones_dropped"] == 2


def test_null_values_are_no_rows() -> None:
    """They are dropped and counted, also behind a step of rows."""
    app = hg.App("job")
    orders = app.input("orders", serde=hg.json(Order))
    orders.columns().to("out")
    with Driver(app) as d:
        d.send_all("orders", [hg.Record(b"a", None), {"user": "a", "amount": 1.0, "ts": 1, "country": None}, None])
        assert len(d.read("out")) == 1
        assert d.counters["tombstones_dropped"] == 2
    app = hg.App("job")
    app.input("orders").map(lambda o: o).columns(Order).to("out")
    with Driver(app) as d:
        d.send_all("orders", [None, {"user": "a", "amount": 1, "ts": 1}, None])
        assert [r.value for r in d.read("out")] == [{"user": "a", "amount": 1.0, "ts": 1, "country": None}]
        assert d.counters["tombstones_dropped"] == 2


def test_only_the_columns_that_a_job_uses_are_decoded() -> None:
    """What no step reads is as if it were not declared: it is skipped, and not judged."""
    app = hg.App("job")
    orders = app.input("orders", serde=hg.json(Order)).columns()
    orders.filter(hg.col("ts") > 0).with_columns(twice=hg.col("amount") * 2).repartition("user").agg(n=hg.count()).to(
        "out"
    )
    with Driver(app) as d:
        d.send("orders", b'{"user":"a","amount":1,"ts":1,"country":7}')
        assert [r.value for r in d.read("out")] == [{"n": 1}]


def test_a_record_is_decoded_once_for_all_steps_of_one_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever columns each of them needs. Those that keep what the type does not have are decoded on their own."""
    app = hg.App("job")
    orders = app.input("orders", serde=hg.json(OrderStruct))
    orders.columns().filter(hg.col("amount") > 1).repartition("user").agg(n=hg.count()).to("n")
    orders.columns().with_columns(twice=hg.col("amount") * 2).to("out")
    orders.columns(extra="keep").with_columns(kept=hg.col("ts")).to("kept")
    decoded: list[tuple[str, ...]] = []
    decode = Decoder.decode

    def counting(self: Decoder, *spans: Any) -> Any:
        found = decode(self, *spans)
        decoded.append(found.columns.names)
        return found

    monkeypatch.setattr(Decoder, "decode", counting)
    with Driver(app) as d:
        d.send_all("orders", [{"user": "a", "amount": 2.0, "ts": 1, "total": 7.0, "more": 1}, None])
        assert len(decoded) == 2
        assert d.counters["tombstones_dropped"] == 3
        assert [one.value for one in d.read("n")] == [{"n": 1}]
        assert [one.value for one in d.read("out")] == [
            {"user": "a", "amount": 2.0, "ts": 1, "country": None, "twice": 4.0}
        ]
        assert [one.value for one in d.read("kept")] == [
            {"user": "a", "amount": 2.0, "ts": 1, "total": 7.0, "more": 1, "kept": 1}
        ]


def selected(orders: Any) -> Any:
    return orders.columns().select("ts", who=hg.col("user"), twice=hg.col("amount") * 2)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(
    "behind",
    [
        lambda orders: selected(orders),
        lambda orders: selected(orders).filter(hg.col("twice") > 3),
        lambda orders: selected(orders).rows(),
        lambda orders: (
            orders.columns().filter(hg.col("amount") > 1).select("ts", who=hg.col("user"), twice=hg.col("amount") * 2)
        ),
        lambda orders: orders.map(lambda o: {"ts": o["ts"], "who": o["user"], "twice": o["amount"] * 2}),
    ],
)
def test_selected_columns_are_all_that_goes_on(behind: Any, plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, whatever comes behind; the bytes of the record are not written again."""
    if plain:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)
    app = hg.App("job")
    behind(app.input("orders", serde=hg.json(Order))).to("out")
    with Driver(app) as d:
        d.send("orders", b'{"user":"a","amount":2.5,"ts":1,"country":"DE","more":1}', key="k")
        (found,) = d.read("out")
        assert (list(found.value.items()), found.key) == ([("ts", 1), ("who", "a"), ("twice", 5.0)], "k")


def test_a_selected_column_that_no_step_reads_is_not_computed() -> None:
    app = hg.App("job")
    orders = app.input("orders", serde=hg.json(Order)).columns()
    orders.select("user", "ts", half=1 / hg.col("amount")).repartition("user").agg(last=hg.max("ts")).to("out")
    with Driver(app) as d:
        d.send("orders", {"user": "a", "amount": 0.0, "ts": 4, "country": None})
        assert [one.value for one in d.read("out")] == [{"last": 4}]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda o: o.select(), "at least one column"),
        (lambda o: o.select("nothing"), "nothing"),
        (lambda o: o.select(hg.col("ts")), "does not name a column"),
        (lambda o: o.select("ts", "ts"), "two columns 'ts'"),
        (lambda o: o.select("ts", ts=hg.col("amount")), "two columns 'ts'"),
        (lambda o: o.select("ts").filter(hg.col("user") == "a"), "user"),
    ],
)
def test_a_selection_that_makes_no_sense_is_refused(make: Any, told: str) -> None:
    orders = hg.App("job").input("orders", serde=hg.json(Order)).columns()
    with pytest.raises(hg.DeclarationError, match=told):
        make(orders)


def test_the_fields_that_are_kept_are_not_lost_by_a_selection() -> None:
    orders = hg.App("job").input("orders", serde=hg.json(Order)).columns(extra="keep")
    with pytest.raises(hg.DeclarationError, match="extra='keep'"):
        orders.select("ts")


def test_a_sink_gets_the_selected_records_as_columns() -> None:
    """Other libraries take them over as they are; where they came from is said as for rows."""
    got: list[tuple[Any, ...]] = []

    def write(batch: hg.ColumnBatch) -> None:
        frame = pyarrow.record_batch(batch)
        got.append((batch.stream, batch.partition, len(batch), frame.to_pylist(), batch["total"].values()))
        assert frame.column(0).to_pylist() == pyarrow.array(batch["user"]).to_pylist()
        assert batch.meta["id"]

    app = hg.App("job", on_error="skip")
    orders = app.input("orders", serde=hg.json(Order)).columns()
    big = orders.filter(hg.col("amount") >= 10).with_columns(total=hg.col("amount") * 2)
    big.sink(write)
    with Driver(app) as d:
        d.send_all("orders", [{"user": u, "amount": n, "ts": 1} for u, n in (("a", 12), ("b", 3), ("c", 10))])
    kept = [{"user": u, "amount": n, "ts": 1, "country": None, "total": 2 * n} for u, n in (("a", 12.0), ("c", 10.0))]
    assert got == [("orders", 0, 2, kept, [24.0, 20.0])]


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_a_sink_of_columns_that_raises_is_treated_as_one_of_rows(policy: Any) -> None:
    """With the policy to fail, the chunk fails as it is; to skip, the bad record is found, and the others arrive together."""
    calls: list[list[Any]] = []

    def write(batch: hg.ColumnBatch) -> None:
        calls.append(batch["amount"].values())
        if 2.0 in calls[-1]:
            raise ValueError("no room")

    app = hg.App("job")
    app.input("orders", serde=hg.json(Order)).columns().sink(write, on_error=policy)
    with Driver(app) as d:
        sent = [{"user": "a", "amount": n, "ts": 1} for n in (1, 2, 3)]
        if policy == "fail":
            with pytest.raises(hg.UserCodeError, match="no room"):
                d.send_all("orders", sent)
            assert calls == [[1.0, 2.0, 3.0]]
        else:
            d.send_all("orders", sent)
            assert calls[-1] == [1.0, 3.0]
            assert d.counters["records_skipped"] == 1


@pytest.mark.parametrize(
    ("policy", "runs"), [("skip", 2), ("dead_letter", 2), ("fail", 1), (lambda record, error: "skip", 3)]
)
@pytest.mark.parametrize("direct", [False, True])
def test_all_bad_records_of_a_chunk_are_found_at_once(policy: Any, runs: int, direct: bool) -> None:
    """A chunk with 50 of them is run without them; once more if the policy is a function, which is asked when all are known."""
    app = hg.App("job", on_bad_data=policy)
    orders = app.input("in", serde=hg.json(Order), timestamp="ts", key_serde=hg.text())
    if direct:
        orders.columns().to("out")
    else:
        orders.map(lambda order: order).to("out")
    value = {"user": "a", "amount": 1.0, "country": None}
    with Driver(app) as d:
        tries: list[int] = []
        source = d.tasks["Partition 0"].site.pipeline.sources["in"]
        whole = source.read
        source.read = lambda chunk, skip: (tries.append(len(chunk) - len(skip)), whole(chunk, skip))[1]
        sent = [orjson.dumps({**value, **({"ts": n} if n % 4 else {})}) for n in range(200)]
        if policy == "fail":
            with pytest.raises(hg.HeadgateError, match="ts"):
                d.send_all("in", sent)
        else:
            d.send_all("in", sent)
            assert [r.value["ts"] for r in d.read("out")] == [n for n in range(200) if n % 4]
            assert [one.offset for one in d.dead_letters()] == [*range(0, 200, 4)] * (policy == "dead_letter")
        assert tries == [200, 150, 150][:runs]


def test_a_record_is_bad_for_its_first_reason() -> None:
    """Values, keys and times are judged in one pass; what else fails is found beside them, and policies are asked in order."""
    sent = [
        hg.Record("k", {"user": "a", "amount": 1.0, "ts": 1 << 62, "country": None}),
        hg.Record(b"\xff\x00", {"user": "a", "amount": 1.0, "ts": 1 << 62, "country": None}),
        hg.Record(b"\xff\x00", {"user": "a", "amount": 2.0, "ts": 5, "country": None}),
        hg.Record(b"\xff\x00", b"{"),
        hg.Record("k", {"user": "a", "amount": 4.0, "ts": 2, "country": None}),
        hg.Record("k", {"user": "a", "amount": 8.0, "ts": 3, "country": "17"}),
        hg.Record("k", b"]"),
    ]
    told: list[list[str]] = []
    for columns in (False, True):
        told.append([])

        def policy(record: Any, error: BaseException, told: list[str] = told[-1]) -> str:
            told.append(str(error).partition(" in ")[0].partition(":")[0].replace("json(Order)", "json"))
            return "skip"

        app = hg.App("job", on_bad_data=policy, on_error=policy)
        orders = app.input("in", serde=hg.json(Order), timestamp="ts", key_serde=hg.text())
        if columns:
            orders.columns().with_columns(n=hg.col("country").cast(int), one=1 / hg.col("amount")).to("out")
        else:
            orders.map(lambda o: {**o, "n": o["country"] and int(o["country"]), "one": 1 / o["amount"]}).to("out")
        with Driver(app) as d:
            d.send_all("in", [*sent, hg.Record("k", {"user": "a", "amount": 0.0, "ts": 4, "country": None})])
            assert [r.value["amount"] for r in d.read("out")] == [4.0, 8.0]
    assert len(told[0]) == len(told[1]) == 6
    assert told[0][:5] == told[1][:5]


@pytest.mark.parametrize(
    ("when", "field", "ms"),
    [
        (hg.field("ts", unit="us"), 2999, 2),
        (hg.field("ts", unit="ns"), 7_900_000, 7),
        (hg.field("ts", unit="s"), 2, 2000),
        (hg.field("amount", unit="s"), 2.5, 2500),
        (hg.field("country", unit="iso"), "1970-01-01T00:00:03Z", 3000),
    ],
)
def test_the_event_time_is_a_column(when: Any, field: Any, ms: int) -> None:
    """In any unit; a record without one is bad data."""
    app = hg.App("job", on_bad_data="dead_letter")
    app.input("orders", serde=hg.json(Order), timestamp=when).columns().to("out")
    with Driver(app) as d:
        value = {"user": "a", "amount": 0.0, "ts": 0, "country": None}
        d.send_all("orders", [{**value, when.name: field}, {**value, "country": "x"} if ms == 3000 else value, value])
        assert d.read("out")[0].timestamp == ms
        assert len(d.dead_letters()) == (2 if ms == 3000 else 0)


def test_the_key_may_be_a_column() -> None:
    """`key=` of the input, as for rows."""
    app = hg.App("job")
    app.input("orders", serde=hg.json(Order), key="user").columns().agg(n=hg.count(), total=hg.sum("amount")).to("out")
    with Driver(app) as d:
        d.send_all("orders", [{"user": u, "amount": 1.5, "ts": 1, "country": None} for u in "aba"])
        assert [(r.key, r.value) for r in d.read("out")] == [
            ("a", {"n": 2, "total": 3.0}),
            ("b", {"n": 1, "total": 1.5}),
        ]


@pytest.mark.parametrize("form", [lambda o: o, lambda o: o.columns()])
def test_a_record_without_the_field_of_its_key_can_be_sent(form: Any) -> None:
    """A test of a job that gets such records has to send them: an optional field that is missing makes no key."""
    app = hg.App("job", on_bad_data="dead_letter", on_error="dead_letter")
    form(app.input("orders", serde=hg.json(Order), key="country")).agg(n=hg.count()).to("out")
    with Driver(app) as d:
        d.send("orders", {"user": "a", "amount": 1, "ts": 1})
        d.send("orders", {"user": "a", "amount": 1, "ts": 1, "country": "DE"})
        found = [(r.key, r.value) for r in d.read("out")]
        dead = [one.offset for one in d.dead_letters()]
    assert (found, dead) == ([("DE", {"n": 1})], [0])


def test_state_survives_a_restart() -> None:
    """The states of columns are those of rows, in the same table."""
    app, sent = hg.App("job"), records(1, bad=False)
    columns_agg(app, app.input("orders", serde=hg.json(Order)))
    with Driver(app) as d:
        d.send_all("orders", sent[:30])
        d.restart()
        d.send_all("orders", sent[30:])
        found = {r.key: r.value for r in d.read("out")}
        assert sum(one["n"] for one in found.values()) == len(sent)
        assert found == {key: d.table("agg-n-total-low-high-mean")[key] for key in found}


def test_a_long_chain_of_columns() -> None:
    """No chain overflows the stack."""
    app = hg.App("job")
    stream = app.input("orders", serde=hg.json(Order)).columns()
    for _ in range(250):
        stream = stream.with_columns(ts=hg.col("ts") + 1)
    stream.to("out")
    with Driver(app) as d:
        d.send("orders", {"user": "a", "amount": 1.0, "ts": 0, "country": None})
        assert d.read("out")[0].value["ts"] == 250


@pytest.mark.parametrize("verb", ["filter", "with_columns", "columns", "agg"])
@pytest.mark.parametrize("policy", ["skip", "dead_letter", "function"])
@pytest.mark.parametrize("place", ["app", "input", "operator"])
def test_the_nearest_policy_decides(verb: str, policy: str, place: str) -> None:
    """As for rows: a policy of the operator, of the input or of the app. A function gets the record as it came."""
    asked: list[Any] = []

    def decide(record: hg.Record[Any, Any], error: BaseException) -> str:
        asked.append((record.key, record.timestamp, type(error)))
        return "skip"

    given = decide if policy == "function" else policy
    own = {"on_error": given} if place == "operator" else {}
    app = hg.App("job", on_error=given if place == "app" else "fail")
    source = app.input("orders", serde=hg.json(OrderStruct), on_error=given if place == "input" else None)
    orders = source.columns()
    match verb:
        case "filter":
            orders.filter(10 // hg.col("ts") > -99, **own).to("out")
        case "with_columns":
            orders.with_columns(x=10 // hg.col("ts"), **own).to("out")
        case "columns":
            source.map(lambda o: {"ts": o.ts or None, "total": 1.0}).columns(Total, **own).to("out")
        case _:
            shuffled = orders.with_columns(x=hg.col("country").cast(int)).repartition("user")
            shuffled.agg(n=hg.sum("x"), **own).to("out")
    with Driver(app) as d:
        made = [OrderStruct("a", 1.0, ts, "1" if ts else None) for ts in (1, 0, 2)]
        d.send_all("orders", [hg.Record(b"k", one, 5 + one.ts) for one in made])
        out = d.read("out")
        assert [r.value for r in out] == [{"n": 2}] if verb == "agg" else [r.value["ts"] for r in out] == [1, 2]
        assert d.counters["dead_letters" if policy == "dead_letter" else "records_skipped"] == 1
        assert len(d.dead_letters()) == (policy == "dead_letter")
    assert len(asked) == (policy == "function")
    if asked:
        assert asked[0][:2] == (b"k", 5)


def test_a_seal_in_the_middle_of_a_chunk_takes_only_what_was_complete() -> None:
    """A chunk of columns that awaits belongs to the next transaction, all of it."""

    async def story() -> None:
        gate, reached = asyncio.Event(), asyncio.Event()

        async def wait(value: Any) -> Any:
            if value["ts"] == 2:
                reached.set()
                await gate.wait()
            return value

        app = hg.App("job")
        orders = app.input("in", serde=hg.json(Order), key="user").columns()
        orders.with_columns(n=1).to("copy")
        orders.agg(name="agg", n=hg.count(), x=hg.sum("amount")).to("counts")
        orders.repartition("user").agg(name="far", n=hg.count()).to("far")
        orders.rows().map_async(wait).to("out")
        rig = Rig(app)
        await rig.run(chunk(order(1)))
        async with asyncio.TaskGroup() as group:
            group.create_task(rig.run(chunk(order(2), order(3))))
            await reached.wait()
            rig.seal()
            assert len(rig.out("copy")) == 1
            assert rig.out("counts") == [b'{"n":1,"x":1.0}']
            assert len(rig.out("job-1-by-user")) == 1
            gate.set()
        rig.seal()
        assert [orjson.loads(one or b"")["ts"] for one in rig.out("copy")] == [1, 2, 3]
        assert rig.out("counts")[1:] == [b'{"n":3,"x":3.0}']

    asyncio.run(story())


def order(ts: int) -> bytes:
    return b'{"user":"a","amount":1,"ts":%d}' % ts


def test_a_careful_task_gives_the_same_partial_states_with_each_chunk() -> None:
    """After a failed commit nothing is held back, so that a failure belongs to a record."""

    def emitted(careful: bool) -> Any:
        app = hg.App("job")
        orders = app.input("in", serde=hg.json(Order)).columns()
        orders.repartition("user").agg(n=hg.count(), total=hg.sum("amount")).to("out")
        orders.repartition("country", name="by-country").agg(all=hg.count(), name="countries").to("more")
        rig = Rig(app)
        for operator in rig.pipeline.operators:
            if isinstance(operator, CombineOp | AggregateOp):
                operator.careful = careful
        found = []
        for ts in (1, 2):
            asyncio.run(rig.run(chunk(order(ts).replace(b"}", b',"country":"DE"}'))))
            found.append(len(rig.out("job-1-by-user")))
            rig.seal()
        return found, rig.out("job-1-by-user"), rig.out("job-1-by-country")

    held, held_states, held_counts = emitted(careful=False)
    at_once, states, counts = emitted(careful=True)
    assert (held, at_once) == ([0, 1], [1, 2])
    assert (held_states, held_counts) == (states, counts)


@pytest.mark.parametrize(("policy", "runs"), [("skip", 2), ("dead_letter", 2), (lambda record, error: "skip", 3)])
@pytest.mark.parametrize("way", ["compiled", "plain", "text"])
@pytest.mark.parametrize("failing", [1, 90, 400])
def test_rows_without_a_value_cost_no_run_each(
    policy: Any, runs: int, way: str, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How often the chunk runs does not depend on how many rows fail. Behind a step with state each run began at the first row: 4,000 such
    rows took 14 seconds."""
    if way == "plain":
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)
    app = hg.App("job", on_error=policy)
    orders = app.input("in", serde=hg.json(Order), timestamp="ts", key_serde=hg.text()).columns()
    first = hg.col("country").cast(float).cast(int) if way == "text" else hg.col("country").cast(int)
    some = orders.filter(hg.col("amount") >= 0).with_columns(n=10 // first, m=7 // hg.col("ts"))
    some.to("out")
    some.repartition("user").agg(total=hg.sum("n"), name="total").to("totals")
    sent = [{"user": "a", "amount": n % 7 - 1.0, "ts": n + 1, "country": "1"} for n in range(500)]
    bad = [n for n in range(500) if n % 7 != 0][:failing]
    for n in bad:
        sent[n]["country"] = ("0", "x")[n % 2]
    with Driver(app) as d:
        tries: list[int] = []
        pipeline = d.tasks["Partition 0"].site.pipeline
        whole = pipeline.chunk
        monkeypatch.setattr(
            pipeline, "chunk", lambda chunk, skip=frozenset(): (tries.append(len(skip)), whole(chunk, skip))[1]
        )
        d.send_all("in", sent)
        inputs = [one for one in tries if one in (0, failing)]
        assert [r.value["ts"] - 1 for r in d.read("out")] == [n for n in range(500) if n % 7 and n not in bad]
        letters = d.dead_letters()
        assert [one.offset for one in letters] == bad * (policy == "dead_letter")
        assert {one.exception[:11] for one in letters} <= {"NotComputab"}
        assert d.counters["records_failed"] == failing
    assert inputs[:runs] == [0, *[failing] * (runs - 1)]
    assert tries.count(failing) <= runs


class Loose(TypedDict):
    user: str | None
    amount: float | None
    ts: int
    country: str


class Keyless(TypedDict):
    user: str | None
    ts: int


ROUTES: dict[str, Callable[[hg.Stream[Any, Any]], Any]] = {
    "fields": lambda rows: rows.map(lambda o: {**o, "amount": o["amount"] or "none"}).columns(Loose),
    "expression": lambda rows: (
        rows.map(dict).columns(Loose).with_columns(amount=hg.col("country").cast(int).cast(float), extra=1)
    ),
    "condition": lambda rows: rows.map(dict).columns(Loose).filter(10 // hg.col("country").cast(int) > 0),
    "flat": lambda rows: rows.flat_map(lambda o: [o, o]).columns(Loose).filter(10 // hg.col("country").cast(int) > 0),
    "awaited": lambda rows: rows.map_async(same).columns(Loose).filter(10 // hg.col("country").cast(int) > 0),
    "condition of rows": lambda rows: rows.filter(10 // hg.col("country").cast(int) > 0),
    "back to rows": lambda rows: (
        rows.columns().rows().filter(lambda o: True).columns(Loose).filter(10 // hg.col("country").cast(int) > 0)
    ),
    "null key": lambda rows: rows.columns(),
    "null key of rows": lambda rows: rows.map(dict),
    "null number": lambda rows: rows.columns().with_columns(user="a"),
    "null key behind a filter": lambda rows: rows.map(dict).columns(Loose).filter(hg.col("ts") > 0),
}


async def same(value: Any) -> Any:
    return value


@pytest.mark.parametrize("failing", [1, 400])
@pytest.mark.parametrize("route", ROUTES)
def test_rows_that_fail_cost_no_run_each_on_any_route(
    route: str, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Functions before the columns, a key that is null, a number that is null: whoever knows all rows that fail names them all."""
    app = hg.App("job", on_error="dead_letter")
    rows = app.input("in", serde=hg.json(Loose), timestamp="ts")
    ROUTES[route](rows).repartition("user").agg(total=hg.sum("amount"), n=hg.count(), name="total").to("totals")
    sent = [{"user": "a", "amount": 1.0, "ts": n + 1, "country": "1"} for n in range(500)]
    bad = [n for n in range(500) if n % 7 != 0][:failing]
    for n in bad:
        sent[n].update(user=None if "key" in route else "a", amount=None, country="0" if "condition" in route else "x")
    with Driver(app) as d:
        tries: list[int] = []
        pipeline = d.tasks["Partition 0"].site.pipeline
        whole = pipeline.chunk

        def counted(chunk: Any, skip: frozenset[int] = frozenset()) -> Any:
            if chunk.at.stream == "in":
                tries.append(len(skip))
            return whole(chunk, skip)

        monkeypatch.setattr(pipeline, "chunk", counted)
        d.send_all("in", sent)
        assert tries == [0, failing]
        assert d.counters["records_failed"] == failing
        assert [one.offset for one in d.dead_letters()] == bad
        assert sum(one.value["n"] for one in d.read("totals")[-1:]) == (500 - failing) * (2 if route == "flat" else 1)


def test_rows_without_a_key_cost_no_run_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """An aggregate by the key of the input names all records without one."""
    app = hg.App("job", on_error="skip")
    app.input("in", serde=hg.json(Keyless), key="user").map(dict).agg(n=hg.count()).to("out")
    with Driver(app) as d:
        tries: list[int] = []
        pipeline = d.tasks["Partition 0"].site.pipeline
        whole = pipeline.chunk
        monkeypatch.setattr(
            pipeline, "chunk", lambda chunk, skip=frozenset(): (tries.append(len(skip)), whole(chunk, skip))[1]
        )
        d.send_all("in", [{"user": None if n % 3 else "a", "ts": n} for n in range(300)])
        assert tries == [0, 200]
        assert d.read("out")[-1].value["n"] == 100


def test_where_functions_may_use_tables_rows_are_blamed_in_their_place() -> None:
    """What a function makes of a row may depend on the rows before it: one that fails only because of another one that fails is good."""
    app = hg.App("job", on_error="skip")
    seen = app.table("seen")

    def number(value: Any) -> Any:
        poisoned = seen.get("poison")
        if value["n"] < 0:
            seen["poison"] = True
        return {"n": None if value["n"] < 0 or poisoned else value["n"]}

    class Number(TypedDict):
        n: int

    app.input("in").map(number).columns(Number).to("out")
    with Driver(app) as d:
        d.send_all("in", [{"n": n} for n in (1, -1, 2, 3)])
        assert [r.value["n"] for r in d.read("out")] == [1, 2, 3]


def test_the_first_row_without_a_value_is_named_where_the_task_fails() -> None:
    """In the order of records, whichever part of the expression was computed first."""
    app = hg.App("job")
    orders = app.input("in", serde=hg.json(Order), timestamp="ts").columns()
    orders.with_columns(a=1 // hg.col("ts"), n=hg.col("country").cast(int)).to("out")
    value = {"user": "a", "amount": 1.0, "ts": 1, "country": "1"}
    sent = [value, {**value, "country": "x"}, {**value, "ts": 0}, {**value, "country": "y"}]
    with Driver(app) as d, pytest.raises(hg.UserCodeError, match="'x'"):
        d.send_all("in", sent)


def test_a_name_that_is_too_long_says_so() -> None:
    """Letters and digits alone do not help."""
    orders = hg.App("job").input("orders", serde=hg.json(Order))
    with pytest.raises(hg.DeclarationError, match=r"103 characters, and 100 is the limit.*name="):
        orders.repartition("user", name="u" * 103)
