"""Records that failed: which policy applies to them, what a user is shown, and what a dead letter contains."""

from __future__ import annotations

import inspect
import zlib
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from ....core.batching.ranges import TOPIC_ID
from ....core.errors import LimitReached, StoreUnreadable, causes
from ....core.progress.frames import FROM_HEADER
from ...cancellation import said
from ...job.declare.checks import POLICIES
from ...job.steps.step import Policy, Step
from ...job.types.parking import PARK, Park
from ...records.frames.chunks import Chunk
from ...records.kafka.columns import OversizedData
from ...records.kafka.timestamps import EVENT_TIME, TIME_HEADER
from ...records.values.record import Record
from ..base.bad_records import BadRecord
from ..base.stateless import UserCodeError
from ..base.user_line import cut, own_traceback
from ..source.decode import SourceOp


def chunk_id(chunk: Chunk, offsets: Sequence[int], skipped: frozenset[int]) -> str:
    """An id that is the same whenever these records are processed again as the same chunk. After a crash they may be cut otherwise."""
    first = offsets[0] if offsets else chunk.next_position
    left_out = f"-without-{zlib.crc32(repr(sorted(skipped)).encode()):08x}" if skipped else ""
    return f"{chunk.at.stream}-{chunk.at.partition}-{first}-{chunk.next_position}{left_out}"


def each_of(error: BaseException) -> dict[int, BaseException]:
    """The errors of all rows of the chunk that fail like this one; empty if they are not known."""
    if isinstance(error, BadRecord):
        return {index: BadRecord(index, cause) for index, cause in error.all.items()}
    return dict(error.all) if isinstance(error, UserCodeError) else {}


def row_in_frame(chunk: Chunk, index: int) -> int:
    """Which row of its frame a row of a chunk of frames is: all rows of a frame have its offset."""
    offset = chunk.columns.offset
    return index - bisect_left(range(index), offset(index), key=offset)


def dead_letter(
    chunk: Chunk,
    index: int,
    error: BaseException,
    task: str,
    row: int | None = None,
    *,
    topic_id: str = "",
    source: Step | None = None,
) -> tuple[Any, Any, list[tuple[str, bytes]]]:
    """Key, value and headers of a dead letter: the record as it was read, with its origin and the error as headers. `row`: which row of its
    frame it is; None if it came in none. `topic_id`: that of its topic; empty if it is not known. `source`: the input that it came from."""
    cause = (error.cause if isinstance(error, BadRecord) else error.__cause__) or error
    step = error.step if isinstance(error, UserCodeError) else None
    whole = [("hg-offset-last", str(cause.last).encode())] if isinstance(cause, OversizedData) else []
    own = chunk.headers[index] if chunk.has_headers else []
    headers: list[tuple[str, Any]] = [
        *((EVENT_TIME if name == TIME_HEADER else name, value) for name, value in own),
        ("hg-topic", chunk.at.stream.encode()),
        *id_header(topic_id),
        ("hg-partition", str(chunk.at.partition).encode()),
        ("hg-offset", str(chunk.columns.offset(index)).encode()),
        *whole,
        *([] if row is None else _of_frame(chunk, index, row)),
        ("hg-timestamp", str(chunk.timestamps[index]).encode()),
        *failure_headers(task, step, cause, source=source),
    ]
    return chunk.keys[index] if chunk.has_keys else None, chunk.columns.value(index), headers


def id_header(topic_id: str) -> list[tuple[str, bytes]]:
    """Which topic of that name an offset belongs to, as a header of a dead letter; none if it is not known."""
    return [(TOPIC_ID, topic_id.encode())] if topic_id else []


def _of_frame(chunk: Chunk, index: int, row: int) -> list[tuple[str, bytes]]:
    """Which row of its frame a record is, and the record that it was made of, if the writer of the frame says it."""
    made_of = chunk.made_of(chunk.columns.offset(index), row)
    return [("hg-row", str(row).encode()), *([(FROM_HEADER, made_of.encode())] if made_of else [])]


def failure_headers(
    task: str, step: Step | None, cause: BaseException, *more: tuple[str, bytes], source: Step | None = None
) -> list[tuple[str, bytes]]:
    """Where and why a record failed, as headers of its dead letter. `step`: None if it was not decoded: then `source` is the input that it
    came from. `more`: others between them."""
    where = step.place if step else "decode"
    return [
        ("hg-task", task.encode()),
        ("hg-step", where.encode()),
        *more,
        ("hg-exception", said(cause).encode(errors="backslashreplace")[:2000]),
        ("hg-traceback", own_traceback(cause, step or source).encode(errors="backslashreplace")),
    ]


def readable(error: BaseException) -> BaseException:
    """The error that a user is shown for one with which a letter, or a task, failed: without frames that are none of his."""
    shown = error.cause if isinstance(error, BadRecord) else error
    cut(shown, error.step if isinstance(error, UserCodeError) else None)
    return shown


def traceback_of(error: BaseException, source: Step | None = None) -> str:
    """The traceback of the user's code, from the error with which a letter failed. `source`: the input, if the letter was a chunk of it."""
    if isinstance(error, BadRecord):
        return own_traceback(error.cause, source)
    return own_traceback(error.__cause__ or error, error.step if isinstance(error, UserCodeError) else source)


def is_of_no_record(error: BaseException) -> bool:
    """Whether no record is to blame: a store could not be read, or a task may not hold more."""
    return any(isinstance(one, StoreUnreadable | LimitReached) for one in causes(error))


def store_failed(error: BaseException) -> bool:
    """Whether the error was caused by a store that could not be read, no matter which code was reading it."""
    return any(isinstance(one, StoreUnreadable) for one in causes(error))


def policy_of(error: BaseException, source: SourceOp, app: Any) -> Policy:
    """The policy for a failed record: the nearest one wins (operator, input, app). What no record is to blame for always fails."""
    if is_of_no_record(error):
        return "fail"
    step = source.step
    if isinstance(error, UserCodeError):
        return error.step.on_error or step.on_error_behind or app.on_error
    # for example a table cannot store a value: user code caused this, but no particular operator
    if not isinstance(error, BadRecord):
        return step.on_error_behind or app.on_error
    return step.on_bad_data or app.on_bad_data


def answer_of(found: Any, policy: str = "it") -> str | Park:
    """What an error policy has answered; None is "skip". Raises `ValueError` for what is no answer."""
    if inspect.iscoroutine(found):
        found.close()
    if found is None:
        return "skip"
    if isinstance(found, Park):
        return found
    if found == PARK:
        return Park()
    if found not in POLICIES:
        raise ValueError(f"{policy} answered {found!r:.80}, which is not one of {', '.join(POLICIES)}")
    return found


def answer_for_result(policy: Any, record: Record[Any, Any], cause: BaseException) -> str:
    """What becomes of a row that no chunk has: such rows are not waited for, so a function must answer at once. There is no record to park:
    a dead letter takes its place."""
    answer = answer_of(policy(record, cause) if callable(policy) else policy, "the error policy for a result")
    return "dead_letter" if isinstance(answer, Park) else answer
