"""What a frame says of the records that its rows were made of: it is shown to people, so only text is believed."""

from __future__ import annotations

import pytest

from headgate.core.progress.came_from import OffsetRange
from headgate.core.progress.frames import MOST_FROM, said_of


def test_the_longest_topic_fits() -> None:
    said = str(OffsetRange(f"{'t' * 249}[{2**31 - 1}]", 2**63 - 2, 2**63 - 1))
    assert said_of(said.encode()) == said


@pytest.mark.parametrize("value", [None, b"\xff", b"a\x1b[31m", b"a\nb", b"x" * (MOST_FROM + 1)])
def test_what_is_no_text_is_not_shown(value: bytes | None) -> None:
    assert said_of(value) == ""
