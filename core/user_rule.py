"""Calls a user's own rule (a grouper, a placement, a chooser): whatever it raises becomes an error with the rule's name.

Promises: no exception of the function passes through unchanged, not even one that would end the process (`SystemExit`) or look like a
cancellation: a rule is called in the middle of a decision, which must go on. The caller checks what the rule *returns*.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

from .errors import DeclarationError, HeadgateError


def called(
    what: str,
    name: str,
    function: Callable[..., Any],
    *arguments: object,
    remedy: str = "fix it, or use the built-in one",
    error: type[HeadgateError] = DeclarationError,
) -> Any:
    """Call the function and return its answer. `what` and `name` identify the rule in errors.

    >>> called("grouper", "shop.group", lambda partitions: len(partitions), {"orders": 2})
    1
    """
    try:
        return function(*arguments)
    except BaseException as raised:  # also SystemExit, and cancellations that were not requested
        raise error(f"the {what} '{name}' raised {type(raised).__name__}: {_text(raised)}", remedy=remedy) from raised


def _text(raised: BaseException) -> str:
    try:
        return str(raised)
    except BaseException as again:  # noqa: BLE001 - the exception may be the user's own class
        return f"({type(again).__name__} in its repr)"


def whole(value: object) -> TypeGuard[int]:
    """Whether the value is an integer; True and 1.0 do not count.

    >>> whole(3), whole(True), whole(3.0)
    (True, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool)
