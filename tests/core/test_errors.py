"""Errors say what is wrong and what to do."""

from __future__ import annotations

import doctest

import pytest

from headgate.core import errors
from headgate.core.errors import DataError, DeclarationError, EnvironmentFault, HeadgateError, SettingError
from headgate.core.frames import FrameError


@pytest.mark.parametrize("kind", [DeclarationError, SettingError, DataError, EnvironmentFault])
def test_every_kind_carries_what_and_remedy(kind):
    error = kind("no job 'sales'.", remedy="start it")
    assert (error.what, error.remedy) == ("no job 'sales'.", "start it")
    assert str(error) == "no job 'sales'. Remedy: start it"
    assert isinstance(error, HeadgateError)


def test_without_a_remedy_it_says_only_what():
    assert str(HeadgateError("gone.")) == "gone."


def test_it_survives_the_way_to_another_process():
    """Executors and worker processes send their errors home; a subclass with another constructor must arrive, too."""
    for error in (SettingError("bad", remedy="fix"), FrameError("empty", remedy="look")):
        rebuild, arguments = error.__reduce__()
        again = rebuild(*arguments)
        assert (type(again), str(again), again.what, again.remedy) == (
            type(error),
            str(error),
            error.what,
            error.remedy,
        )


def test_its_examples_are_true():
    assert doctest.testmod(errors).failed == 0
