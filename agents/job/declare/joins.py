"""Joins of two streams as users declare them: `orders.join(payments, within="10s", into=paid)`.

Promises: a declaration is checked at its own line. The name of a join is made from its distance (`join-10s`), so two joins of one distance
want names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from ....core.errors import DeclarationError
from ....core.windows.joins import KINDS, Distance, preserves
from ....core.words import COLUMNS
from ..derive.named_fields import serde_behind
from ..derive.result_fields import check_field
from ..steps.keyed import JoinStep, JoinTableStep
from ..steps.step import Policy, Step
from ..types.arguments import check_function, check_selector, duration
from ..types.windows import distance_said
from .checks import check_policy, check_serde, check_topic, name_of
from .declaring import Declaring, added
from .ends import TableView
from .refused_verbs import RefusesVerbs

if TYPE_CHECKING:
    from ...records.values.serdes import Serde

JoinDistance = str | float | tuple[str | float, str | float]
"""A distance: for both directions, or how much older and how much younger than the left row the right one may be."""


def join_step(
    left: Declaring,
    right: Declaring,
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
    return added(
        left,
        JoinStep,
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


def join_table_step(
    of: Declaring, table: Any, on: Any, into: Callable[[Any, Any], Any], how: str, on_error: Policy, **unused: Any
) -> JoinTableStep:
    """The step of a join with a table. `unused`: arguments that only a join of two streams has, with what was given."""
    if not isinstance(table, TableView):
        if isinstance(table, RefusesVerbs) and table.KIND == COLUMNS:
            raise DeclarationError(
                "join() takes rows, not columns", remedy="put .rows() before it: orders.join(payments.rows(), …)"
            )
        raise DeclarationError(
            f"join() takes a stream, or a table that follows a stream, not {table!r}",
            remedy="create one with stream.table(name); app.table() is for user code to read and write",
        )
    if table.app is not of.app:
        raise DeclarationError(f"join(): the table '{table.step.name}' belongs to another app")
    if given := [name for name, one in unused.items() if one is not None]:
        raise DeclarationError(
            f"join({given[0]}=…) of a table: a record meets the row that its key has when it is processed",
            remedy=f"omit {given[0]}=, or join two streams",
        )
    if how not in ("inner", "left"):
        raise DeclarationError(f"join(how={how!r}) of a table", remedy="'inner' or 'left'")
    if on is not None:
        check_selector(on, "join(on=…)")
        check_field(of.step, on, f"join(on={on!r})")
    check_function(into, "join(into=…)", number=2, signature="(value, row)")
    policy = check_policy(on_error, "join")
    return added(of, JoinTableStep, table=table.step, on=on, into=into, how=how, on_error=policy)


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


def _serdes(left: Declaring, right: Declaring, given: Any) -> tuple[Serde[Any], Serde[Any]]:
    """The serdes of the kept values: given for both sides, or for each."""
    if given is None:
        return serde_behind(left.step, left.app.serde), serde_behind(right.step, right.app.serde)
    both: tuple[Any, Any] = (given, given)
    if isinstance(given, tuple) and len(cast("tuple[Any, ...]", given)) == 2:
        both = cast("tuple[Any, Any]", given)
    check_serde(both[0], "join(serde")
    check_serde(both[1], "join(serde")
    return both
