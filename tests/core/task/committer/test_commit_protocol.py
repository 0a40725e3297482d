"""The committer's events and instructions are plain values: frozen, comparable, and never shared by accident."""

from __future__ import annotations

import dataclasses
from typing import get_args

import pytest

from headgate.core.task.committer.commit_protocol import CommitEvent, CommitInstruction, Wanted


def test_every_word_is_a_frozen_slotted_dataclass_with_a_docstring():
    for one in (*get_args(CommitEvent), *get_args(CommitInstruction)):
        assert dataclasses.is_dataclass(one), one
        assert one.__dataclass_params__.frozen, one
        assert "__slots__" in vars(one), one
        assert one.__doc__, one
        assert not one.__doc__.startswith(f"{one.__name__}("), one


def test_words_are_equal_by_value_and_cannot_be_changed():
    assert Wanted("a", True) == Wanted("a", True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Wanted("a").task = "b"  # type: ignore[misc]
