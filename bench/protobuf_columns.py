"""What a decoder of Protobuf does a CPU-second: columns by programs, beside what else could make them, in one run.

    python -m bench.protobuf_columns [RECORDS]      prints a table (chunks of RECORDS, 2000 by default)

Records of six fields, flat ones and ones with a nested message, and ones of two lists and bytes, with a schema's id and the message's place
in front. The alternatives take turns, and the CPU time of this thread counts; the same chunk is handled again and again. ptars
(`pip install ptars`; left out where it is not there) makes an Arrow batch of the messages: one bad record fails a chunk, and what a column
cannot hold is not seen. Rates are thousands of records, the median with the least and the greatest.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from array import array
from collections.abc import Callable
from itertools import accumulate
from typing import Any, get_args

import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import headgate as hg
from bench.avro_columns import Flat, Nested, printed, values
from headgate.agents.records.columns.decoder import Decoder
from headgate.agents.records.memory.record_spans import packed
from headgate.agents.records.values.column_types import columns_of_type
from headgate.agents.registry import wire
from headgate.agents.registry.protobuf import place_of


class Listed(msgspec.Struct):
    id: int
    tags: list[str]
    counts: list[int]
    raw: bytes


_TYPES = {int: 3, str: 9, float: 1, bool: 8, bytes: 12}
CUSTOMER = {"country": str, "city": str, "zip": int}
FIELDS: dict[Any, dict[str, Any]] = {
    Flat: {"id": int, "user": str, "amount": float, "country": str, "paid": bool, "note": str},
    Nested: {"id": int, "customer": CUSTOMER, "amount": float, "ts": int, "paid": bool, "note": str},
    Listed: {"id": int, "tags": list[str], "counts": list[int], "raw": bytes},
}


def classes() -> dict[Any, Any]:
    """The classes of the messages, as `protoc` would generate them."""
    file = descriptor_pb2.FileDescriptorProto(name="bench.proto", package="bench", syntax="proto3")
    for name, fields in (("Customer", CUSTOMER), *((kind.__name__, fields) for kind, fields in FIELDS.items())):
        message = file.message_type.add(name=name)
        for number, (title, kind) in enumerate(fields.items(), 1):
            inner = get_args(kind)
            one = message.field.add(name=title, number=number, label=3 if inner else 1)
            one.type = 11 if title == "customer" else _TYPES[inner[0] if inner else kind]
            if title == "customer":
                one.type_name = ".bench.Customer"
            if title == "note":  # it may be missing
                message.oneof_decl.add(name="_note")
                one.proto3_optional, one.oneof_index = True, 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        kind: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"bench.{kind.__name__}")) for kind in FIELDS
    }


def some(kind: Any, size: int) -> list[Any]:
    """So many values."""
    if kind is not Listed:
        return values(kind, size)
    return [Listed(n, ["red", f"size {n % 50}"], [n, 5, 700], b"%016d" % n) for n in range(size)]


def works(kind: Any, size: int) -> dict[str, Callable[[], Any]]:
    """By name: what makes columns of the same values."""
    message, columns, made = classes()[kind], columns_of_type(kind), some(kind, size)
    serde: Any = hg.protobuf(message).at("t", "value")
    messages = [message(**msgspec.to_builtins(one, builtin_types=(bytes,))) for one in made]
    bodies = [one.SerializeToString() for one in messages]
    head = wire.prefix(7) + wire.path(place_of(message.DESCRIPTOR))
    spans, reader = packed([head + one for one in bodies]), serde.column_reader(columns)
    found, wanted = reader.decode(*spans), reader.as_rows(spans)
    assert not found.bad
    assert found.columns.rows() == wanted.columns.rows()
    texts = [msgspec.json.encode(one) for one in made]
    lengths, of_json = array("q", map(len, texts)), Decoder(columns.columns, nested=True)
    buffer, starts = b"".join(texts), array("q", [0, *accumulate(lengths)][:-1])
    calls: dict[str, Callable[[], Any]] = {
        "columns by programs": lambda: reader.decode(*spans),
        "rows (upb), then columns": lambda: reader.as_rows(spans),
        "upb alone: messages, no columns": lambda: [message.FromString(one) for one in bodies],
        "the same values in JSON": lambda: of_json.decode(buffer, starts, lengths),
    }
    if importlib.util.find_spec("ptars") is not None:
        pool = importlib.import_module("ptars").HandlerPool([message.DESCRIPTOR.file])
        handler = pool.get_for_message(message.DESCRIPTOR)
        calls["ptars, an Arrow batch of all fields"] = lambda: handler.list_to_record_batch(bodies)
    return calls


if __name__ == "__main__":
    printed(FIELDS, works, int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
