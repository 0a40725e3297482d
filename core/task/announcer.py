"""What a task says to the streams that it feeds, worked out from what its operators have heard.

The operators of a task have *heard* of an input stream up to a time, its end, its drain. From that, and from what its steps pass
on (see `time`), follows what the task should say to each output; `control` turns the difference from what it said last into
frames. The same for the streams of which this task owns the aggregating partition: there it tells the other partitions what that
one partition (and no other) has completed.

What was said stands in the ledger (`:said`, `:relayed`), so a restart in the middle neither repeats nor forgets.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..orders import ProducerSet, RunView
from ..progress.frames import MAX_TIME, NO_TIME
from ..progress.markers import (
    AGGREGATED,
    DIRECT,
    NOTHING_ANNOUNCED,
    AddressedFrame,
    Announcement,
    Sender,
    aggregator,
    announce,
    merged,
    only_time_is_new,
    relay,
    route,
)
from ..progress.producers import StreamPhase, StreamStatus
from .inputs import Inputs
from .ledger import Ledger
from .plan import INTERMEDIATE, InputPlan, OutputPlan
from .protocol import SendControl
from .time import DEAF, TaskTime, Through, least


class Announcer:
    """The speaking side of a task."""

    def __init__(self, inputs: Inputs, ledger: Ledger, time: TaskTime) -> None:
        self.inputs = inputs
        self.plan = inputs.plan
        self.ledger = ledger
        self.time = time
        self._upstream = {output.stream: self.plan.streams_behind(output.parents) for output in self.plan.outputs}

    def said(self, kind: str, stream: str) -> Announcement:
        """What was said last, in the own name (`:said`) or for all (`:relayed`)."""
        row = self.ledger.rows.get((kind, stream))
        return Announcement(*row) if row else NOTHING_ANNOUNCED

    def say(self, run: RunView, drain_id: str, *, with_time: bool) -> list[SendControl]:
        """Everything that is due. Without `with_time`, what is only a newer time waits."""
        out: list[SendControl] = []
        for output, producers, said, due in self._news(run, drain_id):
            if not with_time and only_time_is_new(said, due):
                continue
            # nobody in the other job would pass on what is said to one partition only
            way = DIRECT if output.crosses else self.route(producers, output.width)
            frames = announce(said, due, self._sender(run, producers, self.plan.task), output.stream, output.width, way)
            out += self._sent(":said", output.stream, said, due, frames)
        for one in self.inputs.by_stream.values():
            if one.kind == INTERMEDIATE:
                out += self._relay(one, run, with_time=with_time)
        return out

    def owes_time(self, run: RunView, drain_id: str) -> bool:
        """Whether there is a newer time to say, or anything else."""
        if next(self._news(run, drain_id), None) is not None:
            return True
        intermediate = (one for one in self.inputs.by_stream.values() if one.kind == INTERMEDIATE)
        return any(self._relayed(one, run) is not None for one in intermediate)

    def _news(
        self, run: RunView, drain_id: str
    ) -> Iterator[tuple[OutputPlan, ProducerSet, Announcement, Announcement]]:
        """The outputs to which something newer is to be said, with what was said last, and what is to be said."""
        passing = self.time.passing() if self.plan.outputs else {}
        for output in self.plan.outputs:
            said, producers = self.said(":said", output.stream), self.producers(run, output.stream)
            due = self.due(output, said, producers.epoch, drain_id, least(output.parents, passing))
            if due != said:
                yield output, producers, said, due

    def _sent(
        self, kind: str, stream: str, said: Announcement, due: Announcement, frames: list[AddressedFrame]
    ) -> list[SendControl]:
        self.ledger.put((kind, stream), tuple(merged(said, due)))
        return [SendControl(one.frame, stream, one.partitions) for one in frames]

    def _sender(self, run: RunView, producers: ProducerSet, task: str | None) -> Sender:
        return Sender(self.plan.job, run.run_id, task, max(1, len(producers.tasks)))

    def producers(self, run: RunView, stream: str) -> ProducerSet:
        """Who writes the stream; only this task, when the job state does not say."""
        return run.producers.get(stream) or ProducerSet(stream, 0, frozenset({self.plan.task}))

    def route(self, producers: ProducerSet, width: int) -> str:
        """Which way control messages take into a stream."""
        return route(len(producers.tasks), width, self.plan.settings.aggregate_above)

    # ------------------------------------------------------------------------------------------------------- own name

    def due(
        self, output: OutputPlan, said: Announcement, epoch: int, drain_id: str, behind: Through | None
    ) -> Announcement:
        """What this task should say to an output: the phase of the inputs that flow into it, and the time that has come through."""
        status, drains = StreamPhase.ENDED, False
        for one in self.inputs.counted:
            if one.stream in self._upstream[output.stream]:
                now = self.time.heard.get(one.stream, DEAF)
                status = min(status, now.status)
                drains = (
                    drains
                    or now.status == StreamPhase.DRAINED
                    or (now.ts == MAX_TIME and now.status == StreamPhase.OPEN)
                )
        if said.ended or (status == StreamPhase.ENDED and said.drained is None):
            return Announcement(epoch, said.ts, False, True, said.drained)
        if said.drained is not None or (status != StreamPhase.OPEN and not output.crosses):
            return Announcement(epoch, MAX_TIME, False, False, said.drained or drain_id)
        if output.crosses and drains:
            return Announcement(epoch, said.ts, said.idle)  # its next run goes on where this one stops: nothing is over
        ts, idle = behind or (said.ts, said.idle)
        return Announcement(epoch, max(ts, said.ts), idle)

    # ------------------------------------------------------------------------------------------------------ on behalf of all

    def _relay(self, one: InputPlan, run: RunView, *, with_time: bool) -> list[SendControl]:
        due = self._relayed(one, run)
        said = self.said(":relayed", one.stream)
        if due is None or (not with_time and only_time_is_new(said, due)):
            return []
        producers = self.producers(run, one.stream)
        frames = relay(said, due, self._sender(run, producers, None), one.stream, one.width)
        return self._sent(":relayed", one.stream, said, due, frames)

    def _relayed(self, one: InputPlan, run: RunView) -> Announcement | None:
        """What the aggregating partition has completed, if this task owns it and that is news."""
        producers = run.producers.get(one.stream)
        if (
            producers is None
            or one.width < 2
            or aggregator(one.stream, one.width) not in one.partitions
            or self.route(producers, one.width) != AGGREGATED
        ):
            return None
        said = self.said(":relayed", one.stream)
        reached = self.relayed_status(one)
        if reached.status == StreamPhase.ENDED:
            due = Announcement(producers.epoch, said.ts, False, True, said.drained)
        elif reached.status == StreamPhase.DRAINED:
            due = Announcement(producers.epoch, MAX_TIME, False, said.ended, said.drained or reached.id)
        elif reached.ts == NO_TIME and not reached.idle:
            return None
        else:
            due = Announcement(producers.epoch, max(said.ts, reached.ts), reached.idle, said.ended, said.drained)
        return None if due == said else due

    def relayed_status(self, one: InputPlan) -> StreamStatus:
        """How far the aggregating partition is, that one alone: the task's other partitions may be waiting for just this."""
        return self.inputs.progress.partition(one.stream, aggregator(one.stream, one.width))
