"""The metrics of a worker: names that people can rely on, values that come from where they say, for every state of a task."""

from __future__ import annotations

import math
import re
from collections import Counter
from types import SimpleNamespace as Bag

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headgate.agents.cli.start.run import restore_line
from headgate.agents.durations import Durations
from headgate.agents.operators.joins.joined import SideRows
from headgate.agents.operators.joins.kept_rows import SideCounts
from headgate.agents.operators.windows.open_windows import OpenCounts
from headgate.agents.operators.windows.windowed import LateCounts
from headgate.agents.port.broker_clock import BrokerClock
from headgate.agents.runtime.copies.facts import LIVE, CopyFacts
from headgate.agents.runtime.host.unreadable import Unreadable
from headgate.agents.runtime.task.at_work import AtWork
from headgate.agents.runtime.task.past import Past
from headgate.agents.status import documents
from headgate.agents.status.metric import COUNTER
from headgate.agents.status.metrics import METRICS, render
from headgate.agents.step_work import StepTotals
from headgate.agents.worker.load.copy_load import CopyLoad, copy_documents
from headgate.agents.worker.load.health import Health
from headgate.agents.worker.load.lags import Lags
from headgate.agents.worker.load.load import MOST_BYTES, key_load, load_of, task_load
from headgate.agents.worker.load.step_facts import steps_of_load
from headgate.agents.worker.load.times import Times
from headgate.agents.worker.load.work_load import Rates
from headgate.agents.worker.sensors import Counting
from headgate.core.batching.batch_progress import (
    AtSpark,
    BatchSeen,
    SparkMemory,
    SparkProgress,
    SparkState,
    StepBatches,
    Tally,
)
from headgate.core.coordination.events import Heartbeat
from headgate.core.coordination.liveness import MAX_BEAT, decode_beat, encode_beat
from headgate.core.machine import Now
from headgate.core.names import StreamPartition
from headgate.core.orders import RESTING, WORKING, TaskState
from headgate.core.progress.frames import MAX_TIME
from headgate.core.progress.producers import Holder

COPY = CopyFacts(
    table="rates", topic="prices", state=LIVE, rows=7, bytes=700, lag=3, age_ms=2_500, read=9, left_out=1, built_anew=2,
    positions={0: 9}, why="",
)  # fmt: skip
"""A copy of a table that the worker keeps."""


def task(name: str, state: str, watermark: int = 1_000_000):
    """A task actor, as far as these readers look at it."""
    head = Bag(
        lag=5, size=100, position=7, count=1, at_end=False, paused=False, lost=None, blocked=False, degraded=None
    )
    at = StreamPartition("orders", 0)
    known = state in (*WORKING, *RESTING)

    return Bag(
        name=name,
        under_way=Bag(doing=Bag(now=lambda: AtWork(name, "orders:0 offset 7", 9.0), look=lambda: None)),
        grant=1,
        since_ms=1_000,
        machine=Bag(
            phase=state,
            view=Bag(
                positions={at: 7} if known else {},
                bootstrap=[at] if state == TaskState.BOOTSTRAPPING else [],
                closed={},
                newest={"orders": 1_005_000},
                watermarks={"orders": watermark} if known else None,
                times=lambda: [("orders", watermark), ("step heard", 990_000)],
                holders=lambda place: (
                    [Holder(990_000, "orders", "behind")]
                    if place == "step heard"
                    else [Holder(watermark, f"{place}:0", "behind")]
                ),
                owes=lambda: ["by-user"],
            ),
        ),
        reading=Bag(intake=Bag(intake=Bag(heads=lambda: {at: head}, ends=lambda: {at: (12, 0.0)})) if known else None),
        site=Bag(
            pipeline=None
            if not known
            else Bag(
                keys=Bag(shown=lambda: {"orders": {"partitioner": "murmur2"}}),
                windows=lambda: [("tens", OpenCounts(2, 7, 90_000), LateCounts(3, 1))],
                batches=lambda: [batches(name)],
                parked=Bag(total=3, keys=2, due=lambda: 70_000),
                joins=lambda: [
                    ("j", (SideRows(SideCounts(4, 90, 3, 80_000), 2, 1), SideRows(SideCounts(0, 0, 0, None), 0, 0)))
                ],
            )
        ),
        state=Bag(store=None, progress=Bag(position=30, end=100, records=30, seconds=3.0)),
    )


def batches(name: str) -> StepBatches:
    """A step with a running and an open batch."""
    running = BatchSeen(
        "a", name, "daily", 1, "running", 40, 400, closed_ms=7_000, progress=SparkProgress(1, 2, 1, 8, 3, at_ms=1)
    )
    tally = Tally(5, {"rows": 3, "age": 1}, 3, 30, 300, 12, 2, 1, 1_500, 4_200)
    return StepBatches(name, "daily", (running, BatchSeen("b", name, "daily", 2, "open", 9, 90)), tally=tally)


def unreadable():
    """One record of a newer version."""
    found = Unreadable()
    found.passed("__headgate_heartbeat_sales_1", 0, 7, "a heartbeat of version 2")
    return found


def worker(*tasks):
    sensor = Counting()
    sensor.records["orders"] = 42
    sensor.requests[200] = 3
    actors, committing = {one.name: one for one in tasks}, Bag(commits=11, under_way_s=lambda: 0.5)
    taken = (SparkMemory("jvm", 700), SparkMemory("python", 160, 900, 2))
    spark = Bag(seen=lambda: AtSpark(SparkState("ready", started=2, taken=taken)))
    followers = Bag(
        all={"Partition 9": Bag(work=object()), "Partition 8": Bag(work=None)}, left=lambda: {"Partition 9": 70}
    )
    steps = StepTotals()
    steps.of("score").ns, steps.of("score").rows = 2_500_000_000, 40
    took = Durations()
    took.add(0.004)
    runtime = Bag(
        producers=Bag(outbox=None, committing=committing, commits=took),
        turns=Bag(chunks=took, clocks=None),
        counters={"Partition 0": Counter({"waited.paused": 2})},
        steps=steps,
        past=Past(),
        unreadable=unreadable(),
        spark=spark,
        followers=followers,
        copies=Bag(facts=lambda: [COPY], waits=""),
    )
    return Bag(
        job="sales/1",
        unread=["orders-it"],
        memory=Bag(decoded=Bag(used=700, limit=1000, evicted=50), used=lambda: 900, limit=3000),
        leftovers=Bag(removed=2, removed_bytes=4096),
        recorder=Bag(lost=6),
        traces=Bag(spans=Bag(sent=5, dropped=1)),
        options=Bag(processor="w1", process="p1", version="1.2.3"),
        participant=Bag(
            exit_code=None,
            ready=True,
            why="",
            coordination=Bag(blocked=""),
            overrides=Bag(offset=9, masking=["commit.interval"]),
            runtime=runtime,
            actors=actors,
            times=Times(),
            rates=Rates(),
            lags_now=lambda: Lags().look({}, actors, 0.0),
            health=Health(0.0),
            owned=dict,
        ),
        port=Bag(clock=Bag(now=lambda: Now(0.0, 1_010_000)), broker=BrokerClock()),
        started_ms=5_000,
        actors=actors,
        counters={
            "Partition 0": Counter({"dead_letters": 2, "chosen.0": 5, "waited.bootstrap": 1}),
            "Partition 1": Counter({"chosen.0": 1, "chosen.intermediate": 7}),
        },
        committing=committing,
        runtime=runtime,
        sensor=sensor,
        app=Bag(agents={"coordinator": 1}),
        coordination=Bag(),
    )


def test_every_name_says_what_it_is() -> None:
    """snake_case, one front, counters end in _total, units at the end, few labels."""
    for metric in METRICS:
        assert re.fullmatch(r"headgate(_[a-z]+)+", metric.name), metric.name
        assert metric.name.endswith("_total") == (metric.kind == COUNTER), metric.name
        assert not re.search(r"_(ms|milliseconds|kb|mb)(_|$)", metric.name), metric.name
        assert len(metric.labels) <= 2
        assert metric.doc.endswith(".")
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_what_is_rendered_can_be_parsed_and_says_what_the_worker_says() -> None:
    """Through Prometheus' own parser."""
    text = render(worker(task("Partition 0", TaskState.RUNNING), task("Partition 1", TaskState.RESTORING))).decode()
    found = {
        (sample.name, tuple(v for k, v in sorted(sample.labels.items()) if k not in ("job", "worker"))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["headgate_tasks", ("running",)] == 1.0
    assert found["headgate_tasks", ("restoring",)] == 1.0
    assert found["headgate_story_lines_lost_total", ()] == 6.0
    assert found["headgate_input_lag_records", ("orders",)] == 5.0
    assert found["headgate_watermark_seconds", ("orders",)] == 1000.0
    assert found["headgate_step_watermark_seconds", ("heard",)] == 990.0
    assert found["headgate_watermark_lag_seconds", ("orders",)] == 10.0
    assert found["headgate_watermark_behind_newest_seconds", ("orders",)] == 5.0
    assert found["headgate_watermarks_held", ("orders:0",)] == 1.0
    assert found["headgate_open_windows", ("tens",)] == 2.0
    assert found["headgate_open_window_keys", ("tens",)] == 7.0
    assert found["headgate_oldest_open_window_seconds", ("tens",)] == 90.0
    assert found["headgate_late_rows_total", ("tens",)] == 3.0
    kept = {"rows": 4.0, "bytes": 90.0, "rows_in_memory": 3.0, "oldest_row_seconds": 80.0}
    kept |= {"late_rows_total": 2.0, "unmatched_rows_total": 1.0}
    assert {name: found[f"headgate_join_{name}", ("left", "j")] for name in kept} == kept
    assert found["headgate_join_rows", ("right", "j")] == 0.0
    copied = {"rows": 7.0, "bytes": 700.0, "lag_records": 3.0, "age_seconds": 2.5, "stopped": 0.0}
    copied |= {"records_left_out_total": 1.0}
    assert {name: found[f"headgate_copy_{name}", ("rates",)] for name in copied} == copied
    assert found["headgate_copies_built_anew_total", ("rates",)] == 2.0
    assert ("headgate_join_oldest_row_seconds", ("right", "j")) not in found
    assert found["headgate_state_memory_bytes", ("decoded",)] == 700.0
    assert found["headgate_state_memory_bytes", ("rocksdb",)] == 900.0
    assert found["headgate_state_evicted_bytes_total", ()] == 50.0
    assert found["headgate_late_for_some_windows_total", ("tens",)] == 1.0
    assert found["headgate_restore_remaining_records", ()] == 70.0
    assert found["headgate_records_read_total", ("orders",)] == 42.0
    assert found["headgate_dead_letters_total", ("Partition 0",)] == 2.0
    assert found["headgate_commits_total", ()] == 11.0
    assert found["headgate_chunks_chosen_total", ("0",)] == 6.0
    assert found["headgate_chunks_chosen_total", ("intermediate",)] == 7.0
    assert found["headgate_waits_total", ("bootstrap",)] == 1.0
    bootstraps = render(worker(task("Partition 0", TaskState.BOOTSTRAPPING))).decode()
    assert re.search(r'headgate_bootstrapping_partitions\{.*stream="orders".*\} 1\.0', bootstraps)
    assert found["headgate_unreadable_records_total", ("__headgate_heartbeat_sales_1",)] == 1.0
    assert found["headgate_http_requests_total", ("200",)] == 3.0
    assert found["headgate_step_seconds_total", ("score",)] == 2.5
    assert found["headgate_step_rows_total", ("score",)] == 40.0
    assert found["headgate_chunk_seconds_bucket", ("0.0025",)] == 0.0
    assert found["headgate_chunk_seconds_bucket", ("0.005",)] == 1.0
    assert (found["headgate_commit_seconds_count", ()], found["headgate_commit_seconds_sum", ()]) == (1.0, 0.004)
    assert found["headgate_partition_lag_records", ("0", "orders")] == 5.0


def test_batches_are_summed_over_the_tasks_of_a_worker() -> None:
    """By step and state, and by what closed them."""
    text = render(worker(task("Partition 0", TaskState.RUNNING), task("Partition 1", TaskState.RUNNING))).decode()
    found = {
        (sample.name, *(sample.labels.get(name, "") for name in ("step", "state", "cause", "process"))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["headgate_batches", "daily", "running", "", ""] == 2.0
    assert found["headgate_batches", "daily", "closed", "", ""] == 0.0
    assert found["headgate_batch_rows", "daily", "open", "", ""] == 18.0
    assert found["headgate_batch_bytes", "daily", "running", "", ""] == 800.0
    assert found["headgate_oldest_batch_seconds", "daily", "", "", ""] == 7.0
    assert found["headgate_batch_spark_tasks", "daily", "left", "", ""] == 10.0
    assert found["headgate_batches_closed_total", "daily", "", "rows", ""] == 6.0
    for name, value in [
        ("batches_done", 6.0), ("batch_rows_done", 60.0), ("batch_bytes_done", 600.0), ("batch_result_rows", 24.0),
        ("batches_retried", 4.0), ("batch_rows_poisoned", 2.0), ("batch_spark_seconds", 3.0), ("batch_retry_seconds", 8.4),
    ]:  # fmt: skip
        assert found[f"headgate_{name}_total", "daily", "", "", ""] == value
    assert found["headgate_spark_ready", "", "", "", ""] == 1.0
    assert found["headgate_spark_sessions_total", "", "", "", ""] == 2.0
    assert found["headgate_spark_memory_bytes", "", "", "", "jvm"] == 700.0
    assert found["headgate_spark_memory_limit_bytes", "", "", "", "python"] == 900.0
    assert ("headgate_spark_memory_limit_bytes", "", "", "", "jvm") not in found


@pytest.mark.parametrize("state", TaskState)
def test_a_task_can_be_asked_in_every_state(state: str) -> None:
    """A page or a heartbeat in the middle of a restore must not end a worker."""
    one = worker(task("Partition 0", state))
    said = task_load(load_of(one.participant, Now(5.0, 1_010_000)), "Partition 0")
    assert said["state"] == state
    assert render(one)
    assert documents.watermarks(one.actors["Partition 0"]) == (
        {"orders": 1_000_000} if state in (*WORKING, *RESTING) else {}
    )


def test_how_keys_are_spread_comes_through_heartbeats() -> None:
    """By input, in how many tasks: what `headgate status` shows."""
    both = [
        load_of(worker(task("Partition 0", TaskState.RUNNING)).participant, Now(5.0, 1_010_000)),
        load_of(worker(task("Partition 1", TaskState.RUNNING)).participant, Now(5.0, 1_010_000)),
    ]
    assert key_load(both) == {"orders": {"murmur2": 2}}


def test_no_more_time_comes_through_a_heartbeat_as_such() -> None:
    """The maximal watermark is not a date in the far future."""
    load = load_of(worker(task("Partition 0", TaskState.RUNNING, MAX_TIME)).participant, Now(5.0, 1_010_000))
    assert task_load(load, "Partition 0")["watermark_ms"] == MAX_TIME
    assert documents.time_of(MAX_TIME) == "end"
    assert (
        "headgate_watermark_seconds{" not in render(worker(task("Partition 0", TaskState.RUNNING, MAX_TIME))).decode()
    )


def test_a_heartbeat_stays_within_its_limit_however_many_tasks_there_are() -> None:
    """What does not fit is left out, and that is said."""
    load = load_of(
        worker(*(task(f"Partition {n}", TaskState.RUNNING) for n in range(1000))).participant, Now(5.0, 1_010_000)
    )
    data = encode_beat(Heartbeat("w1", "p1", "000001-aa", 1.0, load=load))
    assert len(data) <= MAX_BEAT
    assert decode_beat(data).load["left_out"] == load["left_out"] > 0
    assert MOST_BYTES < MAX_BEAT


def test_the_lag_of_a_task_that_does_not_run_comes_through_a_heartbeat() -> None:
    """It failed on a full disk: its lag grew in the metrics of its worker, and `headgate status` showed none."""
    one = worker(task("Partition 0", TaskState.RUNNING))
    at = StreamPartition("orders", 1)
    one.participant.lags_now = lambda: {"Partition 0": {at: 3}, "Partition 1": {at: 700}, "Partition 2": {at: None}}
    load = load_of(one.participant, Now(5.0, 1_010_000))
    assert {name: number for name, number in load.items() if name.startswith("lag.")} == {
        "lag.Partition 0": 3.0,
        "lag.Partition 1": 700.0,
    }
    assert (task_load(load, "Partition 1")["lag"], task_load(load, "Partition 1")["state"]) == (700, None)


def test_what_is_unknown_of_a_lag_is_no_number_and_is_counted() -> None:
    """A sum of 0 for partitions of which nobody knows anything would end every alert."""
    one = worker(task("Partition 0", TaskState.RUNNING))
    here, there, lost = StreamPartition("orders", 0), StreamPartition("orders", 1), StreamPartition("rates", 0)
    one.participant.lags_now = lambda: {"Partition 0": {here: 3, there: None}, "Partition 1": {lost: None}}
    found = {
        (sample.name, sample.labels.get("stream", "")): sample.value
        for family in text_string_to_metric_families(render(one).decode())
        for sample in family.samples
    }
    assert found["headgate_input_lag_records", "orders"] == 3.0
    assert math.isnan(found["headgate_input_lag_records", "rates"])
    assert found["headgate_input_lag_unknown_partitions", "orders"] == 1.0
    assert found["headgate_input_lag_unknown_partitions", "rates"] == 1.0


def test_a_task_of_which_nothing_was_heard_is_unknown_not_zero() -> None:
    """A lag that nobody has measured is no lag of zero."""
    assert task_load({}, "Partition 0") == {
        "state": None, "since_ms": None, "lag": None, "watermark_ms": None, "restore_left": None, "parked": 0,
    }  # fmt: skip


def test_the_line_of_a_long_restore() -> None:
    """How far, how many, how long."""
    assert restore_line([]) == ""
    assert restore_line([("Partition 3", 250_000, 1_000_000, 5.0)]) == (
        "restoring Partition 3: 25 %, 250,000 of 1,000,000 records, about 15 s to go"
    )
    assert restore_line([("a", 0, 10, 0.0), ("b", 0, 10, 0.0)]) == "restoring 2 tasks: 0 %, 0 of 20 records"


def test_a_sensor_hears_letters_and_requests() -> None:
    """Records of chunks by stream; a letter that is no chunk counts as one letter."""
    sensor = Counting()
    chunk = [1, 2, 3]
    place = Bag(topic="orders")
    sensor.on_stream_event_out(place, 3, None, Bag(chunk=chunk), sensor.on_stream_event_in(place, 3, None, None))
    sensor.on_stream_event_out(place, 3, None, Bag(), None)
    sensor.on_web_request_end(None, None, Bag(status=503), None)
    assert (sensor.records, sensor.letters, sensor.requests) == ({"orders": 3}, 2, {503: 1})


def test_a_copy_of_a_table_comes_through_a_heartbeat() -> None:
    load = load_of(worker().participant, Now(0.0, 1_010_000))
    assert copy_documents(steps_of_load(CopyLoad, load)) == [
        {
            "table": "rates",
            "state": "live",
            "rows": 7,
            "bytes": 700,
            "lag": 3,
            "age_s": 2.5,
            "left_out": 1,
            "built_anew": 2,
        }
    ]
