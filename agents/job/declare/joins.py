"""Joins of two streams as users declare them: `orders.join(payments, within="10s", into=paid)`.

Promises: a declaration is checked at its own line. The name of a join is made from its distance (`join-10s`), so two joins of one distance
want names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ....core.errors import DeclarationError
from ....core.windows.joins import KINDS, Distance, preserves
from ....core.words import COLUMNS, VIEW
from ..derive.named_fields import fields_of_type, serde_behind
from ..derive.result_fields import check_field, type_of_rows
from ..steps.keyed import JoinColumnsStep, JoinStep, JoinTableColumnsStep, JoinTableStep
from ..steps.step import Policy, Step
from ..types.arguments import check_function, check_selector, duration
from ..types.windows import distance_said
from .checks import check_policy, check_serde, check_topic, name_of
from .columns import KnownColumns
from .declaring import Declaring, added
from .ends import TableView

if TYPE_CHECKING:
    from ....core.columns.schema import ColumnSchema
    from ...records.values.serdes import Serde

JoinDistance = str | float | tuple[str | float, str | float]
"""A distance: for both directions, or how much older and how much younger than the left row the right one may be."""


def join_step(
    left: Declaring,
    right: Declaring,
    *,
    into: Callable[[Any, Any], Any],
    serde: Serde[Any] | tuple[Serde[Any], Serde[Any]] | None,
    **given: Any,
) -> JoinStep:
    """The step of a join of rows. Raises a `DeclarationError` for arguments that make no sense; the graph checks whether the streams can
    meet."""
    check_function(into, "join(into=…)", number=2, signature="(left, right)")
    kept = _serdes(left, right, serde)
    return added(left, JoinStep, into=into, serdes=kept, **_of_streams(left, right, **given))


def join_columns_step(
    left: Declaring, right: Declaring, known: tuple[KnownColumns, KnownColumns], take: Any, **given: Any
) -> tuple[JoinColumnsStep, KnownColumns]:
    """The step of a join of columns, and the columns behind it."""
    for one in known:
        one.alone("join()")
        one.schema.flat("join() of two streams")
        if given.get("late") is not None:
            one.schema.only_stored("join(late=…)")
    schemas = known[0].schema, known[1].schema
    taken = _taken(take, schemas[1])
    for name, of in taken.items():
        schemas[1][of]  # raises if there is none
        _check_new(name, of, known[0], "join()", "right")
    more = _of_streams(left, right, **given)
    step = added(left, JoinColumnsStep, schemas=schemas, taken=taken, **more)
    return step, KnownColumns(step.columns_given)


def _of_streams(
    left: Declaring,
    right: Declaring,
    *,
    within: JoinDistance | None,
    on: Any,
    how: str,
    grace: str | float,
    late: str | None,
    at_end: str,
    name: str | None,
    on_error: Policy,
) -> dict[str, Any]:
    """What a join of two streams has, whether they are rows or columns."""
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
    for side, stream in enumerate((left, right)):
        if preserves(how, side) and _everywhere(stream.step):
            raise DeclarationError(
                f"join(how={how!r}): the {('left', 'right')[side]} side is broadcast",
                remedy="every task would emit its records without a partner: read that stream without broadcast",
            )
    return {
        "parents": (left.step, right.step),
        "name": name_of("join", None, name or f"join-{distance_said(distance)}"),
        "distance": distance,
        "how": how,
        "on": _fields(on),
        "grace_ms": duration(grace, "join(grace)"),
        "key_serde": left.app.key_serde,
        "late": None if late is None else check_topic(late, "join(late=…)"),
        "late_serde": left.app.serde,
        "keeps_open": at_end == "keep",
        "on_error": check_policy(on_error, "join"),
    }


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
    if getattr(table, "KIND", VIEW) == COLUMNS:
        raise DeclarationError(
            "join() of rows takes rows, not columns", remedy="put .rows() before it: orders.join(payments.rows(), …)"
        )
    _check_table(of, table, how, unused)
    if on is not None:
        check_selector(on, "join(on=…)")
        check_field(of.step, on, f"join(on={on!r})")
    check_function(into, "join(into=…)", number=2, signature="(value, row)")
    policy = check_policy(on_error, "join")
    return added(of, JoinTableStep, table=table.step, on=on, into=into, how=how, on_error=policy)


def _check_table(of: Declaring, table: Any, how: str, unused: Mapping[str, Any]) -> None:
    if not isinstance(table, TableView):
        raise DeclarationError(
            f"join() takes a stream, or a table that follows a stream, not {table!r}",
            remedy="create one with stream.table(name); app.table() is for user code to read and write",
        )
    if table.app is not of.app:
        raise DeclarationError(f"join(): the table '{table.step.name}' belongs to another app")
    if how not in ("inner", "left"):
        raise DeclarationError(f"join(how={how!r}) of a table", remedy="'inner' or 'left'")
    if given := [name for name, one in unused.items() if one is not None]:
        raise DeclarationError(
            f"join({given[0]}=…) of a table: a record meets the row that its key has when it is processed",
            remedy=f"omit {given[0]}=, or join two streams",
        )


def join_table_columns_step(
    of: Declaring, known: KnownColumns, table: Any, on: Any, take: Any, how: str, on_error: Policy, **unused: Any
) -> tuple[JoinTableColumnsStep, KnownColumns]:
    """The step that adds fields of a table's rows to columns, and the columns behind it."""
    if getattr(table, "KIND", VIEW) not in (VIEW, COLUMNS):
        raise DeclarationError(
            "join() of columns takes columns, or a table that follows a stream: stream.table(name)",
            remedy="put .columns() behind the other stream too, or .rows() behind this one",
        )
    _check_table(of, table, how, unused)
    known.alone("join()")
    if on is not None:
        known.key(on, "join(on=…)", or_boolean=True)
    verb = f"join({table.name})"
    fields, refused = _fields_of_table(table, verb)
    wanted = _taken(take, fields)
    for name, field in wanted.items():
        if field in refused:
            raise DeclarationError(f"{verb}: {refused[field].what}", remedy="take other fields, or join rows: .rows()")
        _check_new(name, field, known, verb, table.name)
    policy = check_policy(on_error, "join")
    taken = {name: fields[field] for name, field in wanted.items()}
    step = added(
        of, JoinTableColumnsStep, table=table.step, on=on, how=how, schema=known.schema, taken=taken, on_error=policy
    )
    return step, KnownColumns(step.columns_given, None, known.made)


def _check_new(name: str, of: str, known: KnownColumns, verb: str, prefix: str) -> None:
    """Refuse a column that the stream has already."""
    if name in known.schema.names:
        raise DeclarationError(
            f"{verb}: the stream has a column '{name}', too",
            remedy=f'give it another name: take={{"{prefix}_{name}": "{of}"}}, or leave it out: take=[…]',
        )


def _fields_of_table(table: TableView[Any, Any], verb: str) -> tuple[ColumnSchema, Mapping[str, DeclarationError]]:
    """The fields of the rows of a table that can be columns, and why others cannot."""
    kind = type_of_rows(table.step.parents[0])
    if kind is None:
        raise DeclarationError(
            f"{verb}: the fields of the table's rows are not known",
            remedy=f'declare their type: app.input(…, serde=hg.json(Row)).table("{table.name}")',
        )
    return fields_of_type(kind, table.step.parents[0], verb)


def _taken(take: Any, fields: ColumnSchema) -> dict[str, str]:
    """By the name of a column that is added, the field: all that can be columns, unless some are named."""
    if take is None:
        return {name: name for name in fields.names}
    named: Any = take if isinstance(take, Mapping) else None
    if named is None and isinstance(take, list | tuple):
        given = cast("Sequence[Any]", take)
        named = {name: name for name in given} if all(isinstance(one, str) for one in given) else None
    if not named or not all(isinstance(one, str) for pair in cast("Mapping[Any, Any]", named).items() for one in pair):
        raise DeclarationError(
            f"join(take={take!r:.60})", remedy='the fields that are wanted: ["rate"], or {"new name": "rate"}'
        )
    return dict(named)


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
