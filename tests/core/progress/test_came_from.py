"""A row of a frame names the record that it was made of; what the headers cannot mean is not believed."""

from __future__ import annotations

import pytest

from headgate.core.progress.came_from import came_from, listed, ranges_of

RANGE = "orders[3] offsets 1200 to 1711"


def test_each_row_has_its_own_record() -> None:
    """Two rows of one record, one row of the next, one that a sort has moved before them, and one far behind."""
    distances = bytes([0, 0, 2, 1, 0x80 | (1022 & 0x7F), 1022 >> 7])
    found = [came_from(RANGE, distances, row) for row in range(5)]
    assert found == [f"orders[3] offset {offset}" for offset in (1200, 1200, 1201, 1200, 1711)]


def test_a_row_may_be_of_any_of_several_ranges() -> None:
    """The frame was made of rows of several frames: the records of all of them are numbered, one range behind the other."""
    said = "orders[3] offsets 1200 to 1201, orders[1] offset 7, other[0] offsets 5 to 6"
    assert listed(ranges_of(said)) == said
    distances = bytes([8, 5, 1, 3, 4])
    wanted = ["other[0] offset 6", "orders[3] offset 1201", "orders[3] offset 1200", said, "orders[3] offset 1200"]
    assert [came_from(said, distances, row) for row in range(5)] == wanted
    assert came_from(said, bytes([10]), 0) == said, "behind the last"


def test_the_only_record_of_a_frame() -> None:
    assert came_from("orders[3] offset 7", bytes([0, 0]), 1) == "orders[3] offset 7"


@pytest.mark.parametrize(
    ("said", "distances", "row"),
    [
        (RANGE, None, 0),
        (RANGE, b"", 0),
        (RANGE, bytes([0]), 1),
        (RANGE, bytes([1]), 0),
        (RANGE, bytes([0x80, 8]), 0),
        (RANGE, bytes([0x80]), 0),
        (RANGE, b"\xff" * 12, 0),
        (RANGE, b"\xff" * 9 + b"\x7f", 0),
        ("", bytes([0]), 0),
        ("whatever", bytes([0]), 0),
        ("orders[3] offsets 5 to 2", bytes([0]), 0),
    ],
)
def test_what_cannot_be_is_not_believed(said: str, distances: bytes | None, row: int) -> None:
    """Too few, before the first, behind the last, cut off, too long, no range: the frame's records are named."""
    assert came_from(said, distances, row) == said
