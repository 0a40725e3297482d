"""Computes expressions over the columns of a chunk, without an object for each record.

    total = Computation((hg.col("amount") * 1.2).node, schema)
    total.vector(chunk)              # a Vector of the base rows; only the selected ones are computed
    keep.picked(chunk)               # the selected base rows for which a condition is true: neither false nor null

What it decides: nothing. What an expression gives, and which records have no value, is said in `core/columns/evaluate.py`. Promises:

- Both ways, compiled and plain, give the same values, and raise the same `NotComputable`: that of the first row that has no value. The
  index counts the selected rows.
- It names all rows that have no value, each with its reason (`all`), so that a chunk need not be computed again for each of them. To find
  them costs each row of their blocks once more, alone.
- A tree becomes a program in postfix order, which `expressions.c` runs over blocks of rows. What it cannot do is a part of its own, and a
  column for the program: what a kernel of pyarrow computes as fast (see `kernels`), and casts between text and floats, which are computed
  on lists, as the plain way does it. A part that may fail is computed for those rows alone for which the expression needs it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cached_property
from itertools import compress, pairwise
from typing import Any

from ....core.columns import expressions as e
from ....core.columns.calendar import PARTS
from ....core.columns.evaluate import NotComputable, cast_of, compiled, function_of
from ....core.columns.lowering import lowered
from ....core.columns.schema import BOOL, FLOAT, INT, MOST, TEXT, ColumnSchema
from ....core.columns.typing import Typed, may_fail, typed
from ..kafka.columns import pick
from ..layout import KINDS, Buffer, longs
from ..memory.vectors import Vector
from ..native import chosen
from .kernels import KERNELS, Kernel, kernel_of
from .records import Records

_COMPARISONS = (e.EQUAL, e.UNEQUAL, e.LESS, e.AT_MOST, e.MORE, e.AT_LEAST)
_CODES: dict[tuple[str, str], int] = {
    one: number
    for number, one in enumerate(
        [
            ("load", ""),
            *(("constant", kind) for kind in KINDS),
            ("float", INT),
            *((name, INT) for name in (e.ADD, e.SUBTRACT, e.MULTIPLY, e.FLOOR_DIVIDE, e.MODULO, e.NEGATIVE, e.FLOOR)),
            *((name, FLOAT) for name in (e.ADD, e.SUBTRACT, e.MULTIPLY, e.DIVIDE, e.NEGATIVE)),
            *((name, kind) for kind in (INT, FLOAT, TEXT) for name in _COMPARISONS),
            *((name, BOOL) for name in (e.EQUAL, e.UNEQUAL, e.AND, e.OR, e.NOT)),
            (e.IS_NULL, ""),
            *((e.IS_IN, kind) for kind in (INT, FLOAT, TEXT)),
            (e.STARTS_WITH, TEXT),
            (e.CONTAINS, TEXT),
            (e.CAST, FLOAT + INT),
            (e.CAST, BOOL + INT),
            (e.CAST, BOOL + FLOAT),
            (e.CAST, INT + TEXT),
            (e.CAST, BOOL + TEXT),
            (e.CAST, TEXT + INT),
            (e.CAST, TEXT + BOOL),
            *((name, TEXT) for name in (e.LENGTH, e.STRIP, e.SLICE, e.SPLIT)),
            *((e.ABS, kind) for kind in (INT, FLOAT)),
            (e.ROUND, FLOAT),
            *((name, kind) for name in (e.LEAST_OF, e.GREATEST_OF) for kind in (INT, FLOAT, TEXT)),
            *((e.HASH, kind) for kind in KINDS),
            ("time", INT),
            (e.STRPTIME, TEXT),
            (e.STRFTIME, INT),
            *((name, "") for name in ("then", "else", "choose", "choose or null", "others", e.COALESCE)),
        ]
    )
}
"""What `expressions.c` can do: the operation and the type that it takes, in the order of its enumeration."""
_APART = frozenset(((FLOAT, TEXT), (TEXT, FLOAT)))
"""The casts that `expressions.c` cannot do."""
_OF_TEXT = frozenset((e.STARTS_WITH, e.CONTAINS, e.LENGTH, e.STRIP, e.SLICE, e.SPLIT))


class _NoValueError(Exception):
    """These base rows have no value."""

    def __init__(self, rows: Sequence[int]) -> None:
        super().__init__(rows)
        self.rows = rows


class Computation:
    """One expression over the columns of a schema; see the top of this file."""

    __slots__ = ("_apart", "_column", "_names", "_parts", "_plain", "_program", "type")

    def __init__(self, node: e.Node, schema: ColumnSchema) -> None:
        node, schema = lowered(node, schema).node, schema.stored
        tree = typed(node, schema)
        self.type = tree.kind.type
        self._plain = compiled(node, schema)
        self._column = node.name if isinstance(node, e.ColumnRef) else None
        self._names = tuple(dict.fromkeys(e.columns_in(node)))
        writer = _Writer(schema, self._names)
        writer.put(tree)
        self._program: Any = chosen.part.program(writer.ops, len(self._names) + len(writer.parts))
        self._parts = writer.parts
        self._apart = len(writer.ops) == len(writer.parts) == 1

    def vector(self, chunk: Records) -> Vector:
        """The value of each base row. What stands in rows that are not selected is of no meaning."""
        if self._program is None and self._column is None:
            return chunk.spread(self.type, self._all(chunk))
        try:
            return self.unexplained(chunk)
        except _NoValueError as error:
            raise self._explained(chunk, error.rows) from None

    def picked(self, chunk: Records) -> Buffer:
        """The selected base rows for which the expression is true."""
        if self._program is None:
            return array("q", compress(chunk.indexes(), self._all(chunk)))
        try:
            return self._run(chunk, True)
        except _NoValueError as error:
            raise self._explained(chunk, error.rows) from None

    def unexplained(self, chunk: Records) -> Vector:
        """As `vector`, for an expression of which this one is a part."""
        if self._column is not None:
            return chunk.vector(self._column)
        if self._apart:
            return self._made(chunk)[0]
        return Vector(self.type, chunk.base_length, *self._run(chunk, False))  # pyright: ignore[reportArgumentType]

    def narrowed(self, chunk: Records) -> Records:
        """The rows for which this condition is true."""
        return chunk.kept(self._run(chunk, True))

    def _run(self, chunk: Records, condition: bool) -> Any:
        made = self._made(chunk)
        vectors = [
            (KINDS.index(one.kind), one.data, one.offsets, one.validity)
            for one in (*map(chunk.vector, self._names), *made)
        ]
        found, places = chosen.part.compute(self._program, vectors, chunk.base_length, chunk.picked, condition)
        if places is not None:
            rows = chunk.indexes()
            raise _NoValueError([rows[place] for place in longs(places)])
        return found

    def _made(self, chunk: Records) -> list[Vector]:
        """The columns that its parts are."""
        try:
            return [part.vector(chunk) for part in self._parts]
        except _NoValueError as error:
            raise _NoValueError(self._failing(chunk, error.rows)) from None

    def _failing(self, chunk: Records, known: Sequence[int]) -> list[int]:
        """All rows that have no value; for some it is known."""
        failing = set(known)
        try:
            self._run(chunk.kept(array("q", [row for row in chunk.indexes() if row not in failing])), False)
        except _NoValueError as error:
            failing.update(error.rows)
        return sorted(failing)

    def _all(self, chunk: Records) -> list[Any]:
        """The values of the selected rows, by the plain way."""
        try:
            return self._plain(chunk, len(chunk))
        except NotComputable:
            raise self._explained(chunk, chunk.indexes()) from None

    def _explained(self, chunk: Records, rows: Sequence[int]) -> NotComputable:
        """What the plain way says of those of these selected base rows that have no value."""
        places = {row: place for place, row in enumerate(chunk.indexes())}
        vectors = [(name, chunk.vector(name)) for name in self._names]
        found: dict[int, NotComputable] = {}
        for row in rows:
            try:
                self._plain({name: [vector.at(row)] for name, vector in vectors}, 1)
            except NotComputable as error:
                error.index = places[row]
                found[places[row]] = error
        first = next(iter(found.values()))
        first.all = found
        return first


class _Part:
    """An operation of an expression that its program cannot do."""

    def __init__(self, one: Typed, schema: ColumnSchema, guards: Sequence[e.Node]) -> None:
        node, was = one.node, one.of[0].kind.type
        assert isinstance(node, e.Operation)
        self.kind = one.kind.type
        self.of = [Computation(part.node, schema) for part in one.of]
        self.guards = [Computation(guard, schema) for guard in guards] if may_fail(one) else []
        self.node = node
        self.plain: Any = None  # of several columns: a kernel computes it, whatever is in them
        if len(one.of) == 1:
            self.plain = cast_of(was, self.kind) if node.name == e.CAST else function_of(node, was)

    @cached_property
    def kernel(self) -> Kernel | None:
        """What computes it for columns, if anything does; pyarrow is loaded for it."""
        return kernel_of(self.node)

    def vector(self, chunk: Records) -> Vector:
        """The value of each base row for which the guards are true, one after the other."""
        for guard in self.guards:
            chunk = guard.narrowed(chunk)
        of = [one.unexplained(chunk) for one in self.of]
        found = self.kernel(of) if self.kernel is not None and chunk.base_length > 0 else None
        return self._listed(chunk, of[0].values()) if found is None else found

    def _listed(self, chunk: Records, values: list[Any]) -> Vector:
        """The same, value by value."""
        plain = self.plain
        given = values if chunk.picked is None else pick(values, longs(chunk.picked).tolist())
        found = [None if value is None else plain(value) for value in given]
        if found.count(None) > given.count(None):
            rows = zip(chunk.indexes(), given, found, strict=True)
            raise _NoValueError([row for row, was, made in rows if made is None and was is not None])
        return chunk.spread(self.kind, found)


class _Writer:
    """Writes a tree as a program."""

    def __init__(self, schema: ColumnSchema, names: tuple[str, ...]) -> None:
        self.schema = schema
        self.names = names
        self.ops: list[tuple[int, int, int, float, Any]] = []
        self.parts: list[_Part] = []
        self.guards: tuple[e.Node, ...] = ()

    def put(self, one: Typed, *, as_float: bool = False) -> None:
        """The ops of this part. `as_float`: a whole number becomes a float."""
        node, kind = one.node, one.kind.type
        if isinstance(node, e.ColumnRef):
            self._load(kind, self.names.index(node.name))
        elif isinstance(node, e.Constant):
            value = float(node.value) if as_float and kind == INT else node.value
            self._constant(value)
            return
        elif node.name in KERNELS or (node.name == e.CAST and (one.of[0].kind.type, kind) in _APART):
            self.parts.append(_Part(one, self.schema, self.guards))
            self._load(kind, len(self.names) + len(self.parts) - 1)
        else:
            self._operation(node, kind, one.of)
        if as_float and kind == INT:
            self._op("float", INT)

    def _op(
        self, name: str, kind: str = "", *, of: str = INT, whole: int = 0, real: float = 0.0, operand: Any = None
    ) -> None:
        self.ops.append((_CODES[name, kind], KINDS.index(of), whole, real, operand))

    def _load(self, kind: str, column: int) -> None:
        self._op("load", of=kind, whole=column)

    def _constant(self, value: Any) -> None:
        kind = e.TYPES[type(value)]
        self._op(
            "constant",
            kind,
            whole=int(value) if kind in (INT, BOOL) else 0,
            real=value if kind == FLOAT else 0.0,
            operand=value.encode() if kind == TEXT else None,
        )

    def _operation(self, node: e.Operation, kind: str, of: tuple[Typed, ...]) -> None:
        was = [one.kind.type for one in of]
        if node.name == e.CAST:
            self._cast(of[0], kind)
            return
        if node.name == e.IS_IN:
            self._is_in(node, of[0])
            return
        if node.name in (e.LEAST_OF, e.GREATEST_OF):
            self._fold(node.name, of, kind)
            return
        if node.name in (e.WHEN, e.COALESCE):
            (self._case if node.name == e.WHEN else self._coalesce)(of, kind == FLOAT)
            return
        real = node.name == e.DIVIDE or (FLOAT in was and node.name != e.IS_NULL)
        for one in of:
            self.put(one, as_float=real)
        takes = "" if node.name == e.IS_NULL else FLOAT if real else was[0]
        if node.name in PARTS:
            self._op("time", INT, whole=list(PARTS).index(node.name))
        elif node.name in (e.STRPTIME, e.STRFTIME):
            self._op(node.name, takes, operand=str(node.options[0]).encode())
        elif node.name == e.ROUND:
            if was[0] == FLOAT:
                self._op(e.ROUND, FLOAT, real=10.0 ** int(node.options[0]))
        elif node.name in _OF_TEXT:
            self._of_text(node.name, node.options)
        else:
            self._op(node.name, takes, whole=int(node.options[0]) if node.name == e.FLOOR else 0)

    def _of_text(self, name: str, options: tuple[Any, ...]) -> None:
        if name == e.SLICE:
            places = array("q", [options[0], options[1] if len(options) == 2 else MOST])
            self._op(name, TEXT, operand=places.tobytes())
        else:
            text = options[0] if options else e.WHITE if name == e.STRIP else ""
            self._op(name, TEXT, whole=options[1] if name == e.SPLIT else 0, operand=text.encode())

    def _is_in(self, node: e.Operation, of: Typed) -> None:
        was = of.kind.type
        real = FLOAT in (was, *(e.TYPES[type(one)] for one in node.options))
        self.put(of, as_float=real)
        if was == TEXT:
            self._op(e.IS_IN, TEXT, operand=tuple(sorted({str(one).encode() for one in node.options})))
        elif was == BOOL:
            self._is_boolean(frozenset(map(bool, node.options)))
        elif real:
            self._op(e.IS_IN, FLOAT, operand=array("d", sorted(map(float, node.options))).tobytes())
        else:
            self._op(e.IS_IN, INT, operand=array("q", sorted(map(int, node.options))).tobytes())

    def _is_boolean(self, values: frozenset[bool]) -> None:
        """The boolean on top is one of these."""
        both = len(values) == 2
        self._constant(True if both else next(iter(values)))
        self._op(e.EQUAL, BOOL)
        if both:  # true of each that is not null
            self._op(e.CAST, BOOL + INT)
            self._constant(0)
            self._op(e.AT_LEAST, INT)

    def _fold(self, name: str, of: tuple[Typed, ...], kind: str) -> None:
        for place, one in enumerate(of):
            self.put(one, as_float=kind == FLOAT)
            if place > 0:
                self._op(name, kind)

    def _case(self, of: tuple[Typed, ...], real: bool) -> None:
        condition, *values = of
        self.put(condition)
        self._op("then")
        self._guarded([condition.node], values[0], real)
        if len(values) == 1:
            self._op("choose or null")
            return
        self._op("else")
        self._guarded([e.Operation(e.WHEN, (condition.node, e.Constant(False), e.Constant(True)))], values[1], real)
        self._op("choose")

    def _coalesce(self, of: tuple[Typed, ...], real: bool) -> None:
        self.put(of[0], as_float=real)
        missing: list[e.Node] = []
        for before, one in pairwise(of):
            missing.append(e.Operation(e.IS_NULL, (before.node,)))
            self._op("others")
            self._guarded(missing, one, real)
            self._op(e.COALESCE)

    def _guarded(self, guards: Sequence[e.Node], one: Typed, real: bool) -> None:
        """A value that is computed only for rows for which the guards are true."""
        before, self.guards = self.guards, (*self.guards, *guards)
        self.put(one, as_float=real)
        self.guards = before

    def _cast(self, of: Typed, kind: str) -> None:
        was: Any = of.kind.type
        self.put(of, as_float=was == INT and kind == FLOAT)
        if was != kind and (was, kind) != (INT, FLOAT):
            self._op(e.CAST, was + kind)
