"""Which control messages a task sends, and to which partitions. This is the sending side; `tracker` is the receiving side.

A task tells each stream that it feeds its progress: a watermark, and whether it is idle, has ended or has drained. Its last message is an
`Announcement`, the current state is another one, and the frames to send are the difference. Both are values. What was announced is kept in
the control table, so that a restarted task neither omits nor repeats a message.

Routes:

- `direct`: every producer writes to every partition (n producers, m partitions: n·m messages).
- `aggregated`: every producer writes to one partition. Once that partition alone is complete, its owner tells all other partitions on
  behalf of all producers (n + m messages). Used when n·m is more than `control.aggregate-above`. Readers accept any mix.

What is promised:

- When the epoch of the producer set has changed, everything is announced again.
- A producer's very first message in a run goes to every partition, on either route, so it comes before the producer's first data.
- The order is watermark, drain, end. The last watermark stands before the end; after an end nothing is announced, after a drain only an
  end.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

from .frames import NO_TIME, ControlFrame, Drain, EndOfStream, Watermark

DIRECT = "direct"
AGGREGATED = "aggregated"

NEVER_ANNOUNCED = -1
"""The epoch of a task that has announced nothing in this run."""


class Announcement(NamedTuple):
    """What a producer (or a relay, for all producers) has announced to one stream, or should announce."""

    epoch: int = NEVER_ANNOUNCED
    ts: int = NO_TIME
    idle: bool = False
    ended: bool = False
    drained: str | None = None
    """The id of the drain."""
    away: bool = False
    """It is idle because the jobs that it reads are away."""
    left: bool = False
    """It has ended, and its time does not count while other producers go on."""

    def row(self) -> tuple[object, ...]:
        """As it is stored."""
        return tuple(self) if self.left else tuple(self)[:-1] if self.away else tuple(self)[:-2]


NOTHING_ANNOUNCED = Announcement()


class Sender(NamedTuple):
    """The sender of a message: job, run, task (None: on behalf of all), and the number of producers."""

    job: str
    run: str
    task: str | None
    tasks: int


class AddressedFrame(NamedTuple):
    """A frame, and the partitions that it is sent to."""

    frame: ControlFrame
    partitions: tuple[int, ...]


def route(producers: int, width: int, aggregate_above: int = 1024) -> str:
    """The route of a stream's control messages.

    >>> route(8, 16), route(100, 100)
    ('direct', 'aggregated')
    """
    return AGGREGATED if producers * width > aggregate_above else DIRECT


def aggregator(stream: str, width: int) -> int:
    """The partition through which a stream's messages are aggregated: chosen by the stream's name, the same for every producer.

    >>> aggregator("sales-1-by-country", 1)
    0
    """
    return crc32(stream.encode()) % width


def named_targets(way: str, stream: str, width: int) -> tuple[int, ...]:
    """The partitions that a producer writes to in its own name."""
    return tuple(range(width)) if way == DIRECT else (aggregator(stream, width),)


def relay_targets(stream: str, width: int) -> tuple[int, ...]:
    """The partitions that the owner of the aggregating partition writes to on behalf of all producers: all other partitions."""
    own = aggregator(stream, width)
    return tuple(partition for partition in range(width) if partition != own)


def frames_between(said: Announcement, now: Announcement, sender: Sender) -> list[ControlFrame]:
    """The frames that bring what was announced (`said`) to the current state (`now`); all of them again if the epoch has changed.

    >>> frames_between(Announcement(1, 5), Announcement(1, 9), Sender("sales/1", "r", "Partition 0", 1))
    [Watermark(job='sales/1', run='r', task='Partition 0', tasks=1, epoch=1, ts=9, idle=False, away=False)]
    """
    job, run, task, tasks = sender
    again = said.epoch != now.epoch
    frames: list[ControlFrame] = []
    silent = said.ended or said.drained is not None
    news = now.ts > said.ts or (now.idle, now.away) != (said.idle, said.away)
    ts = max(now.ts, said.ts)
    if now.ended:
        news = ts > (NO_TIME if again else said.ts)
    if (again and not now.ended) or (news and (again or not silent)):
        frames.append(Watermark(job, run, task, tasks, now.epoch, ts, now.idle, now.away))
    if now.drained is not None and (again or said.drained is None) and not (said.ended and not again):
        frames.append(Drain(job, run, task, tasks, now.epoch, now.drained))
    if now.ended and (again or not said.ended):
        frames.append(EndOfStream(job, run, task, tasks, now.epoch, now.left))
    return frames


def merged(said: Announcement, now: Announcement) -> Announcement:
    """What has been announced once `now` has been sent: time and status never go back.

    >>> merged(Announcement(1, 9), Announcement(2, 5, True))
    Announcement(epoch=2, ts=9, idle=True, ended=False, drained=None, away=False, left=False)
    """
    return Announcement(
        now.epoch,
        max(said.ts, now.ts),
        now.idle,
        said.ended or now.ended,
        said.drained if said.drained else now.drained,
        now.away,
        said.left or now.left,
    )


def only_time_is_new(said: Announcement, now: Announcement) -> bool:
    """Whether only the time or idleness is new: such an announcement may be delayed."""
    return (
        said.epoch == now.epoch
        and (now.ended <= said.ended)
        and (now.drained is None or said.drained is not None or said.ended)
    )


def announce(
    said: Announcement, now: Announcement, sender: Sender, stream: str, width: int, way: str
) -> list[AddressedFrame]:
    """What a producer sends in its own name. Its first frame in a run introduces it to every partition."""
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
    """What the owner of the aggregating partition sends on behalf of all producers."""
    targets = relay_targets(stream, width)
    if not targets:
        return []
    return [AddressedFrame(frame, targets) for frame in frames_between(said, now, sender)]
