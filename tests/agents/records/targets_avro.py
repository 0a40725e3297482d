"""Targets of the fuzzer for records in Avro: programs of schemas, on records and columns that are right and on others; and what is no
program."""

from __future__ import annotations

import random
from array import array
from typing import Any, TypedDict

from headgate.agents.records.layout import KINDS, number_of
from headgate.agents.records.native import chosen
from headgate.agents.records.native.plain.avro import Op
from headgate.agents.records.native.plain.avro_write import WriteOp
from headgate.agents.records.values.column_types import columns_of_type
from headgate.agents.registry.avro_program import avro_reading
from headgate.core.columns.schema import BOOL, FLOAT, INT, TEXT

from .targets import (
    EDGES,
    alike,
    exactly,
    hurt,
    hurt_spans,
    hurt_vector,
    indexes,
    ints,
    parts,
    q,
    spans,
    survived,
    vector,
)

SCALARS = ("long", "int", "double", "float", "boolean", "string", "bytes")


def _schema(chance: random.Random, depth: int, names: list[str]) -> Any:
    """Any schema that a program reads."""
    kind = chance.randrange(14 if depth < 3 else 9)
    if kind < 7:
        return SCALARS[kind]
    names.append(f"N{len(names)}")
    if kind == 7:
        return {"type": "enum", "name": names[-1], "symbols": ["A", "BB"][: chance.randint(1, 2)]}
    if kind == 8:
        return {"type": "fixed", "name": names[-1], "size": chance.randint(1, 5)}
    if kind < 11:
        return chance.sample(["null", _schema(chance, depth + 1, names)], 2)
    if kind < 13:
        what = "items" if kind == 11 else "values"
        inner = _schema(chance, depth + 1, names)
        return {"type": "array" if kind == 11 else "map", what: inner}
    return _record(chance, depth + 1, names)


def _record(chance: random.Random, depth: int, names: list[str]) -> Any:
    names.append(f"N{len(names)}")
    own = names[-1]
    fields = [{"name": f"f{at}", "type": _schema(chance, depth, names)} for at in range(chance.randint(1, 4))]
    return {"type": "record", "name": own, "fields": fields}


def _value(chance: random.Random, schema: Any) -> bytes:
    """The bytes of a value, sometimes of none."""
    if chance.random() < 0.02:
        return chance.randbytes(chance.randrange(4))
    if isinstance(schema, list):
        branch = chance.randrange(len(schema))
        return _long(branch) + _value(chance, schema[branch])
    match schema if isinstance(schema, str) else schema["type"]:
        case "null":
            return b""
        case "long" | "int":
            return _long(chance.choice([*EDGES, *ints(chance, 2)]) % 2**63)
        case "double" | "float" as kind:
            return chance.choice((bytes, chance.randbytes))(8 if kind == "double" else 4)
        case "boolean":
            return chance.randbytes(1)
        case "string" | "bytes":
            text = parts(chance, 1, nulls=0)[0] or b""
            return _long(len(text)) + text
        case "enum":
            return _long(chance.randrange(len(schema["symbols"]) + (chance.random() < 0.05)))
        case "fixed":
            return chance.randbytes(schema["size"])
        case "array" | "map" as kind:
            inner, count = schema["items" if kind == "array" else "values"], chance.randrange(3)
            key = b"\x02k" if kind == "map" else b""
            items = b"".join(key + _value(chance, inner) for _ in range(count))
            head = _long(-count) + _long(len(items)) if chance.random() < 0.3 else _long(count)
            return head + items + (b"\0" if count else b"")
        case _:
            return b"".join(_value(chance, one["type"]) for one in schema["fields"])


def _long(number: int) -> bytes:
    left, made = (number << 1 ^ number >> 63) % 2**64, bytearray()
    while left >= 0x80:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*made, left])


def _columns(chance: random.Random, record: Any) -> Any:
    """A type with some of the fields of a record, of types that columns have."""
    hints: dict[str, Any] = {"missing": int | None}
    plain = {"long": int, "int": float, "double": float, "float": float, "boolean": bool, "string": str, "bytes": bytes}
    for one in record["fields"]:
        kind, optional = one["type"], False
        if isinstance(kind, list):
            kind, optional = next(branch for branch in kind if branch != "null"), True
        hint: Any = None
        if isinstance(kind, str):
            hint = plain.get(kind)
        elif isinstance(kind, dict):
            hint = {"enum": str, "fixed": bytes, "array": list[int], "map": dict[str, int]}.get(kind["type"])
            if kind["type"] == "record":
                hint = _columns(chance, kind)
        if hint is not None and chance.random() < 0.8:
            hints[one["name"]] = hint | None if optional else hint
    return TypedDict("Made", hints)  # type: ignore[operator]


def avro_target(chance: random.Random) -> None:
    """Programs of schemas, on records of them, of which some are mutated or lie elsewhere."""
    record = _record(chance, 0, [])
    columns = columns_of_type(_columns(chance, record)).columns
    kinds = bytes(KINDS.index(one.type) for one in columns)
    records: list[bytes | None] = []
    for _ in range(chance.randrange(12)):
        one = bytearray(b"\0\0\0\0\x07" + _value(chance, record))
        if chance.random() < 0.3:
            one[chance.randrange(len(one))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
        if chance.random() < 0.1:
            del one[chance.randrange(len(one)) :]
        records.append(None if chance.random() < 0.1 else bytes(one))
    of, which = spans(records), q([chance.choice((0, 0, 0, 0, -2)) for _ in records])

    def shown(found: Any) -> Any:
        length, made, *others = found
        plain = [(*(None if part is None else bytes(part) for part in parts), nulls) for *parts, nulls in made]
        return length, plain, others

    def decoded(data: Any, which: Any = which) -> Any:
        program = avro_reading(record, {}, None, {}, columns).program
        return shown(chosen.part.avro_decode(kinds, [(program, 5)], which, *data))

    alike(lambda: decoded(of))
    alike(lambda: chosen.part.record_heads(None, *of))
    lying = hurt_spans(chance, of)
    survived(lambda: decoded(lying))
    survived(lambda: chosen.part.record_heads(None, *lying))
    survived(lambda: decoded(of, q([chance.choice(EDGES) for _ in records])))
    if chosen.COMPILED is not None:
        survived(lambda: _anything(chance, of))


def _anything(chance: random.Random, of: Any) -> Any:
    """A program that nothing has made."""
    part, code = chosen.COMPILED, array("i")
    size = chance.randrange(1, 12)
    for _ in range(size):
        x, y = chance.choice((0, 1, -1, 2, 5, 8, 1000, size)), chance.randrange(-1, 20)
        code.extend([chance.randrange(len(Op)), chance.randrange(-1, 4), x, y])
    code.extend([0, -1, 0, 0])
    kinds = bytes([0, 1, 2, 3])
    program = part.avro_program(exactly(code.tobytes()), q([7]), [b"a", b"bc"], kinds)
    return part.avro_decode(kinds, [(program, chance.choice((0, 5)))], q([0] * (len(bytes(of.offsets)) // 8)), *of)


# ------------------------------------------------------------------------------------------------------------- written

_WRITES: dict[WriteOp, tuple[Any, ...]] = {
    WriteOp.LONG: (INT, "number"),
    WriteOp.FLOAT: (INT, FLOAT, "number"),
    WriteOp.DOUBLE: (INT, FLOAT, "number"),
    WriteOp.BOOLEAN: (BOOL,),
    WriteOp.STRING: (TEXT,),
    WriteOp.SYMBOL: (TEXT,),
    WriteOp.TIME: (INT,),
    WriteOp.DECIMAL: (INT,),
    WriteOp.BYTES: ("json",),
    WriteOp.RAW: ("json",),
}
"""By instruction: the types of the columns that it writes."""


def avro_written_target(chance: random.Random) -> None:
    """Programs of any instructions, on columns that are right and on others; and what is no program."""
    kinds = [chance.choice((INT, FLOAT, BOOL, TEXT, "number", "json")) for _ in range(chance.randint(1, 4))]
    length = chance.randrange(12)
    columns: list[Any] = []
    for kind in kinds:
        if kind == "json":
            columns.append((number_of("json"), *spans(parts(chance, length))))
        else:
            one = vector(chance, kind, length)
            columns.append((number_of(one.kind), one.data, one.offsets, one.validity))
    code, texts = _code(chance, kinds), [b"a", b"abc" * 9, b"\0"]
    numbers = bytes(number_of(kind) for kind in kinds)
    rows = q(indexes(chance, length)) if chance.random() < 0.5 else None
    head = exactly(chance.choice((b"", b"\0\0\0\0\7")))

    def written(columns: Any = columns, rows: Any = rows) -> Any:
        program = chosen.part.avro_writer(exactly(code.tobytes()), texts, numbers)
        return tuple(map(bytes, chosen.part.avro_encode(program, columns, length, head, rows)))

    alike(written)
    at = chance.randrange(len(kinds))
    survived(lambda: written([*columns[:at], _torn(chance, kinds[at], length, columns[at]), *columns[at + 1 :]]))
    survived(lambda: written(columns, hurt(chance, q(indexes(chance, length)))))
    if chosen.COMPILED is not None:
        survived(lambda: _any_writer(chance, numbers, columns, length))


def _code(chance: random.Random, kinds: list[Any]) -> array[int]:
    """Instructions that are sound."""
    size, code = chance.randint(1, 10), array("i")
    for at in range(size):
        slot, ahead = chance.randrange(len(kinds)), chance.randint(at + 1, size)
        fitting = [op for op, of in _WRITES.items() if kinds[slot] in of]
        op = chance.choice((WriteOp.JUMP, WriteOp.IF_VALID, WriteOp.CONST, WriteOp.REFUSE, *fitting * 3))
        x, y = 0, 0
        match op:
            case WriteOp.JUMP | WriteOp.IF_VALID:
                x = ahead
            case WriteOp.CONST:
                x = chance.randrange(3)
            case WriteOp.LONG:
                x = chance.randrange(2)
            case WriteOp.SYMBOL:
                x, y = chance.choice(((0, 3), (1, 2), (2, 0)))
            case WriteOp.TIME:
                x = chance.choice((1, 1000))
            case WriteOp.DECIMAL:
                x, y = chance.choice((-1, 0, 1, 8, 9, 20)), chance.randint(1, 18)
            case WriteOp.BYTES:
                x = chance.choice((-1, 0, 1, 3))
        code.extend([op, slot, x, y])
    code.extend([WriteOp.END, -1, 0, 0])
    return code


def _torn(chance: random.Random, kind: Any, length: int, of: Any) -> Any:
    """A column of which one part is wrong."""
    if kind == "json":
        return (of[0], *hurt_spans(chance, spans(parts(chance, length))))
    one = hurt_vector(chance, vector(chance, kind, length))
    return number_of(one.kind), one.data, one.offsets, one.validity


def _any_writer(chance: random.Random, kinds: bytes, columns: Any, length: int) -> Any:
    """A program that nothing has made."""
    part, code = chosen.COMPILED, array("i")
    size = chance.randrange(1, 12)
    for _ in range(size):
        x, y = chance.choice((0, 1, -1, 2, 5, 8, 1000, size)), chance.randrange(-1, 20)
        code.extend([chance.randrange(len(WriteOp)), chance.randrange(-1, 4), x, y])
    code.extend([0, -1, 0, 0])
    program = part.avro_writer(exactly(code.tobytes()), [b"a", b"bc"], kinds)
    return part.avro_encode(program, columns, length, b"", None)
