"""What is known of the key of rows that end in a table: by which field they are partitioned, and in which of their columns it stands.

What it decides:

- The field is that of the graph (`core.graph.checks.keys_of`), as for aggregates and joins. Each step says which columns still have its
  value (`Step.key_columns`); a function of a value may have made anything.
- Where the values have no such field, as behind an aggregate, but the rows still have their key, a column is made of the key.
- Updates are right in a table whose key is made of the key of the updates, and of the bounds of their window.

Promise: a row is in the task that all rows of its key are in, or the line that declares the sink is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....core.columns.schema import BOOL, INT, TEXT, ColumnKind, ColumnSchema, ColumnSpec
from ....core.errors import DeclarationError
from ....core.graph.checks import FUNCTION, keys_of
from ....core.graph.updates import updates_of
from ....core.windows.results import END_FIELD, START_FIELD
from ...records.values.column_types import columns_of_rows
from ..steps.columns import ColumnsStep, RowsStep
from ..steps.keyed import WindowStep
from ..steps.row_columns import ColumnsUnknown
from ..steps.sources import InputStep, ShuffleStep, SourceStep
from .declaration import Declared

if TYPE_CHECKING:
    from ..steps.step import Step
    from .declaration import DeclaredApp

BOUNDS = (START_FIELD, END_FIELD)
OF_TYPE: Mapping[Any, ColumnKind] = {str: TEXT, int: INT, bool: BOOL}
"""The column that holds keys of a serde that has this type."""


@dataclass(frozen=True, slots=True)
class KeyOfRows:
    """What is known of the key of the rows behind a step."""

    field: str | None
    """By which field they are partitioned; None if they are not, or it is not known."""
    columns: frozenset[str]
    """The columns in which the value of this field stands."""
    fields: tuple[str, ...] = ()
    """Of merged streams, by which fields each of them is partitioned."""
    made: ColumnSpec | None = None
    """The column that is made of the key of the record."""
    updates: bool = False
    """The rows are updates."""

    def refused(self, key: Sequence[str], where: str) -> DeclarationError | None:
        """Why rows with this key may go through several tasks; None if they do not."""
        if not self.columns.isdisjoint(key):
            return None
        if len(self.fields) > 1:
            why = f"the merged streams are partitioned by {_listed(self.fields)}"
        elif self.field is None:
            why = "it is not known by which field the stream is partitioned"
        elif self.field in key:
            why = (
                f"the stream is partitioned by '{self.field}', but a step behind that may have put something else there"
            )
        else:
            why = f"the stream is partitioned by '{self.field}', which is not in it"
            if others := sorted(self.columns - {self.field}):
                why += f"; it is called {_listed(others)} now"
        return DeclarationError(
            f"{where}: key={list(key)}: {why}, so several tasks may write the same row, and no one knows which comes last",
            remedy=f'.repartition("{key[0]}") directly before it, an input with key="{key[0]}" and nothing but filters behind it, or '
            'order="any" if it does not matter',
        )


def key_of_rows(app: DeclaredApp, step: Step, key: Sequence[str], rows: Any, where: str) -> KeyOfRows:
    """What is known of the key behind a step. `key`: the columns that a table is to have as its key; `rows`: what the user declares."""
    declared = Declared(app, unfinished=True)
    named = declared.steps[app.steps.index(step)]
    name = declared.name(named)
    found = keys_of(declared.graph, name)
    (only,) = found if len(found) == 1 else (None,)
    field = only if isinstance(only, str) and not only.startswith(FUNCTION) else None
    made = _made_of_key(step, field, rows, where) if field in key else None
    columns = step.key_columns() | ({made.name} if made is not None else set())
    fields = tuple(sorted({one for one in found if isinstance(one, str)}))
    return KeyOfRows(field, columns, fields, made, bool(updates_of(declared.graph, name)))


def takes_updates(step: Step, key: Sequence[str], of: KeyOfRows) -> bool:
    """Whether each update of a row finds the row before it by this key."""
    return not of.columns.isdisjoint(key) and of.columns.union(_bounds(step)).issuperset(key)


def _made_of_key(step: Step, field: str | None, rows: Any, where: str) -> ColumnSpec | None:
    """The column of the key, if the values have no field of its name, and the records still have it."""
    names = names_of_values(step)
    if field is None or names is None or field in names:
        return None
    kinds: list[ColumnSpec] = []
    for source in _sources_of_key(step):
        if source is None:
            return None
        try:
            kinds.append(_key_column(source, field))
        except ColumnsUnknown as why:
            if rows is None:
                raise DeclarationError(
                    f"{where}: the type of the column '{field}', which is made of the key of the rows, is not known: {why}",
                    remedy=f"give the input its type: serde=hg.json(Order); or rows= with '{field}' and the other fields",
                ) from None
    own = _declared(rows, field)
    if own is not None:
        return own
    if len({one.type for one in kinds}) != 1:
        return None
    return None if kinds[0].logical is not None else ColumnSpec(field, kinds[0].type)


def _declared(rows: Any, field: str) -> ColumnSpec | None:
    """What the user declares of a field."""
    if rows is None:
        return None
    try:
        schema = columns_of_rows(rows)
    except DeclarationError:  # whoever makes the columns of the batch says so
        return None
    return ColumnSpec(field, schema[field].type) if field in schema.names and schema[field].logical is None else None


def _key_column(source: SourceStep, field: str) -> ColumnSpec:
    """The column that a source has its key from. Raises `ColumnsUnknown`."""
    kind = OF_TYPE.get(None if source.key_serde is None else source.key_serde.type)
    if kind is not None:
        return ColumnSpec(field, kind)
    before = source.parents[0] if isinstance(source, ShuffleStep) else source
    schema = source.schema or before.row_columns(encoded=False)
    if field not in schema.names:
        raise ColumnsUnknown(f"{source.said} has no field '{field}' of a declared type")
    found = schema[field]
    # of columns, the key of such a value is its text
    return ColumnSpec(field, TEXT) if source.schema is not None and found.logical is not None else found


def _sources_of_key(step: Step) -> list[SourceStep | None]:
    """The inputs and shuffles that have set the keys of these rows; None among them if a step behind may have set another key."""
    if isinstance(step, InputStep) or (isinstance(step, ShuffleStep) and step.by is not None):
        return [step]
    if not step.keeps_keys or not step.parents:
        return [None]
    return [one for parent in step.parents for one in _sources_of_key(parent)]


def names_of_values(step: Step) -> tuple[str, ...] | None:
    """The names of the fields that the rows behind a step have; None if they are not known."""
    while step.keeps_values and len(step.parents) == 1:
        step = step.parents[0]
    if step.results is not None:
        return step.results
    given: ColumnSchema | None = None if isinstance(step, SourceStep | RowsStep) else step.columns_given
    try:
        return (given or step.row_columns(encoded=False)).names
    except ColumnsUnknown:
        return None


def _bounds(step: Step) -> tuple[str, ...]:
    """The columns that name the window of a row."""
    while not isinstance(step, WindowStep):
        made = step.computed
        kept = step.keeps_values or isinstance(step, ColumnsStep | RowsStep)
        if not (kept or (made is not None and made.keys().isdisjoint(BOUNDS))) or len(step.parents) != 1:
            return ()
        step = step.parents[0]
    return BOUNDS if step.rows is None else ()


def _listed(names: Sequence[str]) -> str:
    return " and ".join(map(repr, names))
