"""Which letters are suspected of taking their worker with them, and what follows: a letter that was under way when its process died.

    once        it runs alone: no other letter of the worker runs meanwhile, and its records run one at a time
    again       the record that was under way is judged by its error policy; a letter without records fails its task, by name

A mark says that a letter is under way. It is left behind only by a process that died or stood still in the middle of it: killed, out of
memory, or stalled and fenced. An innocent letter that was under way in a dying process runs alone once and is cleared.

Promises: a record is judged only after a process has died while that record ran alone. Marks below a durable position mean nothing. What
has failed its task runs once more when the task starts again: its code may have been corrected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from types import MappingProxyType

from ..names import StreamPartition

_NO_IDS: Mapping[StreamPartition, str] = MappingProxyType({})
WHOLE = -1
"""All rows of a mark's records."""
LONGEST_NAME = 160


@dataclass(frozen=True, slots=True)
class Mark:
    """A letter that is or was under way: records of a partition, or another letter that `what` names."""

    at: StreamPartition | None = None
    first: int = 0
    upto: int = 0
    row: int = WHOLE
    """The row that ran alone: its number among the rows of the record at `first`. A frame is one record with many rows."""
    deaths: int = 1
    """How many processes have ended while it was under way, if this one ends, too."""
    what: str = ""
    topic: str = ""
    """The id of the topic; empty if it is not known. A topic that was made again has other records at these offsets."""

    @property
    def alone(self) -> bool:
        """Whether it is a single row that ran alone."""
        return self.at is not None and self.row != WHOLE

    @property
    def judged(self) -> bool:
        """Whether it must not run any more."""
        if self.alone or self.at is None:
            return self.deaths >= 2
        return self.deaths >= 3

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


class Suspects:
    """What the predecessors of a task left behind, as far as it still matters."""

    def __init__(self, left: Iterable[Mark] = ()) -> None:
        self.marks: list[Mark] = []
        for mark in sorted(left, key=lambda one: (-one.deaths, one.row == WHOLE)):
            if not any(self._says_more(known, mark) for known in self.marks):
                self.marks.append(mark)

    def _says_more(self, known: Mark, mark: Mark) -> bool:
        """Whether a mark adds nothing to one with at least as many deaths. A judged row does not clear the rows beside it."""
        if mark.at is None:
            return known.what == mark.what and known.at is None
        return (known.at, known.first, known.upto, known.row) == (mark.at, mark.first, mark.upto, mark.row)

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
        """What is judged has failed its task, and a person is told: the next start of the task may run it alone once more."""
        self.marks = [replace(mark, deaths=1) if mark.judged else mark for mark in self.marks]

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
    """The mark of a suspected letter that runs again. If it does not run alone, another letter may be to blame, and nothing is added.

    >>> next_death([Mark(what="drain")], Mark(what="drain"), alone=True).deaths
    2
    """
    before = max((one.deaths for one in marks), default=0)
    return replace(mark, deaths=max(1, before + alone))
