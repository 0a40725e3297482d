"""One task at work: its machine decides, this carries out.

`core.task.task.Task` says when to open the store, where to read on, what may be taken, which marker goes where and when to commit. This
file owns what is behind these instructions: the actor (a Faust agent), the intake, the operators, the store. It decides only what the
machine leaves to the edge: which records of a failing chunk are skipped or become dead letters.

Everything runs on the worker's loop. What takes long (restoring, asking the broker) runs beside and comes back as a fact.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import structlog

from ...core.names import StreamPartition
from ...core.orders import WORKING, Order, Report, Start, TaskState
from ...core.progress.frames import HEADER, header_value
from ...core.progress.frames import encode as encode_frame
from ...core.task import protocol as t
from ...core.task.plan import TaskPlan
from ...core.task.task import Task
from ..cancellation import CalledOff, answered, passes, said
from ..operators.decode import BadRecord
from ..operators.failures import store_failed, traceback_of
from ..operators.pipeline import Pipeline
from ..operators.trouble import Failed, Recovered, may_pass, recover, told
from ..port.alarm import Alarm
from ..port.port import Background, MailboxClosed
from ..records.target_rules import UnknownTarget
from ..state.expiry import Expiry
from .assembly import assembled
from .due import Due
from .end import TaskEnd
from .letters import ChunkLetter, Letter, StepLetter
from .task_intake import TaskIntake

if TYPE_CHECKING:
    from ..records.chunks import Chunk
    from .buffer import LogWrite
    from .runtime import Runtime

R = TypeVar("R")


class TaskActor:
    """A task under one grant. Made for a `Start`, gone after `released`, `Abandon` or a lost producer."""

    def __init__(self, host: Runtime, plan: TaskPlan, start: Start) -> None:
        self.host = host
        self.plan = plan
        self.name = start.task
        self.grant = start.grant
        self.machine = Task(plan)
        self.state = host.open_state(start.task, start.log_partition)
        self.buffer = host.buffer(start.task)
        self._marker_buffer = host.buffer(start.task)
        """Markers join the transaction even while a chunk is in the middle of an await, whose half output must not."""
        self.pipeline: Pipeline | None = None
        self.intake: TaskIntake | None = None
        self.mailbox = host.mailbox(f"task.{start.task}", self._letter, self._agent_gone, self._agent_again)
        self._start = start
        self.log = structlog.get_logger("headgate.task").bind(task=start.task, grant=start.grant)
        self.ends = TaskEnd(self.log, lambda: host.seconds("release.timeout") / 3)
        self.since_ms = host.port.clock.now().wall
        self.notes: dict[str, str] = {}
        self.trouble: BaseException | None = None
        """What was raised last, by user code or by whatever else it fails at."""
        self.idle = asyncio.Event()
        """Set while no letter is under way: the intake may give the next one."""
        self.idle.set()
        self._letter_now: Letter | None = None
        """The one that counts, from the moment in which it was decided until it has ended or is called off."""
        self._alarm = Alarm(self._deadline, host.port.clock, lambda: self.feed(t.Tick()))
        self.due = Due(self._wanted, host.port.clock, self._is_due)
        self._beside: set[asyncio.Task[None]] = set()
        self._unsealed = False
        self.expiry = Expiry(self._at_rest, self.state.expire, self._changed, self.feed_failure)
        self._spoilt = ""
        """Why nothing of this task may be committed any more."""
        self._sealing = False
        """A commit divides: what was held back has just been emitted."""
        self._learnt: set[str] = set()
        """Topics that no step has declared, and user code has named."""
        self.durable: Mapping[StreamPartition, int] = {}
        """Positions up to which everything is committed."""
        self._contributed: Mapping[StreamPartition, int] = {}
        self.gone = False
        self._broken = False
        self._last_report: Report | None = None
        """What is reported when nothing is left here."""
        self.ended = asyncio.Event()
        """Set when nothing of this task is left here."""

    # ------------------------------------------------------------------------------------------------ events and their answers

    def begin(self, start: Start) -> None:
        """Let the machine decide what is first; the mailbox is open."""
        self.feed(start)

    def order(self, order: Order) -> None:
        """An order of the member."""
        self.feed(order)

    def feed(self, event: Any) -> None:
        """One event for the machine; its instructions are carried out before this returns, or started."""
        if self.gone:
            return
        try:
            self._feed(event)
        except Exception as error:
            if self._broken:
                raise  # it could not even be given up: the worker must know
            self._broken = True
            self.log.exception("task is broken")
            self.feed_failure(error)

    def _feed(self, event: Any) -> None:
        before = self.machine.state
        for instruction in self.machine.handle(event, self.host.port.clock.now()):
            handler = self._HANDLERS.get(type(instruction))
            if handler is None:
                raise AssertionError(f"nothing carries out {instruction!r}")
            handler(self, instruction)
        if self.machine.state != before:
            self.since_ms = self.host.port.clock.now().wall
            self.log.info("task state", state=self.machine.state, before=before)
        self._alarm.see()
        if self.intake is not None:
            self.intake.decided()

    def _deadline(self) -> float | None:
        if self.gone:
            return None
        return self.machine.deadline() if self.host.port.silent else self.machine.due_s()

    def _beside_run(self, work: Background, name: str) -> None:
        task = self.host.spawn(partial(self._guard, work), f"{self.name}: {name}")
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def _guard(self, work: Background) -> None:
        try:
            await work()
        except CalledOff:
            pass  # the task is put down, and its store with it
        except BaseException as error:
            if passes(error):
                raise
            self.log.exception("task failed")
            self.feed_failure(error)

    def feed_failure(self, error: BaseException) -> None:
        """Something that the machine did not foresee: the task fails with the reason, the worker goes on."""
        self.trouble = error
        self.feed(t.Broken(told(error), passing=may_pass(error)))

    # ------------------------------------------------------------------------------------------------------------ the store

    def _open_store(self, _: t.OpenStore) -> None:
        async def work() -> None:
            self.feed(await self.state.open())

        self._beside_run(work, "open store")

    def _ask_log_ends(self, order: t.AskLogEnds) -> None:
        async def work() -> None:
            self.feed(await self.state.log_ends())

        self._beside_run(work, "ask log ends")

    def _wipe_store(self, order: t.WipeStore) -> None:
        self.log.warning("local store is rebuilt", why=order.why)

        async def work() -> None:
            await self.state.wipe()
            self.feed(t.StoreWiped())

        self._beside_run(work, "wipe store")

    def _restore(self, order: t.Restore) -> None:
        async def work() -> None:
            await self.host.check_streams(self.plan)
            restored = await self.state.restore(order, self.feed)
            before = restored.checkpoint
            if before is not None and before.run != self.machine.run.run_id:
                self.state.begin_run()  # durable with the first commit of the run, before anything is read
            self.pipeline = assembled(self.host, self.plan, self.state, self.buffer, self.due.watch)
            self.feed(replace(restored, owed=self.pipeline.owed()))
            self.pipeline.knows(self.machine.step_times)

        self._beside_run(work, "restore")

    def _resolve(self, order: t.ResolveOffsets) -> None:
        async def work() -> None:
            self.feed(await self.host.ask_offsets(order))

        self._beside_run(work, "ask offsets")

    def _close_store(self, _: t.CloseStore) -> None:
        async def work() -> None:
            await self._put_down()
            self.feed(t.StoreClosed())

        self._beside_run(work, "close store")

    async def _put_down(self) -> None:
        """Whatever user code is doing ends first: neither its hooks nor the next owner run beside it."""
        await self.ends.put_down(
            ("agent", self.mailbox.stop),
            ("intake", self._stop_intake),
            ("user code", self._end_hooks),
            last=("store", self.state.close),
        )

    async def _stop_intake(self) -> None:
        intake, self.intake = self.intake, None
        if intake is not None:
            await intake.stop()

    async def _end_hooks(self) -> None:
        if self.pipeline is not None:
            await self.pipeline.close()

    # --------------------------------------------------------------------------------------------------------------- intake

    def _seek(self, order: t.SeekConsumer) -> None:
        if self.intake is None:
            self.intake = self.host.make_intake(self, order.positions)
            self._beside_run(partial(self._serve, self.intake), "intake")
        else:
            self.intake.seek(order.positions)
        self.due.watch()

    async def _serve(self, intake: TaskIntake) -> None:
        await self.host.serve(f"intake {self.name}", partial(self._guard, intake.run))

    def _bounds(self, order: t.Bounds) -> None:
        self._bounded = order
        if self.intake is not None:
            self.intake.bound(order)

    _bounded: t.Bounds | None = None

    @property
    def bounds(self) -> t.Bounds | None:
        """The last bounds that the machine gave."""
        return self._bounded

    def _gate(self, order: t.Gate) -> None:
        if self.intake is not None:
            self.intake.wake()

    def _stop_fetching(self, order: t.StopFetching) -> None:
        if self.intake is None:
            self.feed_later(t.FetchStopped({at: self.machine.position(at) for at in order.partitions}))
        else:
            self.feed_later(t.FetchStopped(self.intake.stop_fetching(order.partitions, keep=order.keep)))

    def feed_later(self, event: Any) -> None:
        """Feed an event when the one that is being carried out is through."""
        asyncio.get_running_loop().call_soon(self.feed, event)

    # -------------------------------------------------------------------------------------------------------------- letters

    async def take(self, chunk: Chunk) -> None:
        """A chunk was taken out of the intake's buffer: it is the next letter."""
        self.feed(t.ChunkTaken(chunk.at, chunk.next_position))
        if (
            self.machine.work.chunk is not None and not self.gone
        ):  # else it broke at that, and nobody would count what it writes
            letter = ChunkLetter(chunk)
            self._next(letter)
            await self._put(letter)

    def _next(self, letter: Letter) -> None:
        """From now on this letter can be called off, whether it has begun or not."""
        self.idle.clear()
        self._letter_now = letter

    async def _put(self, letter: Letter) -> None:
        if not self._called_off(letter):
            with contextlib.suppress(MailboxClosed):
                await self.mailbox.put(letter)

    def _called_off(self, letter: Letter) -> bool:
        return self.gone or letter is not self._letter_now

    def _drop(self, letter: Letter) -> None:
        """Forget what the letter has done so far; raises `CalledOff` where nobody waits for it any more."""
        self.state.drop()
        if self._called_off(letter):
            raise CalledOff(self.name)

    async def _letter(self, letter: Letter) -> None:
        if self._called_off(letter):
            return
        try:
            if isinstance(letter, ChunkLetter):
                await self._chunk(letter)
            else:
                await self._step(letter)
        except CalledOff:
            if self.pipeline is not None:
                self.pipeline.drop()
            self.state.drop()

    async def _chunk(self, letter: ChunkLetter) -> None:
        chunk = letter.chunk
        outcome = await self._learning(letter, partial(self._ran, letter))
        if isinstance(outcome, Failed):
            self._fail_work(outcome.why, outcome.error, final=outcome.final)
        elif outcome is not None:
            for index, cause in outcome.left_out.items():
                self.log.warning("record is skipped", at=str(chunk.at), offset=chunk.offsets[index], why=str(cause))
            self._completed(chunk.at, chunk.next_position, outcome.greatest)

    async def _ran(self, letter: ChunkLetter) -> Recovered | Failed:
        """Run a chunk; where it fails, run it again without the records whose policies say so, or fail."""
        assert self.pipeline is not None
        try:
            return Recovered(await self.pipeline.chunk(letter.chunk))
        except UnknownTarget:
            raise
        except Exception as error:  # noqa: BLE001 - user code and data may raise anything; the policy decides
            return await recover(self.pipeline, letter.chunk, error, drop=partial(self._drop, letter))

    async def _learning(self, letter: Letter, run: Callable[[], Awaitable[R]]) -> R | None:
        """Run a letter; where it names a topic that is not known yet, ask the broker once, and run it again from its beginning.

        None when nothing comes of it, for a topic that cannot be asked for: that is nobody's record, so it ends the task and not the
        letter, and the task begins again by itself. Raises `CalledOff` where nobody waits for the letter any more.
        """
        while True:
            try:
                result = await run()
                if self._called_off(letter):
                    raise CalledOff(self.name)
                return result
            except UnknownTarget as unknown:
                self._drop(letter)
                why = await self._learn(unknown)
                self._drop(letter)
                if why is not None:
                    self.log.error(
                        "the metadata of a topic cannot be fetched", topic=unknown.topic, why=told(why), exc_info=why
                    )
                    what = f"the topic {unknown.topic}, which user code writes to, has no metadata: {told(why)}"
                    self.feed(t.Broken(what, passing=True))
                    return None

    async def _learn(self, unknown: UnknownTarget) -> BaseException | None:
        """Ask for a topic; why that has failed, if it has."""
        if unknown.topic in self._learnt:
            return unknown
        try:
            with answered("the question"):
                await self.host.learn(unknown.topic)
        except Exception as error:  # noqa: BLE001 - a broker that is away, a right that is missing, a library that is wrong
            return error
        self._learnt.add(unknown.topic)
        return None

    def _completed(self, at: StreamPartition, upto: int, greatest: int | None) -> None:
        wants = self._complete()
        if wants is not None:
            commit, stop = wants
            self._finish(t.ChunkDone(at, upto, greatest, commit=commit, stop=stop, owed=self._owed()))
            self.due.watch()

    def _complete(self) -> tuple[bool, bool] | None:
        """The letter counts, all of it: outputs and table changes. What it wants (a commit, to stop); None if that has failed.

        Whatever can be refused has been refused before, so nothing in here raises. If something does all the same, a half of the letter
        may stand in the open transaction, and this task must never have a part in its commit: it begins anew where its log stands.
        """
        assert self.pipeline is not None
        try:
            wants = self.pipeline.complete()
            self.state.complete()
        except BaseException as error:
            why = f"completing a letter failed: {said(error)}"
            self.log.error("a letter was only half completed; its transaction is aborted", why=why, exc_info=error)
            self._spoilt = why
            self.notes["failure"] = why
            self.host.count(self.name, "failures", 1)
            self.host.careful.add(self.name)
            self.host.poisoned(self.name, why)
            return None
        self._unsealed = True
        return wants

    def _finish(self, fact: Any) -> None:
        self._letter_now = None
        self.idle.set()
        self.feed(fact)
        self.expiry.go_on()

    def _fail_work(self, why: str, error: BaseException, *, final: bool = False) -> None:
        """Say it, with the traceback from the user's first frame; the same failure, tried again, is said without."""
        self.trouble = error.cause if isinstance(error, BadRecord) else error
        if store_failed(error):
            self.log.error("the store cannot be read", why=why)
            self.feed(t.Broken(why, passing=True))
            return
        shown = {} if self.notes.get("failure") == why else {"traceback": traceback_of(error)}
        self.log.error("data cannot be read" if isinstance(error, BadRecord) else "user code failed", why=why, **shown)
        self.notes.update(shown)
        self.host.count(self.name, "failures", 1)
        self.notes["failure"] = why
        self.feed(t.WorkFailed(why, final=final))

    def _run_again(self, order: t.RunAgain) -> None:
        assert self._letter_now is not None, "the failed letter is kept for this"
        self._next(again := replace(self._letter_now, attempt=order.attempt))
        self._beside_run(partial(self._put, again), "run again")

    def _drop_chunk(self, order: t.DropChunk) -> None:
        letter, self._letter_now = self._letter_now, None
        if self.pipeline is not None:
            self.pipeline.drop()
        self.state.drop()
        self.idle.set()
        if letter is not None:
            at = letter.chunk.at if isinstance(letter, ChunkLetter) else StreamPartition("", 0)
            self.feed_later(t.ChunkDropped(at))

    def _run_step(self, order: t.RunStep) -> None:
        self._next(letter := StepLetter(order))
        self._beside_run(partial(self._put, letter), "step")

    async def _step(self, letter: StepLetter) -> None:
        self.due.begins(letter.step.key)
        more = await self._learning(letter, partial(self._stepped, letter))
        if isinstance(more, Failed):
            self._fail_work(more.why, more.error, final=more.final)
        elif more is not None and (wants := self._complete()) is not None:
            commit, stop = wants
            self._finish(t.StepDone(letter.step.letter, more, commit=commit, stop=stop, owed=self._owed()))
            self.due.watch()

    async def _stepped(self, letter: StepLetter) -> bool | Failed:
        """Run a step; whether there is more of it, or what it has failed at."""
        assert self.pipeline is not None
        step = letter.step
        try:
            return await self.pipeline.step(step.kind, step.stream, step.ts, step.key, step.cause, step.times)
        except UnknownTarget:
            raise
        except Exception as error:  # noqa: BLE001 - as in _ran
            self._drop(letter)
            final = bool(getattr(error.__cause__, "final", False))
            return Failed(f"{step.kind} {step.stream or step.key}: {error}", error, final)

    def _wanted(self) -> tuple[int, str] | None:
        return self.pipeline.due() if self.pipeline is not None and not self.gone else None

    def _is_due(self, key: str) -> bool:
        if self.machine.state not in WORKING or self.machine.completion.hooks:
            return False
        self.feed(t.WorkDue("work", key))
        return True

    def owes(self) -> bool:
        """Whether there is something to do though no further record comes."""
        return self.pipeline is not None and self.pipeline.owes()

    def _owed(self) -> t.Owed:
        """What the steps owe, now that a letter is complete."""
        return self.pipeline.owed() if self.pipeline is not None else ()

    def holds(self) -> frozenset[str]:
        """Streams of which no more chunks are taken for now: what they lead to is full."""
        return self.pipeline.held() if self.pipeline is not None else frozenset()

    # --------------------------------------------------------------------------------------------------------------- commit

    def seal(self, txn: int) -> list[LogWrite]:
        """The committer divides: what this task adds to the transaction, at once. Empty when it takes no part."""
        if self.gone or self._spoilt:
            return []
        self._sealed: list[LogWrite] = []
        if not self._give_held():
            return []
        self._sealing = True
        try:
            self.feed(t.CommitBegins(txn))
        finally:
            self._sealing = False
        return self._sealed

    def _give_held(self) -> bool:
        """Emit what operators hold back to emit once a commit; False if user code failed on it, and with it the transaction.

        That is not to happen again with the same records: from now on this task holds nothing back.
        """
        if self.pipeline is None or not self._unsealed:
            return True
        aside = self.state.suspend()
        try:
            self.pipeline.seal()
            self.state.complete()
        except BaseException as error:  # noqa: BLE001 - user code behind an aggregate may raise anything
            self.log.error(
                "a commit failed on what this task had buffered; from now on it emits after every chunk", why=str(error)
            )
            self.host.count(self.name, "failures", 1)
            self.host.careful.add(self.name)
            self._spoilt = str(error)
            self.host.poisoned(self.name, str(error))
            return False
        finally:
            self.state.resume(aside)
        return True

    def _contribute(self, order: t.Contribute) -> None:
        self._sealed = self.state.seal(order, self.host.port.clock.now().wall)
        self._contributed = order.checkpoint.positions
        if self.pipeline is not None:
            self.pipeline.sealed()
        self._unsealed = False

    def _send_control(self, order: t.SendControl) -> None:
        """A marker stands behind all data that it speaks for, also behind what was held back until the commit."""
        if not self._sealing:
            self._give_held()
        value = encode_frame(order.frame)
        header = [(HEADER, header_value(order.frame))]
        for partition in order.partitions:
            self._marker_buffer.emit(
                order.stream, partition, None, [value], [self.host.port.clock.now().wall], [header]
            )
        self._marker_buffer.complete()
        self._unsealed = True

    def committed(self, txn: int) -> None:
        """The transaction is durable and applied."""
        self.durable = self._contributed
        if self.pipeline is not None and not self.gone:
            with self.expiry.alone():
                self.pipeline.durable()
                self.due.watch()
        self.feed(t.CommitDone(txn))
        self.expiry.look()

    def upkeep(self, *, refresh: bool) -> None:
        """Delete what has expired; now and then have an idle store note that it stands at its log's end."""
        self.expiry.look()
        if refresh and self._at_rest() and not self._unsealed:
            with self.expiry.alone():
                self.state.refresh()

    def _at_rest(self) -> bool:
        return not self.gone and self.pipeline is not None and self.idle.is_set() and self.machine.state in WORKING

    def _changed(self) -> None:
        self._unsealed = True
        self.feed(t.CommitWanted())

    def apply(self, log_position: int) -> None:
        """Write what was sealed into the store, in one step. Raises what the store does."""
        self.state.applied(log_position, self.host.port.clock.now().wall)

    def _request_commit(self, order: t.RequestCommit) -> None:
        self.host.want_commit(self.name, order.urgent)

    # ------------------------------------------------------------------------------------------------------------------ end

    def _tell(self, order: t.SendReport) -> None:
        if getattr(order.report, "gone", False):
            self._last_report = order.report  # said when the store is closed: it may be opened again at once
            return
        self.host.report(order.report)
        if getattr(order.report, "state", "") == "released":
            self._go()

    def _discard(self, order: t.Discard) -> None:
        self.log.warning("task is dropped", why=order.why)
        if self._unsealed:
            self.host.poisoned(self.name, order.why)
        self._go()

    def _begin_again(self, order: t.BeginAgain) -> None:
        self._go()
        self.host.again(self._start, *order.seeks)

    def _go(self) -> None:
        if self.gone:
            return
        self.gone = True
        self._letter_now = None
        self.idle.set()
        self._alarm.stop()
        self.due.stop()
        self.host.spawn(self._end, f"{self.name}: end")

    async def _end(self) -> None:
        for task in list(self._beside):
            if task is not asyncio.current_task():
                task.cancel()
        try:
            await self._put_down()
        finally:
            self.host.gone(self.name)
            self.ended.set()
            if self._last_report is not None:
                self.host.report(self._last_report)

    async def kill(self) -> None:
        """The worker ends: drop everything, now."""
        if not self.gone:
            self._go()
        await self.ended.wait()

    def _agent_gone(self, why: BaseException | None) -> None:
        if why is not None:
            self.feed_failure(why)
        else:
            self.feed(t.Broken("its agent was stopped"))

    def _agent_again(self) -> None:
        """Somebody has started the agent again: the task begins anew under the same grant, where its log stands."""
        if not self.gone and self.machine.state == TaskState.FAILED:
            self._go()
            self.host.again(self._start)

    def _note(self, order: t.TaskNote) -> None:
        self.notes[order.what] = order.detail
        self.host.count(self.name, f"note_{order.what}", 1)
        getattr(self.log, order.level)(order.what, detail=order.detail)

    _HANDLERS: ClassVar[Mapping[type[Any], Any]] = {
        t.OpenStore: _open_store,
        t.AskLogEnds: _ask_log_ends,
        t.WipeStore: _wipe_store,
        t.Restore: _restore,
        t.ResolveOffsets: _resolve,
        t.SeekConsumer: _seek,
        t.Bounds: _bounds,
        t.Gate: _gate,
        t.StopFetching: _stop_fetching,
        t.DropChunk: _drop_chunk,
        t.RunAgain: _run_again,
        t.RunStep: _run_step,
        t.SendControl: _send_control,
        t.RequestCommit: _request_commit,
        t.Contribute: _contribute,
        t.SendReport: _tell,
        t.CloseStore: _close_store,
        t.Discard: _discard,
        t.BeginAgain: _begin_again,
        t.TaskNote: _note,
    }
