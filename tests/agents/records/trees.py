"""Random expressions and random columns for them."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headgate.agents.records.columns.records import Records
from headgate.agents.records.layout import longs
from headgate.agents.records.memory.vectors import Vector, VectorBatch
from headgate.core.columns import expressions as e
from headgate.core.columns.evaluate import NotComputable, compiled
from headgate.core.columns.schema import BOOL, FLOAT, INT, PYTHON, TEXT, ColumnKind, ColumnSchema, ColumnSpec

from ...core.columns import drawn

SCHEMA = ColumnSchema(
    tuple(ColumnSpec(f"{type_[0]}{i}", type_, optional=i > 0) for type_ in (INT, FLOAT, BOOL, TEXT) for i in (0, 1))
)
KINDS: list[ColumnKind] = [INT, FLOAT, BOOL, TEXT]
SOME: dict[str, list[Any]] = {
    INT: [0, 1, -1, 2, 3, -7, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), 60_000, 119_999],
    FLOAT: [0.0, -0.0, 1.0, 1.5, -2.5, 1e300, -1e300, 5e-324, 2.675, 0.125, 2.5, -0.45, 9.3e18, -9223372036854775808.0],
    BOOL: [True, False],
    TEXT: [
        "",
        "a",
        "ab",
        "abab",
        "true",
        "false",
        "12",
        "-0",
        "-9223372036854775808",
        "1.5",
        "1e400",
        "ä",
        "ä€😀",
        "z" * 40,
        " \t a\u2003",
        "Straße ΣAΣ",
        "ab\n",
    ],
}


def value(chance: random.Random, type_: str) -> Any:
    """A value of this type, often one at an edge."""
    if chance.random() < 0.6:
        return chance.choice(SOME[type_])
    match type_:
        case "int64":
            return chance.randint(-20, 20) if chance.random() < 0.7 else chance.randint(-(2**63), 2**63 - 1)
        case "float64":
            return chance.choice(
                [chance.uniform(-100, 100), float(chance.randint(-9, 9)), chance.uniform(-1, 1) * 1e308]
            )
        case "bool":
            return chance.random() < 0.5
        case _:
            return "".join(chance.choice("ab1-ü€") for _ in range(chance.randint(0, 6)))


def tree(chance: random.Random, type_: ColumnKind, depth: int = 4) -> e.Node:
    """An expression of this type."""

    def of(*types: ColumnKind) -> e.Node:
        return tree(chance, chance.choice(types), depth - 1)

    if depth == 0 or chance.random() < 0.2:
        if chance.random() < 0.3:
            return e.constant(value(chance, type_), "")
        return e.col(chance.choice([one.name for one in SCHEMA.columns if one.type == type_])).node
    if chance.random() < 0.2:
        alike = (INT, FLOAT) if type_ == FLOAT else (type_,)
        several = tuple(of(*alike) for _ in range(chance.randint(1, 3)))
        return (
            e.Operation("coalesce", several) if chance.random() < 0.5 else e.Operation("when", (of(BOOL), *several[:2]))
        )
    if type_ == TEXT and chance.random() < 0.7:
        return drawn.of_text(chance, lambda: of(TEXT))
    if type_ == INT and chance.random() < 0.15:
        return e.Expression(of(*KINDS)).hash().node if chance.random() < 0.5 else e.Expression(of(TEXT)).length().node
    if type_ == INT and chance.random() < 0.15:
        return drawn.of_time(chance, lambda: of(INT))
    if type_ == TEXT and chance.random() < 0.1:
        return e.Expression(of(INT)).strftime(chance.choice([*drawn.FORMS, "%%%z 100%"[:-1]])).node
    if type_ in (INT, FLOAT) and chance.random() < 0.2:
        return drawn.of_number(chance, lambda: of(type_))
    if type_ == TEXT or chance.random() < 0.15:
        was = chance.choice([one for one in KINDS if (one, type_) not in ((INT, BOOL), (FLOAT, BOOL))])
        return e.Expression(of(was)).cast(PYTHON[type_]).node
    if type_ == BOOL:
        return _condition(chance, of)
    name = chance.choice([*("+-*"), *(("//", "%", "floor") if type_ == INT else ("/",)), "negative"])
    if name == "negative":
        return e.Operation(name, (of(type_),))
    if name == "floor":
        return e.Operation(name, (of(INT),), (chance.choice([1, 7, 1000, 3_600_000]),))
    both = [of(type_), of(type_) if type_ == INT else of(INT, FLOAT)]
    chance.shuffle(both)
    return e.Operation(name, tuple(both))


def _condition(chance: random.Random, of: Any) -> e.Node:
    name = chance.choice(["==", "!=", "<", "<=", ">", ">=", "&", "|", "&", "|", "~", *_OTHERS])
    if name in ("&", "|"):
        return e.Operation(name, (of(BOOL), of(BOOL)))
    if name == "~":
        return e.Operation(name, (of(BOOL),))
    if name == "is_null":
        return e.Operation(name, (of(*KINDS),))
    if name == "matches":
        return e.Expression(of(TEXT)).matches(chance.choice(drawn.PATTERNS)).node
    if name in ("starts_with", "contains"):
        return e.Operation(name, (of(TEXT),), (value(chance, TEXT),))
    alike: list[tuple[ColumnKind, ...]] = [(INT,), (FLOAT,), (INT, FLOAT), (TEXT,)]
    types = chance.choice([*alike, (BOOL,)] if name in ("==", "!=", "is_in") else alike)
    if name == "is_in":
        many = chance.choice([1, 2, 5, 40])
        return e.Expression(of(*types)).is_in([value(chance, chance.choice(types)) for _ in range(many)]).node
    return e.Operation(name, (of(*types), of(*types)))


_OTHERS = ["is_null", "is_in", "is_in", "starts_with", "contains", "matches"]


def chunk(chance: random.Random, most: int = 1400) -> Records:
    """Columns of this schema; of some, only a few rows are selected."""
    length = chance.choice([0, 1, 7, 9, 511, 512, 513, chance.randint(0, most)])
    small = chance.random() < 0.5
    vectors: dict[str, Vector] = {}
    for one in SCHEMA.columns:
        values = [value(chance, one.type) for _ in range(length)]
        if small and one.type in (INT, FLOAT):  # so that some expressions have a value for every row
            values = [PYTHON[one.type](chance.randint(1, 99)) for _ in values]
        if one.optional:
            values = [None if chance.random() < 0.3 else found for found in values]
        vectors[one.name] = Vector.of(one.type, values)
    made = Records.of_vectors(vectors, array("q", range(length)))
    if chance.random() < 0.5:
        return made
    share = chance.choice([0.02, 0.5, 0.98])
    return made.kept(array("q", [row for row in range(length) if chance.random() < share]))


def plainly(node: e.Node, of: Records) -> list[str] | tuple[int, str]:
    """What the plain way gives for the selected rows, or which row has no value and why."""
    compute = compiled(node, SCHEMA)
    try:
        return list(map(repr, compute(of, len(of))))
    except NotComputable:
        columns = {one.name: of[one.name] for one in SCHEMA.columns}
    for row in range(len(of)):
        try:
            compute({name: [column[row]] for name, column in columns.items()}, 1)
        except NotComputable as error:
            return row, str(error)
    raise AssertionError(f"{node} has a value for each row alone")


def computed(computation: Any, of: Records) -> list[str] | tuple[int, str]:
    """The same of a `Computation`."""
    try:
        vector = computation.vector(of)
    except NotComputable as error:
        return error.index, str(error)
    assert len(vector) == of.base_length
    assert vector.nulls == vector.values().count(None)
    values = vector.values()
    return [repr(values[row]) for row in of.indexes()]


def kept(computation: Any, of: Records) -> list[int] | tuple[int, str]:
    """The rows that a condition keeps."""
    try:
        return longs(computation.picked(of)).tolist()
    except NotComputable as error:
        return error.index, str(error)


def cut_exactly(vector: Vector, exactly: Callable[[bytes], Any]) -> Vector:
    """The same column in buffers of just their size."""

    def of(buffer: Any) -> Any:
        return None if buffer is None else exactly(bytes(buffer))

    return replace(vector, data=of(vector.data), offsets=of(vector.offsets), validity=of(vector.validity))


def framed(keys: Any, times: Any, batch: VectorBatch, rows: Any = None, headers: Any = None) -> Records:
    """Rows of a batch as they are written in frames."""
    vectors = dict(zip(batch.names, batch.vectors, strict=True))
    return Records.of_vectors(vectors, times, picked=rows, key_spans=keys, header_spans=headers)
