"""Runs each compiled part beside its plain twin on random arguments, right and wrong ones, also under sanitizers: `make fuzz`,
`make sanitize`. `targets` and its neighbours say what is called.

    python -m tests.agents.records.fuzz 2000000                     # other arguments in each run; prints the seed
    python -m tests.agents.records.fuzz 2000000 SEED ROUND          # from the round on at which a seed has failed
    python -m tests.agents.records.fuzz --sanitize 2000000 [SEED]   # built with -fsanitize=address,undefined; runs their tests first
    python -m tests.agents.records.fuzz --scalar 2000000 [SEED]     # the same, without what x86-64 and arm64 have of their own
    python -m tests.agents.records.fuzz --only windows 10000        # one target

The number is that of mutated records that are compared with orjson; the other targets run once for each `RECORDS` of them. Buffers are of
exactly the size that they say, so that a sanitizer finds a read of one byte too many. Exits 1 at the first difference, with the arguments.
"""

from __future__ import annotations

import importlib.util
import os
import random
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "agents" / "records" / "native"
MODULE = "headgate.agents.records.native._columns"
INSIDE = "HEADGATE_SANITIZED"
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
FLAGS = [
    *WARNINGS,
    "-g",
    "-O1",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
    "-shared",
    "-fPIC",
]
COMPILER = os.environ.get("CC", "gcc")


def targets() -> dict[str, Callable[[random.Random], None]]:
    """The targets by their names."""
    from . import targets as of_columns
    from . import targets_arrow, targets_avro, targets_proto, targets_records, targets_states

    tail = "_target"
    return {
        name.removesuffix(tail): getattr(module, name)
        for module in (of_columns, targets_records, targets_states, targets_arrow, targets_avro, targets_proto)
        for name in vars(module)
        if name.endswith(tail)
    }


def built_sanitized(scalar: bool) -> Path:
    """The compiled part, built with sanitizers from the sources that stand here."""
    made = ROOT / "build" / "sanitized" / ("scalar" if scalar else "machine") / "_columns.so"
    made.parent.mkdir(parents=True, exist_ok=True)
    include = sysconfig.get_paths()["include"]
    sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
    more = ["-DHEADGATE_SCALAR"] if scalar else []
    subprocess.run([COMPILER, *FLAGS, *more, f"-I{include}", *sources, "-o", str(made)], check=True)
    return made


def again_sanitized(arguments: list[str], scalar: bool) -> int:
    """Run this file again in a process that loads the sanitized build."""
    made = built_sanitized(scalar)
    found = subprocess.run([COMPILER, "-print-file-name=libasan.so"], check=True, capture_output=True, text=True)
    environment = {
        **os.environ,
        INSIDE: str(made),
        "LD_PRELOAD": found.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter itself keeps much until its end; tests count what is kept
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
    }
    command = [sys.executable, "-m", "tests.agents.records.fuzz", *arguments]
    return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode


def load_sanitized(built: str) -> None:
    """The sanitized module under the name of the compiled part, before anything imports that."""
    spec = importlib.util.spec_from_file_location(MODULE, built)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[MODULE] = module


def tests_sanitized() -> int:
    """The tests of everything compiled, with the sanitized module. Zero if all have passed."""
    import pytest

    here = ROOT / "tests" / "agents"
    files = [str(here / "records"), str(here / "runtime" / "writing" / "test_buffer.py")]
    files.append(str(here / "kafka" / "test_small_batches.py"))
    files.append(str(here / "operators" / "plain" / "test_columns_against_rows.py"))
    # a process under a memory limit cannot hold the shadow memory of a sanitizer; this file is no test of itself
    without = ["--ignore", str(here / "records" / "test_fuzz.py")]
    return int(pytest.main(["-p", "no:cacheprovider", "-q", "-k", "not nine_bytes", *without, *files]))


def run(names: list[str], rounds: range, seed: int) -> None:
    """These rounds of these targets. Raises at the first difference, and says where that was."""
    every = targets()
    for number in rounds:
        for name in names:
            try:
                every[name](random.Random(f"{seed} {number} {name}"))
            except BaseException:
                print(f"target {name}, seed {seed}, round {number}", flush=True)
                raise


def main(arguments: list[str]) -> int:
    """Zero if there was no difference."""
    from .targets import RECORDS

    flags, words = [one for one in arguments if one.startswith("--")], [one for one in arguments if one[:2] != "--"]
    names = list(targets()) if "--only" not in flags else [words.pop(0)]
    numbers = [int(one) for one in words]
    most, first = numbers[0] if numbers else 1_000_000, numbers[2] if len(numbers) > 2 else 0
    seed = numbers[1] if len(numbers) > 1 else random.SystemRandom().randrange(1 << 32)
    print(f"{most} records, seed {seed} {' '.join(flags)}", flush=True)
    began = time.monotonic()
    run(names, range(first, max(first + 1, most // RECORDS)), seed)
    print(f"no difference in {len(names)} targets, {time.monotonic() - began:.0f} s", flush=True)
    return 0


def entry(arguments: list[str]) -> int:
    """`main`, in a process with the sanitized module where that is asked for."""
    scalar, inside = "--scalar" in arguments, os.environ.get(INSIDE)
    sanitize = scalar or "--sanitize" in arguments
    if sanitize and inside is None:
        return again_sanitized(arguments, scalar)
    if inside is not None:
        load_sanitized(inside)
        if "--short" not in arguments and (failed := tests_sanitized()) != 0:
            return failed
    return main(arguments)


if __name__ == "__main__":
    sys.exit(entry(sys.argv[1:]))
