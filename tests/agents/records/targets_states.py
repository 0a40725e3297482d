"""Targets of the fuzzer for keys, states, and states as bytes. See `targets`."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from headgate.agents.records.columns.groups import KeyTable, StateColumns
from headgate.agents.records.columns.packing import StatePacking
from headgate.agents.records.layout import longs
from headgate.agents.records.memory.record_spans import RecordSpans, pieces
from headgate.agents.records.memory.vectors import Vector, VectorBatch

from . import mutations
from .targets import (
    KIND_OR_NUMBER,
    KINDS,
    alike,
    hurt,
    hurt_spans,
    hurt_vector,
    indexes,
    ints,
    parts,
    plainly,
    q,
    shown,
    some,
    spans,
    survived,
    told,
    vector,
)

CELLS: Any = ("rows", "values", "sum", "min", "max")


def groups_target(chance: random.Random) -> None:
    """Two tables and two sets of states go through the same acts, refused ones among them."""
    with plainly():
        tables = [KeyTable()]
        states = [StateColumns(CELLS)]
    tables.insert(0, KeyTable())
    states.insert(0, StateColumns(CELLS))

    for _ in range(12):
        _act(chance, tables, states)


def each(of: Sequence[Any], call: Callable[[Any], Any]) -> None:
    """The same with both of them."""
    found, wanted = (told(lambda one=one: call(one)) for one in of)
    assert found == wanted, f"compiled: {found}\nplain:    {wanted}"


def _act(chance: random.Random, tables: list[KeyTable], states: list[StateColumns]) -> None:
    """Something that may happen to them, and then a look at all that they hold."""
    count, size = chance.randrange(70), len(tables[1])
    _key_act(chance, tables, count)
    assert len(tables[0]) == len(tables[1])
    size = len(tables[1])
    numbers = indexes(chance, size, wrong=0.05)
    rows = some(chance, lambda: indexes(chance, 30, wrong=0.05)[: len(numbers)])
    if rows is not None:
        numbers = numbers[: len(rows)]
    length = 30 if rows is not None else len(numbers)
    picked = None if rows is None else q(rows)
    times = some(chance, lambda: q(ints(chance, length)))
    kind = chance.choice(("int64", "float64", "number"))
    given = [None, vector(chance, chance.choice(KINDS), length), *(vector(chance, kind, length) for _ in range(3))]
    held = [*(vector(chance, "int64", length) for _ in range(2)), *given[2:]]
    act = chance.randrange(7)
    if act < 2:
        each(states, lambda one: one.overflows(size, q(numbers), given, rows=picked))
        each(states, lambda one: one.add(size, q(numbers), given, rows=picked, times=times))
    elif act < 4:
        each(states, lambda one: one.merge_overflows(size, q(numbers), held, rows=picked))
        each(states, lambda one: one.merge(size, q(numbers), held, rows=picked, times=times))
    elif act == 4 and rows is None:
        each(states, lambda one: one.put(size, q(numbers), held, times=times))
    elif act == 5:
        each(states, lambda one: one.settle())
    elif size:
        for one in states:  # both know all keys
            one.add(size, q([]), [None, *(Vector.of("int64", []) for _ in range(4))])
        kept = q(chance.sample(range(size), chance.randint(0, size)))
        each(tables, lambda one: one.retain(kept))
        each(states, lambda one: one.retain(kept))
    _states_alike(chance, tables, states)
    torn = hurt_vector(chance, held[2])
    survived(lambda: states[0].overflows(size, hurt(chance, q(numbers)), [None, held[1], torn, *held[3:]]))
    survived(lambda: tables[0].keys(hurt(chance, q(numbers))))


def _key_act(chance: random.Random, tables: list[KeyTable], count: int) -> None:
    """One more call with keys."""
    act = chance.randrange(5)
    rows = some(chance, lambda: q(indexes(chance, count)))
    if act < 2:
        keys = vector(chance, chance.choice(KIND_OR_NUMBER), count)
        each(tables, lambda one: longs(one.numbers(keys, rows)).tolist())
    elif act == 2:
        listed: list[Any] = [*parts(chance, count), "text", "ü"]
        if chance.random() < 0.2:
            listed.insert(chance.randrange(len(listed)), chance.choice([7, "\ud800"]))
        each(tables, lambda one: longs(one.numbers_listed(listed)).tolist())
    elif act == 3:
        of = spans(parts(chance, count))
        each(tables, lambda one: longs(one.numbers_of(of, rows)).tolist())
    else:
        of = hurt_spans(chance, spans(parts(chance, count)))
        if len(of.offsets) == len(of.lengths) and len(of.offsets) % 8 == 0:
            each(tables, lambda one: longs(one.numbers_of(of)).tolist())


def _states_alike(chance: random.Random, tables: list[KeyTable], states: list[StateColumns]) -> None:
    size = len(tables[1])
    each(states, lambda one: one.add(size, q([]), [None, *(Vector.of("int64", []) for _ in range(4))]))
    every = q(range(size)) if chance.random() < 0.7 else q(indexes(chance, size))

    def taken(one: StateColumns) -> Any:
        found, times = one.take(every)
        return [(vector.kind, vector.nulls, shown(vector.values())) for vector in found], longs(times).tolist()

    each(states, taken)
    each(states, lambda one: sorted(longs(one.dirty()).tolist()))
    each(tables, lambda one: [pieces(spans) for spans in one.keys(every, b"before")])


def packing_target(chance: random.Random) -> None:
    """States packed and read back, whole and damaged."""
    shape: Any = chance.choice(
        [
            [("n", "int64")],
            [("f", "float64"), [("n", "int64"), ("x", "number")]],
            [[("x", "number")]],
            [("x", "number")] * 2,
        ]
    )
    packing, length = StatePacking(shape, chance.choice((b"", b"\0"))), chance.randrange(12)
    made = {name: vector(chance, kind, length) for name, kind in packing.states}
    batch = VectorBatch(tuple(made), tuple(made.values()), length)
    alike(lambda: pieces(packing.pack(batch)))
    records = [
        mutations.mutated(chance, one) if chance.random() < 0.5 else one
        for one in map(bytes, pieces(packing.pack(batch)))
    ]
    of = spans(records)

    def read(given: RecordSpans) -> Any:
        found, odd = packing.unpack(given)
        return [(one.kind, one.nulls, shown(one.values())) for one in found], odd

    alike(lambda: read(of))
    survived(lambda: read(hurt_spans(chance, of)))
