"""Old batches are forgotten, and their files deleted, once in effect: whoever crashes or stalls between any two steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from headgate.core.batching import manifest as entries_of_manifest
from headgate.core.batching.forgetting import ForgottenNote, Numbers, deleted, forgetting, notes, to_delete
from headgate.core.batching.manifest import ManifestEntry
from headgate.core.batching.publishing import Keep, SparkWrite, Undone
from headgate.spark_bridge.data import forget as forget_module
from headgate.spark_bridge.data import publish as publish_module
from headgate.spark_bridge.data.files import ArrowFiles, LocalFiles
from headgate.spark_bridge.data.forget import Forgetter, Forgotten
from headgate.spark_bridge.data.publish import Publisher, Unpublished, published

from .owners import BATCHES, FEW, STEP_MS, TARGET, Task

KEEP = Keep(rows_ms=2 * STEP_MS, delete_after_ms=48)
MANIFEST = f"{TARGET}/_headgate/manifest/s"
ALL_DONE = Undone(100, frozenset())


class Watched:
    """A task that keeps batches for a time, and what must hold after each step."""

    def __init__(self, order: list[int], copies: bool) -> None:
        self.task = Task(order, copies, KEEP, now_ms=BATCHES * STEP_MS)
        self.since: dict[int, int] = {}
        """When each batch was forgotten."""

    def notes(self) -> list[ForgottenNote]:
        """What is noted."""
        names = [path.rpartition("/")[2] for path in self.task.held if path.startswith(MANIFEST)]
        return [ForgottenNote.read(self.task.held[f"{MANIFEST}/{name}"]) for name in notes(names)]

    def files_of(self, number: int) -> list[str]:
        """The files of a batch that plain readers see."""
        return [path for path in self.task.held if "/_headgate/" not in path and f"-{number:012d}" in path]

    def check(self) -> None:
        """A batch that is listed has its files. One that was forgotten stays so, was old enough, and keeps its files for a while."""
        self.task.check()
        newest = max(self.task.named, default=0)
        gone = {
            number for note in self.notes() for first, last in note.numbers.ranges for number in range(first, last + 1)
        }
        assert set(self.since) <= gone
        assert not gone & {entry.number for entry in self.task.entries()}
        for number in gone:
            since = self.since.setdefault(number, self.task.now_ms)
            assert number < newest - 2, "it is too young"
            assert len(self.files_of(number)) == 2 or self.task.now_ms >= since + KEEP.delete_after_ms

    def play(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        """A life with any interruptions, and a quiet end."""
        task = self.task
        task.begin()
        for _ in range(draw(st.integers(0, 12))):
            match draw(st.sampled_from(["steps", "steps", "crash", "fence", "time"])):
                case "steps":
                    life = draw(st.sampled_from(task.is_alive))
                    for _ in range(draw(st.integers(1, 60))):
                        life.step()
                        self.check()
                case "crash":
                    task.is_alive[-1].crash()
                    task.begin()
                case "fence":
                    task.begin()
                case _:
                    task.now_ms += draw(st.integers(1, 40))
        for life in task.is_alive[:-1]:
            while not life.over:
                life.step()
                self.check()
        for _ in range(3):
            task.run()
            self.check()
            task.now_ms += KEEP.delete_after_ms
            task.upto += 1
        assert [life.error for life in task.is_alive] == [None] * len(task.is_alive)
        listed = {entry.number for entry in task.entries()}
        assert listed == set(task.named) - set(self.since)
        waiting = {entry.number for note in self.notes() for entry in note.waiting}
        assert {number for number in task.named if self.files_of(number)} == listed | waiting
        assert len(listed) <= 3, "what is too old is forgotten"


def played(draw: Callable[[st.SearchStrategy[Any]], Any], order: list[int], copies: bool) -> None:
    """One world."""
    before, entries_of_manifest.MERGE = entries_of_manifest.MERGE, FEW
    watched = Watched(order, copies)
    try:
        watched.play(draw)
    finally:
        entries_of_manifest.MERGE = before
        watched.task.end()


@settings(max_examples=150, deadline=None)
@given(st.data(), st.permutations(range(1, BATCHES + 1)), st.booleans())
def test_what_is_forgotten_is_forgotten_once_whoever_crashes_or_stalls(
    data: st.DataObject, order: list[int], copies: bool
) -> None:
    """Every batch is listed or forgotten; a forgotten one is not published again, and its files go when they may, and then for good."""
    played(data.draw, order, copies)


# ------------------------------------------------------------------------------------------------------------------ planted bugs


def _entries_first(self: Forgetter, names: list[str], *arguments: Any) -> Forgotten:
    """The note comes last."""
    later: list[tuple[str, str]] = []
    put = self._put
    self._put = lambda name, text: later.append((name, text)) if name.startswith("forgotten") else put(name, text)  # type: ignore[method-assign]
    found = FORGET(self, names, *arguments)
    for name, text in later:
        put(name, text)
    return found


FORGET = Forgetter.forget
BUGS: dict[str, tuple[Any, str, Any]] = {
    "entries go before the note": (Forgetter, "forget", _entries_first),
    "files go at once": (forget_module, "to_delete", lambda names, after, now: to_delete(names, 0, now)),
    "numbers go with the files": (forget_module, "deleted", lambda texts: deleted(list(texts)[:1])),
    "nobody looks at notes for a number": (Forgetter, "knows", lambda *_: False),
    "readers do not look at notes": (publish_module, "forgotten", lambda _: Numbers()),
    "too young ones go, too": (
        forget_module,
        "forgetting",
        lambda texts, known, cutoff, *more: forgetting(texts, known, cutoff + 2 * STEP_MS, *more),
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the model sees what it is for."""
    monkeypatch.setattr(*BUGS[bug])

    @settings(max_examples=150, deadline=None, database=None, phases=[Phase.generate])
    @given(st.data(), st.permutations(range(1, BATCHES + 1)), st.booleans())
    def worlds(data: st.DataObject, order: list[int], copies: bool) -> None:
        played(data.draw, order, copies)

    with pytest.raises((AssertionError, KeyError, Unpublished, ExceptionGroup)):
        worlds()


# ----------------------------------------------------------------------------------------------------------------- real files


def sealed(target: str, number: int, at_ms: int, keep: Keep, now_ms: int, series: str = "s-0-100") -> Publisher:
    """An attempt of one file."""
    files = LocalFiles()
    publisher = Publisher(files, SparkWrite(target, series=series, keep=keep), lambda: now_ms)
    files.put(f"{publisher.layout.attempt(number, 'a1')}/c=DE/part-00000-x-c000.json", f"{number}\n")
    entry = ManifestEntry("j/1", "w", "P", f"P/w/{number}", number, "a1", 1, "rows", earliest_ms=at_ms, latest_ms=at_ms)
    publisher.seal(entry)
    return publisher


def below(path: Path) -> set[str]:
    """The names of files in a directory."""
    return {one.name for one in path.rglob("*") if one.is_file()}


def test_old_batches_leave_the_manifest_and_their_files_go_later(tmp_path: Path) -> None:
    """The files stay for a while for whoever reads them, and then only numbers are left. Nothing is forgotten more often than need be."""
    keep, target = Keep(1000, 240), f"file://{tmp_path}"
    for number in range(1, 4):
        assert sealed(target, number, number * 10, keep, 50).publish(number, "a1", ALL_DONE) == Forgotten()
    done = sealed(target, 4, 1025, keep, 5000).publish(4, "a1", ALL_DONE)
    assert (done, len(below(tmp_path / "c=DE"))) == (Forgotten(2, 0), 4)
    assert [path[-8:-5] for path in published(tmp_path)] == ["003", "004"]
    done = sealed(target, 5, 1035, keep, 5009).publish(5, "a1", ALL_DONE)
    assert done == Forgotten(), "the last time is not long enough ago"
    done = sealed(target, 6, 1036, keep, 5010).publish(6, "a1", ALL_DONE)
    assert (done, len(below(tmp_path / "c=DE"))) == (Forgotten(1, 0), 6)
    done = sealed(target, 7, 1036, keep, 5240).publish(7, "a1", ALL_DONE)
    assert (done, len(below(tmp_path / "c=DE"))) == (Forgotten(0, 2), 5)
    done = sealed(target, 8, 1036, keep, 5250).publish(8, "a1", ALL_DONE)
    assert (done, len(below(tmp_path / "c=DE"))) == (Forgotten(0, 1), 5)
    [note] = notes(below(tmp_path / "_headgate"))
    assert note.startswith("forgotten-000000000001-000000000003-0-")
    assert sealed(target, 2, 20, keep, 5250).publish(2, "a1", ALL_DONE) == Forgotten()
    assert [path[-8:-5] for path in published(tmp_path)] == ["004", "005", "006", "007", "008"]


def test_what_is_not_done_stays(tmp_path: Path) -> None:
    """However old its rows are: its task may still be about to publish it again."""
    keep, target = Keep(1000, 240), f"file://{tmp_path}"
    for number in (1, 2):
        sealed(target, number, number, keep, 50).publish(number, "a1", ALL_DONE)
    done = sealed(target, 3, 2000, keep, 5000).publish(3, "a1", Undone(4, frozenset({1, 3})))
    assert (done, [path[-8:-5] for path in published(tmp_path)]) == (Forgotten(1, 0), ["001", "003"])


def test_a_clock_that_is_ahead_forgets_nothing_and_neither_do_rows_that_are(tmp_path: Path) -> None:
    """Age is measured from whichever is earlier."""
    keep, target = Keep(1000, 240), f"file://{tmp_path}"
    sealed(target, 1, 10, keep, 50).publish(1, "a1", ALL_DONE)
    assert sealed(target, 2, 500, keep, 10**12).publish(2, "a1", ALL_DONE) == Forgotten()
    assert sealed(target, 3, 10**12, keep, 600).publish(3, "a1", ALL_DONE) == Forgotten()
    assert len(published(tmp_path)) == 3


def test_what_a_task_wrote_before_a_reset_is_forgotten_too(tmp_path: Path) -> None:
    """The next life of the same task looks after it. What others have written is theirs."""
    keep, target = Keep(1000, 240), f"file://{tmp_path}"
    for series in ("s-0-ff", "t-0-ff", "s-0-101"):
        sealed(target, 1, 10, keep, 50, series).publish(1, "a1", ALL_DONE)
    assert sealed(target, 1, 2000, keep, 5000).publish(1, "a1", ALL_DONE) == Forgotten(1, 0)
    assert sorted(path.partition("part-00000-")[2][:7] for path in published(tmp_path)) == [
        "s-0-100",
        "s-0-101",
        "t-0-ff-",
    ]


def test_an_object_that_goes_while_it_is_read_is_not_there(tmp_path: Path) -> None:
    """S3's client says so with an error of its own, once the object has been opened. Any other error is one."""
    files = ArrowFiles(f"file://{tmp_path}")
    (tmp_path / "there").write_text("text")

    class Broken:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def open_input_stream(self, path: str) -> Any:
            raise OSError("AWS Error RESOURCE_NOT_FOUND during GetObject operation")

    real, files._fs = files._fs, Broken()
    assert files.read(f"file://{tmp_path}/gone") is None
    with pytest.raises(OSError, match="RESOURCE_NOT_FOUND"):
        files.read(f"file://{tmp_path}/there")


def test_another_process_that_does_the_same_is_left_to_it(tmp_path: Path) -> None:
    """A file that was listed is gone: nothing is done now, and what is due is done the next time."""

    class Gone(LocalFiles):
        def read(self, path: str) -> str | None:
            return None if "/manifest/" in path else super().read(path)

    layout = sealed(f"file://{tmp_path}", 1, 10, KEEP, 50).layout
    names = ["0-000000000001-000000000001.json", "forgotten-000000000001-000000000001-5-ab.json"]
    late = Forgetter(Gone(), layout)
    assert late.forget(names, 100, 100, None) == Forgotten()
    assert late.delete_old(names, 0, 100) == Forgotten()
    assert not late.knows(names, 1)
