"""Where results in files stand: names of attempts, files and entries, and what `.write` accepts."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest

from headgate.core.batching.publishing import SeriesPaths, SparkWrite, declared_write, forebears, series_name
from headgate.core.errors import DeclarationError

AT = SeriesPaths("file:///out", "s")


def test_the_forebears_of_a_series() -> None:
    """The same task and stage, before the bookkeeping began anew; the clock of a series is the end of its name."""
    series = [series_name("j/1", "w", task, begun) for task in ("P", "Q") for begun in (5, 300, 70)]
    assert forebears(series, series_name("j/1", "w", "P", 300)) == [series[0], series[2]]
    assert forebears([*series, "x", "-", "s-zz"], series_name("j/1", "v", "P", 300)) == []
    assert forebears(["-1"], "s") == []


def test_names_of_a_batch_are_made_of_its_series_and_number() -> None:
    """An attempt has a directory of its own; files of its partitions get a name in the same partition; Spark's own marks are left out."""
    found = [
        ("c=FR/part-00000-5f1.c000.snappy.parquet", 2),
        ("c=DE/part-00001-5f1-c000.snappy.parquet", 1),
        ("c=DE/.part-00001-5f1-c000.snappy.parquet.crc", 1),
        ("_SUCCESS", 0),
        ("_temporary/0/part-00009-5f1-c000.parquet", 5),
        ("_odd=1/part-00002-5f1-c000", 3),
        ("x=1/plain.json", 4),
    ]
    assert AT.attempt(7, "a1") == "file:///out/_headgate/staging/s/000000000007/a1"
    assert AT.entry(7) == "file:///out/_headgate/manifest/s/0-000000000007-000000000007.json"
    assert [(file.path, file.bytes) for file in AT.files(7, found)] == [
        ("_odd=1/part-00000-s-000000000007", 3),
        ("c=DE/part-00001-s-000000000007.snappy.parquet", 1),
        ("c=FR/part-00002-s-000000000007.snappy.parquet", 2),
        ("x=1/part-00003-s-000000000007.json", 4),
    ]


def test_series_differ_by_job_stage_task_and_beginning() -> None:
    """Also where the readable parts are equal; and a name is never too long for a file."""
    names = {
        series_name("sales/1", "daily", "Partition 3", 5),
        series_name("sales-1", "daily", "Partition 3", 5),
        series_name("sales/1", "daily", "Partition-3", 5),
        series_name("sales/1", "daily", "Partition 3", 6),
        series_name("sales/1", "x" * 200, "Partition 3", 5),
        series_name("sales/1", "x" * 201, "Partition 3", 5),
    }
    assert len(names) == 6
    assert max(map(len, names)) < 170


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/data/out", "file:///data/out"),
        (PurePosixPath("/data/out/"), "file:///data/out"),
        ("file:/data/out", "file:///data/out"),
        ("file:///data/out//", "file:///data/out"),
        ("s3a://bucket/out", "s3a://bucket/out"),
        ("hdfs:///out", "hdfs:///out"),
    ],
)
def test_a_target_is_an_absolute_path_or_a_uri(target: Any, path: str) -> None:
    """A path without a scheme is local, whatever Hadoop's default file system is."""
    assert declared_write(target, None, (), None) == SparkWrite(path)


def test_arguments_of_write() -> None:
    """One column may be given as a text; options are texts as Spark wants them; a function takes no further arguments."""
    options = {"compression": "zstd", "maxRecordsPerFile": 10, "x": True}
    assert declared_write("/out", "json", "day", options) == SparkWrite(
        "file:///out", "json", ("day",), (("compression", "zstd"), ("maxRecordsPerFile", "10"), ("x", "true"))
    )
    assert declared_write(print, None, (), None).save is print
    assert declared_write("/out", None, ["a", "b"], None).partition_by == ("a", "b")
    assert [declared_write("/out", one, (), None).in_order for one in ("parquet", "delta")] == [False, True]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("out", None, (), None), r"to_files\('out'\): .*to_files\(\"/data"),
        (
            ("/out", None, "coutnry", None, ("country", "n")),
            r"to_files\(partition_by='coutnry'\): the rows have no column .* they have",
        ),
        (("/out", None, ["a", "b"], None, ("a", "b")), "all columns of the rows"),
        (("/out", "csv", (), None), r"to_files\(format='csv'\)"),
    ],
)
def test_messages_name_the_verb_of_the_user(arguments: Any, words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        declared_write(*arguments, verb="to_files")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("out", None, (), None), "neither an absolute path nor a URI"),
        (("C:out", None, (), None), "neither an absolute path nor a URI"),
        ((7, None, (), None), "neither an absolute path nor a URI"),
        (("", None, (), None), "neither an absolute path nor a URI"),
        (("/", None, (), None), "without a directory"),
        (("s3a://", None, (), None), "without a directory"),
        (("/out/_headgate/staging", None, (), None), "belongs to headgate"),
        (("/out", "csv", (), None), "one of parquet, orc, json, delta"),
        (("/out", None, ["a", "a"], None), "partition_by"),
        (("/out", None, [1], None), "partition_by"),
        (("/out", None, [""], None), "partition_by"),
        (("/out", None, 7, None), "partition_by"),
        (("/out", None, {"a"}, None), "partition_by"),
        (("/out", None, "coutnry", None, ("country", "n")), "no column 'coutnry'.* did you mean 'country'"),
        (("/out", None, ["country", "n"], None, ("country", "n")), "all columns of the result"),
        (("/out", None, (), {"txnVersion": 3}), "headgate sets it itself"),
        (("/out", None, (), {"compression": None}), "options"),
        (("/out", None, (), {1: 2, "a": 3}), "options"),
        (("/out", None, (), "zstd"), "options"),
        ((print, "parquet", (), None), "the function itself"),
    ],
)
def test_wrong_arguments_of_write_are_refused(arguments: Any, words: str) -> None:
    """When the job is declared, with the remedy."""
    with pytest.raises(DeclarationError, match=words):
        declared_write(*arguments)
