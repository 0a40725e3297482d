"""Builds the compiled part for machines of other kinds, without a warning, and runs what it has for arm64 alone: `make arm64`.

    python -m tests.agents.records.other_machines 20000 [SEED]      # so many texts; prints the seed

Zig brings the compiler and the system headers of each machine, Unicorn the processor; both are wheels. What reads and writes JSON (NEON,
products of 128 bits) needs no library, so it runs on the emulated processor; every answer must be the byte that the plain way gives here.
Exits 1 at the first warning or difference, with the text.

All of the compiled part runs only where a Python for arm64 does, on such a machine or under a user-mode emulator. There

    python -m tests.agents.records.fuzz 200000

compares it with its plain twins.
"""

from __future__ import annotations

import ctypes
import os
import random
import struct
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import unicorn
from unicorn import arm64_const

from .fuzz import COMPILER, ROOT, SOURCES, WARNINGS
from .mutations import RECORDS, mutated

BUILD = ROOT / "build" / "machines"
KERNELS = [Path(__file__).with_name("kernels.c"), SOURCES / "numbers.c"]
# NEON; neither that nor SSE; the highest byte first; SSE as clang has it
MACHINES = ["aarch64-linux-gnu", "aarch64-macos", "riscv64-linux-gnu", "s390x-linux-gnu", "x86_64-linux-musl"]
SAID = 1 << 24  # bytes that the answers to one text may take
PAGE = 1 << 16
TEXT, ANSWERS, STACK, BEHIND = 0x4000_0000, 0x5000_0000, 0x6000_0000, 0x7000_0000


def _zig(*arguments: str) -> None:
    caches = {"ZIG_GLOBAL_CACHE_DIR": str(BUILD / "cache"), "ZIG_LOCAL_CACHE_DIR": str(BUILD / "cache")}
    subprocess.run([sys.executable, "-m", "ziglang", *arguments], env={**os.environ, **caches}, check=True)


def _objects(machine: str, sources: list[Path], *more: str) -> list[str]:
    made = []
    for source in sources:
        made.append(str(BUILD / machine / f"{source.stem}.o"))
        Path(made[-1]).parent.mkdir(parents=True, exist_ok=True)
        _zig("cc", "-target", machine, *WARNINGS, "-O2", "-fPIC", *more, "-c", str(source), "-o", made[-1])
    return made


def build(machine: str) -> None:
    """All of the compiled part, for a machine. Python's own headers are this one's: those of all with 64 bits say the same."""
    _objects(machine, sorted(SOURCES.glob("*.c")), f"-I{sysconfig.get_paths()['include']}")


class Here:
    """The kernels on this machine, the plain way."""

    def __init__(self) -> None:
        library = BUILD / "kernels.so"
        sources = [str(source) for source in KERNELS]
        command = [COMPILER, *WARNINGS, "-O1", "-DPLAIN", "-shared", "-fPIC", *sources, "-o", str(library)]
        subprocess.run(command, check=True)
        self._run = ctypes.CDLL(str(library)).kernels
        self._run.restype = ctypes.c_uint64
        self._said = ctypes.create_string_buffer(SAID)

    def answers(self, text: bytes) -> bytes:
        length = self._run(text, ctypes.c_uint64(len(text)), self._said)
        return ctypes.string_at(self._said, length)


class Arm64:
    """The kernels on an emulated processor. It has no other memory: a read beyond a page of the text is an error."""

    def __init__(self) -> None:
        linked = BUILD / "kernels.elf"
        _zig(
            "ld.lld",
            "-e",
            "kernels",
            "-o",
            str(linked),
            *_objects("aarch64-linux-gnu", KERNELS, "-DFREESTANDING", "-fno-stack-protector"),
        )
        self._processor = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        for at, size in ((ANSWERS, SAID), (STACK, PAGE), (BEHIND, PAGE), (TEXT, PAGE)):
            self._processor.mem_map(at, size)
        self._processor.reg_write(arm64_const.UC_ARM64_REG_CPACR_EL1, 3 << 20)  # NEON is allowed
        self._entry = self._load(linked.read_bytes())

    def _load(self, elf: bytes) -> int:
        entry, headers = struct.unpack_from("<QQ", elf, 24)
        size, count = struct.unpack_from("<HH", elf, 54)
        mapped: set[int] = set()
        for number in range(count):
            kind, _, offset, at, _, in_file, in_memory = struct.unpack_from("<IIQQQQQ", elf, headers + number * size)
            if kind != 1:  # PT_LOAD
                continue
            for page in range(at // PAGE, (at + in_memory + PAGE - 1) // PAGE):
                if page not in mapped:
                    self._processor.mem_map(page * PAGE, PAGE)
                    mapped.add(page)
            self._processor.mem_write(at, elf[offset : offset + in_file])
        return entry

    def answers(self, text: bytes) -> bytes:
        """The text ends where its page does, so that the processor faults at a read behind it."""
        at = TEXT + PAGE - len(text)
        self._processor.mem_write(at, text)
        for register, value in (("X0", at), ("X1", len(text)), ("X2", ANSWERS), ("SP", STACK + PAGE), ("LR", BEHIND)):
            self._processor.reg_write(getattr(arm64_const, f"UC_ARM64_REG_{register}"), value)
        self._processor.emu_start(self._entry, BEHIND)
        return bytes(self._processor.mem_read(ANSWERS, self._processor.reg_read(arm64_const.UC_ARM64_REG_X0)))


def texts(chance: random.Random) -> Iterator[bytes]:
    """Each byte in each of 16 places, then mutated records, numbers and noise, without end."""
    for byte in range(256):
        for place in range(16):
            yield b"a" * place + bytes([byte]) + b"b" * (15 - place) + b'"'
    while True:
        way = chance.randrange(4)
        if way == 0:
            yield chance.randbytes(chance.randrange(1, 48))
        elif way == 1:
            number = struct.unpack("<d", chance.randbytes(8))[0]
            yield repr(number).encode()[: chance.randrange(1, 30)]
        elif way == 2:
            yield b"%de%d" % (
                chance.randrange(-(1 << chance.randrange(1, 90)), 1 << chance.randrange(1, 90)),
                chance.randrange(-350, 330),
            )
        else:
            yield mutated(chance, chance.choice(RECORDS))[:120]


def main(arguments: list[str]) -> int:
    """Zero if nothing was found."""
    numbers = [int(one) for one in arguments]
    most = numbers[0] if numbers else 20_000
    seed = numbers[1] if len(numbers) > 1 else random.SystemRandom().randrange(1 << 32)
    for machine in MACHINES:
        began = time.monotonic()
        build(machine)
        print(f"built for {machine} without a warning, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{most} texts, seed {seed}", flush=True)
    began = time.monotonic()
    here, there, said = Here(), Arm64(), 0
    for _, text in zip(range(most), texts(random.Random(seed)), strict=False):
        wanted, found = here.answers(text), there.answers(text)
        if wanted != found:
            print(f"arm64 differs from the plain way on {text!r}:\n{found!r}\n{wanted!r}")
            return 1
        said += len(wanted)
    print(f"no difference in {said} bytes of answers, {time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
