"""Calling a rule of the user's own (a grouper, a placement, a chooser): whatever it raises becomes an error with its name.

Promises: nothing that the function raises leaves here as it is, not even what would end a process (`SystemExit`) or look like a
cancellation: a rule is asked in the middle of somebody else's decision, which must go on. What it *answers* is judged by whoever asks.
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
    """The function's answer. `what` and `name` say whose it is.

    >>> called("grouper", "shop.group", lambda partitions: len(partitions), {"orders": 2})
    1
    """
    try:
        return function(*arguments)
    except BaseException as raised:  # also SystemExit, and cancellations that nobody asked for
        raise error(f"the {what} '{name}' raised {type(raised).__name__}: {_text(raised)}", remedy=remedy) from raised


def _text(raised: BaseException) -> str:
    try:
        return str(raised)
    except BaseException as again:  # noqa: BLE001 - the user's own class, too
        return f"({type(again).__name__} in its repr)"


def whole(value: object) -> TypeGuard[int]:
    """Whether it is a whole number: True and 1.0 are none here, whatever Python thinks of them.

    >>> whole(3), whole(True), whole(3.0)
    (True, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool)
