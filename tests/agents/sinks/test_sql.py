"""Rows into databases, on the test driver: what stands in the table is what came, once, whatever the database refuses."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import psycopg
import pyarrow as pa
import pytest

import headgate as hg
from headgate.agents.sinks.databases import connecting, database_of
from headgate.agents.sinks.sink import TargetRefuses
from headgate.agents.sinks.sql import SqlSink, SqlTable
from headgate.core.batching.sinking import FencedSink, SinkBatch, SinkOwner
from headgate.core.columns.schema import FLOAT, INT, TEXT, ColumnSchema, ColumnSpec

from ...postgres import Server
from .conftest import Target

COLUMNS = ColumnSchema((ColumnSpec("id", INT), ColumnSpec("country", TEXT), ColumnSpec("amount", FLOAT, optional=True)))


class Order(TypedDict):
    id: int
    country: str
    amount: float | None


def order(number: int, country: str = "DE", amount: float | None = 1.5) -> dict[str, Any]:
    return {"id": number, "country": country, "amount": amount}


def send(driver: hg.testing.Driver, *orders: dict[str, Any]) -> None:
    for one in orders:
        driver.send("orders", one)


def job(url: str, **more: Any) -> hg.App:
    app = hg.App("sales", serde=hg.json())
    app.input("orders", serde=hg.json(Order), key="id").to_sql(url, "orders", **more)
    return app


def test_the_last_row_of_a_key_stands_in_the_table(target: Target) -> None:
    """Also if both rows are in one batch, which most databases refuse within one statement."""
    with hg.testing.Driver(job(target.url, key="id")) as d:
        send(d, order(1), order(2), order(1, "FR"))
        d.advance("2s")
        send(d, order(2, "IT", None))
        d.advance("2s")
    assert target.run("SELECT * FROM orders ORDER BY id") == [(1, "FR", 1.5), (2, "IT", None)]


class Slot(TypedDict):
    day: str
    amount: float


def test_the_last_row_of_a_key_is_found_in_the_types_of_the_table(target: Target) -> None:
    """A table that is there may say that two keys are equal which differ as text, as two spellings of a day do."""
    if target.url.startswith("sqlite"):
        pytest.skip("it has no such types")
    target.run("CREATE TABLE slots (day DATE PRIMARY KEY, amount DOUBLE PRECISION)")
    app = hg.App("sales", serde=hg.json())
    app.input("slots", serde=hg.json(Slot), key="day").to_sql(target.url, "slots", key="day")
    with hg.testing.Driver(app) as d:
        for place, day in enumerate(("2026-01-02", "2026-1-2", "2026-01-03", "2026-01-02")):
            d.send("slots", {"day": day, "amount": float(place)})
        d.end("slots")
    assert target.run("SELECT CAST(day AS VARCHAR), amount FROM slots ORDER BY 1") == [
        ("2026-01-02", 3.0),
        ("2026-01-03", 2.0),
    ]


class Numbered(TypedDict):
    rowid: int
    key: str
    amount: float


def test_a_column_may_be_called_as_what_a_database_has_for_itself(target: Target) -> None:
    """DuckDB and SQLite number rows by themselves: the last of equal keys is still the one that came last."""
    app = hg.App("sales", serde=hg.json())
    app.input("slots", serde=hg.json(Numbered), key="key").to_sql(target.url, "numbered", key="key")
    with hg.testing.Driver(app) as d:
        for number in (3, 1, 2):
            d.send("slots", {"rowid": number, "key": "a", "amount": float(number)})
        d.end("slots")
    assert target.run("SELECT rowid, amount FROM numbered") == [(2, 2.0)]


@pytest.mark.parametrize("change", ["ALTER TABLE orders RENAME TO kept", "DROP TABLE orders"])
def test_a_table_that_is_taken_away_is_not_made_again(target: Target, change: str) -> None:
    """The rows of before are elsewhere, or gone: to go on in an empty one would look as if they had never been."""
    with hg.testing.Driver(job(target.url, max_rows=1)) as d:
        send(d, order(1))
        assert target.run("SELECT count(*) FROM orders") == [(1,)]
        target.run(change)
        with pytest.raises(hg.HeadgateError, match="orders"):
            send(d, order(2))
    with pytest.raises(Exception, match="orders"):
        target.run("SELECT count(*) FROM orders")


def test_rows_are_appended_without_a_key(target: Target) -> None:
    with hg.testing.Driver(job(target.url, max_rows=2)) as d:
        send(d, *[order(n % 3) for n in range(7)])
        d.end("orders")
    assert target.run("SELECT count(*), sum(amount) FROM orders") == [(7, 10.5)]
    assert target.run("SELECT task, stage, batch FROM headgate_batches") == [("Partition 0", "sql-orders", 3)]


def test_columns_go_without_objects(target: Target) -> None:
    app = hg.App("sales", serde=hg.json())
    orders = app.input("orders", serde=hg.json(Order), key="id").columns()
    orders.with_columns(twice=hg.col("amount") * 2).to_sql(target.url, "orders")
    with hg.testing.Driver(app) as d:
        send(d, order(1), order(2, "ÄÖ\t\\N"))
        d.end("orders")
    assert target.run("SELECT country, twice FROM orders ORDER BY id") == [("DE", 3.0), ("ÄÖ\t\\N", 3.0)]


def test_a_row_that_the_database_refuses_goes_to_the_dead_letters(target: Target) -> None:
    """The others of its batch are written once, and those of later batches go on."""
    target.run("CREATE TABLE orders (id BIGINT, country VARCHAR(20), amount DOUBLE PRECISION, CHECK (amount < 100))")
    with hg.testing.Driver(job(target.url, on_error="dead_letter", max_rows=10)) as d:
        send(d, *[order(n, amount=500.0 if n in (3, 7) else 1.0) for n in range(20)])
        d.end("orders")
        letters = d.dead_letters()
    assert [row for (row,) in target.run("SELECT id FROM orders ORDER BY id")] == [
        n for n in range(20) if n not in (3, 7)
    ]
    assert [json.loads(one.value or b"")["id"] for one in letters] == [3, 7]


TRIGGER = """
CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN
IF new.country = 'bad' THEN RAISE EXCEPTION 'this country is not served'; END IF; RETURN new; END $$ LANGUAGE plpgsql;
CREATE TABLE orders (id BIGINT PRIMARY KEY, country TEXT, amount DOUBLE PRECISION);
CREATE TRIGGER refused BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION refuse()
"""
CHECKED_VIEW = """
CREATE TABLE stored (id BIGINT PRIMARY KEY, country TEXT, amount DOUBLE PRECISION);
CREATE VIEW orders AS SELECT * FROM stored WHERE country <> 'bad' WITH CHECK OPTION
"""
INDEX = "CREATE TABLE orders (id BIGINT PRIMARY KEY, country TEXT UNIQUE, amount DOUBLE PRECISION)"


@pytest.mark.parametrize(
    ("made", "bad"),
    [(TRIGGER, "bad"), (CHECKED_VIEW, "bad"), (INDEX, "".join(f"{n:05}" for n in range(20_000)))],
    ids=["a trigger", "the check of a view", "a value that is too long for its index"],
)
def test_whatever_of_postgresql_refuses_a_row_only_that_row_is_left_out(postgres: Server, made: str, bad: str) -> None:
    url = postgres.database()
    with psycopg.connect(url, autocommit=True) as link:
        link.execute(made.encode())
        with hg.testing.Driver(job(url, key="id", on_error="dead_letter")) as d:
            send(d, order(1, "DE"), order(2, bad), order(3, "FR"))
            d.end("orders")
            assert [json.loads(one.value or b"")["id"] for one in d.dead_letters()] == [2]
        assert link.execute("SELECT id FROM orders ORDER BY id").fetchall() == [(1,), (3,)]


def test_a_record_without_a_value_is_left_to_the_policy() -> None:
    """It deletes no row, as its key need not be that of the table. Of columns it never gets here."""
    app = hg.App("sales", serde=hg.json())
    orders = app.input("orders", serde=hg.json(Order))
    orders.to_sql("sqlite:////tmp/never-opened", "orders")
    with hg.testing.Driver(app) as d:
        with pytest.raises(hg.UserCodeError, match=r"a tombstone\) is no row.*on_error=.skip."):
            d.send("orders", None, key="1")


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
def test_a_record_without_a_value_that_is_left_out_is_counted(columns: bool, tmp_path: Path) -> None:
    app = hg.App("sales", serde=hg.json())
    orders = app.input("orders", serde=hg.json(Order))
    (orders.columns() if columns else orders).to_sql(f"sqlite:///{tmp_path}/target", "orders", on_error="skip")
    with hg.testing.Driver(app) as d:
        send(d, order(1))
        d.send("orders", None, key="1")
        send(d, order(2))
        d.drain()
        counts = d.counters
    assert counts["tombstones_dropped" if columns else "records_skipped"] == 1
    found = sqlite3.connect(tmp_path / "target").execute("SELECT id FROM orders ORDER BY id").fetchall()
    assert found == [(1,), (2,)]


def test_a_table_that_does_not_fit_fails_the_task_with_the_databases_words(target: Target) -> None:
    target.run("CREATE TABLE orders (id BIGINT, land VARCHAR(2))")
    with hg.testing.Driver(job(target.url)) as d:
        send(d, order(1))
        with pytest.raises(hg.UserCodeError, match="country"):
            d.end("orders")


# ------------------------------------------------------------------------------------------------------- the target remembers


def owner(grant: int, begun_ms: int = 7, uuid: str = "u") -> SinkOwner:
    return SinkOwner("sales/1", uuid, "Partition 0", "orders", grant, begun_ms)


def batch(number: int) -> SinkBatch:
    return SinkBatch(str(number), number, 1, "rows", {})


def opened(target: Target, who: SinkOwner) -> SqlSink:
    table = SqlTable(target.url, "orders", COLUMNS)
    sink = SqlSink(table, connecting(database_of(target.url)))
    sink.open(who)
    return sink


def rows(number: int) -> Any:
    return pa.table({"id": [number], "country": ["DE"], "amount": [1.0]})


def written(sink: SqlSink, number: int, note: str = "") -> str | None:
    known = sink.begin(batch(number))
    if known is not None:
        sink.rollback()
        return known
    sink.write(rows(number), batch(number))
    sink.commit(note)
    return None


def test_a_batch_that_was_committed_is_not_written_again(target: Target) -> None:
    """Neither by its owner nor by the next one, and both get the note that it was committed with."""
    first = opened(target, owner(1))
    assert [written(first, 0, "[]"), written(first, 0)] == [None, "[]"]
    first.close()
    second = opened(target, owner(2))
    assert [written(second, 0), written(second, 1)] == ["[]", None]
    second.close()
    assert target.run("SELECT id FROM orders ORDER BY id") == [(0,), (1,)]


def test_an_earlier_owner_writes_nothing_once_a_later_one_has_opened(target: Target) -> None:
    first = opened(target, owner(1))
    written(first, 0)
    second = opened(target, owner(2))
    with pytest.raises(FencedSink):
        first.begin(batch(1))
    first.close()
    assert written(second, 1) is None
    second.close()
    with pytest.raises(FencedSink):
        opened(target, owner(1))


def test_numbers_that_begin_again_are_not_taken_for_old_ones(target: Target) -> None:
    """After `reset` the job has another id, after `tables clear` its batches have begun at another time."""
    for who in (owner(1), owner(2, begun_ms=8), owner(1, uuid="v")):
        sink = opened(target, who)
        assert [written(sink, 0), written(sink, 1)] == [None, None]
        sink.close()
    assert target.run("SELECT count(*) FROM orders") == [(6,)]


def test_what_is_not_committed_has_no_effect(target: Target) -> None:
    sink = opened(target, owner(1))
    sink.begin(batch(0))
    sink.write(rows(0), batch(0))
    sink.close()
    again = opened(target, owner(1))
    assert written(again, 0) is None
    again.close()
    assert target.run("SELECT count(*) FROM orders") == [(1,)]


# ------------------------------------------------------------------------------------------------------------ what is refused


def declared(**more: Any) -> None:
    url = more.pop("url", "sqlite:////tmp/never-opened")
    job(url, **more)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"key": "country"}, "several tasks may write the same row"),
        ({"key": "contry"}, "contry"),
        ({"mode": "upsert"}, "without a key, rows are appended"),
        ({"mode": "append", "key": "id"}, "mode='append'"),
        ({"url": "mysql://me:hunter2@db/x"}, r"mysql://me:\*\*\*@db/x"),
        ({"url": "sqlite:///a.db"}, "not absolute"),
        ({"key": "id", "order": "none"}, "order="),
        ({"key": "contry"}, "the rows have no column 'contry'; they have .* did you mean 'country'"),
        ({"key": None, "mode": "upsert"}, "key=None names no columns"),
        ({"key": None}, "leave key out to append rows"),
        ({"key": ("id", "id")}, "or one twice"),
        ({"key": 5}, "key=5 names no columns"),
    ],
)
def test_what_cannot_work_is_refused_where_it_is_declared(given: dict[str, Any], what: str) -> None:
    with pytest.raises(hg.DeclarationError, match=what):
        declared(**given)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (
            {"options": {"compresion": "zstd"}},
            "unexpected parquet write option: compresion.* did you mean 'compression'",
        ),
        ({"options": {"compression": "zsdt"}}, "Unsupported compression: zsdt"),
        ({"options": {"row_group_size": 5}}, "unexpected parquet write option"),
        ({"options": "zstd"}, r"to_files\(options='zstd'\)"),
        ({"path": "out"}, r"to_files\('out'\): this is neither"),
        ({"path": print}, "a function that writes is a sink"),
        ({"partition_by": "contry"}, r"to_files\(partition_by='contry'\): the rows have no column"),
    ],
)
def test_wrong_arguments_of_to_files_are_refused_by_its_name(given: dict[str, Any], what: str) -> None:
    app = hg.App("sales", serde=hg.json())
    with pytest.raises(hg.DeclarationError, match=what):
        app.input("orders", serde=hg.json(Order), key="id").to_files(**{"path": "/tmp/never-made", **given})


def test_unknown_columns_are_to_be_declared_for_the_verb_that_was_called() -> None:
    app = hg.App("sales", serde=hg.json())
    with pytest.raises(hg.DeclarationError) as caught:
        app.input("orders").to_sql("sqlite:////tmp/never-opened", "orders")
    assert ".to_sql(…, rows=Order)" in caught.value.remedy
    assert "spark" not in str(caught.value)


def test_any_order_may_be_wanted() -> None:
    declared(key="country", order="any")


@pytest.mark.parametrize("by", ["country", None])
def test_a_repartition_says_which_task_writes_a_key(by: str | None) -> None:
    app = hg.App("sales", serde=hg.json())
    stream = app.input("orders", serde=hg.json(Order), key="id").repartition(by, name="r")
    to = partial(stream.to_sql, "sqlite:////tmp/never-opened", "orders")
    if by is None:
        to(key="id")
    else:
        to(key=["country", "id"])


def test_a_lock_of_somebody_else_is_no_failure_of_the_batch(postgres: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner that was stopped in the middle of a transaction holds the row of the task: its successor tries again."""
    module = pytest.importorskip("headgate.agents.sinks.postgres")
    monkeypatch.setattr(module, "BEGIN", module.BEGIN.replace("30s", "100ms"))
    url = postgres.database()
    first = SqlSink(SqlTable(url, "orders", COLUMNS), connecting("postgresql"))
    first.open(owner(1))
    first.begin(batch(0))
    second = SqlSink(SqlTable(url, "orders", COLUMNS), connecting("postgresql"))
    with pytest.raises(hg.TargetDown, match="lock timeout"):
        second.open(owner(2))
    second.close()
    first.close()


HOLDS = """
import sys, duckdb
link = duckdb.connect(sys.argv[1])
print("it is open", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def held(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has a file of DuckDB."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "it is open\n"
        try:
            yield other
        finally:
            other.communicate("")


def opens(path: Path) -> None:
    sink = SqlSink(SqlTable(f"duckdb:///{path}", "orders", COLUMNS), connecting("duckdb"))
    sink.open(owner(1))
    sink.close()


def test_a_file_that_another_process_keeps_fails_the_task_and_one_that_it_leaves_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of before may still be about to end. If it does not, two workers write to one file, which no retry will mend."""
    module = pytest.importorskip("headgate.agents.sinks.duck")
    path = tmp_path / "target"
    with held(path) as other:
        for _ in range(2):
            with pytest.raises(hg.TargetDown, match=rf"another process has the file: .*\(PID {other.pid}\)"):
                opens(path)
    opens(path)
    with held(path) as other:
        with pytest.raises(hg.TargetDown):
            opens(path)
        monkeypatch.setattr(module, "HELD_S", 0.0)
        with pytest.raises(
            TargetRefuses, match=rf"PID {other.pid}\), for .* s already.*one worker, or write to PostgreSQL"
        ):
            opens(path)
    with held(path), pytest.raises(TargetRefuses):
        opens(path)
    opens(path)


def test_a_job_whose_file_another_process_keeps_fails_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is what the status shows as the reason."""
    module = pytest.importorskip("headgate.agents.sinks.duck")
    monkeypatch.setattr(module, "HELD_S", 0.0)
    path = tmp_path / "target"
    with held(path) as other, hg.testing.Driver(job(f"duckdb:///{path}"), settings={"error.retries": 1000}) as d:
        send(d, order(1))
        with pytest.raises(hg.UserCodeError, match=rf"PID {other.pid}\)"):
            d.end("orders")
