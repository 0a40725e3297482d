"""The committer's words are plain values: frozen, comparable, and never shared by accident."""

from __future__ import annotations

import dataclasses
from typing import get_args

import pytest

from headgate.core.task.commit_protocol import CommitEvent, CommitInstruction, Wanted


def test_every_word_is_a_frozen_slotted_dataclass_with_a_docstring():
    for word in (*get_args(CommitEvent), *get_args(CommitInstruction)):
        assert dataclasses.is_dataclass(word), word
        assert word.__dataclass_params__.frozen, word
        assert "__slots__" in vars(word), word
        assert word.__doc__, word
        assert not word.__doc__.startswith(f"{word.__name__}("), word


def test_words_are_equal_by_value_and_cannot_be_changed():
    assert Wanted("a", True) == Wanted("a", True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Wanted("a").task = "b"  # type: ignore[misc]
