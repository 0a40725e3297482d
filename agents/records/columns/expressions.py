"""Computes expressions over the columns of a chunk, without an object for each record.

    total = Computation((hg.col("amount") * 1.2).node, schema)
    total.vector(chunk)              # a Vector of the base rows; only the selected ones are computed
    keep.picked(chunk)               # the selected base rows for which a condition is true: neither false nor null

What it decides: nothing. What an expression gives, and which records have no value, is said in `core/columns/evaluate.py`. Promises:

- Both ways, compiled and plain, give the same values, and raise the same `NotComputable`: that of the part of the expression that is
  computed first, at its first record. The index counts the selected rows.
- It names all rows that have no value, each with its reason (`all`), so that a chunk need not be computed again for each of them. To find
  them costs each row once more, alone.
- A tree becomes a program in postfix order, which `expressions.c` runs over blocks of rows. Casts between text and floats are computed on
  lists, as the plain way does it, and are a column for the program; so is nothing else.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import compress
from typing import Any

from ....core.columns import expressions as e
from ....core.columns.evaluate import Compute, NotComputable, compiled
from ....core.columns.schema import BOOL, FLOAT, INT, TEXT, ColumnSchema
from ....core.columns.typing import Typed, typed
from ..layout import KINDS, Buffer, longs
from ..memory.vectors import Vector
from ..native import chosen
from .column_chunk import ColumnChunk

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
        ]
    )
}
"""What `expressions.c` can do: the operation and the type that it takes, in the order of its enumeration."""
_SLOW = ((FLOAT, TEXT), (TEXT, FLOAT))


class Computation:
    """One expression over the columns of a schema; see the top of this file."""

    __slots__ = ("_column", "_names", "_plain", "_program", "_slow", "type")

    def __init__(self, node: e.Node, schema: ColumnSchema) -> None:
        tree = typed(node, schema)
        self.type = tree.kind.type
        self._plain = compiled(node, schema)
        self._column = node.name if isinstance(node, e.ColumnRef) else None
        self._names = tuple(dict.fromkeys(e.columns_in(node)))
        writer = _Writer(schema, self._names)
        writer.put(tree)
        self._program: Any = chosen.part.program(writer.ops, len(self._names) + len(writer.slow))
        self._slow = writer.slow

    def vector(self, chunk: ColumnChunk) -> Vector:
        """The value of each base row. What stands in rows that are not selected is of no meaning."""
        if self._column is not None:
            return chunk.vector(self._column)
        if self._program is None:
            return chunk.spread(self.type, self._all(chunk))
        return Vector(self.type, chunk.base_length, *self._run(chunk, False))  # pyright: ignore[reportArgumentType]

    def picked(self, chunk: ColumnChunk) -> Buffer:
        """The selected base rows for which the expression is true."""
        if self._program is None:
            return array("q", compress(chunk.indexes(), self._all(chunk)))
        return self._run(chunk, True)

    def _run(self, chunk: ColumnChunk, condition: bool) -> Any:
        try:
            slow = [chunk.spread(kind, compute(chunk, len(chunk))) for kind, compute in self._slow]
        except NotComputable:
            self._all(chunk)  # another part may come before
            raise
        vectors = [
            (KINDS.index(one.kind), one.data, one.offsets, one.validity)
            for one in (*map(chunk.vector, self._names), *slow)
        ]
        first, found, places = chosen.part.compute(self._program, vectors, chunk.base_length, chunk.picked, condition)
        if first >= 0:
            explained = self._explained(chunk, longs(places).tolist())
            explained[first].all = explained
            raise explained[first]
        return found

    def _all(self, chunk: ColumnChunk) -> list[Any]:
        """The values of the selected rows, by the plain way."""
        try:
            return self._plain(chunk, len(chunk))
        except NotComputable as error:
            error.all = self._explained(chunk, range(len(chunk)))
            raise

    def _explained(self, chunk: ColumnChunk, places: Iterable[int]) -> dict[int, NotComputable]:
        """Those of these selected rows that have no value, each with what the plain way says of it."""
        rows = chunk.indexes()
        vectors = [(name, chunk.vector(name)) for name in self._names]
        found: dict[int, NotComputable] = {}
        for place in places:
            try:
                self._plain({name: [vector.at(rows[place])] for name, vector in vectors}, 1)
            except NotComputable as error:
                error.index = place
                found[place] = error
        return found


class _Writer:
    """Writes a tree as a program."""

    def __init__(self, schema: ColumnSchema, names: tuple[str, ...]) -> None:
        self.schema = schema
        self.names = names
        self.ops: list[tuple[int, int, int, float, Any]] = []
        self.slow: list[tuple[str, Compute]] = []

    def put(self, one: Typed, *, as_float: bool = False) -> None:
        """The ops of this part. `as_float`: a whole number becomes a float."""
        node, kind = one.node, one.kind.type
        if isinstance(node, e.ColumnRef):
            self._load(kind, self.names.index(node.name))
        elif isinstance(node, e.Constant):
            value = float(node.value) if as_float and kind == INT else node.value
            self._constant(value)
            return
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
            self._cast(node, of[0], kind)
            return
        if node.name == e.IS_IN:
            self._is_in(node, of[0])
            return
        real = node.name == e.DIVIDE or (FLOAT in was and node.name != e.IS_NULL)
        for one in of:
            self.put(one, as_float=real)
        takes = "" if node.name == e.IS_NULL else FLOAT if real else was[0]
        if node.name in (e.STARTS_WITH, e.CONTAINS):
            self._op(node.name, takes, operand=str(node.options[0]).encode())
        else:
            self._op(node.name, takes, whole=int(node.options[0]) if node.name == e.FLOOR else 0)

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

    def _cast(self, node: e.Operation, of: Typed, kind: str) -> None:
        was: Any = of.kind.type
        if (was, kind) in _SLOW:
            self.slow.append((kind, compiled(node, self.schema)))
            self._load(kind, len(self.names) + len(self.slow) - 1)
            return
        self.put(of, as_float=was == INT and kind == FLOAT)
        if was != kind and (was, kind) != (INT, FLOAT):
            self._op(e.CAST, was + kind)
