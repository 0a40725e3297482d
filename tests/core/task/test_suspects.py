"""Letters that were under way when their process ended: once suspected, they run alone; what dies alone is judged."""

from __future__ import annotations

import pytest

from headgate.core.names import StreamPartition
from headgate.core.task.suspects import LONGEST_NAME, SPANS, WHOLE, Mark, Span, Suspects, brief, next_death, spans

AT, OTHER = StreamPartition("in", 0), StreamPartition("in", 1)


@pytest.mark.parametrize(
    ("mark", "judged"),
    [
        (Mark(AT, 5, 9), False),
        (Mark(AT, 5, 9, deaths=2), False),
        (Mark(AT, 5, 9, deaths=3), True),
        (Mark(AT, 5, 6, row=0), False),
        (Mark(AT, 5, 6, row=0, deaths=2), True),
        (Mark(what="drain"), False),
        (Mark(what="drain", deaths=2), False),
        (Mark(what="drain", deaths=3), True),
    ],
)
def test_what_died_alone_is_judged_and_a_whole_chunk_one_death_later(mark: Mark, judged: bool) -> None:
    """All rows of a chunk may survive alone, and the chunk kill its worker all the same: then it is the chunk."""
    assert mark.judged == judged


def test_marks_concern_the_records_that_they_meet() -> None:
    """However the next owner cuts its chunks; the most deaths first."""
    row = Mark(AT, 7, 8, 0, 2)
    suspects = Suspects([Mark(AT, 5, 9), row, Mark(AT, 5, 9), Mark(what="drain")])
    assert suspects.of(AT, 0, 20) == [row, Mark(AT, 5, 9)]
    assert suspects.of(AT, 8, 20) == [Mark(AT, 5, 9)]
    assert suspects.of(AT, 9, 20) == suspects.of(OTHER, 0, 20) == []
    assert suspects.of_letter("drain") == Mark(what="drain")
    assert suspects.of_letter("end") is None


def test_the_worst_of_several_marks_of_the_same_counts() -> None:
    """Several processes may have left one."""
    assert Suspects([Mark(what="drain"), Mark(what="drain", deaths=2)]).marks == [Mark(what="drain", deaths=2)]


def test_what_is_durable_or_has_ended_is_cleared() -> None:
    """A mark below a durable position means nothing any more."""
    suspects = Suspects([Mark(AT, 5, 9), Mark(what="drain")])
    assert not suspects.passed({AT: 8})
    assert suspects.passed({AT: 9, OTHER: 0})
    assert not suspects.ended("end")
    assert suspects.ended("drain")
    assert suspects.marks == []


def test_what_has_failed_its_task_is_tried_once_more() -> None:
    """By the next start of the task, alone; what is not judged keeps its deaths."""
    suspects = Suspects([Mark(AT, 7, 8, 0, 3), Mark(AT, 5, 9, deaths=2)])
    suspects.forgive()
    assert suspects.marks == [Mark(AT, 7, 8, 0, 1), Mark(AT, 5, 9, deaths=2)]


def test_a_death_counts_only_if_the_letter_ran_alone() -> None:
    """Otherwise another letter of the worker may be to blame."""
    before, now = [Mark(AT, 5, 9)], Mark(AT, 7, 8, 0)
    assert next_death(before, now, alone=True) == Mark(AT, 7, 8, 0, 2)
    assert next_death(before, now, alone=False) == Mark(AT, 7, 8, 0, 1)
    assert next_death([], Mark(AT, 1, 2, WHOLE), alone=False).deaths == 1


def test_deaths_of_a_whole_chunk_are_not_those_of_its_rows() -> None:
    """A row that had never run alone was judged: its chunk had died twice, the second time behind its last row."""
    chunk, row = Mark(AT, 5, 9, deaths=2), Mark(AT, 7, 8, 0)
    assert not next_death([chunk], row, alone=False).judged
    assert next_death([chunk], row, alone=True) == Mark(AT, 7, 8, 0, 2)
    assert next_death([chunk, row], row, alone=True) == Mark(AT, 7, 8, 0, 2)
    assert next_death([chunk], Mark(AT, 5, 9), alone=True).judged


def test_rows_are_said_in_spans_that_the_next_owner_goes_on_within() -> None:
    """Each row was said in a write of its own, while nothing else of the worker ran: minutes for a large chunk. A frame is one record."""
    for rows in (
        [(offset, 0) for offset in range(100, 50_100)],
        [(7, row) for row in range(50_000)],
        [(offset, row) for offset in range(100, 116) for row in range(3_000)],
        [(offset, row) for offset in range(3_000) for row in range(3)],
    ):
        fatal, left, owners = len(rows) // 3 * 2, [Mark(AT, rows[0][0], rows[-1][0] + 1)], 0
        while not any(mark.alone for mark in left):
            said = spans(rows, left, AT, "id")
            assert [one.begin for one in said] == [0, *(one.end for one in said[:-1])]
            assert said[-1].end == len(rows)
            assert len(said) <= SPANS * 2 * len(left) + 2
            died = next(one for one in said if one.begin <= fatal < one.end)
            assert not died.mark.judged
            assert died.end - died.begin == sum(died.mark.covers(*row) for row in rows)
            left = Suspects([died.mark, *left]).marks
            owners += 1
            assert owners <= 4
        (row,) = [mark for mark in left if mark.alone]
        assert (row.first, row.row, row.topic) == (*rows[fatal], "id")


def test_rows_that_no_one_suspects_are_said_in_spans_too() -> None:
    """A chunk may hold more than what is suspected of it; a row that ran alone is said by itself."""
    rows = [(offset, 0) for offset in range(200)]
    said = spans(rows, [Mark(AT, 50, 51, 0), Mark(AT, 40, 60)], AT, "")
    assert [one.end - one.begin for one in said if 40 <= one.begin < 60] == [1] * 20
    assert [(one.begin, one.end) for one in said if one.begin >= 60 or one.end <= 40] == [(0, 40), (60, 200)]
    assert spans([], [], AT, "") == []


def test_small_chunks_of_a_large_mark_are_said_in_large_spans() -> None:
    """After a kill, 501 records came in chunks of six, and each was said by itself: four minutes of a busy machine until they were out."""
    mark, said = Mark(AT, 1979, 2480), list[Span]()
    for begin in range(1979, 2480, 6):
        said += spans([(offset, 0) for offset in range(begin, min(begin + 6, 2480))], [mark], AT, "")
    assert len(said) == -(-501 // 6)
    assert sum(one.end - one.begin for one in said) == 501


def test_a_topic_that_was_made_again_has_other_records() -> None:
    """Its first record at that offset would be judged for what another one did. An id that is not known equals any."""
    mark = Mark(AT, 5, 6, 0, 2, topic="first")
    suspects = Suspects([mark])
    assert suspects.of(AT, 5, 6, "second") == []
    assert suspects.of(AT, 5, 6, "first") == suspects.of(AT, 5, 6) == [mark]
    assert not suspects.passed({AT: 5}, {AT: "first"})
    assert suspects.passed({AT: 0}, {AT: "second"})
    assert suspects.marks == []


def test_long_names_of_letters_are_short_and_differ_where_they_do() -> None:
    """A mark has room for a part of a name, and letters are known again by all of it."""
    names = ["drain", "t" * 500, "t" * 501, "\ud800" * 500]
    told = [brief(name) for name in names]
    assert told[0] == "drain"
    assert len(set(told)) == len(names)
    assert max(map(len, told)) < LONGEST_NAME + 20
