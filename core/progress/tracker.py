"""Reconciling control messages: when has a stream ended or drained for a task, and which time has it reached?

A task hands every control frame that it reads to its `Progress`, and is told what its operators must hear:

    stream partition    drained when every producer has said drain or end; ended when every producer has said end;
                        its watermark is the least of all producers that are not idle
    stream              the same over the partitions that this task owns; the operators hear each thing once

What it promises:

- The order between producers and partitions, and duplicates, make no difference to what is told in the end.
- A frame of a newer epoch than the known producer set is answered with `EpochAhead`, and changes nothing: the partition waits until
  `producers_changed` has brought the set. Of other jobs the set is what their frames declare, so nothing waits.
- The partition through which a stream is aggregated is told about (`PartitionComplete`) as soon as it is complete, whatever the
  task's other partitions do: these may be waiting for just that.
- A stream's watermark never goes back; an end or a drain is told once; nothing is told after it.
- The whole state is small rows. `take_changes` yields those that changed, `rows=` brings them back, at any moment, and the
  restored one answers as the old one would have. Rows of an older run of the own job are dropped, and deleted; but what other jobs had
  said is kept where the new run goes on behind a drain (`goes_on`), for they will not say again what they said before its position.

Where the rules leave a choice:

- A stream of which the task owns no partition holds nobody up (`ended` and `drained` are true) and tells nothing.
- A producer set that is empty, or not known yet, is not complete: nobody has ended. A set is empty only before it is told.
- A stream that has ended is not told to have drained; whoever waits for drains asks `drained`, which an end fulfils.
- The maximal watermark is told only if it was said. That everybody has ended is told as the end, so that what closes a window
  can be named.
- What the reader itself says (`observe`, `end`, `drain`) is for sources, and for streams of other jobs, which a drain of this job
  finishes where it stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from ..errors import DataError
from ..orders import ProducerSet
from .events import (
    DRAIN,
    END,
    WATERMARK,
    EpochAhead,
    Event,
    PartitionComplete,
    StreamDrained,
    StreamEnded,
    StreamWatermark,
)
from .frames import ControlFrame
from .producers import (
    HEARD,
    UNKNOWN_JOB,
    ForeignProducers,
    ProducerGroup,
    Said,
    Sources,
    StreamPhase,
    StreamStatus,
    fold,
)

Row = tuple[Any, ...]
RowKey = tuple[Any, ...]
Place = tuple[str, int]
"""A stream and a partition; the partition `ALL` for what is kept once for the stream."""
ALL = -1
AnyProducers = ProducerSet | ForeignProducers | Sources


_NO_SET = ProducerSet("", -1, frozenset())


class _Partition:
    """One owned partition: a group for each producing job, and what the reader itself says."""

    __slots__ = ("groups", "own")

    def __init__(self) -> None:
        self.groups: dict[str, ProducerGroup] = {}
        self.own = StreamStatus()

    def reached(self, quorum: float) -> StreamStatus:
        parts = [group.reached(quorum) for group in self.groups.values()]
        own = self.own
        if not parts:
            return own
        heard = parts[0] if len(parts) == 1 else fold(parts)
        if own.status > heard.status:
            return own
        if heard.status == StreamPhase.OPEN and own.ts > heard.ts:
            return heard._replace(ts=own.ts)
        return heard


class Progress:
    """The control state of one task in one run.

    >>> from headgate.core.progress.frames import EndOfStream
    >>> from headgate.core.orders import ProducerSet
    >>> p = Progress("sales/1", "r1", {"sales-1-by": [0]}, {"sales-1-by": ProducerSet("sales-1-by", 1, frozenset({"Partition 0"}))})
    >>> p.take("sales-1-by", 0, EndOfStream("sales/1", "r1", "Partition 0", 1, 1))
    [StreamEnded(stream='sales-1-by')]
    """

    def __init__(
        self,
        own_job: str,
        run: str,
        owned: Mapping[str, Iterable[int]],
        producers: Mapping[str, AnyProducers],
        *,
        quorum: float = 0.5,
        aggregating: Mapping[str, int] | None = None,
        rows: Iterable[tuple[RowKey, Row]] = (),
        goes_on: bool = False,
    ) -> None:
        self.own_job = own_job
        self.run = run
        self.quorum = quorum
        self.aggregating = dict(aggregating or {})
        self.ignored: Counter[tuple[str, str]] = Counter()
        """How many frames changed nothing, by stream and reason."""
        self._producers: dict[str, AnyProducers] = {}
        self._streams: dict[str, dict[int, _Partition]] = {
            stream: {partition: _Partition() for partition in sorted(set(partitions))}
            for stream, partitions in owned.items()
        }
        self._told: dict[str, StreamStatus] = dict.fromkeys(self._streams, StreamStatus())
        self._passed: dict[str, tuple[int, StreamStatus]] = {}
        self._written: dict[Place, dict[RowKey, Row]] = {}
        self._touched: set[Place] = set()
        foreign = {stream for stream, one in producers.items() if isinstance(one, ForeignProducers)}
        self._restore(rows, foreign if goes_on else set())
        for stream in self._streams:
            self._seat(stream, producers.get(stream, _NO_SET))
            if stream in foreign:
                self._tell(stream)  # asked for, not handed out: whoever restores reads the answers

    # ------------------------------------------------------------------------------------------------------------ events

    def take(self, stream: str, partition: int, frame: ControlFrame) -> list[Event]:
        """Hear a control frame that was read from an owned partition; answer with what follows, or with one `EpochAhead`."""
        part = self._streams[stream][partition]
        group = part.groups.get(frame.job)
        if group is None:
            self.ignored[stream, UNKNOWN_JOB] += 1
            return []
        if group.members is not None and frame.epoch > group.epoch and frame.run == self.run:
            return [EpochAhead(stream, partition, frame.epoch)]
        reason = group.hear(frame)
        if reason != HEARD:
            self.ignored[stream, reason] += 1
        self._touched.add((stream, partition))
        return self._tell(stream)

    def observe(self, stream: str, partition: int, ts: int, *, idle: bool = False) -> list[Event]:
        """A source partition has reached this time (never back); `idle`: the broker has had nothing more for long enough."""
        own = self._streams[stream][partition].own
        return self._say(
            stream,
            partition,
            StreamStatus(own.status, max(ts, own.ts), idle, own.id) if own.status == StreamPhase.OPEN else own,
        )

    def end(self, stream: str, partition: int) -> list[Event]:
        """A source partition has been read up to its bound."""
        return self._say(stream, partition, StreamStatus(StreamPhase.ENDED))

    def drain(self, stream: str, partition: int, drain_id: str) -> list[Event]:
        """A source partition is read no further in this run. One that has ended stays ended."""
        own = self._streams[stream][partition].own
        return self._say(
            stream, partition, StreamStatus(StreamPhase.DRAINED, id=drain_id) if own.status == StreamPhase.OPEN else own
        )

    def producers_changed(self, producers: Mapping[str, AnyProducers]) -> list[Event]:
        """The job state brought other producer sets; an older epoch than the known one is ignored."""
        events: list[Event] = []
        for stream, new in producers.items():
            known = self._producers.get(stream)
            if stream not in self._streams or new == known:
                continue
            if isinstance(new, ProducerSet) and isinstance(known, ProducerSet) and new.epoch <= known.epoch:
                continue
            self._seat(stream, new)
            events += self._tell(stream)
        return events

    def repeat(self) -> list[Event]:
        """What the aggregating partitions last passed on: to be said again when the epoch changed elsewhere or a run starts."""
        return [self._complete(stream, epoch, reached) for stream, (epoch, reached) in sorted(self._passed.items())]

    # ----------------------------------------------------------------------------------------------------------- queries

    def judge_by(self, quorum: float) -> list[Event]:
        """From now on the idle are left out of the least by this quorum. What was told is not taken back."""
        if quorum == self.quorum:
            return []
        self.quorum = quorum
        for parts in self._streams.values():
            for part in parts.values():
                for group in part.groups.values():
                    group.judge_again()
        return [event for stream in self._streams for event in self._tell(stream)]

    def watermark(self, stream: str) -> int:
        """The last watermark that was told, or `NO_TIME`."""
        return self._told[stream].ts

    def idle(self, stream: str) -> bool:
        """Whether all that still produce this stream have said that they are idle."""
        return self._told[stream].idle

    def ended(self, stream: str) -> bool:
        """Whether the end was told, or nothing of the stream is owned."""
        return not self._streams.get(stream) or self._told[stream].status == StreamPhase.ENDED

    def drained(self, stream: str) -> bool:
        """Whether a drain or the end was told, or nothing of the stream is owned."""
        return not self._streams.get(stream) or self._told[stream].status != StreamPhase.OPEN

    def partition(self, stream: str, partition: int) -> StreamStatus:
        """How far one partition is, whatever the others do."""
        return self._streams[stream][partition].reached(self.quorum)

    def silent(self, stream: str) -> list[str]:
        """Who has not spoken yet and so holds the watermark, for people: `"<job> <task>"`, or how many of a job are unknown."""
        names: set[str] = set()
        for part in self._streams.get(stream, {}).values():
            for job, group in part.groups.items():
                known, unnamed = group.silent()
                names.update(f"{job} {name}" for name in known)
                if unnamed:
                    names.add(f"{job} ({unnamed} not heard of)")
        return sorted(names)

    # ------------------------------------------------------------------------------------------------------------- state

    def take_changes(self) -> dict[RowKey, Row | None]:
        """The rows that changed since the last call (None: deleted). Write all of them in one transaction, or none."""
        changes: dict[RowKey, Row | None] = {}
        for place in sorted(self._touched):
            before, now = self._written.pop(place, {}), dict(self._rows(place))
            changes.update({key: row for key, row in now.items() if before.get(key) != row})
            changes.update({key: None for key in before if key not in now})
            if now:
                self._written[place] = now
        self._touched.clear()
        return changes

    def to_value(self) -> list[tuple[RowKey, Row]]:
        """The whole state as rows, in a stable order; give it back as `rows=`. Reading it changes nothing."""
        places = [(stream, at) for stream, owned in self._streams.items() for at in (ALL, *owned)]
        return [row for place in sorted(places) for row in self._rows(place)]

    # ------------------------------------------------------------------------------------------------------------ inside

    def _say(self, stream: str, partition: int, own: StreamStatus) -> list[Event]:
        part = self._streams[stream][partition]
        if own == part.own:
            return []
        part.own = own
        self._touched.add((stream, partition))
        return self._tell(stream)

    def _seat(self, stream: str, new: AnyProducers) -> None:
        """Give each owned partition its groups; what was heard of producers that remain is kept."""
        self._producers[stream] = new
        for partition, part in self._streams[stream].items():
            known = part.groups
            if isinstance(new, ProducerSet):
                group = known.get(self.own_job) or ProducerGroup(self.run, new.tasks, new.epoch)
                group.set_members(new.tasks, new.epoch)
                part.groups = {self.own_job: group}
            else:
                jobs = sorted(new.jobs) if isinstance(new, ForeignProducers) else []
                part.groups = {job: known.get(job) or ProducerGroup("", None, -1) for job in jobs}
                for group in part.groups.values():
                    group.set_ends(not isinstance(new, ForeignProducers) or new.ends)
            self._touched.add((stream, partition))

    def _tell(self, stream: str) -> list[Event]:
        """What has not been told yet of a stream: first what others wait for, then what the operators hear."""
        parts = self._streams[stream]
        events = self._pass_on(stream)
        told = self._told[stream]
        if told.status != StreamPhase.OPEN or not parts:
            return events
        if len(parts) == 1:
            now = next(iter(parts.values())).reached(self.quorum)
        else:
            now = fold([part.reached(self.quorum) for part in parts.values()])
        if now.status == StreamPhase.ENDED:
            events.append(StreamEnded(stream))
            new = StreamStatus(StreamPhase.ENDED, told.ts)
        elif now.status == StreamPhase.DRAINED:
            events.append(StreamDrained(stream, now.id))
            new = StreamStatus(StreamPhase.DRAINED, told.ts, False, now.id)
        else:
            new = StreamStatus(StreamPhase.OPEN, max(told.ts, now.ts), now.idle)
            if new == told:
                return events
            events.append(StreamWatermark(stream, new.ts, new.idle))
        self._told[stream] = new
        self._touched.add((stream, ALL))
        return events

    def _pass_on(self, stream: str) -> list[Event]:
        """The aggregating partition's own news, under the epoch that it is true for."""
        part = self._streams[stream].get(self.aggregating.get(stream, ALL))
        producers = self._producers[stream]
        if part is None or not isinstance(producers, ProducerSet):
            return []
        now = part.reached(self.quorum)
        epoch, before = self._passed.get(stream, (ALL, StreamStatus()))
        if epoch == producers.epoch:
            if now.status == StreamPhase.OPEN:
                now = now._replace(ts=max(now.ts, before.ts))
            if now == before:
                return []
        elif now == StreamStatus():
            return []
        self._passed[stream] = (producers.epoch, now)
        self._touched.add((stream, ALL))
        return [self._complete(stream, producers.epoch, now)]

    def _complete(self, stream: str, epoch: int, now: StreamStatus) -> PartitionComplete:
        kind = (WATERMARK, DRAIN, END)[now.status]
        return PartitionComplete(stream, self.aggregating[stream], kind, epoch, now.ts, now.idle, now.id)

    def _rows(self, place: Place) -> Iterator[tuple[RowKey, Row]]:
        """The rows of one place. Each begins with the own run, so that those of an older one are known for what they are."""
        stream, at = place
        if at == ALL:
            told = self._told.get(stream, StreamStatus())
            if told != StreamStatus():
                yield (stream, ALL, "told"), (self.run, *told)
            if stream in self._passed:
                epoch, reached = self._passed[stream]
                yield (stream, ALL, "passed"), (self.run, epoch, *reached)
            return
        part = self._streams.get(stream, {}).get(at)
        if part is None:
            return
        if part.own != StreamStatus():
            yield (stream, at, "own"), (self.run, *part.own)
        for job, group in part.groups.items():
            if group.said or group.everyone is not None or group.past:
                everyone = None if group.everyone is None else tuple(group.everyone)
                yield (
                    (stream, at, "job", job),
                    (self.run, group.run, group.epoch, group.declared, group.past, everyone),
                )
            for task, said in sorted(group.said.items()):
                yield (stream, at, "said", job, task), (self.run, *said)

    def _restore(self, rows: Iterable[tuple[RowKey, Row]], kept: set[str]) -> None:
        """`kept`: the streams of which the frames of other jobs count whatever the own run was."""
        for key, row in sorted((tuple(key), _frozen(row)) for key, row in rows):
            place: Place = (key[0], key[1])
            self._written.setdefault(place, {})[key] = row
            self._touched.add(place)  # what is not taken over is deleted with the next changes
            part = self._streams.get(place[0], {}).get(place[1])
            if place[0] not in self._streams or (part is None and place[1] != ALL):
                continue
            if row[0] != self.run and not (place[0] in kept and key[2] in ("job", "said")):
                continue
            match (part, key[2:]):
                case (None, ("told",)):
                    self._told[place[0]] = StreamStatus(*row[1:])
                case (None, ("passed",)):
                    self._passed[place[0]] = (row[1], StreamStatus(*row[2:]))
                case (_Partition(), ("own",)):
                    part.own = StreamStatus(*row[1:])
                case (_Partition(), ("job", job)):
                    group = part.groups[job] = ProducerGroup(row[1], None, row[2])
                    group.declared, group.past = row[3], row[4]
                    group.everyone = None if row[5] is None else Said(*row[5])
                case (_Partition(), ("said", job, task)) if job in part.groups:
                    part.groups[job].said[task] = Said(*row[1:])
                case _:
                    raise DataError(
                        f"the row {key!r} of the control table stands alone, or nobody knows it",
                        remedy="the task log is damaged; restore it, or `headgate reset` the job",
                    )


def _frozen(value: Any) -> Any:
    """msgpack gives lists for tuples; rows are compared as tuples."""
    return tuple(_frozen(item) for item in cast("list[Any]", value)) if isinstance(value, list | tuple) else value
