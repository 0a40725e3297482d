"""The key of a table: rows of one key go through one task, or the declaration is refused. Where values have no such field, it is made of
the key of the record."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import pytest

import headgate as hg

URL = "sqlite:////tmp/never-opened"
Declare = Callable[[Any, hg.App], Any]


class Order(TypedDict):
    id: int
    country: str
    amount: float


class Count(TypedDict):
    country: str
    n: int


class Country(TypedDict):
    country: str


def same(one: Order) -> Order:
    return one


def several(one: Order) -> list[Order]:
    return [one]


def other(app: hg.App, key: str) -> Any:
    return app.input("others", serde=hg.json(Order), key=key)


def declared(of: Declare) -> hg.App:
    """A job over orders that are keyed by their id."""
    app = hg.App("sales", serde=hg.json())
    of(app.input("orders", serde=hg.json(Order), key="id"), app)
    return app


def by_country(stream: Any, url: str = URL, **key: Any) -> Any:
    return stream.repartition("country").agg(n=hg.count()).to_sql(url, "counts", **key)


# ----------------------------------------------------------------------------------------------------- through which task rows go

KEEP: dict[str, Declare] = {
    "nothing between": lambda s, a: s.to_sql(URL, "t", key="id"),
    "steps that leave rows out": lambda s, a: s.filter(bool).peek(print).dedupe(name="d").to_sql(URL, "t", key="id"),
    "columns, and rows of them": lambda s, a: s.columns().filter(hg.col("id") > 1).rows().to_sql(URL, "t", key="id"),
    "further columns": lambda s, a: s.columns().with_columns(x=hg.col("id") * 2).to_sql(URL, "t", key="id"),
    "the same column again": lambda s, a: s.columns().with_columns(id=hg.col("id")).to_sql(URL, "t", key="id"),
    "another name": lambda s, a: s.columns().select("amount", number=hg.col("id")).to_sql(URL, "t", key="number"),
    "a copy under another name": lambda s, a: s.columns().with_columns(number=hg.col("id")).to_sql(URL, "t", key="number"),
    "a merge of the same key": lambda s, a: s.merge(other(a, "id")).to_sql(URL, "t", key="id"),
    "a repartition behind a function": lambda s, a: s.map(same).repartition("id").to_sql(URL, "t", key="id"),
    "more than the field": lambda s, a: s.to_sql(URL, "t", key=("country", "id")),
    "an aggregate of the key itself": lambda s, a: (
        s.repartition("country").agg(c=hg.first("country"), n=hg.count()).to_sql(URL, "t", key="c")
    ),
    "whatever, if it does not matter": lambda s, a: s.map(same).to_sql(URL, "t", key="id", order="any"),
}  # fmt: skip


@pytest.mark.parametrize("name", KEEP)
def test_a_key_by_which_the_rows_are_partitioned_is_taken(name: str) -> None:
    declared(KEEP[name])


LOSE: dict[str, tuple[Declare, str]] = {
    "a function": (lambda s, a: s.map(same).to_sql(URL, "t", key="id"), "something else"),
    "a function of several": (lambda s, a: s.flat_map(several).to_sql(URL, "t", key="id"), "something else"),
    "a frame": (lambda s, a: s.columns().frame(lambda f: f, schema=Order).to_sql(URL, "t", key="id"), "something else"),
    "an expression": (
        lambda s, a: s.columns().with_columns(id=hg.col("id") * 2).to_sql(URL, "t", key="id"),
        "something else",
    ),
    "another column": (
        lambda s, a: (
            s.columns().with_columns(country=hg.col("country").upper(), id=hg.col("id") + 0).to_sql(URL, "t", key="id")
        ),
        "something else",
    ),
    "a selection": (
        lambda s, a: (
            s.columns()
            .repartition("country")
            .select(country=hg.col("amount").cast(str))
            .to_sql(URL, "t", key="country")
        ),
        "something else",
    ),
    "a column that has only got another name": (
        lambda s, a: s.columns().select(number=hg.col("id"), id=hg.col("country")).to_sql(URL, "t", key="id"),
        "something else",
    ),
    "an aggregate of another field": (
        lambda s, a: s.repartition("country").agg(country=hg.last("id")).to_sql(URL, "t", key="country"),
        "something else",
    ),
    "an aggregate of some rows": (
        lambda s, a: (
            s.columns()
            .repartition("country")
            .agg(country=hg.last("country", where=hg.col("id") > 1))
            .to_sql(URL, "t", key="country")
        ),
        "something else",
    ),
    "a merge of other keys": (
        lambda s, a: s.merge(other(a, "country")).to_sql(URL, "t", key="id"),
        "merged streams are partitioned by 'country' and 'id'",
    ),
    "another key": (lambda s, a: s.rekey("country").to_sql(URL, "t", key="id"), "rekey changed"),
    "values of a pattern": (
        lambda s, a: a.input(pattern="p-.*", key="id", serde=hg.json(Order), into=lambda value, _: value).to_sql(
            URL, "t", key="id", rows=Order
        ),
        "something else",
    ),
    "a function as key": (
        lambda s, a: s.repartition(lambda one: one["id"], name="r").to_sql(URL, "t", key="id"),
        "not known by which field",
    ),
    "the wrong field": (lambda s, a: s.to_sql(URL, "t", key="country"), "partitioned by 'id', which is not in it"),
    "a former name": (
        lambda s, a: s.columns().select("country", number=hg.col("id")).to_sql(URL, "t", key="country"),
        "it is called 'number' now",
    ),
}


@pytest.mark.parametrize("name", LOSE)
def test_a_key_whose_rows_may_go_through_several_tasks_is_refused(name: str) -> None:
    declare, why = LOSE[name]
    with pytest.raises(hg.DeclarationError, match=why):
        declared(declare)


def test_the_remedy_is_to_repartition_or_to_say_that_it_does_not_matter() -> None:
    with pytest.raises(hg.DeclarationError) as caught:
        declared(LOSE["a function"][0])
    assert caught.value.remedy.startswith('.repartition("id") directly before it')
    assert 'order="any"' in caught.value.remedy


@pytest.mark.parametrize("pattern", [False, True], ids=["a merge", "a pattern"])
def test_streams_of_other_widths_are_refused_when_these_are_known(pattern: bool) -> None:
    """Equal keys are then in different tasks."""
    app = hg.App("sales", serde=hg.json())
    if pattern:
        orders = app.input(pattern="orders|others", serde=hg.json(Order), key="id")
    else:
        orders = app.input("orders", serde=hg.json(Order), key="id").merge(other(app, "id"))
    orders.to_sql(URL, "t", key="id")
    hg.testing.Driver(app, partitions={"orders": 2, "others": 2}).close()
    with pytest.raises(hg.DeclarationError, match=r"needs 'orders' and 'others' partitioned alike.*order=.any."):
        hg.testing.Driver(app, partitions={"orders": 2, "others": 3})


# ------------------------------------------------------------------------------------------------------- updates, and their key


def run(app: hg.App, count: int = 30) -> Counter[str]:
    """Run a job over orders, in several batches. Returns how many there are of each country."""
    sent = [{"id": n, "country": ("DE", "FR", "IT")[n % 3], "amount": float(n)} for n in range(count)]
    with hg.testing.Driver(app, settings={"sink.max-rows": 4}) as d:
        for one in sent:
            d.send("orders", one, at=one["id"] * 1000)
        d.drain()
    return Counter(str(one["country"]) for one in sent)


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
def test_a_running_count_stands_in_the_table_by_its_key(columns: bool, tmp_path: Path) -> None:
    """Its values have no field for the key; the record has it. An update replaces the one before."""
    path = tmp_path / "counts.db"

    def counted(s: Any, a: hg.App) -> None:
        found = (s.columns() if columns else s).repartition("country").agg(n=hg.count(), most=hg.max("amount"))
        found.to_sql(f"sqlite:///{path}", "counts", key="country")

    counts = run(declared(counted))
    found = sqlite3.connect(path).execute("SELECT country, n, most FROM counts ORDER BY most").fetchall()
    assert found == [(country, counts[country], most) for country, most in (("DE", 27.0), ("FR", 28.0), ("IT", 29.0))]


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("early", [{}, {"emit": "2s"}], ids=["closed", "early"])
def test_results_of_windows_stand_in_the_table_by_key_and_window(
    columns: bool, early: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "counts.db"

    def counted(s: Any, a: hg.App) -> None:
        found = (s.columns() if columns else s).repartition("country").window(hg.tumbling("10s"), **early)
        found.agg(n=hg.count()).to_sql(f"sqlite:///{path}", "counts", key=("country", "window_start"))

    run(declared(counted))
    asked = "SELECT country, window_start, n FROM counts ORDER BY 2, 1"
    assert sqlite3.connect(path).execute(asked).fetchall() == [
        (country, start * 1000, sum(("DE", "FR", "IT")[n % 3] == country for n in range(start, start + 10)))
        for start in (0, 10, 20)
        for country in ("DE", "FR", "IT")
    ]


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
def test_results_of_sliding_windows_stand_in_the_table_by_key_and_window(columns: bool, tmp_path: Path) -> None:
    path = tmp_path / "counts.db"

    def counted(s: Any, a: hg.App) -> None:
        found = (s.columns() if columns else s).repartition("country").window(hg.sliding("10s")).agg(n=hg.count())
        found.to_sql(f"sqlite:///{path}", "counts", key=("country", "window_end"))

    run(declared(counted))
    asked = "SELECT country, window_end, n FROM counts ORDER BY 2"
    assert sqlite3.connect(path).execute(asked).fetchall() == [
        (("DE", "FR", "IT")[n % 3], n * 1000 + 1, sum(n % 3 == one % 3 for one in range(max(0, n - 9), n + 1)))
        for n in range(30)
    ]


def test_the_key_is_declared_by_rows_where_the_input_has_no_type(tmp_path: Path) -> None:
    path = tmp_path / "counts.db"
    app = hg.App("sales", serde=hg.json())
    by_country(app.input("orders"), f"sqlite:///{path}", key="country", rows=Count)
    counts = run(app)
    assert dict(sqlite3.connect(path).execute("SELECT country, n FROM counts").fetchall()) == counts


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
def test_the_key_of_a_record_is_a_column_wherever_its_values_have_no_such_field(columns: bool, tmp_path: Path) -> None:
    """Behind a function or a selection, too: the rows still have their key, and are where it has brought them."""
    path = tmp_path / "countries.db"

    def of_id(one: Order) -> Country:
        return {"country": one["country"]}

    def without(s: Any, a: hg.App) -> None:
        left = s.columns().select("country").filter(hg.col("country") != "IT") if columns else s.map(of_id)
        left.to_sql(f"sqlite:///{path}", "counts", key="id")

    run(declared(without), 6)
    found = dict(sqlite3.connect(path).execute("SELECT id, country FROM counts").fetchall())
    assert found == {n: ("DE", "FR", "IT")[n % 3] for n in range(6) if not columns or n % 3 != 2}


def test_a_key_of_whose_type_nothing_is_known_is_refused() -> None:
    with pytest.raises(hg.DeclarationError, match=r"the type of the column 'country'.* is not known") as caught:
        declared(lambda s, a: by_country(a.input("x"), key="country"))
    assert "rows= with 'country'" in caught.value.remedy


@pytest.mark.parametrize("key", [{}, {"key": ("country", "n")}], ids=["append", "a key that changes"])
def test_updates_that_would_be_further_rows_are_refused(key: dict[str, Any]) -> None:
    with pytest.raises(hg.DeclarationError, match="for one more row") as caught:
        declared(lambda s, a: by_country(s, **key))
    assert "to_sql(…, key=…)" in caught.value.remedy
