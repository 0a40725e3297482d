"""The job as any of its workers shows it: one document for the page, from the stream and the heartbeats that the worker follows anyway.

    status     of the job, as `headgate status -o json`: run, leader, workers, tasks, event time, windows, batches, joins
    hurts      as `headgate top -o json`: failed tasks, the verdict, what is slow
    standing   why it does not move: who asked, whom it waits for, what to do
    flow       the graph of steps, with rates, lag and pressure
    recent     the last ten minutes in numbers
    history    what has happened

Promises: nothing is asked of Kafka or of another worker. The document is made at most once in `FRESH_S`, whoever looks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.coordination import messages as c
from ...core.coordination.state import JobState
from ..process.reading import Hearing, LastHeartbeat, pace_of
from ..worker.load.health import readiness
from .documents import leads
from .flow import flow
from .history import history_of
from .of_job import of_job
from .recent import RecentNumbers, sample_of
from .slow import top
from .standing import paused_by, standing

if TYPE_CHECKING:
    from ..worker.worker import Worker

FRESH_S = 0.9
"""A page asks every two seconds, and there may be several."""


class JobView:
    """What a worker knows of its job."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.recent = RecentNumbers()
        self._made: tuple[float, dict[str, Any]] | None = None

    def sample(self) -> None:
        """Take the numbers of this moment, if they are due."""
        now = self._worker.port.clock.now()
        if self.recent.due(now.mono):
            known = self._worker.participant.health.contact.away_s is None
            status = self._status(now.wall) if known else None
            self.recent.take({} if status is None else sample_of(status, self._worker.declared.inputs), now.mono)

    def document(self) -> dict[str, Any]:
        """The document."""
        now = self._worker.port.clock.now()
        if self._made is None or now.mono - self._made[0] >= FRESH_S:
            self._made = now.mono, self._document(now.mono, now.wall)
        return self._made[1]

    def _document(self, now_s: float, now_ms: int) -> dict[str, Any]:
        worker, status = self._worker, self._status(now_ms)
        away_s = worker.participant.health.contact.away_s
        entries = worker.coordination.passed.all()
        requests = [one.message for one in entries if isinstance(one.message, c.SetRequest)]
        asked = paused_by(self._state(), [(one.verb, one.requested_by) for one in requests])
        ready, why = readiness(worker.participant)
        recent = self.recent.document(now_s)
        return {
            "job": str(worker.job),
            "worker": {
                "processor": worker.options.processor,
                "url": worker.options.url,
                "version": worker.options.version,
                "ready": ready,
                "why": why,
                "leads": leads(worker),
                "up_s": round((now_ms - worker.started_ms) / 1000, 1),
                "broker_away_s": None if away_s is None else round(away_s, 1),
                "listens": self._hearing(self._state()).begins,
            },
            "status": status,
            "hurts": top(status),
            "standing": standing(status, away_s, asked),
            "flow": flow(worker.declared, status),
            "recent": recent,
            "catches_up_s": catches_up_s(status["lag"], recent["lag_trend"]),
            "history": history_of(entries),
            "tracebacks": self._tracebacks(),
        }

    def _state(self) -> JobState:
        member = getattr(self._worker.coordination, "member", None)
        return JobState() if member is None else member.view.job

    def _status(self, now_ms: int) -> dict[str, Any]:
        state = self._state()
        return of_job(self._worker.job, state, self._hearing(state), now_ms)

    def _hearing(self, state: JobState) -> Hearing:
        """What this worker has heard of all others, as commands hear it."""
        pace, now_s = pace_of(state), self._worker.port.clock.now().mono
        heard = self._worker.coordination.heard
        if heard is None:
            return Hearing(pace=pace, begins=True)
        ages = heard.ages(now_s, pace.speaks_s)
        beats = {process: LastHeartbeat(beat, age_s, pace) for process, (beat, age_s) in ages.items()}
        begins = heard.since_s is None or now_s - heard.since_s < pace.speaks_s
        return Hearing(beats, pace=pace, begins=begins)

    def _tracebacks(self) -> dict[str, str]:
        """Of the tasks of this worker that have failed."""
        found: dict[str, str] = {}
        for name, actor in sorted(self._worker.actors.items()):
            failure = actor.site.notes.said.get("failure")
            if failure is not None and failure.until_ms is None and failure.traceback:
                found[name] = failure.traceback
        return found


def catches_up_s(lag: int | None, trend: float | None) -> float | None:
    """How long it will take until nothing is behind, as things go; None if that cannot be said, or never.

    >>> catches_up_s(6000, -100.0), catches_up_s(6000, 5.0), catches_up_s(None, -1.0)
    (60.0, None, None)
    """
    return round(lag / -trend, 1) if lag and trend is not None and trend < 0 else None
