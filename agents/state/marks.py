"""What a task leaves behind when its process dies in the middle of a letter: a small file in memory that it shares with the next process.

    <state.dir>/<job directory>/letters/<task>/<grant>

A letter writes its mark before it begins and clears it when it has ended, in whatever way: stores into mapped memory, no system call. The
kernel keeps the pages of a process that was killed. The next owner of the task at this location reads the files of earlier grants, keeps in
its own file what still matters, and removes theirs. A process of an earlier grant that still runs writes into a file that is not read any
more.

Promises: a file that cannot be used is no error: then nothing is remembered. A mark that was half written is none.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol, cast

import msgpack

from ...core.coordination.messages import LetterMark
from ...core.names import StreamPartition
from ...core.task.suspects import Mark
from ..logger import Logger

log = Logger("headgate.store")
_library = cast("Any", msgpack)
_packb: Callable[..., bytes] = _library.packb
_unpackb: Callable[..., Any] = _library.unpackb
SIZE = 8192
_MARK, _KEPT = 0, 1024
"""Where the current mark and the inherited ones begin."""
_LENGTH = struct.Struct("<H")


class Marks(Protocol):
    """Where the letters of one task are marked."""

    left: tuple[Mark, ...]
    """What the processes before this one have left behind."""
    complete: bool
    """Whether the last process of the task has left what it had here: nothing else is known of its letters elsewhere."""

    def begin(self, mark: Mark) -> None:
        """This letter, or this row of it, is under way from now on."""
        ...

    def end(self) -> None:
        """No letter is under way."""
        ...

    def keep(self, marks: Iterable[Mark]) -> None:
        """The next process must know of these, too. Those with the most deaths come first."""
        ...

    def close(self) -> None:
        """The task has left this process in order."""
        ...


class NoMarks:
    """Remembers nothing: without a state directory, and in memory."""

    left: tuple[Mark, ...] = ()
    complete = True

    def begin(self, mark: Mark) -> None: ...
    def end(self) -> None: ...
    def keep(self, marks: Iterable[Mark]) -> None: ...
    def close(self) -> None: ...


class FileMarks:
    """One mapped file."""

    def __init__(self, directory: Path, grant: int) -> None:
        """Raises `OSError` if the directory cannot be used."""
        directory.mkdir(parents=True, exist_ok=True)
        before = sorted(one for one in directory.iterdir() if one.name.isdigit() and int(one.name) <= grant)
        found = [mark for path in before for mark in read(path)]
        self.left = tuple(found)
        self.complete = any(int(one.name) >= grant - 1 for one in before)
        self._path = directory / str(grant)
        self._path.touch()
        with self._path.open("r+b") as file:
            # written and never cut short: a mapped page without a block behind it would end the process where the disk is full
            file.write(bytes(SIZE))
            file.truncate()
            self._map: mmap.mmap | bytearray = mmap.mmap(file.fileno(), SIZE)
            """Memory of no file once it is closed."""
        self.keep(found)
        for path in before:
            if path != self._path:
                path.unlink(missing_ok=True)

    def begin(self, mark: Mark) -> None:
        self._put(_MARK, _packed(mark), _KEPT)

    def end(self) -> None:
        _LENGTH.pack_into(self._map, _MARK, 0)

    def keep(self, marks: Iterable[Mark]) -> None:
        """Of more than there is room for, the first are kept: those with the most deaths."""
        found, room = [fields_of(one) for one in marks], SIZE - _KEPT - _LENGTH.size
        while len(body := _packb(found)) > room:
            found.pop()
        self._put(_KEPT, body, SIZE)

    def close(self) -> None:
        if isinstance(self._map, bytearray):
            return
        kept = bool(_LENGTH.unpack_from(self._map, _KEPT)[0] > 1)
        mapped, self._map = self._map, bytearray(SIZE)
        mapped.close()
        if not kept:
            self._path.unlink(missing_ok=True)

    def _put(self, at: int, body: bytes, until: int) -> None:
        """The length comes last, so that a half-written body counts for nothing."""
        _LENGTH.pack_into(self._map, at, 0)
        begin = at + _LENGTH.size
        if begin + len(body) <= until:
            self._map[begin : begin + len(body)] = body
            _LENGTH.pack_into(self._map, at, len(body))


def opened(directory: Path, grant: int) -> Marks:
    """The marks of a task under this grant."""
    try:
        return FileMarks(directory, grant)
    except OSError as error:
        log.warning("letters in progress cannot be recorded", path=str(directory), why=str(error))
        return NoMarks()


def read(path: Path) -> list[Mark]:
    """The marks in a file: that of the letter under way, and the inherited ones. Nothing, if it is not such a file."""
    found: list[Mark] = []
    with contextlib.suppress(OSError, ValueError, TypeError, struct.error, msgpack.exceptions.UnpackException):
        data = path.read_bytes()
        for at in (_MARK, _KEPT):
            (length,) = _LENGTH.unpack_from(data, at)
            body = data[at + _LENGTH.size : at + _LENGTH.size + length]
            if length:
                many = _unpackb(body)
                found += [mark_of(one) for one in ([many] if at == _MARK else many)]
    return found


def fields_of(mark: Mark) -> LetterMark:
    """A mark as plain values."""
    stream, partition = mark.at or ("", 0)
    one = stream, partition, mark.first, mark.upto, mark.row, mark.deaths, mark.what, mark.topic
    return one if mark.rows == 1 else (*one, mark.rows)


def _packed(mark: Mark) -> bytes:
    return _packb(fields_of(mark))


def mark_of(fields: Any) -> Mark:
    """The mark of plain values."""
    stream, partition, first, upto, row, deaths, what, *more = (
        fields  # a file of an older version has no id of the topic
    )
    at = StreamPartition(str(stream), int(partition)) if stream else None
    topic, rows = (*more, *("", 1)[len(more) :])
    return Mark(at, int(first), int(upto), int(row), int(deaths), str(what), str(topic), int(rows))
