"""Rows that go to Spark in files, and results that come back in files: the same as those that go and come in memory."""

from __future__ import annotations

import asyncio
import datetime
import gc
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.core.batching.batches import BatchInfo, Inline, SparkStage
from headgate.spark_bridge.base.errors import SparkPlanError
from headgate.spark_bridge.data import columns, spool_reader
from headgate.spark_bridge.data.results import ResultTaker
from headgate.spark_bridge.data.spool import Spool
from headgate.spark_bridge.data.tables import BatchMemory, Carrier, FilePart, Spooled
from headgate.spark_bridge.process.jvm import Sessions
from headgate.spark_bridge.session.session import Spark

BATCH = BatchInfo("Partition 0", "s", 1, 0, "rows")
TABLES = [
    pa.table({"n": range(start, start + 3_000), "word": [f"w{n}" for n in range(start, start + 3_000)]})
    for start in range(0, 12_000, 3_000)
]


def contents(tables: list[pa.Table]) -> Inline:
    """A batch of blocks."""
    blocks = [columns.encode([table]) for table in tables]
    return Inline(blocks, sum(map(len, blocks)))


def files(path: Path) -> list[Path]:
    """What is left in a spool, besides the directory of this process."""
    return [one for one in path.rglob("*") if one.is_file() and one.suffix != ".lock"]


async def spooled(path: Path, given: Inline) -> tuple[Spooled, Any]:
    """A batch in files, and what closes it."""
    rows = Carrier(0, Spool(path)).rows(given)
    found = await rows.__aenter__()
    assert isinstance(found, Spooled)
    return found, rows


@pytest.mark.asyncio
async def test_rows_in_files_are_cut_as_a_table_is(tmp_path: Path) -> None:
    """Slices and filters give the same rows, also across files and record batches; the files are gone when the batch has run."""
    found, rows = await spooled(tmp_path, contents(TABLES))
    whole = pa.concat_tables(TABLES)
    mask = pa.array([n % 4_999 != 7 for n in range(12_000)])
    assert found.num_rows == 12_000
    for made, wanted in (
        (found, whole),
        (found.slice(2_999, 3_002), whole.slice(2_999, 3_002)),
        (found.slice(11_999), whole.slice(11_999)),
        (found.filter(mask), whole.filter(mask)),
        (found.slice(5_000, 10).slice(3, 2), whole.slice(5_003, 2)),
    ):
        assert made.to_pylist() == wanted.to_pylist()
    assert files(tmp_path)
    await rows.__aexit__(None, None, None)
    assert not files(tmp_path)


@pytest.mark.asyncio
async def test_memory_is_taken_while_a_batch_is_at_spark(tmp_path: Path) -> None:
    """What fits is a table; what does not is in files; what was taken is given back."""
    given = contents(TABLES)
    carrier = Carrier(3 * given.size, Spool(tmp_path))
    async with carrier.rows(given) as first, carrier.rows(given) as second:
        assert (type(first), type(second)) == (pa.Table, Spooled)
        assert first.to_pylist() == second.to_pylist()
    assert carrier.memory.used == 0
    with pytest.raises(
        SparkPlanError, match=r"set spark.spool to a directory that this worker and all executors share"
    ):
        await Carrier(0, Spool(tmp_path), shared=False).rows(given).__aenter__()


def test_a_result_is_the_same_in_memory_and_in_a_file(tmp_path: Path) -> None:
    """In the order that Spark says at the end, cut into blocks; memory and files are given back with the blocks."""
    batches = [table.to_batches()[0] for table in TABLES]
    for limit in (1 << 30, 100_000, 0):
        memory = BatchMemory(limit)
        taker = ResultTaker(memory, Spool(tmp_path))
        for at in (2, 0, 3, 1):
            taker.add(batches[at])
        blocks = taker.done([1, 3, 0, 2])
        found = [row for block in blocks for row in columns.decode(block).to_pylist()]
        assert found == pa.concat_tables(TABLES).to_pylist()
        assert (blocks.rows, bool(files(tmp_path)), memory.used > 0) == (12_000, limit < 1 << 30, limit == 1 << 30)
        assert blocks[1:2] == [blocks[1]]
        assert blocks.largest >= max(table.nbytes for table in TABLES) * 0.9
        del blocks, taker
        gc.collect()
        assert (files(tmp_path), memory.used) == ([], 0)


def test_a_result_that_fails_on_the_way_leaves_nothing(tmp_path: Path) -> None:
    """Half of it is in a file."""
    memory = BatchMemory(60_000)
    taker = ResultTaker(memory, Spool(tmp_path))
    for table in TABLES[:2]:
        taker.add(table.to_batches()[0])
    taker.drop()
    assert (files(tmp_path), memory.used) == ([], 0)


def test_what_a_killed_process_has_left_is_removed(tmp_path: Path) -> None:
    """By the next one that uses the spool; the files of one that lives stay."""
    program = (
        "import sys, time; from headgate.spark_bridge.data.spool import Spool\n"
        "path = Spool(sys.argv[1]).directory(); (path / 'rows.arrow').write_text('x'); print(path, flush=True); time.sleep(600)"
    )
    mine = Spool(tmp_path)
    kept = mine.directory() / "rows.arrow"
    kept.write_text("x")
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        left = Path(other.stdout.readline().strip())
        Spool(tmp_path).directory()
        assert (left / "rows.arrow").exists()
        os.kill(other.pid, signal.SIGKILL)
    Spool(tmp_path).directory()
    assert not left.exists()
    assert kept.exists()
    mine.close()
    assert not kept.exists()


def test_a_spool_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    """With the setting to change."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SparkPlanError, match=r"spark.spool: .* cannot be written"):
        Spool(tmp_path / "file").directory()


def test_a_file_that_is_cut_off_is_an_error(tmp_path: Path) -> None:
    """Never a smaller batch."""
    path = str(tmp_path / "rows.arrow")
    with pa.ipc.new_file(path, TABLES[0].schema) as writer:
        writer.write_table(TABLES[0])
    with pytest.raises(OSError, match="2 rows are missing"):
        list(spool_reader.batches_of(path, 0, 3_002))
    with pytest.raises(FileNotFoundError):
        list(spool_reader.batches_of(path + "x", 0, 1))


# ------------------------------------------------------------------------------------------------------------ with Spark


def totals(df: Any, batch: Any) -> Any:
    """Something of each column."""
    return df


@pytest.mark.spark
@pytest.mark.asyncio
async def test_spark_gets_and_gives_the_same_rows_either_way(warm: Sessions, tmp_path: Path) -> None:
    """Fields that only some blocks have, times with and without zones, and a result that is larger than the memory."""
    rows = [
        [{"n": n, "at": datetime.datetime(2026, 1, 1, 5, n % 60), "half": n / 2} for n in range(400)],
        [{"n": n, "day": datetime.date(2026, 1, 2), "tags": ["a", "b"]} for n in range(400, 900)],
        [{"n": n, "at": datetime.datetime(2026, 1, 1, 5, n % 60, tzinfo=datetime.UTC)} for n in range(900, 950)][:0]
        or [{"n": n} for n in range(900, 950)],
    ]
    given = contents([pa.Table.from_pylist(some) for some in rows])
    schema = "n long, at timestamp, half double, day date, tags array<string>"
    stage = SparkStage("same", totals, schema)
    found: list[list[dict[str, Any]]] = []
    for memory in (1 << 30, 0):
        spark = Spark(session=await asyncio.to_thread(warm.get), carrier=Carrier(memory, Spool(tmp_path)))
        (outcome,) = await spark.run(BATCH, given, [stage])
        found.append([row for block in outcome.blocks for row in columns.decode(block).to_pylist()])
        assert outcome.rows == 950
        del outcome
        await spark.close()
    assert found[0] == found[1]
    assert [row["n"] for row in found[0]] == list(range(950))
    assert found[0][7]["at"] == datetime.datetime(2026, 1, 1, 5, 7, tzinfo=datetime.UTC)
    assert not files(tmp_path)


@pytest.mark.spark
@pytest.mark.asyncio
async def test_poison_in_a_spooled_batch_is_found(warm: Sessions, tmp_path: Path) -> None:
    """The others go through; the row that is left out is known with its place."""

    def strict(df: Any, batch: Any) -> Any:
        from pyspark.sql import functions as F

        return df.select(F.col("n").cast("long").alias("n"))

    table = pa.table({"n": [str(n) if n != 777 else "x" for n in range(1_000)]})
    spark = Spark(session=await asyncio.to_thread(warm.get), carrier=Carrier(0, Spool(tmp_path)))
    (outcome,) = await spark.run(BATCH, contents([table]), [SparkStage("strict", strict, "n long", keeps_going=True)])
    assert [(place, row) for place, row, _ in outcome.bad] == [(777, {"n": "x"})]
    assert outcome.rows == 999
    await spark.close()


@pytest.mark.spark
@pytest.mark.asyncio
async def test_a_spool_that_executors_do_not_reach_is_said(warm: Sessions, tmp_path: Path) -> None:
    """It is no fault of the rows, and not searched for among them."""
    carrier = Carrier(0, Spool(tmp_path))
    spark = Spark(session=await asyncio.to_thread(warm.get), carrier=carrier)
    gone = Spooled((FilePart(str(tmp_path / "nowhere.arrow"), 0, 5),), TABLES[0].schema)
    with pytest.raises(SparkPlanError, match=r"spark.spool .*nowhere.arrow"):
        await asyncio.wait_for(spark.apply(totals, gone, BATCH, "n long"), 120)
    await spark.close()
