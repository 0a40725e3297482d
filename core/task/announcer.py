"""Announces to the streams that a task writes how far its time, its end and its drain have come.

The operators of a task have *heard* of an input stream up to a time, its end or its drain. From that, and from the time that the task's
steps pass on (see `time`), follows what the task should announce to each output; `markers` turns the difference from its last announcement
into frames. For the streams whose aggregating partition this task owns, it announces to the other partitions what that one partition (and
no other) has completed.

The ledger contains the announcements (`:said`, `:relayed`), so a restart neither repeats nor loses one. To streams that other jobs read, a
task announces its state again at each start and every `share.restate`, because retention deletes old announcements. Its drain goes there
too, but without the maximal time before it: its next run continues from here, and closes nothing in the other job.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..machine import Now
from ..orders import ProducerSet, RunView
from ..progress.frames import MAX_TIME, NO_TIME
from ..progress.markers import (
    AGGREGATED,
    DIRECT,
    NEVER_ANNOUNCED,
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
from .plan import FOREIGN, INTERMEDIATE, InputPlan, OutputPlan
from .protocol import SendControl
from .time import NOTHING_HEARD, TaskTime, Through, least

NOT_YET = float("-inf")


class Announcer:
    """The announcements of a task."""

    def __init__(self, inputs: Inputs, ledger: Ledger, time: TaskTime) -> None:
        self.inputs = inputs
        self.plan = inputs.plan
        self.ledger = ledger
        self.time = time
        self._crossing = tuple(output.stream for output in self.plan.outputs if output.crosses)
        self._restated_s = NOT_YET
        """When the state was last announced again to all streams that other jobs read."""
        self._again: set[str] = set()
        """The streams to which the state is to be announced again, new or not."""
        bearing = [one for one in self.plan.inputs if one.external and not one.bootstrap]
        self._only_foreign = bearing[0].stream if len(bearing) == 1 and bearing[0].kind == FOREIGN else None
        """The stream of other jobs that alone brings the time of this job."""
        self._upstream = {output.stream: self.plan.streams_behind(output.parents) for output in self.plan.outputs}

    def said(self, kind: str, stream: str) -> Announcement:
        """The last announcement: the task's own (`:said`), or for all producers (`:relayed`)."""
        row = self.ledger.rows.get((kind, stream))
        return Announcement(*row) if row else NOTHING_ANNOUNCED

    def say(self, run: RunView, drain_id: str, *, with_time: bool) -> list[SendControl]:
        """The control messages that are due. Without `with_time`, a message that only brings a newer time waits."""
        out: list[SendControl] = []
        for output, producers, said, due in self._news(run, drain_id):
            if not with_time and only_time_is_new(said, due):
                continue
            # the other job would not pass on a message that is sent to one partition only
            way = DIRECT if output.crosses else self.route(producers, output.width)
            before = said._replace(epoch=NEVER_ANNOUNCED) if output.stream in self._again else said
            self._again.discard(output.stream)
            frames = announce(
                before, due, self._sender(run, producers, self.plan.task), output.stream, output.width, way
            )
            out += self._sent(":said", output.stream, said, due, frames)
        for one in self.inputs.by_stream.values():
            if one.kind == INTERMEDIATE:
                out += self._relay(one, run, with_time=with_time)
        return out

    @property
    def restates_s(self) -> float | None:
        """When the state is to be announced again; None if no other job reads a stream of this task."""
        return self._restated_s + self.inputs.plan.settings.restate_s if self._crossing else None

    def restate(self, now: Now) -> bool:
        """Whether what was announced to streams that other jobs read is to be announced again now. It is new to them until it is."""
        due_s = self.restates_s
        if due_s is None or now.mono < due_s:
            return False
        self._restated_s = now.mono
        self._again.update(stream for stream in self._crossing if self.said(":said", stream) != NOTHING_ANNOUNCED)
        return bool(self._again)

    def owes_time(self, run: RunView, drain_id: str) -> bool:
        """Whether there is anything new to announce."""
        if next(self._news(run, drain_id), None) is not None:
            return True
        intermediate = (one for one in self.inputs.by_stream.values() if one.kind == INTERMEDIATE)
        return any(self._relayed(one, run) is not None for one in intermediate)

    def _news(
        self, run: RunView, drain_id: str
    ) -> Iterator[tuple[OutputPlan, ProducerSet, Announcement, Announcement]]:
        """The outputs with something new to announce, each with its producers, the last announcement, and the new one."""
        passing = self.time.passing() if self.plan.outputs else {}
        for output in self.plan.outputs:
            said, producers = self.said(":said", output.stream), self.producers(run, output.stream)
            due = self.due(output, said, producers.epoch, drain_id, least(output.parents, passing))
            if due.ended and not said.ended and self.time.newer():
                continue  # first the steps hear what the end has brought: after it nothing is announced
            if due != said or output.stream in self._again:
                yield output, producers, said, due

    def _sent(
        self, kind: str, stream: str, said: Announcement, due: Announcement, frames: list[AddressedFrame]
    ) -> list[SendControl]:
        self.ledger.put((kind, stream), merged(said, due).row())
        return [SendControl(one.frame, stream, one.partitions) for one in frames]

    def _sender(self, run: RunView, producers: ProducerSet, task: str | None) -> Sender:
        return Sender(self.plan.job, run.run_id, task, max(1, len(producers.tasks)))

    def producers(self, run: RunView, stream: str) -> ProducerSet:
        """The producers of a stream; only this task if the job state does not say."""
        return run.producers.get(stream) or ProducerSet(stream, 0, frozenset({self.plan.task}))

    def route(self, producers: ProducerSet, width: int) -> str:
        """The route of control messages into a stream."""
        return route(len(producers.tasks), width, self.plan.settings.aggregate_above)

    # ------------------------------------------------------------------------------------------------------ own announcements

    def due(
        self, output: OutputPlan, said: Announcement, epoch: int, drain_id: str, behind: Through | None
    ) -> Announcement:
        """What this task should announce to an output: the phase of the inputs that flow into it, and the time that has come through."""
        status, drains = StreamPhase.LEFT, False
        for one in self.inputs.counted:
            if one.stream in self._upstream[output.stream]:
                now = self.time.heard.get(one.stream, NOTHING_HEARD)
                status = min(status, now.status)
                drains = (
                    drains
                    or now.status == StreamPhase.DRAINED
                    or (now.ts == MAX_TIME and now.status == StreamPhase.OPEN)
                )
        if said.ended:
            return Announcement(epoch, said.ts, False, True, said.drained, left=said.left)
        if status >= StreamPhase.ENDED and said.drained is None:
            last = behind or Through(NO_TIME, status=status)
            return Announcement(epoch, max(said.ts, last.ts), False, True, left=last.status == StreamPhase.LEFT)
        if said.drained is not None or status != StreamPhase.OPEN:
            return Announcement(epoch, said.ts if output.crosses else MAX_TIME, False, False, said.drained or drain_id)
        if drains and (output.crosses or behind is None or behind.ts < MAX_TIME):
            # it stands still until everything has drained
            return Announcement(epoch, said.ts, said.idle, away=said.away)
        ts, idle, _ = behind or Through(said.ts, said.idle)
        away = idle and self._awaits_next_run()
        if not output.crosses:
            return Announcement(epoch, max(ts, said.ts), idle and not away)
        return Announcement(epoch, max(ts, said.ts), idle, away=away)

    def _awaits_next_run(self) -> bool:
        """Whether only the next run of other jobs can bring this job anything. Then its tasks wait for each other: one that is not there
        when that run begins must not be left out, because its rows would be late. Readers in other jobs wait for all of them or for none.
        """
        return self._only_foreign is not None and self.inputs.progress.away(self._only_foreign)

    # -------------------------------------------------------------------------------------------- announcements for all producers

    def _relay(self, one: InputPlan, run: RunView, *, with_time: bool) -> list[SendControl]:
        due = self._relayed(one, run)
        said = self.said(":relayed", one.stream)
        if due is None or (not with_time and only_time_is_new(said, due)):
            return []
        producers = self.producers(run, one.stream)
        frames = relay(said, due, self._sender(run, producers, None), one.stream, one.width)
        return self._sent(":relayed", one.stream, said, due, frames)

    def _relayed(self, one: InputPlan, run: RunView) -> Announcement | None:
        """What the aggregating partition has completed, if this task owns it and this is new."""
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
        if reached.status >= StreamPhase.ENDED:
            left = said.left if said.ended else reached.status == StreamPhase.LEFT
            due = Announcement(producers.epoch, max(said.ts, reached.ts), False, True, said.drained, left=left)
        elif reached.status == StreamPhase.DRAINED:
            due = Announcement(producers.epoch, MAX_TIME, False, said.ended, said.drained or reached.id)
        elif reached.ts == NO_TIME and not reached.idle:
            return None
        else:
            due = Announcement(producers.epoch, max(said.ts, reached.ts), reached.idle, said.ended, said.drained)
        return None if due == said else due

    def relayed_status(self, one: InputPlan) -> StreamStatus:
        """How far the aggregating partition is. Only that one counts: the task's other partitions may be waiting for this announcement."""
        return self.inputs.progress.partition(one.stream, aggregator(one.stream, one.width))
