"""Handles a failed chunk: finds the records that fail, asks their policies, and runs the chunk again without them.

Promises: the nearest policy wins (operator, input, app). A record that is left out is counted; if its policy says so, it becomes a dead
letter, written with the same letter as the output of the other records. If the policy for one record is to fail, nothing of the chunk is
kept.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ....core.errors import EnvironmentFault, HeadgateError, causes
from ...cancellation import Unasked, passes, said
from ...job.steps.step import Step
from ...job.types.arguments import shown
from ...job.types.parking import Park
from ...learning import MustLearn
from ...patience import timed_out_in_drain
from ...records.columns.arrow_take import NoFrame
from ...records.frames.chunks import Chunk
from ...records.values.record import Record
from ..base.bad_records import BadRecord
from ..base.stateless import UserCodeError
from ..base.user_line import user_line
from ..failures.failures import answer_of, dead_letter, each_of, policy_of, row_in_frame
from ..failures.letters import bury
from ..failures.parked import GivenUp, ParkedChunk, Sick
from ..source.key_test import KeysApart
from .bisection import find_bad, has_effects, keeps_state
from .pipeline import Pipeline

PolicyAnswer = str | Park | GivenUp


@dataclass(frozen=True, slots=True)
class Recovered:
    """The chunk is in the ready buffer, without the records in `left_out` (index → why)."""

    greatest: int | None
    left_out: dict[int, BaseException] = field(default_factory=dict[int, BaseException])
    dead: int = 0
    parked: frozenset[int] = frozenset()
    """Those of `left_out` that are parked."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing of the chunk is kept."""

    why: str
    error: BaseException
    final: bool = False
    """Whether trying again is pointless."""
    source: Step | None = None
    """The input of the chunk that failed; None if it was no chunk."""
    place: str = ""
    """The line of the user's code and the record that could not be read; empty if it was something else."""


async def recover(
    pipeline: Pipeline, chunk: Chunk, error: BaseException, *, drop: Callable[[], None]
) -> Recovered | Failed:
    """Handle a chunk that has just raised `error`. `drop` discards what the chunk changed in tables; what `drop` raises is not caught.

    Raises `MustLearn` when something must be learned first; nothing has then been decided about any record.
    """
    drop()
    if isinstance(error, KeysApart) or isinstance(error.__cause__, NoFrame) or timed_out_in_drain(error):
        # no record is to blame, and no policy may leave out all of them
        return Failed(str(error), error, final=True)
    left_out = _unread(pipeline, chunk, error)
    if left_out:
        try:
            return await _without(pipeline, chunk, left_out)
        except MustLearn:
            raise
        except Exception:  # noqa: BLE001 - other rows fail, too; they are found below
            drop()
    bad = await find_bad(pipeline, chunk, error, drop) if len(chunk) else [(0, error)]
    drop()
    answers: dict[int, tuple[BaseException, PolicyAnswer]] = {}
    for index, cause in bad:
        try:
            answer = await _answer(pipeline, chunk, index, cause)
        except BaseException as broken:  # a policy is user code, too
            if passes(broken):
                raise
            source = pipeline.sources[chunk.at.stream].step
            policy = f"the error policy for {_where(pipeline, chunk, index)}"
            return Failed(f"{user_line(broken, source)}: {policy} raised {said(broken)}", broken, source=source)
        if _final(answer) == "fail":
            return _failed(pipeline, chunk, index, cause)
        answers[index] = cause, answer
    if not bad:
        return _all_failed(chunk, error)
    try:
        return await _without(pipeline, chunk, answers)
    except MustLearn:
        raise
    except Exception as again:  # noqa: BLE001 - user code may raise anything, once more
        drop()
        return _all_failed(chunk, again)


def _unread(pipeline: Pipeline, chunk: Chunk, error: BaseException) -> dict[int, tuple[BaseException, PolicyAnswer]]:
    """The rows that fail, if all of them are known and no one has to be asked about them: the chunk can run without them."""
    if not isinstance(error, BadRecord | UserCodeError):
        return {}
    policy = policy_of(error, pipeline.sources[chunk.at.stream], pipeline.app)
    if callable(policy) or policy == "fail":
        return {}
    answer = answer_of(policy)
    return {index: (one, _in_chunk(pipeline, chunk, index, answer)) for index, one in each_of(error).items()}


async def judged(
    pipeline: Pipeline,
    chunk: Chunk,
    bad: Mapping[int, BaseException],
    *,
    each: Callable[[int], Awaitable[None]],
    drop: Callable[[], None],
) -> Recovered | Failed:
    """Run a chunk without these rows, which must not run at all: their policies decide about them. The others run one at a time; `each` is
    called before each of them, and with -1 after the last. A row that raises is left out, too, if its policy says so.

    `drop`: see `recover`.
    """
    answers: dict[int, tuple[BaseException, PolicyAnswer]] = {}
    for index, cause in sorted(bad.items()):
        if index in chunk.skipped:
            continue
        answer = await _answer(pipeline, chunk, index, cause)
        if isinstance(answer, Park):  # it would take the next worker with it
            answer = "dead_letter"
        if _final(answer) == "fail":
            return _failed(pipeline, chunk, index, cause, final=True)
        answers[index] = cause, answer
    running = -1

    async def begins(index: int) -> None:
        nonlocal running
        running = index
        await each(index)

    stateful = keeps_state(pipeline, chunk.at.stream)
    while True:
        # a row that raised may have done so because of one before it, whose state cannot be kept: that shows in front of it
        looks = frozenset(answers.keys() - bad.keys() if stateful else ())
        try:
            return await _without(pipeline, chunk, answers, partial(pipeline.by_row, each=begins, looks=looks))
        except MustLearn:
            raise
        except Exception as error:  # noqa: BLE001 - user code and data may raise anything; the policy decides
            drop()
            index, cause = running, error
            answer = await _answer(pipeline, chunk, index, cause) if index >= 0 else "fail"
            if _final(answer) == "fail" and (index < 0 or (stateful and not has_effects(error))):
                index, cause = await _first_to_raise(pipeline, chunk, answers, begins, index, error, drop)
                answer = await _answer(pipeline, chunk, index, cause)
                for later in [one for one in looks if one > index]:
                    del answers[later]
            if index in answers:
                return _all_failed(chunk, error)
            if _final(answer) == "fail":
                return _failed(pipeline, chunk, index, cause)
            answers[index] = cause, answer


async def _first_to_raise(
    pipeline: Pipeline,
    chunk: Chunk,
    left_out: Mapping[int, object],
    each: Callable[[int], Awaitable[None]],
    running: int,
    error: BaseException,
    drop: Callable[[], None],
) -> tuple[int, BaseException]:
    """The first row with which the rows up to it raise, and what: rows have run one by one, and the row `running`, or what they have done
    together (-1), has raised. A bisection by the number of rows, since each may matter to those behind it."""
    good, raises = 0, len(chunk) if running < 0 else running + 1
    upto = raises // 2 if running < 0 else running
    while raises - good > 1:
        try:
            await pipeline.by_row(chunk, frozenset(left_out), each=each, upto=upto)
            good = upto
        except MustLearn:
            raise
        except Exception as earlier:  # noqa: BLE001 - as in judged
            raises, error = upto, earlier
        pipeline.drop()
        drop()
        upto = (good + raises) // 2
    return raises - 1, error


async def _without(
    pipeline: Pipeline,
    chunk: Chunk,
    left_out: dict[int, tuple[BaseException, PolicyAnswer]],
    run: Callable[[Chunk, frozenset[int]], Awaitable[int | None]] | None = None,
) -> Recovered:
    """Run the chunk without these rows, each with its error and the answer of its policy. If it raises, nothing is kept."""
    skip, parked = frozenset(left_out), pipeline.parked
    parked.sick = {i: Sick(cause, answer) for i, (cause, answer) in left_out.items() if isinstance(answer, Park)}
    parked.given_up = frozenset(i for i, (_, answer) in left_out.items() if isinstance(answer, GivenUp))
    try:
        if not len(chunk):
            greatest = None
        else:
            greatest = await (run or pipeline.chunk)(chunk, skip)
        failed = {i: cause for i, (cause, _) in left_out.items() if i not in parked.kept or i in parked.failed}
        found = [(i, cause, answer) for i, (cause, answer) in left_out.items() if i not in parked.kept]
        dead = [(i, cause) for i, cause, answer in found if _final(answer) == "dead_letter"]
        topic_id = pipeline.topic_id(chunk.at)
        for index, cause in dead:
            row = row_of(pipeline, chunk, index)
            source = pipeline.sources[chunk.at.stream].step
            bury(pipeline, *dead_letter(chunk, index, cause, pipeline.task, row, topic_id=topic_id, source=source))
    except BaseException:
        pipeline.drop()
        raise
    finally:
        parked.sick, parked.given_up = {}, frozenset()
    for cause in failed.values():
        pipeline.failed(pipeline.sources[chunk.at.stream].step, cause)
    pipeline.count("records_skipped", len(found) - len(dead))
    pipeline.count("dead_letters", len(dead))
    return Recovered(greatest, failed, len(dead), frozenset(parked.failed))


def _final(answer: PolicyAnswer) -> str | Park:
    """What becomes of the record."""
    return answer.then if isinstance(answer, GivenUp) else answer


def _in_chunk(pipeline: Pipeline, chunk: Chunk, index: int, answer: str | Park) -> PolicyAnswer:
    """What an answer means for this record: one that has been tried often enough is given up, and what is no record cannot wait."""
    if not isinstance(answer, Park):
        return answer
    if isinstance(chunk, ParkedChunk):
        row = chunk.rows[index]
        return GivenUp(answer.then) if not row.untried and row.tries + 1 >= answer.times else answer
    return answer if chunk.is_data and pipeline.may_park(chunk.at.stream) else "dead_letter"


async def _answer(pipeline: Pipeline, chunk: Chunk, index: int, error: BaseException) -> PolicyAnswer:
    policy: Any = policy_of(error, pipeline.sources[chunk.at.stream], pipeline.app)
    if callable(policy):
        headers = tuple(chunk.headers[index]) if chunk.has_headers else ()
        record = Record(chunk.keys[index], chunk.values[index], chunk.timestamps[index], headers)
        cause = error.cause if isinstance(error, BadRecord) else error.__cause__
        found = policy(record, cause or error)
        policy = await pipeline.patience.within(shown(policy), found) if inspect.isawaitable(found) else found
    return _in_chunk(pipeline, chunk, index, answer_of(policy))


def may_pass(error: BaseException) -> bool:
    """Whether the environment of the task has failed (a broker, a disk) and may recover; otherwise a person must intervene.

    Of several errors that were raised together, the first one decides: it ended the others.

    >>> may_pass(OSError(28, "No space left on device")), may_pass(ValueError())
    (True, False)
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return any(isinstance(one, EnvironmentFault | OSError | Unasked) or _of_kafka(one) for one in causes(error))


def _of_kafka(error: BaseException) -> bool:
    """Whether a Kafka client has raised it. The check goes by the name of the class, so that it does not import the client."""
    return any((base.__module__, base.__name__) == ("aiokafka.errors", "KafkaError") for base in type(error).__mro__)


def only(error: BaseException) -> BaseException:
    """The error itself, if a group has no other."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def reason_of(error: BaseException) -> str:
    """The message of an error for people."""
    error = only(error)
    return str(error) if isinstance(error, HeadgateError) else said(error)


def because(what: str, error: BaseException) -> str:
    """Why something failed, for people: behind the line of the user's code, if it is an error of user code."""
    return error.of(what) if isinstance(error, UserCodeError) else f"{what}: {error}"


def _failed(pipeline: Pipeline, chunk: Chunk, index: int, error: BaseException, *, final: bool = False) -> Failed:
    """The chunk has failed on this row. What cannot be read has the line of its input's declaration."""
    source, where = pipeline.sources[chunk.at.stream].step, _where(pipeline, chunk, index)
    place = f"{user_line(error.cause, source)}: {where}" if isinstance(error, BadRecord) else ""
    why = f"{place}: {error}" if place else because(where, error)
    return Failed(f"{why}{_passable(pipeline, chunk, index)}", error, final, source, place)


def _all_failed(chunk: Chunk, error: BaseException) -> Failed:
    return Failed(because(f"chunk of {chunk.at} up to {chunk.next_position}", error), error)


def _where(pipeline: Pipeline, chunk: Chunk, index: int) -> str:
    offset = chunk.columns.offset(index) if len(chunk.columns) else chunk.next_position - 1
    where = f"record at {chunk.at.stream}[{chunk.at.partition}] offset {offset}"
    row = row_of(pipeline, chunk, index)
    if row is None:
        return where
    made_of = chunk.made_of(offset, row)
    return f"{where}, row {row} of the frame" + (f", which was made of {made_of}" if made_of else "")


def row_of(pipeline: Pipeline, chunk: Chunk, index: int) -> int | None:
    """Which row of its frame a record is; None if the stream has no frames, or the frame cannot be read."""
    if isinstance(chunk, ParkedChunk):
        return chunk.rows[index].row
    if not pipeline.sources[chunk.at.stream].step.framed or chunk.bad is not None:
        return None
    return row_in_frame(chunk, index)


def _passable(pipeline: Pipeline, chunk: Chunk, index: int) -> str:
    """The command that leaves out a record of a stream of frames: no position is between two of its rows."""
    step, row = pipeline.sources[chunk.at.stream].step, row_of(pipeline, chunk, index)
    if row is None and (chunk.bad is None or step.foreign):
        return ""
    place = chunk.columns.offset(index) if row is None else f"{chunk.columns.offset(index)}.{row}"
    job = pipeline.app.job
    return (
        f"; to leave out this record alone: headgate seek {job} {chunk.at.stream}:{chunk.at.partition} --skip {place}"
    )
