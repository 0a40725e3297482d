"""What every event of a working task comes down to: settle, speak, ask for a commit, leave.

After each event the task *settles*: it looks for the next thing that its operators must hear, says what follows from what they
have heard, closes and opens partitions, and names the state that all this amounts to. It does so again and again until nothing is
left to do, so no event has to know what another one left behind.

The small methods that are rules of their own (`judge_store`, `resumes_draining`, `checkpoint_positions`, `control_rows`, `hears`) can
be replaced in a subclass, which is how the simulator plants the mistakes that it must find.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..machine import Machine, Now
from ..names import StreamPartition
from ..orders import FAILED as SAYS_FAILED
from ..orders import RUNNING as SAYS_RUNNING
from ..orders import RunView, TaskReported
from ..progress.frames import ControlFrame
from .announcer import Mouth
from .checkpoint import DRAINED as PHASE_DRAINED
from .checkpoint import DRAINING as PHASE_DRAINING
from .checkpoint import RUNNING as PHASE_RUNNING
from .checkpoint import Checkpoint
from .inputs import NEVER, Inputs
from .ledger import Ledger
from .letters import Letters
from .plan import TaskPlan
from .protocol import (
    Bounds,
    ChunkTaken,
    CloseStore,
    Discard,
    DropChunk,
    Gate,
    LogEnds,
    Note,
    RequestCommit,
    RunStep,
    SeekConsumer,
    StopFetching,
    StoreOpened,
    TaskEvent,
    TaskInstruction,
    Tell,
)
from .restore import distrust
from .restoring import Restoring, resumes_draining
from .seeks import Seeks
from .states import BOOTSTRAPPING, DRAINED, DRAINING, ENDED, ENDING, FAILED, PAUSED, RELEASING, RUNNING, WORKING

_NO_RUN = RunView("", "")


class TaskBody(Machine[TaskEvent, TaskInstruction]):
    """State and inner workings of a `Task`; its handlers stand there."""

    INPUTS: type[Inputs] = Inputs
    MOUTH: type[Mouth] = Mouth
    LETTERS: type[Letters] = Letters

    def __init__(self, plan: TaskPlan) -> None:
        super().__init__()
        self.plan = plan
        self.run: RunView = _NO_RUN
        self.grant = 0
        self.inputs = self.INPUTS(plan)
        self.ledger = Ledger()
        self.letters = self.LETTERS(self.inputs, self.ledger)
        self.mouth = self.MOUTH(self.inputs, self.ledger)
        self.seeks = Seeks(self)
        self.restoring = Restoring(self)
        self.chunk: ChunkTaken | None = None
        """What the actor has in hand."""
        self.drain_id: str | None = None
        """The drain that the task is in."""
        self.phase = PHASE_RUNNING
        self.hooks: frozenset[str] = frozenset()
        self.why = ""
        """Why it failed, or was released; for people."""
        self.attempt = 0
        self.retry_s: float | None = None
        """When what failed is tried again."""
        self._leaving = ""
        self._passing = False
        """What it failed at first may pass: it shall be started again when nothing of it is left."""
        self._dropped = False
        """It failed at once, and nothing of it is left: only another life can answer anything."""
        self._closing = False
        self._step_at: int | None = None
        """The next step runs when this change is durable."""
        self._final_at: int | None = None
        """Drained or ended when this change is durable."""
        self._pace_s = float("-inf")
        """From when time may be told and said again."""
        self._still = False
        """It has said that it only waits for others."""
        self._time_news = False
        self._speak_time = False
        self._restless = False
        self._regate = False

    # -------------------------------------------------------------------------------------------------------- questions

    def may_take(self, at: StreamPartition) -> bool:
        """Whether a chunk of this partition may be given to the actor now."""
        return (
            self.state in WORKING
            and self.chunk is None
            and self.letters.current is None
            and at not in self.inputs.closed
            and at in self.inputs.positions
            and not self.hooks
        )

    def position(self, at: StreamPartition) -> int:
        """The next position to read, with everything complete."""
        return self.inputs.positions[at]

    @property
    def step_times(self) -> Mapping[str, int]:
        """How far time is for each step that has heard of it: known before the first letter of this life."""
        return self.letters.times

    def deadline(self) -> float | None:
        due = self.due_s()
        lapses_s = self.inputs.idle_until_s if self.state in WORKING else NEVER
        return due if lapses_s == NEVER else lapses_s if due is None else min(due, lapses_s)

    def due_s(self) -> float | None:
        """The deadline as long as the broker answers all the time: then nobody needs to look whether an answer has lapsed."""
        if self.state in WORKING:
            pace_s = self._pace_s if self._time_news else None
            return pace_s if self.retry_s is None else self.retry_s if pace_s is None else min(pace_s, self.retry_s)
        return self.restoring.deadline if self.state == "restoring" else None

    # -------------------------------------------------------------------------------------------- rules of their own

    def judge_store(self, store: StoreOpened, log: LogEnds, wall_ms: int) -> str:
        """Why the local store must be wiped; "" if it may be used."""
        return distrust(store, log, self.run.job_uuid, wall_ms)

    def resumes_draining(self, checkpoint: Checkpoint | None, run: RunView) -> str | None:
        """The drain that a restart goes on with."""
        return resumes_draining(checkpoint, run)

    def hears(self, at: StreamPartition, frame: ControlFrame) -> bool:
        """Whether a control message is listened to at all. Every one is: one of an older epoch still counts for its producer."""
        return True

    # ---------------------------------------------------------------------------------------------------------- opening

    def open(self, now: Now) -> list[TaskInstruction]:
        """Everything that restoring and resolving had to bring is there and durable: work."""
        at = self.restoring.open_at
        if at is None or not self.ledger.is_durable(at):
            return []
        self.restoring.open_at = None
        inputs = self.inputs
        drain = self.resumes_draining(self.restoring.checkpoint, self.run)
        for one in list(inputs.positions):
            inputs.advance(one, inputs.positions[one])
        if drain is not None:
            self.drain_id, self.phase = drain, PHASE_DRAINING
            inputs.bootstrap.clear()
            through = self.through()
            sought = {StreamPartition(order.stream, order.partition) for order in self.seeks.early}
            self.seeks.before_drain = sought & set(inputs.external)
            external = [one for one in inputs.external if one not in sought]
            inputs.drain(drain, {one: max(inputs.positions[one], through.get(one, 0)) for one in external})
        self._restless = self._regate = self._time_news = True
        self.state = RUNNING
        reading = {one: inputs.positions[one] for one in inputs.partitions if one not in inputs.finished}
        out: list[TaskInstruction] = [Bounds(dict(inputs.until), dict(inputs.bootstrap))]
        out += self.settle(now)
        out += [
            SeekConsumer(reading),
            Tell(TaskReported(self.plan.task, self.grant, SAYS_RUNNING, self.restoring.remark)),
        ]
        early = self.seeks.begins_with()
        for order in early:
            out += self.seeks.begin(order)
        return out + self.sought(now) if early else out

    def sought(self, now: Now) -> list[TaskInstruction]:
        """A seek is settled, and its partition may drain: nothing else may come to wake the task."""
        self._restless = self._regate = self._time_news = True
        return self.settle(now)

    def remember(self) -> None:
        """Take over what the checkpoint says has happened."""
        checkpoint = self.restoring.checkpoint
        assert checkpoint is not None
        self.phase, self.hooks = checkpoint.phase, checkpoint.hooks
        self.seeks.applied = list(checkpoint.applied)
        self.drain_id = checkpoint.drain_id or None
        if self.phase == PHASE_RUNNING:
            self.drain_id = None

    def rest(self, phase: str) -> list[TaskInstruction]:
        """It had drained or ended, durably, before it was restarted: only say so again."""
        self.state = DRAINED if phase == PHASE_DRAINED else ENDED
        out = [*self.seeks.when_at_rest(), *self.speak(with_time=True)]
        return [*out, Tell(TaskReported(self.plan.task, self.grant, phase))]

    # ---------------------------------------------------------------------------------------------------------- settling

    def settle(self, now: Now) -> list[TaskInstruction]:
        """Do what follows from the present state of affairs."""
        out: list[TaskInstruction] = []
        if self.state not in WORKING:
            return out
        self._time_news = self.inputs.lapse(now) or self._time_news
        if self._time_news and now.mono >= self._pace_s:
            self._time_news, self._speak_time, self._restless = False, True, True
            self._pace_s = now.mono + self.plan.settings.watermark_interval_s
            self.inputs.observe(now)
            self.letters.due.update(self.letters.newer_time())
        if self._restless:
            out += self._hear_and_say()
        if self._regate:
            self._regate = False
            if self.inputs.gate(self.run, draining=self.drain_id is not None):
                out.append(Gate(self.inputs.closed))
            self._restate()
        return out

    def _hear_and_say(self) -> list[TaskInstruction]:
        step: RunStep | None = None
        if self.chunk is None and self.letters.current is None and self._final_at is None:
            step = self.letters.next(self.hooks)
            self._restless = step is not None
        out = self.speak(with_time=False)
        if self._speak_time and step is None:
            out += self.ask_for_time()
            self._speak_time = self.letters.current is not None or self.chunk is not None
        finished = self.letters.finished()
        if finished and self.drain_id is None and self.state != ENDING:
            self._regate = True
            if finished == "drain":
                out += self.begin_drain(self._frames_drain())
        return [*out, step] if step is not None else out

    def _frames_drain(self) -> str:
        """The id of the drain that came in frames, before the job state brought it."""
        standing = self.inputs.progress.partition
        named = (standing(at.stream, at.partition).id for one in self.inputs.counted for at in one.owned)
        return next(filter(None, named), "")

    def speak(self, *, with_time: bool) -> list[TaskInstruction]:
        """Say what is due, and have it committed."""
        said = self.mouth.say(self.run, self.drain_id or "", heard=self.letters.heard, with_time=with_time)
        if not said:
            return []
        self.ledger.touch()
        return [*said, *self.ask_commit("control messages")]

    def ask_for_time(self) -> list[TaskInstruction]:
        """A newer time is said when the next commit begins: nobody reads it before, and what operators hold back goes on but once."""
        if not self.mouth.owes_time(self.run, self.drain_id or "", heard=self.letters.heard):
            return []
        self.ledger.touch()
        return self.ask_commit("control messages")

    def rests(self) -> list[TaskInstruction]:
        """In a bounded run: say it when all that there is is read, done and durable, and nothing comes but from other tasks."""
        busy = self.chunk or self.letters.current or self.letters.work or self.retry_s or self._time_news
        still = self.run.bounded and self.state == RUNNING and not busy and self.ledger.clean
        if not still or not self.inputs.waits_for_others():
            return self.stirs()
        if self._still:
            return []
        self._still = True
        return [Tell(TaskReported(self.plan.task, self.grant, SAYS_RUNNING, still=True))]

    def stirs(self) -> list[TaskInstruction]:
        """It moves: whoever was told that it does not is told so."""
        if not self._still:
            return []
        self._still = False
        return [Tell(TaskReported(self.plan.task, self.grant, SAYS_RUNNING))] if self.state in WORKING else []

    def _restate(self) -> None:
        if self.drain_id is not None:
            self.state = DRAINING
        elif self.letters.finished() == "end":
            self.state = ENDING
        elif self.inputs.bootstrap:
            self.state = BOOTSTRAPPING
        else:
            self.state = PAUSED if self.run.paused_job else RUNNING

    def ask_commit(self, why: str, *, urgent: bool = False) -> list[TaskInstruction]:
        """Ask for a commit, if there is something to commit and it was not asked for like this."""
        return [RequestCommit(why, urgent)] if self.ledger.wants(urgent=urgent) else []

    # ----------------------------------------------------------------------------------------------------------- draining

    def begin_drain(self, drain_id: str) -> list[TaskInstruction]:
        """Nothing more is fetched from outside; what is buffered is still processed, unless the bootstrap was not over.

        A cascade still reads the streams of jobs that were drained before, up to their ends.
        """
        keep = self.state != BOOTSTRAPPING
        self.drain_id, self.phase = drain_id, PHASE_DRAINING
        self.ledger.touch()
        self.inputs.bootstrap.clear()
        self.inputs.held.clear()
        self._restless = self._regate = True
        self.state = DRAINING
        external = tuple(at for at in self.inputs.external if at not in self.inputs.finished)
        through = self.through() if keep else {}
        stopped = tuple(at for at in external if at not in through)
        if stopped and keep:
            return [StopFetching(stopped), *self.ask_commit("drain")]
        self.inputs.drain(drain_id, {at: max(self._in_hand(at), through.get(at, 0)) for at in external})
        stop: list[TaskInstruction] = [StopFetching(stopped, keep=False)] if stopped else []
        return [*stop, *self.ask_commit("drain")]

    def through(self) -> dict[StreamPartition, int]:
        """The partitions of other jobs' streams that a drain still reads, each with its end."""
        ends = self.run.drain_upto
        return {
            at: ends[at.stream][at.partition]
            for at in self.inputs.external
            if at.partition < len(ends.get(at.stream, ()))
        }

    def _in_hand(self, at: StreamPartition) -> int:
        """Behind what the actor is working on."""
        return self.chunk.upto if self.chunk is not None and self.chunk.at == at else self.inputs.positions[at]

    # ------------------------------------------------------------------------------------------------------------ leaving

    def fail(self, why: str, *, passing: bool = False) -> list[TaskInstruction]:
        """User code or data has given up, or what is around the task (`passing`): what is complete is committed, then it is reported."""
        self.why, self._leaving, self._passing = why, FAILED, passing
        return [Note("failed", why, "error"), *self.stop_work(why), *self.leave()]

    def stop_work(self, why: str) -> list[TaskInstruction]:
        """Have the actor drop what it works on; what only waits (for a retry, for the commit of a step) is dropped here."""
        if self.retry_s is not None or self._step_at is not None:
            self.chunk = self.letters.current = self.retry_s = self._step_at = None
        return [DropChunk(why)] if self.chunk is not None or self.letters.current is not None else []

    def fail_now(self, why: str, *, passing: bool = True) -> list[TaskInstruction]:
        """Nothing is to be committed, or could be: drop everything and say so. `passing`: a disk, a broker, a log that is held up."""
        self.why = why
        self.state, self._dropped = FAILED, True
        report = TaskReported(self.plan.task, self.grant, SAYS_FAILED, why, gone=True, passing=passing)
        return [Discard(why), Tell(report)]

    def leave(self) -> list[TaskInstruction]:
        """One step further out: wait for the actor, commit, close."""
        self.state = RELEASING
        if self.chunk is not None or self.letters.current is not None or self._closing:
            return []
        if not self.ledger.clean:
            return self.ask_commit(f"{self._leaving}", urgent=True)
        self._closing = True
        return [CloseStore()]

    def with_phase(self, phase: str) -> None:
        """The whole task has drained or ended; reported when that is durable."""
        self.phase = phase
        self._final_at = self.ledger.touch()
