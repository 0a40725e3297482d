"""What a task reports of itself: each report has a beginning and an end."""

from __future__ import annotations

import pytest

from headgate.agents.cli.see.status import show_why
from headgate.agents.runtime.task.notes import DEGRADED, FAILURE, RETRY, Note, StatusNotes
from headgate.agents.status.documents import note_of


def test_a_report_keeps_its_beginning_and_gets_an_end() -> None:
    """It fails in the same way for a minute, and goes on; later it fails again, which is another failure."""
    now_ms = 1_000
    notes = StatusNotes(lambda: now_ms)
    notes.say(FAILURE, "boom", "line 3")
    now_ms = 61_000
    notes.say(FAILURE, "boom")
    assert notes.open(FAILURE) == Note("boom", 1_000, None, "line 3")
    notes.over(FAILURE, RETRY)
    now_ms = 62_000
    notes.over(FAILURE)
    assert (notes.open(FAILURE), notes.said) == (None, {FAILURE: Note("boom", 1_000, 61_000, "line 3")})
    notes.say(FAILURE, "boom")
    assert notes.said == {FAILURE: Note("boom", 62_000)}


def test_what_happened_at_one_moment_is_over_at_once_and_what_is_withdrawn_is_gone() -> None:
    notes = StatusNotes(lambda: 5_000)
    notes.say("lost", "5 records are gone")
    notes.say(DEGRADED, "no fetch is answered")
    notes.withdraw(DEGRADED)
    notes.withdraw(DEGRADED)
    assert notes.said == {"lost": Note("5 records are gone", 5_000, 5_000)}


def test_the_status_shows_since_when_and_until_when() -> None:
    held = {"detail": "boom", "since": "1970-01-01T00:00:01.000Z", "until": None}
    assert note_of(Note("boom", 1_000)) == held
    ended = {**held, "until": "1970-01-01T00:01:01.000Z", "traceback": "line 3"}
    assert note_of(Note("boom", 1_000, 61_000, "line 3")) == ended


def test_why_shows_whether_a_failure_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    """A traceback from last week looked like one of now."""
    found = {"task": "Partition 0", "state": "running", "worker": "w1", "asked": True, "why": "", "failure": "boom"}
    found |= {"failure_since": "1970-01-01T00:00:01.000Z", "failure_until": None, "traceback": ""}
    show_why(found)
    assert "since 1970-01-01T00:00:01.000Z" in capsys.readouterr().out
    show_why({**found, "failure_until": "1970-01-01T00:01:01.000Z"})
    assert "1970-01-01T00:00:01.000Z until 1970-01-01T00:01:01.000Z" in capsys.readouterr().out
