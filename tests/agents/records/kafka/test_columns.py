"""Records in columns: the compiled part and Python give the same, whatever comes; damaged bytes are refused by both."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.agents.kafka import record_batch as rawbatch
from headgate.agents.kafka.record_batch import Builder
from headgate.agents.records.kafka import codecs
from headgate.agents.records.kafka.columns import (
    CHECKED_FROM,
    Columns,
    DamagedBatch,
    columns_of,
    crc32c,
    joined,
    pick,
    read_batch,
)
from headgate.agents.records.kafka.partitioner import Partitioner, partition_of
from headgate.agents.records.native import chosen

needs_compiler = pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")

BYTES = st.one_of(st.none(), st.binary(max_size=300))
HEADERS = st.lists(st.tuples(st.text(max_size=8), BYTES), max_size=3)
RECORDS = st.lists(st.tuples(BYTES, BYTES, st.integers(-(2**40), 2**45), HEADERS), min_size=1, max_size=40)


def built(records, codec, compiled, monkeypatch, limit=1 << 20):
    """The bytes of a batch of these records, and how many of them are in it."""
    keys, values, stamps, headers = (list(column) for column in zip(*records, strict=True))
    with monkeypatch.context() as patch:
        if not compiled:
            patch.setattr(chosen, "part", chosen.PLAIN)
        builder = Builder(limit, codec, transactional=True)
        taken = builder.add(keys, values, stamps, headers, 0)
        size = builder.size
        builder.batch._set_producer_state(7, 1, 12)
        data = bytes(builder.batch._build())
        assert builder.batch.record_count() == builder.count == taken
        assert codec is not None or size == len(data)
        return data, taken


@needs_compiler
@settings(deadline=None, max_examples=60)
@given(RECORDS, st.sampled_from([None, "gzip", "snappy", "lz4", "zstd"]), st.sampled_from([200, 2000, 1 << 20]))
def test_both_write_the_same_bytes_and_read_them_alike(records, codec, limit):
    """Compression aside, where only what comes out is the same."""
    with pytest.MonkeyPatch.context() as patch:
        data, taken = built(records, codec, True, patch, limit)
        other, also = built(records, codec, False, patch, limit)
    assert taken == also
    if codec is None:
        assert data == other
    parsed = columns_of(MemoryRecords(other).next_batch())
    found = read_batch(data, 0, len(data))
    assert found == parsed == read_batch(other, 0, len(other))
    assert found.values == [value for _, value, _, _ in records[:taken]]
    assert found.every_offset() == list(range(taken))
    batch = MemoryRecords(data).next_batch()
    assert (batch.validate_crc(), batch.producer_id, batch.is_transactional) == (True, 7, True)


def holed(data, base=100, append=False):
    """The batch as a broker may hand it out: at another offset, with the time of the log."""
    changed = bytearray(data)
    struct.pack_into(">q", changed, 0, base)
    if append:
        struct.pack_into(">h", changed, 21, struct.unpack_from(">h", changed, 21)[0] | 8)
    struct.pack_into(">I", changed, 17, calc_crc32c(bytes(changed[CHECKED_FROM:])))
    return bytes(changed)


@needs_compiler
@pytest.mark.parametrize("append", [False, True])
def test_offsets_and_times_are_the_brokers(append, monkeypatch):
    """The base offset is added; with log-append time every record has the batch's time."""
    data = holed(built([(None, b"a", 5, []), (b"k", b"b", 9, [])], None, True, monkeypatch)[0], append=append)
    found = read_batch(data, 0, len(data))
    assert found == columns_of(MemoryRecords(data).next_batch())
    assert (found.base, found.offsets, found.keys) == (100, None, [None, b"k"])
    assert found.timestamps == ([9, 9] if append else [5, 9])


@needs_compiler
@settings(deadline=None, max_examples=100)
@given(RECORDS, st.data())
def test_damage_is_refused_and_nothing_else_happens(records, data):
    """Any byte behind the head changed, or the end cut off: columns, or the one exception."""
    with pytest.MonkeyPatch.context() as patch:
        good = bytearray(built(records, None, True, patch)[0])
    at = data.draw(st.integers(57, len(good) - 1))
    good[at] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(61, len(good)))
    found = None
    with contextlib.suppress(DamagedBatch):
        found = read_batch(bytes(good), 0, end)
    assert found is None or len(found.values) == len(found.timestamps)


@needs_compiler
def test_a_count_that_cannot_be_true_allocates_nothing(monkeypatch):
    """Two thousand million records in a few bytes."""
    data = bytearray(built([(None, b"a", 5, [])], None, True, monkeypatch)[0])
    struct.pack_into(">i", data, 57, 2**31 - 1)
    with pytest.raises(DamagedBatch, match="more records are announced than there can be"):
        read_batch(bytes(data), 0, len(data))


GREEDY = r"""
import resource, sys
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from headgate.agents.records.kafka import codecs, columns

resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
kind, compiled = sys.argv[1:]
body = b"\xff\xff\xff\xff\x0f\x00abc"  # 4 GiB, it says
if kind == "framed":
    body = b"\x82SNAPPY\x00" + bytes((0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, len(body))) + body
builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, 0, 1 << 16)
builder.append(0, timestamp=5, key=None, value=b"v", headers=[])
head = bytearray(builder.build()[:61])
head[22] |= 2
head[8:12] = (len(head) + len(body) - 12).to_bytes(4, "big")
raw = bytes(head) + body
try:
    if compiled == "True":
        columns.read_batch(raw, 0, len(raw))
    else:
        list(MemoryRecords(raw).next_batch())
except Exception as error:
    print("refused:", error)
"""


@pytest.mark.parametrize("kind", ["raw", "framed"])
@pytest.mark.parametrize("compiled", [pytest.param(True, marks=needs_compiler), False])
def test_nine_bytes_of_snappy_do_not_end_the_process(kind, compiled):
    """What they announce was reserved before a byte of it was looked at: under a memory limit the process aborts, again at each start."""
    told = subprocess.run(
        [sys.executable, "-c", GREEDY, kind, str(compiled)], capture_output=True, text=True, timeout=180, check=False
    )
    assert "cannot decompress to the 4294967295 bytes that they claim" in told.stdout, (
        told.returncode,
        told.stderr[-500:],
    )


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=2000), st.integers(1, 400), st.booleans())
def test_what_snappy_can_hold_is_read(data, times, framed):
    """Also what compresses best."""
    packed = codecs.codec.snappy_encode(data * times, xerial_compatible=framed)
    assert codecs.snappy_decode(packed) == data * times


@given(st.binary(max_size=60))
def test_any_bytes_of_snappy_are_read_or_refused(data):
    """Without a panic, and without going on for ever."""
    for payload in (data, b"\x82SNAPPY\x00" + bytes((0, 0, 0, 1, 0, 0, 0, 1)) + data):
        with contextlib.suppress(Exception):
            codecs.snappy_decode(payload)


@needs_compiler
@pytest.mark.parametrize("name", ["abcd", "éééé", "\U0001f600" * 8, "é" * 70])
def test_what_just_fits_fits_for_both(name, monkeypatch):
    """A batch that is full to the byte, and one byte less."""
    records = [(b"k", b"v", 5 + n, [(name, b"x")]) for n in range(3)]
    size = len(built(records, None, True, monkeypatch)[0])
    for limit, fit in ((size, 3), (size - 1, 2)):
        for compiled in (True, False):
            assert built(records, None, compiled, monkeypatch, limit)[1] == fit


def test_compacted_records_have_holes():
    """Then offsets are a column."""

    class Rec:
        key, value, headers, timestamp = None, b"v", (), 3

        def __init__(self, offset):
            self.offset = offset

    found = columns_of([Rec(4), Rec(7), Rec(9)])
    assert (found.base, found.offsets, found.headers, found.keys) == (4, [4, 7, 9], None, None)
    assert [found.index_from(offset) for offset in (0, 4, 5, 7, 9, 10)] == [0, 0, 1, 1, 2, 3]
    assert found.cut(1, 3).every_offset() == [7, 9]
    assert joined([Columns([b"a"], [1], 3), found]).every_offset() == [3, 4, 7, 9]
    assert joined([Columns([b"a"], [1], 3), Columns([b"b"], [1], 4, [b"k"])]).keys == [None, b"k"]


@pytest.mark.parametrize("compiled", [pytest.param(True, marks=needs_compiler), False])
def test_hashes_and_picks(compiled, monkeypatch):
    """The checksum of the standard's example, parts of it, and keys where Java's client would send them."""
    if not compiled:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)
    data = b"-123456789-" * 50
    assert crc32c(data, 1, 10) == 0xE3069283
    assert crc32c(data, 3, 500) == calc_crc32c(data[3:500])
    long = bytes(range(256)) * 40
    for start, end in ((0, 3071), (0, 3072), (5, 3077), (1, 3080), (0, 6144), (7, 10_000), (0, 10_240)):
        assert crc32c(long, start, end) == calc_crc32c(long[start:end])
    keys = [b"k%d" % n * (n % 7) for n in range(500)] + [None, None]
    parts = Partitioner(5).split(keys)
    assert sorted(index for part in parts for index in part) == list(range(502))
    assert all(partition_of(keys[i], 5) == p for p, part in enumerate(parts) for i in part if keys[i] is not None)
    assert len([part for part in parts if 500 in part and 501 in part]) == 1
    assert pick(keys, [3, 1]) == [keys[3], keys[1]]


@needs_compiler
def test_what_is_not_bytes_is_no_record():
    """Other byte-like things are taken as aiokafka takes them; text is refused, with its type."""
    builder = Builder(1 << 16, None, transactional=False)
    assert builder.add((bytearray(b"k"),), (memoryview(b"v"),), (5,), ([("h", bytearray(b"1"))],), 0) == 1
    data = builder.batch._build()
    assert read_batch(data, 0, len(data)) == Columns([b"v"], [5], 0, [b"k"], None, [[("h", b"1")]])
    with pytest.raises(TypeError, match="not str"):
        Builder(1 << 16, None, transactional=False).add(None, ["text"], 5, None, 0)


@needs_compiler
def test_a_packed_batch_takes_no_single_records():
    """aiokafka asks the last batch of a partition when somebody sends one record there; a batch that is built stays as it is."""
    builder = Builder(1 << 16, None, transactional=False)
    builder.add(None, [b"v"], 5, None, 0)
    assert builder.batch.append(timestamp=1, key=None, value=b"w") is None
    first = builder.batch._build()
    builder.batch._set_producer_state(9, 9, 9)
    assert builder.batch._build() is first
    assert builder.add(None, [b"w"], 5, None, 0) == 0
    assert isinstance(builder.batch, rawbatch.BatchBuilder)


def test_the_compiled_part_is_built_of_the_sources_that_stand_here():
    """It is optional, so an installation without a compiler works; but where there is one, a source that does not compile must not be
    silent: every test would run the plain way alone. Nor may two sources define a function of the same name, of which one is never called.
    """
    include = Path(sysconfig.get_paths()["include"])
    if shutil.which(os.environ.get("CC", "cc")) is None or not (include / "Python.h").exists():
        pytest.skip("there is no compiler here")
    assert chosen.COMPILED is not None, (
        "build it, and look at what the compiler says: python setup.py build_ext --inplace"
    )
    sources = sorted(Path(chosen.__file__).parent.glob("*.c"))
    lists = re.findall(r"PyMethodDef (\w+)\[\] = \{(.*?)\n?\};", "\n".join(map(Path.read_text, sources)), re.DOTALL)
    functions = [
        name
        for of, list_ in lists
        if not of.startswith(("keys_", "cells_", "index_"))
        for name in re.findall(r'\{"(\w+)"', list_)
    ]
    assert len(functions) > 30
    assert sorted(functions) == sorted(set(functions)), "one of two functions of the same name is never called"
    assert {*functions} <= {*dir(chosen.COMPILED)}, "it is older than its sources: python setup.py build_ext --inplace"
    stated = (Path(chosen.__file__).parents[3] / "setup.py").read_text()
    assert [path.name for path in sources if f'"{path.name}"' not in stated] == []


def test_both_parts_have_whatever_anybody_uses_of_them():
    """A function that only one of them has would be found by a user who has the other."""
    used = {"FAST"}
    for path in Path(chosen.__file__).parents[2].rglob("*.py"):
        used |= (
            set(re.findall(r"\bchosen\.part\.(\w+)", text)) if "import chosen" in (text := path.read_text()) else set()
        )
    assert {"gathered", "Cells", "open_frame", "find_pairs"} < used
    assert used <= vars(chosen.PLAIN).keys() | {"compute"}  # without a program
    assert chosen.COMPILED is None or used <= vars(chosen.COMPILED).keys()


@pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")
def test_a_further_interpreter_goes_the_plain_way():
    """It cannot import the compiled part, which waited for ever there; the first interpreter keeps it."""
    interpreters = pytest.importorskip(
        "_xxsubinterpreters", reason="another Python: no way to make interpreters is known here"
    )
    code = f"""
import importlib.util
spec = importlib.util.spec_from_file_location({chosen.COMPILED.__name__!r}, {chosen.COMPILED.__file__!r})
try:
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
except ImportError as error:
    assert "first interpreter" in str(error)
else:
    raise AssertionError("it was imported")
"""
    made = interpreters.create()
    interpreters.run_string(made, code)
    interpreters.destroy(made)
    assert chosen.COMPILED.crc32c(b"123456789", 0, 9) == 0xE3069283
