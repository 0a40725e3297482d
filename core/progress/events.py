"""What `Progress` tells a task of the control messages that it has reconciled."""

from __future__ import annotations

from dataclasses import dataclass

from .frames import NO_TIME

WATERMARK, END, DRAIN = "watermark", "end", "drain"


@dataclass(frozen=True, slots=True)
class StreamWatermark:
    """The stream's time has advanced to `ts`; or all its producers have become idle, or one of them active again."""

    stream: str
    ts: int
    idle: bool = False


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """Every producer of every owned partition has ended."""

    stream: str


@dataclass(frozen=True, slots=True)
class StreamDrained:
    """Every producer of every owned partition has drained or ended."""

    stream: str
    id: str


@dataclass(frozen=True, slots=True)
class PartitionComplete:
    """The aggregating partition: tell all other partitions this, unnamed, in the epoch that is given."""

    stream: str
    partition: int
    kind: str
    """`watermark`, `end` or `drain`."""
    epoch: int
    ts: int = NO_TIME
    idle: bool = False
    id: str = ""


@dataclass(frozen=True, slots=True)
class EpochAhead:
    """The frame was not taken: its epoch is newer than the producer set that is known. Offer it again after `producers_changed`."""

    stream: str
    partition: int
    epoch: int


Event = StreamWatermark | StreamEnded | StreamDrained | PartitionComplete | EpochAhead
