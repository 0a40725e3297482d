"""Whatever a user's own rule raises is an error with its name."""

from __future__ import annotations

import pytest

from headgate.core.errors import DeclarationError, SettingError
from headgate.core.user_rule import called, whole


class Sulks(Exception):
    def __str__(self):
        raise RuntimeError("no")


@pytest.mark.parametrize("raised", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), Sulks()])
def test_nothing_that_it_raises_leaves_as_it_is(raised):
    """A grouper that calls sys.exit() ended the leader's round, and with it the worker."""

    def rule(*_):
        raise raised

    with pytest.raises(DeclarationError, match=f"the grouper 'shop.group' raised {type(raised).__name__}") as caught:
        called("grouper", "shop.group", rule, 1, 2)
    assert caught.value.__cause__ is raised
    assert caught.value.remedy == "fix it, or use the built-in one"


def test_its_answer_is_passed_on_and_the_kind_of_error_is_the_askers():
    assert called("chooser", "x", divmod, 7, 2) == (3, 1)
    with pytest.raises(SettingError, match="Remedy: try again"):
        called("chooser", "x", divmod, 7, 0, remedy="try again", error=SettingError)


def test_whole_numbers_are_neither_truths_nor_fractions():
    assert [whole(value) for value in (0, -3, 2**70, True, 1.0, float("nan"), "1", None)] == [True] * 3 + [False] * 5
