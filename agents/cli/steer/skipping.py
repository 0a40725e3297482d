"""`headgate seek JOB STREAM:PARTITION --skip OFFSET[.ROW]`: leaves out one record on which a task fails, and moves no position.

Decides: what the record is. It must be one that the task has not passed: the record at the offset, or the row of the frame there. The plan
makes the checks of the act, and reads the record, so it says how many rows are left out.
"""

from __future__ import annotations

from typing import Any

import click

from ....core.coordination.state import JobState
from ....core.errors import HeadgateError
from ....core.names import StreamPartition
from ....core.orders import SKIP
from ....core.progress.frames import HEADER, ArrowFrame, BatchFrame, FrameError, UserFrame, decode
from ...kafka.scan import scan_topic
from ..options import Target


def skipped_place(text: str) -> list[Any]:
    """What is skipped, in the format of a request.

    >>> skipped_place("3223.17"), skipped_place("7")
    (['skip', 3223, 17], ['skip', 7])
    """
    numbers = text.split(".")
    if len(numbers) > 2 or not all(one.isdecimal() and len(one) < 19 for one in numbers):
        raise click.UsageError(f"'{text}' is not OFFSET[.ROW]")
    return [SKIP, *map(int, numbers)]


async def rows_at(to: Target, state: JobState, at: StreamPartition, goal: list[Any]) -> int:
    """How many rows are left out. Raises if the record does not exist, or is none that can be left out."""
    _, offset, *row = goal
    async for record in scan_topic(to.client, at.stream, partition=at.partition, first=offset):
        if record.offset != offset:
            break
        return _chosen(at, offset, row, _rows(is_own(state, at.stream), at, record))
    raise HeadgateError(
        f"there is no record at {at} offset {offset}",
        remedy="the offset that the failed task names in `headgate status`",
    )


def _rows(own: bool, at: StreamPartition, record: Any) -> int | None:
    """The rows of the frame that a record holds; None if it holds none, or one that cannot be read."""
    if not own and not any(name == HEADER for name, _ in record.headers):
        return None
    try:
        frame = decode(record.value or b"")
    except FrameError:
        return None
    if isinstance(frame, UserFrame):
        return 1
    if isinstance(frame, BatchFrame):
        return len(frame.values)
    if isinstance(frame, ArrowFrame):
        return frame.records
    raise HeadgateError(
        f"the record at {at} offset {record.offset} is a control message, which every task needs",
        remedy="the offset that the failed task names in `headgate status`",
    )


def _chosen(at: StreamPartition, offset: int, row: list[int], rows: int | None) -> int:
    if not row:
        return 1 if rows is None else rows
    if rows is None:
        raise HeadgateError(f"the record at {at} offset {offset} has no rows", remedy=f"--skip {offset}")
    if row[0] >= rows:
        raise HeadgateError(
            f"the frame at {at} offset {offset} has no row {row[0]}", remedy=f"it has {rows}, counted from 0"
        )
    return 1


def not_passed(at: StreamPartition, offset: int, before: int | None) -> None:
    """Raise if the task has passed the record."""
    if before is not None and offset < before:
        raise HeadgateError(
            f"the record at {at} offset {offset} has been processed: the next one is {before}",
            remedy="only a record that was not processed can be left out",
        )


def is_own(state: JobState, stream: str) -> bool:
    """Whether the stream is between stages of the job."""
    return state.model is not None and stream in state.model.producers
