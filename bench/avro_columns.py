"""What decoders and encoders of Avro do a CPU-second: columns by programs, beside what else could read and write them, in one run.

    python -m bench.avro_columns [RECORDS]      prints a table (chunks of RECORDS, 2000 by default)

Records of six fields, flat ones and ones with a nested record, with a schema's id in front. The alternatives take turns, and the CPU time
of this thread counts; the same chunk is handled again and again. Polars reads a container that is built of the records around it: it is
fast, but one bad record fails a chunk, and where a record ends is lost. Rates are thousands of records, the median with the least and the
greatest.
"""

from __future__ import annotations

import io
import json
import random
import statistics
import sys
from array import array
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any

import fastavro
import msgspec
import polars

import headgate as hg
from bench.kernel import ROUNDS, rate
from headgate.agents.records.columns.decoder import Decoder
from headgate.agents.records.columns.encoder import Encoder, NestedEncoder
from headgate.agents.records.columns.fitting import columns_of_values
from headgate.agents.records.logical.logical_columns import shown_maker
from headgate.agents.records.memory.record_spans import packed, pieces
from headgate.agents.records.memory.vectors import Vector, VectorBatch, dicts_of
from headgate.agents.records.values.column_types import columns_of_type
from headgate.agents.registry import wire
from headgate.agents.registry.memory import MemoryRegistry, taught


class Customer(msgspec.Struct):
    country: str
    city: str
    zip: int


class Flat(msgspec.Struct):
    id: int
    user: str
    amount: float
    country: str
    paid: bool
    note: str | None


class Nested(msgspec.Struct):
    id: int
    customer: Customer
    amount: float
    ts: int
    paid: bool
    note: str | None


HEAD = wire.prefix(7)


def values(kind: Any, size: int) -> list[Any]:
    """So many values."""
    chance, made = random.Random(3), list[Any]()
    for n in range(size):
        note, amount = None if n % 2 else "x" * 20, round(chance.uniform(0, 100), 2)
        if kind is Flat:
            made.append(
                Flat(n, f"u{chance.randrange(10_000):06d}", amount, chance.choice(("DE", "FR")), n % 3 > 0, note)
            )
        else:
            made.append(Nested(n, Customer("DE", "Berlin", n), amount, 1_700_000_000_000 + n, n % 3 > 0, note))
    return made


def container(schema: str) -> bytes:
    """What stands before the records of an Avro file."""
    found = io.BytesIO()
    fastavro.writer(found, json.loads(schema), [], sync_marker=b"s" * 16)
    return found.getvalue()


def works(kind: Any, size: int) -> dict[str, Callable[[], Any]]:
    """By name: what makes columns of the same values."""
    serde: Any = hg.avro(kind).at("t", "value")
    schema = serde._format.own.text
    serde.connect(MemoryRegistry({7: json.loads(schema)}))
    wrote, columns = fastavro.parse_schema(json.loads(schema)), columns_of_type(kind)
    made = values(kind, size)
    bodies = list[bytes]()
    for one in made:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, wrote, msgspec.to_builtins(one))
        bodies.append(out.getvalue())
    records = [HEAD + one for one in bodies]
    taught(serde.loads_many, records[:1])
    reader, spans, begin = serde.column_reader(columns), packed(records), container(schema)

    def by_rows() -> Any:
        found, bad = columns_of_values(serde.loads_many(records).values, columns)
        assert not bad
        return {one.name: Vector.of(one.type, found[one.name]) for one in columns.columns}

    def by_polars() -> Any:
        data = b"".join([one[5:] for one in records])
        return polars.read_avro(io.BytesIO(b"%b%b%b%b%b" % (begin, _long(size), _long(len(data)), data, b"s" * 16)))

    texts = [msgspec.json.encode(one) for one in made]
    lengths = array("q", map(len, texts))
    of_json = Decoder(columns.columns, nested=True)
    found = reader.decode(*spans)
    assert not found.bad
    assert {name: found.columns[name].values() for name in columns.names} == {
        name: one.values() for name, one in by_rows().items()
    }
    buffer, starts = b"".join(texts), array("q", [0, *accumulate(lengths)][:-1])
    return {
        **written(kind, found.columns),
        "columns by programs": lambda: reader.decode(*spans),
        "rows (fastavro, msgspec), then columns": by_rows,
        "polars.read_avro of a container": by_polars,
        "the same values in JSON": lambda: of_json.decode(buffer, starts, lengths),
    }


def written(kind: Any, batch: VectorBatch) -> dict[str, Callable[[], Any]]:
    """By name: what writes columns as Avro."""
    serde: Any = hg.avro(kind, register=True).at("t", "value")
    serde.connect(MemoryRegistry({}))
    taught(lambda _: serde.writing(), [])
    columns, writer = columns_of_type(kind), serde.column_writer()
    make = shown_maker(None, columns)

    def by_rows() -> Any:
        lists = [one.values() for one in batch.vectors]
        return serde.dumps_many(dicts_of(batch.names, len(batch), lists) if make is None else make(lists)).values

    assert pieces(writer.encode(batch, columns, None).spans) == by_rows()
    of_json = (NestedEncoder if columns.nested else Encoder)(columns.columns if columns.nested else columns.names)
    return {
        "columns written by programs": lambda: writer.encode(batch, columns, None),
        "columns, then rows (fastavro)": by_rows,
        "the same columns as JSON": lambda: of_json.encode(batch),
    }


def _long(number: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", number)
    return out.getvalue()


def printed(kinds: Iterable[Any], works: Callable[[Any, int], dict[str, Callable[[], Any]]], size: int) -> None:
    """Measure what `works` gives for each kind of record, in turn, and print the table."""
    print(f"chunks of {size} records; thousand a CPU-second, median (least-greatest) of {ROUNDS}")
    for kind in kinds:
        calls = works(kind, size)
        rates = {name: list[float]() for name in calls}
        for _ in range(ROUNDS):
            for name, call in calls.items():
                rates[name].append(rate(call, size))
        for name, found in rates.items():
            print(
                f"{kind.__name__:8} {name:40} {statistics.median(found):8.0f} ({min(found):.0f}-{max(found):.0f})",
                flush=True,
            )


if __name__ == "__main__":
    printed((Flat, Nested), works, int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
