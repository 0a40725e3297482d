"""Publishing what Spark has written: once in effect, whoever crashes or stalls between any two steps, and whole batches only."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.batching import manifest as entries_of_manifest
from headgate.core.batching.manifest import ManifestEntry
from headgate.core.batching.publishing import SparkWrite, Undone
from headgate.core.errors import DataError, DeclarationError, EnvironmentFault, NotFound
from headgate.spark_bridge.data import files as files_module
from headgate.spark_bridge.data import publish as publish_module
from headgate.spark_bridge.data.files import ArrowFiles, Files, LocalFiles, files_of
from headgate.spark_bridge.data.publish import Publisher, Unpublished, manifest, published

from .owners import BATCHES, FEW, TARGET, SteppedFiles, Task

ALONE = Undone(9, frozenset({7, 8}))


@settings(max_examples=150, deadline=None)
@given(st.data(), st.permutations(range(1, BATCHES + 1)), st.booleans())
def test_each_batch_is_there_exactly_once_whoever_crashes_or_stalls(
    data: st.DataObject, order: list[int], copies: bool
) -> None:
    """Owners are killed or fenced between any two steps, and fenced ones go on, also long after their successor has ended: every batch
    is in the manifest and in the files once, and an entry never names a file that is not there."""
    before, entries_of_manifest.MERGE = entries_of_manifest.MERGE, FEW
    task = Task(order, copies)
    try:
        task.begin()
        for _ in range(data.draw(st.integers(0, 12))):
            match data.draw(st.sampled_from(["steps", "steps", "crash", "fence"])):
                case "steps":
                    life = data.draw(st.sampled_from(task.is_alive))
                    for _ in range(data.draw(st.integers(1, 60))):
                        life.step()
                        task.check()
                case "crash":
                    task.is_alive[-1].crash()
                    task.begin()
                case _:
                    task.begin()
        last = task.begin()
        while not last.over:
            last.step()
        task.check()
        for life in task.is_alive:  # those that were fenced go on to their end
            while not life.over:
                life.step()
                task.check()
        assert [life.error for life in task.is_alive] == [None] * len(task.is_alive)
        task.upto += 1  # one more batch sweeps what the late ones have written
        last = task.begin()
        while not last.over:
            last.step()
        assert last.error is None
        task.check()
        wanted = [f"{number} {task.named[number]} {part}" for number in range(1, task.upto + 1) for part in range(2)]
        assert ([entry.number for entry in task.entries()], task.present()) == (
            list(range(1, task.upto + 1)),
            sorted(wanted),
        )
        assert not [path for path in task.held if "/staging/" in path]
    finally:
        entries_of_manifest.MERGE = before
        for life in task.is_alive:
            life.crash()


# ------------------------------------------------------------------------------------------------------------ real file systems


def written(
    files: Files, target: str, number: int, attempt: str = "a1", series: str = "s", times: tuple[int, int] | None = None
) -> Publisher:
    """A sealed attempt of two files in partitions, with what Spark leaves beside them."""
    publisher = Publisher(files, SparkWrite(target, series=series))
    where = publisher.layout.attempt(number, attempt)
    for name in ("c=a%2Fb/part-00000-x-c000.json", "c=DE/part-00001-x-c000.json"):
        files.put(f"{where}/{name}", f"{number} {name}\n")
    files.put(f"{where}/_SUCCESS", "")
    known = {} if times is None else {"earliest_ms": times[0], "latest_ms": times[1]}
    publisher.seal(ManifestEntry("j/1", "w", "P", f"P/w/{number}", number, attempt, 2, "rows", **known))
    return publisher


@pytest.fixture(params=["local", "arrow"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    """A file system, and a target on it."""
    target = f"file://{tmp_path}/out dir"
    return (LocalFiles() if request.param == "local" else ArrowFiles(target)), target


def below(path: Path) -> dict[str, str]:
    """The files below a directory."""
    return {one.relative_to(path).as_posix(): one.read_text() for one in sorted(path.rglob("*")) if one.is_file()}


def test_an_attempt_is_published_and_may_be_published_again(files: tuple[Files, str], tmp_path: Path) -> None:
    """Its files get names of the batch in their partitions, its directory goes, and a repetition changes nothing."""
    publisher = written(*files, 7)
    written(*files, 7, "a0")  # the attempt of a process that was killed
    publisher.publish(7, "a1", ALONE)
    wanted = {
        "_headgate/manifest/s/0-000000000007-000000000007.json": '{"v":1,"job":"j/1","stage":"w","task":"P","batch":"P/w/7","number":7,'
        '"attempt":"a1","batch_rows":2,"closed_by":"rows","window_start":null,"window_end":null,"files":['
        '{"path":"c=DE/part-00000-s-000000000007.json","bytes":30},{"path":"c=a%2Fb/part-00001-s-000000000007.json","bytes":33}]}\n',
        "c=DE/part-00000-s-000000000007.json": "7 c=DE/part-00001-x-c000.json\n",
        "c=a%2Fb/part-00001-s-000000000007.json": "7 c=a%2Fb/part-00000-x-c000.json\n",
    }
    assert below(tmp_path / "out dir") == wanted
    publisher.publish(7, "a1", ALONE)
    assert below(tmp_path / "out dir") == wanted


def test_the_manifest_names_a_file_only_when_its_directory_survives_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a new partition stands in the directory above it, which was not synced. Whoever made it: its publisher may be dead."""
    synced: list[str] = []
    sync = files_module._sync

    def noted(path: Path) -> None:
        synced.append(path.relative_to(tmp_path).as_posix())
        sync(path)

    monkeypatch.setattr(files_module, "_sync", noted)
    (tmp_path / "out" / "c=DE").mkdir(parents=True)
    written(LocalFiles(), f"file://{tmp_path}/out", 1).publish(1, "a1", ALONE)
    entry = len(synced) - 1 - synced[::-1].index("out/_headgate/manifest/s")
    assert {".", "out", "out/c=DE", "out/c=a%2Fb"} <= set(synced[:entry])


def test_drafts_of_killed_publishers_go_with_the_next_batch(files: tuple[Files, str], tmp_path: Path) -> None:
    """They stayed beside the manifest for ever. What is no draft stays."""
    where = tmp_path / "out dir" / "_headgate" / "manifest" / "s"
    where.mkdir(parents=True)
    for name in (f".{'0f' * 16}.tmp", f"..{'0f' * 16}.tmp.crc", ".mine.tmp"):
        (where / name).write_text("half")
    written(*files, 7).publish(7, "a1", ALONE)
    assert {one.name for one in where.iterdir()} == {"0-000000000007-000000000007.json", ".mine.tmp"}


def test_a_stalled_publisher_whose_draft_is_gone_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its successor took the draft for that of a dead process: either the file is there already, or it hears that it is not."""
    target = f"file://{tmp_path}/entry"
    replace = Path.replace

    def swept(self: Path, to: Path) -> Path:
        self.unlink()
        return replace(self, to)

    monkeypatch.setattr(Path, "replace", swept)
    with pytest.raises(FileNotFoundError):
        LocalFiles().put(target, "x")
    (tmp_path / "entry").write_text("x")
    LocalFiles().put(target, "x")


def test_what_a_reset_has_left_goes_with_the_first_batch_of_the_next_life(
    files: tuple[Files, str], tmp_path: Path
) -> None:
    """Attempts that nobody knows any more: of the same task and stage, and begun before. Those of others stay."""
    for series in ("s-0-ff", "s-0-101", "t-0-ff"):
        written(*files, 4, series=series)
    new = written(*files, 1, series="s-0-100")
    new.publish(1, "a1", ALONE)
    staging = tmp_path / "out dir" / "_headgate" / "staging"
    assert {path.name for path in staging.iterdir() if below(path)} == {"s-0-101", "t-0-ff"}
    written(*files, 2, series="s-0-100").publish(2, "a1", ALONE)
    written(*files, 4, series="s-0-ff")
    written(*files, 3, series="s-0-100").publish(3, "a1", ALONE)
    assert below(staging / "s-0-ff"), "only the first batches look for it"


def test_readers_get_the_files_of_whole_batches_only(files: tuple[Files, str], tmp_path: Path) -> None:
    """A batch that is half published is in the directory, and not in what `published` gives."""
    written(*files, 1).publish(1, "a1", ALONE)
    half = written(*files, 2)
    plan = half._plan(2, "a1")
    assert plan is not None
    half._move(plan)
    assert len([name for name in below(tmp_path / "out dir") if not name.startswith("_")]) == 4
    out = f"{tmp_path}/out dir"
    names = ["c=DE/part-00000-s-000000000001.json", "c=a%2Fb/part-00001-s-000000000001.json"]
    assert published(out) == published(Path(out)) == published(f"file:{out}") == [f"{out}/{name}" for name in names]
    for path, why in ((tmp_path / "elsewhere", "there is nothing at"), (tmp_path, "no _headgate in it, but ")):
        with pytest.raises(NotFound, match=rf"published\('{path}'\): .*{why}"):
            published(path)
    (tmp_path / "to come").mkdir()
    assert published(tmp_path / "to come") == []
    for wrong, what in (
        ({"since": "yesterday"}, "published\\(since='yesterday'\\) is not a time"),
        ({"since": 20, "until": 10}, "no time lies between them"),
        ({"where": "country"}, "published\\(where='country'\\)"),
    ):
        with pytest.raises(DataError, match=what):
            published(out, **wrong)
    with pytest.raises(DeclarationError, match=r"published\('out'\): this is neither an absolute path"):
        published("out")


def test_readers_get_what_they_ask_for(files: tuple[Files, str], tmp_path: Path) -> None:
    """By the times of the batches' rows and by the values of partitions, of entries that are merged and of those that are not."""
    before, entries_of_manifest.MERGE = entries_of_manifest.MERGE, FEW
    try:
        for number in range(1, 6):
            written(*files, number, times=(number * 1000, number * 1000 + 500)).publish(number, "a1", ALONE)
    finally:
        entries_of_manifest.MERGE = before
    out = tmp_path / "out dir"
    assert {one[0] for one in below(out / "_headgate" / "manifest" / "s")} == {"0", "1"}

    def numbers(**wanted: Any) -> list[int]:
        return [int(path.rpartition("-")[2].removesuffix(".json")) for path in published(out, **wanted)]

    assert numbers() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert numbers(since=1501, until="1970-01-01T00:00:05Z", where={"c": "DE"}) == [2, 3, 4]
    assert numbers(since=datetime(1970, 1, 1, 0, 0, 5)) == [5, 5]
    assert numbers(where={"c": ["a/b", "DE"]}, until=2000) == [1, 1]
    assert numbers(where={"c": lambda c: c > "DE"}, since=4501) == [5]
    with pytest.raises(DataError, match="not partitioned by 'country', but by c"):
        numbers(where={"country": "DE"})
    with pytest.raises(DataError, match=r"since='yesterday'\) is not a time"):
        numbers(since="yesterday")


@pytest.mark.parametrize(
    ("of", "texts"),
    [
        (date(2026, 1, 31), ["2026-01-31"]),
        (7, ["7"]),
        (True, ["true"]),
        (None, [None]),
        ("DE", ["DE"]),
        ({1, 2}, ["1", "2"]),
    ],
)
def test_values_are_compared_as_they_stand_in_paths(of: Any, texts: list[str | None]) -> None:
    test = publish_module._test(of)
    assert [one for one in ("2026-01-31", "7", "true", None, "DE", "1", "2") if test(one)] == texts


def test_what_was_named_and_is_gone_is_an_error(files: tuple[Files, str]) -> None:
    """Somebody has emptied the staging directory, wholly or in part: the batch does not count as published."""
    target = files[1]
    publisher = written(*files, 7)
    publisher.files.delete(f"{publisher.layout.attempt(7, 'a1')}/c=DE")
    with pytest.raises(Unpublished, match=r"batch 7 cannot be published.*part-00001-x-c000.json is gone.*_headgate/"):
        publisher.publish(7, "a1", ALONE)
    publisher.files.delete(publisher.layout.staging)
    with pytest.raises(Unpublished, match="a1 is gone"):
        publisher.publish(7, "a1", ALONE)
    assert manifest(publisher.files, target) == []


def test_two_jobs_of_one_name_do_not_mix_their_batches(files: tuple[Files, str]) -> None:
    """The entry is another attempt's: nothing is overwritten, and the message says why that can be."""
    written(*files, 7).publish(7, "a1", ALONE)
    with pytest.raises(Unpublished, match="give each its own"):
        written(*files, 7, "b1").publish(7, "b1", ALONE)


def test_a_copy_that_was_cut_off_is_replaced(files: tuple[Files, str]) -> None:
    """Some file systems show a file before it is whole."""
    publisher = written(*files, 7)
    cut = f"{files[1]}/c=DE/part-00000-s-000000000007.json"
    publisher.files.put(cut, "7 c")
    publisher.publish(7, "a1", ALONE)
    assert publisher.files.read(cut) == "7 c=DE/part-00001-x-c000.json\n"


def test_a_reader_reads_again_while_entries_are_merged() -> None:
    """Files that were listed and are gone have become one other file; one that stays away is an error, and never a smaller result."""
    held: dict[str, str] = {}
    files = SteppedFiles(held, lambda: None, False)
    line = ManifestEntry("j/1", "w", "P", "P/w/1", 1, "a1", 2, "rows").line()
    files.put(f"{TARGET}/_headgate/manifest/s/0-000000000001-000000000001.json", line)

    class Merging(SteppedFiles):
        left = 1

        def read(self, path: str) -> str | None:
            self.left -= 1
            return None if self.left >= 0 else super().read(path)

    merging = Merging(held, lambda: None, False)
    assert [entry.number for entry in manifest(merging, TARGET)] == [1]
    merging.left = 100
    with pytest.raises(Unpublished, match="read it again"):
        manifest(merging, TARGET)


def test_the_file_system_of_a_target() -> None:
    """Without a JVM, what pyarrow knows; everything else is refused with the remedy."""
    assert isinstance(files_of("file:///out"), LocalFiles)
    with pytest.raises(EnvironmentFault, match="pass one: spark=session"):
        files_of("oss://bucket/out")
    with pytest.raises(EnvironmentFault, match=r"Spark Connect.*use spark.master, or one of the schemes abfs"):
        files_of("oss://bucket/out", object())
