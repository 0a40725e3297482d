"""What a worker refuses by itself."""

from __future__ import annotations

import pytest

from headgate.core.coordinator import SetRun
from headgate.core.member_plan import MemberConfig
from headgate.core.member_run import may_begin, refusal

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
