"""Planted bugs: each is planted alone, to prove that the simulator finds it."""

from __future__ import annotations

import asyncio
from array import array
from dataclasses import replace
from typing import Any

from headgate.core.task import protocol as facts

from .plant import Plant
from .planted_branches import BRANCHES
from .planted_effects import EFFECTS
from .planted_lookups import LOOKUPS
from .planted_moves import MOVES
from .planted_time import STANDING

UNANSWERED_S = 1.0
"""How long a planted restore waits for an answer about its log."""


def random() -> float:
    """A random number from the seeded generator of the calling process's world."""
    from .app import process_now

    return process_now().schedule.rng.random()


def _grant_before_the_fence_returned() -> list[tuple[Any, str, Any]]:
    from headgate.core.coordination.leader import grants as leader_grants
    from headgate.core.coordination.leader import members as leader_members

    original = leader_members.fence

    def fence(draft: Any, processor: str, incarnation: str) -> None:
        original(draft, processor, incarnation)
        draft.memory.fenced.add((processor, incarnation))

    return [(leader_members, "fence", fence), (leader_grants, "fence", fence)]


def _fold_judges_in_log_order() -> list[tuple[Any, str, Any]]:
    from headgate.core.coordination import messages
    from headgate.core.coordination.state import JobState

    original = JobState.apply

    def apply(self: JobState, entry: messages.Entry) -> None:
        message = entry.message
        if isinstance(message, messages.SetTaskState):
            grant = self.grant(message.task)
            if grant is not None and grant.grant != message.grant:
                return
        if isinstance(message, messages.SetAnswer) and self.request(message.uuid) is None:
            return
        original(self, entry)

    return [(JobState, "apply", apply)]


def _superseded_move_grants_two_owners() -> list[tuple[Any, str, Any]]:
    from headgate.core.coordination.leader import grants as leader_grants

    original = leader_grants._must_go

    def must_go(draft: Any, held: Any, owner: Any, wanted: str | None) -> bool:
        going = original(draft, held, owner, wanted)
        model = draft.state.model
        if going and owner is not None and model is not None and draft.state.says(held.task) == "":
            leader_grants._grant(draft, held.task, owner)
            return False
        return going

    return [(leader_grants, "_must_go", must_go)]


def _half_a_chunk() -> list[tuple[Any, str, Any]]:
    from headgate.core.task.task import Task

    original = Task.on_ChunkTaken

    def on_chunk_taken(self: Task, event: Any, now: Any) -> Any:
        instructions = original(self, event, now)
        self.inputs.positions[event.at] = event.upto
        return instructions

    return [(Task, "on_ChunkTaken", on_chunk_taken)]


def _bookkeeping_not_in_the_checkpoint() -> list[tuple[Any, str, Any]]:
    from headgate.core.task.task import Task

    original = Task.on_CommitBegins

    def on_commit_begins(self: Task, event: Any, now: Any) -> Any:
        return [replace(one, rows={}) if type(one) is facts.Contribute else one for one in original(self, event, now)]

    return [(Task, "on_CommitBegins", on_commit_begins)]


def _time_of_steps_not_restored() -> list[tuple[Any, str, Any]]:
    from headgate.core.task.time import TaskTime

    original = TaskTime.load

    def load(self: TaskTime) -> None:
        original(self)
        self.delivered.clear()

    return [(TaskTime, "load", load)]


def _aggregating_owner_waits_for_siblings() -> list[tuple[Any, str, Any]]:
    from headgate.core.progress.producers import StreamStatus, fold
    from headgate.core.task.announcer import Announcer

    def relayed_status(self: Announcer, one: Any) -> StreamStatus:
        return fold([self.inputs.progress.partition(one.stream, partition) for partition in one.partitions])

    return [(Announcer, "relayed_status", relayed_status)]


def _idle_guessed_from_silence() -> list[tuple[Any, str, Any]]:
    from headgate.agents.runtime.task import task_intake
    from headgate.core.task.inputs import Inputs

    def is_idle(self: Inputs, at: Any, clock: Any, now: Any) -> bool:
        return now.mono - max(clock.seen_s, clock.end_since_s or float("-inf")) >= self.plan.settings.idle_timeout_s

    def hold(self: Inputs) -> None:
        """Do nothing, so that idleness never expires."""

    def silent_at(self: Inputs, at: Any) -> float:
        """Certain without an answer."""
        return float("inf")

    original = Inputs.observe

    def observe(self: Inputs, now: Any) -> None:
        """Judge every source that has been read, without an answer about it."""
        self.unobserved |= {at for at, clock in self.clocks.items() if clock.seen_s > float("-inf")}
        original(self, now)

    planted = [(Inputs, "is_idle", is_idle), (Inputs, "_hold", hold), (Inputs, "observe", observe)]
    return [*planted, (Inputs, "silent_at", silent_at), (task_intake, "GAP_S", float("inf"))]


def _idle_left_out() -> list[tuple[Any, str, Any]]:
    from headgate.core.progress import producers
    from headgate.core.progress.producers import Said, StreamPhase

    original = producers.of_all

    def of_all(parts: Any) -> Any:
        active = [one for one in parts if one.status != StreamPhase.OPEN or not one.idle]
        return original(active if any(one.status == StreamPhase.OPEN for one in active) else parts)

    def row(self: Said) -> tuple[object, ...]:
        """Idleness is stored, too."""
        return (*tuple(self)[:5], self.away, self.lift, self.mark)

    return [(producers, "of_all", of_all), (Said, "row", row)]


def _older_epochs_dropped() -> list[tuple[Any, str, Any]]:
    """Announcements of older epochs are dropped. Alone this only costs time, because a new epoch repeats every announcement; so this bug
    also suppresses the repetition."""
    from headgate.core.progress.producers import ProducerGroup
    from headgate.core.task import announcer as task_announcer

    original, between = ProducerGroup.set_members, task_announcer.announce

    def set_members(self: ProducerGroup, members: frozenset[str], epoch: int) -> None:
        if epoch > self.epoch:
            self.said = {name: said for name, said in self.said.items() if said.epoch >= epoch}
        original(self, members, epoch)

    def announce(said: Any, now: Any, *rest: Any) -> Any:
        return between(said if said.epoch < 0 else said._replace(epoch=now.epoch), now, *rest)

    return [(ProducerGroup, "set_members", set_members), (task_announcer, "announce", announce)]


def _store_older_than_the_tombstones() -> list[tuple[Any, str, Any]]:
    from headgate.core.task import store_trust as task_restore

    return [(task_restore, "tombstones_gone", lambda store, log, wall_ms: "")]


def _restart_undoes_a_drain() -> list[tuple[Any, str, Any]]:
    from headgate.core.coordination.leader import runs as leader_runs

    original = leader_runs._by_itself

    def by_itself(run: Any, life: Any, late: bool) -> Any:
        if run is not None and run.state == "drained" and not life.run_id:
            return leader_runs.Starter(life, "", False)
        return original(run, life, late)

    return [(leader_runs, "_by_itself", by_itself)]


def _silence_counted_during_an_outage() -> list[tuple[Any, str, Any]]:
    from headgate.core.coordination.liveness import Liveness

    def heard(self: Liveness, beat: Any) -> bool:
        if beat.gone:
            return False
        if beat.process == self.process:
            if self._sent is not None and beat.sent_s > self._sent:
                self.clock += beat.sent_s - self._sent
            self._sent = beat.sent_s
        self._last[beat.process] = self.clock
        self._turn[beat.process] = beat.turn_age_s
        return beat.process == self.process

    return [(Liveness, "heard", heard)]


def _request_applied_twice() -> list[tuple[Any, str, Any]]:
    from headgate.core.task.task import Task

    original = Task._remember

    def remember(self: Task, checkpoint: Any) -> None:
        original(self, checkpoint)
        self.seeks.applied = []

    return [(Task, "_remember", remember)]


def _an_id_initialised_twice() -> list[tuple[Any, str, Any]]:
    from headgate.core.coordination.member.member import Member
    from headgate.core.coordination.member.protocol import InitProducer

    original = Member._initialise

    def initialise(self: Member) -> Any:
        if not self.incarnation:
            return original(self)
        self.state = "initialising"
        return [InitProducer(self.incarnation)]

    return [(Member, "_initialise", initialise)]


def _ownership_by_processor() -> list[tuple[Any, str, Any]]:
    from headgate.core.coordination.member.grants import Tasks
    from headgate.core.coordination.member.protocol import SendOrder
    from headgate.core.orders import RunChanged

    def abandoned(self: Tasks, job: Any) -> list[Any]:
        for task in [task for task, mine in self.grants.items() if job.grant(task).processor != self.processor]:
            del self.grants[task]
        return []

    def orders(self: Tasks, job: Any, going: str, mono: float, *, sure: bool) -> list[Any]:
        run, view = job.run, job.run_view()
        said: list[Any] = self._abandoned(job)
        if view is not None and view != self._view:
            said += [SendOrder(task, RunChanged(view)) for task, mine in self.grants.items() if mine.phase == "started"]
        self._view = view
        for grant in job.grants():
            if grant.processor == self.processor:
                said += self._order(job, run, view, grant, going, mono, True)
        return said

    return [(Tasks, "_abandoned", abandoned), (Tasks, "orders", orders)]


def _tried_instead_of_asked() -> list[tuple[Any, str, Any]]:
    from headgate.core.coordination.member.targets import Targets

    def due(self: Targets, waiting: set[str], mono: float) -> list[Any]:
        for trouble in self._awaited(waiting):
            if trouble.until is not None and mono >= trouble.until:
                trouble.well_s = mono
        return []

    return [(Targets, "due", due)]


def _half_a_chunk_completed() -> list[tuple[Any, str, Any]]:
    from headgate.agents.operators.pipeline.trouble import Failed
    from headgate.agents.runtime.task.contribution import Contribution

    original = Contribution.complete

    def complete(self: Any) -> Any:
        if random() < 0.02:
            self._site.pipeline.buffer.complete()
            why = "completing has failed"
            self._failures.letter_failed(Failed(why, RuntimeError(why)))
            return None
        return original(self)

    return [(Contribution, "complete", complete)]


def _cancelled_await_taken_for_asked() -> list[tuple[Any, str, Any]]:
    from headgate.agents import cancellation as awaiting

    return [(awaiting, "asked_for", lambda: True)]


def _refused_write_forgotten() -> list[tuple[Any, str, Any]]:
    from headgate.agents.runtime.writing.committing import Committing
    from headgate.agents.state.store import GuardedStore
    from headgate.core.task.committer import commit_protocol as commits

    original = GuardedStore.write

    def write(self: Any, *args: Any, **named: Any) -> None:
        self._refusal = ""
        original(self, *args, **named)

    def feed(self: Any, event: Any) -> None:
        if isinstance(event, commits.StoreRefused):
            event = commits.Applied(event.txn, event.task)
        fed(self, event)

    fed = Committing.feed
    return [(GuardedStore, "write", write), (Committing, "feed", feed)]


def _stale_fetch_behind_a_seek() -> list[tuple[Any, str, Any]]:
    from headgate.agents.runtime.reading.intake import Intake

    async def absorb(self: Any, taken: Any) -> None:
        for one in taken:
            part = self._parts[one.at]
            if one.error is not None:
                await self._failed(part, one.error)
            else:
                self._put(part, one)

    return [(Intake, "_absorb", absorb)]


def _flag_outlives_its_letter() -> list[tuple[Any, str, Any]]:
    from headgate.agents.operators.pipeline.pipeline import Pipeline

    original = Pipeline.drop

    def drop(self: Any) -> None:
        self._before = []
        original(self)

    return [(Pipeline, "drop", drop)]


def _damaged_and_never_read_again() -> list[tuple[Any, str, Any]]:
    from headgate.agents.runtime.reading.intake import Intake

    original = Intake._damaged

    def damaged(self: Any, part: Any, *args: Any) -> None:
        original(self, part, *args)
        part.retry_at = float("inf")

    return [(Intake, "_damaged", damaged)]


def _damaged_and_passed() -> list[tuple[Any, str, Any]]:
    from headgate.agents.runtime.reading.intake import Intake

    def look(self: Any, part: Any) -> None:
        if part.buffer.damaged is not None:
            _, behind = part.buffer.damaged
            part.buffer.clear(behind)
            self._consumer.seek(part.at, behind)

    return [(Intake, "_look", look)]


def _floor_not_stored() -> list[tuple[Any, str, Any]]:
    from headgate.agents.operators.windows.floors import FLOOR
    from headgate.agents.operators.windows.windowed import WindowOp

    original = WindowOp.on_watermark

    async def on_watermark(self: Any, watermark: int) -> bool:
        more = await original(self, watermark)
        self.table.delete_many([FLOOR])
        return more

    return [(WindowOp, "on_watermark", on_watermark)]


def _time_moves_before_the_results() -> list[tuple[Any, str, Any]]:
    from headgate.agents.operators.windows.windowed import WindowOp
    from headgate.core.progress.frames import MAX_TIME
    from headgate.core.windows.results import WATERMARK

    original = WindowOp.on_watermark

    async def on_watermark(self: Any, watermark: int) -> bool:
        if watermark == MAX_TIME:
            return await original(self, watermark)
        closed, self.floor = self.floor.closed, self.floor.raised(watermark, self.table)
        self._close(closed, WATERMARK)
        self.watermark = watermark
        return False

    def owed_ms(self: Any) -> int | None:  # otherwise the results that it owes would hold the time
        return None

    return [(WindowOp, "on_watermark", on_watermark), (WindowOp, "owed_ms", owed_ms)]


def _end_moves_the_floor() -> list[tuple[Any, str, Any]]:
    from headgate.agents.operators.windows.windowed import WindowOp
    from headgate.core.progress.frames import MAX_TIME

    on_watermark, on_close = WindowOp.on_watermark, WindowOp.on_close

    def moved(self: Any) -> None:
        ends = (
            [end for end, *_ in self.kept.endings]
            if self.window_step.window.of_sessions
            else list(getattr(self.kept.open, "ends", self.kept.open))
        )
        if ends:
            self.floor = self.floor.raised(max(ends) + self.window_step.window.holds_ms, self.table)

    async def watermark(self: Any, ts: int) -> bool:
        if ts == MAX_TIME:
            moved(self)
        return await on_watermark(self, ts)

    async def close(self: Any, cause: str) -> bool:
        moved(self)
        return await on_close(self, cause)

    return [(WindowOp, "on_watermark", watermark), (WindowOp, "on_close", close)]


def _matches_not_stored() -> list[tuple[Any, str, Any]]:
    from headgate.agents.operators.joins.kept_rows import SliceRows

    return [(SliceRows, "mark", lambda self, places: None)]


def _alone_before_the_watermark() -> list[tuple[Any, str, Any]]:
    from headgate.agents.operators.joins.joined import JoinOp

    original = JoinOp.push_side

    def push_side(self: Any, side: int, rows: Any) -> None:
        taken, self.kept.taken = self.kept.taken, []
        self._expire(max(rows.timestamps, default=self.bound))
        self.kept.taken, self.kept.gone = taken, []
        original(self, side, rows)

    return [(JoinOp, "push_side", push_side)]


def _matches_forgotten_where_packed() -> list[tuple[Any, str, Any]]:
    from headgate.core.windows.joins import Slice

    original = Slice.pack

    def pack(self: Any) -> None:
        original(self)
        self.matched = bytearray(len(self.matched))

    return [(Slice, "pack", pack)]


def _slices_forgotten_early() -> list[tuple[Any, str, Any]]:
    from headgate.core.windows.joins import KeptSide

    original = KeptSide.passed

    def passed(self: Any, below: int | None) -> list[int]:
        return original(self, None if below is None else below + self.spans.size)

    return [(KeptSide, "passed", passed)]


def _result_time_raised() -> list[tuple[Any, str, Any]]:
    from headgate.agents.operators.windows import windowed

    original = windowed.WindowOp._give

    def give(self: Any, *args: Any) -> None:
        floor, result_time = self.floor.at, windowed.result_time
        windowed.result_time = lambda end: max(result_time(end), floor)
        try:
            original(self, *args)
        finally:
            windowed.result_time = result_time

    return [(windowed.WindowOp, "_give", give)]


def _block_stays_when_its_window_closes() -> list[tuple[Any, str, Any]]:
    from headgate.agents.operators.base.block_store import BlockStore

    original = BlockStore.remove

    def remove(self: Any, group: Any, numbers: Any = None) -> None:
        original(self, group, (0,) if isinstance(group, int) else numbers)

    return [(BlockStore, "remove", remove)]


def _slots_are_free_before_their_window_has_closed() -> list[tuple[Any, str, Any]]:
    from headgate.agents.operators.windows.open_windows import OpenWindows

    original = OpenWindows.prepare

    def prepare(self: Any) -> None:
        original(self)
        store = self.open.blocks
        if store is not None:
            store._slots.give(slot for one in self.given if not one.whole for slot in store.slots(one.end).values())

    return [(OpenWindows, "prepare", prepare)]


def _closing_begins_anew() -> list[tuple[Any, str, Any]]:
    from headgate.agents.operators.windows.open_rows import OpenRows
    from headgate.agents.operators.windows.open_windows import OpenWindows

    def planted(original: Any) -> Any:
        def load(self: Any) -> None:
            original(self)
            for end in self.ends if isinstance(self, OpenRows) else self.open.live:
                self.open[end].out = 0

        return load

    return [(one, "_load", planted(one._load)) for one in (OpenWindows, OpenRows)]


def _partial_judged_before_its_window() -> list[tuple[Any, str, Any]]:
    from headgate.agents.operators.windows import combined_windows
    from headgate.core.progress.frames import NO_TIME

    from .job import LAG_MS

    push, assign = combined_windows.WindowCombineOp.push, combined_windows.rows_of_times
    judged = [NO_TIME]

    def pushed(self: Any, rows: Any) -> None:
        passed = self.__dict__.setdefault("passed", NO_TIME)
        judged[0] = passed - self.window.window.grace_ms
        push(self, rows)
        judged[0] = NO_TIME
        self.passed = max(passed, *(ts - LAG_MS for ts in rows.timestamps))

    def assigned(spans: Any, times: Any, rows: Any, closed: int) -> Any:
        return assign(spans, times, rows, judged[0])

    return [(combined_windows.WindowCombineOp, "push", pushed), (combined_windows, "rows_of_times", assigned)]


def _late_partial_is_one_row() -> list[tuple[Any, str, Any]]:
    from headgate.agents.operators.windows.windowed import WindowOp

    original = WindowOp._late_partials

    def late_partials(self: Any, found: Any, counts: Any, times: Any) -> None:
        original(self, found, [1] * len(counts), times)

    return [(WindowOp, "_late_partials", late_partials)]


def _merged_session_stays() -> list[tuple[Any, str, Any]]:
    from headgate.agents.operators.base.block_store import BlockStore

    original = BlockStore.write_all

    def write_all(self: Any, *args: Any, **how: Any) -> None:
        self._delete = lambda slots: None
        try:
            original(self, *args, **how)
        finally:
            del self._delete

    return [(BlockStore, "write_all", write_all)]


def _closed_session_stays() -> list[tuple[Any, str, Any]]:
    from headgate.agents.operators.windows.open_sessions import OpenSessions
    from headgate.agents.operators.windows.session_arrays import SessionArrays

    def planted(of: type[OpenSessions] | type[SessionArrays]) -> tuple[Any, str, Any]:
        original = of.prepare

        def prepare(self: Any) -> None:
            given, self.given = self.given, []
            original(self)
            self.given = given

        return of, "prepare", prepare

    return [planted(OpenSessions), planted(SessionArrays)]


def _late_part_unsaid() -> list[tuple[Any, str, Any]]:
    from headgate.core.windows.spans import Spans

    original = Spans.assign_open

    def assign_open(self: Any, times: Any, closed: int) -> Any:
        return original(self, times, closed)._replace(partly=0)

    return [(Spans, "assign_open", assign_open)]


def _retried_rows_taken_for_known() -> list[tuple[Any, str, Any]]:
    from headgate.agents.operators.windows.open_rows import OpenRows
    from headgate.agents.operators.windows.windowed import WindowOp

    drop, take = WindowOp.drop, OpenRows.take

    def dropped(self: Any) -> None:
        if isinstance(self.kept, OpenRows):
            self.kept.known = list(self.kept.taken)
        drop(self)

    def taken(self: Any, *args: Any) -> Any:
        found = take(self, *args)
        self.taken = [part for part in self.taken if part not in self.__dict__.get("known", ())]
        return found

    return [(WindowOp, "drop", dropped), (OpenRows, "take", taken)]


def _failed_additions_stay() -> list[tuple[Any, str, Any]]:
    from headgate.agents.operators.plain.aggregating import AggregateOp

    original, push = AggregateOp.drop, AggregateOp._aggregate

    def drop(self: Any) -> None:
        self.stays = self.pending if not self.completing else []
        original(self)

    def complete(self: Any) -> None:
        self.completing = True
        completed(self)
        self.completing = False

    def aggregate(self: Any, of: Any) -> None:
        push(self, of)
        self.pending = [*self.__dict__.pop("stays", ()), *self.pending]

    completed = AggregateOp.complete
    planted = [(AggregateOp, "drop", drop), (AggregateOp, "complete", complete), (AggregateOp, "_aggregate", aggregate)]
    return [*planted, (AggregateOp, "completing", False)]


def _numbers_of_before_the_seal() -> list[tuple[Any, str, Any]]:
    from headgate.agents.operators.base.key_arrays import KeyArrays
    from headgate.agents.records.layout import longs

    original = KeyArrays.number

    def number(self: Any, additions: Any) -> None:
        before = [longs(one.numbers).tolist() for one in additions]
        original(self, additions)
        for one, numbers in zip(additions, before, strict=True):  # a number that nobody has would be refused
            one.numbers = array("q", [number % len(self.keys) for number in numbers])

    return [(KeyArrays, "number", number)]


def _changed_states_evicted() -> list[tuple[Any, str, Any]]:
    from headgate.agents.operators.base.key_arrays import KeyArrays

    original = KeyArrays.retain

    def retain(self: Any, additions: Any) -> None:
        self.cells.settle()
        original(self, additions)

    return [(KeyArrays, "retain", retain)]


def _last_row_not_written() -> list[tuple[Any, str, Any]]:
    from headgate.agents.records.layout import longs
    from headgate.agents.runtime.writing.buffer import TaskBuffer

    original = TaskBuffer.emit_spans

    def emit_spans(self: Any, topic: str, partition: Any, records: Any, rows: Any = None) -> Any:
        less = None if rows is None else array("q", longs(rows)[:-1])
        return original(self, topic, partition, records, less if random() < 0.1 else rows)

    return [(TaskBuffer, "emit_spans", emit_spans)]


def _foreign_drain_closes() -> list[tuple[Any, str, Any]]:
    from headgate.core.progress.producers import ProducerGroup, StreamPhase

    original = ProducerGroup._only_away

    def only_away(self: ProducerGroup, status: StreamPhase) -> bool:
        return status != StreamPhase.DRAINED and original(self, status)

    return [(ProducerGroup, "_only_away", only_away)]


def _drained_producer_is_left_out() -> list[tuple[Any, str, Any]]:
    from headgate.core.progress.producers import ProducerGroup, StreamPhase, StreamStatus

    original = ProducerGroup._judge

    def judge(self: ProducerGroup) -> StreamStatus:
        others = {name: said for name, said in self.said.items() if said.status != StreamPhase.DRAINED}
        if self.members is not None or not others:
            return original(self)
        before = self.said, self.declared
        self.declared -= len(self.said) - len(others)
        self.said = others
        try:
            return original(self)
        finally:
            self.said, self.declared = before

    return [(ProducerGroup, "_judge", judge)]


def _older_runs_count() -> list[tuple[Any, str, Any]]:
    from headgate.core.progress.producers import ProducerGroup

    original = ProducerGroup._hear_foreign

    def hear_foreign(self: ProducerGroup, frame: Any) -> str:
        before = dict(self.said) if frame.run != self.run else {}
        reason = original(self, frame)
        if not reason:
            self.said.update({name: said._replace(epoch=self.epoch) for name, said in before.items()})
        return reason

    return [(ProducerGroup, "_hear_foreign", hear_foreign)]


def _overtaken_partition_is_away() -> list[tuple[Any, str, Any]]:
    from headgate.core.progress.tracker import Progress

    return [(Progress, "_overtaken", lambda self, parts, part: [])]


def _lost_goes_on_at_the_newest() -> list[tuple[Any, str, Any]]:
    from headgate.core.task.seeks import Seeks

    def lost(self: Seeks, event: Any, gone: str) -> Any:
        self._found[event.at] = event.topic
        self.inputs.held[event.at] = "lost"
        return self._ask(event.at, event.at, "newest")

    return [(Seeks, "lost", lost)]


def _end_repeated() -> list[tuple[Any, str, Any]]:
    from .port import SimProducer

    def again(self: Any, effect: Any, done: Any, failed: Any) -> None:
        self.process.write(effect, done, failed)

    return [(SimProducer, "_unanswered", again)]


def _own_gap_is_the_silence_of_others() -> list[tuple[Any, str, Any]]:
    from headgate.core.coordination import liveness

    return [(liveness, "GAP", float("inf"))]


def _unanswered_end_counts() -> list[tuple[Any, str, Any]]:
    from headgate.agents.port.errors import OutcomeUnknown
    from headgate.agents.runtime.writing.outbox import Outbox

    original = Outbox._commit_transaction

    async def commit(self: Any) -> None:
        try:
            await original(self)
        except OutcomeUnknown:
            self._in_transaction = False

    return [(Outbox, "_commit_transaction", commit)]


def _dropped_while_markers_are_under_way() -> list[tuple[Any, str, Any]]:
    from .port import SimProducer

    original = SimProducer._write

    def write(self: Any, at: Any, batch: Any) -> int:
        decided = self._producer is not None and self._producer.unmarked
        return -1 if decided else original(self, at, batch)

    return [(SimProducer, "_write", write)]


def _log_without_an_answer_is_empty() -> list[tuple[Any, str, Any]]:
    from headgate.agents.port import bounds
    from headgate.agents.runtime.host import runtime

    original = bounds.log_ends

    async def log_ends(offsets: Any, at: Any) -> tuple[int, int, int]:
        try:
            async with asyncio.timeout(UNANSWERED_S):
                return await original(offsets, at)
        except TimeoutError:
            return 0, 0, bounds.LOG_DELETE_RETENTION_MS

    return [(runtime, "log_ends", log_ends)]


def _position_before_the_rows() -> list[tuple[Any, str, Any]]:
    from headgate.agents.state.store import GuardedStore

    original = GuardedStore.write

    def write(self: Any, changes: Any, **said: Any) -> None:
        original(self, {}, **said)
        original(self, changes)

    return [(GuardedStore, "write", write)]


PLANTS: dict[str, Plant] = {
    plant.name: plant
    for plant in (
        *EFFECTS,
        *MOVES,
        *STANDING,
        *BRANCHES,
        *LOOKUPS,
        Plant(
            "grant-before-fence",
            "a grant is written before the fence of the last holder has returned",
            _grant_before_the_fence_returned,
        ),
        Plant("initialised-twice", "an incarnation initialises its transactional id again", _an_id_initialised_twice),
        Plant(
            "end-repeated",
            "a client sends the end of a transaction again when the first one was not answered",
            _end_repeated,
            ("lost-ack",),
        ),
        Plant(
            "lost-at-newest",
            "a task whose position was deleted goes on at the end of the log instead of its beginning",
            _lost_goes_on_at_the_newest,
            ("retention",),
        ),
        Plant(
            "cut-off-kills",
            "a leader that was cut off takes the time without its own heartbeats for the silence of the others",
            _own_gap_is_the_silence_of_others,
            ("cut-off",),
        ),
        Plant(
            "unanswered-end-counts",
            "a transaction whose end was not answered is taken for committed",
            _unanswered_end_counts,
            ("lost-commit",),
        ),
        Plant(
            "dropped-meanwhile",
            "what a client sends while markers of its last transaction are under way is not written",
            _dropped_while_markers_are_under_way,
            ("late-markers",),
        ),
        Plant(
            "away-is-empty",
            "a task log whose partition has no leader is taken for an empty one",
            _log_without_an_answer_is_empty,
            ("partition-away",),
        ),
        Plant(
            "position-first",
            "a store writes its position before the rows up to it, in a step of its own",
            _position_before_the_rows,
            ("power-cut", "tables"),
        ),
        Plant("owned-by-processor", "a grant counts for whoever has the processor's name", _ownership_by_processor),
        Plant(
            "fold-in-log-order",
            "the fold drops a task state of another grant, and an answer to no request, than it knows at that moment",
            _fold_judges_in_log_order,
        ),
        Plant(
            "two-owners",
            "a move that is superseded before its first owner has spoken grants at once",
            _superseded_move_grants_two_owners,
        ),
        Plant("half-a-chunk", "the position moves when a chunk is taken, not when it is complete", _half_a_chunk),
        Plant(
            "bookkeeping-lost",
            "the state of reconciliation is not in the commit of the position behind it",
            _bookkeeping_not_in_the_checkpoint,
        ),
        Plant(
            "time-forgotten",
            "a task that begins again does not know which time its steps were told",
            _time_of_steps_not_restored,
        ),
        Plant(
            "sibling-partitions",
            "the owner of the aggregating partition waits for its other partitions, too",
            _aggregating_owner_waits_for_siblings,
        ),
        Plant(
            "idle-left-out",
            "who was idle when he was heard last is left out of the time, as long as he is away",
            _idle_left_out,
            ("windows",),
        ),
        Plant(
            "guessed-idle",
            "a source is idle when nothing was read from it for a while",
            _idle_guessed_from_silence,
            ("stall",),
        ),
        Plant("older-epochs", "a marker of an older epoch does not count for its producer", _older_epochs_dropped),
        Plant(
            "old-store",
            "a local store is used whatever its age",
            _store_older_than_the_tombstones,
            ("compaction", "tables", "hosts"),
        ),
        Plant("undone-drain", "a worker that starts again begins a new run after a drain", _restart_undoes_a_drain),
        Plant("outage-kills", "silence is counted while the broker does not answer", _silence_counted_during_an_outage),
        Plant(
            "tried-not-asked",
            "a task whose target is broken is started after a pause, and the target is not asked before",
            _tried_instead_of_asked,
            ("bad-target",),
        ),
        Plant(
            "half-completed",
            "a chunk whose completing fails is tried again, and a half of it counts",
            _half_a_chunk_completed,
        ),
        Plant(
            "cancelled-await",
            "a cancellation that user code raised is taken for one that was asked for",
            _cancelled_await_taken_for_asked,
            ("cancelled-await",),
        ),
        Plant(
            "cancelled-call",
            "a call that a client has cancelled is taken for one whose caller was asked to end",
            _cancelled_await_taken_for_asked,
            ("cancelled-call",),
        ),
        Plant(
            "refused-write",
            "a store goes on behind a write that it has refused",
            _refused_write_forgotten,
            ("refused-write",),
        ),
        Plant("stale-fetch", "what was fetched before a seek is put behind it", _stale_fetch_behind_a_seek, ("seek",)),
        Plant(
            "flag-outlives",
            "a flag of an operator outlives the letter that was dropped",
            _flag_outlives_its_letter,
            ("user-error",),
        ),
        Plant(
            "never-read-again",
            "a partition with a record that could not be decoded is never fetched again",
            _damaged_and_never_read_again,
            ("poison",),
        ),
        Plant("damaged-passed", "a record that cannot be decoded is passed", _damaged_and_passed, ("poison",)),
        Plant(
            "floor-not-stored",
            "how far a window step has closed is forgotten when its task moves",
            _floor_not_stored,
            ("windows",),
        ),
        Plant(
            "time-first",
            "time goes on before the results that it closes, which hold none",
            _time_moves_before_the_results,
            ("windows",),
        ),
        Plant(
            "matches-not-stored",
            "which rows of a join have been in a pair is forgotten when its task moves",
            _matches_not_stored,
            ("outer join",),
        ),
        Plant(
            "matches-packed",
            "which rows of a join have been in a pair is forgotten when there is no memory for them",
            _matches_forgotten_where_packed,
            ("outer join",),
        ),
        Plant(
            "alone-by-event",
            "a row comes out without a partner when another row is late enough, before the watermark says so",
            _alone_before_the_watermark,
            ("outer join",),
        ),
        Plant(
            "forgotten-early",
            "the rows of a join are forgotten while they may still have partners",
            _slices_forgotten_early,
            ("join",),
        ),
        Plant(
            "end-moves-floor",
            "an end or a drain counts as time that has passed",
            _end_moves_the_floor,
            ("windows", "drain"),
        ),
        Plant("raised-time", "a result is given the time of its closing", _result_time_raised, ("windows",)),
        Plant(
            "block-stays",
            "a block of a window stays in the table when the window has closed",
            _block_stays_when_its_window_closes,
            ("windows",),
        ),
        Plant(
            "slots-too-early",
            "the slots of a window that closes in steps are free behind the first step",
            _slots_are_free_before_their_window_has_closed,
            ("windows",),
        ),
        Plant(
            "closing-anew",
            "a closing of several steps begins again from the first after a crash",
            _closing_begins_anew,
            ("windows",),
        ),
        Plant(
            "partial-judged-early",
            "a row is late by the time before the shuffle, and not by that of its window",
            _partial_judged_before_its_window,
            ("combined",),
        ),
        Plant(
            "late-partial",
            "a partial state that is late counts as one row, whatever it holds",
            _late_partial_is_one_row,
            ("combined", "groups"),
        ),
        Plant(
            "merged-session-stays",
            "a session that became part of another stays in the table, and is there again after a restart",
            _merged_session_stays,
            ("session",),
        ),
        Plant(
            "closed-session-stays",
            "a session that is closed stays in the table, and is open again after a restart",
            _closed_session_stays,
            ("session",),
        ),
        Plant(
            "late-part-unsaid",
            "a row that is late for some of its windows is missing there, and not counted",
            _late_part_unsaid,
            ("hopping",),
        ),
        Plant(
            "rows-known",
            "rows of a window count as taken when their chunk has failed, so they are lost when it is retried",
            _retried_rows_taken_for_known,
            ("rows", "user-error"),
        ),
        Plant(
            "additions-stay",
            "what a chunk of columns adds stays when the chunk has failed",
            _failed_additions_stay,
            ("columns", "tables", "user-error"),
        ),
        Plant(
            "numbers-before-seal",
            "a chunk that was set aside adds to the numbers that its keys had before the commit",
            _numbers_of_before_the_seal,
            ("awaited",),
        ),
        Plant("changed-evicted", "states are evicted that have changed", _changed_states_evicted, ("columns",)),
        Plant(
            "last-row", "the last of the rows that a filter keeps is not written", _last_row_not_written, ("columns",)
        ),
        Plant("foreign-drain", "the drain of another job drains its reader", _foreign_drain_closes, ("shares",)),
        Plant(
            "drain-is-idle",
            "nobody waits for a task of another job that has drained while others of its job have not",
            _drained_producer_is_left_out,
            ("shares",),
        ),
        Plant(
            "old-run-counts",
            "what the tasks of another job have said in an older run counts in its newer one",
            _older_runs_count,
            ("shares",),
        ),
        Plant(
            "overtaken-is-away",
            "a job that has begun again in one partition is away in another, which was not read as far",
            _overtaken_partition_is_away,
            ("shares", "modulo"),
        ),
        Plant(
            "applied-twice", "a task does not remember which seeks it has applied", _request_applied_twice, ("seek",)
        ),
    )
}
