"""What is logged: one line an event, who speaks, and no secret in any form."""

from __future__ import annotations

import io
import json
import logging

import pytest
import structlog
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import GroupAuthorizationFailedError, GroupCoordinatorNotAvailableError

from headgate.agents.worker.logs import Masking, Repeats, set_level, set_up
from headgate.core.settings import secrets_of

SECRET = "hunter2-and-more"


@pytest.fixture(autouse=True)
def _as_before():
    """Logging is global; the next test finds it as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(out: io.StringIO) -> list[dict]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_every_event_says_who_speaks() -> None:
    """Job and worker are bound once; the run is asked for each time, because it changes."""
    out, run = io.StringIO(), ["r1"]
    set_up(form="json", out=out, bound={"job": "sales/1", "worker": "w1", "run": lambda: run[0]})
    structlog.get_logger("x").bind(task="Partition 3").info("committed", records=5)
    run[0] = "r2"
    structlog.get_logger("x").info("again")
    first, second = lines(out)
    assert {k: first[k] for k in ("event", "level", "job", "worker", "run", "task", "records")} == {
        "event": "committed", "level": "info", "job": "sales/1", "worker": "w1", "run": "r1", "task": "Partition 3", "records": 5,
    }  # fmt: skip
    assert second["run"] == "r2"


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_secret_is_in_no_line_whatever_way_it_came(form: str) -> None:
    """By name, inside of a text, in a list, in a map, in an exception, from another library."""
    out = io.StringIO()
    set_up(form=form, out=out, secrets=[SECRET])
    log = structlog.get_logger("x")
    log.info("by name", **{"sasl.password": "other-secret"})
    log.info(f"in {SECRET} a text", why=f"login with {SECRET} failed", many=[SECRET], deep={"a": {"b": SECRET}})
    try:
        raise ValueError(f"bad {SECRET}")
    except ValueError:
        log.exception("failed")
    logging.getLogger("aiokafka").error("cannot log in with %s", SECRET)
    text = out.getvalue()
    assert SECRET not in text
    assert "other-secret" not in text
    assert text.count("***") >= 6


def test_a_traceback_is_within_its_line() -> None:
    """One event is one line, so that whoever collects them can cut at line ends."""
    out = io.StringIO()
    set_up(form="json", out=out)
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        structlog.get_logger("x").exception("failed")
    (event,) = lines(out)
    assert "ValueError: first" in event["exception"]


def test_what_is_logged_steers_no_terminal() -> None:
    """Records decide what stands in reasons and tracebacks: only values with a space in them were escaped on a terminal."""
    out, odd = io.StringIO(), "a\x1b]0;owned\x07\x9b2J\u202eb"
    set_up(form="console", out=out)
    log = structlog.get_logger("x")
    log.info(odd, why=odd, two=f"{odd} {odd}", many=[odd])
    try:
        raise ValueError(f"{odd}\nthe next line")
    except ValueError:
        log.exception("failed")
    logging.getLogger("aiokafka").error("cannot read %s", f"{odd}\nforged")
    text = out.getvalue()
    assert {char for char in text if not char.isprintable()} == {"\n"}
    assert text.count("owned") == 7
    assert "\nthe next line\n" in text
    assert "\nforged" not in text


def test_other_libraries_speak_in_the_same_form_and_only_from_warnings_on() -> None:
    """aiokafka's chatter stays away, its warnings do not."""
    out = io.StringIO()
    set_up(form="json", out=out, bound={"worker": "w1"})
    logging.getLogger("aiokafka").info("chatter")
    logging.getLogger("aiokafka").warning("trouble")
    assert [(one["event"], one["worker"]) for one in lines(out)] == [("trouble", "w1")]


def test_a_new_broker_that_has_no_coordinator_of_groups_yet_is_no_error() -> None:
    """aiokafka asks again at once; a refusal is none that it repeats."""
    out = io.StringIO()
    set_up(form="json", out=out)
    log = logging.getLogger("aiokafka.consumer.group_coordinator")
    for error in (GroupCoordinatorNotAvailableError(), GroupAuthorizationFailedError("readers")):
        log.error("Group Coordinator Request failed: %s", error)
    log.handle(
        log.makeRecord(
            log.name, logging.WARNING, "", 1, "Marking dead", (1,), None, GroupCoordinator.coordinator_dead.__name__
        )
    )
    assert [one["event"] for one in lines(out)] == [
        "Group Coordinator Request failed: [Error 30] GroupAuthorizationFailedError: readers"
    ]


def test_the_level_can_be_changed_while_it_runs() -> None:
    """`log.level` is a dynamic setting."""
    out = io.StringIO()
    set_up(form="json", out=out, level="warning")
    log = structlog.get_logger("x")
    log.info("unheard")
    set_level("debug")
    structlog.get_logger("x").debug("heard")
    assert [one["event"] for one in lines(out)] == ["heard"]


def test_only_what_is_secret_by_its_name_is_looked_for() -> None:
    """And short values are not: they would mask half of every line."""
    assert secrets_of({"sasl.password": SECRET, "client.id": "sales"}) == [SECRET]
    assert Masking(["abc"]).clean("abcdef") == "abcdef"


def said(rule: Repeats, at_s: float, text: str, *args: object) -> str | None:
    """What comes through of a line of another library, if it does."""
    record = logging.LogRecord("aiokafka", logging.ERROR, "client.py", 1, text, args, None)
    record.created = at_s
    return record.getMessage() if rule.filter(record) else None


def test_what_a_library_repeats_is_said_once_in_a_while_with_a_count() -> None:
    """A broker that is away is worth a line in ten seconds, not a hundred in one."""
    rule = Repeats(10.0)
    through = [said(rule, 1000.0 + n / 10, "Unable connect to node with id %s", n) for n in range(101)]
    assert [one for one in through if one] == [
        "Unable connect to node with id 0",
        "Unable connect to node with id 100 (and 99 more times before)",
    ]
    assert said(rule, 1010.5, "Unable to update metadata from %s", [1]) == "Unable to update metadata from [1]"


def test_what_a_library_goes_on_repeating_is_said_ever_more_rarely() -> None:
    """A night without Kafka is a page of log, and not a book; what was quiet for a while is said at once again."""
    rule = Repeats(10.0)
    through = [second for second in range(3600) if said(rule, 1000.0 + second, "Unable connect")]
    assert through[:6] == [0, 10, 30, 70, 150, 310]
    assert len(through) == 16
    assert said(rule, 9000.0, "Unable connect") is not None
    assert said(rule, 9500.0, "Unable connect") == "Unable connect"
    assert said(rule, 9511.0, "Unable connect") == "Unable connect"
