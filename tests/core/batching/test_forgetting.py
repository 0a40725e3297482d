"""Which batches are forgotten, what is noted of them, and which files of entries change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.batching.forgetting import (
    LOOKS,
    ForgottenNote,
    Numbers,
    deleted,
    expired,
    forgetting,
    forgotten,
    is_time,
    least,
    noting,
    settled,
    to_delete,
)
from headgate.core.batching.manifest import ManifestEntry, entries, whole
from headgate.core.batching.publishing import Keep, SeriesPaths, Undone, declared_write
from headgate.core.errors import DataError, DeclarationError

AT = SeriesPaths("file:///out", "s")


def entry(number: int, latest_ms: int | None = None) -> ManifestEntry:
    """A batch of one file."""
    files = AT.files(number, [("c=DE/part-00000-x-c000.parquet", 9)])
    earliest = None if latest_ms is None else latest_ms - 5
    return ManifestEntry(
        "j/1", "w", "P", f"P/w/{number}", number, "a1", 2, "rows", None, None, files, earliest, latest_ms
    ).published()


def texts(*every: ManifestEntry) -> dict[str, str]:
    """Files of one entry each."""
    return {AT.entry(one.number).rpartition("/")[2]: f"{one.line()}\n" for one in every}


@given(st.lists(st.sets(st.integers(0, 40)), max_size=5))
def test_numbers_are_a_set(several: list[set[int]]) -> None:
    """Of ranges that are apart from each other."""
    found = Numbers.joined([Numbers.of(one) for one in several])
    wanted = set().union(*several)
    assert {number for number in range(-1, 42) if number in found} == wanted
    assert bool(found) == bool(wanted)
    assert all(one[1] + 1 < other[0] for one, other in zip(found.ranges, found.ranges[1:], strict=False))


def test_a_note_has_its_bytes() -> None:
    """They decode for ever."""
    note = ForgottenNote(1700, Numbers.of([1, 2, 4]), (entry(4, 50),))
    head = '{"v":1,"at_ms":1700,"numbers":[[1,2],[4,4]]}\n{"v":2,"job":"j/1","stage":"w"'
    assert note.text.startswith(head)
    assert ForgottenNote(1700, note.numbers).name == "forgotten-000000000001-000000000004-1700-e8e60a4963169794.json"
    assert ForgottenNote.read(note.text) == note
    assert ForgottenNote.read('{"v":1,"at_ms":0,"numbers":[[1,9]],"new":1}\n') == ForgottenNote(0, Numbers(((1, 9),)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"v":2,"at_ms":0,"numbers":[]}', "has format 2; this headgate reads up to 1.*newer headgate"),
        ("", "is none"),
        ("[]", "is none"),
        ('{"v":1,"at_ms":0,"numbers":[[1]]}', "is none"),
        ('{"v":1,"at_ms":0,"numbers":[]}\nx', "not an entry"),
    ],
)
def test_a_text_that_is_no_note_is_a_data_error(text: str, words: str) -> None:
    """And is never taken for one that forgets less."""
    with pytest.raises(DataError, match=words):
        ForgottenNote.read(text)


def test_what_is_expired() -> None:
    """Without a row of the cutoff or later; without times, as the next one that has some."""
    every = [entry(1), entry(2, 9), entry(3), entry(4, 10), entry(5, 3), entry(6)]
    assert [one.number for one in expired(every, 10)] == [1, 2, 5]


def test_what_is_forgotten_leaves_its_files_of_entries() -> None:
    """A file that holds others, too, is replaced; others are not touched. What late processes wrote again goes along."""
    merged = ForgottenNote(5, Numbers.of([1]), (entry(1, 10), entry(2, 20))).text.partition("\n")[2]
    held = {"1-000000000001-000000000002-ab.json": merged, **texts(entry(3, 8), entry(4, 30), entry(5, 7), entry(6, 9))}
    what = forgetting(held, Numbers.of([5]), 15, 100, Undone(7, frozenset({6})))
    assert what.note == ForgottenNote(100, Numbers.of([1, 3]), (entry(1, 10), entry(3, 8)))
    [(name, text)] = what.put.items()
    assert name.startswith("1-000000000002-000000000002-")
    assert entries(text) == [entry(2, 20)]
    gone = {name for name in held if name[:14] in ("1-000000000001", "0-000000000003", "0-000000000005")}
    assert set(what.delete) == gone
    left = {name: text for name, text in held.items() if name not in gone} | dict(what.put)
    assert [one.number for one in whole({"s": left.values()})] == [2, 4, 6]
    again = forgetting(left, forgotten([what.note.text]), 15, 101, Undone(7, frozenset({6})))
    assert (again.note, again.put, again.delete) == (None, {}, ())
    assert [one.number for one in forgetting(left, Numbers(), 15, 101, None).note.waiting] == [6]  # type: ignore[union-attr]


def test_readers_get_nothing_that_is_forgotten() -> None:
    """Whatever files of entries say."""
    held = {"s": texts(entry(1, 1), entry(2, 2)).values(), "t": texts(entry(1, 1)).values()}
    assert [one.number for one in whole(held, gone={"s": Numbers.of([1])})] == [2, 1]


def test_notes_are_due_by_their_names() -> None:
    """One whose files are deleted has no time any more, and all of these become one."""
    young, old, none = (ForgottenNote(at, Numbers.of([number])) for at, number in ((900, 3), (500, 2), (0, 1)))
    names = [young.name, old.name, none.name, "x"]
    assert [to_delete(names, after, 1000) for after in (100, 101, 501)] == [[old.name, young.name], [old.name], []]
    assert settled(names) == [none.name]
    assert deleted([old.text, none.text]) == ForgottenNote(0, Numbers(((1, 2),)))
    assert [noting(names, number) for number in (1, 3, 4)] == [[none.name], [young.name], []]
    assert [is_time(names, LOOKS * wait, 1000) for wait in (100, 101)] == [True, False]
    assert is_time(["x"], 10**12, 10**13)


def test_the_least_file_of_entries() -> None:
    """By number, not by level."""
    names = ["0-000000000007-000000000007.json", "1-000000000002-000000000006-ab.json", "forgotten-1"]
    assert (least(names), least([])) == (names[1], None)


def test_what_is_no_list_of_files_keeps_nothing() -> None:
    """A function of the user's and a Delta table have no manifest."""
    keep = Keep(10, 1)
    assert declared_write("/out", None, (), None, keep=keep).keep == keep
    with pytest.raises(DeclarationError, match=r"format='delta', keep.*VACUUM"):
        declared_write("/out", "delta", (), None, keep=keep)
    with pytest.raises(DeclarationError, match="the function itself"):
        declared_write(print, None, (), None, keep=keep)
