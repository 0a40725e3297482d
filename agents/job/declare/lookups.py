"""Lookups as users declare them: `orders.lookup(price_of, on="item", cache="5m", rate="500/s", into=priced)`.

Promises: what can never work is refused here, with the argument and what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ....core.errors import DeclarationError
from ..derive.result_fields import check_field
from ..steps.rows import LookupStep
from ..steps.step import Policy
from ..types.arguments import check_function, check_selector, duration
from .checks import check_policy
from .declaring import Declaring, added

if TYPE_CHECKING:
    from .checks import Selector

AwayErrors = type[BaseException] | tuple[type[BaseException], ...]
"""Errors that say that a service is away."""
LEAST = {"batch": 1, "max_cached": 1, "concurrency": 1, "retry": 0, "breaker": 0}
SECONDS = {"s": 1, "m": 60, "h": 3600}


def lookup_step(
    of: Declaring,
    fn: Callable[[Any], Any],
    into: Callable[[Any, Any], Any] | None,
    on: Selector | None,
    away: AwayErrors,
    on_error: Policy,
    numbers: Mapping[str, int],
    times: Mapping[str, Any],
) -> LookupStep:
    """The step of a lookup. `numbers` and `times`: the arguments with these names, as given."""
    several = numbers["batch"] != 1
    check_function(fn, "lookup", awaits=True, signature="(list of questions)" if several else "(question)")
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
