"""What every result of a window says."""

from __future__ import annotations

from headgate.core.windows.results import RESERVED, result_time


def test_a_result_is_as_old_as_the_last_row_its_window_could_have() -> None:
    """So a step behind, whose time has not passed the window's end, does not find it late."""
    assert result_time(10_000) == 9_999


def test_the_fields_of_every_result() -> None:
    assert sorted(RESERVED) == ["closed_by", "window_end", "window_start"]
