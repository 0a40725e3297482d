"""What a task is told and asks for are plain values: frozen, slotted, explained, and their empty defaults cannot be changed."""

from __future__ import annotations

import dataclasses
from typing import get_args

import pytest

from headgate.core.task.protocol import (
    Contribute,
    OffsetsResolved,
    ResolveOffsets,
    Restored,
    TaskEvent,
    TaskInstruction,
)


@pytest.mark.parametrize("one", [*get_args(TaskEvent), *get_args(TaskInstruction)])
def test_every_event_and_instruction_is_a_frozen_slotted_dataclass_with_a_docstring(one):
    assert dataclasses.is_dataclass(one)
    assert one.__dataclass_params__.frozen
    assert "__slots__" in vars(one)
    assert one.__doc__
    assert not one.__doc__.startswith(f"{one.__name__}(")


def test_no_word_is_both_a_fact_and_an_instruction():
    assert not {*get_args(TaskEvent)} & {*get_args(TaskInstruction)}


def test_empty_defaults_are_read_only():
    empty = (OffsetsResolved(1).positions, Restored(0).rows, ResolveOffsets(1).until, ResolveOffsets(1).positions)
    for mapping in (*empty, Contribute(None).rows):  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            mapping["a"] = 1  # type: ignore[index]


def test_every_fact_that_is_promised_as_an_answer_is_there():
    """`answer `X`` in a docstring names a fact."""
    promised = {
        name.strip("`,.;:")
        for one in get_args(TaskInstruction)
        for sentence in one.__doc__.split("answer")[1:]
        for name in sentence.split()
        if name.startswith("`") and name.strip("`,.;:")[:1].isupper()
    }
    facts = {fact.__name__ for fact in get_args(TaskEvent)}
    assert {"StoreOpened", "Restored", "ChunkDropped", "StepDone"} <= promised
    assert promised - {one.__name__ for one in get_args(TaskInstruction)} <= facts
