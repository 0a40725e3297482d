"""Targets of the fuzzer for records in Protobuf: programs of messages, on records that are right and on others; and what is no program."""

from __future__ import annotations

import random
from array import array
from functools import cache
from typing import Any

from headgate.agents.records.native import chosen
from headgate.agents.records.values.column_types import columns_of_type
from headgate.agents.registry.program_columns import NoProgram
from headgate.agents.registry.protobuf_program import protobuf_reading
from tests.agents.registry.proto_shop import columns_type, message_bytes, mutated, shop

from .targets import EDGES, alike, exactly, hurt_spans, ints, q, spans, survived

HEADS = (
    b"\0\0\0\0\x07\0",
    b"\1" + bytes(16) + b"\0",
    b"\0\0\0\0\x07\4\2\2",
    b"\0\0\0\0\x07\1",
    b"\0\0\0\0\x07\x02\x80",
    b"{}",
    b"",
)
_shop = cache(shop)


def proto_target(chance: random.Random) -> None:
    """Programs of messages, on records of them, of which some are mutated or lie elsewhere."""
    classes = _shop()
    kind = chance.choice((classes.All, classes.All, classes.Old, classes.Inner, classes.Tree))
    wanted = columns_type(chance, kind.DESCRIPTOR)
    if wanted is None:
        return
    columns, records = columns_of_type(wanted).columns, list[bytes | None]()
    for _ in range(chance.randrange(12)):
        head = HEADS[0] if chance.random() < 0.8 else chance.choice(HEADS)
        records.append(
            None if chance.random() < 0.1 else head + mutated(chance, message_bytes(chance, kind.DESCRIPTOR))
        )
    of = spans(records)

    def shown(found: Any) -> Any:
        length, made, *others = found
        plain = [(*(None if part is None else bytes(part) for part in parts), nulls) for *parts, nulls in made]
        return length, plain, others

    def decoded(data: Any, which: Any = None) -> Any:
        heads, numbers = chosen.part.record_heads(b"\0", *data)
        skipped = [6, 18, *(len(one) if one[5:] == b"\4\2\2" else -1 for one in heads)]
        try:
            program = protobuf_reading(kind, columns).program
        except NoProgram:
            return None
        return shown(chosen.part.proto_decode(program, q(skipped), numbers if which is None else which, *data))

    alike(lambda: decoded(of))
    mark = chance.choice((b"\0", b"\4\2\2", b""))
    alike(lambda: chosen.part.record_heads(mark, *of))
    lying = hurt_spans(chance, of)
    survived(lambda: decoded(lying))
    survived(lambda: chosen.part.record_heads(b"\0", *lying))
    survived(lambda: decoded(of, q([chance.choice(EDGES) for _ in records])))
    if chosen.COMPILED is not None:
        survived(lambda: _anything(chance, of))


def _anything(chance: random.Random, of: Any) -> Any:
    """A program that nothing has made, on records of any message."""
    part, fields, tables, rules, objects = chosen.COMPILED, array("i"), array("i"), array("i"), array("i")
    count, width = chance.randrange(1, 5), chance.randrange(1, 4)
    for _ in range(count):
        tables.extend((len(fields) // 11, width if chance.random() < 0.95 else chance.choice((-1, 99, 2**31 - 1))))
        for number in sorted(chance.sample((1, 2, 3, 5, 6, 20, 22, 30, 35, 200, 1000), width)):
            fields.extend((number, chance.randrange(1, 19), chance.choice((0, 0, 0, 1, 2, 4)), chance.randrange(5)))
            fields.extend((chance.randrange(-1, 4), chance.randrange(-1, count + 1), chance.randrange(-1, 3)))
            fields.extend(
                (chance.randrange(-1, 2), chance.choice((0, 0, 1, 3)), chance.randrange(2), chance.randrange(3))
            )
    for slot in range(4):
        rules.extend((chance.randrange(-1, 2), 0 if slot else chance.randrange(4), 0))
    for _ in range(2):
        objects.extend((chance.choice((-1, -1, 0)), chance.randrange(2)))
    cleared = array("i", [0, 2, 0, 3, 1, chance.choice((4, 6, 99))])
    parts = [exactly(one.tobytes()) for one in (fields, tables, rules, objects, cleared)]
    program = part.proto_program(*parts, q([3, 7]), bytes([0, 1, 2, 3]), 2, 1)
    return part.proto_decode(program, q([6, 18, *ints(chance, 3)]), q([0] * (len(bytes(of.offsets)) // 8)), *of)
