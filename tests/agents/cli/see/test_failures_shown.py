"""A failed task leads to the section about its failure, also where no command has failed."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.agents.cli.see.status import more_of, show_why

FULL = "the store in /data accepts no write: IO error: No space left on device. Remedy: free some disk space"
CODE = "/app/shop.py:3 `raise ValueError(1)`: record at orders[0] offset 4: map (shop.py:9) raised ValueError: 1"


def test_each_section_is_named_once() -> None:
    """Forty tasks may have failed for one reason."""
    assert more_of([FULL, CODE, FULL, CODE]) == (
        "headgate docs troubleshooting#the-disk-is-full · headgate docs troubleshooting#a-task-has-failed"
    )


@pytest.mark.parametrize(("state", "shown"), [("failed", True), ("restoring", False)])
def test_why_a_task_failed_says_where_more_is(state: str, shown: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """It is the second command that whoever is woken types."""
    found: dict[str, Any] = {
        "task": "Partition 0", "state": state, "worker": "w1", "why": FULL, "failure": None, "failure_since": None,
        "failure_until": None, "traceback": None, "asked": True, "refused": None,
    }  # fmt: skip
    show_why(found)
    assert ("headgate docs troubleshooting#the-disk-is-full" in capsys.readouterr().out) == shown
