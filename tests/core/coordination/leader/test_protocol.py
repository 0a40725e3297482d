"""The leader's events and instructions: values that can be compared, recorded and replayed."""

from __future__ import annotations

import pytest

from headgate.core.coordination.leader import protocol as w


@pytest.mark.parametrize("kind", [*w.LeaderEvent.__args__, *w.LeaderInstruction.__args__], ids=lambda k: k.__name__)
def test_every_word_is_frozen_and_documented(kind: type):
    assert kind.__doc__
    assert kind.__dataclass_params__.frozen
    assert not hasattr(kind, "__dict__") or "__slots__" in vars(kind)


def test_defaults_are_empty():
    assert w.BoundsResolved("r") == w.BoundsResolved("r", {}, {})
