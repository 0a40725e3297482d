"""Joins of two streams as users declare them: `orders.join(payments, within="10s", into=paid)`.

Promises: a declaration is checked at its own line. The name of a join is made from its distance (`join-10s`), so two joins of one distance
want names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, cast

from ....core.errors import DeclarationError
from ....core.windows.joins import KINDS, Distance, preserves
from ..derive.named_fields import serde_behind
from ..steps.keyed import JoinStep
from ..steps.step import Policy, Step
from ..types.arguments import called_from, check_function, duration
from ..types.windows import distance_said
from .checks import check_policy, check_serde, check_topic, name_of
from .column_stream import ColumnStream

if TYPE_CHECKING:
    from ...records.values.serdes import Serde
    from .stream import Stream

JoinDistance = str | float | tuple[str | float, str | float]
"""A distance: for both directions, or how much older and how much younger than the left row the right one may be."""


def join_step(
    left: Stream[Any, Any],
    right: Stream[Any, Any],
    *,
    within: JoinDistance | None,
    on: Any,
    into: Callable[[Any, Any], Any],
    how: str,
    grace: str | float,
    late: str | None,
    at_end: str,
    name: str | None,
    serde: Serde[Any] | tuple[Serde[Any], Serde[Any]] | None,
    on_error: Policy,
) -> JoinStep:
    """The step of a join. Raises a `DeclarationError` for arguments that make no sense; the graph checks whether the streams can meet."""
    if right.app is not left.app:
        raise DeclarationError(f"join(): {right!r} belongs to another app")
    if within is None:
        raise DeclarationError(
            "join() of two streams needs within=: how far the times of a pair may be apart",
            remedy='for example within="10s"',
        )
    if how not in KINDS:
        raise DeclarationError(f"join(how={how!r})", remedy="'inner', 'left' or 'outer'")
    if at_end not in ("close", "keep"):
        raise DeclarationError(f"join(at_end={at_end!r})", remedy="'close' or 'keep'")
    distance = _distance(within)
    check_function(into, "join(into=…)", number=2, signature="(left, right)")
    for side, stream in enumerate((left, right)):
        if preserves(how, side) and _everywhere(stream.step):
            raise DeclarationError(
                f"join(how={how!r}): the {('left', 'right')[side]} side is broadcast",
                remedy="every task would emit its records without a partner: read that stream without broadcast",
            )
    return JoinStep(
        parents=(left.step, right.step),
        name=name_of("join", None, name or f"join-{distance_said(distance)}"),
        distance=distance,
        how=how,
        on=_fields(on),
        grace_ms=duration(grace, "join(grace)"),
        into=into,
        key_serde=left.app.key_serde,
        serdes=_serdes(left, right, serde),
        late=None if late is None else check_topic(late, "join(late=…)"),
        late_serde=left.app.serde,
        keeps_open=at_end == "keep",
        on_error=check_policy(on_error, "join"),
        where=called_from(),
    )


def _fields(on: Any) -> tuple[str, str] | None:
    """The fields by which both sides are keyed."""
    both: tuple[Any, ...] = on if isinstance(on, tuple) else (on, on)
    if on is not None and (len(both) != 2 or not all(isinstance(one, str) and one for one in both)):
        raise DeclarationError(
            f"join(on={on!r}): two streams meet by the keys of their records",
            remedy='name the field that both are keyed by, or one for each: on=("id", "order"); put .repartition(…) before the join',
        )
    return None if on is None else (both[0], both[1])


def refuse_other(other: object) -> NoReturn:
    """Refuse what is neither a table nor a stream of rows."""
    if isinstance(other, ColumnStream):
        raise DeclarationError(
            "join() takes rows, not columns", remedy="put .rows() before it: orders.join(payments.rows(), …)"
        )
    raise DeclarationError(
        f"join() takes a stream, or a table that follows a stream, not {other!r}",
        remedy="create one with stream.table(name); app.table() is for user code to read and write",
    )


def _everywhere(step: Step) -> bool:
    """Whether every task gets every record of this step."""
    stack, sources = [step], list[bool]()
    while stack:
        one = stack.pop()
        if one.everywhere is None:
            stack += one.parents
        else:
            sources.append(one.everywhere)
    return all(sources)


def _distance(within: Any) -> Distance:
    if isinstance(within, list | set | dict):
        raise DeclarationError(f"join(within={within!r:.80})", remedy='one distance, or a pair: within=("1s", "10s")')
    if not isinstance(within, tuple):
        both = duration(within, "join(within)")
        return Distance(both, both)
    if len(within) != 2:
        raise DeclarationError(
            f"join(within={within!r})",
            remedy="one distance, or two: how much older and how much younger the right one may be",
        )
    before, after = (duration(one, "join(within)") for one in within)
    return Distance(before, after)


def _serdes(left: Stream[Any, Any], right: Stream[Any, Any], given: Any) -> tuple[Serde[Any], Serde[Any]]:
    """The serdes of the kept values: given for both sides, or for each."""
    if given is None:
        return serde_behind(left.step, left.app.serde), serde_behind(right.step, right.app.serde)
    both: tuple[Any, Any] = (given, given)
    if isinstance(given, tuple) and len(cast("tuple[Any, ...]", given)) == 2:
        both = cast("tuple[Any, Any]", given)
    check_serde(both[0], "join(serde")
    check_serde(both[1], "join(serde")
    return both
