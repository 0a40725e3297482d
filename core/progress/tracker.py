"""Reconciles control messages: when has a stream ended or drained for a task, and which time has it reached?

A task passes every control frame that it reads to its `Progress`, and asks it what to tell its operators:

    stream partition    drained when every producer has announced a drain or an end; ended when every producer has announced its end;
                        its watermark is the least of all producers, of which those that confirm that they are idle are lifted to the
                        others; one that has ended counts with its last time until all have, unless it has left
    stream              the same over the partitions that this task owns

What it promises:

- The order between producers and partitions, and duplicates, do not affect the final result. Confirmations of idleness count each: how far
  they lift their producer follows from their place in the log.
- A frame with a newer epoch than that of the known producer set is refused, and changes nothing: the partition waits until
  `producers_changed` brings the set. For other jobs, the set follows from their frames, so nothing waits.
- A job that is away in one partition, and has gone on in another, holds the time of the stream until that is heard in both.
- The progress of one partition (`partition`) does not depend on others: relaying for an aggregated stream needs only one partition.
- A stream's watermark never goes back, and nothing follows its end or its drain. Only what executors have read of a source that had
  ended by then sets its last time.
- The whole state consists of small rows. `take_changes` returns those that changed, and `rows=` restores them; the restored object answers
  as the old one would have, but knows of no one that it is idle until that is said again. Rows of an older run of this job are dropped
  and deleted. But what other jobs announced is kept if the new run continues after a drain (`goes_on`), because they will not repeat what
  they announced before its position.

Where the rules leave a choice:

- A stream of which the task owns no partition holds nothing back: `ended` and `drained` are true.
- A producer set that is empty or not known yet is not complete, so it has not ended. A set is empty only before it is known.
- A stream that has ended counts as drained, too.
- The maximal watermark is reached only if it was announced. The end of all producers brings at most the least of their last times, so
  that the cause of a window's closing can be named.
- The reader's own reports (`observe`, `end`, `drain`) are for sources, and for streams of other jobs, which a drain of this job finishes at
  their current position.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, cast

from ..errors import DataError
from ..orders import ProducerSet
from .frames import NO_TIME, ControlFrame, Watermark
from .producers import (
    BEHIND,
    HAS_ENDED,
    HEARD,
    IDLE,
    NOTHING,
    REGRESSED,
    UNKNOWN_JOB,
    ForeignProducers,
    Holder,
    ProducerGroup,
    Said,
    Sources,
    StreamPhase,
    StreamStatus,
    fold,
    kept,
)

Row = tuple[Any, ...]
RowKey = tuple[Any, ...]
Place = tuple[str, int]
"""A stream and a partition; the partition is `ALL` for what is kept once per stream."""
ALL = -1
AnyProducers = ProducerSet | ForeignProducers | Sources


_NO_SET = ProducerSet("", -1, frozenset())


class _Partition:
    """One owned partition: a group for each producing job, and what the reader itself reports."""

    __slots__ = ("groups", "lifted", "own")

    def __init__(self) -> None:
        self.groups: dict[str, ProducerGroup] = {}
        self.own = StreamStatus()
        self.lifted = NO_TIME
        """How far a source that is idle was lifted to the other partitions of its stream since this start of the task."""

    def lift(self, job: str, name: str) -> None:
        """This producer has said that it is idle: lift it to the others, of all jobs that write this partition."""
        others = [group.moving(name if at == job else None) for at, group in self.groups.items()]
        self.groups[job].lift(name, min((ts for ts in others if ts is not None), default=None))

    def reached(self, overtaken: Collection[str] = ()) -> StreamStatus:
        """Its progress. `overtaken`: the jobs that are away here, and have begun again in another partition of the stream."""
        parts = [NOTHING if job in overtaken else group.reached() for job, group in self.groups.items()]
        own = self.own
        if own.status == StreamPhase.OPEN and self.lifted > own.ts:
            own = own._replace(ts=self.lifted)
        if not parts:
            return own
        heard = parts[0] if len(parts) == 1 else fold(parts)
        if own.status > heard.status:
            return own._replace(ts=max(own.ts, heard.ts)) if own.status >= StreamPhase.ENDED else own
        if heard.status == StreamPhase.OPEN and own.ts > heard.ts:
            return heard._replace(ts=own.ts)
        return heard

    def holders(self, name: str, overtaken: Collection[str]) -> list[Holder]:
        """What holds its watermark back; `name`: the name of this partition."""
        if overtaken:
            return [Holder(NO_TIME, name, BEHIND)]
        if not self.groups:
            return [
                Holder(
                    max(self.own.ts, self.lifted),
                    name,
                    HAS_ENDED if self.own.status >= StreamPhase.ENDED else IDLE if self.own.idle else BEHIND,
                )
            ]
        reached = {job: group.reached() for job, group in self.groups.items()}
        open_ = [job for job, one in reached.items() if one.status == StreamPhase.OPEN]
        pool = [job for job in open_ if not reached[job].away] or open_ or list(reached)
        low = min(reached[job].ts for job in pool)
        return [one for job in pool if reached[job].ts == low for one in self.groups[job].holders(job)]


class Progress:
    """The control state of one task in one run.

    >>> from headgate.core.progress.frames import EndOfStream
    >>> from headgate.core.orders import ProducerSet
    >>> p = Progress("sales/1", "r1", {"sales-1-by": [0]}, {"sales-1-by": ProducerSet("sales-1-by", 1, frozenset({"Partition 0"}))})
    >>> p.take("sales-1-by", 0, EndOfStream("sales/1", "r1", "Partition 0", 1, 1))
    True
    >>> p.ended("sales-1-by")
    True
    """

    def __init__(
        self,
        own_job: str,
        run: str,
        owned: Mapping[str, Iterable[int]],
        producers: Mapping[str, AnyProducers],
        *,
        rows: Iterable[tuple[RowKey, Row]] = (),
        goes_on: bool = False,
    ) -> None:
        self.own_job = own_job
        self.run = run
        self.ignored: Counter[tuple[str, str]] = Counter()
        """How many frames did not fully count, by stream and reason."""
        self.reason = HEARD
        """Why the last frame did not fully count; `HEARD` if it did."""
        self._producers: dict[str, AnyProducers] = {}
        self._streams: dict[str, dict[int, _Partition]] = {
            stream: {partition: _Partition() for partition in sorted(set(partitions))}
            for stream, partitions in owned.items()
        }
        self._reached: dict[str, StreamStatus] = dict.fromkeys(self._streams, StreamStatus())
        self._written: dict[Place, dict[RowKey, Row]] = {}
        self._touched: set[Place] = set()
        foreign = {stream for stream, one in producers.items() if isinstance(one, ForeignProducers)}
        self._restore(rows, foreign if goes_on else set())
        for stream in self._streams:
            self._seat(stream, producers.get(stream, _NO_SET))
            if stream in foreign:
                self._advance(stream)

    # ------------------------------------------------------------------------------------------------------------ events

    def take(self, stream: str, partition: int, frame: ControlFrame) -> bool:
        """Take a control frame that was read from an owned partition.

        False: it was not taken, because its epoch is newer than that of the known producer set. Pass it again after `producers_changed`.
        """
        part = self._streams[stream][partition]
        group = part.groups.get(frame.job)
        if group is None:
            self.ignored[stream, UNKNOWN_JOB] += 1
            self.reason = UNKNOWN_JOB
            return True
        if group.members is not None and frame.epoch > group.epoch and frame.run == self.run:
            return False
        self.reason = reason = group.hear(frame)
        if reason != HEARD:
            self.ignored[stream, reason] += 1
        counts = reason in (HEARD, REGRESSED)
        if counts and isinstance(frame, Watermark) and frame.idle and frame.task in group.said:
            part.lift(frame.job, frame.task)
        self._touched.add((stream, partition))
        self._advance(stream)
        return True

    def observe(self, stream: str, partition: int, ts: int, *, idle: bool = False) -> None:
        """A source partition has reached this time (it never goes back); `idle`: the broker has had no more records for long enough."""
        own = self._streams[stream][partition].own
        if own.status != StreamPhase.DRAINED:
            idle = idle and own.status == StreamPhase.OPEN
            self._say(stream, partition, StreamStatus(own.status, max(ts, own.ts), idle, own.id))

    def end(self, stream: str, partition: int, ts: int = NO_TIME, *, left: bool = False) -> None:
        """A source partition has been read up to its bound, and this is its last time. That counts until the others have ended, too,
        unless the partition has `left`.
        """
        own = self._streams[stream][partition].own
        phase = StreamPhase.LEFT if left else StreamPhase.ENDED
        self._say(
            stream, partition, StreamStatus(own.status if own.status >= StreamPhase.ENDED else phase, max(ts, own.ts))
        )

    def drain(self, stream: str, partition: int, drain_id: str) -> None:
        """A source partition is not read any further in this run. A partition that has ended stays ended."""
        own = self._streams[stream][partition].own
        self._say(
            stream, partition, StreamStatus(StreamPhase.DRAINED, id=drain_id) if own.status == StreamPhase.OPEN else own
        )

    def forget(self, stream: str, partition: int) -> None:
        """The partition of a stream of other jobs is read again from an earlier position: what its producers have said comes again. What
        was reached is not taken back."""
        self._streams[stream][partition].groups.clear()
        self._seat(stream, self._producers[stream])
        self._advance(stream)

    def producers_changed(self, producers: Mapping[str, AnyProducers]) -> None:
        """The job state has new producer sets; a set with an epoch that is not newer than the known one is ignored."""
        for stream, new in producers.items():
            known = self._producers.get(stream)
            if stream not in self._streams or new == known:
                continue
            if isinstance(new, ProducerSet) and isinstance(known, ProducerSet) and new.epoch <= known.epoch:
                continue
            self._seat(stream, new)
            self._advance(stream)

    def lift(self, stream: str, partition: int, ts: int) -> None:
        """A source that is idle has reached this time with the other partitions of its stream. This lasts as long as this object does: what
        the stream has reached with it is stored.
        """
        part = self._streams[stream][partition]
        if ts > part.lifted:
            part.lifted = ts
            self._advance(stream)

    # ----------------------------------------------------------------------------------------------------------- queries

    def watermark(self, stream: str) -> int:
        """The time up to which the stream is complete, or `NO_TIME`."""
        return self._reached[stream].ts

    def idle(self, stream: str) -> bool:
        """Whether all producers of this stream that are still open have announced that they are idle."""
        return self._reached[stream].idle

    def confirmed(self, stream: str, partition: int) -> dict[str, Counter[str]]:
        """By job, how often each producer has confirmed so far that it is idle."""
        return {job: Counter(group.confirmed) for job, group in self._streams[stream][partition].groups.items()}

    def silence(self, stream: str, partition: int, since: Mapping[str, Counter[str]]) -> bool:
        """Whether all producers of this partition have confirmed twice in a row since then that they are idle."""
        groups = self._streams[stream][partition].groups
        return bool(groups) and all(group.silence(since.get(job, Counter())) for job, group in groups.items())

    def moves(self, stream: str, partition: int, task: str) -> bool:
        """Whether other producers of this job have gone further in this partition than this idle one, so that it is to confirm again."""
        group = self._streams[stream][partition].groups.get(self.own_job)
        said = group.said.get(task) if group is not None else None
        if group is None or said is None or group.everyone is not None:
            return not self.all_idle(stream, partition)
        others = group.moving(task)
        return said.mark > said.upto or (others is not None and others > said.upto)

    def lifts_next(self, stream: str, partition: int) -> bool:
        """Whether the next confirmation of a producer of this job lifts it here."""
        group = self._streams[stream][partition].groups.get(self.own_job)
        return group is not None and any(said.idle and said.mark > said.upto for said in group.said.values())

    def all_idle(self, stream: str, partition: int) -> bool:
        """Whether it was said last, on behalf of all producers of this job, that they are idle."""
        group = self._streams[stream][partition].groups.get(self.own_job)
        everyone = None if group is None else group.everyone
        return everyone is not None and everyone.idle

    def away(self, stream: str) -> bool:
        """Whether all jobs that produce this stream are away in every owned partition: only their next runs can bring anything."""
        found = False
        for part in self._streams.get(stream, {}).values():
            for group in part.groups.values():
                if not group.is_away():
                    return False
                found = True
        return found

    def ended(self, stream: str) -> bool:
        """Whether every producer of every owned partition has ended."""
        return not self._streams.get(stream) or self._reached[stream].status >= StreamPhase.ENDED

    def phase(self, stream: str) -> StreamPhase:
        """The phase of the stream."""
        return self._reached[stream].status

    def drained(self, stream: str) -> bool:
        """Whether every producer of every owned partition has drained or ended."""
        return not self._streams.get(stream) or self._reached[stream].status != StreamPhase.OPEN

    def partition(self, stream: str, partition: int) -> StreamStatus:
        """The progress of one partition, independent of the others."""
        return self._streams[stream][partition].reached()

    def holders(self, stream: str) -> list[Holder]:
        """What holds the watermark of the stream back, each holder once, sorted by name; empty if the stream has ended or drained."""
        owned = self._streams.get(stream, {})
        overtaken = {at: self._overtaken(owned, part) for at, part in owned.items()}
        parts = [(at, part, part.reached(overtaken[at])) for at, part in owned.items()]
        live = [one for one in parts if one[2].status == StreamPhase.OPEN]
        pool = [one for one in live if not one[2].away] or live
        pool += [one for one in parts if pool and kept([one[2]])]
        low = min((reached.ts for *_, reached in pool), default=NO_TIME)
        found: dict[str, Holder] = {}
        for at, part, reached in pool:
            if reached.ts == low:
                for one in part.holders(f"{stream}:{at}", overtaken[at]):
                    found.setdefault(one.who, one)
        return [found[who] for who in sorted(found)]

    # ------------------------------------------------------------------------------------------------------------- state

    def take_changes(self) -> dict[RowKey, Row | None]:
        """The rows that changed since the last call (None: deleted). Write all of them in one transaction, or none of them."""
        changes: dict[RowKey, Row | None] = {}
        for place in sorted(self._touched):
            before, now = self._written.pop(place, {}), dict(self._rows(place))
            changes.update({key: row for key, row in now.items() if before.get(key) != row})
            changes.update({key: None for key in before if key not in now})
            if now:
                self._written[place] = now
        self._touched.clear()
        return changes

    # ------------------------------------------------------------------------------------------------------------ inside

    def _say(self, stream: str, partition: int, own: StreamStatus) -> None:
        part = self._streams[stream][partition]
        if own == part.own and not own.idle:  # idleness is new again to a stream that was restored without it
            return
        part.own = own
        self._touched.add((stream, partition))
        self._advance(stream)

    def _seat(self, stream: str, new: AnyProducers) -> None:
        """Give each owned partition its groups; what remaining producers have announced is kept."""
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

    def _advance(self, stream: str) -> None:
        """Compute the stream's progress again over all owned partitions: it never goes back, and stops at the end or drain."""
        parts = self._streams[stream]
        before = self._reached[stream]
        if before.status == StreamPhase.DRAINED or not parts:
            return
        if len(parts) == 1:
            now = next(iter(parts.values())).reached()
        else:
            now = fold([part.reached(self._overtaken(parts, part)) for part in parts.values()])
        if before.status >= StreamPhase.ENDED:  # executors have read what had ended: now its times are known
            known = now.status >= StreamPhase.ENDED and now.ts > NO_TIME
            now = before._replace(ts=now.ts) if known else before
        else:
            now = now._replace(ts=max(before.ts, now.ts))
        if now != before:
            self._reached[stream] = now
            self._touched.add((stream, ALL))

    def _overtaken(self, parts: Mapping[int, _Partition], part: _Partition) -> list[str]:
        """The jobs that are away in this partition, but have gone on in another one, which was read further: here, the records of that are
        still to come, so this partition holds the time of the stream."""
        if len(parts) == 1 or self.own_job in part.groups:
            return []
        return [
            job
            for job, group in part.groups.items()
            if group.is_away() and any(group.is_before(other.groups[job]) for other in parts.values())
        ]

    def _rows(self, place: Place) -> Iterator[tuple[RowKey, Row]]:
        """The rows of one place. Each begins with this job's run id, so that rows of an older run can be recognised."""
        stream, at = place
        if at == ALL:
            reached = self._reached.get(stream, StreamStatus())
            if reached != StreamStatus():
                yield (stream, ALL, "told"), (self.run, *reached.row())
            return
        part = self._streams.get(stream, {}).get(at)
        if part is None:
            return
        if part.own != StreamStatus():
            # that it was idle at this position is true for as long as nothing stands behind it
            yield (stream, at, "own"), (self.run, *tuple(part.own)[:-1])
        for job, group in part.groups.items():
            if group.said or group.everyone is not None or group.past:
                everyone = None if group.everyone is None else group.everyone.row()
                yield (
                    (stream, at, "job", job),
                    (self.run, group.run, group.epoch, group.declared, group.past, everyone),
                )
            for task, said in sorted(group.said.items()):
                yield (stream, at, "said", job, task), (self.run, *said.row())

    def _restore(self, rows: Iterable[tuple[RowKey, Row]], kept: set[str]) -> None:
        """Restore from rows. `kept`: the streams whose rows about other jobs count even if they are from an older run of this job."""
        for key, row in sorted((tuple(key), _frozen(row)) for key, row in rows):
            place: Place = (key[0], key[1])
            self._written.setdefault(place, {})[key] = row
            self._touched.add(place)  # rows that are not restored are deleted with the next changes
            part = self._streams.get(place[0], {}).get(place[1])
            if place[0] not in self._streams or (part is None and place[1] != ALL):
                continue
            if row[0] != self.run and not (place[0] in kept and key[2] in ("job", "said")):
                continue
            match (part, key[2:]):
                case (None, ("told",)):
                    status = StreamStatus(*row[1:])
                    self._reached[place[0]] = status._replace(idle=status.idle and status.away)
                case (_Partition(), ("own",)):
                    part.own = StreamStatus(*row[1:])
                case (_Partition(), ("job", job)):
                    group = part.groups[job] = ProducerGroup(row[1], None, row[2])
                    group.declared, group.past = row[3], row[4]
                    group.everyone = None if row[5] is None else _said(row[5])
                case (_Partition(), ("said", job, task)) if job in part.groups:
                    part.groups[job].said[task] = _said(row[1:])
                case _:
                    raise DataError(
                        f"the row {key!r} of the control table belongs to no known partition, stream or job",
                        remedy="the task log is damaged; restore it, or `headgate reset` the job",
                    )


def _said(row: Row) -> Said:
    """What a producer had said, without idleness: older versions have stored it."""
    said = Said(*row)
    return said._replace(idle=said.idle and said.away)


def _frozen(value: Any) -> Any:
    """The row with tuples instead of the lists that msgpack returns; rows are compared as tuples."""
    return tuple(_frozen(item) for item in cast("list[Any]", value)) if isinstance(value, list | tuple) else value
