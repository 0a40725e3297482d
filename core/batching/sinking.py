"""Bounded batches that a sink writes: who writes them, what each is called, and whether the target has it already.

A target with transactions remembers for each (job, task, stage) the greatest grant that has written, and the number of the last batch. Both
change in the transaction that writes the rows.

Promises:

- A batch whose number the target remembers is not written again, whoever asks. Batches come one at a time, in the order of their numbers.
- An owner whose grant is less than the one that the target remembers writes nothing.
- Numbers that begin again (another job after `reset`, another book after `tables clear`) are not taken for old ones.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import HeadgateError


@dataclass(frozen=True, slots=True)
class SinkOwner:
    """Who writes: a task under a grant, with one book of batches.

    >>> SinkOwner("sales/1", "5f", "Partition 3", "orders", 2, 0x18C2F).series
    '5f/Partition 3/orders/18c2f'
    """

    job: str
    uuid: str
    """The id of the job: `reset` makes another one."""
    task: str
    stage: str
    grant: int
    """The greater grant is the later owner."""
    begun_ms: int
    """When its first batch began. Numbers of batches begin again with it."""

    @property
    def series(self) -> str:
        """The name of the batches whose numbers go on."""
        return f"{self.uuid}/{self.task}/{self.stage}/{self.begun_ms:x}"


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """What a sink learns of a batch. It stays the same, however often the batch is written, and so do its rows.

    `offsets`: by input partition (`orders:3`), the first and the last offset that its rows came from.
    """

    id: str
    number: int
    rows: int
    closed_by: str
    offsets: dict[str, tuple[int, int]]


class Remembered(NamedTuple):
    """What a target remembers of the batches of a task and stage."""

    grant: int
    begun_ms: int
    number: int
    """The last batch; less than 0 if there is none."""
    note: str
    """What was said of the last batch when it was committed."""


def note_of_done(remembered: Remembered, owner: SinkOwner, number: int) -> str | None:
    """The note of a batch that the target has already, or None if the batch is to be written. Raises `FencedSink`.

    >>> owner = SinkOwner("sales/1", "5f", "Partition 3", "orders", 2, 0x18C2F)
    >>> note_of_done(Remembered(1, 0x18C2F, 6, ""), owner, 7), note_of_done(Remembered(1, 0x18C2F, 7, "[]"), owner, 7)
    (None, '[]')
    >>> note_of_done(Remembered(1, 0x10000, 9, ""), owner, 7) is None
    True
    """
    if remembered.grant > owner.grant:
        raise FencedSink(
            f"{owner.task} writes batch {number} of '{owner.stage}' under grant {owner.grant}, and the target has "
            f"seen grant {remembered.grant}",
            remedy="none needed: another worker owns the task now",
        )
    if remembered.begun_ms != owner.begun_ms or remembered.number < number:
        return None
    return remembered.note if remembered.number == number else ""


def note_of(left_out: Sequence[tuple[int, str]]) -> str:
    """The note of a batch without these rows: their places, and why.

    >>> note_of([(3, "too long")]), note_of([])
    ('[[3,"too long"]]', '')
    """
    return json.dumps(left_out, separators=(",", ":")) if left_out else ""


def left_out_of(note: str) -> list[tuple[int, str]]:
    """The rows that a batch was committed without.

    >>> left_out_of('[[3,"too long"]]'), left_out_of("")
    ([(3, 'too long')], [])
    """
    found: list[list[Any]] = json.loads(note) if note else []
    return [(int(place), str(why)) for place, why in found]


class FencedSink(HeadgateError):
    """A later owner of the task has written to the target."""
