"""Memory that is not to be had: each compiled part raises `MemoryError`, keeps nothing, and works again."""

from __future__ import annotations

import gc
import struct
import subprocess
import sys
import tracemalloc
from array import array
from collections.abc import Callable
from typing import Any

import pytest

from headgate.agents.records.columns.groups import KeyTable, StateColumns
from headgate.agents.records.kafka import columns
from headgate.agents.records.layout import KINDS, longs
from headgate.agents.records.memory.record_spans import RecordSpans
from headgate.agents.records.memory.vectors import Vector
from headgate.agents.records.native import chosen

from .. import mutations

_testcapi: Any = pytest.importorskip("_testcapi", reason="this Python cannot be told to have no memory")
if chosen.COMPILED is None:
    pytest.skip("the compiled part is not built here", allow_module_level=True)
BUILT: Any = chosen.COMPILED
ALLOCATIONS = 90
"""More than any of these calls makes."""


def q(*numbers: int) -> array[int]:
    return array("q", numbers)


COUNT = 40
WORDS, NUMBERS = (
    Vector.of("text", [f"word {n}" if n % 7 else None for n in range(COUNT)]),
    Vector.of("int64", range(COUNT)),
)
TEXT = (3, WORDS.data, WORDS.offsets, WORDS.validity)
WHOLE = (0, NUMBERS.data, None, None)
SPANS = RecordSpans(b"abc" * COUNT, q(*range(0, 3 * COUNT, 3)), q(*[3] * COUNT))
ROWS = q(*range(0, COUNT, 2))
KEYS = [b"%d" % (n % 9) for n in range(COUNT)]
RECORDS = mutations.spans(mutations.RECORDS * 2)
COLUMNS = [(one.name.encode(), KINDS.index(one.type), one.optional) for one in mutations.COLUMNS]
DECODER = BUILT.decoder(COLUMNS)
BATCH = BUILT.write([b"k"] * 3, [b"v"] * 3, 5, [[("h", b"x")]] * 3, 0, 0, 0, 999)[0]
CHECKED = columns.HEAD.pack(0, 0, 0, 2, 0, 0, 2, 0, 0, -1, -1, -1, 3)[columns.CHECKED_FROM :] + BATCH
RUN = 2 * (struct.pack(">qiibI", 0, len(CHECKED) + 9, 0, 2, columns.crc32c(CHECKED, 0, len(CHECKED))) + CHECKED)
SCHEMA, ARRAY = BUILT.arrow_give(False, [("t", TEXT, WORDS.nulls), ("n", WHOLE, 0)], COUNT)


def _groups() -> Any:
    """A table and states of a few keys, and some more keys."""
    table, states = KeyTable(), StateColumns(["rows", "sum", "max"])
    first = table.numbers(WORDS, ROWS)
    states.put(len(table), q(0, 1), [Vector.of("int64", [1, 2**63 - 1]), *[Vector.of("float64", [1.5, 2.5])] * 2])
    table.numbers_listed(["more", b"keys", None])
    numbers = [max(0, one) for one in longs(first)]
    big = Vector.of("int64", [2**62] * len(numbers))
    refused = states.add(len(table), q(*numbers), [None, big, big], times=q(*numbers))
    found, times = states.take(q(*range(len(table))))
    states.retain(q(1, 0))
    table.retain(q(1, 0))
    return refused, [one.values() for one in found], longs(times).tolist(), bytes(table.keys(q(0, 1))[0].buffer)


def _matched() -> Any:
    """Two slices of a join, of which one grows, and their pairs."""
    index, other = BUILT.RowIndex(), BUILT.RowIndex()
    for part in (KEYS[:4], KEYS[4:]):
        index.add(part)
    other.add(KEYS)
    times = array("q", range(len(KEYS)))
    return BUILT.find_pairs([(index, times, 0, COUNT), (other, times, 0, COUNT)], KEYS, list(times), 300, 5)


CALLS: dict[str, Callable[[], Any]] = {
    "read": lambda: BUILT.read(BATCH, 0, len(BATCH), 3, 0, 0, None),
    "read_spans": lambda: BUILT.read_spans(BATCH, 0, len(BATCH), 3, 0, 0, None),
    "read_run": lambda: BUILT.read_run(RUN, 0),
    "write": lambda: BUILT.write([b"k"] * 3, [b"v"] * 3, 5, [[("h", b"x")]] * 3, 0, 0, 0, 999),
    "write_spans": lambda: BUILT.write_spans(SPANS, SPANS, 5, None, ROWS, 0, 0, 0, 1 << 20),
    "murmur2": lambda: BUILT.murmur2(b"k"),
    "split": lambda: BUILT.split([b"k", None, b"l"], 3, 0),
    "spread": lambda: BUILT.spread([b"k", None, b"l"], [1, 2, 3], [b"v"] * 3, q(7, 8, 9), 3, 0, 1, 99, b"h", b"t"),
    "gather": lambda: BUILT.gather(b"h\x92\xc4\x01k\xc0\x92\x01\xff\x92\xc0\xc0", b"h", 9),
    "decoder": lambda: BUILT.decode(BUILT.decoder(COLUMNS), *RECORDS),
    "decode": lambda: BUILT.decode(DECODER, *RECORDS),
    "encode": lambda: BUILT.encode(
        [TEXT, WHOLE], COUNT, [(0, b'{"t":'), (1, b',"n":')], [], 0, ROWS, None, None, None, None, 0
    ),
    "program": lambda: BUILT.program([(0, 3, 0, 0.0, None), (44, 3, 0, 0.0, (b"a", b"b"))], 1) is not None,
    "compute": lambda: BUILT.compute(BUILT.program([(0, 3, 0, 0.0, None)], 1), [TEXT], COUNT, ROWS, False),
    "arrow_give": lambda: len(BUILT.arrow_give(False, [("t", TEXT, WORDS.nulls), ("n", WHOLE, 0)], COUNT)),
    "arrow_fields": lambda: BUILT.arrow_fields(SCHEMA),
    "arrow_take": lambda: (BUILT.arrow_take([ARRAY], 0, "u", 3), BUILT.arrow_take([ARRAY], 1, "l", 1)),
    "take": lambda: (BUILT.take(TEXT, COUNT, ROWS), BUILT.take_spans(*SPANS, ROWS), BUILT.text_spans(TEXT, COUNT)),
    "octets": lambda: (BUILT.to_base64(*SPANS), BUILT.of_base64(b"YWJj", array("q", [0]), array("q", [4]))),
    "join": lambda: BUILT.join([(TEXT, COUNT), (TEXT, COUNT)]),
    "split_spans": lambda: BUILT.split_spans(*SPANS, ROWS, 5, 0),
    "values": lambda: (BUILT.values(TEXT, COUNT), BUILT.dicts(("a",), [list(range(9))], 9)),
    "window_rows": lambda: BUILT.window_rows(NUMBERS.data, ROWS, 7, 3, 0, 5),
    "session_runs": lambda: BUILT.session_runs(ROWS, NUMBERS.data, ROWS, 5),
    "longs": lambda: (
        BUILT.gathered(NUMBERS.data, ROWS),
        BUILT.scaled(NUMBERS.data, 1, 2, 3),
        BUILT.scattered(NUMBERS.data[:0], NUMBERS.data[:0], 9, 1),
    ),
    "unpack": lambda: BUILT.unpack([(6, b"a")], b"a\x01a\xc0", q(0, 2), q(2, 2)),
    "pieces": lambda: (BUILT.pieces(*SPANS), BUILT.numbers([1, 2.5, None])),
    "latest": lambda: BUILT.latest(*SPANS),
    "fresh": lambda: len(BUILT.fresh(5 << 20)),
    "matching": _matched,
    "groups": _groups,
}


def without_memory(call: Callable[[], Any], number: int) -> Any:
    """The call, of whose allocations the one with this number fails; None for `MemoryError`."""
    _testcapi.set_nomemory(number, number + 1)
    try:
        return call()
    except MemoryError:
        return None
    finally:
        _testcapi.remove_mem_hooks()


def attacked(name: str) -> None:
    """Whichever allocation fails. Afterwards the same call gives what it gave, and no memory is gone."""
    call, gone = CALLS[name], [0, 0]
    wanted = call()
    tracemalloc.start()
    for turn in range(2):  # what is made once and kept is made in the first
        failed = 0
        for number in range(ALLOCATIONS):
            found = without_memory(call, number)
            assert found is None or found == wanted
            failed += found is None
        assert failed, "no allocation has failed"
        assert call() == wanted
        del found
        gc.collect()
        gone[turn] = tracemalloc.get_traced_memory()[0]
    assert gone[1] - gone[0] < 2_000, gone


@pytest.mark.parametrize("name", CALLS)
def test_a_call_without_memory_is_an_error_and_nothing_else(name: str) -> None:
    """In a process of its own: an allocation of another thread must neither fail in place of the call's nor count as lost."""
    code = f"from {__name__} import attacked\nattacked({name!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
