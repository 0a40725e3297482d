"""Aggregations by key: what `.agg(n=hg.count(), total=hg.sum("total"))` is made of.

An aggregate is four small functions (start, add, merge, result) over one plain state value. The built-in ones also carry a
line of source code, so that a step compiles one loop for all of its aggregates instead of calling several functions a row
(the same way as `dataclasses` writes `__init__`). All built-in ones but `collect`, `first` and `last` merge without regard to
order, so partial states can be combined before a shuffle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.errors import DeclarationError

Selector = str | Callable[[Any], Any]
Loop = Callable[[Sequence[Any], Sequence[Any], dict[Any, list[Any]]], None]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate. `add(state, x)`, `merge(a, b)` and `result(state)` never change what they are given."""

    name: str
    of: Selector | None
    start: Callable[[], Any]
    add: Callable[[Any, Any], Any]
    merge: Callable[[Any, Any], Any] | None
    result: Callable[[Any], Any] | None = None
    source: str = ""
    """The body of `add` in place: `s` is the list of states, `{i}` this one's index, `x` the selected value."""


def _same(state: Any) -> Any:
    return state


def count() -> Aggregate:
    """How many rows."""
    return Aggregate("count", None, int, lambda s, _x: s + 1, lambda a, b: a + b, None, "s[{i}] += 1")


def sum(of: Selector) -> Aggregate:
    """The sum of a field (`hg.sum("amount")`) or of a function of the value."""
    return Aggregate("sum", of, int, lambda s, x: s + x, lambda a, b: a + b, None, "s[{i}] += {x}")


def _least(a: Any, b: Any) -> Any:
    return b if a is None or (b is not None and b < a) else a


def _greatest(a: Any, b: Any) -> Any:
    return b if a is None or (b is not None and b > a) else a


def min(of: Selector) -> Aggregate:
    """The least value; None before the first."""
    source = "x = {x}\n        if s[{i}] is None or x < s[{i}]: s[{i}] = x"
    return Aggregate("min", of, _nothing, _least, _least, None, source)


def max(of: Selector) -> Aggregate:
    """The greatest value; None before the first."""
    source = "x = {x}\n        if s[{i}] is None or x > s[{i}]: s[{i}] = x"
    return Aggregate("max", of, _nothing, _greatest, _greatest, None, source)


def _nothing() -> Any:
    return None


def mean(of: Selector) -> Aggregate:
    """The mean; its state is the pair of number and sum, so that means merge."""
    return Aggregate(
        "mean",
        of,
        lambda: (0, 0),
        lambda s, x: (s[0] + 1, s[1] + x),
        lambda a, b: (a[0] + b[0], a[1] + b[1]),
        lambda s: s[1] / s[0] if s[0] else None,
    )


def first(of: Selector) -> Aggregate:
    """The value of the first row, in the order of the stream's partition."""
    return Aggregate("first", of, tuple, lambda s, x: s or (x,), None, lambda s: s[0] if s else None)


def last(of: Selector) -> Aggregate:
    """The value of the last row."""
    return Aggregate("last", of, _nothing, lambda _s, x: x, None, None, "s[{i}] = {x}")


def collect(of: Selector) -> Aggregate:
    """All values, as a list. It grows without bound: give the key a window, or keep it short."""
    return Aggregate("collect", of, tuple, lambda s, x: (*s, x), None, list)


def aggregate(
    init: Callable[[], Any],
    add: Callable[[Any, Any], Any],
    merge: Callable[[Any, Any], Any] | None = None,
    *,
    result: Callable[[Any], Any] | None = None,
) -> Aggregate:
    """One of your own: `init()` makes a state, `add(state, value)` gives the next one. With `merge(a, b)` it combines early.

    The state must be something that msgpack can hold.
    """
    return Aggregate("aggregate", lambda value: value, init, add, merge, result)


@dataclass(frozen=True, slots=True)
class Plan:
    """The aggregates of one step, compiled."""

    names: tuple[str, ...]
    parts: tuple[Aggregate, ...]
    loop: Loop
    """Adds rows in place: `loop(keys, values, states)`, where `states[key]` is a list with one state an aggregate."""

    merge_loop: Loop
    """The same for partial states as values: `merge_loop(keys, partials, states)`."""

    def start(self) -> list[Any]:
        """The states of a key that was never seen."""
        return [part.start() for part in self.parts]

    @property
    def merges(self) -> bool:
        """Whether partial states may be combined before a shuffle."""
        return all(part.merge for part in self.parts)

    def result(self, states: Sequence[Any]) -> dict[str, Any]:
        """What users see."""
        return {
            name: part.result(state) if part.result else state
            for name, part, state in zip(self.names, self.parts, states, strict=True)
        }


def plan(aggregates: Mapping[str, Aggregate]) -> Plan:
    """Compile the aggregates of a step into one loop.

    >>> p = plan({"n": count(), "total": sum("x")})
    >>> states = {"a": p.start()}
    >>> p.loop(["a", "a"], [{"x": 2}, {"x": 3}], states)
    >>> p.result(states["a"])
    {'n': 2, 'total': 5}
    """
    if not aggregates:
        raise DeclarationError("agg() needs at least one aggregate", remedy="for example .agg(n=hg.count())")
    for name, part in aggregates.items():
        if not isinstance(part, Aggregate):
            raise DeclarationError(
                f"agg({name}=…) is {part!r}, which is no aggregate", remedy="use hg.count(), hg.sum(…), hg.aggregate(…)"
            )
    parts = tuple(aggregates.values())
    scope: dict[str, Any] = {}
    lines = ["def loop(keys, values, states):", "    for k, v in zip(keys, values):", "        s = states[k]"]
    for i, part in enumerate(parts):
        selected = "v"
        if isinstance(part.of, str):
            selected = f"v[{part.of!r}]"
        elif part.of is not None:
            scope[f"of_{i}"] = part.of
            selected = f"of_{i}(v)"
        if part.source:
            lines.append("        " + part.source.format(i=i, x=selected))
        else:
            scope[f"add_{i}"] = part.add
            lines.append(f"        s[{i}] = add_{i}(s[{i}], {selected})")
    lines += [
        "def merge_loop(keys, partials, states):",
        "    for k, p in zip(keys, partials):",
        "        s = states[k]",
    ]
    for i, part in enumerate(parts):
        if part.name in ("count", "sum"):
            lines.append(f"        s[{i}] += p[{i}]")
        else:
            scope[f"merge_{i}"] = part.merge
            lines.append(f"        s[{i}] = merge_{i}(s[{i}], p[{i}])")
    exec("\n".join(lines), scope)
    return Plan(tuple(aggregates), parts, scope["loop"], scope["merge_loop"])
