"""Windows of columns give what windows of rows give: results, late rows, early results, counters; with bad records, and over a restart."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any, TypedDict

import orjson
import pytest

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.job.derive.named_fields import on_columns
from headgate.agents.records.columns.records import Records
from headgate.agents.testing.driver import Driver
from headgate.core.errors import DeclarationError
from headgate.core.names import StreamPartition
from headgate.core.progress.frames import ControlFrame, decode

AGGREGATES = {
    "n": hg.count(),
    "total": hg.sum("amount"),
    "low": hg.min("size"),
    "high": hg.max("amount"),
    "mean": hg.mean("size"),
}
Windowed = Callable[[Any], Any]


class Order(TypedDict):
    user: str
    amount: float
    size: int
    ts: int
    country: str | None


WINDOWS: dict[str, Windowed] = {
    "tumbling": lambda of: of.repartition("user").window(hg.tumbling("1s", grace="100ms")).agg(**AGGREGATES),
    "by number": lambda of: of.repartition("size", key_serde=hg.key()).window(hg.tumbling("1s")).agg(**AGGREGATES),
    "without a shuffle": lambda of: of.window(hg.tumbling("500ms", offset="100ms")).agg(**AGGREGATES),
    "hopping": lambda of: (
        of.repartition("user").window(hg.hopping("1s", every="300ms", grace="50ms")).agg(**AGGREGATES)
    ),
    "hopping by rows": lambda of: (
        of.repartition("user").window(hg.hopping("1s", every="990ms", grace="50ms")).agg(**AGGREGATES)
    ),
    "session": lambda of: of.repartition("user").window(hg.session("30ms")).agg(**AGGREGATES),
    "late rows": lambda of: of.repartition("user").window(hg.tumbling("1s"), late="late").agg(**AGGREGATES),
    "early": lambda of: of.repartition("user").window(hg.tumbling("1s"), emit=7).agg(**AGGREGATES),
    "kept open": lambda of: of.repartition("user").window(hg.tumbling("1s"), at_end="keep").agg(**AGGREGATES),
    "in order": lambda of: (
        of.repartition("user")
        .window(hg.tumbling("1s"))
        .agg(**AGGREGATES, one=hg.first("size"), all=hg.collect("country"))
    ),
    "text": lambda of: of.repartition("user").window(hg.tumbling("1s")).agg(least=hg.min("user"), **AGGREGATES),
}
BAD = [b"{", b'{"user":"a","amount":1,"size":1.5,"ts":5}', b'{"user":"a"}', b"7"]


def records(seed: int) -> list[hg.Record[Any, Any]]:
    """Orders whose times rise, with some far behind; some are bad, some are deletes."""
    chance = random.Random(seed)
    made: list[hg.Record[Any, Any]] = []
    for number in range(160):
        order = {
            "user": chance.choice(["a", "b", "ü", "d" * 40]),
            "amount": chance.choice([1, 9.5, 10, 0.1]),
            "size": chance.randrange(4),
            "ts": 1_700_000_000_000 + number * 40 - chance.choice([0, 0, 0, 7, 200, 3_000]),
            "country": chance.choice(["DE", None]),
            "other": [number],
        }
        value: Any = orjson.dumps(order)
        if chance.random() < 0.1:
            value = chance.choice([*BAD, None])
        made.append(hg.Record(order["user"], value, number))
    return made


def outcome(windowed: Windowed, columns: bool, chunk: int, restart: bool = False) -> dict[str, Any]:
    """Everything that a job with this window does with the records."""
    app = hg.App("job", on_bad_data="dead_letter")
    orders: Any = app.input("orders", serde=hg.json(Order), key_serde=hg.text(), timestamp="ts")
    windowed(orders.columns() if columns else orders.filter(lambda o: o is not None)).to("out")
    sent = records(chunk)
    with Driver(app) as d:
        for start in range(0, len(sent), chunk):
            d.send_all("orders", sent[start : start + chunk])
            if restart and start // chunk % 3 == 1:
                d.restart()
        d.drain()
        return {
            **{topic: d.read(topic) for topic in sorted(d.declared.graph.outputs)},
            "dead": [(one.key, one.value, one.offset) for one in d.dead_letters()],
            "counters": {name: n for name, n in d.counters.items() if name != "tombstones_dropped"},
        }


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("chunk", [3, 16, 160])
def test_windows_of_columns_give_what_windows_of_rows_give(name: str, chunk: int) -> None:
    """Results in their order, with keys, times and headers; late rows; dead letters and counters."""
    wanted = outcome(WINDOWS[name], False, chunk)
    assert wanted["out"] or name == "kept open"
    assert outcome(WINDOWS[name], True, chunk) == wanted


@pytest.mark.parametrize("name", ["tumbling", "hopping", "without a shuffle", "by number", "kept open"])
def test_open_windows_of_columns_survive_a_restart(name: str) -> None:
    """What was stored by commits is loaded again, and closes with the same results."""
    assert outcome(WINDOWS[name], True, 16, restart=True)["out"] == outcome(WINDOWS[name], False, 16)["out"]


def test_rows_and_columns_store_the_same_windows() -> None:
    """A job may change from one to the other while windows are open."""

    def app(way: str) -> hg.App:
        made = hg.App("job", on_bad_data="skip", on_error="skip")
        orders: Any = made.input("orders", serde=hg.json(Order), key_serde=hg.text(), timestamp="ts")
        if way == "columns":
            orders = orders.columns()
        keep = (lambda o: o is not None) if way == "rows" else hg.col("size") >= 0
        WINDOWS["kept open"](orders.filter(keep)).to("out")
        return made

    found: list[Any] = []
    for way in ("rows", "columns", "named fields"):
        with Driver(app(way)) as d:
            d.send_all("orders", records(5)[:150])
            found.append(dict(d.table("tumbling-1s").items()))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("name", [name for name in WINDOWS if name != "late rows"])
def test_it_is_known_before_which_windows_make_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`headgate plan` shows it, with the reason. Where it shows columns, no row is made."""
    app = hg.App("job")
    orders = app.input("orders", serde=hg.json(Order), key_serde=hg.text(), timestamp="ts").columns()
    WINDOWS[name](orders).to("out")
    why = [told for step, takes in on_columns(Declared(app).steps) if takes and (told := step.why_rows())]
    made: list[int] = []
    objects = Records.of_columns
    monkeypatch.setattr(Records, "of_columns", lambda rows, *more: made.append(len(rows)) or objects(rows, *more))
    outcome(WINDOWS[name], True, 16)
    assert bool(made) == bool(why)
    assert [bool(re.search("is of text", one)) for one in why] == [True] * len(why)


@pytest.mark.parametrize("form", [lambda of: of, lambda of: of.columns()])
@pytest.mark.parametrize("made", [{"n": hg.count()}, {"all": hg.collect("country")}])
def test_late_rows_have_their_fields_in_the_order_of_the_type(form: Any, made: Any) -> None:
    """Whether the window takes columns or makes rows of them, and whether rows are read as columns."""
    app = hg.App("job")
    orders: Any = form(app.input("orders", serde=hg.json(Order), timestamp="ts"))
    orders.repartition("user").window(hg.tumbling("1s"), late="late").agg(**made).to("out")
    with Driver(app) as d:
        for ts in (9_000, 0):
            d.send("orders", {"user": "a", "amount": 1.5, "size": 1, "ts": ts, "country": "DE"})
        (late,) = d.read("late")
    assert list(late.value) == ["user", "amount", "size", "ts", "country"]


def test_what_needs_rows_is_refused_at_its_line() -> None:
    orders = hg.App("job").input("orders", serde=hg.json(Order)).columns()
    windowed = orders.repartition("user").window(hg.tumbling("1s"))
    with pytest.raises(DeclarationError, match=r"needs rows.*\.rows\(\)\.window\(…\)\.process"):
        windowed.process(hg.Actor)  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(DeclarationError, match="'user' is text"):
        windowed.agg(total=hg.sum("user"))
    with pytest.raises(DeclarationError, match="function of a value"):
        windowed.agg(total=hg.sum(lambda order: order["amount"]))


def test_partial_states_travel_as_frames_of_columns() -> None:
    """One for all windows of a commit, and what is late among them is counted by its rows."""
    app = hg.App("job")
    orders = app.input("orders", serde=hg.json(Order), timestamp="ts").columns()
    orders.repartition("user").window(hg.tumbling("1s")).agg(n=hg.count(), mean=hg.mean("size")).to("out")
    base = 1_700_000_000_000
    with Driver(app) as d:
        for seconds in ((0, 5), (0,)):
            rows = [
                {"user": f"u{i % 100}", "amount": 1.0, "size": i, "ts": base + second * 1000 + i}
                for second in seconds
                for i in range(200)
            ]
            d.send_all("orders", rows)
        frames = [decode(one.value or b"") for one in d.topics.records(StreamPartition("job-1-by-user", 0))]
        assert [type(one).__name__ for one in frames if not isinstance(one, ControlFrame)] == ["ArrowFrame"] * 2
        d.drain()
        results = [(one.value["window_start"] - base, one.value["n"], one.value["mean"]) for one in d.read("out")]
        assert sorted(results) == sorted((at, 2, i + 50.0) for at in (0, 5000) for i in range(100))
        assert d.counters["late_rows"] == 200
