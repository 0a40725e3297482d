"""What a real Spark writes for a batch, and that the same is published from it: on a local disk, and through a file system of Hadoop."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
import pytest_asyncio

from headgate.core.batching.batches import BatchInfo, BatchOutcome, Inline, SparkStage
from headgate.core.batching.publishing import SparkWrite, Undone, declared_write
from headgate.spark_bridge.base.errors import SparkPlanError
from headgate.spark_bridge.data.files import HadoopFiles, files_of
from headgate.spark_bridge.data.publish import manifest, published
from headgate.spark_bridge.data.writing import NotWritten
from headgate.spark_bridge.process.jvm import Sessions
from headgate.spark_bridge.session.session import Spark

pytestmark = [pytest.mark.spark, pytest.mark.asyncio]

INFO = BatchInfo("Partition 0", "daily", 7, 3, "rows", turn=4)
ROWS = [{"country": "DE", "n": 1}, {"country": "F/R", "n": 2}, {"country": None, "n": 4}]
SCHEMA = "country string, n long"
UNDONE = Undone(9, frozenset({7, 8}))


@pytest_asyncio.fixture
async def spark(warm: Sessions) -> AsyncIterator[Spark]:
    """A bridge on the warm session, which it must not stop."""
    bridge = Spark()
    bridge.sessions = warm
    yield bridge
    bridge._threads.close()
    bridge._publishing.close()


def into(target: Any, format: str | None = None, by: Any = (), options: Any = None) -> SparkWrite:
    """What the operator makes of `.write(…)`."""
    return replace(declared_write(target, format, by, options), job="sales/1", series="s")


async def run(spark: Spark, write: SparkWrite, fn: Any = None, info: BatchInfo = INFO, **more: Any) -> BatchOutcome:
    """A batch through a stage that writes."""
    stage = SparkStage("copy", fn or (lambda df, batch: df), SCHEMA, write=write, **more)
    contents = Inline([spark.encode([pa.Table.from_pylist(ROWS)])])
    [outcome] = await spark.run(info, contents, [stage])
    return outcome


def below(path: Path) -> list[str]:
    found = [
        Path(where, name) for where, _, names in os.walk(path) for name in names
    ]  # Spark may delete directories meanwhile
    return sorted(one.relative_to(path).as_posix() for one in found)


@pytest.mark.parametrize(("format", "ending"), [(None, ".zstd.parquet"), ("orc", ".zstd.orc"), ("json", ".json.gz")])
async def test_a_batch_is_staged_and_published(spark: Spark, tmp_path: Path, format: str | None, ending: str) -> None:
    """Nothing is seen of it before it is published; then it is read by what reads such files, in the directories of its partitions."""
    write = into(tmp_path, format, "country", {"compression": "gzip" if format == "json" else "zstd"})
    outcome = await run(spark, write)
    assert (outcome.blocks, outcome.rows, len(outcome.attempt)) == ([], 0, 32)
    assert published(tmp_path) == []
    for _ in range(2):  # the second time it is there already
        await spark.publish(write, 7, outcome.attempt, UNDONE)
        assert below(tmp_path) == [
            "_headgate/manifest/s/0-000000000007-000000000007.json",
            f"country=DE/part-00000-s-000000000007{ending}",
            f"country=F%2FR/part-00001-s-000000000007{ending}",
            f"country=__HIVE_DEFAULT_PARTITION__/part-00002-s-000000000007{ending}",
        ]
    session = await asyncio.to_thread(spark.sessions.get)
    read = session.read.option("basePath", str(tmp_path)).format(format or "parquet")
    assert sorted((row.n, row.country) for row in read.load(published(tmp_path)).collect()) == [
        (1, "DE"),
        (2, "F/R"),
        (4, None),
    ]
    assert sorted(row.n for row in read.load(str(tmp_path)).collect()) == [1, 2, 4]
    if format is None:
        found = ds.dataset(published(tmp_path), partitioning="hive", partition_base_dir=str(tmp_path)).to_table()
        assert sorted(found["n"].to_pylist()) == [1, 2, 4]
    [entry] = manifest(files_of(write.path), write.path)
    assert (entry.batch, entry.stage, entry.batch_rows, entry.attempt) == (
        "Partition 0/daily/7",
        "copy",
        3,
        outcome.attempt,
    )


async def test_a_result_without_rows_is_a_whole_batch_too(spark: Spark, tmp_path: Path) -> None:
    """Its entry says that the batch is done."""
    write = into(tmp_path, None, "country")
    outcome = await run(spark, write, lambda df, batch: df.where("n > 9"))
    await spark.publish(write, 7, outcome.attempt, UNDONE)
    assert below(tmp_path) == ["_headgate/manifest/s/0-000000000007-000000000007.json"]


async def test_through_a_file_system_of_hadoop(spark: Spark, tmp_path: Path) -> None:
    """The same steps through the JVM, with Hadoop's viewfs, whose files here lie on this disk: names with signs in them, a repetition, an
    attempt that is gone, and reading the manifest with the session."""
    session = await asyncio.to_thread(spark.sessions.get)
    session.sparkContext._jsc.hadoopConfiguration().set("fs.viewfs.mounttable.hg.link./data", f"file://{tmp_path}")
    write = into("viewfs://hg/data/out dir", "json", "country")
    other = await run(spark, write)
    outcome = await run(spark, write)
    for _ in range(2):
        await spark.publish(write, 7, outcome.attempt, UNDONE)
        assert [name for name in below(tmp_path / "out dir") if not name.endswith(".crc")] == [
            "_headgate/manifest/s/0-000000000007-000000000007.json",
            "country=DE/part-00000-s-000000000007.json",
            "country=F%2FR/part-00001-s-000000000007.json",
            "country=__HIVE_DEFAULT_PARTITION__/part-00002-s-000000000007.json",
        ]
    with pytest.raises(Exception, match=r"manifest .* has it as attempt"):
        await spark.publish(write, 7, other.attempt, UNDONE)
    with pytest.raises(Exception, match="batch 8 cannot be published"):
        await spark.publish(write, 8, other.attempt, UNDONE)
    names = await asyncio.to_thread(published, write.path, session)
    assert names[0] == "viewfs://hg/data/out dir/country=DE/part-00000-s-000000000007.json"
    assert session.read.json(str(tmp_path / "out dir")).count() == 3


async def test_moves_of_hadoop(spark: Spark, tmp_path: Path) -> None:
    """Hadoop's rename says false for many reasons: no source is one thing, a name that is taken by the same file another."""
    session = await asyncio.to_thread(spark.sessions.get)
    top = f"file://{tmp_path}"
    files = HadoopFiles(session, top)
    assert (files.names(f"{top}/x"), files.found(f"{top}/x"), files.read(f"{top}/x"), files.size(f"{top}/x")) == (
        [],
        [],
        None,
        None,
    )
    files.put(f"{top}/a/1", "é1")
    assert (files.read(f"{top}/a/1"), files.size(f"{top}/a/1"), files.names(f"{top}/a")) == ("é1", 3, ["1"])
    assert files.move(f"{top}/a/1", f"{top}/b/c/1")
    assert not files.move(f"{top}/a/1", f"{top}/b/c/1")
    files.put(f"{top}/a/1", "é1")
    assert files.move(f"{top}/a/1", f"{top}/b/c/1")
    assert files.found(f"{top}/b") == [("c/1", 3)]
    files.delete(f"{top}/b")
    files.delete(f"{top}/b")
    assert files.found(f"{top}/b") == []


def fussy(df: Any, batch: BatchInfo) -> Any:
    """Fails on one row, in a Python worker."""
    from pyspark.sql import functions as F

    def check(n: int) -> int:
        if n == 2:
            raise ValueError("two is bad")
        return n

    return df.select("country", F.udf(check, "long")("n").alias("n"))


async def test_poison_is_left_out_of_what_is_written(spark: Spark, tmp_path: Path) -> None:
    """While the bad row is looked for, nothing is written: a function of the user is called with good rows only, and once."""
    seen: list[int] = []
    write = into(tmp_path, "json")
    outcome = await run(spark, write, fussy, keeps_going=True)
    assert [(place, row["n"]) for place, row, _ in outcome.bad] == [(1, 2)]
    await spark.publish(write, 7, outcome.attempt, UNDONE)
    session = await asyncio.to_thread(spark.sessions.get)
    assert sorted(row.n for row in session.read.json(str(tmp_path)).collect()) == [1, 4]
    own = into(lambda df, batch: seen.extend(row.n for row in df.collect()))
    await run(spark, own, fussy, keeps_going=True)
    assert sorted(seen) == [1, 4]


async def test_a_function_of_the_user_that_fails_is_tried_again(spark: Spark) -> None:
    """Its own error is not that of a plan, which would fail the task for good; an error of Spark in it keeps its kind."""

    def down(df: Any, batch: BatchInfo) -> None:
        raise OSError(f"no route to the database for {batch.id}")

    with pytest.raises(NotWritten, match=r"down\(\) could not write batch Partition 0/daily/7: OSError: no route"):
        await run(spark, into(down))
    with pytest.raises(SparkPlanError, match="nope"):
        await run(spark, into(lambda df, batch: df.select("nope").write.format("noop").mode("overwrite").save()))


async def test_what_cannot_be_written_is_said(spark: Spark, tmp_path: Path) -> None:
    """A partition column that the result does not have, and a source whose jars are not there."""
    with pytest.raises(SparkPlanError, match=r"the result has no column 'day'.*its columns are country, n"):
        await run(spark, into(tmp_path, None, ["country", "day"]))
    with pytest.raises(SparkPlanError, match=r"(?s)no data source 'delta'.*spark.jars.packages = io.delta"):
        await run(spark, into(tmp_path, "delta"))
    assert below(tmp_path) == []


async def test_delta_gets_the_series_and_the_turn(
    spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With them the table refuses to make a batch twice. The turn, because numbers are not in the order of closing behind a window."""
    from pyspark.sql import DataFrameWriter

    seen: dict[str, Any] = {}

    def option(self: Any, name: str, value: Any) -> Any:
        seen[name] = value
        return self

    monkeypatch.setattr(DataFrameWriter, "option", option)
    monkeypatch.setattr(DataFrameWriter, "save", lambda self, path: seen.update(path=path))
    outcome = await run(spark, into(tmp_path, "delta"))
    assert (seen, outcome.attempt) == ({"txnAppId": "s", "txnVersion": "4", "path": f"file://{tmp_path}"}, "")


async def test_an_attempt_that_is_cancelled_leaves_what_the_next_one_sweeps(spark: Spark, tmp_path: Path) -> None:
    """The task is released in the middle of a job; the next attempt of the batch is published, and nothing is left of the first."""
    started = tmp_path / "started"
    where = str(started)

    def slow(df: Any, batch: BatchInfo) -> Any:
        from pyspark.sql import functions as F

        def wait(n: int) -> int:
            import pathlib
            import time

            if not pathlib.Path(where).exists():
                pathlib.Path(where).touch()
                time.sleep(600)
            return n

        return df.select("country", F.udf(wait, "long")("n").alias("n"))

    out = tmp_path / "out"
    write = into(out, "json")
    first = asyncio.get_running_loop().create_task(run(spark, write, slow))
    async with asyncio.timeout(240):  # the function may be called before its task has opened a file
        while not (started.exists() and [name for name in below(out) if "staging" in name]):  # noqa: ASYNC110 - others do it
            await asyncio.sleep(0.05)
    first.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await first
    outcome = await run(spark, write, slow)
    await spark.publish(write, 7, outcome.attempt, UNDONE)
    assert [name for name in below(out) if "staging" in name] == []
    assert len(published(out)) == 1
