"""A chooser of the user's own is held to the contract, and a breach is said clearly."""

from __future__ import annotations

import pytest

from headgate.core.choosing.checked import CheckedChooser, ChooserError
from headgate.core.choosing.chooser import Choice, Head, Wait
from headgate.core.names import StreamPartition

A, B = StreamPartition("a", 0), StreamPartition("b", 0)


def heads():
    return [
        Head(A, ready=5, offset=10, timestamp=100),
        Head(B, ready=0),
        Head(StreamPartition("paused", 0), ready=5, paused=True),
        Head(StreamPartition("ended", 0), ready=5, ended=True),
    ]


def checked(answer):
    return CheckedChooser(lambda heads, now: answer, "shop.choose")


class Loudest:
    needs = {"value"}  # noqa: RUF012 - as a user writes it

    def __init__(self):
        self.saw = []

    def choose(self, heads, now):
        return Choice(max((head for head in heads if head.takeable), key=lambda head: head.ready).at, 2)

    def taken(self, choice, records):
        self.saw.append((str(choice.at), records))

    def describe(self):
        return {"saw": len(self.saw)}


def test_a_class_an_object_and_a_function_will_do():
    own = Loudest()
    assert CheckedChooser(Loudest, "shop.Loudest").choose(heads(), 0.0) == Choice(A, 2)
    assert CheckedChooser(own, "shop.loudest").choose(heads(), 0.0) == Choice(A, 2)
    assert CheckedChooser(own.choose, "shop.choose").choose(heads(), 0.0) == Choice(A, 2)


def test_it_is_told_what_was_taken_and_may_describe_itself_and_need_not():
    own = Loudest()
    chooser = CheckedChooser(own, "shop.loudest")
    chooser.taken(Choice(A, 2), 1)
    assert own.saw == [("a:0", 1)]
    assert chooser.describe() == {"chooser": "shop.loudest", "saw": 1}
    plain = checked(None)
    plain.taken(Choice(A, 2), 1)
    assert plain.describe() == {"chooser": "shop.choose"}


def test_it_sees_values_only_if_it_says_so():
    class Text(Loudest):
        needs = "value"

    assert CheckedChooser(Loudest, "x").needs == CheckedChooser(Text, "x").needs == {"value"}
    assert checked(None).needs == frozenset()


def test_bounds_that_let_the_head_through_are_good():
    assert checked(Choice(A, 5, 100, 11)).choose(heads(), 0.0) == Choice(A, 5, 100, 11)
    assert checked(Choice(("a", 0), 1)).choose(heads(), 0.0).at == A


def test_a_wait_is_passed_on_and_none_does_not_stall():
    assert checked(Wait(3.0, "because")).choose(heads(), 0.0) == Wait(3.0, "because")
    assert checked(None).choose(heads(), 5.0) == Wait(5.1)
    assert checked(None).choose(heads()[1:], 5.0) == Wait()


def test_a_wait_over_what_could_be_taken_is_asked_again_and_none_turns_on_the_spot():
    """`Wait()` stalled the task until something new came, which for a finished input is never; one in the past used up a core."""
    assert checked(Wait(why="not yet")).choose(heads(), 5.0) == Wait(5.1, "not yet")
    assert checked(Wait()).choose(heads()[1:], 5.0) == Wait()
    assert checked(Wait(3)).choose(heads(), 5.0) == Wait(5.001)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Choice(StreamPartition("paused", 0), 1), "chose paused:0, which is paused"),
        (Choice(StreamPartition("ended", 0), 1), "chose ended:0, which has ended"),
        (Choice(B, 1), "chose b:0, which is empty"),
        (Choice(StreamPartition("c", 7), 1), "chose c:7, which is not among the heads"),
        (Choice(A, 0), "wants 0 records of a:0, of which 5 are ready"),
        (Choice(A, -1), "wants -1 records of a:0"),
        (Choice(A, 6), "wants 6 records of a:0, of which 5 are ready"),
        (Choice(A, 1.5), "returned max_records=1.5"),
        (Choice(A, True), "returned max_records=True"),
        (Choice(A, None), "returned max_records=None"),
        (Choice(A, float("nan")), "returned max_records=nan"),
        (Choice(A, 1, float("nan")), "returned up_to_timestamp=nan"),
        (Choice(A, 1, "100"), "returned up_to_timestamp='100'"),
        (Choice(A, 1, None, True), "returned up_to_offset=True"),
        (Choice("a:0", 1), "chose 'a:0', which is not a (stream, partition)"),
        (Choice(("a", True), 1), "chose ('a', True), which is no"),
        (Choice(None, 1), "chose None, which is no"),
        (Wait(float("nan")), "returned a wait until nan"),
        (Wait(float("inf")), "returned a wait until inf"),
        (Wait("soon"), "returned a wait until 'soon'"),
        (Wait(True), "returned a wait until True"),
        (Choice(A, 1, None, 10), "limits a:0 to offsets below 10, but its head is at 10"),
        (Choice(A, 1, 99), "limits a:0 to times up to 99, but its head is at 100"),
        ("a", "returned 'a'"),
        ((A, 1), "returned"),
    ],
)
def test_a_breach_is_said_with_the_name_of_the_chooser(answer, why):
    with pytest.raises(ChooserError) as caught:
        checked(answer).choose(heads(), 0.0)
    assert caught.value.what.startswith(f"the chooser 'shop.choose' {why}")
    assert caught.value.remedy


def test_what_it_raises_is_said_to_be_its_own():
    class Broken:
        def choose(self, heads, now):
            raise KeyError("oops")

        def taken(self, choice, records):
            return 1 // 0

        def describe(self):
            raise ValueError("no")

    chooser = CheckedChooser(Broken, "shop.Broken")
    for call, kind in (
        (lambda: chooser.choose(heads(), 0.0), KeyError),
        (lambda: chooser.taken(Choice(A, 1), 1), ZeroDivisionError),
        (chooser.describe, ValueError),
    ):
        with pytest.raises(ChooserError, match=f"the chooser 'shop.Broken' raised {kind.__name__}") as caught:
            call()
        assert isinstance(caught.value.__cause__, kind)


def test_what_would_end_a_process_is_an_error_of_the_chooser_too():
    def leaves(heads, now):
        raise SystemExit(1)

    with pytest.raises(ChooserError, match="the chooser 'x' raised SystemExit: 1"):
        CheckedChooser(leaves, "x").choose(heads(), 0.0)
    chatty = Loudest()
    chatty.describe = lambda: 3
    with pytest.raises(ChooserError, match="described itself as 3"):
        CheckedChooser(chatty, "x").describe()


def test_what_cannot_choose_is_refused_when_it_is_named():
    class NeedsMore(Loudest):
        needs = {"value", "weather"}  # noqa: RUF012

    class CannotBeMade:
        def __init__(self):
            raise RuntimeError("no")

    for own, why in (
        (42, "the chooser 'x' cannot choose"),
        (NeedsMore, "the chooser 'x' needs 'weather', which does not exist"),
        (CannotBeMade, "the chooser 'x' raised RuntimeError: no"),
    ):
        with pytest.raises(ChooserError, match=why):
            CheckedChooser(own, "x")
