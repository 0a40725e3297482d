"""What is known of the columns of a stream while it is declared: which there are, of which type, and what they are made of.

Promises: a column that does not exist, or that is of the wrong type, is refused at the line that has it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ....core.columns.elements import element_columns, element_of
from ....core.columns.expressions import ColumnRef, Expression, Node, columns_in, node_of, substituted
from ....core.columns.logical import DECIMAL, WHOLE
from ....core.columns.schema import BOOL, FLOAT, INT, TEXT, ColumnKind, ColumnSchema, ColumnSpec
from ....core.columns.typing import NUMBERS, column_of, kind_of
from ....core.errors import DeclarationError
from ...records.columns.frame_libraries import Library, check_library
from ...records.columns.framed_columns import HIDDEN
from ...records.columns.selecting import names_in, needs_value
from ...records.columns.whole_values import VALUE, is_whole_column, whole_schema
from ...records.values.column_types import columns_of_type, is_arrow_schema, type_of_arrow
from ...records.values.messages import is_message
from ...records.values.serdes import OUTPUT_KEY, is_json, is_whole, json
from ..derive.named_fields import fields_behind, fields_of_type
from ..derive.references import check_columns_of
from ..derive.result_fields import columns_of_results, type_of_rows
from ..steps.columns import (
    ColumnsStep,
    ExplodeStep,
    FilterColumnsStep,
    FrameStep,
    KeyAsStep,
    RowsStep,
    SelectColumnsStep,
    WithColumnsStep,
)
from ..steps.ends import SinkStep
from ..steps.sources import InputStep, ShuffleStep
from ..types.aggregates import OF_NUMBERS, Aggregate, check_are_aggregates, shown_result
from ..types.arguments import check_function
from .checks import check_partitions, check_policy, check_serde, check_topic, name_of
from .declaring import Declaring, DeclaringApp, added, serde_for
from .ends import Ended, EndsOfRows, ended, share

if TYPE_CHECKING:
    from ...records.columns.batch import ColumnBatch
    from ...records.values.serdes import Serde
    from ..steps.step import Policy

KEEP, SHUFFLED = "keep", "shuffled"
KEY_COLUMNS: dict[type, ColumnKind] = {str: TEXT, int: INT}
"""The types of keys that are columns."""
_LONG = 4_000
"""More letters than a person reads of how a key is made."""
_WITHOUT = "write them before, or take .columns() without extra='keep' for this branch"


@dataclass(frozen=True, slots=True)
class KnownColumns:
    """The columns of a stream."""

    schema: ColumnSchema
    kind: Any = None
    """The type of the rows; None for dicts."""
    made: Mapping[str, ColumnRef] = field(default_factory=dict[str, ColumnRef])
    """The columns that expressions have made, each with what it is made of."""
    extra: str | None = None
    """Whether the other fields of each record are kept, or were before a repartition."""

    def alone(self, verb: str) -> None:
        """Refuse to lose the fields that are kept."""
        if self.extra is not None:
            raise DeclarationError(
                f"{verb} gets the declared columns alone, and extra='keep' keeps all fields of a record",
                remedy=_WITHOUT,
            )

    def key(self, by: Any, verb: str, *, or_boolean: bool) -> ColumnSpec:
        """The column that a verb names as a key. Of a time, a date or a decimal, the text is the key."""
        if not isinstance(by, str):
            raise DeclarationError(
                f"{verb}({by!r:.60}) does not name a column",
                remedy='compute it before: .with_columns(key=…), and name it: "key"',
            )
        column = self.schema.value(by, f"{verb}('{by}')")
        if column.logical is not None and column.logical.name in WHOLE:
            return column
        if column.logical is not None:
            raise DeclarationError(
                f"{verb}('{by}'): {column.said} makes no key", remedy=f'make a number of it: hg.col("{by}").hash()'
            )
        if column.type == FLOAT or (column.type == BOOL and not or_boolean):
            raise DeclarationError(
                f"{verb}('{by}'): {column.type} makes no key",
                remedy=f'cast it: hg.col("{by}").cast(str), or .cast(int)',
            )
        return column

    def checked_aggregates(self, aggregates: Mapping[str, Aggregate]) -> dict[str, Aggregate]:
        """Refuse aggregates that need rows, numbers where there are none, or other conditions than of these columns. Those of columns of
        logical types get results of these."""
        check_are_aggregates(aggregates)
        for title, part in aggregates.items():
            if part.name == "aggregate" or any(map(needs_value, (part.of, part.by, part.where))):
                raise DeclarationError(
                    f"agg({title}=hg.{part.name}(…)) has a function of a value, which needs rows",
                    remedy="name a column, which .with_columns(…) may compute, or put .rows() before .repartition(…)",
                )
            if part.by is not None:
                self.schema.value(str(part.by), f"agg({title}=hg.{part.name}(…))")  # raises if there is none
            columns = [self.schema.value(name, f"agg({title}=hg.{part.name}(…))") for name in names_in(part.of)]
            column = columns[0] if isinstance(part.of, str) else None
            if any(one.logical is not None for one in columns) or self._ranks(part):
                continue
            if column is not None and part.name in OF_NUMBERS and column.type not in NUMBERS:
                raise DeclarationError(
                    f"agg({title}=hg.{part.name}('{column.name}')) needs numbers, and '{column.name}' is {column.type}",
                    remedy=f'cast it: .with_columns({column.name}=hg.col("{column.name}").cast(float))',
                )
        check_conditions(aggregates, self.schema)
        return {title: self._of_logical(title, part) for title, part in aggregates.items()}

    def _ranks(self, part: Aggregate) -> bool:
        """Whether an aggregate ranks rows by a column of a logical type."""
        return isinstance(part.by, str) and self.schema[part.by].logical is not None

    def _of_logical(self, title: str, part: Aggregate) -> Aggregate:
        """An aggregate whose results are of the logical type of its column, if that has one."""
        by = self.schema[part.by].logical if isinstance(part.by, str) else None
        kinds = {name: self.schema[name].logical for name in names_in(part.of)}
        if by is None and not any(kinds.values()):
            return part
        found = kinds.get(part.of) if isinstance(part.of, str) else None
        kind = next((one for one in kinds.values() if one is not None), by)
        numbers = part.name in ("min", "max") and found is not None and found.name in WHOLE
        chosen = part.name in ("first", "last", "arg_max", "arg_min") and isinstance(part.of, str)
        fits = numbers or (chosen and (by is None or by.name in WHOLE)) or part.name == "count_distinct"
        if not (fits or (part.name == "sum" and found is not None and found.name == DECIMAL)):
            name = next((name for name, one in kinds.items() if one is not None), str(part.by))
            raise DeclarationError(
                f"agg({title}=hg.{part.name}(…)) takes no {kind}, and '{name}' is one",
                remedy=f'make a number or text of it: .with_columns({name}=hg.col("{name}").cast(float)), .cast(int), .strftime(…)',
            )
        return part if found is None or part.name == "count_distinct" else shown_result(part, found)

    def filter(self, of: Declaring, keep: Any, on_error: Policy) -> FilterColumnsStep:
        """The step of `.filter(…)`."""
        policy, node = check_policy(on_error, "filter(on_error)"), condition(keep, self.schema, "filter")
        return added(of, FilterColumnsStep, keep=node, schema=self.schema, on_error=policy)

    def with_columns(
        self, of: Declaring, columns: Mapping[str, Any], on_error: Policy
    ) -> tuple[WithColumnsStep, KnownColumns]:
        """The step of `.with_columns(…)`, and the columns behind it."""
        if not columns:
            raise DeclarationError(
                "with_columns() needs at least one column", remedy='with_columns(total=hg.col("a") * 2)'
            )
        nodes = {name: node_of(value, f"with_columns({name}=…) is") for name, value in columns.items()}
        for name in nodes:
            if self.schema.inside(name):
                raise DeclarationError(
                    f"with_columns(): '{name}' is a nested object or a field of one, which is not replaced",
                    remedy="give the column another name",
                )
        specs = [column_of(name, node, self.schema) for name, node in nodes.items()]
        policy = check_policy(on_error, "with_columns(on_error)")
        step = added(of, WithColumnsStep, made=nodes, schema=self.schema, on_error=policy)
        made = {**self.made, **{name: _made_of(node, self.made) for name, node in nodes.items()}}
        return step, KnownColumns(self.schema.extended(specs), None, made, self.extra)

    def select(
        self, of: Declaring, names: tuple[Any, ...], columns: Mapping[str, Any], on_error: Policy
    ) -> tuple[SelectColumnsStep, KnownColumns]:
        """The step of `.select(…)`, and the columns behind it."""
        self.alone("select()")
        if not names and not columns:
            raise DeclarationError("select() needs at least one column", remedy='select("user", total=hg.col("a") * 2)')
        nodes: dict[str, Node] = {}
        for name in names:
            if not isinstance(name, str):
                raise DeclarationError(
                    f"select({name!r:.60}) does not name a column", remedy="give an expression a name: select(total=…)"
                )
            wanted = self.schema.inside(name) or (self.schema[name].name,)  # raises if there is none
            for one in wanted:
                if one in nodes or one in columns:
                    raise DeclarationError(f"select() has two columns '{one}'", remedy="name it once")
                nodes[one] = ColumnRef(one)
        nodes |= {name: node_of(value, f"select({name}=…) is") for name, value in columns.items()}
        policy = check_policy(on_error, "select(on_error)")
        step = added(of, SelectColumnsStep, made=nodes, schema=self.schema, on_error=policy)
        kept = {name: ref for name, ref in self.made.items() if name in names}
        made = {**kept, **{name: _made_of(nodes[name], self.made) for name in columns}}
        return step, KnownColumns(step.columns_given, None, made)

    def key_as(self, of: Declaring, name: Any, kind: Any, on_error: Policy) -> tuple[KeyAsStep, KnownColumns]:
        """The step of `.key_as(…)`, and the columns behind it."""
        self.alone("key_as()")
        if not isinstance(name, str) or not name:
            raise DeclarationError(f"key_as({name!r:.60}) is no name of a column", remedy='key_as("user")')
        if self.schema.inside(name) or name in self.schema.names:
            raise DeclarationError(f"key_as('{name}'): there is a column '{name}'", remedy="give the key another name")
        if kind not in KEY_COLUMNS:
            raise DeclarationError(
                f"key_as('{name}', {kind!r:.60}) is no type of a key that a column can hold",
                remedy="str or int; make rows of others: .rows().map(fn, with_record=True)",
            )
        made = ColumnSpec(name, KEY_COLUMNS[kind], optional=True)
        policy = check_policy(on_error, "key_as(on_error)")
        step = added(of, KeyAsStep, made=made, schema=self.schema, on_error=policy)
        return step, KnownColumns(step.columns_given, None, self.made)

    def explode(
        self, of: Declaring, column: Any, name: Any, keep_empty: bool, on_error: Policy
    ) -> tuple[ExplodeStep, KnownColumns]:
        """The step of `.explode(…)`, and the columns behind it."""
        self.alone("explode()")
        if not isinstance(column, str):
            raise DeclarationError(f"explode({column!r:.60}) does not name a column", remedy='explode("items")')
        spec = self.schema.value(column, f"explode('{column}')")
        element = element_of(spec, keep_empty=keep_empty)
        if element is None:
            raise DeclarationError(
                f"explode('{column}'): {spec.said} is no list",
                remedy="name a column of the type list[…], or make rows by a function: .frame(…), or .rows().flat_map(…)",
            )
        if name is not None and (not isinstance(name, str) or not name):
            raise DeclarationError(f"explode(name={name!r:.60}) is no name", remedy='explode("items", name="item")')
        if name is not None and name != column and self.schema.inside(name) + self.schema.only([name]).names:
            raise DeclarationError(
                f"explode(name='{name}'): there is a column '{name}'", remedy="give the elements another name"
            )
        made = element_columns(spec, element, name)
        step = added(
            of,
            ExplodeStep,
            column=column,
            element=element,
            title=name or column,
            made=made,
            keep_empty=keep_empty,
            schema=self.schema,
            on_error=check_policy(on_error, "explode(on_error)"),
        )
        before = self.made.get(column, ColumnRef(column)).name
        of_list = {one.name: ColumnRef(f"explode({before}){one.name.removeprefix(name or column)}") for one in made}
        kept = {title: ref for title, ref in self.made.items() if title != column}
        return step, KnownColumns(step.columns_given, None, {**kept, **of_list})

    def repartition(
        self, of: Declaring, by: str, name: str | None, partitions: int | None, key_serde: Any, on_error: Policy
    ) -> tuple[ShuffleStep, KnownColumns]:
        """The step of `.repartition(…)`, and the columns behind it."""
        column = self.key(by, "repartition", or_boolean=True)
        check_partitions(partitions, "repartition(")
        if key_serde is not None:
            check_serde(key_serde, "repartition(key_serde")
        title = name_of("by", by, name)
        of.app.topics.intermediate(title)
        step = added(
            of,
            ShuffleStep,
            name=title,
            by=by,
            serde=json(),
            key_serde=key_serde if key_serde is not None else of.app.key_serde,
            partitions=partitions,
            schema=self.schema,
            key_text=self._text_of_key(column),
            on_error=check_policy(on_error, "repartition(on_error)"),
        )
        return step, replace(self, extra=self.extra and SHUFFLED)

    def _text_of_key(self, column: ColumnSpec) -> str:
        """What the key of a repartition is made of, if its name does not say so. The digits of a decimal decide how it is written."""
        made = self.made[column.name].name if column.name in self.made else ""
        return made if column.logical is None else f"{made or column.name} as {column.said}"

    def merged(self, others: Sequence[KnownColumns]) -> KnownColumns:
        """The columns of a merge of these, which must have the same ones in the same order."""
        self.alone("merge()")
        for one in others:
            one.alone("merge()")
            if one.schema != self.schema:
                raise DeclarationError(
                    f"merge(): one stream has the columns {self.schema}, another one {one.schema}",
                    remedy="give both the same columns in the same order: .select(…)",
                )
        same = all(one.kind == self.kind for one in others)
        made = {name: ref for name, ref in self.made.items() if all(one.made.get(name) == ref for one in others)}
        return KnownColumns(self.schema, self.kind if same else None, made)

    def frame(
        self, of: Declaring, fn: Callable[..., Any], like: Library | None, schema: Any, on_error: Policy
    ) -> tuple[FrameStep, KnownColumns]:
        """The step of `.frame(…)`, and the columns behind it."""
        check_function(fn, "frame", signature="(frame)")
        self.alone("frame()")
        if like is not None:
            check_library(like)
        hidden = next((one.name for one in HIDDEN if one.name in self.schema.names), None)
        if hidden is not None:
            raise DeclarationError(f"frame(): the column '{hidden}' has a name that frames use", remedy="rename it")
        kind = type_of_arrow(schema) if is_arrow_schema(schema) else schema
        gives, policy = columns_of_type(kind), check_policy(on_error, "frame(on_error)")
        step = added(of, FrameStep, fn=fn, like=like, schema=self.schema, gives=gives, on_error=policy)
        return step, KnownColumns(gives, kind)

    def rows(self, of: Declaring) -> RowsStep:
        """The step of `.rows()`."""
        return added(of, RowsStep, schema=self.schema, kind=self.kind)


class EndsOfColumns(Declaring):
    """What a stream of columns can end in."""

    def __init__(self, app: DeclaringApp, step: Any, columns: KnownColumns) -> None:
        super().__init__(app, step)
        self._columns = columns
        self.schema = columns.schema

    def to(
        self,
        topic: str,
        *,
        key: str | None = None,
        serde: Serde[Any] | None = None,
        key_serde: Serde[Any] | None = None,
        on_error: Policy = None,
    ) -> Ended:
        """Write the columns to an output topic, exactly once: each record as an object with a field for each column.

        Without `key`, the record's own key is written.
        """
        check_topic(topic, "to")
        if self._columns.extra == SHUFFLED:
            raise DeclarationError(
                f"to('{topic}'): the fields that extra='keep' keeps do not pass a repartition", remedy=_WITHOUT
            )
        own = serde_for(self, serde, f"to('{topic}', serde", self.app.serde)
        keys = serde_for(self, key_serde, f"to('{topic}', key_serde", self.app.output_key_serde)
        if self._columns.extra is not None and not is_json(own):
            raise DeclarationError(f"to('{topic}'): extra='keep' keeps fields in JSON", remedy="to(…, serde=hg.json())")
        if (lacking := own.lacking(self.schema)) is not None:
            raise DeclarationError(
                f"to('{topic}'): the schema of {own.name} has a field '{lacking}' without a default, and there is no such column",
                remedy=f"with_columns({lacking}=…), a default in the schema, or | None in the type",
            )
        if is_whole(own) and not is_whole_column(self.schema, own):
            raise DeclarationError(
                f"to('{topic}', serde={own.name}): a record of {own.name} is one column, and these are {self.schema}",
                remedy=f"make it of them: .select({VALUE}=…), or omit serde=",
            )
        if key is not None:
            self._columns.key(key, f"to('{topic}', key=…)", or_boolean=keys.name != OUTPUT_KEY)
        return ended(self, topic, on_error, key=key, serde=own, key_serde=keys, schema=self.schema)

    def share(
        self,
        topic: str,
        *,
        retention: str | float = "7d",
        key: str | None = None,
        partitions: int | None = None,
        key_serde: Serde[Any] | None = None,
        on_error: Policy = None,
    ) -> Ended:
        """Write a stream for other headgate jobs; see `Stream.share`. If the app's `serde` is JSON, they travel as columns, which the other
        job may read as columns or as rows.
        """
        self._columns.alone("share()")
        self.schema.flat("share()")
        self.schema.only_stored("share()")
        if key is not None:
            self._columns.key(key, f"share('{topic}', key=…)", or_boolean=True)
        if not is_json(self.app.serde):
            rows: EndsOfRows[Any, Any] = EndsOfRows(self.app, self._columns.rows(self))
            given: dict[str, Any] = {"partitions": partitions, "key_serde": key_serde, "on_error": on_error}
            return rows.share(topic, retention=retention, key=key, **given)
        own = serde_for(self, key_serde, f"share('{topic}', key_serde", self.app.key_serde)
        return share(self, topic, retention, key, partitions, json(), own, on_error, self.schema)

    def sink(self, fn: Callable[[ColumnBatch], Any], *, on_error: Policy = None) -> Ended:
        """Call `fn(batch)` with each chunk, at least once. `batch.meta["id"]` is the same when a chunk is tried again; after a crash the
        records may be cut into other chunks, so write by a key of the rows.

        The batch speaks the Arrow PyCapsule interface, so that nothing is copied and no object is made of a record.

        >>> orders.filter(hg.col("amount") >= 10).sink(lambda batch: print(polars.DataFrame(batch)))
        """
        self._columns.alone("sink()")
        check_function(fn, "sink", signature="(batch)", awaits=True)
        added(self, SinkStep, fn=fn, schema=self.schema, on_error=check_policy(on_error, "sink"))
        return Ended("sink()")


def _made_of(node: Node, made: Mapping[str, ColumnRef]) -> ColumnRef:
    """What an expression is made of as text, in decoded columns alone; a digest of long text, which may double with each step."""
    text = str(substituted(node, made))
    return ColumnRef(text if len(text) <= _LONG else hashlib.sha256(text.encode()).hexdigest())


def condition(given: Any, schema: ColumnSchema, verb: str) -> Node:
    """The node of an expression that is true or false for each record of this schema; a `DeclarationError` for anything else."""
    if not isinstance(given, Expression):
        remedy = 'an expression: hg.col("amount") >= 10; a function of a value needs rows: .rows()'
        raise DeclarationError(f"{verb}({given!r:.60}) is not an expression", remedy=remedy)
    if isinstance(given.node, ColumnRef):
        schema.value(given.node.name, f"{verb}({given.node})")
    found = kind_of(given.node, schema)
    if found.type != BOOL:
        raise DeclarationError(
            f"{verb}({given.node}) is {found.type}, not a condition", remedy="compare it with something"
        )
    return given.node


def check_conditions(aggregates: Mapping[str, Aggregate], schema: ColumnSchema) -> None:
    """Refuse `where=` of aggregates that is no condition over these columns."""
    for title, part in aggregates.items():
        if part.where is not None and not callable(part.where):
            condition(Expression(part.where), schema, f"agg({title}=hg.{part.name}(…, where=…)): where")


def schema_of_conditions(of: Declaring, aggregates: Mapping[str, Aggregate]) -> ColumnSchema | None:
    """What `where=` of aggregates of rows can read; None if none has it."""
    found: ColumnSchema | None = None
    for title, part in aggregates.items():
        if part.where is not None and not callable(part.where):
            verb = f"agg({title}=hg.{part.name}(…, where={part.where}))"
            found = _read(
                part.where, fields_of_type(type_of_rows(of.step), of.step, verb), verb, "where=lambda value: …"
            )
    if found is not None:
        check_conditions(aggregates, found)
    return found


def _read(
    node: Node, fields: tuple[ColumnSchema, Mapping[str, DeclarationError]], verb: str, function: str
) -> ColumnSchema:
    """The fields of rows that an expression over them can read; a `DeclarationError` if it reads others."""
    schema, refused = fields
    for name in columns_in(node):
        if name in refused:
            raise DeclarationError(f"{verb}: {refused[name].what}", remedy=f"use a function: {function}")
    return schema


def filter_rows(of: Declaring, keep: Expression, with_record: bool, on_error: Policy) -> FilterColumnsStep:
    """The step of `.filter(…)` of rows by an expression."""
    if with_record:
        raise DeclarationError(
            f"filter({keep.node}, with_record=True): an expression has no record", remedy="omit with_record="
        )
    verb = f"filter({keep.node})"
    schema = _read(keep.node, fields_behind(of.step, verb), verb, ".filter(lambda value: …)")
    return KnownColumns(schema).filter(of, keep, on_error)


def columns_behind(of: Declaring, kind: Any, extra: Any, on_error: Policy) -> tuple[ColumnsStep, KnownColumns]:
    """The step of `.columns(…)`, and the columns behind it: of the type that an input declares or, with `kind`, of that type.

    Behind an input of JSON, Avro or Protobuf, the bytes are decoded into columns directly.
    """
    if kind is not None and is_arrow_schema(kind):
        kind = type_of_arrow(kind)
    source = of.step if isinstance(of.step, InputStep) else None
    known = None if source is None else source.serde.type
    if is_message(known):  # it says what a record has, and not what its columns are
        known = None
    whole = _whole_columns(source, kind) if source is not None and is_whole(source.serde) else None
    results = columns_of_results(of.step) if kind is None and known is None else None
    if kind is None and known is None and results is None:
        raise DeclarationError(
            "columns() does not know the columns",
            remedy="declare them: app.input(…, serde=hg.json(Order)), or .columns(Order)",
        )
    if extra not in (None, KEEP):
        raise DeclarationError(f"columns(extra={extra!r:.60})", remedy="extra='keep', or nothing")
    # of a shared stream there are frames, not the bytes of a record
    read = source is not None and (whole is not None or is_json(source.serde) or source.serde.reads_columns)
    plain = read and source is not None and not source.producers
    direct = source if plain and known in (None, kind or known) else None
    if extra is not None and (direct is None or not is_json(direct.serde)):
        raise DeclarationError(
            "columns(extra='keep') needs the bytes of an input in JSON",
            remedy="put it directly behind the input: app.input(…, serde=hg.json(Order)).columns(extra='keep')",
        )
    kind = kind or known
    schema = whole or results or columns_of_type(kind)
    if direct is not None:
        try:
            check_columns_of(direct, schema)
        except DeclarationError:
            if is_json(direct.serde) or whole is not None:
                raise
            direct = None  # rows are made of it, of which a function can make a time or a key
    policy = check_policy(on_error, "columns(on_error)")
    step = added(of, ColumnsStep, schema=schema, direct=direct is not None, keeps=extra is not None, on_error=policy)
    return step, KnownColumns(schema, kind, extra=extra)


def _whole_columns(source: InputStep, kind: Any) -> ColumnSchema:
    """The one column of an input whose values are text or bytes."""
    where = f"the input '{source.topic}' has values of {source.serde.name}"
    if kind is not None:
        raise DeclarationError(
            f"columns({kind!r:.60}): {where}, which have one column, '{VALUE}'", remedy="omit the type: .columns()"
        )
    if source.producers:
        raise DeclarationError(
            f"columns(): {where}, and comes in frames of other jobs",
            remedy=f'make fields of it: .map(lambda value: {{"{VALUE}": value}}).columns(…)',
        )
    return whole_schema(source.serde)
