"""Checks of what users give, whatever the verb: functions, selectors, durations.

Promises: an error names the verb, the argument and what to write instead; what passes can be called. A coroutine function is refused where
it would never be awaited. A function that cannot take the arguments that it will get is refused, too.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any, get_type_hints

from ....core.columns.expressions import Expression
from ....core.errors import DeclarationError, SettingError
from ....core.settings import duration_ms


def called_from() -> str:
    """File and line of the first frame outside this package: where the user's declaration stands."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("headgate."):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def shown(fn: Any) -> str:
    """The name of a function in messages."""
    name = getattr(fn, "__qualname__", None) or repr(fn)
    return "a lambda" if name.endswith("<lambda>") else name


def returned(fn: Any) -> Any:
    """The type that a function is annotated to return; None if it is not, or is no function."""
    try:
        return get_type_hints(fn).get("return") if inspect.isroutine(fn) else None
    except (NameError, TypeError):  # of a type that only its own scope can read; an object that has no annotations
        return None


def is_async(fn: Any) -> bool:
    """Whether a call returns something that must be awaited or iterated over asynchronously."""
    called = getattr(fn, "__call__", None)  # noqa: B004 - an object whose __call__ is a coroutine function counts, too
    return any(inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one) for one in (fn, called))


def is_generator(fn: Any) -> bool:
    """Whether a call returns something to iterate over, and runs nothing of the function."""
    called = getattr(fn, "__call__", None)  # noqa: B004 - as in `is_async`
    return any(inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one) for one in (fn, called))


def check_arguments(fn: Callable[..., Any], number: int, what: str, signature: str) -> None:
    """Refuse a function that cannot be called with `number` arguments. A builtin without a known signature passes."""
    try:
        inspect.signature(fn).bind(*[None] * number)
    except TypeError as error:
        raise DeclarationError(f"{what} {shown(fn)} is called with {signature}: {error}") from None
    except ValueError:
        return


def called(verb: str) -> str:
    """A verb, or a verb with its argument, as a call.

    >>> called("map"), called("join(into=…)")
    ('map()', 'join(into=…)')
    """
    return verb if verb.endswith(")") else f"{verb}()"


def check_function(
    fn: Any,
    verb: str,
    *,
    number: int = 1,
    signature: str = "(value)",
    awaits: bool = False,
    yields: bool = False,
) -> None:
    """Refuse anything but a function that takes these arguments, a coroutine function where it would never be awaited, and a generator
    where nothing would iterate over it."""
    if isinstance(fn, Expression):
        raise DeclarationError(
            f"{called(verb)} of rows needs a function, not {fn!r}",
            remedy=f"put .columns() before it: .columns().{verb}(…)",
        )
    if not callable(fn):
        raise DeclarationError(f"{called(verb)} needs a function, not {fn!r}")
    if not awaits and is_async(fn):
        remedy = "use map_async(), sink(), @app.agent or @app.actor, which await it"
        raise DeclarationError(
            f"{called(verb)}: {shown(fn)} is an async function, which would never be awaited", remedy=remedy
        )
    if not yields and is_generator(fn):
        raise DeclarationError(
            f"{called(verb)}: {shown(fn)} yields, so nothing of it would run",
            remedy="return the result; flat_map() takes a function that yields values, @app.agent one that reads a stream",
        )
    check_arguments(fn, number, f"{called(verb)}:", signature)


def check_selector(by: Any, verb: str) -> None:
    """Refuse anything but a field's name or a plain function of the value."""
    if isinstance(by, str):
        if not by:
            raise DeclarationError(f"{verb}('') does not name a field")
        return
    if not callable(by):
        raise DeclarationError(f"{verb}({by!r})", remedy="a field's name, or a function of the value")
    check_function(by, verb)


def field_names(names: Sequence[Any], verb: str) -> tuple[str, ...]:
    """Several fields, each once; refuses anything else."""
    found = tuple(names)
    if not found or not all(isinstance(one, str) and one for one in found) or len(set(found)) < len(found):
        raise DeclarationError(f"{verb}({names!r:.60}) names no fields, or one twice", remedy='["item", "price"]')
    return found


def duration(value: str | float, what: str) -> int:
    """A duration in ms; raises a `DeclarationError` that names the argument.

    >>> duration("5s", "ttl"), duration(1.5, "ttl")
    (5000, 1500)
    """
    try:
        return duration_ms(value)
    except SettingError as error:
        raise DeclarationError(f"{what}: {error.what}", remedy=error.remedy) from None
