"""Targets of the fuzzer for records: JSON to columns and back, expressions over columns, record batches. See `targets`."""

from __future__ import annotations

import random
import struct
from array import array
from contextlib import suppress
from typing import Any, TypedDict

from headgate.agents.records.columns.decoder import Decoder
from headgate.agents.records.columns.encoder import Encoder, LogicalEncoder, NestedEncoder
from headgate.agents.records.columns.expressions import Computation, _Writer
from headgate.agents.records.columns.records import Records
from headgate.agents.records.kafka import columns
from headgate.agents.records.kafka.spans import SpannedRecords, headers_of
from headgate.agents.records.kafka.writable import extent_of
from headgate.agents.records.layout import longs
from headgate.agents.records.memory.record_spans import RecordSpans, packed, pieces
from headgate.agents.records.memory.vectors import Vector, VectorBatch
from headgate.agents.records.native import chosen
from headgate.agents.records.values.column_types import columns_of_type
from headgate.agents.records.values.serdes import json
from headgate.core.columns.schema import ColumnSpec
from headgate.core.columns.typing import typed

from . import logical_records, mutations, nested_records, trees
from .targets import (
    EDGES,
    KINDS,
    RECORDS,
    alike,
    cut,
    exactly,
    hurt,
    hurt_spans,
    indexes,
    ints,
    parts,
    plainly,
    q,
    some,
    spans,
    survived,
    told,
)

NUMBERS = (
    b"1e400",
    b"-1E+400",
    b"1e308",
    b"0e999",
    b"1e-999",
    b"9" * 308,
    b"9" * 309,
    b"9" * 211 + b"e97",
    b'"1e400"',
    b"-0.0",
    b"-0",
)
"""What may stand in a field that no type has."""


def decoding_target(chance: random.Random) -> None:
    """Mutated records through both decoders, and through both encoders what they found."""
    records = mutations.some(chance, RECORDS)
    data, starts, sizes = mutations.spans(records)
    decoder = _decoder()
    with plainly():
        plain = _decoder()
    for one in records:  # each alone in its memory
        decoder.decode(exactly(one), q([0]), q([len(one)]))
    if mutations.outcome(decoder, records) != mutations.outcome(plain, records):
        for one in records:
            alone, wanted = mutations.outcome(decoder, [one]), mutations.outcome(plain, [one])
            assert alone == wanted, f"{one!r}\ncompiled: {alone}\norjson:   {wanted}"
        raise AssertionError(f"these differ together, but not alone: {records}")
    found = decoder.decode(data, starts, sizes)
    found.spans = found.spans._replace(buffer=exactly(bytes(found.spans.buffer)))
    names = [one.name for one in mutations.COLUMNS]
    for encoder in (Encoder(names), Encoder(names, added=["note", "u", "amount"])):
        for originals in ((), (found.spans,), (found.spans, found.others)):
            alike(lambda encoder=encoder, originals=originals: pieces(encoder.encode(found.columns, None, *originals)))
    survived(lambda: decoder.decode(data, hurt(chance, starts), hurt(chance, sizes)))
    survived(lambda: Encoder(names, added=["u"]).encode(found.columns, None, hurt_spans(chance, found.spans)))


def _decoder() -> Decoder:
    return Decoder(mutations.COLUMNS, known=["known"], watched=["watched"])


def nested_target(chance: random.Random) -> None:
    """Mutated records with nested objects through both decoders and both encoders."""
    records = nested_records.some(chance, RECORDS)
    decoder = Decoder(nested_records.SCHEMA.columns, nested=True)
    with plainly():
        plain = Decoder(nested_records.SCHEMA.columns, nested=True)
    for one in records:
        decoder.decode(exactly(one), q([0]), q([len(one)]))
        alone, wanted = mutations.outcome(decoder, [one]), mutations.outcome(plain, [one])
        assert alone == wanted, f"{one!r}\ncompiled: {alone}\norjson:   {wanted}"
    found = decoder.decode(*mutations.spans(records))
    found.spans = found.spans._replace(buffer=exactly(bytes(found.spans.buffer)))
    encoder = NestedEncoder(nested_records.SCHEMA.columns)
    for originals in ((), (found.spans,), (found.spans, found.others)):
        alike(lambda originals=originals: pieces(encoder.encode(found.columns, None, *originals)))
    rows = q(sorted(set(indexes(chance, found.columns.length, wrong=0))))
    alike(lambda: pieces(encoder.encode(found.columns, rows)))
    survived(lambda: encoder.encode(found.columns, rows, hurt_spans(chance, found.spans), found.others))


def logical_target(chance: random.Random) -> None:
    """Mutated records with times, decimals, lists and maps through both decoders, as they are read and as they are stored, and written."""
    records = logical_records.some(chance, RECORDS)
    columns = logical_records.SCHEMA.columns
    decoder = Decoder(columns, nested=True)
    with plainly():
        plain = Decoder(columns, nested=True)
    for one in records:
        decoder.decode(exactly(one), q([0]), q([len(one)]))
        alone, wanted = mutations.outcome(decoder, [one]), mutations.outcome(plain, [one])
        assert alone == wanted, f"{one!r}\ncompiled: {alone}\nmsgspec:  {wanted}"
    found = decoder.decode(*mutations.spans(records))
    found.spans = found.spans._replace(buffer=exactly(bytes(found.spans.buffer)))
    encoder = LogicalEncoder(columns, NestedEncoder(columns))
    for originals in ((), (found.spans, found.others)):
        alike(lambda originals=originals: pieces(encoder.encode(found.columns, None, *originals)))
    survived(lambda: decoder.decode(*hurt_spans(chance, found.spans)))


class Typed(TypedDict):
    """A type with some of the fields that records have."""

    user: str
    amount: float | None
    ts: int
    ok: bool | None
    note: str | None


def readers_target(chance: random.Random) -> None:
    """Typed rows, columns and rows without a type: the same verdict on each record, and the same values."""
    typed_rows, plain_rows, decoder = json(Typed), json(), Decoder(columns_of_type(Typed).columns)
    for record in mutations.some(chance, RECORDS):
        text = record + chance.choice((b"", b"", b" ", b"\n"))
        if chance.random() < 0.2:
            text = text.replace(b"}", b',"more":%b}' % chance.choice(NUMBERS), 1)
        with plainly():
            without = typed_rows.loads_many([text])
        row, plain, found = (
            typed_rows.loads_many([text]),
            plain_rows.loads_many([text]),
            decoder.decode(*packed([text])),
        )
        bad = bool(found.bad)
        assert (bool(row.bad), bool(without.bad)) == (bad, bad), (text, row.bad, without.bad, found.bad)
        assert not plain.bad or bad, text
        if bad:
            continue
        [value], wanted = row.values, plain.values[0]
        assert repr(value) == repr(without.values[0]), text
        names = Typed.__annotations__
        assert repr({name: value[name] for name in names}) == repr(found.columns.rows()[0]), text
        if wanted.get("amount") is not None:
            wanted["amount"] = float(wanted["amount"])  # without a type, whole numbers are whole
        assert {name: value[name] for name in names} == {name: wanted.get(name) for name in names}, text


def digits_target(chance: random.Random) -> None:
    """Doubles of any bits as text, and texts of many digits as doubles."""
    doubles: list[float] = []
    for _ in range(40):
        (any_bits,) = struct.unpack("d", chance.randbytes(8))
        doubles += [any_bits, round(chance.uniform(-1e10, 1e10), chance.randrange(9)), float(chance.choice(EDGES))]
    batch = VectorBatch(("n",), (cut(Vector.of("float64", doubles)),), len(doubles))
    alike(lambda: pieces(Encoder(["n"]).encode(batch)))
    texts: list[bytes] = []
    for _ in range(40):
        digits = "".join(chance.choice("0123456789") for _ in range(chance.choice((1, 5, 17, 19, 20, 40, 800)))).lstrip(
            "0"
        )
        at = chance.randint(0, len(digits))
        text = (digits[:at] or "0") + (f".{digits[at:]}" if digits[at:] else "")
        text = repr(chance.choice(doubles)) if chance.random() < 0.3 else text
        half = chance.choice(("", "", "5", "50000000000000000000000000000001", "49999999999999999999999999999999"))
        exponent = chance.choice(("", "", f"e{chance.randint(-345, 310)}"))
        texts.append(f'{{"n":{text}{half if "." in text and "e" not in text else ""}{exponent}}}'.encode())
    for kind in ("float64", "int64"):
        decode = [ColumnSpec("n", kind)]
        alike(lambda decode=decode: mutations.outcome(Decoder(decode), texts))


def expressions_target(chance: random.Random) -> None:
    """Random expressions over random columns; programs that nobody writes."""
    of = trees.chunk(chance, 1100)
    of = Records.of_vectors({name: cut(one) for name, one in of.vectors.items()}, of.times, picked=of.picked)
    node = trees.tree(chance, chance.choice(trees.KINDS))
    computation = Computation(node, trees.SCHEMA)
    found, wanted = trees.computed(computation, of), trees.plainly(node, of)
    assert found == wanted, f"{node}\ncompiled: {found}\nplain:    {wanted}"
    names = tuple(one.name for one in trees.SCHEMA.columns)
    writer = _Writer(trees.SCHEMA, names)
    with suppress(ValueError, OverflowError):  # a constant that no column can hold
        writer.put(typed(node, trees.SCHEMA))
    operands = [None, b"", b"a", bytes(16), (b"a", b"b"), (), ["a"], (1,)]
    ops: list[Any] = list(writer.ops)
    for _ in range(chance.randrange(1, 3)):
        own = (chance.randint(-1, 60), chance.randint(-1, 7), chance.choice(EDGES), 1.5, chance.choice(operands))
        part, at = chance.randrange(5), chance.randint(0, len(ops))
        if at < len(ops):
            ops[at] = (*ops[at][:part], own[part], *ops[at][part + 1 :])
        else:
            ops.append(own)
    vectors = [of.vectors[name] for name in names]
    given = [(KINDS.index(one.kind), one.data, one.offsets, one.validity) for one in vectors]

    def run() -> Any:
        program = chosen.COMPILED.program(ops, chance.choice((8, 8, 8, 7, -1)))
        rows = some(chance, lambda: q(sorted(indexes(chance, of.base_length))))
        length = of.base_length if chance.random() < 0.9 else chance.choice(EDGES)
        return chosen.COMPILED.compute(program, given, length, rows, chance.random() < 0.2)

    survived(run)


def _long(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def read_plainly(*args: Any) -> Any:
    """Values, times, offsets, keys and headers of the records of a batch, read in Python alone."""
    return _as_records(*chosen.PLAIN.read(*args))


def _any_names(chance: random.Random, data: bytes) -> bytes:
    """Some of the headers that are named `a` are named by any byte, of which a name of text has none."""
    return data.replace(b"\x02a", b"\x02" + chance.choice((b"a", b"\xff", b"\x80", b"\xe9")))


def spread_target(chance: random.Random) -> None:
    """Rows in frames for each partition."""
    count = chance.randrange(12)
    values, keys = parts(chance, count), parts(chance, count)
    times = [chance.randrange(-(2**33), 2 ** chance.choice((5, 33, 63))) for _ in values]
    offsets = some(chance, lambda: array("q", range(count)))
    width = chance.randrange(1, 5)
    ends = (b"\x90" * chance.randrange(9), b"\xc0")
    given = (
        keys,
        times,
        values,
        offsets,
        width,
        chance.randrange(width),
        chance.randrange(1, 5),
        chance.randrange(60),
        *ends,
    )
    found = chosen.COMPILED.spread(*given)
    assert found == chosen.PLAIN.spread(*given)
    for _, _, frame, _ in found[0][:2]:
        data = _damaged(chance, frame) if chance.random() < 0.7 else frame
        gathered = chosen.COMPILED.gather(data, ends[0], most := chance.choice((1, 5, 9)))
        assert gathered == chosen.PLAIN.gather(data, ends[0], most)


def batches_target(chance: random.Random) -> None:
    """Records of a batch, whole and damaged, as lists and as spans; and spans as records."""
    count = chance.randrange(8)
    values, keys = parts(chance, count), some(chance, lambda: parts(chance, count))
    headers: Any = some(chance, lambda: [[("a", one)] * chance.randrange(3) for one in parts(chance, count)])
    stamps: Any = chance.randrange(2**40) if chance.random() < 0.3 else [chance.randrange(2**40) for _ in range(count)]
    built = chosen.COMPILED
    first_ms = chance.randrange(2**40)
    data, behind, _ = written = built.write(keys, values, stamps, headers, 0, 0, first_ms, 1 << 20)
    assert behind == count
    assert written == chosen.PLAIN.write(keys, values, stamps, headers, 0, 0, first_ms, 1 << 20)
    assert built.measure(keys, values, stamps, headers, 70) == chosen.PLAIN.measure(keys, values, stamps, headers, 70)
    data = _any_names(chance, data)
    if chance.random() < 0.7:
        for _ in range(chance.choice((1, 1, 2))):
            data = _damaged(chance, data)
    before, after = chance.randbytes(chance.randrange(3)), chance.randbytes(chance.randrange(3))
    whole = exactly(before + data + after)
    announced = count if chance.random() < 0.9 else chance.randint(-1, 20)
    first, base = chance.choice([0, 5, *EDGES]), chance.choice([0, 5, *EDGES])
    append = some(chance, lambda: chance.choice(EDGES))
    args = (len(before), len(before) + len(data), announced, base, first, append)
    wanted = told(lambda: read_plainly(bytes(whole), *args))
    assert told(lambda: _as_records(*built.read(bytes(whole), *args))) == wanted, (bytes(whole), args)
    assert told(lambda: _spans_as_records(whole, *built.read_spans(whole, *args))) == wanted, (bytes(whole), args)
    assert told(lambda: _spans_as_records(whole, *chosen.PLAIN.read_spans(whole, *args))) == wanted, (
        bytes(whole),
        args,
    )
    _writing(chance, values, keys, stamps if isinstance(stamps, list) else [stamps] * count)


def runs_target(chance: random.Random) -> None:
    """Small batches one behind the other, some of them damaged, compressed, cut off, or of a transaction: those before are a run."""
    before = chance.randbytes(chance.randrange(3))
    raw = before + b"".join([_batch(chance) for _ in range(chance.randrange(6))])
    raw += chance.randbytes(chance.choice((0, 0, 5, 61, 90)))
    raw = raw[: len(raw) - chance.choice((0, 0, 1, 30))] if len(raw) > 40 else raw
    start = min(len(before), len(raw))
    found = chosen.COMPILED.read_run(exactly(raw), start)
    end, following, wanted, batches = start, 0, [], 0
    while (one := _small_plainly(raw, end)) is not None:
        end, following, records = one
        wanted += records
        batches += 1
    if batches < 2:
        assert found is None, bytes(raw)
        return
    assert found[:3] == (end, following, len(wanted)), bytes(raw)
    assert _spans_as_records(raw, *found[3:]) == wanted, bytes(raw)


def _batch(chance: random.Random) -> bytes:
    """A batch as brokers send it, or nearly."""
    count = chance.randint(1, 4)
    values, keys = parts(chance, count), some(chance, lambda: parts(chance, count))
    headers: Any = some(chance, lambda: [[("a", one)] * chance.randrange(3) for one in parts(chance, count)])
    records = chosen.COMPILED.write(keys, values, [chance.randrange(2**40)] * count, headers, 0, 0, 5, 1 << 20)[0]
    records = _any_names(chance, records)
    if chance.random() < 0.1:
        records = _damaged(chance, records)
    if chance.random() < 0.05:
        records += bytes(5000)
    base, first, most = (chance.choice([0, 5, *EDGES]) for _ in range(3))
    attributes = chance.choice([0] * 9 + [8] * 4 + [1, 16, 32, 64, 0x4000])
    announced = count if chance.random() < 0.95 else chance.randint(-1, 20)
    checked = struct.pack(">hiqqqhii", attributes, chance.randint(0, 9), first, most, -1, -1, -1, announced) + records
    magic = 2 if chance.random() < 0.97 else 1
    checksum = columns.crc32c(checked, 0, len(checked)) ^ (chance.random() < 0.03)
    return struct.pack(">qiibI", base, len(checked) + 9, 0, magic, checksum) + checked


def _small_plainly(raw: bytes, start: int) -> tuple[int, int, Any] | None:
    """The end, the next offset and the records of the batch at `start`; None if it is not one that belongs to a run."""
    if len(raw) - start < columns.HEAD.size:
        return None
    base, size, _, magic, checksum, attributes, delta, first, most, _, _, _, count = columns.HEAD.unpack_from(
        raw, start
    )
    end = start + 12 + size
    if not columns.HEAD.size <= end - start <= 4096 or end > len(raw) or magic != 2 or attributes & ~8 or count < 1:
        return None
    if columns.crc32c(raw, start + columns.CHECKED_FROM, end) != checksum:
        return None
    places = start + columns.HEAD.size, end, count, base, first, most if attributes else None
    try:
        return end, _long(base + delta + 1), read_plainly(raw, *places)
    except ValueError:
        return None


def _damaged(chance: random.Random, data: bytes) -> bytes:
    made, at = bytearray(data), chance.randint(0, len(data))
    way = chance.randrange(4)
    if way == 0 and at < len(made):
        made[at] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    elif way == 1:
        made[at:at] = chance.choice((b"\x80", b"\xff" * 9 + b"\x01", b"\0", b"\x01"))
    elif way == 2:
        del made[at : at + chance.choice((1, 2, 9))]
    else:
        del made[at:]
    return bytes(made)


def _as_records(values: Any, times: Any, base: int, keys: Any, offsets: Any, headers: Any) -> Any:
    count = len(values)
    offsets = [_long(base + at) for at in range(count)] if offsets is None else offsets
    rows = zip(values, times, offsets, keys or [None] * count, headers or [[] for _ in values], strict=True)
    return list(rows)


def _spans_as_records(data: Any, values: Any, times: Any, base: int, keys: Any, offsets: Any, headers: Any) -> Any:
    lists = [None if one is None else pieces(RecordSpans(data, *one)) for one in (values, keys, headers)]
    named = None if lists[2] is None else list(map(headers_of, lists[2]))
    return _as_records(
        lists[0], longs(times).tolist(), base, lists[1], None if offsets is None else longs(offsets).tolist(), named
    )


def _writing(chance: random.Random, values: Any, keys: Any, stamps: list[int]) -> None:
    """Spans are written as lists are; what lies outside of a buffer is not."""
    built, count = chosen.COMPILED, len(values)
    own, own_keys = spans(values), None if keys is None else spans(keys)
    first, room = chance.choice([0, *stamps]), chance.choice((1, 40, 1 << 20))
    start = chance.randint(0, count)
    found = told(lambda: built.write_spans(own_keys, own, q(stamps), None, None, start, 0, first, room))
    assert found == told(lambda: built.write(keys, values, stamps, None, start, 0, first, room))
    plain = chosen.PLAIN
    assert found == told(lambda: plain.write_spans(own_keys, own, q(stamps), None, None, start, 0, first, room))
    assert found == told(lambda: plain.write(keys, values, stamps, None, start, 0, first, room))
    measured = told(lambda: built.measure(keys, values, stamps, None, 70))
    assert measured == told(lambda: plain.measure(keys, values, stamps, None, 70))
    records = SpannedRecords(own, q(stamps), 0, own_keys)
    rows = [] if count == 0 else [chance.randrange(count) for _ in range(chance.randint(1, 9))]
    if rows:
        alike(lambda: extent_of(records, q(rows)))
        alike(lambda: extent_of(records, None))
    lying = hurt_spans(chance, own)
    far = q(ints(chance, count))
    survived(lambda: built.write_spans(own_keys, lying, far, None, q(indexes(chance, count)), start, 0, first, room))
    survived(lambda: built.write_spans(own_keys, own, far, lying, None, start, 0, chance.choice(EDGES), room))
    survived(lambda: extent_of(SpannedRecords(lying, far, 0, own_keys, None, lying), None))
