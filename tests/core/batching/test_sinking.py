"""Who may write a batch to a target, and which batches the target has already."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.batching.sinking import (
    FencedSink,
    Remembered,
    SinkOwner,
    left_out_of,
    note_of,
    note_of_done,
)

OWNER = SinkOwner("sales/1", "5f", "Partition 3", "orders", 2, 0x18C2F)


def test_a_series_has_the_names_of_all_that_its_numbers_belong_to() -> None:
    """Another job, task, stage or book begins with other names."""
    others = [
        replace(OWNER, uuid="60"),
        replace(OWNER, task="Partition 4"),
        replace(OWNER, stage="more"),
        replace(OWNER, begun_ms=1),
    ]
    assert len({one.series for one in [OWNER, *others]}) == 5
    assert replace(OWNER, grant=9).series == OWNER.series == "5f/Partition 3/orders/18c2f"


def test_a_batch_that_the_target_has_is_not_written_again() -> None:
    """The last one with its note; of earlier ones nothing is known but that they are there."""
    remembered = Remembered(2, OWNER.begun_ms, 7, "a note")
    assert [note_of_done(remembered, OWNER, number) for number in (6, 7, 8)] == ["", "a note", None]


def test_numbers_that_begin_again_are_not_taken_for_old_ones() -> None:
    assert note_of_done(Remembered(2, OWNER.begun_ms - 1, 7, "a note"), OWNER, 0) is None


def test_a_lesser_grant_is_refused() -> None:
    """Whatever it would write, and though the target has it."""
    for begun_ms in (OWNER.begun_ms, 0):
        with pytest.raises(FencedSink, match="under grant 2, and the target has seen grant 3"):
            note_of_done(Remembered(3, begun_ms, 7, ""), OWNER, 7)


@given(st.lists(st.tuples(st.integers(0, 1 << 40), st.text())))
def test_what_was_left_out_is_read_from_the_note(left_out: list[tuple[int, str]]) -> None:
    assert left_out_of(note_of(left_out)) == left_out


@given(st.lists(st.sampled_from(["begin", "writes", "dies", "zombie"]), max_size=30))
def test_owners_that_follow_each_other_write_each_batch_once(steps: list[str]) -> None:
    """A target whose row changes with its rows, as a transaction does it: a batch has an effect once, and a former owner has none."""
    target, written, owners, number = Remembered(0, 0, -1, ""), list[int](), [OWNER], 0
    for step in steps:
        owner = owners[-1]
        if step == "dies":  # the next owner writes its grant before its first batch
            owners.append(replace(owner, grant=owner.grant + 1))
            target = target._replace(grant=owners[-1].grant)
        elif step == "zombie" and len(owners) > 1:
            with pytest.raises(FencedSink):
                note_of_done(target, owners[-2], number)
        elif note_of_done(target, owner, number) is None:
            written.append(number)
            target = Remembered(owner.grant, owner.begun_ms, number, "")
            if step == "writes":  # the owner has heard of the commit; else it comes again with the same batch
                number += 1
        elif step == "writes":
            number += 1
    assert written == list(range(len(written)))
