"""Watches what happens at Spark, for people: the session, the attempts of batches, and how many of their stages and tasks are done.

Calls to Spark may take long, or never return. So the worker's loop reads what is known here and calls nothing: a thread of its own asks
Spark's status tracker, once a second, about attempts that take longer than that. Spark Connect has no status tracker; its server reports
progress to the thread that waits for the result (`registerProgressHandler`).

Promises: to watch never makes a batch fail, and short batches cost nothing. A long batch is logged at growing intervals, and so
is a cluster or a server that is unavailable, however often it is tried. A batch that runs again tells how long after its failure Spark had
it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import structlog

from ...core.batching.batch_progress import (
    AT_WORK,
    ISOLATING,
    LOST,
    NEVER_RETRIED,
    READY,
    STARTING,
    STOPPED,
    AtSpark,
    Retried,
    SparkAttempt,
    SparkMemory,
    SparkProgress,
    SparkState,
)
from ...core.batching.batches import BatchInfo
from ..base.errors import SparkAway, SparkDown, SparkLost
from ..base.jobs import is_connect

log = structlog.get_logger("headgate.spark")
EVERY_S = 1.0
MEASURE_EVERY_S = 5.0
FIRST_LOG_S = 30.0
LAST_LOG_S = 300.0
"""A batch that takes long is logged after `FIRST_LOG_S`, then at intervals that double up to this one."""
FIRST_AWAY_S = 10.0
"""The first interval at which is logged that Spark is unavailable."""
MOST_ERROR = 500


class Watch:
    """What is known about one worker's Spark. May be called from any thread."""

    def __init__(self, where: str = "") -> None:
        self._lock = threading.Lock()
        self._session = SparkState(where=where)
        self._attempts: dict[str, Watched] = {}
        self._retries: dict[str, Retried] = {}
        """By task and step."""
        self._retried: dict[str, Retried] = {}
        """By the id of a batch that is under way."""
        self._failed: dict[str, float] = {}
        """When an attempt of a batch failed that is repeated, by the batch's id and the monotonic clock."""
        self._away: Away | None = None
        self._thread: threading.Thread | None = None
        self._measure: Callable[[], tuple[SparkMemory, ...]] | None = None
        self._measured = 0.0
        self._closed = threading.Event()
        self._here = threading.local()
        """The attempt that the calling thread works on."""

    # ------------------------------------------------------------------------------------------------------------ the session

    def starts(self, where: str, why: str = "") -> None:
        """A session is being started. `why`: what became of the one before it."""
        self._came(STARTING, where=where, why=why[:MOST_ERROR])
        if self._away is None:
            log.info("Spark is starting", where=where, **({"why": why} if why else {}))

    def is_ready(
        self,
        session: Any,
        memory: Mapping[str, str] | None = None,
        jvm_s: float | None = None,
        measure: Callable[[], tuple[SparkMemory, ...]] | None = None,
    ) -> None:
        """The session has started. `memory`: the bounds of memory that it was given. `jvm_s`: how long its JVM took to come up. `measure`
        finds how much memory it takes."""
        self._measure = measure
        began = self._session.since_ms
        away, self._away = self._away, None
        self._came(
            READY, version=_text(lambda: session.version), ui=ui_of(session), why="", memory=memory or {}, more=1
        )
        seen = self._session
        took = round((seen.since_ms - began) / 1000, 1) if began else None  # None: it was lent
        more = {} if away is None else {"was_away_s": away.for_s(), "tries": away.tries}
        more |= {} if jvm_s is None else {"jvm_s": round(jvm_s, 1)}
        log.info("Spark is ready", where=seen.where, after_s=took, ui=seen.ui or None, **seen.memory, **more)
        if is_connect(session):
            session.registerProgressHandler(self._reported)
        if measure is not None:
            self._begin_to_look()

    def is_lost(self, why: str) -> None:
        """The session died."""
        self._measure = None
        self._came(LOST, why=why[:MOST_ERROR], ui="", taken=())
        log.warning("Spark is lost", where=self._session.where, why=why)

    def does_not_start(self, error: SparkDown) -> None:
        """No session could be started. While a cluster or a server is unavailable, it is tried often, and logged at growing intervals."""
        self._came(LOST, why=error.what[:MOST_ERROR], ui="", taken=())
        if not isinstance(error, SparkAway):
            self._away = None
            log.warning("Spark does not start", where=self._session.where, why=error.what, remedy=error.remedy)
            return
        away = self._away = self._away or Away()
        if away.again():
            log.warning(
                "Spark is unavailable, and batches wait for it",
                where=self._session.where,
                why=error.what,
                since=away.since,
                for_s=away.for_s(),
                tries=away.tries,
                remedy=error.remedy,
            )

    def _came(self, state: str, more: int = 0, **changes: Any) -> None:
        with self._lock:
            if self._closed.is_set() and state != STOPPED:
                return  # a start that was under way when the session was stopped for good
            started = self._session.started + more
            self._session = replace(self._session, state=state, since_ms=_now_ms(), started=started, **changes)

    # ---------------------------------------------------------------------------------------------------------------- attempts

    def begin(
        self, batch: BatchInfo, stage: str, *, number: int = 1, rows: int | None = None, error: str = ""
    ) -> Watched:
        """An attempt of a batch is begun; use it as a context. `error`: why the one before it failed. `rows`: how many it takes."""
        isolates = rows is not None and rows != batch.rows
        attempt = SparkAttempt(stage, number, since_ms=_now_ms(), error=error[:MOST_ERROR])
        watched = Watched(self, batch, attempt, ISOLATING if isolates else AT_WORK)
        with self._lock:
            self._attempts[batch.id] = watched
            if number > 1:
                self._count(batch, lambda found: found.again(error))
            else:
                self._failed.pop(batch.id, None)
        if number > 1:
            log.warning("a batch is run again", batch=batch.id, stage=stage, rows=batch.rows, attempt=number, why=error)
        return watched

    def ended(self, watched: Watched, error: BaseException | None = None) -> None:
        """The attempt has returned, failed or been given up."""
        with self._lock:
            if self._attempts.get(watched.batch.id) is not watched:
                return
            del self._attempts[watched.batch.id]
            if isinstance(error, SparkLost):
                self._failed[watched.batch.id] = time.monotonic()

    def over(self, batch: BatchInfo) -> Retried:
        """A batch has its results or has failed for good. Returns which of its attempts were repeated."""
        with self._lock:
            self._failed.pop(batch.id, None)
            return self._retried.pop(batch.id, NEVER_RETRIED)

    def _count(self, batch: BatchInfo, change: Callable[[Retried], Retried]) -> None:
        step = f"{batch.task}/{batch.stage}"
        self._retries[step] = change(self._retries.get(step, NEVER_RETRIED))
        self._retried[batch.id] = change(self._retried.get(batch.id, NEVER_RETRIED))

    def at_work(self, watched: Watched, session: Any) -> None:
        """The calling thread gives the attempt to Spark now."""
        if self._session.state != READY:  # a session that was lent
            self.is_ready(session)
        self._here.watched = watched
        self._has_it_again(watched)
        self._begin_to_look()

    def _begin_to_look(self) -> None:
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._look, name="spark_watch", daemon=True)
                self._thread.start()

    def _has_it_again(self, watched: Watched) -> None:
        with self._lock:
            failed = self._failed.pop(watched.batch.id, None)
            if failed is None:
                return
            ms = round((time.monotonic() - failed) * 1000)
            watched.attempt = replace(watched.attempt, retry_ms=ms)
            self._count(watched.batch, lambda found: found.after(ms))
        log.info(
            "Spark has the batch again",
            batch=watched.batch.id,
            stage=watched.attempt.stage,
            attempt=watched.attempt.number,
            after_s=round(ms / 1000, 1),
        )

    def seen(self) -> AtSpark:
        """What is known now."""
        with self._lock:
            attempts = {name: one.attempt for name, one in self._attempts.items()}
            return AtSpark(self._session, attempts, dict(self._retries))

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()
        self._came(STOPPED, ui="", taken=())

    # ---------------------------------------------------------------------------------------------------------------- progress

    def _look(self) -> None:
        while not self._closed.wait(EVERY_S):
            with self._lock:
                running = list(self._attempts.values())
            for one in running:
                one.look()
            self._weigh()

    def _weigh(self) -> None:
        """Measure what Spark takes of memory, now and then."""
        measure, now = self._measure, time.monotonic()
        if measure is None or now - self._measured < MEASURE_EVERY_S:
            return
        self._measured = now
        try:
            found = measure()
        except Exception as error:  # noqa: BLE001 - PySpark and py4j raise anything when a session ends
            if not self._closed.is_set():
                log.debug("the memory of Spark is unknown", why=str(error)[:MOST_ERROR])
            return
        with self._lock:
            if self._session.state == READY and self._measure is measure:
                self._session = replace(self._session, taken=found)

    def _reported(
        self, stages: Any = None, inflight_tasks: int = 0, operation_id: Any = None, done: bool = False
    ) -> None:
        """The handler of a Connect session. It is called on the thread that waits for the result."""
        watched = getattr(self._here, "watched", None)
        if watched is not None and stages is not None:
            watched.progress(of_connect(stages, inflight_tasks))


class Away:
    """A cluster or a server that is unavailable: since when, how often it was tried, and when to say so again."""

    def __init__(self) -> None:
        self.tries = 0
        self.since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._began = time.monotonic()
        self._say_after_s = 0.0

    def again(self) -> bool:
        """It was tried in vain once more. Returns whether to say so: at once, and then at intervals that double."""
        self.tries += 1
        for_s = time.monotonic() - self._began
        if for_s < self._say_after_s:
            return False
        self._say_after_s = for_s + min(LAST_LOG_S, max(FIRST_AWAY_S, for_s))
        return True

    def for_s(self) -> int:
        """How long it has been away."""
        return round(time.monotonic() - self._began)


class Watched:
    """One attempt that is under way."""

    def __init__(self, watch: Watch, batch: BatchInfo, attempt: SparkAttempt, doing: str) -> None:
        self.watch = watch
        self.batch = batch
        self.attempt = attempt
        self._doing = doing
        self._ask: Callable[[], SparkProgress] | None = None
        self._log_after_s = FIRST_LOG_S
        self._began = time.monotonic()

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.watch.ended(self, error)

    def at_work(self, session: Any, group: str) -> None:
        """Its session is here; its jobs belong to this group. Called on the thread that works for it."""
        self.attempt = replace(self.attempt, doing=self._doing, since_ms=_now_ms())
        if not is_connect(session):
            self._ask = of_group(session, group)
        self.watch.at_work(self, session)

    def progress(self, found: SparkProgress) -> None:
        """Spark has said how far it is."""
        self.attempt = replace(self.attempt, progress=found)

    def look(self) -> None:
        """Ask Spark how far it is, and log it if it takes long. What cannot be asked stays unknown: a dead JVM is found elsewhere."""
        if self._ask is not None:
            try:
                self.progress(self._ask())
            except Exception as error:  # noqa: BLE001 - PySpark and py4j raise anything when a session ends
                log.debug("Spark does not say how far a batch is", batch=self.batch.id, why=str(error)[:MOST_ERROR])
        for_s = time.monotonic() - self._began
        if for_s >= self._log_after_s:
            self._log_after_s = for_s + min(LAST_LOG_S, for_s)
            log.info(
                "a batch is running in Spark",
                batch=self.batch.id,
                stage=self.attempt.stage,
                rows=self.batch.rows,
                for_s=round(for_s),
                attempt=self.attempt.number,
                progress=self.attempt.progress.text() or self.attempt.doing,
            )


def of_group(session: Any, group: str) -> Callable[[], SparkProgress]:
    """Asks the status tracker about the jobs of a group. A finished job is asked once."""
    finished: dict[int, SparkProgress] = {}

    def ask() -> SparkProgress:
        tracker = session.sparkContext.statusTracker()
        found: list[SparkProgress] = []
        for job in tracker.getJobIdsForGroup(group):
            if job not in finished:
                info = tracker.getJobInfo(job)
                if info is None:
                    continue
                stages = [one for one in map(tracker.getStageInfo, list(info.stageIds)) if one is not None]
                one = of_job(info.status, stages)
                if info.status != "RUNNING" and info.status != "UNKNOWN":
                    finished[job] = one
                found.append(one)
            else:
                found.append(finished[job])
        return summed(found)

    return ask


def of_job(status: str, stages: Iterable[Any]) -> SparkProgress:
    """One job, of what the tracker says about its stages. What a job that succeeded has not run, it has skipped."""
    known = list(stages)
    if status == "SUCCEEDED":
        tasks = sum(one.numCompletedTasks for one in known)
        failed = sum(one.numFailedTasks for one in known)
        return SparkProgress(1, len(known), len(known), tasks, tasks, 0, failed)
    return SparkProgress(
        1,
        len(known),
        sum(1 for one in known if one.numTasks and one.numCompletedTasks >= one.numTasks),
        sum(one.numTasks for one in known),
        sum(one.numCompletedTasks for one in known),
        sum(one.numActiveTasks for one in known),
        sum(one.numFailedTasks for one in known),
    )


def of_connect(stages: Iterable[Any], running: int) -> SparkProgress:
    """What a Connect server reports about an operation."""
    known = list(stages)
    return SparkProgress(
        1,
        len(known),
        sum(1 for one in known if one.done),
        sum(one.num_tasks for one in known),
        sum(one.num_completed_tasks for one in known),
        running,
        0,
        _now_ms(),
    )


def summed(jobs: Iterable[SparkProgress]) -> SparkProgress:
    """All jobs of an attempt."""
    total = [0] * 7
    for one in jobs:
        numbers = (
            one.jobs,
            one.stages,
            one.stages_done,
            one.tasks,
            one.tasks_done,
            one.tasks_running,
            one.tasks_failed,
        )
        total = [have + more for have, more in zip(total, numbers, strict=True)]
    return SparkProgress(*total, at_ms=_now_ms())


def ui_of(session: Any) -> str:
    """The address of Spark's own pages; empty if they are off or not known."""
    return "" if is_connect(session) else _text(lambda: session.sparkContext.uiWebUrl or "")


def _text(ask: Callable[[], Any]) -> str:
    try:
        return str(ask())
    except Exception:  # noqa: BLE001 - only shown, and a session that is ill is found elsewhere
        return ""


def _now_ms() -> int:
    return int(time.time() * 1000)
