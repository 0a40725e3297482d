"""Which worker goes with which run, for the leader who begins it and for the member who waits for one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.core.coordination import messages as c
from headgate.core.coordination.messages import Entry, key_of
from headgate.core.coordination.run_choice import cannot_follow, fits, late, may_begin, ran
from headgate.core.coordination.state import JobState

RUN = c.SetRun(
    "r1",
    "d1",
    "drained",
    "u",
    fingerprint={"setting:g": "a", "stage:s": "1"},
    past_runs=("r0",),
    past_deployments=("d1",),
)


def life(**parts: str) -> c.SetProcessor:
    return c.SetProcessor(
        "p1", "000001-a", "x", "here", "joined", "d2", fingerprint={k.replace("_", ":"): v for k, v in parts.items()}
    )


@pytest.mark.parametrize(
    ("state", "drain", "parts", "refused"),
    [
        ("drained", None, {"setting_g": "a", "stage_s": "2"}, False),
        ("ended", None, {"setting_g": "b", "stage_s": "1"}, True),
        ("stopped", None, {"setting_g": "a", "stage_s": "1", "stage_t": "1"}, False),
        ("stopped", None, {"setting_g": "a", "stage_s": "2"}, True),
        ("stopped", None, {"setting_g": "a"}, True),
        ("stopped", "q", {"setting_g": "a", "stage_s": "1", "stage_t": "1"}, True),
        ("stopped", "q", {"setting_g": "a", "stage_s": "1"}, False),
        ("stopped", None, {"setting_g": "a", "stage_s": "1", "state_s": "2", "state_t": "1"}, False),
        ("stopped", "q", {"setting_g": "a", "stage_s": "1", "state_s": "2"}, False),
    ],
)
def test_which_code_may_follow_or_resume_a_closed_run(state: str, drain: str | None, parts: dict, refused: bool):
    """After a drain anything but immutables may change; a stopped run takes additions; one that drains takes none.

    Of what is kept each task judges by itself: a field more is no reason to drain, and a wrong one can be corrected in a drain.
    """
    run = c.SetRun("r1", "d1", state, "u", drain=drain, fingerprint={**RUN.fingerprint, "state:s": "1"})
    assert bool(cannot_follow(run, life(**parts).fingerprint)) == refused
    assert cannot_follow(None, life(**parts).fingerprint) == []


@pytest.mark.parametrize(
    ("state", "run_id", "deployment", "bounded", "late", "begins"),
    [
        ("drained", "", "d1", False, True, False), ("drained", "", "d2", False, True, True),
        ("drained", "r3", "d1", False, True, True),
        ("drained", "r1", "d2", False, True, False), ("drained", "r0", "d2", False, True, False),
        ("stopped", "r1", "d1", False, True, True),
        ("stopped", "", "d2", False, True, False), ("ended", "", "d1", True, True, True), ("ended", "", "d1", False, True, False),
        ("ended", "r1", "d1", True, True, False), ("ended", "r9", "d1", True, True, True), ("ended", "", "d1", True, False, False),
        ("ended", "", "d2", True, False, True), ("ended", "", "d0", True, False, True), ("ended", "", "d0", False, False, False),
    ],
)  # fmt: skip
def test_for_whom_a_run_begins_unasked(
    state: str, run_id: str, deployment: str, bounded: bool, late: bool, begins: bool
):
    """Restarts begin nothing; other code, another id, and a batch behind a batch do."""
    run = replace(RUN, state=state, past_deployments=("d0", "d1"))
    comes = replace(life(setting_g="a", stage_s="1"), deployment=deployment, run_id=run_id, bounded=bounded)
    assert may_begin(run, comes, late=late) == begins


@pytest.mark.parametrize(("run_id", "resumes"), [("", True), ("r1", True), ("r9", False)])
def test_a_run_that_failed_is_resumed_by_whoever_comes(run_id: str, resumes: bool):
    failed = replace(RUN, state="stopped", failed="Partition 1: no")
    assert may_begin(failed, replace(life(), run_id=run_id), late=True) == resumes


def test_a_worker_fits_a_run_whose_code_it_has_and_that_it_asked_for():
    comes = life(setting_g="a", stage_s="1")
    assert fits(RUN, comes)
    assert not fits(RUN, life(setting_g="b", stage_s="1"))
    assert not fits(RUN, replace(comes, run_id="r9"))
    assert ran(RUN, replace(comes, deployment="d1"))
    assert not ran(RUN, comes)


def test_who_came_long_after_the_end_is_late():
    """By the broker's clock: what is compared are times at which records were appended."""
    state = JobState()
    for n, (message, append_ms) in enumerate(((RUN, 1000), (life(), 7000))):
        state.apply(Entry(n, key_of(message), message, append_ms))
    assert not late(state, life(), 6.0)
    assert late(state, life(), 5.9)
