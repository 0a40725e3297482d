"""Who says what to which partitions: the speaking side of control messages. `progress` is the listening side.

A task says, to each stream that it feeds, how far it is: a watermark, that it is idle, that it has ended, that it has drained.
What it has said last is an `Announcement`; what it should say is another one; the frames are the difference. Both are values, and what
was said is kept in the control table, so a restart says neither too little nor anything twice.

Routes:

- `direct`: every producer writes to every partition (n producers, m partitions: n·m messages).
- `aggregated`: every producer writes to one partition. Its owner, once that partition alone is complete, tells all others on
  behalf of all (n + m messages). Chosen when n·m is more than `control.aggregate-above`. Readers accept any mix.

What is promised:

- When the epoch of the producer set is another one than at the last time, everything is said again.
- A producer's very first message in a run goes to every partition, whatever the route, so it stands before its first data.
- The order is watermark, drain, end. An end needs no last watermark; after an end nothing is said, after a drain only an end.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

from .frames import NO_TIME, ControlFrame, Drain, EndOfStream, Watermark

DIRECT = "direct"
AGGREGATED = "aggregated"

NEVER_ANNOUNCED = -1
"""The epoch of an announcement that has said nothing in this run."""


class Announcement(NamedTuple):
    """What a producer (or a relay, for all of them) has said about itself to one stream, or should say."""

    epoch: int = NEVER_ANNOUNCED
    ts: int = NO_TIME
    idle: bool = False
    ended: bool = False
    drained: str | None = None
    """The id of the drain."""


NOTHING_ANNOUNCED = Announcement()


class Sender(NamedTuple):
    """In whose name: job, run, task (None: on behalf of all) and how many producers there are."""

    job: str
    run: str
    task: str | None
    tasks: int


class AddressedFrame(NamedTuple):
    """A frame and the partitions it goes to."""

    frame: ControlFrame
    partitions: tuple[int, ...]


def route(producers: int, width: int, aggregate_above: int = 1024) -> str:
    """Which route a stream takes.

    >>> route(8, 16), route(100, 100)
    ('direct', 'aggregated')
    """
    return AGGREGATED if producers * width > aggregate_above else DIRECT


def aggregator(stream: str, width: int) -> int:
    """The partition through which a stream is aggregated: spread by name, the same for everybody.

    >>> aggregator("sales-1-by-country", 1)
    0
    """
    return crc32(stream.encode()) % width


def named_targets(way: str, stream: str, width: int) -> tuple[int, ...]:
    """The partitions that a producer writes to in its own name."""
    return tuple(range(width)) if way == DIRECT else (aggregator(stream, width),)


def relay_targets(stream: str, width: int) -> tuple[int, ...]:
    """The partitions that the owner of the aggregating one writes to on behalf of all: the others."""
    own = aggregator(stream, width)
    return tuple(partition for partition in range(width) if partition != own)


def frames_between(said: Announcement, now: Announcement, sender: Sender) -> list[ControlFrame]:
    """The frames that lead from what was said to what is so now; everything again when the epoch is another one.

    >>> frames_between(Announcement(1, 5), Announcement(1, 9), Sender("sales/1", "r", "Partition 0", 1))
    [Watermark(job='sales/1', run='r', task='Partition 0', tasks=1, epoch=1, ts=9, idle=False)]
    """
    job, run, task, tasks = sender
    again = said.epoch != now.epoch
    frames: list[ControlFrame] = []
    silent = said.ended or said.drained is not None
    if not now.ended and (again or (not silent and (now.ts > said.ts or now.idle != said.idle))):
        frames.append(Watermark(job, run, task, tasks, now.epoch, max(now.ts, said.ts), now.idle))
    if now.drained is not None and (again or said.drained is None) and not (said.ended and not again):
        frames.append(Drain(job, run, task, tasks, now.epoch, now.drained))
    if now.ended and (again or not said.ended):
        frames.append(EndOfStream(job, run, task, tasks, now.epoch))
    return frames


def merged(said: Announcement, now: Announcement) -> Announcement:
    """What has been said after saying `now`: time and status never go back.

    >>> merged(Announcement(1, 9), Announcement(2, 5, True))
    Announcement(epoch=2, ts=9, idle=True, ended=False, drained=None)
    """
    return Announcement(
        now.epoch,
        max(said.ts, now.ts),
        now.idle,
        said.ended or now.ended,
        said.drained if said.drained else now.drained,
    )


def only_time_is_new(said: Announcement, now: Announcement) -> bool:
    """Whether nothing but time or idleness is new: that can wait for the interval."""
    return (
        said.epoch == now.epoch
        and (now.ended <= said.ended)
        and (now.drained is None or said.drained is not None or said.ended)
    )


def announce(
    said: Announcement, now: Announcement, sender: Sender, stream: str, width: int, way: str
) -> list[AddressedFrame]:
    """What a producer says in its own name. Its first frame in a run introduces it in every partition."""
    frames = frames_between(said, now, sender)
    targets = named_targets(way, stream, width)
    frames = [AddressedFrame(frame, targets) for frame in frames]
    if said.epoch == NEVER_ANNOUNCED and way == AGGREGATED:
        others = relay_targets(stream, width)
        if others:
            hello = Watermark(sender.job, sender.run, sender.task, sender.tasks, now.epoch, NO_TIME, False)
            frames.insert(0, AddressedFrame(hello, others))
    return frames


def relay(said: Announcement, now: Announcement, sender: Sender, stream: str, width: int) -> list[AddressedFrame]:
    """What the owner of the aggregating partition says on behalf of all."""
    targets = relay_targets(stream, width)
    if not targets:
        return []
    return [AddressedFrame(frame, targets) for frame in frames_between(said, now, sender)]
