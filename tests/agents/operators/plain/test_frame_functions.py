"""`.frame(fn)`: functions of frames of every library, what they may return, and what becomes of records for which they fail."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any, TypedDict

import narwhals as nw
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import structlog

import headgate as hg
from headgate.agents.records.native import chosen
from headgate.agents.testing.driver import Driver


class Order(TypedDict):
    user: str
    amount: float
    ts: int
    country: str | None


class Total(TypedDict):
    user: str
    total: float
    country: str | None


class Sum(TypedDict):
    country: str | None
    total: float


def with_polars(frame: pl.DataFrame) -> Any:
    return frame.filter(pl.col("amount") > 1).with_columns(total=pl.col("amount") * 2).sort("amount", descending=True)


def with_pyarrow(frame: pa.Table) -> Any:
    kept: Any = frame.filter(pc.field("amount") > 1)
    return kept.append_column("total", pc.multiply(kept["amount"], 2.0)).sort_by([("amount", "descending")])


def with_pandas(frame: pd.DataFrame) -> Any:
    kept = frame[frame["amount"] > 1].copy()
    kept["total"] = kept["amount"] * 2
    return kept.sort_values("amount", ascending=False)


def with_narwhals(frame: nw.DataFrame[Any]) -> Any:
    made = frame.filter(nw.col("amount") > 1).with_columns(total=nw.col("amount") * 2)
    return made.sort("amount", descending=True)


def by_capsules(frame: Any) -> Any:
    return with_polars(pl.DataFrame(frame))


FUNCTIONS: list[tuple[Any, str | None]] = [
    (with_polars, "polars"),
    (with_pyarrow, "pyarrow"),
    (with_pandas, "pandas"),
    (with_narwhals, "narwhals"),
    (by_capsules, None),
]
USERS = ["a", "b", "c", "d"]


def orders(*amounts: float, country: str | None = "DE") -> list[hg.Record[Any, Any]]:
    """Records with keys, times and headers of their own; the third one has no country."""
    return [
        hg.Record(
            USERS[i].upper(),
            {"user": USERS[i], "amount": amount, "ts": i, "country": None if i == 2 else country},
            100 + i,
            (("n", b"%d" % i),),
        )
        for i, amount in enumerate(amounts)
    ]


def app_of(fn: Any, like: Any = "polars", schema: Any = Total, **policies: Any) -> hg.App:
    app = hg.App("job", **policies)
    columns = app.input("orders", serde=hg.json(Order)).columns()
    columns.filter(hg.col("amount") < 50).frame(fn, like=like, schema=schema).to("out")
    return app


def read(app: hg.App, *sent: list[hg.Record[Any, Any]]) -> list[tuple[Any, ...]]:
    with Driver(app) as d:
        for chunk in sent:
            d.send_all("orders", chunk)
        return [(r.key, r.value, r.timestamp, dict(r.headers)) for r in d.read("out")]


@pytest.mark.parametrize(("fn", "like"), FUNCTIONS)
def test_rows_keep_where_they_came_from(fn: Any, like: str | None) -> None:
    """Filtered, extended and sorted by any library, also behind a filter: the key, time and headers are those of each record."""
    assert read(app_of(fn, like), orders(1.0, 99.0, 3.0, 4.0)) == [
        ("D", {"user": "d", "total": 8.0, "country": "DE"}, 103, {"n": b"3"}),
        ("C", {"user": "c", "total": 6.0, "country": None}, 102, {"n": b"2"}),
    ]


def summed(frame: pa.Table) -> Any:
    """A chunk's sums, with the country that is null first."""
    made: Any = frame.group_by("country").aggregate([("amount", "sum")])
    return made.rename_columns({"amount_sum": "total"}).sort_by("country").take([1, 0])


@pytest.mark.parametrize(
    ("fn", "like"),
    [
        (lambda f: f.group_by("country").agg(total=pl.col("amount").sum()).sort("country"), "polars"),
        (summed, "pyarrow"),
        (lambda f: f.groupby("country", dropna=False).agg(total=("amount", "sum")).iloc[::-1], "pandas"),
        (lambda f: f.group_by("country").agg(nw.col("amount").sum().alias("total")).sort("country"), "narwhals"),
    ],
)
def test_a_frame_without_row_numbers_and_of_another_length(fn: Any, like: str) -> None:
    """Its rows have the greatest time of the chunk, and neither key nor headers; which is logged once."""
    with structlog.testing.capture_logs() as logs:
        found = read(app_of(fn, like, Sum), orders(1.0, 2.0, 3.0), orders(1.0, 2.0, 3.0))
    assert (
        found
        == [
            (None, {"country": None, "total": 3.0}, 102, {}),
            (None, {"country": "DE", "total": 3.0}, 102, {}),
        ]
        * 2
    )
    (line,) = [line for line in logs if "__row" in line["event"]]
    assert "the greatest timestamp of their chunk, and no key" in line["event"]
    assert line["step"].startswith("frame (")


def test_a_frame_without_row_numbers_and_of_the_same_length() -> None:
    """Its rows are the chunk's, in its order."""
    with structlog.testing.capture_logs() as logs:
        found = read(app_of(lambda f: f.select("country", total="amount"), schema=Sum), orders(1.0, 99.0, 3.0))
    assert [(key, time, headers) for key, _, time, headers in found] == [
        ("A", 100, {"n": b"0"}),
        ("C", 102, {"n": b"2"}),
    ]
    assert ["those of the rows in their places" in line["event"] for line in logs if "__row" in line["event"]] == [True]


def test_a_function_may_set_the_time() -> None:
    """By `__timestamp`, with or without the number of the row."""
    moved = app_of(lambda f: f.with_columns(pl.col("__timestamp") + 7, total="amount"))
    assert [time for _, _, time, _ in read(moved, orders(1.0, 2.0))] == [107, 108]
    grouped = app_of(
        lambda f: f.group_by("country").agg(pl.col("__timestamp").min(), total=pl.col("amount").sum()), schema=Sum
    )
    assert [(key, time) for key, _, time, _ in read(grouped, orders(1.0, 2.0))] == [(None, 100)]


def test_more_rows_than_there_were() -> None:
    """Each keeps the origin of the row that it was made of."""
    twice = app_of(lambda f: pl.concat([f, f]).with_columns(total="amount"))
    assert [(key, time) for key, _, time, _ in read(twice, orders(1.0, 2.0))] == [("A", 100), ("B", 101)] * 2


def test_what_follows_a_frame() -> None:
    """Expressions, shuffles, aggregates, rows and another frame; the columns are those of `schema`."""
    app = hg.App("job")
    made = app.input("orders", serde=hg.json(Order)).columns().frame(with_polars, like="polars", schema=Total)
    made.filter(hg.col("total") > 4).repartition("user").agg(n=hg.count(), sum=hg.sum("total")).to("sums")
    made.rows().map(lambda value: value["user"]).to("users")
    made.frame(lambda f: f.select(pl.col("total") + 1, "country", "__row"), like="polars", schema=Sum).to("out")
    with Driver(app) as d:
        d.send_all("orders", orders(1.0, 2.0, 3.0, 4.0))
        assert [(r.key, r.value) for r in d.read("sums")] == [("d", {"n": 1, "sum": 8.0}), ("c", {"n": 1, "sum": 6.0})]
        assert [(r.key, r.value) for r in d.read("users")] == [("D", "d"), ("C", "c"), ("B", "b")]
        assert [(r.key, r.value["total"]) for r in d.read("out")] == [("D", 9.0), ("C", 7.0), ("B", 5.0)]
    with pytest.raises(hg.DeclarationError, match="no column 'amount'"):
        made.filter(hg.col("amount") > 1)


@pytest.mark.parametrize(("fn", "like"), FUNCTIONS)
def test_nulls_change_no_type(fn: Any, like: str | None) -> None:
    """A whole number stays one, in pandas too; a chunk may have nothing but nulls."""

    class Numbers(TypedDict):
        n: int | None
        t: str | None
        b: bool | None

    seen: list[str] = []

    def look(frame: Any) -> Any:
        seen.append(
            str(getattr(frame, "dtypes", None) or getattr(frame, "schema", None))
            if like != "pandas"
            else str(frame.dtypes["n"])
        )
        return frame

    app = hg.App("job")
    app.input("in", serde=hg.json(Numbers)).columns().frame(look, like=like, schema=Numbers).to("out")
    sent = [{"n": 2**53 + 1, "t": "x", "b": True}, {"n": None, "t": None, "b": None}]
    with Driver(app) as d:
        d.send_all("in", sent)
        d.send("in", sent[1])
        assert [r.value for r in d.read("out")] == [*sent, sent[1]]
    assert len(set(seen)) == 1


def failing(frame: pl.DataFrame) -> pl.DataFrame:
    if (frame["user"] == "b").any():
        raise ValueError("b is poison")
    return frame.with_columns(total="amount")


@pytest.mark.parametrize("policy", ["skip", "dead_letter", "fail", "function"])
@pytest.mark.parametrize("place", ["app", "operator"])
def test_the_record_for_which_a_function_raises(policy: str, place: str) -> None:
    """It is found by shorter frames, and its policy decides; the others go on."""
    asked: list[Any] = []

    def decide(record: hg.Record[Any, Any], error: BaseException) -> str:
        asked.append((record.key, str(error)))
        return "skip"

    given = decide if policy == "function" else policy
    app = hg.App("job", on_error=given if place == "app" else "fail")
    columns = app.input("orders", serde=hg.json(Order)).columns()
    made = columns.frame(failing, like="polars", schema=Total, **({"on_error": given} if place == "operator" else {}))
    made.to("out")
    with Driver(app) as d:
        if policy == "fail":
            with pytest.raises(Exception, match=r"frame \(.*raised ValueError: b is poison"):
                d.send_all("orders", orders(1.0, 2.0, 3.0))
            return
        d.send_all("orders", orders(1.0, 2.0, 3.0))
        assert [r.value["user"] for r in d.read("out")] == ["a", "c"]
        assert [(one.offset, one.key) for one in d.dead_letters()] == ([(1, b"B")] if policy == "dead_letter" else [])
        assert d.counters["records_failed"] == 1
    assert asked == ([(b"B", "b is poison")] if policy == "function" else [])


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (lambda f: f.with_columns(total=pl.when(pl.col("user") == "b").then(None).otherwise(1.0)), "'total' is null"),
        (lambda f: f.with_columns(total=pl.col("amount") / (pl.col("amount") - 2)), "'total' has a value that no float64"),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_costs_its_record(fn: Any, said: str) -> None:
    """Null in a column that is not optional, a float that is not finite."""
    app = app_of(fn, on_error="dead_letter")
    with Driver(app) as d:
        d.send_all("orders", orders(1.0, 2.0, 3.0))
        assert [r.value["user"] for r in d.read("out")] == ["a", "c"]
        (letter,) = d.dead_letters()
        assert letter.offset == 1
        assert said in letter.exception


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (lambda f: f, "no column 'total': it returned user: text, amount: float64.*__row: int64"),
        (lambda f: f.with_columns(total="user"), "'total' is text, not float64: it returned"),
        (lambda f: f.with_columns(total="amount", __row=pl.lit(10)), "'__row' has a row that its frame does not have"),
        (lambda f: f.with_columns(total="amount", __row=pl.lit(-1)), "'__row' has a row that its frame does not have"),
        (lambda f: f.with_columns(total="amount", __row=None), "'__row' is null"),
        (lambda f: f.with_columns(total="amount", __row=pl.lit("x")), "'__row' is text, not int64"),
        (lambda f: f.with_columns(total="amount", __timestamp=pl.lit(2**62)), "'__timestamp' is .*out of range"),
        (lambda f: f.filter(pl.col("amuont") > 1), "raised ColumnNotFoundError: .*amuont"),
    ],
)
def test_another_frame_than_the_declared_one(fn: Any, said: str) -> None:
    """The error is the step's; it says what came and what was wanted."""
    with Driver(app_of(fn)) as d:
        with pytest.raises(Exception, match=re.compile(rf"frame \(.*{said}", re.S)):
            d.send_all("orders", orders(1.0, 2.0))


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (lambda f: None, "it returned None, not a frame.*changed in place"),
        (lambda f: f.to_dicts(), "it returned list, not a frame"),
        (lambda f: f.lazy(), "a lazy frame.*return frame.collect"),
        (lambda f: f["user"], "a single column"),
    ],
)
def test_no_policy_leaves_out_all_records_of_a_function_that_returns_no_frame(fn: Any, said: str) -> None:
    """It is the function that is wrong: every record would be a dead letter."""
    calls: list[int] = []

    def counted(frame: pl.DataFrame) -> Any:
        calls.append(len(frame))
        return fn(frame)

    with Driver(app_of(counted, on_error="skip")) as d:
        with pytest.raises(Exception, match=re.compile(rf"frame \(.*{said}", re.S)):
            d.send_all("orders", orders(1.0, 2.0, 3.0))
    assert calls == [3]


class Deep(TypedDict):
    items: set[int]


def columns() -> hg.ColumnStream[Any, Order]:
    return hg.App("job").input("orders", serde=hg.json(Order)).columns()


async def awaits(frame: Any) -> Any:
    return frame


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: columns().frame(len, like="polers", schema=Total), r"frame\(like='polers'\).*did you mean 'polars'"),
        (lambda: columns().frame(len, like=pl, schema=Total), r"frame\(like=<module"),
        (lambda: columns().frame(hg.col("a"), schema=Total), r"needs a function"),
        (lambda: columns().frame(lambda a, b: a, schema=Total), r"frame\(\).*\(frame\)"),
        (lambda: columns().frame(awaits, schema=Total), r"awaits is an async function"),
        (lambda: columns().frame(len, schema=Deep), "the field 'items' of Deep is set"),
        (lambda: columns().frame(len, schema={"a": int}), "has no columns"),
        (lambda: columns().with_columns(__row=1).frame(len, schema=Total), "'__row' has a name that frames use"),
        (lambda: columns().frame(len, schema=Total, on_error="ignore"), r"frame\(on_error\)"),
    ],
)
def test_a_wrong_declaration_is_refused_at_its_line(wrong: Callable[[], Any], said: str) -> None:
    """Nothing runs for it."""
    with pytest.raises(hg.DeclarationError, match=said):
        wrong()


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, r"needs polars, which is not installed.*pip install 'polars>=1.3'"),
        ("0.20.31", r"needs polars 1.3 or newer, and 0.20.31 is installed"),
    ],
)
def test_a_library_that_is_not_there(found: str | None, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The declaration says what to install."""

    def version(name: str) -> str:
        if found is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(hg.DeclarationError, match=said):
        columns().frame(len, like="polars", schema=Total)


def test_a_library_is_imported_only_where_it_is_used() -> None:
    """Neither headgate nor the declaration of a job loads one."""
    program = """
import sys, typing
import headgate as hg
class Order(typing.TypedDict):
    user: str
app = hg.App("job")
columns = app.input("orders", serde=hg.json(Order)).columns()
for like in ("polars", "pyarrow", "pandas", "narwhals"):
    columns.frame(lambda frame: frame, like=like, schema=Order).to("out-" + like)
columns.frame(lambda frame: frame, schema=Order).to("out")
print(sorted({"polars", "pyarrow", "pandas", "narwhals", "numpy"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_without_the_compiled_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same results."""
    monkeypatch.setattr(chosen, "part", chosen.PLAIN)
    for fn, like in FUNCTIONS:
        test_rows_keep_where_they_came_from(fn, like)
