"""What a task is told are plain values: frozen, slotted, explained, and their empty defaults cannot be changed."""

from __future__ import annotations

import dataclasses
from typing import get_args

import pytest

from headgate.core.task_events import Resolved, Restored, TaskEvent
from headgate.core.task_instructions import TaskInstruction


@pytest.mark.parametrize("word", get_args(TaskEvent))
def test_every_word_is_a_frozen_slotted_dataclass_with_a_docstring(word):
    assert dataclasses.is_dataclass(word)
    assert word.__dataclass_params__.frozen
    assert "__slots__" in vars(word)
    assert word.__doc__
    assert not word.__doc__.startswith(f"{word.__name__}(")


def test_no_word_is_both_a_fact_and_an_instruction():
    assert not {*get_args(TaskEvent)} & {*get_args(TaskInstruction)}


def test_empty_defaults_are_read_only():
    for mapping in (Resolved(1).positions, Restored(0).rows):
        with pytest.raises(TypeError):
            mapping["a"] = 1  # type: ignore[index]
