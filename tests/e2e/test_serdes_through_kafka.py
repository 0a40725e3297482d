"""Serdes of every kind on the real broker: what stands in a topic becomes a value, goes through stages and tables, and comes out again.

What they take for bad, keys and null values are told without a broker (`tests/agents/records/values`, `tests/agents/operators/base`).
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TypedDict

import msgpack
import msgspec
import orjson
import pyarrow as pa
import pytest

import headgate as hg

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


@dataclass
class Order:
    user: str
    amount: int


class Row(TypedDict):
    user: str
    amount: int


class Item(msgspec.Struct):
    user: str
    amount: int = 1


def reverse(data: bytes) -> str:
    return data.decode()[::-1]


def reversed_bytes(text: str) -> bytes:
    return text[::-1].encode()


async def only(job, topic):
    [one] = await job.records(topic, 1)
    return one


async def test_each_serde_reads_its_input_and_writes_its_output(job, topic):
    """Text, bytes, one's own, msgpack, Arrow, and JSON as dataclass, TypedDict and Struct, in one job."""
    kinds = ("text", "raw", "own", "msgpack", "arrow", "dataclass", "typed_dict", "struct")
    inp = {kind: topic(f"in-{kind}") for kind in kinds}
    out = {kind: topic(f"out-{kind}") for kind in kinds}
    own = hg.custom(reverse, reversed_bytes, name="reversed")
    app = hg.App(job.name)

    def line(kind, serde, fn):
        app.input(inp[kind], serde=serde).map(fn).to(out[kind], serde=serde)

    line("text", hg.text(), lambda text: text.upper())
    line("raw", hg.bytes(), lambda data: data + b"\xff")
    line("own", own, lambda text: text + "!")
    line("msgpack", hg.msgpack(), lambda value: {**value, 7: value[1]})
    line("arrow", hg.arrow(), lambda table: table.append_column("twice", pa.array([2, 4])))
    line("dataclass", hg.json(Order), lambda order: Order(order.user, order.amount + 1))
    line("typed_dict", hg.json(Row), lambda row: Row(user=row["user"], amount=row["amount"] + 1))
    line("struct", hg.json(Item), lambda item: Item(item.user, item.amount + 1))
    await job.write(inp["text"], ["Zürich".encode()])
    await job.write(inp["raw"], [b"\x00\xfe"])
    await job.write(inp["own"], [b"cba"])
    await job.write(inp["msgpack"], [msgpack.packb({1: "a", "x": {2: [3]}})])
    await job.write(inp["arrow"], [hg.arrow().dumps(pa.table({"n": [1, 2]}))])
    for kind in ("dataclass", "typed_dict", "struct"):
        await job.write(inp[kind], [{"user": "u", "amount": 1}])
    await job.start(app)
    assert (await only(job, out["text"])).value == "ZÜRICH".encode()
    assert (await only(job, out["raw"])).value == b"\x00\xfe\xff"
    assert (await only(job, out["own"])).value == b"!cba"
    found = msgpack.unpackb((await only(job, out["msgpack"])).value, strict_map_key=False)
    assert found == {1: "a", "x": {2: [3]}, 7: "a"}
    assert hg.arrow().loads((await only(job, out["arrow"])).value).to_pydict() == {"n": [1, 2], "twice": [2, 4]}
    for kind in ("dataclass", "typed_dict", "struct"):
        assert orjson.loads((await only(job, out[kind])).value) == {"user": "u", "amount": 2}


async def test_maps_with_numbers_as_keys_go_through_stages_and_tables(job, topic):
    """msgpack knows them: between two stages, in a table, and in a table that is restored from its log."""
    inp, out = topic("in"), topic("out")

    def declared():
        app = hg.App(job.name, serde=hg.msgpack())
        table = app.table("kept", key=hg.text(), value=hg.msgpack())

        def keep(value):
            before = table.get(value["k"])
            table[value["k"]] = value["by"]
            return {"before": before, "now": value["by"]}

        app.input(inp).repartition("k").map(keep).to(out)
        return app

    async def seen(count):
        return [msgpack.unpackb(r.value, strict_map_key=False) for r in await job.records(out, count)]

    first = await job.start(declared())
    await job.write(inp, [msgpack.packb({"k": "a", "by": {1: 2}})])
    assert await seen(1) == [{"before": None, "now": {1: 2}}]
    await first.stop()
    shutil.rmtree(job.directory / "state")
    await job.start(declared())
    await job.write(inp, [msgpack.packb({"k": "a", "by": {3: 4}})])
    assert (await seen(2))[1] == {"before": {1: 2}, "now": {3: 4}}
