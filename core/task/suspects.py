"""Which letters are suspected of taking their worker with them, and what follows: a letter that was under way when its process died.

    once        it runs alone: no other letter of the worker runs meanwhile, and its records run one at a time
    again       the record that was under way is judged by its error policy; a letter without records runs alone once more
    a third time   a letter without records fails its task, by name: that name is all that is known of it, and processes die of other causes

A mark says that a letter is under way. It is left behind only by a process that died or stood still in the middle of it: killed, out of
memory, or stalled and fenced. An innocent letter that was under way in a dying process runs alone once and is cleared.

Other locations hear of a chunk that runs row by row in spans of rows, since each word costs a write (`spans`). A successor that knows only
the span goes on within it, in smaller spans, until a single row is known.

Promises: a record is judged only after a process has died while that record ran alone, and a span of rows is never judged. Marks below a
durable position mean nothing. What has failed its task runs once more when the task starts again: its code may have been corrected.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import groupby
from types import MappingProxyType

from ..names import StreamPartition

_NO_IDS: Mapping[StreamPartition, str] = MappingProxyType({})
WHOLE = -1
"""All rows of a mark's records."""
LONGEST_NAME = 160
SPANS = 32
"""A span is about this part of a mark, or what one chunk has of it: smaller chunks make more spans."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A letter that is or was under way: records of a partition, or another letter that `what` names."""

    at: StreamPartition | None = None
    first: int = 0
    upto: int = 0
    row: int = WHOLE
    """The row that ran alone, or the first of several: its number among the rows of the record at `first`. A frame is one record with many
    rows."""
    deaths: int = 1
    """How many processes have ended while it was under way, if this one ends, too."""
    what: str = ""
    topic: str = ""
    """The id of the topic; empty if it is not known. A topic that was re-created has other records at these offsets."""
    rows: int = 1
    """Of how many rows, from `row` on, one was under way."""

    @property
    def alone(self) -> bool:
        """Whether it is a single row that ran alone."""
        return self.at is not None and self.row != WHOLE and self.rows == 1

    @property
    def enough(self) -> int:
        """How many deaths judge it."""
        return 2 if self.alone else 3

    @property
    def judged(self) -> bool:
        """Whether it must not run any more."""
        return self.deaths >= self.enough

    def of_another(self, topic: str) -> bool:
        """Whether it is of another topic than this one, of the same name.

        >>> Mark(topic="a").of_another("b"), Mark(topic="a").of_another(""), Mark().of_another("b")
        (True, False, False)
        """
        return bool(self.topic and topic) and self.topic != topic

    def meets(self, at: StreamPartition, first: int, upto: int) -> bool:
        """Whether it concerns these records.

        >>> Mark(StreamPartition("in", 0), 5, 8).meets(StreamPartition("in", 0), 7, 9)
        True
        """
        return self.at == at and self.first < upto and first < self.upto

    def covers(self, offset: int, row: int) -> bool:
        """Whether it concerns this row of the record at this offset of its partition.

        >>> mark = Mark(StreamPartition("in", 0), 5, 6, 10, rows=5)
        >>> mark.covers(5, 14), mark.covers(5, 15), mark.covers(6, 10)
        (True, False, False)
        """
        return self.first <= offset < self.upto and (self.row == WHOLE or self.row <= row < self.row + self.rows)


@dataclass(frozen=True, slots=True)
class Span:
    """Rows of a chunk, from the number `begin` to before `end`, that are said together."""

    begin: int
    end: int
    mark: Mark


class Suspects:
    """What the predecessors of a task left behind, as far as it still matters."""

    def __init__(self, left: Iterable[Mark] = ()) -> None:
        self.marks: list[Mark] = []
        for mark in sorted(left, key=lambda one: (-one.deaths, one.row == WHOLE)):
            if not any(self._says_more(known, mark) for known in self.marks):
                self.marks.append(mark)

    def _says_more(self, known: Mark, mark: Mark) -> bool:
        """Whether a mark adds nothing to one with at least as many deaths. A judged row does not clear the rows alongside it."""
        if mark.at is None:
            return known.what == mark.what and known.at is None
        return replace(known, deaths=mark.deaths, topic=mark.topic) == mark

    def of(self, at: StreamPartition, first: int, upto: int, topic: str = "") -> list[Mark]:
        """The marks of these records, those with the most deaths first."""
        return [mark for mark in self.marks if mark.meets(at, first, upto) and not mark.of_another(topic)]

    def of_letter(self, what: str) -> Mark | None:
        """The mark of this letter without records."""
        return next((mark for mark in self.marks if mark.at is None and mark.what == what), None)

    def ended(self, what: str) -> bool:
        """A letter without records has ended. Returns whether a mark was cleared by that."""
        return self._keep([mark for mark in self.marks if mark.at is not None or mark.what != what])

    def passed(self, durable: Mapping[StreamPartition, int], topics: Mapping[StreamPartition, str] = _NO_IDS) -> bool:
        """Everything below these positions is durable. `topics`: the ids of the topics that they belong to, as far as they are
        known. Returns whether marks were cleared by that."""

        def matters(mark: Mark) -> bool:
            if mark.at is None:
                return True
            return durable.get(mark.at, 0) < mark.upto and not mark.of_another(topics.get(mark.at, ""))

        return self._keep([mark for mark in self.marks if matters(mark)])

    def forgive(self) -> None:
        """What is judged has failed its task, and a person is informed: the next start of the task may run it alone once more."""
        self.marks = [replace(mark, deaths=mark.enough - 1) if mark.judged else mark for mark in self.marks]

    def _keep(self, kept: list[Mark]) -> bool:
        cleared, self.marks = len(kept) < len(self.marks), kept
        return cleared


def brief(name: str) -> str:
    """The name of a letter as a mark has it. Users name timers, so a name may be of any length; where two differ, so do these.

    >>> brief("watermark of in"), brief("work a/" + "b" * 500)[155:]
    ('watermark of in', 'bbbbb… c0ca81b14f2e257c')
    """
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[:LONGEST_NAME]}… {sha256(name.encode(errors='surrogatepass')).hexdigest()[:16]}"


def next_death(marks: Iterable[Mark], mark: Mark, *, alone: bool) -> Mark:
    """The mark of a suspected letter that runs again. If it does not run alone, another letter may be to blame, and nothing is added. Of
    the deaths of a whole chunk, or of a span of rows, one counts for a single row: it was not the only one that ran.

    >>> next_death([Mark(what="drain")], Mark(what="drain"), alone=True).deaths
    2
    """
    before = max((1 if mark.alone and not one.alone else one.deaths for one in marks), default=0)
    return replace(mark, deaths=max(1, before + alone))


def spans(rows: Sequence[tuple[int, int]], marks: Iterable[Mark], at: StreamPartition, topic: str) -> list[Span]:
    """The spans in which the rows of a suspected chunk are said. A span is one of about `SPANS` parts of the smallest mark that covers its
    rows. Rows that no mark covers are one span: they only run beside suspected ones. A span is made of whole records, or lies within one;
    that of a single row is the mark of this row.

    `rows`: of each row, in order, the offset of its record and its number there. `marks`: those that meet the chunk.

    >>> at = StreamPartition("in", 0)
    >>> [one.mark.upto for one in spans([(n, 0) for n in range(128)], [Mark(at, 0, 128)], at, "")][:3]
    [4, 8, 12]
    """
    reach = sorted((_reach(rows, one) for one in marks), key=lambda one: one[0] - one[1])
    owner = [-1] * len(rows)
    for number, (begin, end, _) in enumerate(reach):
        owner[begin:end] = [number] * (end - begin)
    found: list[Span] = []
    begin = 0
    for number, alike in groupby(owner):
        end = begin + sum(1 for _ in alike)
        most = end - begin if number < 0 else -(-max(end - begin, reach[number][2]) // SPANS)
        while begin < end:
            upto = _cut(rows, begin, min(begin + most, end))
            found.append(Span(begin, upto, _said(rows, begin, upto, at, topic)))
            begin = upto
    return found


def _reach(rows: Sequence[tuple[int, int]], mark: Mark) -> tuple[int, int, int]:
    """The rows that a mark covers, from a number to before another one, and how many it covers in all, here and in other chunks."""
    if mark.row == WHOLE:
        return bisect_left(rows, (mark.first, 0)), bisect_left(rows, (mark.upto, 0)), mark.upto - mark.first
    begin, end = (mark.first, mark.row), (mark.first, mark.row + mark.rows)
    return bisect_left(rows, begin), bisect_left(rows, end), mark.rows


def _cut(rows: Sequence[tuple[int, int]], begin: int, end: int) -> int:
    """Where a span from `begin` to at most `end` stops, so that it has whole records or lies within one."""
    first = rows[begin][0]
    if rows[begin][1]:
        return min(end, bisect_left(rows, (first + 1, 0)))
    last = rows[end - 1][0]
    if last == first or end == len(rows) or rows[end][0] != last:
        return end
    return bisect_left(rows, (last, 0))


def _said(rows: Sequence[tuple[int, int]], begin: int, end: int, at: StreamPartition, topic: str) -> Mark:
    (first, row), last = rows[begin], rows[end - 1][0]
    whole = row == 0 and (end == len(rows) or rows[end][0] != last)
    if end - begin == 1 or not whole:
        return Mark(at, first, first + 1, row, topic=topic, rows=end - begin)
    return Mark(at, first, last + 1, topic=topic)
