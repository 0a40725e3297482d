"""The life of a request."""

from __future__ import annotations

import pytest

from headgate.core.coordination.messages import SetAnswer, SetRequest
from headgate.core.coordination.requests import expired, may_follow, problem, seek_target

STATES = ["accepted", "running", "done", "refused", "failed"]


@pytest.mark.parametrize("before", [None, *STATES])
@pytest.mark.parametrize("after", STATES)
def test_which_answer_may_follow_which(before: str | None, after: str):
    """Nothing follows a final one, nothing goes back, and nothing is said twice."""
    old = None if before is None else SetAnswer("u", before)
    allowed = before is None or (
        before in ("accepted", "running") and after != before and (before, after) != ("running", "accepted")
    )
    assert may_follow(old, SetAnswer("u", after)) == allowed


def test_progress_is_news():
    assert may_follow(SetAnswer("u", "running"), SetAnswer("u", "running", "", {"done": 3}))


def test_what_expires():
    """Only a request with a time, that nobody has taken up, after that time."""
    request = SetRequest("u", "drain", not_after=100)
    assert expired(request, None, 101)
    assert not expired(request, None, 100)
    assert not expired(request, SetAnswer("u", "accepted"), 101)
    assert not expired(SetRequest("u", "drain"), None, 10**15)


@pytest.mark.parametrize(
    ("to", "target"),
    [
        ("oldest", "oldest"), ("newest", "newest"), (5, 5), (0, 0), (-1, None), (True, None), ("middle", None),
        (["time", 9], ("time", 9)), (("time", 9), ("time", 9)), (["time"], None), (["time", "9"], None),
        (["time", True], None), (["place", 9], None), (None, None), (1.5, None),
        (["skip", 7], ("skip", 7)), (["skip", 7, 3], ("skip", 7, 3)), (["skip"], None), (["skip", -1], None), (["skip", 7, 3, 1], None),
        (["skip", 2**60], None),
    ],
)  # fmt: skip
def test_where_a_seek_may_go(to: object, target: object):
    assert seek_target(to) == target


@pytest.mark.parametrize(
    ("verb", "arguments", "why"),
    [
        ("drain", {}, ""),
        ("stop", {"worker": "p1", "for_good": True}, ""),
        ("move", {"task": "t", "to": "p1"}, ""),
        ("seek", {"stream": "s", "to": "oldest", "partition": 3}, ""),
        ("seek", {"stream": "s", "to": 4}, ""),
        ("release-parked", {"tasks": {"t": [[None, None]]}}, ""),
        ("skip-parked", {"tasks": {"t": [[4, 9], [5, None]]}}, ""),
        ("skip-parked", {"tasks": {}}, "'tasks' of skip-parked"),
        ("skip-parked", {"tasks": {"t": []}}, "'tasks' of skip-parked"),
        ("skip-parked", {"tasks": {"t": [[1]]}}, "'tasks' of skip-parked"),
        ("skip-parked", {"tasks": {"t": [4]}}, "'tasks' of skip-parked"),
        ("skip-parked", {"tasks": {"t": [[1, -1]]}}, "'tasks' of skip-parked"),
        ("release-parked", {"tasks": {"t": [[n, None] for n in range(101)]}}, "1 to 100 pairs"),
        ("release-parked", {"tasks": ["t"]}, "'tasks' of release-parked"),
        ("seek", {"stream": "s", "to": ["skip", 4], "partition": 3}, ""),
        ("seek", {"stream": "s", "to": ["skip", 4]}, "seek needs a 'partition'"),
        ("dance", {}, "unknown request 'dance'"),
        ("move", {"task": "t"}, "needs 'to'"),
        ("move", {"task": "t", "to": 3}, "name of a processor"),
        ("move", {"task": 1, "to": "p"}, "'task' of move must be a name"),
        ("drain", {"hard": True}, "has no argument 'hard'"),
        ("drain", {"mode": "default"}, ""),
        ("drain", {"mode": "fast"}, "unknown drain mode 'fast'; one of default"),
        ("drain", {"mode": ["default"]}, "unknown drain mode"),
        ("drain", {"upto": {"clean": [3, 0]}}, ""),
        ("drain", {"upto": [3]}, "'upto' of drain"),
        ("drain", {"upto": {"clean": 3}}, "'upto' of drain"),
        ("drain", {"upto": {"clean": [-1]}}, "'upto' of drain"),
        ("drain", {"upto": {1: [2]}}, "'upto' of drain"),
        ("seek", {"stream": "s", "to": "middle"}, "'to' of seek"),
        ("seek", {"stream": "s", "to": 1, "partition": -1}, "'partition' of seek"),
        ("seek", {"stream": "s", "to": 1, "partition": True}, "'partition' of seek"),
        ("seek", {"stream": "s", "to": 1, "partition": "x"}, "'partition' of seek"),
    ],
)
def test_the_words_of_a_request(verb: str, arguments: dict, why: str):
    found = problem(SetRequest("u", verb, arguments=arguments))
    assert (why in found) if why else found == ""


def test_what_a_request_brings_about_fits_into_the_messages_that_say_so() -> None:
    """A setting of a megabyte, ten of which stand in one message, would have stopped every leader at its first message."""
    for request, why in [
        (SetRequest("u", "start", "r" * 201), "at most 200 characters"),
        (
            SetRequest("u", "set-config", arguments={"setting": "chooser", "value": "x" * 1001}),
            "at most 1000 characters",
        ),
        (SetRequest("u", "set-config", arguments={"setting": "chooser", "value": None}), "'value' of set-config"),
        (SetRequest("u", "drain", arguments={"upto": {"s": [1] * 70_000}}), "at most 65536 bytes"),
        (SetRequest("u", "pause", arguments={"stream": {"s"}}), "cannot be written"),
        (SetRequest("u", "seek", arguments={"stream": "s", "to": 2**53}), "oldest, newest"),
        (SetRequest("u", "seek", arguments={"stream": "s", "to": ["time", 2**60]}), "oldest, newest"),
    ]:
        assert why in problem(request)


def test_a_seek_opens_windows_again_or_not() -> None:
    arguments = {"stream": "orders", "to": 5}
    assert problem(SetRequest("u", "seek", arguments=arguments | {"reopens": True})) == ""
    assert "'reopens' of seek" in problem(SetRequest("u", "seek", arguments=arguments | {"reopens": "yes"}))


def test_the_positions_of_a_seek_are_offsets() -> None:
    """They are compared with where tasks stand."""
    arguments = {"stream": "s", "to": 5}
    assert problem(SetRequest("u", "seek", arguments=arguments | {"positions": {"0": 7, "1": None}})) == ""
    for wrong in (5, [None], {"0": "7"}, {"0": -1}):
        assert "'positions' of seek" in problem(SetRequest("u", "seek", arguments=arguments | {"positions": wrong}))
    assert "'upto' of drain" in problem(SetRequest("u", "drain", arguments={"upto": {"s": [2**53]}}))
    assert problem(SetRequest("u", "set-config", arguments={"setting": "chooser", "value": "x"})) == ""
