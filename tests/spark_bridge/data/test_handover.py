"""Tables on their way into the JVM: the same DataFrame as PySpark makes, with fewer calls."""

from __future__ import annotations

import datetime as dt
import os
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headgate.spark_bridge.data.handover import frame_of_table
from headgate.spark_bridge.process.jvm import Sessions

from ...spark_in_process import sent_to_jvm

pytestmark = pytest.mark.spark

AT = dt.datetime(2026, 3, 29, 1, 30, 0, 123_456)
TABLE = pa.table({
    "n": pa.array([1, None, -3]),
    "small": pa.array([1, 2, 3], pa.int16()),
    "word": ["a", "ü", None],
    "large": pa.array(["x", "y", "z"], pa.large_string()),
    "raw": pa.array([b"\x00", None, b"\xff"]),
    "yes": [True, None, False],
    "much": [1.5, None, float("inf")],
    "exact": [Decimal("1.10"), None, Decimal("-2.25")],
    "day": [AT.date(), None, dt.date(1969, 1, 1)],
    "local": pa.array([AT, None, AT], pa.timestamp("ns")),
    "utc": pa.array([AT, None, AT], pa.timestamp("ms", "UTC")),
    "there": pa.array([AT, None, AT], pa.timestamp("us", "America/New_York")),
    "many": [[1, 2], None, []],
    "pair": [{"a": 1, "at": AT}, None, {"a": None, "at": None}],
}).append_column(pa.field("there_always", pa.int64(), nullable=False), pa.array([1, 2, 3]))  # fmt: skip


@pytest.mark.parametrize(
    "setting", [("spark.sql.timestampType", "TIMESTAMP_NTZ"), ("spark.sql.session.timeZone", "CET")]
)
def test_a_frame_is_the_one_that_pyspark_makes(warm: Sessions, setting: tuple[str, str]) -> None:
    """The types, the rows, and their order; also of no rows, of several record batches, and where the session has other settings."""
    other = warm.get().newSession()
    other.conf.set(*setting)
    other.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "2")
    for session in (warm.get(), other):
        for table in (TABLE, TABLE.slice(0, 0), pa.concat_tables([TABLE, TABLE])):
            mine, theirs = frame_of_table(session, table), session.createDataFrame(table)
            assert (mine.schema, mine.sparkSession) == (theirs.schema, session)
            assert mine.collect() == theirs.collect()
            assert mine.rdd.getNumPartitions() == theirs.rdd.getNumPartitions()
    warm.get().createDataFrame(pa.table({"n": [1]}))  # it is the active session of this thread again


def test_a_table_needs_three_calls(warm: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions, the settings and the types are asked once. No file stays."""
    session = warm.get()
    frame_of_table(session, TABLE)
    here = session.sparkContext._temp_dir
    before = set(os.listdir(here))
    calls = sent_to_jvm(monkeypatch)
    mine = frame_of_table(session, TABLE)
    found = len(calls)
    assert mine.count() == 3
    assert (found, set(os.listdir(here)) - before) == (3, set())


def test_what_spark_does_not_take_is_refused_as_ever(warm: Sessions) -> None:
    """A table without columns, and a column of a type that Spark does not have."""
    session = warm.get()
    assert frame_of_table(session, pa.table({})).columns == []
    for make in (frame_of_table, type(session).createDataFrame):
        with pytest.raises(Exception, match="UNSUPPORTED_DATA_TYPE_FOR_ARROW_CONVERSION"):
            make(session, pa.table({"at": pa.array([dt.timedelta(days=1)], pa.month_day_nano_interval())}))


def test_names_of_the_jvm_are_asked_for_once(warm: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes and their functions are; what is not there is asked for whenever it is used."""
    from py4j.protocol import Py4JError
    from pyspark.sql import functions as F

    jvm: Any = warm.get()._jvm
    assert (str(F.col("n")), jvm.java.lang.Math.max(1, 2)) == ("Column<'n'>", 2)
    calls = sent_to_jvm(monkeypatch)
    F.col("n")
    assert len(calls) == 1
    for _ in range(2):
        with pytest.raises(Py4JError, match="does not exist in the JVM"):
            _ = jvm.PythonSQLUtils.nothing
    assert len([one for one in calls if "nothing" in one]) == 2
    assert jvm.java.util.ArrayList([1, 2]).size() == 2
    assert jvm.java.lang.Integer.MAX_VALUE == 2**31 - 1
