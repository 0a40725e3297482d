"""Aggregations by key: what `.agg(n=hg.count(), total=hg.sum("total"))` is made of.

An aggregate is four small functions (start, add, merge, result) over one plain state value. Most built-in ones also carry a line of
source code: a step compiles one loop for all of its aggregates, instead of calling several functions per row (`dataclasses` writes
`__init__` in the same way). All built-in ones except `collect`, `first`, `last` and `reduce` merge in any order, so their partial states
can be combined before a shuffle.

With `where=`, only rows count for which a condition is true: neither false nor null, as in SQL's FILTER. Each condition is computed once
for all rows of a chunk and all aggregates that share it; the states are the same as without.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgpack

from ....core.columns.evaluate import NotComputable, compiled
from ....core.columns.expressions import Expression, Node, columns_in
from ....core.columns.logical import COMPUTED_DIGITS, Logical
from ....core.columns.schema import FLOAT, ColumnSchema
from ....core.columns.typing import NUMBERS as COLUMNS_OF_NUMBERS
from ....core.errors import DataError, DeclarationError
from ....core.graph.schema import ANY, Field, digest
from ...records.columns.expressions import Computation
from ...records.columns.selecting import SeveralFields, column_of, lacking, names_in, needs_value
from ...records.logical.logical_columns import shown_values
from .arguments import check_function, check_selector, field_names

Selector = str | Callable[[Any], Any]
Selectors = Selector | Sequence[str]
"""What an aggregate is of whose result is a value of a row: a field, several, or a function of the value."""
ValueColumns = list[Any]
Where = Expression | Callable[[Any], Any] | None
RowTest = Node | Callable[[Any], Any]
Fold = Callable[[list[Any], Sequence[int], Sequence[Any]], None]
Loop = Callable[[Iterable[Any], Iterable[Any], dict[Any, list[Any]]], None]
JoinStates = Callable[[Sequence[Any], Sequence[Any]], list[Any]]
AddLoop = Callable[[Iterable[Any], Iterable[Any], Sequence[list[Any]], dict[Any, list[Any]]], None]
MOST_OF = 200
"""The letters of what a field is of that its schema keeps."""


def no_fold(states: list[Any], places: Sequence[int], values: Sequence[Any]) -> None:
    """Of an aggregate that needs rows."""
    raise NotImplementedError("such states are kept in rows alone")


def _fold_first(states: list[Any], places: Sequence[int], values: Sequence[Any]) -> None:
    for place, value in zip(places, values, strict=True):
        if not states[place]:
            states[place] = (value,)


def _fold_last(states: list[Any], places: Sequence[int], values: Sequence[Any]) -> None:
    for place, value in dict(zip(places, values, strict=True)).items():
        states[place] = value


def _fold_last_where(states: list[Any], places: Sequence[int], values: Sequence[Any]) -> None:
    for place, value in dict(zip(places, values, strict=True)).items():
        states[place] = (value,)


def _fold_all(states: list[Any], places: Sequence[int], values: Sequence[Any]) -> None:
    for place, value in zip(places, values, strict=True):
        states[place].append(value)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate. It has a `copy` if `add` or `merge` may change a state in place."""

    name: str
    of: Selector | None
    start: Callable[[], Any]
    add: Callable[[Any, Any], Any]
    merge: Callable[[Any, Any], Any] | None
    result: Callable[[Any], Any] | None = None
    source: str = ""
    """`add` as a statement: `s` is the list of states, `{i}` the index of this aggregate's state, `{x}` the selected value."""
    copy: Callable[[Any], Any] | None = None
    join: Callable[[Any, Any], Any] | None = None
    """Joins the states of two sessions, the earlier one first, where the order of rows counts and there is therefore no `merge`."""
    by: Selector | None = None
    """What rows are chosen by. Then a value is a pair of what is selected by `of`, and by this."""
    fold: Fold = no_fold
    """Adds values in place to states in a list: `fold(states, places, values)`. It cannot fail for values of columns."""
    grows: bool = False
    """Whether its state takes more with each value."""
    where: RowTest | None = None
    """Only rows count for which this is true."""
    logical: Logical | None = None
    """What its results mean, if they are not what its states are."""
    form: str = ""
    """What its schema says that it is, if not its name: aggregates of one form have states of one form."""

    @property
    def celled(self) -> bool:
        """Whether its states are no numbers, and columns are added to them without rows."""
        return self.fold is not no_fold


def shown_result(part: Aggregate, kind: Logical) -> Aggregate:
    """An aggregate of a column of this logical type, whose states are what the column is stored as."""
    finish = part.result

    def result(state: Any) -> Any:
        found = state if finish is None else finish(state)
        return None if found is None else shown_values([found], kind)[0]

    return replace(part, result=result, logical=replace(kind, digits=COMPUTED_DIGITS) if part.name == "sum" else kind)


def selected(of: Any, name: str) -> Any:
    """What an aggregate is of, if it can be."""
    check_selector(of, f"hg.{name}")
    return of


def taken(of: Any, name: str) -> Any:
    """The same where its result is a value of a row, which several fields may be."""
    return SeveralFields(field_names(of, f"hg.{name}")) if isinstance(of, list | tuple) else selected(of, name)


def condition_of(where: Any, name: str) -> RowTest | None:
    """What `where=` of an aggregate says, if it can."""
    if where is None:
        return None
    if isinstance(where, Expression):
        return where.node
    if not callable(where):
        raise DeclarationError(
            f"hg.{name}(where={where!r:.60}) is no condition", remedy='for example where=hg.col("state") == "open"'
        )
    check_function(where, f"hg.{name}(where=…)")
    return where


def count(*, where: Where = None) -> Aggregate:
    """The number of rows; with `where`, of those for which a condition is true (`hg.count(where=hg.col("state") == "open")`).

    Every aggregate takes `where=`. A row for which it is false or null does not count, as in SQL's FILTER; an aggregate for which no row
    has counted has the value that it has before the first row. An expression needs fields of a declared type, as in `.filter(…)`; of rows,
    a function of the value does, too.
    """
    condition = condition_of(where, "count")
    return Aggregate("count", None, int, lambda s, _x: s + 1, lambda a, b: a + b, None, "s[{i}] += 1", where=condition)


def sum(of: Selector, *, where: Where = None) -> Aggregate:
    """The sum of a field (`hg.sum("amount")`) or of a function of the value. A sum of whole numbers is exact, however large; one of floats
    is a float."""
    return Aggregate(
        "sum",
        selected(of, "sum"),
        int,
        lambda s, x: s + x,
        lambda a, b: a + b,
        None,
        "s[{i}] += {x}",
        where=condition_of(where, "sum"),
    )


def _least(a: Any, b: Any) -> Any:
    return b if a is None or (b is not None and b < a) else a


def _greatest(a: Any, b: Any) -> Any:
    return b if a is None or (b is not None and b > a) else a


def min(of: Selector, *, where: Where = None) -> Aggregate:
    """The least value; None before the first row."""
    source = "x = {x}\nif s[{i}] is None or x < s[{i}]: s[{i}] = x"
    condition = condition_of(where, "min")
    return Aggregate("min", selected(of, "min"), _nothing, _least, _least, None, source, where=condition)


def max(of: Selector, *, where: Where = None) -> Aggregate:
    """The greatest value; None before the first row."""
    source = "x = {x}\nif s[{i}] is None or x > s[{i}]: s[{i}] = x"
    condition = condition_of(where, "max")
    return Aggregate("max", selected(of, "max"), _nothing, _greatest, _greatest, None, source, where=condition)


def _nothing() -> Any:
    return None


def mean(of: Selector, *, where: Where = None) -> Aggregate:
    """The mean. Its state is a pair of count and sum, so that means can be merged."""
    return Aggregate(
        "mean",
        selected(of, "mean"),
        lambda: (0, 0),
        lambda s, x: (s[0] + 1, s[1] + x),
        lambda a, b: (a[0] + b[0], a[1] + b[1]),
        lambda s: s[1] / s[0] if s[0] else None,
        where=condition_of(where, "mean"),
    )


def first(of: Selectors, *, where: Where = None) -> Aggregate:
    """The value of the first row, in the order of the stream's partition."""
    return Aggregate(
        "first",
        taken(of, "first"),
        tuple,
        lambda s, x: s or (x,),
        None,
        lambda s: s[0] if s else None,
        join=lambda a, b: a or b,
        fold=_fold_first,
        where=condition_of(where, "first"),
    )


def last(of: Selectors, *, where: Where = None) -> Aggregate:
    """The value of the last row. In a sliding window this is the row whose window it is."""
    selector, condition = taken(of, "last"), condition_of(where, "last")
    if condition is None:
        return Aggregate(
            "last",
            selector,
            _nothing,
            lambda _s, x: x,
            None,
            None,
            "s[{i}] = {x}",
            join=lambda _a, b: b,
            fold=_fold_last,
        )
    # a later session may have no row that counts, and one that counts may have the value None
    return Aggregate(
        "last",
        selector,
        tuple,
        lambda _s, x: (x,),
        None,
        lambda s: s[0] if s else None,
        "s[{i}] = ({x},)",
        join=lambda a, b: b or a,
        fold=_fold_last_where,
        where=condition,
        form="last where",
    )


def reduce(of: Selector, fn: Callable[[Any, Any], Any], *, where: Where = None) -> Aggregate:
    """The values put together: it begins with the first one, and `fn(so_far, value)` returns the next. None before the first row.

    The rows come in the order of the stream's partition. The states of two sessions that become one are put together by `fn`, too, and so
    are the parts of a sliding window, where `fn` must be associative. For a beginning of its own, or for partial states before a shuffle,
    take `hg.aggregate`.
    """
    check_function(fn, "hg.reduce(fn=…)", number=2, signature="(so_far, value)")
    return Aggregate(
        "reduce",
        selected(of, "reduce"),
        tuple,
        lambda s, x: (fn(s[0], x),) if s else (x,),
        None,
        lambda s: s[0] if s else None,
        copy=deepcopy,
        join=lambda a, b: (fn(a[0], b[0]),) if a and b else a or b,
        where=condition_of(where, "reduce"),
    )


def collect(of: Selectors, *, where: Where = None) -> Aggregate:
    """All values, as a list. The list grows without bound: use a window, or make sure that it stays short."""
    return Aggregate(
        "collect",
        taken(of, "collect"),
        list,
        lambda s, x: [*s, x],
        None,
        list,
        "s[{i}].append({x})",
        list,
        lambda a, b: [*a, *b],
        fold=_fold_all,
        grows=True,
        where=condition_of(where, "collect"),
    )


def aggregate(
    init: Callable[[], Any],
    add: Callable[[Any, Any], Any],
    merge: Callable[[Any, Any], Any] | None = None,
    *,
    result: Callable[[Any], Any] | None = None,
    where: Where = None,
) -> Aggregate:
    """A custom aggregate: `init()` makes a state, and `add(state, value)` returns the next one.

    With `merge(a, b)`, partial states are combined before a shuffle. msgpack must be able to encode the state. `result(state)` turns the
    state into the value that is passed on.

    >>> longest = aggregate(str, lambda state, value: max(state, value["name"], key=len), max)
    """
    for what, fn, number in (("init", init, 0), ("add", add, 2), ("merge", merge, 2), ("result", result, 1)):
        if fn is not None:
            check_function(fn, f"hg.aggregate({what}=…)", number=number, signature=SIGNATURES[what])
    state = init()
    try:
        msgpack.packb(state)
    except (TypeError, ValueError) as error:
        raise DeclarationError(
            f"hg.aggregate(): init() returns {state!r}, which cannot be stored: {error}",
            remedy="keep the state in plain values (numbers, text, lists, dicts), and compute the rest in result=",
        ) from None
    condition = condition_of(where, "aggregate")
    return Aggregate("aggregate", lambda value: value, init, add, merge, result, "", deepcopy, where=condition)


SIGNATURES = {"init": "()", "add": "(state, value)", "merge": "(a, b)", "result": "(state)"}


class AggregatePlan:
    """The aggregates of one step, compiled: one loop for all of them."""

    def __init__(self, parts: Mapping[str, Aggregate], schema: ColumnSchema | None = None) -> None:
        """`schema`: what conditions can read."""
        self.names = tuple(parts)
        self.parts = tuple(parts.values())
        self.fields = _fields_of(parts)
        """The schema of the states."""
        self.digest = digest(self.fields)
        """Distinguishes partial states of this plan from those of another: each frame of partial states carries it."""
        self.schema = schema
        self.conditions = tuple(dict.fromkeys(part.where for part in self.parts if part.where is not None))
        """What `where=` says, each once."""
        self.met_by = [None if part.where is None else self.conditions.index(part.where) for part in self.parts]
        """For each aggregate, the number of its condition."""
        nodes = [one for one in self.conditions if not callable(one)]
        self._asked = {name: column_of(name) for node in nodes for name in columns_in(node)}
        self._fields = [name for part in self.parts for one in (part.of, part.by) for name in names_in(one)]
        self.reads = frozenset(self._fields).union(self._asked)
        """The fields that the aggregates are of, and those of conditions."""
        self.merges = all(part.merge is not None for part in self.parts)
        """Whether partial states may be combined before a shuffle."""
        self.joins = [part.merge or part.join for part in self.parts]
        self.joined: JoinStates = _compile_join(self.parts)
        """Makes the states of rows from those of the earlier and of the later ones, if all `joins` are known. It may change both, if they
        have copies."""
        self.merge: Loop = _compile_merge(self.parts)
        """Merges partial states in place: `merge(keys, partials, states)`."""
        self._add_items = _compile_add(self.parts, self.met_by, items=True)
        self._add_attributes = _compile_add(self.parts, self.met_by, items=False)
        self.numeric = all(part.name in NUMERIC for part in self.parts)
        """Whether all aggregates work on numbers alone: then a column of numbers can be added in place, because that cannot fail."""
        self._add_columns, self._merge_columns = _compile_columns(self.parts) if self.numeric else (None, None)
        self.select = [column_of(part.of) if part.of is not None else None for part in self.parts]
        """For each aggregate, what selects its values from rows; None for a count."""
        self._judges = [self._judge(one) for one in self.conditions]
        self._starts = [part.start for part in self.parts]
        self._copies = [(i, part.copy) for i, part in enumerate(self.parts) if part.copy is not None]
        self.has_copies = bool(self._copies)
        """Whether some states may be changed in place."""
        self._results = _compile_results(self.names, self.parts)
        self._former = _compile_results([*map(before_of, self.names)], self.parts)
        self.of_last = [i for i, part in enumerate(parts.values()) if part.name == "last" and part.where is None]
        """The aggregates that are of the last row, whichever it is."""
        self.shows = any(part.logical is not None for part in self.parts)
        """Whether some results are other values than the states, of columns of logical types."""

    def named_by(self, key: frozenset[str]) -> frozenset[str]:
        """The results that are the key of their rows, which has the same value in these fields of all of them."""
        return frozenset(
            name
            for name, part in zip(self.names, self.parts, strict=True)
            if part.name in OF_ONE and isinstance(part.of, str) and part.of in key and part.where is None
        )

    def _known(self) -> ColumnSchema:
        if self.schema is None:
            raise DeclarationError("where= needs fields of a declared type", remedy="declare it: serde=hg.json(Order)")
        return self.schema

    def _judge(self, condition: RowTest) -> Callable[[list[Any]], list[Any]]:
        """Says of rows whether they meet a condition."""
        if callable(condition):
            return column_of(condition)
        judge = compiled(condition, self._known())
        return lambda values: judge({name: field(values) for name, field in self._asked.items()}, len(values))

    @cached_property
    def computations(self) -> list[Computation]:
        """The conditions, for chunks of columns."""
        return [Computation(one, self._known()) for one in self.conditions if not callable(one)]

    def met(self, values: list[Any]) -> list[list[Any]]:
        """For each condition, whether these rows meet it. What has no value is an error."""
        try:
            return [judge(values) for judge in self._judges]
        except NotComputable as error:
            raise DataError(error.what, remedy=error.remedy) from error

    def of_no_number(self, schema: ColumnSchema) -> Aggregate | None:
        """The first aggregate of numbers that is of another column."""
        types = {one.name: one.type for one in schema.columns}
        adding = (part for part in self.parts if part.name in OF_NUMBERS)
        return next((part for part in adding if types.get(str(part.of)) not in (*COLUMNS_OF_NUMBERS, None)), None)

    def why_no_arrays(self, schema: ColumnSchema | None) -> str | None:
        """Why the states of these columns cannot be kept in arrays; None if they can. A column that is not known is taken for numbers."""
        types = {} if schema is None else {one.name: one.type for one in schema.columns}
        for part in self.parts:
            if part.celled:
                continue
            if part.name not in NUMERIC:
                return f"hg.{part.name}() is of rows"
            if types.get(str(part.of), FLOAT) not in COLUMNS_OF_NUMBERS:
                return f"hg.{part.name}('{part.of}') is of {types[str(part.of)]}, and arrays hold numbers"
        return None

    def add(self, keys: Iterable[Any], values: list[Any], states: dict[Any, list[Any]], *, items: bool = True) -> None:
        """Add rows in place: `states[key]` is a list with one state per aggregate. `items`: fields are items, not attributes."""
        (self._add_items if items else self._add_attributes)(keys, values, self.met(values), states)

    def columns(self, values: list[Any]) -> ValueColumns | None:
        """The columns of these rows for `add_columns`, one per aggregate; None if not all of them are numbers, or not
        all rows count for all aggregates."""
        if not self.numeric or not values or self.conditions:
            return None
        return self._numbers([select and select(values) for select in self.select], partial=False)

    def partials(self, states: list[Any]) -> ValueColumns | None:
        """The same of partial states, which are columns already."""
        return self._numbers(states, partial=True) if self.numeric and states else None

    def _numbers(self, found: list[Any], *, partial: bool) -> ValueColumns | None:
        for part, column in zip(self.parts, found, strict=True):
            if column is None:
                continue
            if partial and part.name == "mean":
                if not all(map(_is_mean, column)):
                    return None
            elif not NUMBERS.issuperset(map(type, column)):
                return None
            elif part.name in ("sum", "mean"):
                # a sum that no float can hold fails here, with its record, and not later when it is added to a float
                float(builtins.sum(column))
        return found

    def plain(self, states: Sequence[Any]) -> bool:
        """Whether columns of numbers can be added to these states: there is one state per aggregate, and each of a number is one (for a
        mean, a pair of numbers; for `min` and `max`, possibly None).
        """
        if len(states) != len(self.parts):
            return False
        return all(
            _is_mean(state)
            if part.name == "mean"
            else type(state) in NUMBERS or (state is None and part.name in ("min", "max"))
            for part, state in zip(self.parts, states, strict=True)
            if part.name in NUMERIC
        )

    def all_plain(self, states: Iterable[Sequence[Any]]) -> bool:
        """Whether all of these states are plain, checked column by column; False means that some of them may not be."""
        rows = list(states)
        try:
            columns = list(zip(*rows, strict=True))
        except ValueError:
            return False
        if len(columns) != len(self.parts):
            return not rows
        return all(
            all(map(_is_mean, column)) if part.name == "mean" else NUMBERS.issuperset(map(type, column))
            for part, column in zip(self.parts, columns, strict=True)
            if part.name in NUMERIC
        )

    def add_columns(
        self, keys: Iterable[Any], columns: ValueColumns, states: dict[Any, list[Any]], *, partial: bool
    ) -> None:
        """Add columns of numbers in place. A key without states gets those of its first row."""
        loop: Any = self._merge_columns if partial else self._add_columns
        loop(keys, *[column for column in columns if column is not None], states)

    def lacking(self, values: list[Any]) -> Callable[[BaseException], str]:
        """Explains why adding these rows failed: see `selecting.lacking`."""
        return lacking([*self._fields, *self._asked], values)

    def start(self) -> list[Any]:
        """The initial states of a new key."""
        return [start() for start in self._starts]

    def copy(self, states: Sequence[Any]) -> list[Any]:
        """A copy that may be changed without changing these states."""
        made = list(states)
        for i, copy in self._copies:
            made[i] = copy(made[i])
        return made

    def results(self, states: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
        """The results of many keys, as users see them."""
        return self._results(states)

    def changes(self, states: Sequence[Sequence[Any]], former: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
        """The same, each with what it replaces: the results of the former states."""
        return [now | before for now, before in zip(self._results(states), self._former(former), strict=True)]


def plan(aggregates: Mapping[str, Aggregate], schema: ColumnSchema | None = None) -> AggregatePlan:
    """Compile the aggregates of a step into one loop. `schema`: what their conditions can read.

    >>> p = plan({"n": count(), "total": sum("x")})
    >>> states = {"a": p.start()}
    >>> p.add(["a", "a"], [{"x": 2}, {"x": 3}], states)
    >>> p.results([states["a"]])
    [{'n': 2, 'total': 5}]
    """
    check_are_aggregates(aggregates)
    return AggregatePlan(aggregates, schema)


def check_are_aggregates(aggregates: Mapping[str, Aggregate]) -> None:
    """Refuse what is no aggregate."""
    if not aggregates:
        raise DeclarationError("agg() needs at least one aggregate", remedy="for example .agg(n=hg.count())")
    for name, part in aggregates.items():
        if not isinstance(part, Aggregate):
            raise DeclarationError(
                f"agg({name}=…) is {part!r}, which is not an aggregate",
                remedy="use hg.count(), hg.sum(…), hg.aggregate(…)",
            )


def _check_flag(name: str, value: Any) -> None:
    """Refuse what is no answer to yes or no, such as an aggregate that has the name of an argument."""
    if not isinstance(value, bool):
        raise DeclarationError(
            f"agg({name}={value!r:.60}) is neither True nor False",
            remedy="leave it out, or name the aggregate otherwise" if isinstance(value, Aggregate) else "leave it out",
        )


def before_of(name: str) -> str:
    """The field of an update that says what the result was before it."""
    return f"{name}_before"


def check_before(before: Any, of: AggregatePlan) -> bool:
    """Refuse what does not say whether updates say what they replace, and results that have the name of such a field."""
    _check_flag("before", before)
    if before and (taken := set(of.names).intersection(map(before_of, of.names))):
        name = builtins.min(taken)
        raise DeclarationError(
            f"agg({name}=…, before=True): '{name}' is what the result before an update is called",
            remedy="name the aggregate otherwise",
        )
    return before


def check_combine(combine: Any, of: AggregatePlan) -> bool | None:
    """Refuse what does not say whether to combine, and combining what cannot be merged."""
    if combine is not None:
        _check_flag("combine", combine)
    if combine and not of.merges:
        name = next(name for name, part in zip(of.names, of.parts, strict=True) if part.merge is None)
        raise DeclarationError(
            f"agg({name}=hg.aggregate(…), combine=True): nothing says how two states become one",
            remedy="tell it: hg.aggregate(init, add, merge), or leave combine= out",
        )
    return combine


def _compile_add(parts: Sequence[Aggregate], met_by: Sequence[int | None], *, items: bool) -> AddLoop:
    scope: dict[str, Any] = {}
    met = "".join(f", w{number}" for number in sorted({one for one in met_by if one is not None}))
    lines = [
        "def loop(keys, values, met, states):",
        f"    for k, v{met} in zip(keys, values, *met, strict=True):",
        "        s = states[k]",
    ]
    for i, part in enumerate(parts):
        selected = _selecting(scope, f"of_{i}", part.of, items)
        if part.by is not None:
            selected = f"({selected}, {_selecting(scope, f'by_{i}', part.by, items)})"
        indent = " " * 8
        if (number := met_by[i]) is not None:
            lines.append(f"{indent}if w{number}:")
            indent += " " * 4
        if part.source:
            lines += [indent + line for line in part.source.format(i=i, x=selected).splitlines()]
        else:
            scope[f"add_{i}"] = part.add
            lines.append(f"{indent}s[{i}] = add_{i}(s[{i}], {selected})")
    exec("\n".join(lines), scope)
    return scope["loop"]


def _selecting(scope: dict[str, Any], name: str, of: Selector | None, items: bool) -> str:
    """The expression that selects from a value `v`."""
    if of is None:
        return "v"
    scope[name] = of
    if callable(of):
        return f"{name}(v)"
    return f"v[{name}]" if items else f"getattr(v, {name})"


MIN = "if s[{i}] is None or x{i} < s[{i}]: s[{i}] = x{i}"
MAX = "if s[{i}] is None or x{i} > s[{i}]: s[{i}] = x{i}"
"""A state can be None, for example if its field was added to the code after the key's first row."""
ADDS = {
    "count": ("s[{i}] += 1", "s[{i}] += x{i}", "1", "x{i}"),
    "sum": ("s[{i}] += x{i}", "s[{i}] += x{i}", "x{i}", "x{i}"),
    "min": (MIN, MIN, "x{i}", "x{i}"),
    "max": (MAX, MAX, "x{i}", "x{i}"),
    "mean": (
        "s[{i}] = (s[{i}][0] + 1, s[{i}][1] + x{i})",
        "s[{i}] = (s[{i}][0] + x{i}[0], s[{i}][1] + x{i}[1])",
        "(1, x{i})",
        "x{i}",
    ),
}
"""For numbers: the statements that add a row and a partial state in place, and the first state of a key from either."""
NUMERIC = frozenset(ADDS)
OF_ONE = ("first", "last", "min", "max")
"""Aggregates whose result is the value of one of their rows."""
NEVER_NULL = NUMERIC | {"quantile"}
"""Aggregates of columns in which a null is an error, in rows that count."""
OF_NUMBERS = ("sum", "mean", "quantile")
"""Aggregates that take numbers alone."""
NUMBERS = frozenset((int, float))


def _is_mean(state: Any) -> bool:
    return type(state) in (tuple, list) and len(state) == 2 and NUMBERS.issuperset(map(type, state))


def _compile_columns(parts: Sequence[Aggregate]) -> tuple[Callable[..., None], Callable[..., None]]:
    loops: list[Callable[..., None]] = []
    for partial in (False, True):
        having = [i for i, part in enumerate(parts) if partial or part.of is not None]
        columns, names = [f"c{i}" for i in having], [f"x{i}" for i in having]
        begin = ", ".join(ADDS[part.name][2 + partial].format(i=i) for i, part in enumerate(parts))
        lines = [
            f"def loop({', '.join(['keys', *columns, 'states'])}):",
            f"    for {', '.join(['k', *names])}, in zip({', '.join(['keys', *columns])}):",
            "        try:",
            "            s = states[k]",
            "        except KeyError:",
            f"            states[k] = [{begin}]",
            "            continue",
            *("        " + ADDS[part.name][int(partial)].format(i=i) for i, part in enumerate(parts)),
        ]
        scope: dict[str, Any] = {}
        exec("\n".join(lines), scope)
        loops.append(scope["loop"])
    return loops[0], loops[1]


def _compile_merge(parts: Sequence[Aggregate]) -> Loop:
    scope: dict[str, Any] = {}
    lines = [
        "def loop(keys, partials, states):",
        "    for k, p in zip(keys, partials, strict=True):",
        "        s = states[k]",
    ]
    for i, part in enumerate(parts):
        if part.name in ("count", "sum"):
            lines.append(f"        s[{i}] += p[{i}]")
        else:
            scope[f"merge_{i}"] = part.merge
            lines.append(f"        s[{i}] = merge_{i}(s[{i}], p[{i}])")
    exec("\n".join(lines), scope)
    return scope["loop"]


JOINS = {
    "count": "a[{i}] + b[{i}]",
    "sum": "a[{i}] + b[{i}]",
    "min": "b[{i}] if a[{i}] is None or (b[{i}] is not None and b[{i}] < a[{i}]) else a[{i}]",
    "max": "b[{i}] if a[{i}] is None or (b[{i}] is not None and b[{i}] > a[{i}]) else a[{i}]",
}
"""Expressions that put two states together."""


def _compile_join(parts: Sequence[Aggregate]) -> JoinStates:
    scope: dict[str, Any] = {}
    made: list[str] = []
    for i, part in enumerate(parts):
        scope[f"join_{i}"] = part.merge or part.join
        made.append(JOINS.get(part.name, "join_{i}(a[{i}], b[{i}])").format(i=i))
    exec(f"def joined(a, b):\n    return [{', '.join(made)}]", scope)
    return scope["joined"]


def _compile_results(names: Sequence[str], parts: Sequence[Aggregate]) -> Callable[[Any], list[dict[str, Any]]]:
    scope: dict[str, Any] = {}
    made: list[str] = []
    for i, (name, part) in enumerate(zip(names, parts, strict=True)):
        scope[f"result_{i}"] = part.result
        made.append(f"{name!r}: s{i}" if part.result is None else f"{name!r}: result_{i}(s{i})")
    each = "".join(f"s{i}, " for i in range(len(parts)))
    exec(f"def results(states):\n    return [{{{', '.join(made)}}} for {each}in states]", scope)
    return scope["results"]


# ----------------------------------------------------------------------------------------------------------------- schemas


def _fields_of(parts: Mapping[str, Aggregate]) -> tuple[Field, ...]:
    """The fields of an aggregate's state."""
    return tuple(Field(name, part.form or part.name, _type_of(part), _name_of(part)) for name, part in parts.items())


def _type_of(part: Aggregate) -> str:
    if part.logical is not None:  # states of another type would stand for other values
        return str(part.logical)
    return type(part.start()).__name__ if part.name == "aggregate" else ANY


def _name_of(part: Aggregate) -> str:
    selector: Any = part.add if part.name == "aggregate" else part.of
    name = getattr(selector, "__qualname__", "") if needs_value(selector) else str(selector or "")
    name = "" if "<lambda>" in name else name
    if part.by is not None:
        name = f"{name} by {'a function' if callable(part.by) else part.by}"
    if part.where is None:
        return name
    return f"{name} where {'a function' if callable(part.where) else part.where}".strip()[:MOST_OF]
