"""Planted bugs of a further kind: an answer without its effect, and an effect without its cause (see `planted`)."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

from headgate.core.errors import EnvironmentFault

from .job import OUTPUT
from .plant import Plant

Patches = list[tuple[Any, str, Any]]
LATER_S = 1.0
"""How much later than their positions the planted outputs go out."""
IDLE_S, PERIOD_S = 60.0, 90.0
"""For how many seconds of how many the planted leader grants nothing."""


def bounded_input_ends_early() -> Patches:
    from headgate.core.task.inputs import Inputs

    original = Inputs.advance

    def advance(self: Inputs, at: Any, upto: int) -> bool:
        until = self.until.get(at)
        if until is None:
            return original(self, at, upto)
        self.until[at] = max(0, until - 3)
        try:
            return original(self, at, upto)
        finally:
            self.until[at] = until

    return [(Inputs, "advance", advance)]


def bound_taken_three_early() -> Patches:
    from headgate.core.coordination.leader.leader import Leader

    original = Leader.on_BoundsResolved

    def on_bounds(self: Leader, event: Any, now: Any) -> Any:
        untils = {stream: tuple(max(0, one - 3) for one in ends) for stream, ends in event.untils.items()}
        return original(self, replace(event, untils=untils), now)

    return [(Leader, "on_BoundsResolved", on_bounds)]


def seek_does_nothing() -> Patches:
    from headgate.core.task.seeks import Seeks

    original = Seeks._go

    def go(self: Seeks, at: Any, order: Any, offset: int) -> Any:
        return original(self, at, order, offset if order is None else self.inputs.positions[at])

    return [(Seeks, "_go", go)]


def seek_lands_one_off() -> Patches:
    from headgate.core.task.seeks import Seeks

    original = Seeks._go

    def go(self: Seeks, at: Any, order: Any, offset: int) -> Any:
        return original(self, at, order, offset + 1 if order is not None and order.to != "newest" else offset)

    return [(Seeks, "_go", go)]


def seek_answered_before_its_commit() -> Patches:
    from headgate.core.orders import SeekApplied
    from headgate.core.task.protocol import SendReport
    from headgate.core.task.seeks import Seeks

    original = Seeks._go

    def go(self: Seeks, at: Any, order: Any, offset: int) -> Any:
        said = original(self, at, order, offset)
        return [*said, SendReport(SeekApplied(self.task, order.request))] if order is not None and said else said

    return [(Seeks, "_go", go)]


def pause_not_obeyed() -> Patches:
    from headgate.core.task.inputs import Inputs

    original = Inputs._why_closed

    def why_closed(self: Inputs, at: Any, one: Any, run: Any, **rest: Any) -> str:
        return original(self, at, one, replace(run, paused_job=False, paused_streams=frozenset()), **rest)

    return [(Inputs, "_why_closed", why_closed)]


def resume_not_obeyed() -> Patches:
    from headgate.core.task.inputs import PAUSED, Inputs

    original = Inputs._why_closed

    def why_closed(self: Inputs, at: Any, one: Any, run: Any, *, draining: bool) -> str:
        why = original(self, at, one, run, draining=draining)
        return PAUSED if not (why or draining) and self.closed.get(at) == PAUSED else why

    return [(Inputs, "_why_closed", why_closed)]


def pause_not_passed_on() -> Patches:
    from headgate.core.coordination.state import JobState

    original = JobState.run_view

    def run_view(self: JobState) -> Any:
        view = original(self)
        return None if view is None else replace(view, paused_job=False, paused_streams=frozenset())

    return [(JobState, "run_view", run_view)]


def drain_reads_the_paused() -> Patches:
    from headgate.core.task.draining import Draining

    original = Draining.begin

    def begin(self: Draining, drain_id: str, run: Any, *, keep: bool) -> Any:
        return original(self, drain_id, replace(run, paused_job=False, paused_streams=frozenset()), keep=keep)

    return [(Draining, "begin", begin)]


def _answered_at_once(verb: str) -> Patches:
    from headgate.core.coordination.leader import requests as rules
    from headgate.core.coordination.leader.answers import Answer
    from headgate.core.coordination.messages import AnswerState

    original = rules._RULES[verb]

    def rule(draft: Any, request: Any) -> Any:
        found = original(draft, request)
        going = found is not None and found.state in (AnswerState.RUNNING, AnswerState.ACCEPTED)
        return Answer(AnswerState.DONE, "", found.progress) if found is not None and going else found

    return [(rules, "_RULES", {**rules._RULES, verb: rule})]


def _nothing_written(verb: str) -> Patches:
    from headgate.core.coordination.leader import requests as rules
    from headgate.core.coordination.leader.answers import Answer
    from headgate.core.coordination.messages import AnswerState

    def rule(draft: Any, request: Any) -> Any:
        return Answer(AnswerState.DONE, "")

    return [(rules, "_RULES", {**rules._RULES, verb: rule})]


def move_done_at_once() -> Patches:
    return _answered_at_once("move")


def stop_done_at_once() -> Patches:
    return _answered_at_once("stop")


def seek_done_at_once() -> Patches:
    return _answered_at_once("seek")


def pause_done_without_effect() -> Patches:
    return _nothing_written("pause")


def setting_done_without_effect() -> Patches:
    return _nothing_written("set-config")


def setting_reaches_no_worker() -> Patches:
    from headgate.agents.worker.settings_taken import Overrides

    def take(self: Any, overrides: Any, offset: int) -> None:
        self.given, self.offset = dict(overrides), offset

    return [(Overrides, "take", take)]


def setting_reaches_no_task() -> Patches:
    from headgate.agents.worker.participant import Participant

    return [(Participant, "_tell_tasks", lambda self: None)]


def all_tasks_on_one_worker() -> Patches:
    from headgate.core.coordination.leader import plan

    def asked(name: str, placer: Any, tasks: Any, locality: Any, workers: Any, known: Any) -> Any:
        first, *rest = sorted(workers)
        return {first: tuple(tasks), **dict.fromkeys(rest, ())}

    return [(plan, "asked", asked)]


def every_task_moves() -> Patches:
    from headgate.core.coordination.leader import plan

    def asked(name: str, placer: Any, tasks: Any, locality: Any, workers: Any, known: Any) -> Any:
        names = sorted(workers)
        turned = names[1:] + names[:1] if known else names
        return {one: tuple(sorted(tasks)[n :: len(names)]) for n, one in enumerate(turned)}

    return [(plan, "asked", asked)]


def leader_grants_for_half_a_minute() -> Patches:
    from headgate.core.coordination.leader import leader

    original = leader.grants

    def grants(draft: Any) -> None:
        if draft.now.mono % PERIOD_S >= IDLE_S:
            original(draft)

    return [(leader, "grants", grants)]


def decision_by_what_is_no_event() -> Patches:
    from headgate.core.task import protocol as facts
    from headgate.core.task.task import Task

    original, calls = Task.on_CommitBegins, count(1)

    def on_commit_begins(self: Task, event: Any, now: Any) -> Any:
        more = [facts.TaskNote("commit", "another one")] if next(calls) % 7 == 0 else []
        return [*original(self, event, now), *more]

    return [(Task, "on_CommitBegins", on_commit_begins)]


def setting_stays_where_it_is_unset() -> Patches:
    from headgate.agents.worker.settings_taken import Overrides

    original = Overrides.take

    def take(self: Any, overrides: Any, offset: int) -> None:
        original(self, {**self.given, **overrides}, offset)

    return [(Overrides, "take", take)]


def unset_done_without_effect() -> Patches:
    return _nothing_written("unset-config")


def withdrawal_done_without_effect() -> Patches:
    return _nothing_written("withdraw")


def skip_not_obeyed() -> Patches:
    from headgate.agents.runtime.reading.skips import Skips

    return [(Skips, "mark", lambda self, chunk: None)]


def time_means_the_end() -> Patches:
    from headgate.agents.port import bounds

    original = bounds.offset_of

    async def offset_of(offsets: Any, at: Any, bound: Any) -> int:
        return await original(offsets, at, "newest" if isinstance(bound, tuple) else bound)

    return [(bounds, "offset_of", offset_of)]


def newest_known_from_before() -> Patches:
    from headgate.agents.port import bounds

    original = bounds.offset_of
    known: dict[Any, int] = {}

    async def offset_of(offsets: Any, at: Any, bound: Any) -> int:
        found = await original(offsets, at, bound)
        name = offsets.process.name, at
        return known.setdefault(name, found) if bound == "newest" else found

    return [(bounds, "offset_of", offset_of)]


def nothing_granted_after_a_silence() -> Patches:
    from headgate.core.coordination.leader import leader

    original = leader.grants
    silent: dict[str, float] = {}

    def grants(draft: Any) -> None:
        living = {life.processor for life in draft.alive()}
        if any(member.processor not in living for member in draft.state.members()):
            silent[draft.config.process] = draft.now.mono
        if draft.now.mono - silent.get(draft.config.process, -PERIOD_S) >= PERIOD_S:
            original(draft)

    return [(leader, "grants", grants)]


def nothing_read_while_one_is_away() -> Patches:
    from .port import RETRY_S, SimConsumer

    original = SimConsumer._answer

    def answer(self: Any) -> None:
        process = self.process
        if process.kafka.away and self._of_data:
            process.schedule.post(process, RETRY_S, self._again)
        else:
            original(self)

    return [(SimConsumer, "_answer", answer)]


def leader_transaction_left_open() -> Patches:
    from headgate.agents.coordinator.coordinator_stream import LeaderWriter
    from headgate.agents.port.errors import OutboxError
    from headgate.core.coordination.messages import CLOSED, SetRun
    from headgate.core.coordination.wire import encode

    original = LeaderWriter._written

    async def written(self: Any, producer: Any, writes: Any) -> int:
        """What it leaves open it has said before: a later transaction of the leader may commit it."""
        writes = list(writes)
        end = await original(self, producer, writes)
        for run in [one for one in writes if isinstance(one, SetRun) and one.state in CLOSED]:
            key, value = encode(run)
            batch = producer.batch(1 << 16)
            batch.add([key], [value], 0, None, 0)
            with contextlib.suppress(OutboxError, EnvironmentFault):
                await producer.begin()
                await (await producer.send(self._at, batch))
        return end

    return [(LeaderWriter, "_written", written)]


def outputs_after_their_positions() -> Patches:
    from headgate.agents.runtime.writing.buffer import TaskBuffer

    def complete(self: Any) -> None:
        emitted, self._emitted = self._emitted, []
        for target, part in emitted:
            outbox = self._joins(target.stream)
            join = partial(outbox._join, self.task, target, part)
            if outbox is self._direct:
                asyncio.get_running_loop().call_later(LATER_S, join)
            else:
                join()

    return [(TaskBuffer, "complete", complete)]


def store_left_open() -> Patches:
    from headgate.agents.runtime.store.state import TaskStore

    original = TaskStore._close

    async def close(self: TaskStore) -> None:
        self.store = self._opening = None
        await original(self)

    return [(TaskStore, "_close", close)]


def transaction_left_open() -> Patches:
    from headgate.agents.port.errors import OutboxError
    from headgate.agents.runtime.writing.outbox import Outbox
    from headgate.core.names import StreamPartition

    original = Outbox.stop

    async def stop(self: Any) -> None:
        if self._id is not None and self.failed is None and not self._in_transaction:
            producer = self._live()
            batch = producer.batch(1 << 10)
            batch.add([b"bye"], [b"x"], 0, None, 0)
            with contextlib.suppress(OutboxError, EnvironmentFault):
                await producer.begin()
                await (await producer.send(StreamPartition(OUTPUT, 0), batch))
        await original(self)

    return [(Outbox, "stop", stop)]


def closed_with_a_task_at_work() -> Patches:
    from headgate.core.coordination.state import JobState

    original = JobState.held

    def held(self: JobState, task: str) -> Any:
        run = self.run
        return None if run is not None and run.state == "stopping" else original(self, task)

    return [(JobState, "held", held)]


EFFECTS = (
    Plant("ends-early", "a bounded input ends three records early", bounded_input_ends_early, ("bounded",)),
    Plant(
        "bounds-early", "a run ends its inputs three records before their ends", bound_taken_three_early, ("bounded",)
    ),
    Plant("seek-nothing", "a seek is answered and does nothing", seek_does_nothing, ("seek",)),
    Plant("seek-one-off", "a seek lands one record behind its target", seek_lands_one_off, ("seek",)),
    Plant(
        "seek-answered-early",
        "a seek is answered before a checkpoint contains it",
        seek_answered_before_its_commit,
        ("seek",),
    ),
    Plant("seek-done-at-once", "a seek is done when it is accepted", seek_done_at_once, ("seek",)),
    Plant("pause-not-obeyed", "a task reads on although it knows of the pause", pause_not_obeyed, ("pause-stream",)),
    Plant("pause-kept", "a task stays paused behind a resume", resume_not_obeyed, ("pause-stream",)),
    Plant("pause-untold", "the tasks are not told of a pause", pause_not_passed_on, ("pause-stream",)),
    Plant("pause-drained", "a drain reads what came since a pause", drain_reads_the_paused, ("pause", "pause-stream")),
    Plant("pause-unwritten", "a pause is done, and stands nowhere", pause_done_without_effect, ("pause",)),
    Plant("setting-unwritten", "a setting is done, and stands nowhere", setting_done_without_effect, ("config",)),
    Plant("setting-nowhere", "a setting reaches no worker", setting_reaches_no_worker, ("config",)),
    Plant("setting-no-task", "a setting reaches no task", setting_reaches_no_task, ("config",)),
    Plant(
        "unset-kept", "a setting that is unset stays at the workers", setting_stays_where_it_is_unset, ("unset-config",)
    ),
    Plant("unset-unwritten", "a setting that is unset stays", unset_done_without_effect, ("unset-config",)),
    Plant(
        "withdraw-nothing",
        "a withdrawal is done, and nothing is withdrawn",
        withdrawal_done_without_effect,
        ("withdraw",),
    ),
    Plant("skip-not-obeyed", "a skip is done, and its record is processed", skip_not_obeyed, ("skip",)),
    Plant("time-is-the-end", "a seek to a time leads to the end", time_means_the_end, ("seek-time",)),
    Plant(
        "newest-of-before", "a seek to the newest leads to where that was before", newest_known_from_before, ("seek",)
    ),
    Plant(
        "one-silent", "a leader grants nothing for a while after one worker was silent", nothing_granted_after_a_silence
    ),
    Plant(
        "all-wait-for-one",
        "a client reads nothing while any partition has no leader",
        nothing_read_while_one_is_away,
        ("partition-away", "shares"),
    ),
    Plant(
        "leader-left-open",
        "a leader that has closed a run leaves a transaction open",
        leader_transaction_left_open,
        ("shares",),
    ),
    Plant(
        "committed-first",
        "the outputs of at_least_once go out some time after their positions",
        outputs_after_their_positions,
        ("at least once",),
    ),
    Plant("move-at-once", "a move is done when it is accepted", move_done_at_once, ("move",)),
    Plant("stop-at-once", "a stop is done when it is accepted", stop_done_at_once, ("stop",)),
    Plant("all-on-one", "all tasks are placed on one worker", all_tasks_on_one_worker),
    Plant("all-move", "every task moves when a worker comes", every_task_moves),
    Plant("grants-nothing", "a leader grants nothing for a minute of ninety seconds", leader_grants_for_half_a_minute),
    Plant("by-no-event", "a machine decides by what is no event", decision_by_what_is_no_event),
    Plant("store-left-open", "a task that is released leaves its store open", store_left_open),
    Plant("transaction-left-open", "a worker that exits leaves a transaction open", transaction_left_open),
    Plant("closed-at-work", "a run is closed while its tasks are at work", closed_with_a_task_at_work, ("stop",)),
)
