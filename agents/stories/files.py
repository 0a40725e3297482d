"""Where the story of a worker lies: a few files, oldest first, which together stay below a bound.

    <state directory>/<job>/stories/<worker>/<time>-<process>-<number>.story

    file   "headgate story 1\n", then blocks
    block  length, CRC-32, time of its last line (ms); then its contents, compressed

What a block contains is the matter of `blocks`. It needs no other block to be understood. A file is written by one process, and never again
after it: the next one begins a file of its own.

Promises:

- The files of a worker together are never larger than the bound: the oldest go first.
- What was written stays readable, whatever happens to the process. A block that was not written completely is left out, and counted; so is
  a damaged one, with all that is behind it in its file, as nothing says where the next one begins.
- Reading a file allocates no more than a block may have (`MOST_IN_BLOCK`), whatever its bytes are.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ...core.errors import DataError
from ...core.names import task_directory

FOLDER, SUFFIX = "stories", ".story"
MAGIC = b"headgate story 1\n"
_KIND = b"headgate story "
_HEAD = struct.Struct(">IIQ")
PIECES = 8
"""The bound is divided into so many files, so that an eighth of what is kept is what goes at a time."""
LEAST_BYTES = 64 << 10
"""No file is begun for less."""
MOST_IN_BLOCK = 64 << 20
"""A block says how long it is, before and after compression; what says more than this is damaged."""


def folder_of(job: Path, worker: str) -> Path:
    """Where the story of this worker lies. `job`: the directory of the job below the state directory."""
    return job / FOLDER / task_directory(worker)


class StoryFiles:
    """Writes the story of one process, with at most so many bytes, or 512 KiB. Raises `OSError` if the disk refuses; what comes next then
    goes to a new file.
    """

    def __init__(self, folder: Path, process: str, most_bytes: int) -> None:
        self.folder = folder
        self._process = process
        self._most = max(most_bytes, PIECES * LEAST_BYTES)
        self._file: BinaryIO | None = None
        self._size = 0
        self.begun = 0
        """How many files this process has begun."""

    @property
    def piece(self) -> int:
        """How large a file may become."""
        return max(LEAST_BYTES, self._most // PIECES)

    def write(self, records: bytes, last_ms: int, now_ms: int) -> None:
        """Add one block: it is in the hands of the system when this returns, and survives the process."""
        body = zlib.compress(records, 1)
        block = _HEAD.pack(len(body), zlib.crc32(body), max(0, last_ms)) + body
        if len(MAGIC) + len(block) > self._most:
            raise OSError(
                errno.EFBIG, f"what was decided in a moment takes {len(block)} bytes, more than story.max-bytes"
            )
        if self._size + len(block) > self.piece:
            self.close()
        try:
            if self._file is None:
                self._file = self._begun(now_ms, len(MAGIC) + len(block))
            self._file.write(block)
            self._file.flush()
        except OSError:
            self._give_up()
            raise
        self._size += len(block)

    def _begun(self, now_ms: int, needs: int) -> BinaryIO:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._make_room(max(self.piece, needs))
        self.begun += 1
        file = (self.folder / f"{now_ms:015d}-{self._process[:12]}-{self.begun:06d}{SUFFIX}").open("xb")
        self._size = file.write(MAGIC)
        return file

    def _make_room(self, needs: int) -> None:
        """Remove the oldest files until so many bytes more are within the bound."""
        there = [(path, path.stat().st_size) for path in files_in(self.folder)]
        size = sum(each for _, each in there)
        for path, each in there:
            if size + needs <= self._most:
                return
            path.unlink(missing_ok=True)
            size -= each

    def _give_up(self) -> None:
        """The disk has refused: a file without a block is of no use."""
        file, empty = self._file, self._size == len(MAGIC)
        self.close()
        if file is not None and empty:
            with contextlib.suppress(OSError):
                os.unlink(file.name)

    def close(self) -> None:
        """End the file; what is written next begins another."""
        file, self._file = self._file, None
        self._size = 0
        if file is not None:
            with contextlib.suppress(OSError):  # what it could not write is lost with the block that failed
                file.close()


def files_in(folder: Path) -> list[Path]:
    """The files of a story, oldest first."""
    try:
        names = sorted(one.name for one in os.scandir(folder) if one.name.endswith(SUFFIX))
    except FileNotFoundError:
        return []
    return [folder / name for name in names]


def folders_in(job: Path) -> list[Path]:
    """Where the stories of the workers lie that have run on this disk."""
    try:
        return sorted(Path(one.path) for one in os.scandir(job / FOLDER) if one.is_dir())
    except FileNotFoundError:
        return []


@dataclass(slots=True)
class LeftOut:
    """What of a story could not be read."""

    bytes: int = 0
    files: int = 0

    def note(self, size: int) -> None:
        """The rest of a file."""
        self.bytes += size
        self.files += 1


def blocks_of(path: Path, since_ms: int, left_out: LeftOut) -> Iterator[bytes]:
    """What the blocks of a file contain, in order, without those whose last line is older than `since_ms`."""
    with path.open("rb") as file:
        head = file.read(len(MAGIC))
        if head != MAGIC:
            if head.startswith(_KIND) and len(head) == len(MAGIC):
                raise DataError(
                    f"{path} is a story of another format: {head.decode(errors='replace').strip()!r}",
                    remedy="read it with the version of headgate that wrote it",
                )
            if not MAGIC.startswith(head):
                raise DataError(
                    f"{path} is not a story",
                    remedy="give a file below `stories` in the state directory, or the directory",
                )
            left_out.note(len(head))  # the process ended before the first block
            return
        size = path.stat().st_size
        while True:
            at = file.tell()
            given = file.read(_HEAD.size)
            if not given:
                return
            body = b""
            if len(given) == _HEAD.size:
                length, checksum, last_ms = _HEAD.unpack(given)
                if length <= MOST_IN_BLOCK:
                    body = file.read(length)
                if len(body) == length and zlib.crc32(body) == checksum:
                    if last_ms >= since_ms:
                        yield _inflated(body)
                    continue
            left_out.note(max(size - at, len(given) + len(body)))
            return


def _inflated(body: bytes) -> bytes:
    made = zlib.decompressobj()
    found = made.decompress(body, MOST_IN_BLOCK)
    if made.unconsumed_tail:
        raise DataError("a block of a story is too large", remedy="the file is damaged; remove it")
    return found
