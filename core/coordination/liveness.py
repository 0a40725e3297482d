"""Decides who is silent, measured only in this process's own heartbeats that came back from the topic.

A leader's clock says how long it has waited, not for how long others could have sent. So the clock here advances only by this process's own
heartbeats as they come back from the topic, by the time between their sending. The topic has an order: a process whose heartbeat is between
two of ours was not silent in that time. Therefore:

- A broker outage, a slow reader or a stopped process declares no one dead: either none of our heartbeats came back, or all heartbeats came
  back in the same order.
- A gap between two of our own heartbeats counts as one interval, because no one may have been heard during the gap.
- The silence of a process that was never heard starts at zero when it is first asked for. A process that was heard is as silent for a new
  leader as it was while that leader was a candidate, so a quick succession of leaders does not keep a dead worker alive.
- Whoever may write to the topic can say that a process is gone. What can be verified is its silence: the word counts once a living process
  would have been heard again (`SURE`), and a heartbeat after it takes it back. Of itself, a process believes no one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgpack  # pyright: ignore[reportMissingTypeStubs]

from ..errors import DataError
from .events import Heartbeat

GAP = 1.5
"""In intervals: if more time passed between two of our own heartbeats, one is missing. There was an outage or a stop, and others could not
be heard either. A greater value would count such time as their silence.
"""
SURE = 3
"""In intervals: so long no one must have heard a process that is said to be gone. One that lives sends several heartbeats meanwhile."""
REPORTED_DEAD = "dead, as its supervisor reports"
"""Why a worker counts as dead whose supervisor has said so: the other reasons are silences."""

MAX_BEAT = 16_384

_pack = cast("Callable[[Any], bytes]", msgpack.packb)  # pyright: ignore[reportUnknownMemberType]
_unpack = cast("Callable[..., Any]", msgpack.unpackb)  # pyright: ignore[reportUnknownMemberType]


class Liveness:
    """Receives heartbeats; says who is silent, stalled or dead.

    >>> live = Liveness("me", beat_s=1.0)
    >>> live.silence("other")
    0.0
    >>> _ = [live.heard(Heartbeat("p1", "me", "", sent_s=float(n))) for n in range(8)]
    >>> live.silence("other")
    7.0
    """

    def __init__(self, process: str, beat_s: float) -> None:
        self.process = process
        self.beat_s = beat_s
        self.clock = 0.0
        self._sent: float | None = None
        self._last: dict[str, float] = {}
        self._turn: dict[str, float] = {}
        self._gone: dict[str, float] = {}
        """Who is said to be gone, and since when by the clock. It is forgotten when the process is heard."""

    def heard(self, beat: Heartbeat) -> bool:
        """Take a heartbeat, in the order of the topic. Returns whether it is our own, which may advance the clock."""
        if beat.gone:
            if beat.process != self.process:
                self._gone.setdefault(beat.process, self.clock)
            return False
        self._gone.pop(beat.process, None)
        self._last[beat.process] = self.clock
        self._turn[beat.process] = beat.turn_age_s
        if beat.process != self.process:
            return False
        if self._sent is not None and beat.sent_s > self._sent:
            gap = beat.sent_s - self._sent
            self.clock += gap if gap <= GAP * self.beat_s else self.beat_s
        if self._sent is None or beat.sent_s > self._sent:
            self._sent = beat.sent_s
        self._last[self.process] = self.clock
        return True

    def silence(self, process: str) -> float:
        """For how long the process could have been heard and was not. Starts at zero when first asked for."""
        return self.clock - self._last.setdefault(process, self.clock)

    def turn_age(self, process: str) -> float:
        """The age of the last turn of its main loop, according to its last heartbeat."""
        return self._turn.get(process, 0.0)

    def gone(self, process: str) -> bool:
        """Whether its death was reported, as by its supervisor, and it has been silent since for as long as one that lives cannot be."""
        return self.clock - self._gone.get(process, self.clock) >= SURE * self.beat_s

    def restart(self, process: str) -> None:
        """Restart the silence of one process at zero."""
        self._last[process] = self.clock

    def forget(self, processes: set[str]) -> None:
        """Forget all processes but these."""
        for kept in (self._last, self._turn, self._gone):
            for process in [p for p in kept if p not in processes and p != self.process]:
                del kept[process]


def encode_beat(beat: Heartbeat) -> bytes:
    """The bytes of a heartbeat."""
    return _pack(
        {
            "v": 1,
            "processor": beat.processor,
            "process": beat.process,
            "incarnation": beat.incarnation,
            "sent_s": beat.sent_s,
            "turn_age_s": beat.turn_age_s,
            "term": beat.term,
            "gone": beat.gone,
            "load": {name: float(beat.load[name]) for name in sorted(beat.load)},
        }
    )


def decode_beat(value: bytes | None) -> Heartbeat:
    """The heartbeat of these bytes. Raises `DataError` if they are not a heartbeat of this version."""
    if value is None or len(value) > MAX_BEAT:
        raise DataError("a heartbeat without a value" if value is None else f"a heartbeat of {len(value)} bytes")
    try:
        body = _unpack(value, max_ext_len=0)
        if body["v"] != 1:
            raise DataError(f"a heartbeat of version {body['v']!r:.20}", remedy="upgrade this worker")
        beat = Heartbeat(
            str(body["processor"]), str(body["process"]), str(body["incarnation"]), float(body["sent_s"]),
            float(body["turn_age_s"]), int(body["term"]), body["gone"] is True,
            {str(name): float(number) for name, number in body["load"].items()},
        )  # fmt: skip
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
        raise DataError(f"not a heartbeat: {error}") from error
    if not 0.0 <= beat.turn_age_s < float("inf") or not -1e300 < beat.sent_s < 1e300:
        raise DataError("a heartbeat with an impossible time")
    return beat
