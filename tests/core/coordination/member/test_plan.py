"""What a member is told once."""

from __future__ import annotations

import pytest

from headgate.core.coordination.member.plan import MemberConfig


def test_nothing_is_assumed_about_a_predecessor():
    """Without proof that the one before is dead, the newcomer must wait."""
    config = MemberConfig("p1", "x", "x")
    assert not config.lock_free
    assert not config.supervised
    with pytest.raises(TypeError):
        config.fingerprint["x"] = "y"
