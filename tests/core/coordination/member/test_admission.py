"""What a worker refuses by itself."""

from __future__ import annotations

import pytest

from headgate.core.coordination.member.admission import goes_on, over, refusal
from headgate.core.coordination.member.plan import MemberConfig
from headgate.core.coordination.messages import SetProcessor, SetRun

PARTS = {"stage:a": "1"}


def run(state: str) -> SetRun:
    return SetRun("r2", "d1", state, "u", fingerprint=PARTS, past_runs=("r1",), past_deployments=("d1",))


@pytest.mark.parametrize(
    ("state", "run_id", "parts", "why"),
    [
        ("running", "", PARTS, ""), ("running", "r2", PARTS, ""), ("running", "r3", PARTS, "is live"),
        ("running", "r1", PARTS, ""), ("running", "", {"stage:a": "2"}, "differs"), ("draining", "r3", PARTS, "is live"),
        ("drained", "r3", {"stage:a": "2"}, ""),
        ("ended", "", {**PARTS, "setting:g": "1"}, "fixed for the life"), ("ended", "", {}, ""), ("stopped", "r3", PARTS, "is stopped"),
        ("stopped", "r2", {}, ""), ("stopped", "", {}, ""), ("stopped", "r1", PARTS, ""),
    ],
)  # fmt: skip
def test_what_is_refused(state: str, run_id: str, parts: dict, why: str):
    found = refusal(run(state), MemberConfig("p1", "x", "x", run_id=run_id, fingerprint=parts))
    assert (why in found) if why else found == ""


def test_without_a_run_nothing_is_refused():
    assert refusal(None, MemberConfig("p1", "x", "x", run_id="r9")) == ""


@pytest.mark.parametrize(
    ("parts", "bounded", "why"), [(PARTS, True, ""), ({}, False, ""), ({}, True, "stage:a: was '1'")]
)
def test_a_batch_whose_code_cannot_go_on_does_not_wait_for_ever(parts: dict, bounded: bool, why: str):
    found = refusal(run("stopped"), MemberConfig("p1", "x", "x", fingerprint=parts, bounded=bounded))
    assert (why in found) if why else found == ""


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
    life = SetProcessor("p1", "000001-a", "x", "h", "joined", "d1", run_id, fingerprint=PARTS, bounded=bounded)
    assert bool(over(run(state), life, late=late)) == done


@pytest.mark.parametrize(("deployment", "parts"), [("d2", PARTS), ("d1", {"stage:a": "2"})])
def test_a_run_of_other_code_is_no_ones_own(deployment: str, parts: dict):
    """Whatever says that the code is another one: the name that was given, or what it declares."""
    life = SetProcessor("p1", "000001-a", "x", "h", "joined", deployment, fingerprint=parts, bounded=True)
    assert over(run("ended"), life, late=False) == ""


def test_each_closed_run_has_a_way_on():
    told = [goes_on(state, "sales") for state in ("drained", "ended", "stopped")]
    assert all("`headgate start sales`" in one for one in told)
    assert "--bounded" in told[1]
    assert "fix what has failed" in goes_on("stopped", "sales", "Partition 1: no")
    assert goes_on("running", "sales") == ""
