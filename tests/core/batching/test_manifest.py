"""The manifest of files: its bytes, that merging loses no entry and makes few bytes of them, and what a reader's filter gives."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.batching import manifest
from headgate.core.batching.batches import ROWS, BatchInfo, manifest_entry
from headgate.core.batching.manifest import (
    File,
    FilesWanted,
    ManifestEntry,
    covering,
    entries,
    held,
    merged,
    packed,
    to_merge,
    whole,
)
from headgate.core.batching.publishing import SeriesPaths, declared_write
from headgate.core.errors import DataError

AT = SeriesPaths("file:///out", "s")
COLUMNS = (
    "eNpFj90KwyAMhd/F61xoO+q6VxlDtLpNsDo0pZSxd1/sD81V8p2cQ/JlcRqNy+x2lyAewGYfbZpVQZ2RYJxCAH5yF+1BO05FitM5eFdQjaWmEASxKU"
    "Hjyfu+P7hGdOOnxjO+lWRwtFdGG0bj8FY5zdUqaiDBIaTirDILMb4e9fTB1Y0GGpqsz27AlHcdxPoQXezja0ebzSy42roWugvIBmT7+P0BtspOlA=="
)


def entry(number: int, **changes: Any) -> ManifestEntry:
    """An entry of one file."""
    known: dict[str, Any] = {"attempt": "a1", "files": (File(f"c=DE/part-{number}.parquet", 9),), **changes}
    return ManifestEntry(
        "sales/1", "daily", "Partition 3", f"Partition 3/lot/{number}", number, batch_rows=10, closed_by="rows", **known
    )


def real(number: int, *directories: str, **more: Any) -> ManifestEntry:
    """An entry as this version writes it: two files in each directory."""
    found = [(f"{one}/part-{at:05d}-x-c000.snappy.parquet", 9 * number + at) for one in directories for at in (0, 1)]
    files = tuple(File(one.path, one.bytes) for one in AT.files(number, found))
    more = {"earliest_ms": number * 1000, "latest_ms": number * 1000 + 999} | more
    return entry(number, attempt=f"{number:08x}", files=files, **more)


def test_an_entry_names_the_batch_its_window_and_its_times() -> None:
    batch = BatchInfo("Partition 0", "daily", 7, 1000, ROWS, 1, 0, 60_000, 5, 700)
    made = manifest_entry(declared_write("/lake/orders", "parquet", (), None), batch, "daily-write", "5f")
    assert (made.batch, made.stage, made.number, made.attempt) == ("Partition 0/daily/7", "daily-write", 7, "5f")
    assert (made.task, made.batch_rows, made.closed_by) == ("Partition 0", 1000, ROWS)
    assert (made.window_start, made.window_end, made.earliest_ms, made.latest_ms) == (0, 60_000, 5, 700)


def test_of_offsets_no_times_are_known() -> None:
    """They were taken for 1970, so that a reader of today's files did not get them."""
    made = manifest_entry(declared_write("/o", None, (), None), BatchInfo("P", "d", 7, 1000, ROWS, 1), "w", "5f")
    assert (made.earliest_ms, made.latest_ms) == (None, None)


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
    with pytest.raises(DataError, match=r"has format 3; this headgate reads up to 2.*newer headgate"):
        ManifestEntry.read(line.replace('"v":1,', '"v":3,'))


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


def test_only_files_of_entries_are_entries() -> None:
    """A draft that a crash has left is none; and a batch is looked for only where it can be."""
    names = [".5f.tmp", "0-000000000007-000000000007.json", "1-000000000001-000000000006-ab01.json", "x"]
    assert held(names) == names[1:3]
    assert [covering(names, number) for number in (6, 7, 8)] == [[names[2]], [names[1]], []]


@given(st.lists(st.integers(1, 60), min_size=1, unique=True), st.integers(2, 5))
def test_merging_loses_no_entry(numbers: list[int], most: int) -> None:
    """However batches end, and however often files are merged: each entry is read once, and few files of a level are left."""
    before, manifest.MERGE = manifest.MERGE, most
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
        manifest.MERGE = before


def test_a_merge_of_other_files_has_another_name() -> None:
    """A stalled process that merges fewer files between the same numbers does not overwrite the file that has more."""
    lines = {number: f"{entry(number).line()}\n" for number in (1, 2, 3)}
    every, _ = merged({f"0-{n:012d}-{n:012d}.json": lines[n] for n in (1, 2, 3)})
    fewer, _ = merged({f"0-{n:012d}-{n:012d}.json": lines[n] for n in (1, 3)})
    assert every[:27] == fewer[:27]
    assert every != fewer


# --------------------------------------------------------------------------------------------------------------- many entries


def test_merged_entries_have_their_bytes() -> None:
    """They decode for ever. A headgate that knows only the first format says that a newer one is needed: `v` is 2."""
    line = (
        '{"v":2,"job":"sales/1","stage":"daily","task":"Partition 3","batch":"Partition 3/lot","series":"s","batches":2,'
        '"earliest_ms":7000,"latest_ms":8999,"directories":["c=DE","c=FR"],"endings":[".snappy.parquet"],"closed_by":["rows"],"columns":"'
    )
    text = packed([real(7, "c=DE"), real(8, "c=FR", window_start=0, window_end=60_000)])
    assert text.startswith(line)
    assert text.count("\n") == 1
    assert entries(line + COLUMNS + '"}') == [real(7, "c=DE"), real(8, "c=FR", window_start=0, window_end=60_000)]


def test_a_block_that_is_broken_is_a_data_error() -> None:
    [line] = packed([real(7, "c=DE")]).splitlines()
    body = json.loads(line)
    for change in ({"columns": "AAAA"}, {"columns": "§"}, {"batches": 3}, {"endings": []}, {"directories": 5}):
        with pytest.raises(DataError, match="not an entry"):
            entries(json.dumps(body | change))


DIRECTORIES = st.lists(st.sampled_from(["c=DE", "c=FR/day=2026-01-31", "c=ä%2Fb"]), max_size=3, unique=True)


@given(
    st.dictionaries(st.integers(0, 2_000_000), st.tuples(DIRECTORIES, st.booleans(), st.booleans()), max_size=8),
    st.booleans(),
)
def test_merged_entries_are_what_they_were(kinds: dict[int, tuple[list[str], bool, bool]], timed: bool) -> None:
    """With and without windows, times and files; and what this version would have called otherwise stays as it is."""
    every = [
        entry(number)
        if odd
        else real(
            number,
            *directories,
            window_start=number - 5 if windowed else None,
            window_end=number + 5 if windowed else None,
            **({} if timed or number % 2 else {"earliest_ms": None, "latest_ms": None}),
        )
        for number, (directories, windowed, odd) in sorted(kinds.items())
    ]
    assert whole({"s": [packed(every)]} if every else {}) == every


def test_ten_thousand_batches_are_a_few_bytes_each() -> None:
    """Of an entry of 700 bytes: what a reader needs, and the beginning of the attempt."""
    every = [real(number, "day=2026-01-31/country=DE") for number in range(10_000)]
    assert len(packed(every)) < 25 * len(every)


# --------------------------------------------------------------------------------------------------------------------- filters


@pytest.mark.parametrize("text", ["lines", "block"])
def test_a_filter_gives_batches_by_time_and_files_by_partition(text: str) -> None:
    """The same of entries that are merged, and of those that are not. A batch without times may have any."""
    every = [real(n, "c=DE", "c=FR") for n in range(4)] + [real(4, "c=DE", earliest_ms=None, latest_ms=None)]
    held = "".join(f"{one.line()}\n" for one in every) if text == "lines" else packed(every)

    def given(**wanted: Any) -> list[tuple[int, int]]:
        return [(one.number, len(one.files)) for one in entries(held, FilesWanted(**wanted))]

    assert given() == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 2)]
    assert given(since_ms=1999, until_ms=3000) == [(1, 4), (2, 4), (4, 2)]
    assert given(since_ms=10_000) == [(4, 2)]
    assert given(where={"c": {"FR"}.__contains__}) == [(0, 2), (1, 2), (2, 2), (3, 2)]
    assert given(where={"c": {"FR"}.__contains__}, until_ms=1000) == [(0, 2)]
    assert given(where={"c": {"IT"}.__contains__}) == []
    with pytest.raises(DataError, match="not partitioned by 'd', but by c"):
        given(where={"d": bool})


def test_a_block_that_is_out_of_time_is_not_unpacked() -> None:
    body = json.loads(packed([real(7, "c=DE")])) | {"columns": "broken"}
    assert entries(json.dumps(body), FilesWanted(since_ms=8000)) == []
    assert entries(json.dumps(body), FilesWanted(where={"c": {"FR"}.__contains__})) == []


def test_a_null_and_an_escaped_value_are_told_apart() -> None:
    wanted = FilesWanted(where={"c": {None, "a/b"}.__contains__})
    names = ("c=__HIVE_DEFAULT_PARTITION__", "x=1/c=a%2Fb", "c=None", "c=a%252Fb")
    assert [wanted.in_directory(one) for one in names] == [True, True, False, False]
