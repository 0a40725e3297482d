"""Results that Spark writes itself: named in the transaction, then published, then forgotten. What stands for Spark writes JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypedDict

import pytest

import headgate as hg
from headgate.agents.testing import driver
from headgate.agents.testing.driver import Driver
from headgate.core.errors import DeclarationError
from headgate.spark_bridge.data.writing import FilesDown

from ...without_spark import Rows, WithoutSpark


@pytest.fixture(autouse=True)
def spark(monkeypatch: pytest.MonkeyPatch) -> WithoutSpark:
    """Each driver runs its stages here."""
    bridge = WithoutSpark()
    monkeypatch.setattr(driver, "_spark", lambda declared, session: bridge)
    return bridge


class Order(TypedDict):
    n: int
    c: str


def same(rows: Rows, batch: Any) -> Rows:
    """The rows as they are, with their batch."""
    return [{**row, "batch": batch.id.partition("/")[2]} for row in rows]


def orders(first: int, behind: int) -> list[dict[str, Any]]:
    return [{"n": n, "c": ("DE", "FR")[n % 2]} for n in range(first, behind)]


def job(out: Path) -> hg.App:
    app = hg.App("sales")
    app.input("orders").batch(max_rows=4, name="lot").spark(
        same, rows=Order, schema="n long, c string", name="copy"
    ).write(out, format="json", partition_by="c")
    return app


def there(out: Path) -> list[tuple[int, str]]:
    """Number and batch of all rows in whole batches; they are all that is in the directory, too."""
    files = hg.published(out) if out.exists() else []
    assert sorted(files) == sorted(str(path) for path in out.rglob("part-*.json") if "staging" not in path.parts)
    rows = [json.loads(line) for path in files for line in Path(path).read_text().splitlines()]
    return sorted((row["n"], row["batch"]) for row in rows)


def staged(out: Path) -> list[Path]:
    """What is left below the staging directory."""
    return [path for path in (out / "_headgate" / "staging").rglob("*") if path.is_file()]


def test_batches_are_written_once_each(tmp_path: Path, spark: WithoutSpark) -> None:
    """By rows and by the drain, over a restart. Each batch ran once, nothing is left to be done, and the next run writes behind it."""
    out = tmp_path / "out"
    with Driver(job(out)) as d:
        d.send_all("orders", orders(0, 9))
        assert there(out) == [(n, f"lot/{1 + n // 4}") for n in range(8)]
        d.restart()
        d.drain()
        assert there(out) == [(n, f"lot/{1 + n // 4}") for n in range(9)]
        d.restart()
        d.send_all("orders", orders(9, 13))
        assert there(out)[9:] == [(n, "lot/4") for n in range(9, 13)]
    assert [batch.number for batch in spark.ran] == [1, 2, 3, 4]
    assert staged(out) == []


def test_a_batch_that_is_named_is_published_by_the_next_owner(tmp_path: Path, spark: WithoutSpark) -> None:
    """The file system fails until the owner is gone. Its successor publishes the attempt that was named, without running the batch."""
    out = tmp_path / "out"
    with Driver(job(out), settings={"error.retries": 0}) as d:
        spark.failures = [FilesDown("the disk is full")]
        with pytest.raises(Exception, match="the disk is full"):
            d.send_all("orders", orders(0, 4))
        assert there(out) == []
        d.restart()
        assert there(out) == [(n, "lot/1") for n in range(4)]
    assert [attempt for _, _, attempt in spark.published] == ["a1", "a1"]
    assert len(spark.ran) == 1


def test_a_drain_waits_until_all_is_published(tmp_path: Path) -> None:
    """What the drain closes is in the directory when the drain has returned."""
    out = tmp_path / "out"
    with Driver(job(out)) as d:
        d.send_all("orders", orders(0, 3))
        assert there(out) == []
        d.drain()
        assert there(out) == [(n, "lot/1") for n in range(3)]


def test_one_batch_may_be_written_and_passed_on(tmp_path: Path, spark: WithoutSpark) -> None:
    """Two stages of the same batches: one writes files, the other Kafka. Each has every row once, also when publishing fails at first."""
    out = tmp_path / "out"
    app = hg.App("sales")
    lots = app.input("orders").batch(max_rows=40_000, name="lot")
    lots.spark(same, rows=Order, schema="n long, c string", name="copy").write(out, format="json", partition_by="c")
    lots.spark(same, rows=Order, schema="n long", name="count").to("copies")
    with Driver(app, settings={"error.retries": 0}) as d:
        spark.failures = [FilesDown("the disk is full")]
        with pytest.raises(Exception, match="the disk is full"):
            d.send_all("orders", orders(0, 40_000))
        d.restart()
        assert [row for row, _ in there(out)] == list(range(40_000))
        assert sorted(one.value["n"] for one in d.read("copies")) == list(range(40_000))


def test_a_function_of_the_user_writes(tmp_path: Path) -> None:
    """It gets the result and the batch, at least once."""
    seen: list[tuple[str, int]] = []

    def into_database(rows: Rows, batch: Any) -> None:
        seen.append((batch.id, len(rows)))

    app = hg.App("sales")
    app.input("orders").batch(max_rows=4, name="lot").spark(same, rows=Order, schema="n long").write(into_database)
    with Driver(app) as d:
        d.send_all("orders", orders(0, 8))
    assert seen == [("Partition 0/lot/1", 4), ("Partition 0/lot/2", 4)]


def test_what_spark_writes_nobody_else_can_have(tmp_path: Path) -> None:
    """The result does not come back, so another reader of it is refused, with the way to get both."""
    for verb in ("to", "write"):
        app = hg.App("sales")
        copy = app.input("orders").batch(max_rows=4, name="lot").spark(same, rows=Order, schema="n long", name="copy")
        copy.write(tmp_path)
        getattr(copy, verb)("/elsewhere" if verb == "write" else "copies")
        with pytest.raises(
            DeclarationError, match=r"Spark writes the result of spark 'copy'.*use the batches before it twice"
        ):
            Driver(app)


def test_files_in_one_directory_can_be_read_together(tmp_path: Path) -> None:
    """Two stages may share one. Parquet among JSON, or directories of countries among plain files, nobody could read."""

    def job(**other: Any) -> hg.App:
        app = hg.App("sales")
        lots = app.input("orders").batch(max_rows=4, name="lot")
        lots.spark(same, rows=Order, schema="n long, c string", name="copy").write(tmp_path, partition_by="c")
        lots.spark(same, rows=Order, schema="n long, c string", name="again").write(f"{tmp_path}/", **other)
        return app

    with Driver(job(partition_by=["c"])):
        pass
    for other, words in (({"format": "json", "partition_by": "c"}, "another format"), ({}, "another partition_by")):
        with pytest.raises(DeclarationError, match=f"two stages write to .* with {words}"):
            Driver(job(**other))


def test_arguments_of_write_are_checked_where_they_stand(tmp_path: Path) -> None:
    """A function of one argument, and a path that depends on where a worker was started."""
    copy = hg.App("sales").input("orders").batch(max_rows=4).spark(same, rows=Order, schema="n long")
    with pytest.raises(DeclarationError, match=r"\(df, batch\)"):
        copy.write(lambda df: None)
    with pytest.raises(DeclarationError, match="absolute path"):
        copy.write("out")
    with pytest.raises(DeclarationError, match="cannot follow write"):
        copy.write(tmp_path).to("copies")
