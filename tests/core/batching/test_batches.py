"""The bookkeeping of bounded batches: numbers, windows, limits, order, and what is stored of it."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import msgpack
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.batching.batches import (
    AGE,
    BYTES,
    META,
    ROWS,
    BatchInfo,
    BatchOutcome,
    Book,
    Closed,
    Inline,
    Limits,
    Open,
    SparkStage,
    WindowBounds,
)

TEN = Limits(max_rows=10)
FIRST, SECOND = WindowBounds(0, 10), WindowBounds(10, 20)


def test_what_a_function_is_told_goes_to_executors_that_lack_this_package() -> None:
    """A UDF that used `batch` needed headgate there."""
    packed = pickle.dumps(BatchInfo("Partition 0", "daily", 7, 1000, ROWS, 2))
    assert b"headgate" not in packed
    told = pickle.loads(packed)  # noqa: S301 - made above
    assert (told.id, told.number, told.attempt, told.window_start) == ("Partition 0/daily/7", 7, 2, None)


def grown(
    book: Book,
    rows: int,
    limits: Limits = TEN,
    *,
    window: WindowBounds | None = None,
    size: int = 0,
    now_ms: int = 5,
    at: int = 7,
) -> Book:
    """More rows."""
    put = book.with_rows(window, rows, size, now_ms=now_ms, times=(at - 1, at))
    return put.when_full(limits, window)


def closed(number: int, turn: int, **more: Any) -> Closed:
    """A closed batch of one row."""
    plain: dict[str, Any] = {"rows": 1, "size": 0, "since_ms": 5, "earliest_ms": 6, "latest_ms": 7}
    start, end = more.pop("window", None) or (None, None)
    return Closed(number, start, end, **{**plain, "why": ROWS, "turn": turn, **more})


def test_a_batch_is_closed_when_it_has_its_rows() -> None:
    """Four and six rows are ten: the batch is closed by rows, and the next number belongs to the next batch."""
    book = grown(grown(Book(), 4), 6, at=9)
    assert book == Book(2, 1, {}, (closed(1, 0, rows=10, latest_ms=9),), 5)
    assert book.opened() == Open(2)


def test_a_batch_is_closed_when_it_has_its_bytes() -> None:
    """Bytes close a batch as rows do, and the room never shows less than nothing."""
    limits = Limits(max_bytes=100)
    book = grown(Book(), 4, limits, size=60)
    assert (book.room(limits), book.size) == ((None, 40), 60)
    assert grown(book, 4, limits, size=60).closed[0].why == BYTES
    assert Book(open={None: Open(1, rows=1, size=200)}).room(limits) == (None, 0)
    assert Book(open={None: Open(1, rows=4)}).room(TEN) == (6, None)


def test_more_rows_make_a_batch_grow() -> None:
    """It is as old as its first row, and its bounds are those of all rows."""
    one = grown(Book(), 3).with_rows(None, 2, 0, now_ms=8, times=(3, 4)).opened()
    assert (one.rows, one.since_ms, one.earliest_ms, one.latest_ms) == (5, 5, 3, 7)


def test_age_counts_from_the_first_row() -> None:
    """An empty batch never grows old, and one without a limit neither. The clock may show zero."""
    limits = Limits(max_age_ms=1000)
    assert Book().due_ms(limits) is None
    assert grown(grown(Book(), 1, limits, now_ms=0), 1, limits, now_ms=50).due_ms(limits) == 1000
    assert grown(Book(), 1).due_ms(TEN) is None


def test_closing_nothing_is_nothing() -> None:
    """A drain that finds an empty batch makes no empty batch, and nothing that is stored changes."""
    book = Book(number=4)
    assert book.close(AGE) is book
    assert book.when_full(TEN) is book
    assert book.changes(book) == ({}, [])


def test_each_window_has_its_batch_and_they_close_in_the_order_of_their_ends() -> None:
    """The second window was opened first, and has the smaller number; the first one closes first, and its result comes first."""
    book = grown(grown(Book(), 1, window=SECOND, at=12), 1, window=FIRST, at=2)
    assert (book.first_end(), book.due(9), book.due(10), book.due()) == (10, [], [FIRST], [FIRST, SECOND])
    book = book.close("watermark", book.due(10))
    assert (book.first(), book.first_end()) == (
        closed(2, 0, window=FIRST, why="watermark", earliest_ms=1, latest_ms=2),
        20,
    )
    book = grown(book, 1, window=FIRST, at=3).close("drain", [SECOND, FIRST])
    assert [(one.number, one.end, one.turn) for one in book.closed] == [(2, 10, 0), (1, 20, 1), (3, 10, 2)]
    assert (Book().first_end(), Book().due()) == (None, [])
    assert grown(Book(), 1).due(100) == []


def test_a_result_is_owed_with_the_time_of_its_window_or_of_its_last_row() -> None:
    """The time behind the step must not pass it, whether the batch is open or closed."""
    book = grown(Book(), 1, window=SECOND, at=12)
    assert (Book().owed_ms(), book.owed_ms()) == (None, 19)
    assert book.close(AGE, [SECOND]).owed_ms() == 19
    assert grown(Book(), 1, at=12).owed_ms() == 12


def test_the_first_batch_is_taken_first() -> None:
    """Results are stored, sent and done in the order in which batches were closed."""
    book = grown(grown(Book(), 10), 10)
    assert book.first() == closed(1, 0, rows=10)
    stored = book.with_first(stored=3, whole=True).with_first(sent=1)
    assert stored.first() == closed(1, 0, rows=10, stored=3, whole=True, sent=1)
    assert [one.number for one in stored.done().closed] == [2]
    assert Book().first() is None


def test_what_was_named_is_sent_before_it_is_published() -> None:
    """Of two stages, one may pass rows on that are still to be sent while the files of the other wait."""
    one = closed(1, 0, stored=3, named={"daily": ["file:///out", "a1"]})
    assert (one.all_sent, replace(one, sent=3).all_sent, closed(1, 0).all_sent) == (False, True, True)


def test_a_book_says_which_batches_are_not_done() -> None:
    """Open ones and closed ones; every other number that was given is done, and one that was not given is not."""
    undone = grown(grown(grown(Book(), 10), 10).done(), 1).undone()
    assert [undone.done(number) for number in (1, 2, 3, 4)] == [True, False, False, False]


def test_a_book_keeps_when_it_was_begun() -> None:
    """Also when its first batch is done: numbers that begin again at 1 are those of another book."""
    book = grown(grown(Book(), 10, now_ms=0).done(), 10, now_ms=9)
    assert (book.begun_ms, Book().begun_ms) == (0, None)


def test_who_waits_for_too_many_takes_no_more() -> None:
    """With two in flight a third closed batch is one too many."""
    book = Book(closed=tuple(closed(n, n) for n in range(3)))
    assert book.full(2)
    assert not book.done().full(2)


def test_only_what_has_changed_is_stored_again() -> None:
    """A step with many open windows does not write all of them with each row."""
    before = grown(grown(Book(), 1, window=FIRST), 1, window=SECOND)
    put, gone = grown(before, 1, window=SECOND).changes(before)
    assert (list(put), gone) == (["b000000000002"], [])
    shut = before.close(AGE, [FIRST])
    assert sorted(shut.changes(before)[0]) == ["b000000000001", META]
    assert shut.done().changes(shut) == ({}, ["b000000000001"])


STEPS = st.one_of(
    st.tuples(st.just("rows"), st.lists(st.integers(-30, 60), min_size=1, max_size=6)),
    st.tuples(st.just("close"), st.integers(-30, 90)),
    st.tuples(st.just("drain")),
    st.tuples(st.just("done")),
    st.tuples(st.just("restart")),
)


@settings(deadline=None, max_examples=80)
@given(st.sampled_from([(10, 10), (20, 10), (10, 3)]), st.lists(STEPS, max_size=30))
def test_windows_against_rows_that_are_kept_one_by_one(window: tuple[int, int], steps: list[Any]) -> None:
    """Whatever comes, closes and is done, in any order and across restarts: each batch has the rows of its window, numbers are given once,
    in the order of opening, and results come in the order of closing."""
    size, every = window
    book, stored = Book(), dict[str, Any]()
    rows: dict[int, list[int]] = {}  # by the end of an open window, the times of its rows
    waiting: list[tuple[int, list[int], str]] = []
    numbers: dict[int, int] = {}
    given = 0

    def write(after: Book) -> None:
        nonlocal book
        put, gone = after.changes(book)
        stored.update(put)
        for name in gone:
            del stored[name]
        book = after

    def close(upto: int | None, why: str) -> None:
        write(book.close(why, book.due(upto)))
        for end in sorted(end for end in rows if upto is None or end <= upto):
            waiting.append((end, rows.pop(end), why))

    for step in steps:
        match step:
            case ("rows", times):
                for end in sorted({end for time in times for end in ends_of(time, size, every)}):
                    own = [time for time in times if end in ends_of(time, size, every)]
                    bounds = WindowBounds(end - size, end)
                    if end not in rows:
                        given += 1
                        numbers[end] = given
                    write(book.with_rows(bounds, len(own), len(own), now_ms=1, times=(min(own), max(own))))
                    rows.setdefault(end, []).extend(own)
            case ("close", upto):
                close(upto, "watermark")
            case ("drain",):
                close(None, "drain")
            case ("done",) if waiting:
                first, (end, own, why) = book.first(), waiting.pop(0)
                assert first is not None
                info = first.info("T", "s")
                assert (info.window_start, info.window_end, info.closed_by, info.rows) == (
                    end - size,
                    end,
                    why,
                    len(own),
                )
                assert (info.earliest_ms, info.latest_ms) == (min(own), max(own))
                write(book.done())
            case _:
                packed = msgpack.unpackb(msgpack.packb(stored) or b"")
                meta = packed.pop(META, None)
                again = Book.of(meta, list(packed.values()))
                assert (again, again.closed) == (book, book.closed)
                book = again
        assert {one.end: (one.number, one.rows) for one in book.open.values()} == {
            end: (numbers[end], len(own)) for end, own in rows.items()
        }
        assert [one.end for one in book.closed] == [end for end, _, _ in waiting]
        assert book.owed_ms() == min([end - 1 for end, _, _ in waiting] + [end - 1 for end in rows], default=None)


def ends_of(time: int, size: int, every: int) -> list[int]:
    """The ends of all windows that contain a time, one by one."""
    return [start + size for start in range(-200, 200) if start % every == 0 and start <= time < start + size]


def test_nothing_stored_is_an_empty_book() -> None:
    """The first start finds nothing."""
    assert Book.of(None, []) == Book()


def test_a_batch_is_named_for_task_stage_and_number() -> None:
    """The id is what a user sees, and what stays the same when the batch is run again."""
    info = closed(12, 3, window=FIRST, why="drain").info("Partition 3", "daily", 2)
    assert info == BatchInfo("Partition 3", "daily", 12, 1, "drain", 2, 0, 10, 6, 7, 3)
    assert info.id == "Partition 3/daily/12" == replace(info, attempt=3).id
    assert SparkStage("daily", print, "n long").keeps_going is False
    assert SparkStage("daily", print, "n long").write is None
    assert (BatchOutcome((), 0).bad, BatchOutcome((), 0).attempt) == ((), "")
    assert Inline((b"",)).blocks == (b"",)


GOLDEN = {
    META: "93050207",
    "b000000000002": "9fc302c0c00532141519a4726f77730101c30181a56461696c7992ab66696c653a2f2f2f6f7574a26131",
    "b000000000004": "99c2040a140a281a0b13",
}


def test_golden_bytes() -> None:
    """A closed batch whose result is half sent, and an open one, as every later version must read them."""
    book = Book(
        5,
        2,
        {SECOND: Open(4, 10, 20, 10, 40, 26, 11, 19)},
        (Closed(2, None, None, 5, 50, 20, 21, 25, ROWS, 1, 1, True, 1, {"daily": ["file:///out", "a1"]}),),
        7,
    )
    put, _ = book.changes(Book())
    assert {name: (msgpack.packb(row) or b"").hex() for name, row in put.items()} == GOLDEN
    stored = {name: msgpack.unpackb(bytes.fromhex(data)) for name, data in GOLDEN.items()}
    assert Book.of(stored.pop(META), list(stored.values())) == book
