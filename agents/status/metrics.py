"""The metrics of a worker: one table, and a page for Prometheus generated from it.

Names are in snake_case with their unit, and counters end in `_total`. There are few labels: job, worker, and for some metrics the task or
stream. Values are read from the worker on request, so the hot path counts nothing twice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from ...core.orders import TaskState
from ...core.progress.frames import MAX_TIME, NO_TIME
from ...core.task.view import STEP
from ..worker.load.health import readiness
from ..worker.load.join_load import joins_of
from ..worker.load.load import watermarks
from ..worker.load.step_facts import StepFacts, is_time
from ..worker.load.times import PlaceTime, times_of
from ..worker.load.window_load import windows_of
from .batch_metrics import BATCH_METRICS
from .copy_metrics import COPY_METRICS
from .documents import leads
from .metric import COUNTER, GAUGE, Metric, MetricSample
from .work_metrics import WORK_METRICS

if TYPE_CHECKING:
    from ..tracing.traces import TraceSpans
    from ..worker.leftovers import Leftovers
    from ..worker.worker import Worker

CONTENT_TYPE = CONTENT_TYPE_LATEST


def _counted(name: str) -> Callable[[Worker], Iterator[MetricSample]]:
    def read(worker: Worker) -> Iterator[MetricSample]:
        for task, counts in sorted(worker.counters.items()):
            if name in counts:
                yield (task,), float(counts[name])

    return read


def _counted_by(front: str) -> Callable[[Worker], Iterator[MetricSample]]:
    """The counters whose names begin so, over all tasks, by the rest of the name."""

    def read(worker: Worker) -> Iterator[MetricSample]:
        found: Counter[str] = Counter()
        for counts in worker.counters.values():
            found.update({name.removeprefix(front): n for name, n in counts.items() if name.startswith(front)})
        yield from (((name,), float(count)) for name, count in sorted(found.items()))

    return read


def _bootstrapping(worker: Worker) -> Iterator[MetricSample]:
    found = Counter(at.stream for actor in worker.actors.values() for at in actor.machine.view.bootstrap)
    yield from (((stream,), float(count)) for stream, count in sorted(found.items()))


def _one(value: Callable[[Worker], float]) -> Callable[[Worker], list[MetricSample]]:
    return lambda worker: [((), value(worker))]


def _states(worker: Worker) -> Iterator[MetricSample]:
    states = [actor.machine.phase for actor in worker.actors.values()]
    for state in TaskState:
        yield (state,), float(states.count(state))


def _parked(worker: Worker) -> Iterator[MetricSample]:
    for task, actor in sorted(worker.actors.items()):
        if actor.site.pipeline is not None:
            yield (task,), float(actor.site.pipeline.parked.total)


def _lags_by_stream(worker: Worker) -> dict[str, list[int | None]]:
    by_stream: dict[str, list[int | None]] = {}
    for lags in worker.participant.lags_now().values():
        for at, lag in lags.items():
            by_stream.setdefault(at.stream, []).append(lag)
    return dict(sorted(by_stream.items()))


def _lag(worker: Worker) -> Iterator[MetricSample]:
    """What is known of it; not a number where nothing is."""
    for stream, lags in _lags_by_stream(worker).items():
        known = [lag for lag in lags if lag is not None]
        yield (stream,), float(sum(known)) if known else math.nan


def _lag_unknown(worker: Worker) -> Iterator[MetricSample]:
    yield from (((stream,), float(lags.count(None))) for stream, lags in _lags_by_stream(worker).items())


def _oldest_letter(worker: Worker) -> float:
    found = (actor.under_way.doing.now() for actor in worker.actors.values())
    return max((letter.for_s for letter in found if letter is not None), default=0.0)


def _commit_under_way(worker: Worker) -> float:
    took_s = None if worker.committing is None else worker.committing.under_way_s()
    return took_s or 0.0


def _watermarks(worker: Worker) -> Iterator[MetricSample]:
    low: dict[str, int] = {}
    for actor in worker.actors.values():
        for stream, ms in watermarks(actor).items():
            if ms > NO_TIME + 1:
                low[stream] = min(low.get(stream, MAX_TIME), ms)
    yield from (((stream,), ms / 1000) for stream, ms in sorted(low.items()) if ms < MAX_TIME)


def _times(worker: Worker, *, steps: bool = False) -> Iterator[tuple[str, PlaceTime]]:
    for one in times_of(worker.actors.values()):
        if one.place.startswith(STEP) == steps and NO_TIME < one.ms < MAX_TIME:
            yield one.place.removeprefix(STEP), one


def _step_watermarks(worker: Worker) -> Iterator[MetricSample]:
    yield from (((step,), one.ms / 1000) for step, one in _times(worker, steps=True))


def _watermark_lag(worker: Worker) -> Iterator[MetricSample]:
    now_ms = worker.port.clock.now().wall
    yield from (((stream,), (now_ms - one.ms) / 1000) for stream, one in _times(worker))


def _behind_newest(worker: Worker) -> Iterator[MetricSample]:
    for stream, one in _times(worker):
        if one.newest_ms is not None:
            yield (stream,), max(0, one.newest_ms - one.ms) / 1000


def _holders(worker: Worker) -> Iterator[MetricSample]:
    held: Counter[str] = Counter()
    for one in times_of(worker.actors.values()):
        held.update(holder.who for holder in one.holders if holder.who)
    yield from (((who,), float(places)) for who, places in sorted(held.items()))


def _steps(of: Callable[[Any, Any], Iterable[StepFacts]], name: str) -> Callable[[Worker], Iterator[MetricSample]]:
    """A number of what is reported of steps; times in seconds. Tasks that have left count, too."""

    def read(worker: Worker) -> Iterator[MetricSample]:
        for one in of(worker.actors.values(), worker.runtime.past):
            if (found := getattr(one, name)) is not None:
                yield one.order, found / (1000 if is_time(name) else 1)

    return read


def _state_memory(worker: Worker) -> Iterator[MetricSample]:
    yield ("decoded",), float(worker.memory.decoded.used)
    yield ("rocksdb",), float(worker.memory.used())


def _evicted(worker: Worker) -> Iterator[MetricSample]:
    yield (), float(worker.memory.decoded.evicted)


def _left(count: Callable[[Leftovers], int]) -> Callable[[Worker], Iterator[MetricSample]]:
    """Nothing of a worker without a state directory."""

    def read(worker: Worker) -> Iterator[MetricSample]:
        if worker.leftovers is not None:
            yield (), float(count(worker.leftovers))

    return read


def _lost_lines(worker: Worker) -> Iterator[MetricSample]:
    if worker.recorder is not None:
        yield (), float(worker.recorder.lost)


def _spans(count: Callable[[TraceSpans], int]) -> Callable[[Worker], Iterator[MetricSample]]:
    """Zero for a worker that has traced nothing, so that a rate of it begins with its first span."""

    def read(worker: Worker) -> Iterator[MetricSample]:
        spans = worker.traces.spans
        yield (), 0.0 if spans is None else float(count(spans))

    return read


def _restoring(worker: Worker) -> Iterator[MetricSample]:
    left = 0
    for actor in worker.actors.values():
        progress = actor.state.progress
        if actor.machine.phase == TaskState.RESTORING and progress is not None:
            left += max(0, progress.end - progress.position)
    yield (), float(left)


def _following(worker: Worker) -> Iterator[MetricSample]:
    yield (), float(sum(one.work is not None for one in worker.runtime.followers.all.values()))


def _following_left(worker: Worker) -> Iterator[MetricSample]:
    yield (), float(sum(worker.runtime.followers.left().values()))


def _buffered(worker: Worker) -> Iterator[MetricSample]:
    total = 0
    for actor in worker.actors.values():
        if actor.reading.intake is not None:
            total += sum(head.size for head in actor.reading.intake.intake.heads().values())
    yield (), float(total)


def _read(worker: Worker) -> Iterator[MetricSample]:
    yield from (((stream,), float(count)) for stream, count in sorted(worker.sensor.records.items()))


def _unreadable(worker: Worker) -> Iterator[MetricSample]:
    yield from (((topic,), float(one.count)) for topic, one in sorted(worker.runtime.unreadable.topics.items()))


def _letters(worker: Worker) -> float:
    return float(worker.sensor.letters)


def _work_seconds(worker: Worker) -> float:
    return worker.sensor.seconds


def _requests(worker: Worker) -> Iterator[MetricSample]:
    yield from (((str(status),), float(count)) for status, count in sorted(worker.sensor.requests.items()))


METRICS: tuple[Metric, ...] = (
    Metric(
        "headgate_worker_ready",
        GAUGE,
        "1 while this worker works: its tasks run, its commits are answered, and no letter takes long.",
        (),
        _one(lambda w: float(readiness(w.participant)[0])),
    ),
    Metric(
        "headgate_worker_leader",
        GAUGE,
        "1 while this worker is the leader of the job.",
        (),
        _one(lambda w: float(leads(w))),
    ),
    Metric(
        "headgate_unread_topics",
        GAUGE,
        "Topics that match a pattern of the job and are not read in this run, because they came later.",
        (),
        _one(lambda w: float(len(w.unread))),
    ),
    Metric(
        "headgate_worker_start_time_seconds",
        GAUGE,
        "Start time of this worker, in seconds since the epoch.",
        (),
        _one(lambda w: w.started_ms / 1000),
    ),
    Metric(
        "headgate_worker_clock_ahead_seconds",
        GAUGE,
        "How far this machine's clock is ahead of the broker's; negative if it is behind.",
        (),
        _one(lambda w: (w.port.broker.ahead_ms(w.port.clock.now()) or 0) / 1000),
    ),
    Metric(
        "headgate_config_applied_offset",
        GAUGE,
        "Offset in the coordinator stream of the last override that this worker has applied; -1 for none.",
        (),
        _one(lambda w: float(w.participant.overrides.offset)),
    ),
    Metric("headgate_tasks", GAUGE, "Number of tasks of this worker, by state.", ("state",), _states),
    Metric(
        "headgate_input_lag_records",
        GAUGE,
        "Records that the tasks of this worker have not processed yet, failed tasks included; NaN where no lag is known.",
        ("stream",),
        _lag,
    ),
    Metric(
        "headgate_input_lag_unknown_partitions",
        GAUGE,
        "Partitions of this worker's tasks whose lag is not known now.",
        ("stream",),
        _lag_unknown,
    ),
    Metric(
        "headgate_oldest_letter_seconds",
        GAUGE,
        "How long the chunk, timer or control message that takes longest has been worked on.",
        (),
        _one(_oldest_letter),
    ),
    Metric(
        "headgate_slow_letters_total",
        COUNTER,
        "Chunks, timers and control messages that took longer than `letter.warn-after`.",
        ("task",),
        _counted("slow_letters"),
    ),
    Metric(
        "headgate_commit_under_way_seconds",
        GAUGE,
        "How long the transaction under way has taken so far; 0 without one.",
        (),
        _one(_commit_under_way),
    ),
    Metric(
        "headgate_broker_away_seconds",
        GAUGE,
        "For how long the broker of the coordinator stream has not answered; 0 while it answers.",
        (),
        _one(lambda w: w.participant.health.contact.away_s or 0.0),
    ),
    Metric(
        "headgate_watermark_seconds",
        GAUGE,
        "Lowest watermark of the tasks of this worker, in seconds since the epoch.",
        ("stream",),
        _watermarks,
    ),
    Metric(
        "headgate_step_watermark_seconds",
        GAUGE,
        "Lowest event time that a step of this worker's tasks has received, in seconds since the epoch.",
        ("step",),
        _step_watermarks,
    ),
    Metric(
        "headgate_watermark_lag_seconds",
        GAUGE,
        "How far the lowest watermark is behind the wall clock.",
        ("stream",),
        _watermark_lag,
    ),
    Metric(
        "headgate_watermark_behind_newest_seconds",
        GAUGE,
        "How far the lowest watermark is behind the newest record that this worker has processed since it started.",
        ("stream",),
        _behind_newest,
    ),
    Metric(
        "headgate_watermarks_held",
        GAUGE,
        "Number of streams and steps of this worker whose watermark a producer holds.",
        ("producer",),
        _holders,
    ),
    Metric(
        "headgate_open_windows",
        GAUGE,
        "Open windows of a step, each counted in every task of this worker.",
        ("step",),
        _steps(windows_of, "windows"),
    ),
    Metric(
        "headgate_open_window_keys",
        GAUGE,
        "Keys in the open windows of a step; of sliding windows, the rows that are kept.",
        ("step",),
        _steps(windows_of, "entries"),
    ),
    Metric(
        "headgate_oldest_open_window_seconds",
        GAUGE,
        "End of the oldest open window of a step, in seconds since the epoch.",
        ("step",),
        _steps(windows_of, "oldest_ms"),
    ),
    Metric(
        "headgate_late_rows_total",
        COUNTER,
        "Rows that came after all of their windows had closed.",
        ("step",),
        _steps(windows_of, "late"),
    ),
    Metric(
        "headgate_late_for_some_windows_total",
        COUNTER,
        "Rows that came after some of their windows had closed.",
        ("step",),
        _steps(windows_of, "partly"),
    ),
    *WORK_METRICS,
    *BATCH_METRICS,
    Metric(
        "headgate_join_rows",
        GAUGE,
        "Rows that a join keeps because they may still find partners, by side (`left`, `right`).",
        ("step", "side"),
        _steps(joins_of, "rows"),
    ),
    Metric(
        "headgate_join_bytes",
        GAUGE,
        "Bytes of the rows that a join keeps: keys, values and headers.",
        ("step", "side"),
        _steps(joins_of, "size"),
    ),
    Metric(
        "headgate_join_rows_in_memory",
        GAUGE,
        "Kept rows of a join whose values are in memory. The others are read from the store when they are wanted.",
        ("step", "side"),
        _steps(joins_of, "in_memory"),
    ),
    Metric(
        "headgate_join_oldest_row_seconds",
        GAUGE,
        "Time of the oldest row that a join keeps, in seconds since the epoch.",
        ("step", "side"),
        _steps(joins_of, "oldest_ms"),
    ),
    Metric(
        "headgate_join_late_rows_total",
        COUNTER,
        "Rows that came too late for a join.",
        ("step", "side"),
        _steps(joins_of, "late"),
    ),
    Metric(
        "headgate_join_unmatched_rows_total",
        COUNTER,
        "Rows of a `left` or `outer` join that came out without a partner.",
        ("step", "side"),
        _steps(joins_of, "alone"),
    ),
    *COPY_METRICS,
    Metric(
        "headgate_state_memory_bytes",
        GAUGE,
        "Memory that state takes: `decoded` rows and states, and `rocksdb`. Together they may take `state.memory`.",
        ("kind",),
        _state_memory,
    ),
    Metric(
        "headgate_state_evicted_bytes_total",
        COUNTER,
        "Decoded rows and states that were dropped because they exceeded their share of `state.memory`.",
        (),
        _evicted,
    ),
    Metric(
        "headgate_story_lines_lost_total",
        COUNTER,
        "Lines of the story of this worker that were not written: its disk was full or did not answer.",
        (),
        _lost_lines,
    ),
    Metric(
        "headgate_trace_spans_sent_total",
        COUNTER,
        "Spans that the receiver of traces has taken; see `trace.sample`.",
        (),
        _spans(lambda spans: spans.sent),
    ),
    Metric(
        "headgate_trace_spans_dropped_total",
        COUNTER,
        "Spans that were not sent: the receiver of traces was away, refused them, or did not keep up.",
        (),
        _spans(lambda spans: spans.dropped),
    ),
    Metric(
        "headgate_stores_removed_total",
        COUNTER,
        "Stores removed here because their tasks have run elsewhere, or their copy of a table was not used, for longer than "
        "`state.cleanup-delay`.",
        (),
        _left(lambda left: left.removed),
    ),
    Metric(
        "headgate_stores_removed_bytes_total",
        COUNTER,
        "Bytes on disk of the stores removed here because their tasks run elsewhere.",
        (),
        _left(lambda left: left.removed_bytes),
    ),
    Metric(
        "headgate_chunks_chosen_total",
        COUNTER,
        "Chunks and control messages taken, by the priority of their input; those of the job's own streams are `intermediate`.",
        ("tier",),
        _counted_by("chosen."),
    ),
    Metric(
        "headgate_waits_total",
        COUNTER,
        "How often a task took nothing although records were buffered: `bootstrap`, `priority`, `alignment`, `paused`, `lag`, `full`, ...",
        ("reason",),
        _counted_by("waited."),
    ),
    Metric(
        "headgate_bootstrapping_partitions",
        GAUGE,
        "Partitions of bootstrap inputs that have not reached the end that they had at the start.",
        ("stream",),
        _bootstrapping,
    ),
    Metric(
        "headgate_restore_remaining_records",
        GAUGE,
        "Records of task logs that are still to be restored.",
        (),
        _restoring,
    ),
    Metric(
        "headgate_followed_logs",
        GAUGE,
        "Task logs that this worker follows because it prepares to run their tasks.",
        (),
        _following,
    ),
    Metric(
        "headgate_followed_remaining_records",
        GAUGE,
        "Records of followed task logs that the stores here still lack.",
        (),
        _following_left,
    ),
    Metric("headgate_buffered_bytes", GAUGE, "Bytes read ahead and not yet processed.", (), _buffered),
    Metric(
        "headgate_outbox_pending_bytes",
        GAUGE,
        "Bytes written by tasks and not yet sent.",
        (),
        _one(lambda w: float(getattr(w.runtime.producers.outbox, "pending_bytes", 0) or 0)),
    ),
    Metric(
        "headgate_commits_total",
        COUNTER,
        "Committed transactions of this incarnation.",
        (),
        _one(lambda w: float(w.committing.commits if w.committing is not None else 0)),
    ),
    Metric(
        "headgate_records_read_total", COUNTER, "Records passed to operators, including retries.", ("stream",), _read
    ),
    Metric(
        "headgate_unreadable_records_total",
        COUNTER,
        "Records of the job's own topics that were skipped: not readable, or deletions that are not the leader's.",
        ("topic",),
        _unreadable,
    ),
    Metric("headgate_letters_total", COUNTER, "Chunks, timers and control messages processed.", (), _one(_letters)),
    Metric("headgate_work_seconds_total", COUNTER, "Time spent in operators and user code.", (), _one(_work_seconds)),
    Metric("headgate_http_requests_total", COUNTER, "HTTP requests to this worker's pages.", ("status",), _requests),
    Metric(
        "headgate_records_failed_total",
        COUNTER,
        "Records on which user code or a serde failed.",
        ("task",),
        _counted("records_failed"),
    ),
    Metric(
        "headgate_keys_tested_total",
        COUNTER,
        "Distinct input keys that were tested for being in the right partition.",
        ("task",),
        _counted("keys_tested"),
    ),
    Metric(
        "headgate_keys_elsewhere_total",
        COUNTER,
        "Tested keys that are in the wrong partition.",
        ("task",),
        _counted("keys_elsewhere"),
    ),
    Metric(
        "headgate_records_skipped_total",
        COUNTER,
        "Failed records that were skipped.",
        ("task",),
        _counted("records_skipped"),
    ),
    Metric(
        "headgate_records_parked_total",
        COUNTER,
        "Records that were parked: a step failed on them, or on an earlier one of their key.",
        ("task",),
        _counted("records_parked"),
    ),
    Metric(
        "headgate_parked_records_released_total",
        COUNTER,
        "Parked records that wait no longer: they went on, or were given up.",
        ("task",),
        _counted("parked_records_released"),
    ),
    Metric("headgate_parked_records", GAUGE, "Parked records that wait now.", ("task",), _parked),
    Metric(
        "headgate_control_ignored_total",
        COUNTER,
        "Control messages that changed nothing, by the reason: `unknown-job`, `unknown-producer`, `old-run` and others.",
        ("reason",),
        _counted_by("note_ignored-"),
    ),
    Metric(
        "headgate_rows_after_stop_total",
        COUNTER,
        "Rows that came for an actor after its `ctx.stop()`, and were dropped.",
        ("task",),
        _counted("rows_after_stop"),
    ),
    Metric(
        "headgate_ticks_total",
        COUNTER,
        "Ticks of functions of `@app.timer` that were called.",
        ("task",),
        _counted("ticks"),
    ),
    Metric(
        "headgate_ticks_missed_total",
        COUNTER,
        "Ticks that were not called, because no worker had the task, it was busy, or no run was live.",
        ("task",),
        _counted("ticks_missed"),
    ),
    Metric(
        "headgate_tombstones_dropped_total",
        COUNTER,
        "Null values that were dropped where rows become columns.",
        ("task",),
        _counted("tombstones_dropped"),
    ),
    Metric(
        "headgate_dead_letters_total",
        COUNTER,
        "Failed records that were sent to the dead-letter topic.",
        ("task",),
        _counted("dead_letters"),
    ),
    Metric(
        "headgate_dead_letters_cut_total",
        COUNTER,
        "Dead letters that hold only a part of their record, because all of it does not fit into their topic.",
        ("task",),
        _counted("dead_letters_cut"),
    ),
    Metric(
        "headgate_records_restamped_total",
        COUNTER,
        "Records whose event time their topic does not accept as a timestamp; it is in their header `hg-time`.",
        ("task",),
        _counted("records_restamped"),
    ),
    Metric(
        "headgate_records_expiring_total",
        COUNTER,
        "Records written that are older than their topic keeps records (`retention.ms`): Kafka deletes them as soon as it can.",
        ("task",),
        _counted("records_expiring"),
    ),
    Metric(
        "headgate_lookups_asked_total",
        COUNTER,
        "Questions that `lookup` has asked of services.",
        ("task",),
        _counted("lookups_asked"),
    ),
    Metric(
        "headgate_lookups_cached_total",
        COUNTER,
        "Questions that `lookup` has answered from its cache.",
        ("task",),
        _counted("lookups_cached"),
    ),
    Metric(
        "headgate_lookup_circuits_opened_total",
        COUNTER,
        "How often `lookup` has ceased to ask a service that was away, but for probes.",
        ("task",),
        _counted("lookup_circuits_opened"),
    ),
    Metric(
        "headgate_failures_total",
        COUNTER,
        "Failed chunks, whether retried or not.",
        ("task",),
        _counted("failures"),
    ),
    Metric(
        "headgate_faust_agents",
        GAUGE,
        "Faust agents running in this worker: the coordinator and one per task.",
        (),
        _one(lambda w: float(len(w.app.agents))),
    ),
)
"""All metrics."""


class _Collector:
    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def collect(self) -> Iterator[Any]:
        """All metrics with their current values."""
        common = (str(self.worker.job), self.worker.options.processor)
        for metric in METRICS:
            if metric.durations is not None:
                took = metric.durations(self.worker)
                histogram = HistogramMetricFamily(metric.name, metric.doc, labels=("job", "worker"))
                histogram.add_metric(common, took.up_to(), took.seconds)
                yield histogram
                continue
            kind = CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily
            family = kind(metric.name, metric.doc, labels=("job", "worker", *metric.labels))
            for labels, value in metric.read(self.worker):
                family.add_metric((*common, *labels), value)
            yield family


def render(worker: Worker) -> bytes:
    """The page for Prometheus."""
    registry = CollectorRegistry()
    registry.register(_Collector(worker))
    return generate_latest(registry)
