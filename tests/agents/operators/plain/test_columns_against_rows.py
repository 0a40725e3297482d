"""Whatever comes, and however it is cut into chunks: columns give what typed rows give, with the compiled part and without.

Compared: the records of outputs with keys, headers, timestamps and order; dead letters; counters. What differs by intent stands in
`docs/columns.md` and is taken out of the comparison here: whole numbers of more than 64 bits, optional fields that were not there and are
not written, and a number too large for a float in a field that is not declared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypedDict

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.agents.error_counts import FAILED
from headgate.agents.records.native import chosen
from headgate.agents.testing.driver import Driver

MOST = 2**63 - 1


class Order(TypedDict):
    user: str
    amount: float
    n: int
    flag: bool | None
    country: str | None


USERS = st.sampled_from(["a", "b", "ü", "", "\\", '"', "\u2028", "😀", "a\x00", "x" * 40])
AMOUNTS = st.sampled_from([0, -0.0, 1, 0.1, -2.5, 1e15, 123456789.125, 5e-324, 1.7976931348623157e308, MOST])
NUMBERS = st.sampled_from([0, 1, -1, 7, 2**31, -(2**40), 2**53 + 1, MOST, -(2**63)])
FIELDS: dict[str, Any] = {
    "user": USERS,
    "amount": AMOUNTS,
    "n": NUMBERS,
    "flag": st.sampled_from([None, True, False]),
    "country": st.sampled_from([None, "DE", "FR", "\ud7ff"]),
}
WRONG = st.sampled_from([None, "12", 1.5, 1.0, True, [], {}, 2**63, -(2**63) - 1, 2**64, "absent", 1e308])
RAW = st.sampled_from(
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff",
        b'{"user":"a","amount":1,"n":1',
        b'{"user":"a","amount":1,"n":1}{}',
        b'{"user":"a","user":"b","amount":1,"n":1,"n":2}',
        b'{"user":"a","n":"1","amount":1,"n":2}',
        b'{"user":"a","n":1,"amount":1,"n":"2"}',
        b' { "n" : 3 , "user" : "\\u0061\\ud83d\\ude00" , "amount" : 1e2 } ',
        b'{"user":"\\ud800","amount":1,"n":1}',
        b'{"user":"a","amount":1e400,"n":1}',
        b'{"user":"a","amount":-0,"n":-0}',
        b'{"user":"a","amount":1.,"n":1}',
        b'{"user":"a","amount":01,"n":1}',
        b'{"user":"a","amount":NaN,"n":1}',
        b'{"user":"a","amount":1,"n":1e2}',
        b'{"us\\u0065r":"a","amount":1,"n":1}',
        b'{"user":"a","amount":1,"n":1,"more":{"user":"b","n":[1,{"n":"x"}]}}',
        b'{"user":"a","amount":1,"n":1,"more":' + b"[" * 200 + b"]" * 200 + b"}",
        b'\xef\xbb\xbf{"user":"a","amount":1,"n":1}',
    ]
)
TIMES = st.sampled_from([0, 1, 999, 1000, 1500, 2000, 2001, 5000, -1, -1000, -2500, 2**41])


@st.composite
def values(draw: Callable[[Any], Any]) -> bytes | None:
    """A record as a producer may write it: mostly good."""
    kind = draw(st.sampled_from(["good"] * 7 + ["wrong", "raw", "null", "less"]))
    if kind == "null":
        return None
    if kind == "raw":
        return draw(RAW)
    made = {name: draw(one) for name, one in FIELDS.items()}
    if kind == "wrong":
        name = draw(st.sampled_from(sorted(FIELDS)))
        made[name] = draw(WRONG)
        if made[name] == "absent":
            del made[name]
    if kind == "less":
        made.pop(draw(st.sampled_from(["flag", "country"])))
    names = draw(st.permutations(sorted(made)))
    return b"{" + b",".join(orjson.dumps(name) + b":" + _text(made[name]) for name in names) + b"}"


def _text(value: Any) -> bytes:
    return str(value).encode() if type(value) is int else orjson.dumps(value)


@st.composite
def records(draw: Callable[[Any], Any]) -> list[hg.Record[Any, Any]]:
    """Records with keys, headers and times."""
    some = draw(st.lists(values(), min_size=1, max_size=14))
    keys = st.sampled_from([None, b"k", b"\xff", b"", b"a"])
    headers = st.sampled_from([(), (("h", b"1"),), (("h", None), ("h", b"2"))])
    return [hg.Record(draw(keys), one, draw(TIMES), draw(headers)) for one in some]


# ---------------------------------------------------------------------------------------------------------------------- jobs


def fits(value: int) -> int:
    """What columns refuse."""
    if not -(2**63) <= value <= MOST:
        raise OverflowError(value)
    return value


def finite(value: float) -> float:
    """What columns refuse."""
    if value - value != 0:
        raise OverflowError(value)
    return value


def filtered(orders: Any, *, columns: bool) -> None:
    kept = orders.columns().filter(hg.col("n") % 3 != 1) if columns else orders.filter(lambda o: o["n"] % 3 != 1)
    kept.to("out")


def by_null(orders: Any, *, columns: bool) -> None:
    if columns:
        orders.columns().filter((hg.col("country") != "FR") | hg.col("flag")).to("out", key="user")
        return

    def keep(o: Any) -> bool:
        return (o["country"] is not None and o["country"] != "FR") or bool(o["flag"])

    orders.filter(keep).to("out", key="user")


def extended(orders: Any, *, columns: bool) -> None:
    if columns:
        made = orders.columns().with_columns(total=hg.col("amount") * 2, m=hg.col("n") + 1)
        made.filter(hg.col("total") >= 0).to("out", key="m", key_serde=hg.key())
        return

    def more(o: Any) -> Any:
        return {**o, "total": finite(o["amount"] * 2.0), "m": fits(o["n"] + 1)}

    orders.map(more).filter(lambda o: o["total"] >= 0).to("out", key="m", key_serde=hg.key())


def shuffled(orders: Any, *, columns: bool) -> None:
    behind = (orders.columns() if columns else orders).repartition("n", key_serde=hg.key())
    kept = behind.filter(hg.col("user") != "a") if columns else behind.filter(lambda o: o["user"] != "a")
    kept.to("out")


def rowed(orders: Any, *, columns: bool) -> None:
    rows = orders.columns().filter(hg.col("amount") < 5).rows() if columns else orders.filter(lambda o: o["amount"] < 5)
    rows.map(lambda o: {"u": o["user"], "f": o["flag"], "n": 10 // o["n"], "c": o["country"], "a": o["amount"]}).to(
        "out"
    )


class Amount(TypedDict):
    user: str
    amount: float
    n: int
    flag: bool | None


FEW = hg.col("amount") < 1e300
AGGREGATES: dict[str, Any] = {
    "count": hg.count(),
    "sum": hg.sum("n"),
    "low": hg.min("n"),
    "high": hg.max("amount"),
    "total": hg.sum("amount"),
    "mean": hg.mean("amount"),
    "count_if": hg.count(where=hg.col("n") > 0),
    "sum_if": hg.sum("n", where=hg.col("n") > 0),
    "high_if": hg.max("amount", where=hg.col("flag")),
    "total_if": hg.sum("amount", where=hg.col("flag")),
    "mean_if": hg.mean("amount", where=hg.col("n") // hg.col("n") == 1),
}


def few(orders: Any, columns: bool) -> Any:
    """Records of which no sum of floats is infinite."""
    return orders.columns().filter(FEW) if columns else orders.filter(lambda o: o["amount"] < 1e300)


def named(orders: Any, columns: bool) -> Any:
    """The same of rows whose steps only name fields: all of them."""
    if columns:
        return orders.filter(FEW & (hg.col("user") != "\\"))
    return orders.filter(lambda o: o["amount"] < 1e300 and o["user"] != "\\")


def aggregated(orders: Any, *, columns: bool) -> None:
    few(orders, columns).repartition("user").agg(**AGGREGATES).to("out")


def aggregated_behind(orders: Any, *, columns: bool) -> None:
    behind = few(orders, columns).repartition("n", key_serde=hg.key())
    kept = behind.filter(hg.col("user") != "a") if columns else behind.filter(lambda o: o["user"] != "a")
    kept.agg(**AGGREGATES).to("out")


def windowed(orders: Any, *, columns: bool) -> None:
    behind = few(orders, columns).repartition("user")
    behind.window(hg.tumbling("1s", grace="1s")).agg(**AGGREGATES).to("out")


def windowed_behind(orders: Any, *, columns: bool) -> None:
    behind = few(orders, columns).repartition("n", key_serde=hg.key())
    kept = behind.filter(hg.col("user") != "a") if columns else behind.filter(lambda o: o["user"] != "a")
    kept.window(hg.hopping("2s", every="1s", grace="500ms"), late="late").agg(**AGGREGATES).to("out")


def named_fields_windowed(orders: Any, *, columns: bool) -> None:
    behind = named(orders, columns).repartition("user")
    behind.window(hg.tumbling("1s", grace="1s")).agg(**AGGREGATES).to("out")


def named_fields_hopping(orders: Any, *, columns: bool) -> None:
    """By the keys of the records, of which some have none."""
    named(orders, columns).window(hg.hopping("2s", every="1s", grace="500ms")).agg(**AGGREGATES).to("out")


KINDS = {Order: (filtered, by_null, extended, shuffled, rowed)}
KINDS[Amount] = (aggregated, aggregated_behind, windowed, windowed_behind)
KINDS[Amount] += (named_fields_windowed, named_fields_hopping)
"""By schema: only fields that are used are judged, so all are."""
JOBS = {one.__name__: (of, one) for of, jobs in KINDS.items() for one in jobs}


@pytest.fixture(params=["compiled", "plain"], scope="module")
def way(request: Any) -> Iterator[str]:
    """With the compiled part and without."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "plain":
            patch.setattr(chosen, "part", chosen.PLAIN)
        elif chosen.COMPILED is None:
            pytest.skip("the compiled part is not built here")
        yield request.param


def outcome(name: str, sent: list[Any], chunk: int, *, columns: bool, **policies: Any) -> dict[str, Any]:
    """Everything that a job does with these records."""
    of, job = JOBS[name]
    # in how many frames partial states of several windows travel is no promise, and so is not how many chunks they make
    unpromised = {"tombstones_dropped", *(["chosen.intermediate"] if "windowed" in name else [])}
    app = hg.App("job", **policies)
    job(app.input("orders", serde=hg.json(of), key_serde=hg.bytes()), columns=columns)
    with Driver(app, settings={"chunk.max-records": chunk}) as d:
        for start in range(0, len(sent), chunk):
            d.send_all("orders", sent[start : start + chunk])
        d.drain()
        return {
            **{topic: [written(one) for one in d.read(topic)] for topic in sorted(d.declared.graph.outputs)},
            "dead": [(one.key, as_read(one), one.offset, one.headers) for one in d.dead_letters()],
            # steps of columns have other names than those of rows, and raise other errors
            "counters": {n: d.counters[n] for n in d.counters if n not in unpromised and not n.startswith(FAILED)},
        }


def written(one: hg.Record[Any, Any]) -> tuple[Any, ...]:
    """The record with all optional fields, and with a float where a whole number was written for one."""
    value = {"flag": None, "country": None, **one.value}
    if "amount" in value:
        value["amount"] = float(value["amount"])
    return one.key, value, one.timestamp, one.headers


def as_read(one: Any) -> Any:
    """The bytes of a dead letter. Behind a shuffle they are made of a value or of columns, which have another order."""
    rows = one.topic != "orders" and one.value.startswith(b"{")
    return orjson.loads(one.value) if rows else one.value


POLICIES = [{"on_bad_data": "dead_letter", "on_error": "dead_letter"}, {"on_bad_data": "skip", "on_error": "skip"}]


@pytest.mark.parametrize("name", sorted(JOBS))
@settings(deadline=None, max_examples=10)
@given(records(), st.sampled_from([1, 3, 100]), st.sampled_from(POLICIES))
def test_columns_give_what_typed_rows_give(
    way: str, name: str, sent: list[Any], chunk: int, policies: dict[str, Any]
) -> None:
    """Null values are rows, and no rows of columns: they are left out."""
    sent = [one for one in sent if one.value is not None and one.value != b"null"]
    if JOBS[name][0] is Amount:  # results before 1970 fail the task, of rows and of columns
        sent = [hg.Record(one.key, one.value, abs(one.timestamp), one.headers) for one in sent]
    wanted = outcome(name, sent, chunk, columns=False, **policies)
    assert outcome(name, sent, chunk, columns=True, **policies) == wanted
