"""The records of the works in Avro, in Confluent's frame: how they are made, the registry that has their schemas, and how outputs are read.

The registry is the real one of `headgate kafka up --registry`. An output is read with the schema that its id names there, so that each
program may register its own.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

from headgate.agents.broker.schema_server import SchemaServer

from .rig import PAD

SHAPE = "avro"
FIELDS = {"user": "string", "amount": "int", "p": "int", "i": "long", "city": "string", "pad": "string"}
EVENT = {
    "type": "record",
    "name": "Event",
    "namespace": "bench",
    "fields": [{"name": name, "type": kind} for name, kind in FIELDS.items()],
}


@contextmanager
def schema_server(directory: Path, *shapes: str) -> Iterator[str]:
    """The address of a registry, which runs only if one of these shapes needs it; else empty."""
    if SHAPE not in shapes:
        yield ""
        return
    server = SchemaServer(directory / "registry")
    try:
        server.start()
        yield server.url
    finally:
        server.stop()


def _asked(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data, {"Content-Type": "application/json"}), timeout=30) as answer:
        return json.load(answer)


def head_of(registry: str, subject: str) -> bytes:
    """What stands in front of the records of an input, whose schema is registered."""
    answer = _asked(f"{registry}/subjects/{quote(subject)}-value/versions", {"schema": json.dumps(EVENT)})
    return b"\0" + int(answer["id"]).to_bytes(4, "big")


def long_of(value: int) -> bytes:
    """A number as Avro has it, of any that is not negative."""
    left, out = value << 1, bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _text_of(text: str) -> bytes:
    return long_of(len(text.encode())) + text.encode()


def maker(head: bytes, keys: int, partitions: int) -> Callable[[int, int], bytes]:
    """What makes record `i` of partition `p`."""
    user = cache(lambda number: head + _text_of(f"user{number}"))
    small, tail = [long_of(number) for number in range(100)], _text_of("Leuven") + _text_of(PAD)

    def make(p: int, i: int) -> bytes:
        number = (i * partitions + p) * 7919 % keys
        return b"%b%b%b%b%b" % (user(number), small[(i * 37 + p * 11) % 100], small[p], long_of(i), tail)

    return make


def reads(registry: str) -> Callable[[bytes], Any]:
    """Reads records by the schemas that their ids name."""
    import fastavro

    known: dict[bytes, Any] = {}

    def read(raw: bytes) -> Any:
        head = raw[:5]
        if head not in known:
            if head[:1] != b"\0":
                raise ValueError(f"no Avro in Confluent's frame: {raw[:20]!r}")
            found = _asked(f"{registry}/schemas/ids/{int.from_bytes(head[1:], 'big')}")
            known[head] = fastavro.parse_schema(json.loads(found["schema"]))
        return fastavro.schemaless_reader(io.BytesIO(raw[5:]), known[head], None)

    return read
