"""What a worker refuses by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.core.coordinator import SetRun
from headgate.core.member_plan import MemberConfig
from headgate.core.member_run import goes_on, may_begin, over, refusal

PARTS = {"stage:a": "1"}


def run(state: str) -> SetRun:
    return SetRun("r2", "d1", state, "u", fingerprint=PARTS, past_runs=("r1",), past_deployments=("d1",))


@pytest.mark.parametrize(
    ("state", "run_id", "parts", "why"),
    [
        ("running", "", PARTS, ""), ("running", "r2", PARTS, ""), ("running", "r3", PARTS, "is live"),
        ("running", "r1", PARTS, ""), ("running", "", {"stage:a": "2"}, "differs"), ("draining", "r3", PARTS, "is live"),
        ("drained", "r3", {"stage:a": "2"}, ""), ("ended", "", {}, ""), ("stopped", "r3", PARTS, "is stopped"),
        ("stopped", "r2", {}, ""), ("stopped", "", {}, ""), ("stopped", "r1", PARTS, ""),
    ],
)  # fmt: skip
def test_what_is_refused(state: str, run_id: str, parts: dict, why: str):
    found = refusal(run(state), MemberConfig("p1", "x", "x", run_id=run_id, fingerprint=parts))
    assert (why in found) if why else found == ""


def test_without_a_run_nothing_is_refused():
    assert refusal(None, MemberConfig("p1", "x", "x", run_id="r9")) == ""


@pytest.mark.parametrize(
    ("state", "run_id", "deployment", "begins"),
    [
        ("drained", "", "d1", False), ("drained", "", "d2", True), ("drained", "r3", "d1", True), ("drained", "r2", "d2", False),
        ("drained", "r1", "d2", False), ("stopped", "r2", "d1", True), ("stopped", "", "d2", False),
    ],
)  # fmt: skip
def test_who_begins_by_himself(state: str, run_id: str, deployment: str, begins: bool):
    assert may_begin(run(state), MemberConfig("p1", "x", "x", run_id=run_id, deployment=deployment)) == begins


@pytest.mark.parametrize(
    ("run_id", "bounded", "begins"), [("", True, True), ("", False, False), ("r2", True, False), ("r9", True, True)]
)
def test_a_bounded_process_begins_behind_an_ended_run(run_id: str, bounded: bool, begins: bool):
    assert (
        may_begin(run("ended"), MemberConfig("p1", "x", "x", run_id=run_id, deployment="d1", bounded=bounded)) == begins
    )


@pytest.mark.parametrize(("run_id", "resumes"), [("", True), ("r2", True), ("r9", False)])
def test_a_run_that_failed_is_resumed_by_whoever_comes(run_id: str, resumes: bool):
    failed = replace(run("stopped"), failed="Partition 1: no")
    assert may_begin(failed, MemberConfig("p1", "x", "x", run_id=run_id)) == resumes


@pytest.mark.parametrize(
    ("state", "run_id", "bounded", "late", "done"),
    [
        ("ended", "r2", False, True, True), ("ended", "r1", True, True, True), ("ended", "r1", False, True, False),
        ("drained", "r2", True, True, False), ("ended", "", True, False, True), ("ended", "", True, True, False),
        ("ended", "", False, False, True), ("drained", "", True, False, False), ("stopped", "", True, False, False),
    ],
)  # fmt: skip
def test_who_has_nothing_left_to_do(state: str, run_id: str, bounded: bool, late: bool, done: bool):
    """Whoever asks for what has ended is done; whoever finds a run closed by an operator waits."""
    config = MemberConfig("p1", "x", "x", run_id=run_id, deployment="d1", bounded=bounded)
    assert bool(over(run(state), config, late=late)) == done


def test_each_closed_run_has_a_way_on():
    told = [goes_on(state, "sales") for state in ("drained", "ended", "stopped")]
    assert all("`headgate start sales`" in one for one in told)
    assert "--bounded" in told[1]
    assert "correct what has failed" in goes_on("stopped", "sales", "Partition 1: no")
    assert goes_on("running", "sales") == ""
