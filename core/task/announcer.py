"""Announces to the streams that a task writes how far its time, its end and its drain have come.

The operators of a task have *heard* of an input stream up to a time, its end or its drain. From that, and from the time that the task's
steps pass on (see `time`), follows what the task should announce to each output; `markers` turns the difference from its last announcement
into frames. For the streams whose aggregating partition this task owns, it announces to the other partitions what that one partition (and
no other) has completed.

A task that is idle confirms it (`Confirmations`): with each confirmation its readers lift its time to where the others had come by the one
before. So each stands on a fetch that was asked for after the one before was committed, and it is repeated every `watermark.idle-confirm`
while others may go on without it. Where the task reads the stream itself, and nothing else meets it, it sees whether they do.

The ledger contains the announcements (`:said`, `:relayed`), so a restart neither repeats nor loses one. To streams that other jobs read, a
task announces its state again at each start and every `share.restate`, because retention deletes old announcements. Its drain goes there
too, but without the maximal time before it: its next run continues from here, and closes nothing in the other job.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..machine import Now
from ..names import StreamPartition
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
from .plan import FOREIGN, INTERMEDIATE, InputPlan, OutputPlan, TaskPlan
from .protocol import SendControl
from .time import NOTHING_HEARD, TaskTime, Through

NOT_YET = float("-inf")
LONG_AGO = -1e300
"""Later than `NOT_YET`: something must have been seen."""
RELAY = "relay of "


class Confirmations:
    """When a task has confirmed to each stream that it is idle, and when that was committed."""

    def __init__(self) -> None:
        self._sent: set[str] = set()
        self._under_way: set[str] = set()
        self._committed_s: dict[str, float] = {}

    def sent(self, stream: str) -> None:
        """A confirmation goes with the next commit."""
        self._sent.add(stream)

    def begins(self) -> None:
        """A commit begins, with what was sent so far."""
        self._under_way |= self._sent
        self._sent.clear()

    def done(self, now: Now) -> None:
        """The commit is durable."""
        self._committed_s.update(dict.fromkeys(self._under_way, now.mono))
        self._under_way.clear()

    def committed_s(self, stream: str) -> float | None:
        """When the last confirmation was committed; None while one is not. Before this start of the task was long ago."""
        return None if stream in self._sent or stream in self._under_way else self._committed_s.get(stream, NOT_YET)


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
        self._rests = False
        """No other producer goes on that could wait for this task: there is nothing to confirm until something is heard."""
        self._looked_s = NOT_YET
        """When it was last looked whether idleness is to be confirmed."""
        self._again: set[str] = set()
        """The streams to which the state is to be announced again, new or not."""
        bearing = [one for one in self.plan.inputs if one.external and not one.bootstrap]
        self._only_foreign = bearing[0].stream if len(bearing) == 1 and bearing[0].kind == FOREIGN else None
        """The stream of other jobs that alone brings the time of this job."""
        self._upstream = {output.stream: self.plan.streams_behind(output.parents) for output in self.plan.outputs}
        self.confirmations = Confirmations()
        self.withheld = False
        """The last messages took back that an idle task is idle, since that is not certain at their time: it is to be said once more."""
        self._confirming: set[str] = set()
        """The streams to which idleness is to be confirmed again."""
        self._meeting = meeting(self.plan)
        self._relays = tuple(
            one
            for one in self.inputs.by_stream.values()
            if one.kind == INTERMEDIATE
            and one.stream in self._meeting
            and aggregator(one.stream, one.width) in one.partitions
        )
        """The streams for whose producers this task may speak, and whose time meets another one."""
        own = ((":said", one.stream, one.stream) for one in self.plan.outputs)
        relayed = ((":relayed", one.stream, RELAY + one.stream) for one in self._relays)
        self._spoken = (*own, *relayed)
        """What it may say to be idle: the kind and the stream of the announcement, and its name among the confirmations."""

    def said(self, kind: str, stream: str) -> Announcement:
        """The last announcement: the task's own (`:said`), or for all producers (`:relayed`)."""
        row = self.ledger.rows.get((kind, stream))
        return Announcement(*row) if row else NOTHING_ANNOUNCED

    def say(self, run: RunView, drain_id: str, *, with_time: bool) -> list[SendControl]:
        """The control messages that are due. Without `with_time`, a message that only brings a newer time waits."""
        out: list[SendControl] = []
        self.withheld = False
        for output, producers, said, due, withheld in self._news(run, drain_id):
            if not with_time and only_time_is_new(said, due):
                continue
            self.withheld = self.withheld or withheld
            # the other job would not pass on a message that is sent to one partition only
            way = DIRECT if output.crosses else self.route(producers, output.width)
            before = said._replace(epoch=NEVER_ANNOUNCED) if output.stream in self._again else said
            if output.stream in self._confirming and before == due:
                before = said._replace(idle=False)  # so it is said again
            self._again.discard(output.stream)
            self._confirming.discard(output.stream)
            if due.idle and due.epoch != NEVER_ANNOUNCED:
                self.confirmations.sent(output.stream)
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

    @property
    def confirms_s(self) -> float | None:
        """When an idle task looks again whether to confirm that it is; None if it has announced that to no stream."""
        every_s = self.inputs.plan.settings.idle_confirm_s
        if self._rests:
            return None
        times: list[float | None] = []
        for kind, stream, name in self._spoken:
            said = self.said(kind, stream)
            if said.idle and not said.away and name not in self._confirming:
                times.append(self.confirmations.committed_s(name))
        if not times:
            return None
        return max(self._looked_s, min((one for one in times if one is not None), default=NOT_YET)) + every_s

    def confirm(self, now: Now, run: RunView, drain_id: str) -> bool:
        """Whether idleness is to be confirmed to some streams with the next commit."""
        due_s = self.confirms_s
        if due_s is None or now.mono < due_s:
            return False
        self._looked_s, self._rests = now.mono, not self._relays
        passing = self.time.passing()
        for output in self.plan.outputs:
            said, producers = self.said(":said", output.stream), self.producers(run, output.stream)
            idle = said.idle and not said.away  # who is away is not lifted
            watched = self._is_watched(output, producers)
            self._rests = self._rests and not watched  # this one may be idle later, and nothing be heard then
            if idle and watched and said.epoch == producers.epoch:
                behind = self.time.reached(output.parents, output.stream, passing)
                if self.due(output, said, producers.epoch, drain_id, behind) == said and self._is_silent(output):
                    self._confirming.add(output.stream)
        for one in self._relays:
            at = StreamPartition(one.stream, aggregator(one.stream, one.width))
            committed_s = self.confirmations.committed_s(RELAY + one.stream)
            idle = self.said(":relayed", one.stream).idle and self.relayed_status(one).idle
            if (
                idle
                and self._speaks_for_all(one, run)
                and committed_s is not None
                and self.inputs.silent_at(at) >= max(committed_s, LONG_AGO)
            ):
                self._confirming.add(RELAY + one.stream)
        return bool(self._confirming)

    def wake(self) -> None:
        """Something was heard: others may go on."""
        self._rests = False

    def _is_silent(self, output: OutputPlan) -> bool:
        """Whether what this task reads for an output is certain to have been silent since its last confirmation was committed."""
        committed_s = self.confirmations.committed_s(output.stream)
        return committed_s is not None and all(
            self.inputs.silent_since(stream) >= max(committed_s, LONG_AGO)
            for stream in self._upstream[output.stream]
            if self.time.heard.get(stream, NOTHING_HEARD).status == StreamPhase.OPEN
        )

    def _is_watched(self, output: OutputPlan, producers: ProducerSet) -> bool:
        """Whether others may wait for this task: they go on, or this task cannot see whether they do."""
        if len(producers.tasks) < 2 and output.stream not in self._meeting and not output.crosses:
            return False
        own = self.inputs.by_stream.get(output.stream)
        if own is None or not own.partitions or output.crosses or output.stream in self._meeting:
            return True
        if (
            self.route(producers, output.width) == AGGREGATED
            and aggregator(output.stream, output.width) not in own.partitions
        ):  # here it hears only what is said on behalf of all
            return not any(self.inputs.progress.all_idle(output.stream, at) for at in own.partitions)
        if self.confirmations.committed_s(output.stream) == NOT_YET:
            return True  # after a start no one is known to be idle: two at the same time would each take the other for the one that holds
        return any(self.inputs.progress.moves(output.stream, at, self.plan.task) for at in own.partitions)

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
    ) -> Iterator[tuple[OutputPlan, ProducerSet, Announcement, Announcement, bool]]:
        """The outputs with something new to announce, each with its producers, the last announcement, the new one, and whether that one
        withholds that the task is idle.
        """
        passing = self.time.passing() if self.plan.outputs else {}
        for output in self.plan.outputs:
            said, producers = self.said(":said", output.stream), self.producers(run, output.stream)
            due = self.due(
                output, said, producers.epoch, drain_id, self.time.reached(output.parents, output.stream, passing)
            )
            again = due != said or output.stream in self._again
            withheld = due.idle and said.idle and not due.away and again and not self._is_silent(output)
            if withheld:
                due = due._replace(idle=False)  # said again without being certain of it, it would lift this task
            if due.ended and not said.ended and self.time.newer():
                continue  # first the steps hear what the end has brought: after it nothing is announced
            if due != said or output.stream in self._again or output.stream in self._confirming:
                yield output, producers, said, due, withheld

    def _sent(
        self, kind: str, stream: str, said: Announcement, due: Announcement, frames: list[AddressedFrame]
    ) -> list[SendControl]:
        self.ledger.put((kind, stream), merged(said, due).row())
        if frames:
            self.ledger.touch()  # what is said again changes no row, and must be in the commit all the same
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
        ts, idle, *_ = behind or Through(said.ts, said.idle)
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
        if due is None:
            self._confirming.discard(RELAY + one.stream)
            return []
        if not with_time and only_time_is_new(said, due):
            return []
        before = said._replace(idle=False) if RELAY + one.stream in self._confirming and said == due else said
        self._confirming.discard(RELAY + one.stream)
        if due.idle:
            self.confirmations.sent(RELAY + one.stream)
        producers = self.producers(run, one.stream)
        frames = relay(before, due, self._sender(run, producers, None), one.stream, one.width)
        return self._sent(":relayed", one.stream, said, due, frames)

    def _relayed(self, one: InputPlan, run: RunView) -> Announcement | None:
        """What the aggregating partition has completed, if this task owns it and this is new."""
        if not self._speaks_for_all(one, run):
            return None
        producers = self.producers(run, one.stream)
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
            # who hears that all are idle rests, and would not confirm what lifts it to where another one had come
            at = one.stream, aggregator(one.stream, one.width)
            idle = reached.idle and not self.inputs.progress.lifts_next(*at)
            due = Announcement(producers.epoch, max(said.ts, reached.ts), idle, said.ended, said.drained)
        if due.idle and said.idle and due != said and RELAY + one.stream not in self._confirming:
            due = due._replace(idle=False)  # as in `_news`
        return None if due == said and RELAY + one.stream not in self._confirming else due

    def _speaks_for_all(self, one: InputPlan, run: RunView) -> bool:
        """Whether this task announces to the other partitions of a stream what the aggregating one has completed."""
        return (
            one.stream in run.producers
            and one.width > 1
            and aggregator(one.stream, one.width) in one.partitions
            and self.route(run.producers[one.stream], one.width) == AGGREGATED
        )

    def relayed_status(self, one: InputPlan) -> StreamStatus:
        """How far the aggregating partition is. Only that one counts: the task's other partitions may be waiting for this announcement."""
        return self.inputs.progress.partition(one.stream, aggregator(one.stream, one.width))


def meeting(plan: TaskPlan) -> frozenset[str]:
    """The streams whose time meets another one at a step or an output of some task, directly or through further streams. In another job it
    may meet any.
    """
    met: set[str] = set()
    for one in (*plan.steps, *plan.outputs):
        if len(one.parents) > 1 or (isinstance(one, OutputPlan) and one.crosses):
            met |= plan.streams_behind(one.parents)
    more = True
    while more:
        behind = frozenset[str]().union(
            *(plan.streams_behind(one.parents) for one in plan.outputs if one.stream in met)
        )
        more = not behind <= met
        met |= behind
    return frozenset(met)
