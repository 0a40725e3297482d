"""A tiny edge for stories about one task: it answers what the machine asks, unless the story wants to answer itself.

Its broker knows one offset for every question; its log is a list of (checkpoint, control table) as they became durable, so that a
task can die at any moment and be started again from what was durable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headgate.core.machine import Now, Tick
from headgate.core.names import StreamPartition as SP
from headgate.core.orders import ProducerSet, RunView, SeekApplied, Start, TaskReported
from headgate.core.progress.frames import Drain, EndOfStream, Watermark
from headgate.core.task.plan import INTERMEDIATE, InputPlan, OutputPlan, StepPlan, TaskPlan, TaskSettings
from headgate.core.task.protocol import (
    AskLogEnds,
    ChunkDone,
    ChunkTaken,
    CloseStore,
    CommitBegins,
    CommitDone,
    Contribute,
    ControlAtHead,
    FetchStopped,
    LogEnds,
    OffsetsResolved,
    OpenStore,
    RequestCommit,
    ResolveOffsets,
    Restore,
    Restored,
    RunStep,
    SendControl,
    SendReport,
    StepDone,
    StopFetching,
    StoreClosed,
    StoreOpened,
    StoreWiped,
    WipeStore,
)
from headgate.core.task.restoring import BEGINNING
from headgate.core.task.task import Task

JOB, RUN, UUID, ME = "sales/1", "r1", "u1", "Partition 0"
ORDERS, BY = "orders", "sales-1-by"
ORDERS0, BY0, BY1 = SP(ORDERS, 0), SP(BY, 0), SP(BY, 1)


def producers(*tasks: str, epoch: int = 1, stream: str = BY) -> ProducerSet:
    return ProducerSet(stream, epoch, frozenset(tasks))


def run_view(*tasks: str, epoch: int = 1, **changes: Any) -> RunView:
    names = tasks or (ME,)
    return RunView(**{"run_id": RUN, "job_uuid": UUID, "producers": {BY: producers(*names, epoch=epoch)}, **changes})


def source_plan(*, outputs: bool = True, settings: TaskSettings | None = None, **changes: Any) -> TaskPlan:
    """One source, and one intermediate stream of two partitions that it feeds (and does not read)."""
    inputs = (InputPlan(**{"stream": ORDERS, "partitions": (0,), "width": 1, **changes}),)
    out = (OutputPlan(BY, 2, frozenset({ORDERS})),) if outputs else ()
    return TaskPlan(JOB, ME, inputs, out, settings or TaskSettings(watermark_interval_s=0.2))


def hearing(plan: TaskPlan) -> TaskPlan:
    """The plan with a step that hears of the time of its inputs."""
    return replace(plan, steps=(StepPlan("step", frozenset(one.stream for one in plan.inputs)),))


def reader_plan(
    partitions: tuple[int, ...] = (0,), *, settings: TaskSettings | None = None, width: int = 2
) -> TaskPlan:
    """Only an intermediate stream; nothing is written."""
    inputs = (InputPlan(BY, partitions, width, INTERMEDIATE),)
    return TaskPlan(JOB, ME, inputs, (), settings or TaskSettings(watermark_interval_s=0.2))


def two_inputs(**changes: object) -> TaskPlan:
    """A source and an intermediate stream."""
    return TaskPlan(
        JOB,
        ME,
        (
            InputPlan(**{"stream": ORDERS, "partitions": (0,), "width": 1, **changes}),  # type: ignore[arg-type]
            InputPlan(BY, (0,), 2, INTERMEDIATE),
        ),
        (OutputPlan(BY, 2, frozenset({ORDERS})),),
        TaskSettings(watermark_interval_s=0.2, intermediate_max_lag=100),
    )


def merged() -> Rig:
    """A step over two streams, which has heard 50 of one and 200 of the other; another step reads only the second."""
    steps = (StepPlan("both", frozenset({ORDERS, BY})), StepPlan("one", frozenset({ORDERS})))
    rig = Rig(replace(two_inputs(), steps=steps)).start(run_view("a"))
    rig.hear(BY0, wm("a", 50))
    rig.chunk(ORDERS0, 5, 200)
    rig.wait(1.0)
    assert rig.times() == {"both": 50, "one": 200}
    return rig


def bootstrap_plan() -> TaskPlan:
    return TaskPlan(
        JOB,
        ME,
        (InputPlan("rates", (0,), 1, bootstrap=True), InputPlan(ORDERS, (0,), 1)),
        (OutputPlan(BY, 2, frozenset({ORDERS})),),
    )


RATES0 = SP("rates", 0)


class Rig:
    """One task and what it needs. `did` holds the instructions of the last call, `all` everything since the beginning."""

    def __init__(
        self,
        plan: TaskPlan,
        *,
        offset: int = 0,
        log: list[tuple[Any, dict[Any, Any]]] | None = None,
        auto_commit: bool = True,
        auto_steps: bool = True,
        machine: type[Task] = Task,
    ) -> None:
        self.task = machine(plan)
        self.offset = offset
        self.log = log if log is not None else []
        self.auto_commit, self.auto_steps = auto_commit, auto_steps
        self.now = 100.0
        self.did: list[Any] = []
        self.all: list[Any] = []
        self.txn = 0
        self.pending: Contribute | None = None
        self.wants_commit = False
        self.buffered: dict[SP, int] = {}
        self.owed: tuple[tuple[str, int], ...] = ()
        """What the operators owe."""

    # ------------------------------------------------------------------------------------------------------------- driving

    def clock(self) -> Now:
        return Now(self.now, int(self.now * 1000))

    def handle(self, event: Any) -> list[Any]:
        """The machine alone, without an edge."""
        out = self.task.handle(event, self.clock())
        self.did += out
        self.all += out
        self.wants_commit = self.wants_commit or any(isinstance(one, RequestCommit) for one in out)
        return out

    def feed(self, event: Any) -> list[Any]:
        """One event, with everything that the edge answers to it; returns all instructions."""
        self.did = []
        self._drive(self.handle(event))
        if self.auto_commit:
            for _ in range(50):
                if not self.wants_commit:
                    break
                self.commit()
            else:
                raise AssertionError("it wants commits for ever")
        return self.did

    def _drive(self, instructions: list[Any]) -> None:
        for one in instructions:
            answer = self._answer(one)
            if answer is not None:
                self._drive(self.handle(answer))

    def _answer(self, one: Any) -> Any:
        if isinstance(one, OpenStore):
            return StoreOpened()
        if isinstance(one, AskLogEnds):
            return LogEnds(0, len(self.log), 1000)
        if isinstance(one, WipeStore):
            return StoreWiped()
        if isinstance(one, Restore):
            checkpoint, rows = self.log[-1] if self.log else (None, {})
            return Restored(one.end, checkpoint, dict(rows), owed=self.owed)
        if isinstance(one, ResolveOffsets):
            return OffsetsResolved(
                one.request,
                dict.fromkeys(one.positions, 0 if one.ends and one.request != BEGINNING else self.offset),
                dict.fromkeys(one.until, self.offset + 100),
                dict.fromkeys(one.ends, self.offset + (10 if one.request == BEGINNING else 100)),
            )
        if isinstance(one, StopFetching):
            kept = {at: self.buffered.get(at, 0) for at in one.keep}
            return FetchStopped({**kept, **{at: self.task.position(at) for at in one.drop}})
        if isinstance(one, RunStep) and self.auto_steps:
            return StepDone(one.letter, owed=self.owed)
        return StoreClosed() if isinstance(one, CloseStore) else None

    def begin_commit(self) -> None:
        self.wants_commit = False
        self.txn += 1
        out = self.handle(CommitBegins(self.txn))
        self.pending = next((one for one in out if isinstance(one, Contribute)), None)

    def end_commit(self) -> None:
        if self.pending is None:
            return
        rows = dict(self.log[-1][1]) if self.log else {}
        for key, row in self.pending.rows.items():
            if row is None:
                rows.pop(key, None)
            else:
                rows[key] = row
        self.log.append((self.pending.checkpoint, rows))
        self.pending = None
        self._drive(self.handle(CommitDone(self.txn)))

    def commit(self) -> None:
        self.begin_commit()
        self.end_commit()

    def start(self, run: RunView | None = None, grant: int = 1) -> Rig:
        self.feed(Start(ME, grant, run or run_view(), 0))
        return self

    def again(self, run: RunView | None = None, **changes: Any) -> Rig:
        """The task dies now, and starts again from what was durable."""
        other = Rig(
            self.task.plan, log=self.log, machine=type(self.task),
            **{"offset": self.offset, "auto_commit": self.auto_commit, "auto_steps": self.auto_steps, **changes},
        )  # fmt: skip
        other.now, other.owed = self.now + 1, self.owed
        return other.start(run or self.task.run, grant=self.task.grant + 1)

    # ------------------------------------------------------------------------------------------------------------ shortcuts

    def chunk(self, at: SP, upto: int, max_ts: int | None = None, **changes: Any) -> list[Any]:
        self.feed(ChunkTaken(at, upto))
        return self.feed(ChunkDone(at, upto, max_ts, **{"owed": self.owed, **changes}))

    def hear(self, at: SP, frame: Any) -> list[Any]:
        return self.feed(ControlAtHead(at, self.task.position(at), frame))

    def wait(self, seconds: float) -> list[Any]:
        self.now += seconds
        return self.feed(Tick())

    # ------------------------------------------------------------------------------------------------------------ questions

    def told(self) -> list[str]:
        return [
            one.report.state for one in self.all if isinstance(one, SendReport) and isinstance(one.report, TaskReported)
        ]

    def seeks(self) -> list[SeekApplied]:
        return [one.report for one in self.all if isinstance(one, SendReport) and isinstance(one.report, SeekApplied)]

    def of(self, kind: type, *, last: bool = True) -> list[Any]:
        return [one for one in (self.did if last else self.all) if isinstance(one, kind)]

    def letters(self, *, last: bool = False) -> list[tuple[str, str | None, int | None]]:
        return [(one.kind, one.stream, one.ts) for one in self.of(RunStep, last=last)]

    def times(self) -> dict[str, int]:
        """By step, the last time that it was told."""
        return {name: ts for one in self.of(RunStep, last=False) for name, ts in one.times}

    def said(self, *, last: bool = False) -> list[tuple[str, Any, tuple[int, ...]]]:
        """What was said, short: ("wm", ts, partitions), ("idle", ts, …), ("end", epoch, …), ("drain", id, …)."""
        announced: list[tuple[str, Any, tuple[int, ...]]] = []
        for one in self.of(SendControl, last=last):
            frame = one.frame
            if isinstance(frame, Watermark):
                announced.append(("idle" if frame.idle else "wm", frame.ts, one.partitions))
            elif isinstance(frame, Drain):
                announced.append(("drain", frame.id, one.partitions))
            else:
                announced.append(("end", frame.epoch, one.partitions))
        return announced


def wm(task: str | None, ts: int, *, epoch: int = 1, idle: bool = False, tasks: int = 1, run: str = RUN) -> Watermark:
    return Watermark(JOB, run, task, tasks, epoch, ts, idle)


def eos(task: str | None, *, epoch: int = 1, tasks: int = 1, run: str = RUN, left: bool = False) -> EndOfStream:
    return EndOfStream(JOB, run, task, tasks, epoch, left)


def drain(task: str | None, id: str = "d1", *, epoch: int = 1, tasks: int = 1, run: str = RUN) -> Drain:
    return Drain(JOB, run, task, tasks, epoch, id)


def rows_of(rig: Rig) -> Mapping[Any, Any]:
    return rig.log[-1][1]
