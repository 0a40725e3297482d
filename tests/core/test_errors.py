"""Errors say what is wrong and what to do."""

from __future__ import annotations

import ast
import doctest
from itertools import islice

import pytest

from headgate.core import errors
from headgate.core.errors import (
    DataError,
    DeclarationError,
    EnvironmentFault,
    HeadgateError,
    SettingError,
    cause_for,
    causes,
)
from headgate.core.progress.frames import FrameError

from .reading import ROOT, trees


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


def test_a_ring_of_causes_is_walked_once():
    """A worker that walked it for ever answered nobody, not even SIGTERM."""
    one, two, three = ValueError("1"), KeyError("2"), OSError("3")
    one.__cause__, two.__context__, three.__cause__ = two, three, one
    assert list(islice(causes(one), 9)) == [one, two, three]
    one.__cause__ = one
    assert list(islice(causes(one), 9)) == [one]
    assert list(causes(None)) == []
    two.__suppress_context__ = True
    assert list(causes(two)) == [two]


def test_nothing_becomes_its_own_cause():
    one, two = ValueError("1"), KeyError("2")
    assert cause_for(one, one) is None
    assert cause_for(one, two) is two
    one.__cause__ = two
    assert cause_for(two, one) is None
    assert cause_for(one, one) is two
    assert cause_for(two, None) is None


NEW = {
    *("_blamed", "_damaged", "_down", "_given_up", "_of_key", "_of_user_code"),
    *("_away", "_refused", "_unknown_key", "refused", "_unreadable", "_unwritable", "disk_fault", "failing", "meant"),
}
"""Functions that make an error each time that they are asked for one."""


@pytest.mark.source
def test_whatever_is_raised_from_something_is_made_there():
    """`raise f(error) from error` makes a ring where `f` gives the error itself: who may do that asks `cause_for`."""
    wrong = []
    for path, tree in trees("core", "agents", "spark_bridge"):
        for node in ast.walk(tree):
            if not isinstance(node, ast.Raise) or node.cause is None or isinstance(node.cause, ast.Constant):
                continue
            made = node.exc.func if isinstance(node.exc, ast.Call) else None
            name = made.attr if isinstance(made, ast.Attribute) else getattr(made, "id", "")
            careful = isinstance(node.cause, ast.Call) and getattr(node.cause.func, "id", "") in (
                "cause_for",
                "cause_of",
            )
            if (
                not careful and not name[:1].isupper() and name not in {"kind", "error", *NEW}
            ):  # a class, or a parameter that is one
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")
    assert wrong == []
