"""What the compiled part of columns does a CPU-second, each against the same with orjson, msgpack and dicts in the same run.

    python bench/kernel.py [RECORDS]      prints a table (chunks of RECORDS, 2000 by default) and writes bench/out/kernel.json

The alternatives of a row take turns, and the CPU time of this thread counts. The same chunk is handled again and again, so caches are warm:
a job reaches less. Rates are thousands of records, the median of the rounds with the least and the greatest.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from array import array
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgpack
import orjson

from headgate.agents.job.types.aggregates import count, plan
from headgate.agents.job.types.aggregates import sum as sum_of
from headgate.agents.operators.base.key_arrays import Addition, KeyArrays
from headgate.agents.records.columns.decoder import Decoder
from headgate.agents.records.columns.encoder import Encoder
from headgate.agents.records.columns.groups import KeyTable, StateColumns
from headgate.agents.records.columns.packing import StatePacking
from headgate.agents.records.memory.vectors import Vector, VectorBatch
from headgate.agents.records.native import chosen
from headgate.core.columns.schema import ColumnSpec

ROUNDS = 11
LEAST_S = 0.03
COLUMNS = [
    ColumnSpec("user", "text"),
    ColumnSpec("amount", "float64"),
    ColumnSpec("ts", "int64"),
    ColumnSpec("country", "text"),
]
Call = Callable[[], Any]


def records(size: int, *, shuffled: bool = False, nested: bool = False) -> list[bytes]:
    """JSON records of 96 bytes; with their fields in any order, or with eight nested fields besides (470 bytes)."""
    chance, made = random.Random(3), []
    for n in range(size):
        value: dict[str, Any] = {"user": f"u{chance.randrange(10_000):06d}", "amount": round(chance.uniform(0, 100), 2)}
        value |= {"ts": 1_700_000_000_000 + n, "country": chance.choice(("DE", "CH", "AT")), "pad": "x" * 20}
        if nested:
            value |= {f"f{k}": {"a": [1, 2.5, "z"], "b": {"c": None, "d": True}} for k in range(8)}
        items = list(value.items())
        if shuffled:
            chance.shuffle(items)
        made.append(orjson.dumps(dict(items)))
    return made


def rate(call: Call, size: int) -> float:
    """Thousands of records a CPU-second."""
    start, done = time.thread_time(), 0
    while (taken := time.thread_time() - start) < LEAST_S:
        call()
        done += size
    return done / taken / 1000


def works(size: int) -> dict[str, tuple[Call, Call]]:
    """By name: with the compiled part, and in rows."""
    found: dict[str, tuple[Call, Call]] = {}
    for name, kind in (("", {}), (", any order", {"shuffled": True}), (", nested", {"nested": True})):
        rows = records(size, **kind)
        lengths = array("q", map(len, rows))
        spans = b"".join(rows), array("q", [0, *accumulate(lengths)][:-1]), lengths
        every, one = Decoder(COLUMNS), Decoder(COLUMNS[1:2])
        plain: Call = lambda rows=rows: list(map(orjson.loads, rows))  # noqa: E731
        found[f"decode 4 of 5 columns{name}"] = (lambda every=every, spans=spans: every.decode(*spans), plain)
        found[f"decode 1 column{name}"] = (lambda one=one, spans=spans: one.decode(*spans), plain)
    rows = records(size)
    lengths = array("q", map(len, rows))
    decoded = Decoder([*COLUMNS, ColumnSpec("pad", "text")]).decode(
        b"".join(rows), array("q", [0, *accumulate(lengths)][:-1]), lengths
    )
    total = Vector.of("float64", [one * 1.2 for one in decoded.columns["amount"].values()])
    batch = VectorBatch((*decoded.columns.names, "total"), (*decoded.columns.vectors, total), size)
    values, encoder = batch.rows(), Encoder(batch.names, added=("total",))
    found["encode 6 fields"] = (lambda: encoder.encode(batch), lambda: list(map(orjson.dumps, values)))
    found["extend by one field"] = (
        lambda: encoder.encode(batch, None, decoded.spans),
        lambda: list(map(orjson.dumps, values)),
    )
    table, sums, states = KeyTable(), StateColumns(["rows", "sum"]), {}
    users, amounts = batch["user"].values(), batch["amount"].values()

    def grouped() -> None:
        numbers = table.numbers(batch["user"])
        sums.add(len(table), numbers, [None, batch["amount"]])

    def grouped_rows() -> None:
        for user, amount in zip(users, amounts, strict=True):
            state = states.get(user)
            if state is None:
                states[user] = [1, amount]
            else:
                state[0] += 1
                state[1] += amount

    found["count and sum by key"] = (grouped, grouped_rows)
    packing = StatePacking([("n", "int64"), ("sum", "float64")], b"\0")
    state_batch = VectorBatch(("n", "sum"), (Vector.of("int64", list(range(size))), batch["amount"]), size)
    lists, pack = list(map(list, zip(range(size), amounts, strict=True))), msgpack.Packer().pack
    packed = packing.pack(state_batch)
    found["pack states"] = (lambda: packing.pack(state_batch), lambda: [b"\0" + pack(one) for one in lists])
    stored, unpack = [b"\0" + pack(one) for one in lists], msgpack.unpackb
    found["unpack states"] = (lambda: packing.unpack(packed), lambda: [unpack(one[1:]) for one in stored])
    return found


def held(keys: int) -> dict[str, float]:
    """The memory of a count and a sum, and the time of a commit that packs all of them. Keys are text of 7 or 8 bytes."""
    arrays = KeyArrays(plan({"n": count(), "total": sum_of("amount")}), head=b"\0")
    users = Vector.of("text", [f"u{n:06d}" for n in range(keys)])
    addition = Addition(
        arrays.keys.numbers(users), [None, Vector.of("float64", [1.25] * keys)], None, array("q", range(keys)), None
    )
    arrays.add(addition)
    took: list[float] = []
    for _ in range(ROUNDS):
        began = time.thread_time()
        changed = arrays.changed()
        arrays.keys.keys(changed, b"prefix")
        arrays.pack(arrays.cells.take(changed)[0])
        took.append(time.thread_time() - began)
    return {"keys": keys, "bytes_a_key": arrays.memory() / keys, "pack_ms": statistics.median(took) * 1000}


def main(size: int) -> int:
    """Print the tables."""
    if chosen.COMPILED is None:
        print("the compiled part is not built here")
        return 1
    table: dict[str, dict[str, list[float]]] = {}
    print(f"chunks of {size} records; thousand a CPU-second, median (least-greatest) of {ROUNDS}")
    for name, (compiled, rows) in works(size).items():
        rates = [(rate(compiled, size), rate(rows, size)) for _ in range(ROUNDS)]
        table[name] = {"columns": [one for one, _ in rates], "rows": [one for _, one in rates]}
        shown = [f"{statistics.median(one):8.0f} ({min(one):.0f}-{max(one):.0f})" for one in table[name].values()]
        ratio = statistics.median(one / other for one, other in rates)
        print(f"{name:36} columns {shown[0]:28} rows {shown[1]:24} {ratio:6.1f}x", flush=True)
    states = [held(keys) for keys in (10_000, 100_000, 1_000_000)]
    for one in states:
        print(
            f"a count and a sum of {one['keys']:,} keys: {one['bytes_a_key']:.0f} bytes a key, packed in {one['pack_ms']:.1f} ms"
        )
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "kernel.json").write_text(json.dumps({"records": size, "rates": table, "states": states}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000))
