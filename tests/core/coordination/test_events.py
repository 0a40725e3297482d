"""What leader and member share: values that can be compared, recorded and replayed."""

from __future__ import annotations

import pytest

from headgate.core.coordination import events as e


@pytest.mark.parametrize("kind", [e.Heartbeat, e.Beat, e.Fence, e.FenceFailed, e.FenceReturned, e.JobNote])
def test_every_word_is_frozen_and_documented(kind: type):
    assert kind.__doc__
    assert kind.__dataclass_params__.frozen
    assert not hasattr(kind, "__dict__") or "__slots__" in vars(kind)


def test_defaults_are_empty_and_cannot_be_filled():
    beat = e.Heartbeat("p1", "x", "", 1.0)
    assert dict(beat.load) == {}
    with pytest.raises(TypeError):
        beat.load["x"] = 1
    assert e.JobNote("x") == e.JobNote("x", {})
