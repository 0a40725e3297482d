"""Compares the compiled part with orjson over millions of mutated records, and with expressions over lists, also under sanitizers: `make
fuzz`, `make sanitize`.

    python -m tests.agents.records.fuzz 2000000                     # other records in each run; prints the seed
    python -m tests.agents.records.fuzz --sanitize 2000000 [SEED]   # the compiled part built with -fsanitize=address,undefined

With sanitizers each record lies in memory of exactly its own size, so that a read of one byte too many is found. Exits 1 at the first
difference, with the record.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import random
import subprocess
import sys
import sysconfig
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "agents" / "records"
BUILT = ROOT / "build" / "sanitized" / "_columns.so"
MODULE = "headgate.agents.records._columns"
INSIDE = "HEADGATE_SANITIZED"
FLAGS = [
    "-g",
    "-O1",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
    "-shared",
    "-fPIC",
]


def again_sanitized(arguments: list[str]) -> int:
    """Build the compiled part with sanitizers, and run this file again in a process that loads it."""
    BUILT.parent.mkdir(parents=True, exist_ok=True)
    include = sysconfig.get_paths()["include"]
    sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
    compiler = os.environ.get("CC", "gcc")
    subprocess.run([compiler, *FLAGS, f"-I{include}", *sources, "-o", str(BUILT)], check=True)
    found = subprocess.run([compiler, "-print-file-name=libasan.so"], check=True, capture_output=True, text=True)
    environment = {
        **os.environ,
        INSIDE: "1",
        "LD_PRELOAD": found.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter itself keeps much until its end; test_decoder counts what is kept
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
    }
    command = [sys.executable, "-m", "tests.agents.records.fuzz", *arguments]
    return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode


def load_sanitized() -> None:
    """The sanitized module under the name of the compiled part, before anything imports that."""
    spec = importlib.util.spec_from_file_location(MODULE, BUILT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[MODULE] = module


def tests_sanitized() -> int:
    """The tests of everything compiled, with the sanitized module. Zero if all have passed."""
    import pytest

    here = ROOT / "tests" / "agents" / "records"
    files = [
        str(here / f"test_{name}.py")
        for name in (
            "decoder",
            "encoder",
            "expressions",
            "groups",
            "spans",
            "packing",
            "columns",
            "taking",
            "arrow_frames",
            "arrow_take",
            "chunks",
            "column_chunk",
            "cut_fields",
            "longs",
            "rows_by_window",
            "column_chunk",
        )
    ]
    files.append(str(ROOT / "tests" / "agents" / "runtime" / "test_buffer.py"))
    files.append(str(ROOT / "tests" / "agents" / "operators" / "test_columns_against_rows.py"))
    # a process under a memory limit cannot hold the shadow memory of a sanitizer
    return int(pytest.main(["-p", "no:cacheprovider", "-q", "-k", "not nine_bytes", *files]))


def exactly(data: bytes) -> Any:
    """A buffer of just this size, on the heap: behind its last byte a sanitizer watches."""
    return (ctypes.c_ubyte * len(data)).from_buffer_copy(data)


def decoding(sanitized: bool) -> Callable[[random.Random], int]:
    """One round: some records through both decoders. Returns how many, and raises at a difference."""
    from headgate.agents.records import columns
    from headgate.agents.records.decoder import Decoder

    from .mutations import COLUMNS, outcome, some

    more = {"known": ["known"], "watched": ["watched"]}
    compiled = Decoder(COLUMNS, **more)
    assert columns.compiled is not None, "the compiled part is not built here"
    built, columns.compiled = columns.compiled, None
    plain = Decoder(COLUMNS, **more)
    columns.compiled = built

    def compare(chance: random.Random) -> int:
        records = some(chance, 500)
        if sanitized:
            for record in records:
                compiled.decode(exactly(record), array("q", [0]), array("q", [len(record)]))
        if outcome(compiled, records) != outcome(plain, records):
            for record in records:
                found, wanted = outcome(compiled, [record]), outcome(plain, [record])
                assert found == wanted, f"{record!r}\ncompiled: {found}\norjson:   {wanted}"
            raise AssertionError(f"these differ together, but not alone: {records}")
        return len(records)

    return compare


def encoding(sanitized: bool) -> Callable[[random.Random], int]:
    """One round: columns of any bytes that are valid, and originals that were decoded, through both encoders."""
    from headgate.agents.records import columns
    from headgate.agents.records.decoder import Decoder, RecordSpans
    from headgate.agents.records.encoder import Encoder

    from .mutations import COLUMNS, some, spans

    decoder, names = Decoder(COLUMNS), [column.name for column in COLUMNS]
    encoders = [Encoder(names), Encoder(names, added=["note", "u", "amount"])]
    assert columns.compiled is not None, "the compiled part is not built here"

    def texts(found: RecordSpans) -> list[bytes]:
        offsets, lengths = (list(memoryview(one).cast("B").cast("q")) for one in found[1:])
        return [bytes(found.buffer[at : at + size]) for at, size in zip(offsets, lengths, strict=True)]

    def compare(chance: random.Random) -> int:
        found = decoder.decode(*spans(some(chance, 500)))
        if sanitized:
            for one in found.columns.vectors:
                one.data = exactly(bytes(one.data))
            found.spans = found.spans._replace(buffer=exactly(bytes(found.spans.buffer)))
        for encoder in encoders:
            for originals in ((), (found.spans,), (found.spans, found.others)):
                one = texts(encoder.encode(found.columns, None, *originals))
                built, columns.compiled = columns.compiled, None
                other = texts(encoder.encode(found.columns, None, *originals))
                columns.compiled = built
                for mine, wanted in zip(one, other, strict=True):
                    assert mine == wanted, f"compiled: {mine!r}\norjson:   {wanted!r}"
        return 0

    return compare


def computing(sanitized: bool) -> Callable[[random.Random], int]:
    """One round: random expressions over random columns, compiled and plain."""
    from headgate.agents.records.column_chunk import ColumnChunk
    from headgate.agents.records.expressions import Computation

    from . import trees

    def compare(chance: random.Random) -> int:
        for _ in range(20):
            of = trees.chunk(chance, 1100)
            if sanitized:
                of = ColumnChunk(
                    {name: trees.cut_exactly(one, exactly) for name, one in of.vectors.items()}, of.times, of.picked
                )
            node = trees.tree(chance, chance.choice(trees.KINDS))
            found, wanted = trees.computed(Computation(node, trees.SCHEMA), of), trees.plainly(node, of)
            assert found == wanted, f"{node}\ncompiled: {found}\nplain:    {wanted}"
        return 0

    return compare


def main(arguments: list[str]) -> int:
    """Zero if there was no difference."""
    sanitize = "--sanitize" in arguments
    numbers = [int(one) for one in arguments if one != "--sanitize"]
    most = numbers[0] if numbers else 1_000_000
    seed = numbers[1] if len(numbers) > 1 else random.SystemRandom().randrange(1 << 32)
    if sanitize and not os.environ.get(INSIDE):
        return again_sanitized(["--sanitize", str(most), str(seed)])
    if sanitize:
        load_sanitized()
        if (failed := tests_sanitized()) != 0:
            return failed
    chance, began, done = random.Random(seed), time.monotonic(), 0
    print(f"{most} mutated records, seed {seed}{', with sanitizers' if sanitize else ''}", flush=True)
    rounds = [decoding(sanitize), encoding(sanitize), computing(sanitize)]
    while done < most:
        for one in rounds:
            done += one(chance)
    print(f"{done} records, no difference, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
