"""The last heartbeat of each process of the job, as it came back from the topic: what this worker knows of the others.

Promises: while no broker answers, no one becomes silent: ages count up to this process's own last heartbeat that came back, and little
more. What it keeps is bounded by the processes of the last minutes.
"""

from __future__ import annotations

from ...core.coordination.events import Heartbeat

KEPT_S = 300.0
"""So long a process that is heard no more is kept."""


class HeardBeats:
    """Takes heartbeats in the order of the topic.

    >>> heard = HeardBeats("me")
    >>> for process, now_s in [("other", 1.0), ("me", 2.0), ("me", 5.0)]:
    ...     heard.hear(Heartbeat("p", process, "", sent_s=now_s), now_s)
    >>> heard.ages(5.5, 3.0)["other"][1], heard.ages(60.0, 3.0)["other"][1]
    (4.5, 7.0)
    """

    def __init__(self, process: str) -> None:
        self._process = process
        self._last: dict[str, tuple[Heartbeat, float]] = {}
        self.since_s: float | None = None
        """When the first heartbeat came; None before."""

    def hear(self, beat: Heartbeat, now_s: float) -> None:
        """Take a heartbeat that has come now."""
        self.since_s = now_s if self.since_s is None else self.since_s
        self._last[beat.process] = beat, now_s
        if beat.process == self._process:
            for process in [name for name, (_, at_s) in self._last.items() if now_s - at_s > KEPT_S]:
                del self._last[process]

    def ages(self, now_s: float, speaks_s: float) -> dict[str, tuple[Heartbeat, float]]:
        """The last heartbeat of each process, and how long ago it came. `speaks_s`: within such a time a process that lives is heard."""
        own = self._last.get(self._process)
        if own is not None:
            now_s = min(now_s, own[1] + speaks_s)
        return {name: (beat, max(0.0, now_s - at_s)) for name, (beat, at_s) in self._last.items()}
