"""Where results in files stand: names of attempts, files and entries, what `.write` accepts, and that merging loses no entry."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.batching import publishing
from headgate.core.batching.publishing import (
    File,
    ManifestEntry,
    SeriesPaths,
    SparkWrite,
    covering,
    declared_write,
    entries,
    forebears,
    held,
    merged,
    series_name,
    to_merge,
    whole,
)
from headgate.core.errors import DataError, DeclarationError

AT = SeriesPaths("file:///out", "s")


def entry(number: int, **changes: Any) -> ManifestEntry:
    """An entry of one file."""
    known: dict[str, Any] = {"files": (File(f"c=DE/part-{number}.parquet", 9),), **changes}
    return ManifestEntry(
        "sales/1", "daily", "Partition 3", f"Partition 3/lot/{number}", number, "a1", 10, "rows", **known
    )


def test_the_forebears_of_a_series() -> None:
    """The same task and stage, before the bookkeeping began anew; the clock of a series is the end of its name."""
    series = [series_name("j/1", "w", task, begun) for task in ("P", "Q") for begun in (5, 300, 70)]
    assert forebears(series, series_name("j/1", "w", "P", 300)) == [series[0], series[2]]
    assert forebears([*series, "x", "-", "s-zz"], series_name("j/1", "v", "P", 300)) == []
    assert forebears(["-1"], "s") == []


def test_an_entry_has_its_bytes() -> None:
    """Other programs read the manifest: its lines stay as they are."""
    line = entry(7, window_start=0, window_end=60_000).line()
    assert line == (
        '{"v":1,"job":"sales/1","stage":"daily","task":"Partition 3","batch":"Partition 3/lot/7","number":7,"attempt":"a1",'
        '"batch_rows":10,"closed_by":"rows","window_start":0,"window_end":60000,"files":[{"path":"c=DE/part-7.parquet","bytes":9}]}'
    )
    assert entries(f"{line}\n") == [entry(7, window_start=0, window_end=60_000)]


def test_what_a_later_version_adds_is_ignored_and_a_later_format_is_refused() -> None:
    """A new field changes nothing for older readers; a new format says that a newer headgate is needed."""
    line = entry(7).line()
    assert ManifestEntry.read(line.replace('"v":1,', '"v":1,"new":true,')) == entry(7)
    with pytest.raises(DataError, match=r"has format 2; this headgate reads up to 1.*newer headgate"):
        ManifestEntry.read(line.replace('"v":1,', '"v":2,'))


@pytest.mark.parametrize("line", ["", "[]", "{}", '{"v":"x"}', '{"v":1}', "half a li", '{"v":1,"files":3}'])
def test_a_line_that_is_no_entry_is_a_data_error(line: str) -> None:
    """Whatever lies in the directory: the reader hears which line it was."""
    with pytest.raises(DataError, match="not an entry"):
        ManifestEntry.read(line)


def test_in_the_manifest_it_does_not_matter_where_an_attempt_had_its_files() -> None:
    """The plan of an attempt names sources; the entry does not, so that it is the same bytes whoever publishes."""
    plan = entry(7, files=(File("a", 1, "b"),))
    assert plan.published().files == (File("a", 1),)
    assert ManifestEntry.read(plan.line()) == plan


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


def test_only_files_of_entries_are_entries() -> None:
    """A draft that a crash has left is none; and a batch is looked for only where it can be."""
    names = [".5f.tmp", "0-000000000007-000000000007.json", "1-000000000001-000000000006-ab01.json", "x"]
    assert held(names) == names[1:3]
    assert [covering(names, number) for number in (6, 7, 8)] == [[names[2]], [names[1]], []]


@given(st.lists(st.integers(1, 60), min_size=1, unique=True), st.integers(2, 5))
def test_merging_loses_no_entry(numbers: list[int], most: int) -> None:
    """However batches end, and however often files are merged: each entry is read once, and few files of a level are left."""
    before, publishing.MERGE = publishing.MERGE, most
    try:
        files: dict[str, str] = {}
        for number in numbers:
            files[AT.entry(number).rpartition("/")[2]] = f"{entry(number).line()}\n"
            if names := to_merge(files):
                name, text = merged({one: files[one] for one in names})
                assert name not in files
                files[name] = text
                files = {one: kept for one, kept in files.items() if one not in names}
            assert all(
                any(number in (one.number for one in entries(files[name])) for name in covering(files, number))
                for number in numbers[: numbers.index(number) + 1]
            )
        lowest = [name for name in files if name.startswith("0-")]
        assert (whole({"s": files.values()}), len(lowest) < most) == (
            [entry(number) for number in sorted(numbers)],
            True,
        )
    finally:
        publishing.MERGE = before


def test_a_merge_of_other_files_has_another_name() -> None:
    """A stalled process that merges fewer files between the same numbers does not overwrite the file that has more."""
    lines = {number: f"{entry(number).line()}\n" for number in (1, 2, 3)}
    every, _ = merged({f"0-{n:012d}-{n:012d}.json": lines[n] for n in (1, 2, 3)})
    fewer, _ = merged({f"0-{n:012d}-{n:012d}.json": lines[n] for n in (1, 3)})
    assert every[:27] == fewer[:27]
    assert every != fewer
