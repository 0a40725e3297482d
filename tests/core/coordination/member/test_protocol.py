"""The member's events and instructions: values that can be compared, recorded and replayed."""

from __future__ import annotations

import pytest

from headgate.core.coordination.member import protocol as w


@pytest.mark.parametrize("kind", [*w.MemberEvent.__args__, *w.MemberInstruction.__args__], ids=lambda k: k.__name__)
def test_every_word_is_frozen_and_documented(kind: type):
    assert kind.__doc__
    assert kind.__dataclass_params__.frozen
