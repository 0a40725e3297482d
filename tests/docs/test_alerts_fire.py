"""Each alert fires in a scene made for it, and no other one with it; in a healthy job none does. Prometheus itself judges (`promtool`),
where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from .pages import ROOT
from .test_monitoring import METRICS, RULES

PROMTOOL = shutil.which("promtool")
RULES_FILE = ROOT / "docker" / "prometheus" / "rules.yaml"
LONG = 150
"""Minutes of each scene."""
AT = "130m"
LATELY = 120
"""The minute at which something happens for the first time."""
W1 = 'job="sales/1", worker="w1"'
Scene = dict[str, str]
HEALTHY: Scene = {
    f"headgate_worker_ready{{{W1}}}": f"1x{LONG}",
    f"headgate_worker_leader{{{W1}}}": f"1x{LONG}",
    f"headgate_worker_start_time_seconds{{{W1}}}": f"5x{LONG}",
    f"headgate_worker_clock_ahead_seconds{{{W1}}}": f"0.1x{LONG}",
    f'headgate_tasks{{{W1}, state="failed"}}': f"0x{LONG}",
    f'headgate_tasks{{{W1}, state="running"}}': f"4x{LONG}",
    f"headgate_commits_total{{{W1}}}": f"0+60x{LONG}",
    f'headgate_input_lag_records{{{W1}, stream="orders"}}': f"10x{LONG}",
    f'headgate_input_lag_unknown_partitions{{{W1}, stream="orders"}}': f"0x{LONG}",
    f"headgate_broker_away_seconds{{{W1}}}": f"0x{LONG}",
    f"headgate_commit_under_way_seconds{{{W1}}}": f"0.1x{LONG}",
    f"headgate_oldest_letter_seconds{{{W1}}}": f"0x{LONG}",
    f"headgate_loop_busy_seconds_total{{{W1}}}": f"0+30x{LONG}",
    f"headgate_stores_stopped{{{W1}}}": f"0x{LONG}",
    f'headgate_copy_stopped{{{W1}, table="rates"}}': f"0x{LONG}",
    f'headgate_watermark_behind_newest_seconds{{{W1}, stream="orders"}}': f"5x{LONG}",
    f"headgate_restore_remaining_records{{{W1}}}": f"0x{LONG}",
    f'headgate_dead_letters_total{{{W1}, task="Partition 0"}}': f"3x{LONG}",
    f'headgate_records_skipped_total{{{W1}, task="Partition 0"}}': f"3x{LONG}",
    f'headgate_late_rows_total{{{W1}, step="spent"}}': f"3x{LONG}",
    f'headgate_join_late_rows_total{{{W1}, step="pairs", side="left"}}': f"3x{LONG}",
    f'headgate_batches_retried_total{{{W1}, step="daily"}}': f"1x{LONG}",
    f'headgate_batch_rows_poisoned_total{{{W1}, step="daily"}}': f"1x{LONG}",
    f'headgate_spark_memory_bytes{{{W1}, process="driver"}}': f"50x{LONG}",
    f'headgate_spark_memory_limit_bytes{{{W1}, process="driver"}}': f"100x{LONG}",
    f'headgate_unreadable_records_total{{{W1}, topic="c"}}': f"1x{LONG}",
    'up{job="headgate", instance="w1:8080"}': f"1x{LONG}",
}
"""What a job that works says. What has happened long ago does not count."""
FIRST = f"_x{LATELY} 2x{LONG - LATELY}"
"""A counter whose first count comes lately."""
GROWS = f"0+1x{LONG}"
SCENES: list[tuple[str, Scene]] = [
    ("HeadgateTaskFailed", {f'headgate_tasks{{{W1}, state="failed"}}': f"1x{LONG}"}),
    ("HeadgateCopyStopped", {f'headgate_copy_stopped{{{W1}, table="rates"}}': f"1x{LONG}"}),
    ("HeadgateNoLeader", {f"headgate_worker_leader{{{W1}}}": f"0x{LONG}"}),
    ("HeadgateNothingCommitted", {f"headgate_commits_total{{{W1}}}": f"7x{LONG}"}),
    ("HeadgateLagGrows", {f'headgate_input_lag_records{{{W1}, stream="orders"}}': f"0+5000x{LONG}"}),
    ("HeadgateBrokerAway", {f"headgate_broker_away_seconds{{{W1}}}": f"0+60x{LONG}"}),
    ("HeadgateWorkerNotReady", {f"headgate_worker_ready{{{W1}}}": f"0x{LONG}"}),
    ("HeadgateWorkerRestarts", {f"headgate_worker_start_time_seconds{{{W1}}}": f"0+60x{LONG}"}),
    ("HeadgateLagUnknown", {f'headgate_input_lag_unknown_partitions{{{W1}, stream="orders"}}': f"2x{LONG}"}),
    ("HeadgateCommitSlow", {f"headgate_commit_under_way_seconds{{{W1}}}": f"20x{LONG}"}),
    ("HeadgateLetterTakesLong", {f"headgate_oldest_letter_seconds{{{W1}}}": f"90x{LONG}"}),
    ("HeadgateLoopBusy", {f"headgate_loop_busy_seconds_total{{{W1}}}": f"0+58x{LONG}"}),
    ("HeadgateStoresStopped", {f"headgate_stores_stopped{{{W1}}}": f"1x{LONG}"}),
    ("HeadgateDeadLetters", {f'headgate_dead_letters_total{{{W1}, task="Partition 0"}}': GROWS}),
    ("HeadgateDeadLetters", {f'headgate_dead_letters_total{{{W1}, task="Partition 1"}}': FIRST}),
    ("HeadgateRecordsSkipped", {f'headgate_records_skipped_total{{{W1}, task="Partition 0"}}': GROWS}),
    ("HeadgateRecordsSkipped", {f'headgate_records_skipped_total{{{W1}, task="Partition 1"}}': FIRST}),
    ("HeadgateLateRows", {f'headgate_late_rows_total{{{W1}, step="spent"}}': GROWS}),
    ("HeadgateLateRows", {f'headgate_late_rows_total{{{W1}, step="other"}}': FIRST}),
    ("HeadgateLateRows", {f'headgate_join_late_rows_total{{{W1}, step="pairs", side="right"}}': FIRST}),
    ("HeadgateEventTimeHeld", {f'headgate_watermark_behind_newest_seconds{{{W1}, stream="orders"}}': f"700x{LONG}"}),
    ("HeadgateRestoreTakesLong", {f"headgate_restore_remaining_records{{{W1}}}": f"100x{LONG}"}),
    ("HeadgateBatchOld", {f'headgate_oldest_batch_seconds{{{W1}, step="daily"}}': f"60x{LONG}"}),
    ("HeadgateBatchesRetried", {f'headgate_batches_retried_total{{{W1}, step="daily"}}': GROWS}),
    ("HeadgateRowsPoisoned", {f'headgate_batch_rows_poisoned_total{{{W1}, step="daily"}}': GROWS}),
    ("HeadgateRowsPoisoned", {f'headgate_batch_rows_poisoned_total{{{W1}, step="hourly"}}': FIRST}),
    ("HeadgateSparkMemory", {f'headgate_spark_memory_bytes{{{W1}, process="driver"}}': f"95x{LONG}"}),
    ("HeadgateClockOff", {f"headgate_worker_clock_ahead_seconds{{{W1}}}": f"-90x{LONG}"}),
    ("HeadgateUnreadable", {f'headgate_unreadable_records_total{{{W1}, topic="c"}}': GROWS}),
    ("HeadgateUnreadable", {f'headgate_unreadable_records_total{{{W1}, topic="h"}}': FIRST}),
    ("HeadgateWorkerDown", {'up{job="headgate", instance="w1:8080"}': f"0x{LONG}"}),
]
"""An alert, and what is different from a healthy job."""


def judged(scene: Scene, fires: list[str]) -> dict[str, Any]:
    """A test of promtool: exactly these alerts fire."""
    series = [{"series": name, "values": values} for name, values in (HEALTHY | scene).items()]
    samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in fires]
    query = 'count by (alertname) (ALERTS{alertstate="firing"})'
    return {
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": [{"expr": query, "eval_time": AT, "exp_samples": samples}],
    }


def judge(directory: Path, *tests: dict[str, Any]) -> str:
    """What promtool finds wrong; empty if nothing is."""
    assert PROMTOOL is not None
    file = directory / "scenes.yaml"
    file.write_text(
        yaml.safe_dump({"rule_files": [str(RULES_FILE)], "evaluation_interval": "1m", "tests": list(tests)})
    )
    done = subprocess.run(
        [PROMTOOL, "test", "rules", str(file)], capture_output=True, text=True, check=False, timeout=120
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="Prometheus is not installed here")


@needs_promtool
def test_a_healthy_job_is_silent(tmp_path: Path) -> None:
    assert judge(tmp_path, judged({}, [])) == ""


@needs_promtool
def test_each_alert_fires_in_its_scene_and_alone(tmp_path: Path) -> None:
    assert judge(tmp_path, *(judged(scene, [alert]) for alert, scene in SCENES)) == ""


@needs_promtool
def test_what_is_wrong_is_found(tmp_path: Path) -> None:
    """The judge is tried on a scene in which nothing happens."""
    assert "HeadgateTaskFailed" in judge(tmp_path, judged({}, ["HeadgateTaskFailed"]))


@needs_promtool
def test_the_rules_are_valid() -> None:
    assert PROMTOOL is not None
    subprocess.run([PROMTOOL, "check", "rules", str(RULES_FILE)], check=True, capture_output=True, timeout=60)


def test_each_alert_has_a_scene_and_scenes_have_metrics_and_labels_that_exist() -> None:
    """A scene of a metric that was renamed would prove nothing."""
    assert {alert for alert, _ in SCENES} == {rule["alert"] for rule in RULES}
    for name in {name for _, scene in SCENES for name in scene} | set(HEALTHY):
        metric, _, labels = name.removesuffix("}").partition("{")
        assert {one.partition("=")[0].strip() for one in labels.split(",")} == METRICS[metric]
