"""Lookups as users declare them: `orders.lookup(price_of, on="item", cache="5m", rate="500/s", into=priced)`.

Promises: what can never work is refused here, with the argument and what to write instead.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin

from ....core.errors import DeclarationError
from ..derive.result_fields import check_field
from ..steps.rows import LookupStep
from ..steps.step import Policy
from ..types.arguments import check_function, check_selector, duration, is_async, returned, shown
from .checks import check_policy
from .declaring import Declaring, added

if TYPE_CHECKING:
    from .checks import Selector

AwayErrors = type[BaseException] | tuple[type[BaseException], ...]
"""Errors that say that a service is away."""
MOST_CACHED = 10_000
"""How many answers are kept, unless `max_cached=` says it."""
LEAST = {"batch": 1, "max_cached": 1, "concurrency": 1, "retry": 0, "breaker": 0}
SECONDS = {"s": 1, "m": 60, "h": 3600}


def lookup_step(
    of: Declaring,
    fn: Callable[[Any], Any],
    into: Callable[[Any, Any], Any] | None,
    on: Selector | None,
    away: AwayErrors,
    on_error: Policy,
    max_cached: int | None,
    numbers: Mapping[str, int],
    times: Mapping[str, Any],
) -> LookupStep:
    """The step of a lookup. `numbers` and `times`: the arguments with these names, as given."""
    if max_cached is not None and times["cache"] is None:
        raise DeclarationError(
            f"lookup(max_cached={max_cached!r}) without cache= keeps no answer",
            remedy='say for how long an answer is good: cache="5m"',
        )
    numbers = {**numbers, "max_cached": MOST_CACHED if max_cached is None else max_cached}
    several = numbers["batch"] != 1
    check_function(fn, "lookup", awaits=True, signature="(list of questions)" if several else "(question)")
    _check_awaits(fn)
    if into is not None:
        check_function(into, "lookup(into=…)", number=2, signature="(value, answer)")
    if on is not None:
        check_selector(on, "lookup(on=…)")
        check_field(of.step, on, f"lookup(on={on!r})")
    for name, number in numbers.items():
        if type(number) is not int or number < LEAST[name]:
            raise DeclarationError(f"lookup({name}={number!r})", remedy=f"a whole number, at least {LEAST[name]}")
    return added(
        of,
        LookupStep,
        fn=fn,
        into=into,
        on=on,
        away=_errors(away),
        cache_ms=0 if times["cache"] is None else _positive(times["cache"], "cache"),
        timeout_s=_positive(times["timeout"], "timeout") / 1000,
        per_s=0.0 if times["rate"] is None else _per_s(times["rate"]),
        on_error=check_policy(on_error, "lookup(on_error)"),
        **numbers,
    )


def _check_awaits(fn: Any) -> None:
    """Refuse a plain function, which gives nothing to await. A lambda, and what is annotated to return an awaitable, may make one."""
    plain = inspect.isfunction(fn) or inspect.ismethod(fn)
    if not plain or is_async(fn) or fn.__name__ == "<lambda>" or _may_await(fn):
        return
    raise DeclarationError(
        f"lookup() awaits what {shown(fn)} returns, which is a plain function",
        remedy="write `async def`; map() calls a plain function, and code that blocks runs in `await asyncio.to_thread(fn, question)`. "
        "One that returns something to await says so: `-> Awaitable[…]`",
    )


def _may_await(fn: Any) -> bool:
    """Whether a plain function says that what it returns may be awaited. An annotation that cannot be read here may say it."""
    kind = returned(fn)
    return _is_awaitable(kind) if kind is not None else "return" in getattr(fn, "__annotations__", ())


def _is_awaitable(kind: Any) -> bool:
    if get_origin(kind) in (Union, UnionType):
        return any(map(_is_awaitable, get_args(kind)))
    return kind in (Any, object) or isinstance(kind, TypeVar) or hasattr(get_origin(kind) or kind, "__await__")


def _positive(given: Any, name: str) -> int:
    found = duration(given, f"lookup({name}={given!r})")
    if found <= 0:
        raise DeclarationError(f"lookup({name}={given!r})", remedy='a duration of more than 0, such as "5m" or 0.5')
    return found


def _per_s(given: Any) -> float:
    """A rate as calls in a second.

    >>> _per_s("500/s"), _per_s("30/m"), _per_s(2)
    (500.0, 0.5, 2.0)
    """
    found = 0.0
    if isinstance(given, str):
        if parts := re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*/\s*([smh])\s*", given):
            found = float(parts[1]) / SECONDS[parts[2]]
    elif isinstance(given, int | float) and not isinstance(given, bool):
        found = float(given)
    if not 0 < found < float("inf"):
        raise DeclarationError(f"lookup(rate={given!r})", remedy='calls in a time, such as "500/s", "30/m" or "1000/h"')
    return found


def _errors(away: Any) -> tuple[type[BaseException], ...]:
    kinds: tuple[Any, ...] = away if isinstance(away, tuple) else (away,)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise DeclarationError(
                f"lookup(away={away!r}) takes exceptions",
                remedy="a class, or a tuple of them, such as (OSError, MyClientError)",
            )
    return kinds
