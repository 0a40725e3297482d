"""The bookkeeping of bounded batches: numbers, limits, order, and what is stored of it."""

from __future__ import annotations

import msgpack
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.batches import AGE, BYTES, ROWS, BatchInfo, BatchOutcome, Book, Closed, Limits, SparkStage

TEN = Limits(max_rows=10)


def grown(book: Book, rows: int, limits: Limits = TEN, *, size: int = 0, now_ms: int = 5, latest_ms: int = 7) -> Book:
    """One more block of rows."""
    return book.with_block(rows, size, into_tail=False, now_ms=now_ms, latest_ms=latest_ms, limits=limits)


def test_a_batch_is_closed_when_it_has_its_rows() -> None:
    """Four and six rows are ten: the batch is closed by rows, and the next number is open and empty."""
    book = grown(grown(Book(), 4), 6, latest_ms=9)
    assert book == Book(number=2, closed=(Closed(1, 2, 10, ROWS, 9),))


def test_a_batch_is_closed_when_it_has_its_bytes() -> None:
    """Bytes close a batch as rows do, and the room never shows less than nothing."""
    limits = Limits(max_bytes=100)
    book = grown(Book(), 4, limits, size=60)
    assert book.room(limits) == (None, 40)
    assert grown(book, 4, limits, size=60).closed[0].why == BYTES
    assert Book(rows=1, size=200).room(limits) == (None, 0)
    assert Book(rows=4).room(TEN) == (6, None)


def test_rows_added_to_the_last_block_make_no_new_one() -> None:
    """Slow streams would make a block a row; the last block grows instead."""
    book = grown(Book(), 3).with_block(2, 0, into_tail=True, now_ms=8, latest_ms=3, limits=TEN)
    assert (book.blocks, book.tail, book.rows, book.since_ms, book.latest_ms) == (1, 5, 5, 5, 7)


def test_age_counts_from_the_first_row() -> None:
    """An empty batch never grows old, and one without a limit neither."""
    limits = Limits(max_age_ms=1000)
    assert Book().due_ms(limits) is None
    assert grown(Book(), 1, limits, now_ms=50).due_ms(limits) == 1050
    assert grown(Book(), 1).due_ms(TEN) is None


def test_closing_nothing_is_nothing() -> None:
    """A drain that finds an empty batch makes no empty batch."""
    assert Book(number=4).close(AGE) == Book(number=4)


def test_the_first_batch_is_taken_first() -> None:
    """Results are stored, sent and done in the order of the numbers."""
    book = grown(grown(Book(), 10), 10)
    assert book.first() == Closed(1, 1, 10, ROWS, 7)
    stored = book.with_first(stored=3, whole=True).with_first(sent=1)
    assert stored.first() == Closed(1, 1, 10, ROWS, 7, 3, True, 1)
    assert [one.number for one in stored.done().closed] == [2]
    assert Book().first() is None


def test_who_waits_for_too_many_takes_no_more() -> None:
    """With two in flight a third closed batch is one too many."""
    book = Book(closed=tuple(Closed(n, 1, 1, ROWS, 0) for n in range(3)))
    assert book.full(2)
    assert not book.done().full(2)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=30))
def test_no_row_is_lost_and_what_is_stored_is_read(steps: list[tuple[int, bool]]) -> None:
    """Whatever is added and closed: rows are kept, numbers are given once, and a restart reads the same book."""
    book, put = Book(), 0
    for rows, close in steps:
        take = min(rows, book.room(TEN)[0] or 0)
        book = grown(book, take)
        put += take
        book = book.close(AGE) if close else book
    assert sum(one.rows for one in book.closed) + book.rows == put
    assert [one.number for one in book.closed] == list(range(1, book.number))
    assert all(one.rows <= 10 for one in book.closed)
    assert Book.unpack(book.pack()) == book


def test_nothing_stored_is_an_empty_book() -> None:
    """The first start finds nothing."""
    assert Book.unpack(None) == Book()


def test_a_batch_is_named_for_task_stage_and_number() -> None:
    """The id is what a user sees, and what stays the same when the batch is run again."""
    assert BatchInfo("Partition 3", "daily", 12, 5, "drain").id == "Partition 3/daily/12"
    assert SparkStage("daily", print, "n long").keeps_going is False
    assert BatchOutcome((), 0).bad == ()


GOLDEN = "929703020a28051a1e9198020305a4726f77731901c301"
"""A closed batch of two blocks whose result is half sent, and an open one; as every later version must read it."""


def test_golden_bytes() -> None:
    book = Book(3, 2, 10, 40, 5, 26, 30, (Closed(2, 3, 5, ROWS, 25, 1, True, 1),))
    assert msgpack.packb(book.pack()).hex() == GOLDEN
    assert Book.unpack(msgpack.unpackb(bytes.fromhex(GOLDEN))) == book
