"""Targets that cannot be written: who waits, when the target is asked, and when a task is tried, or given up."""

from __future__ import annotations

from headgate.core.coordination.member.protocol import Probe, Probed
from headgate.core.coordination.member.targets import TRIES, Targets
from headgate.core.names import StreamPartition

OUT, LOG = StreamPartition("out", 0), StreamPartition("log", 3)
BOTH = {"a", "b"}


def test_only_those_who_wrote_to_it_wait():
    targets = Targets(1.0)
    targets.broke(["a"], "gone", OUT, 0.0)
    assert targets.holds("a", 100.0) == "gone"
    assert targets.holds("b", 0.0) == ""


def test_the_pauses_between_the_questions_grow_to_a_bound():
    """And one question at a time: a silent broker is not asked again."""
    targets, now = Targets(1.0), 0.0
    targets.broke(["a"], "gone", OUT, now)
    for pause in (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0):
        assert targets.wake(BOTH) == now + pause
        assert targets.due(BOTH, now + pause - 0.01) == []
        now += pause
        assert targets.due(BOTH, now) == [Probe(OUT)]
        assert targets.due(BOTH, now + 1000) == []
        assert targets.wake(BOTH) is None
        targets.probed(Probed(OUT, "gone"), now)
        assert targets.holds("a", now) == "gone"


def test_nothing_is_asked_while_no_one_waits():
    """The task is somebody else's now, or not granted yet."""
    targets = Targets(1.0)
    targets.broke(["a"], "gone", OUT, 0.0)
    assert targets.due({"b"}, 10.0) == []
    assert targets.wake({"b"}) is None
    assert targets.due({"a"}, 10.0) == [Probe(OUT)]


def test_a_good_answer_lets_everyone_go_and_a_late_one_changes_nothing():
    targets = Targets(1.0)
    targets.broke(["a"], "gone", OUT, 0.0)
    targets.broke(["b"], "gone, too", OUT, 0.5)
    assert targets.holds("a", 0.5) == targets.holds("b", 0.5) == "gone, too"
    targets.probed(Probed(OUT), 0.6)  # nobody asked
    targets.probed(Probed(LOG), 0.6)
    assert targets.holds("a", 0.6)
    assert targets.due(BOTH, 2.5) == [Probe(OUT)]
    targets.probed(Probed(OUT), 2.6)
    assert targets.holds("a", 2.6) == targets.holds("b", 2.6) == ""
    assert targets.wake(BOTH) is None


def test_a_task_waits_for_all_of_its_targets():
    targets = Targets(1.0)
    targets.broke(["a"], "gone", OUT, 0.0)
    targets.broke(["a"], "no leader", LOG, 0.0)
    assert targets.due(BOTH, 1.0) == [Probe(OUT), Probe(LOG)]
    targets.probed(Probed(OUT), 1.0)
    assert targets.holds("a", 1.0) == "no leader"
    targets.probed(Probed(LOG), 1.0)
    assert targets.holds("a", 1.0) == ""


def test_what_fails_again_soon_goes_on_with_its_pause_and_what_was_well_for_long_begins_anew():
    targets = Targets(1.0)
    targets.broke(["a", "b"], "too large", OUT, 0.0)
    assert targets.due(BOTH, 1.0)
    targets.probed(Probed(OUT), 1.0)
    targets.broke(["a"], "too large", OUT, 2.0)
    assert targets.wake({"a"}) == 4.0
    assert targets.holds("b", 2.0) == ""
    assert targets.due(BOTH, 4.0)
    targets.probed(Probed(OUT), 4.0)
    targets.broke(["a"], "too large", OUT, 34.1)
    assert targets.wake({"a"}) == 35.1


def test_a_task_without_a_target_is_tried_again_and_given_up():
    """User code that fails at every commit would end a producer at every try."""
    targets, now = Targets(1.0), 0.0
    for _ in range(TRIES):
        targets.broke(["a"], "user code", None, now)
        assert targets.holds("a", now) == "user code"
        assert targets.due(BOTH, now + 100.0) == []
        now = targets.wake(BOTH)
        assert targets.holds("a", now) == ""
        assert targets.wake(BOTH) is None
    targets.broke(["a"], "user code", None, now)
    assert targets.wake(BOTH) is None
    assert targets.holds("a", now + 1e9).startswith("user code; given up after 6 attempts: seek")
    assert targets.holds("b", now) == ""


def test_who_wrote_what_was_refused_waits_alone_and_is_given_up_in_the_end():
    """The target is well whenever it is asked; each try of a poison record would end the producer of everybody."""
    targets, now = Targets(1.0), 0.0
    for tried in range(TRIES):
        targets.broke(["a"], "no key", OUT, now, refused=True)
        assert targets.holds("b", now) == ""
        assert targets.holds("a", now + 1e9) == "no key"
        now = targets.wake(BOTH)
        assert targets.due(BOTH, now) == [Probe(OUT)], tried
        targets.probed(Probed(OUT), now)
        assert targets.holds("a", now) == ""
    targets.broke(["a"], "no key", OUT, now, refused=True)
    assert targets.wake(BOTH) is None
    assert targets.due(BOTH, now + 1e9) == []
    assert targets.holds("a", now + 1e9).startswith("no key; given up")


def test_a_target_that_refused_two_is_asked_once_for_both():
    targets = Targets(1.0)
    targets.broke(["a", "b"], "no key", OUT, 0.0, refused=True)
    assert targets.due(BOTH, 1.0) == [Probe(OUT)]
    targets.probed(Probed(OUT, "away"), 1.0)
    assert targets.wake(BOTH) == 3.0
    assert targets.due(BOTH, 3.0) == [Probe(OUT)]
    targets.probed(Probed(OUT), 3.0)
    assert targets.holds("a", 3.0) == targets.holds("b", 3.0) == ""


def test_a_seek_gives_one_that_was_given_up_another_try():
    """Whoever seeks behind the record must not have to restart the worker, too. The same request counts once."""
    targets = Targets(1.0)
    targets.sought("a", frozenset({"w1"}))
    for n in range(TRIES + 1):
        targets.broke(["a"], "no key", OUT, float(n), refused=True)
    targets.sought("a", frozenset({"w1"}))
    assert targets.holds("a", 1e9)
    targets.sought("a", frozenset({"w1", "w2"}))
    assert targets.holds("a", 10.0) == ""
    targets.broke(["a"], "no key", OUT, 11.0, refused=True)
    targets.sought("a", frozenset({"w1", "w2"}))
    assert targets.holds("a", 11.0)
    targets.sought("a", frozenset())
    assert targets.holds("a", 11.0)


def test_what_was_well_for_long_is_forgotten():
    """Each target that was ever broken would have been remembered as long as the worker lives."""
    targets = Targets(1.0)
    targets.broke(["a"], "gone", OUT, 0.0)
    targets.due(BOTH, 1.0)
    targets.probed(Probed(OUT), 1.0)
    targets.forget(set(), 31.0)
    assert targets.tasks() == {"a"}
    targets.forget(set(), 31.1)
    assert targets.tasks() == set()


def test_what_was_given_up_here_may_have_been_mended_elsewhere():
    """The task was sought at another worker, came back, and would have stood still here: nobody would seek what works."""
    targets = Targets(1.0)
    targets.sought("a", frozenset({"s1"}))
    targets.broke(["a", "b"], "its schema differs", None, 0.0, most=0)
    targets.forget(set(), 1000.0)
    assert targets.given_up("a")
    targets.forget({"a"}, 1.0)
    assert targets.holds("a", 1.0) == ""
    assert targets.given_up("b")
    assert targets.tasks() == {"b"}


def test_a_broken_target_of_a_task_that_is_elsewhere_is_remembered_for_a_while():
    targets = Targets(1.0)
    targets.broke(["a"], "gone", OUT, 0.0)
    targets.forget({"a"}, 31.0)
    assert targets.holds("a", 31.0) == "gone"
    targets.broke(["b"], "gone", LOG, 0.0)
    targets.due({"b"}, 31.0)
    targets.forget(BOTH, 1000.0)
    assert targets.tasks() == {"b"}
