"""The file system of a target, as publishing needs it: local, any of Hadoop's through the JVM, or one of pyarrow's where there is no JVM.

- `file:` paths are used directly. With Spark Connect or a cluster, its executors must see the same directory.
- With a session that has a JVM, everything else goes through Hadoop's `FileSystem`, with Spark's own configuration and credentials.
- With Spark Connect, pyarrow's file systems are used, with the credentials of the worker's environment. Other schemes are refused.

What it promises: `put` creates a file that is there whole or not at all. `move` gives a file its name in one step, so that a file under its
final name is whole, too. On object stores a move is a copy of the object followed by a deletion; the copy appears whole.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from ...core.errors import EnvironmentFault

ARROW_SCHEMES = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "abfs": "abfs",
    "abfss": "abfss",
    "hdfs": "hdfs",
    "file": "file",
}
"""The schemes that pyarrow has a file system for, and what it calls them."""


DRAFT = re.compile(r"\.+[0-9a-f]{32}\.tmp(\.crc)?")
"""The names of files that are being created."""


class Files(Protocol):
    """A file system. All paths are URIs below the target. Everything may raise `OSError`, or an error of the JVM."""

    def found(self, directory: str) -> list[tuple[str, int]]:
        """All files below a directory, as relative path and size; none if it does not exist."""
        ...

    def names(self, directory: str) -> list[str]:
        """The names in a directory; none if it does not exist."""
        ...

    def size(self, path: str) -> int | None:
        """The size of a file; None if there is none."""
        ...

    def read(self, path: str) -> str | None:
        """The text of a file; None if there is none."""
        ...

    def put(self, path: str, text: str) -> None:
        """Create a file, or replace it."""
        ...

    def move(self, source: str, target: str) -> bool:
        """Give a file its final name, which is free or belongs to the same file. False if there is no source."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file, or a directory with everything below it, if it exists."""
        ...

    def settle(self, top: str, directories: Iterable[str]) -> None:
        """Return when these directories, by their paths below `top`, are found again after a power cut, whoever made them."""
        ...


class LocalFiles:
    """`file:` URIs. What is created or moved is on the disk before the call returns."""

    def _path(self, uri: str) -> Path:
        return Path(uri.removeprefix("file://"))

    def found(self, directory: str) -> list[tuple[str, int]]:
        """All files below a directory."""
        top = self._path(directory)
        files: list[tuple[str, int]] = []
        for at, _, names in os.walk(top):
            for name in names:
                path = Path(at, name)
                with contextlib.suppress(FileNotFoundError):
                    files.append((path.relative_to(top).as_posix(), path.stat().st_size))
        return files

    def names(self, directory: str) -> list[str]:
        """The names in a directory."""
        try:
            return os.listdir(self._path(directory))
        except FileNotFoundError:
            return []

    def size(self, path: str) -> int | None:
        """The size of a file."""
        try:
            return self._path(path).stat().st_size
        except FileNotFoundError:
            return None

    def read(self, path: str) -> str | None:
        """The text of a file."""
        try:
            return self._path(path).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def put(self, path: str, text: str) -> None:
        """Create a file under another name, and move it."""
        target = self._path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{uuid.uuid4().hex}.tmp")
        try:
            with draft.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
        except FileNotFoundError:
            if not target.exists():  # another process has put the same, and taken this draft for one of a dead process
                raise
        finally:
            draft.unlink(missing_ok=True)
        _sync(target.parent)

    def move(self, source: str, target: str) -> bool:
        """Move a file."""
        old, new = self._path(source), self._path(target)
        new.parent.mkdir(parents=True, exist_ok=True)
        try:
            _sync(old)
            old.replace(new)
        except FileNotFoundError:
            return False
        _sync(new.parent)
        return True

    def delete(self, path: str) -> None:
        """Delete a tree. Others may delete it, or write into it, at the same time."""
        where = self._path(path)
        if where.is_dir():
            shutil.rmtree(where, ignore_errors=True)
        else:
            where.unlink(missing_ok=True)

    def settle(self, top: str, directories: Iterable[str]) -> None:
        """Sync the directories that hold the names of these."""
        root = self._path(top)
        above = {at for one in directories for at in (root / one).parents if at.is_relative_to(root)}
        for at in sorted(above | {root}):
            _sync(at)
        with contextlib.suppress(PermissionError):  # someone else's, who has made `root`
            _sync(root.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class HadoopFiles:
    """Any file system of Hadoop, through the JVM of a session, as Spark itself uses it."""

    def __init__(self, session: Any, target: str) -> None:
        self._jvm: Any = session._jvm
        configuration = session.sparkContext._jsc.hadoopConfiguration()
        self._files: Any = self._path(target).getFileSystem(configuration)

    def _path(self, uri: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(uri)

    def found(self, directory: str) -> list[tuple[str, int]]:
        """All files below a directory."""
        top = f"{self._files.makeQualified(self._path(directory)).toString()}/"
        files: list[tuple[str, int]] = []
        with _none_if_missing():
            each = self._files.listFiles(self._path(directory), True)
            while each.hasNext():
                one = each.next()
                files.append((one.getPath().toString().removeprefix(top), int(one.getLen())))
        return files

    def names(self, directory: str) -> list[str]:
        """The names in a directory."""
        with _none_if_missing():
            return [one.getPath().getName() for one in self._files.listStatus(self._path(directory))]
        return []

    def size(self, path: str) -> int | None:
        """The size of a file."""
        with _none_if_missing():
            return int(self._files.getFileStatus(self._path(path)).getLen())
        return None

    def read(self, path: str) -> str | None:
        """The text of a file."""
        with _none_if_missing():
            stream = self._files.open(self._path(path))
            try:
                return bytes(stream.readAllBytes()).decode()
            finally:
                stream.close()
        return None

    def put(self, path: str, text: str) -> None:
        """Create a file under another name, and move it: on a file system that shows a file before it is whole, no one sees this one."""
        directory = path.rpartition("/")[0]
        draft = f"{directory}/.{uuid.uuid4().hex}.tmp"
        stream = self._files.create(self._path(draft), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        if not self.move(draft, path) and self.size(path) is None:
            raise FileNotFoundError(f"{draft} is gone: another process took its owner for dead")
        self.delete(draft)  # the name was taken: by another process, which writes the same

    def move(self, source: str, target: str) -> bool:
        """Move a file. Hadoop's rename never replaces; it says false, or raises, if there is no source or the name is taken."""
        old, new = self._path(source), self._path(target)
        self._files.mkdirs(new.getParent())
        with _none_if_missing():
            if self._files.rename(old, new):
                return True
        if not self._files.exists(old):
            return False
        if self._files.exists(new):
            return True
        raise OSError(f"the file system does not rename {source} to {target}")

    def delete(self, path: str) -> None:
        """Delete a tree."""
        self._files.delete(self._path(path), True)

    def settle(self, top: str, directories: Iterable[str]) -> None:
        """Nothing is to be done: a file system of Hadoop keeps the names that it has accepted."""


class _none_if_missing(contextlib.AbstractContextManager[None]):
    """Leaves the block if the JVM says that a file does not exist (or, of a rename, that it exists already)."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        java = getattr(error, "java_exception", None)
        return java is not None and java.getClass().getSimpleName() in (
            "FileNotFoundException",
            "NoSuchFileException",
            "FileAlreadyExistsException",
        )


def arrow_path(target: str) -> str:
    """The URI of a target as pyarrow has it.

    >>> arrow_path("s3a://bucket/a b")
    's3://bucket/a%20b'
    """
    scheme, _, rest = target.partition("://")
    return f"{ARROW_SCHEMES[scheme]}://{quote(rest, safe='/:@')}"


class ArrowFiles:
    """One of pyarrow's file systems."""

    def __init__(self, target: str) -> None:
        from pyarrow import fs

        self._fs: Any
        self._kinds: Any = fs
        self._fs, self._top = fs.FileSystem.from_uri(arrow_path(target))
        self._target = target

    def _path(self, uri: str) -> str:
        return self._top.rstrip("/") + uri.removeprefix(self._target)

    def _selected(self, directory: str, recursive: bool) -> list[Any]:
        selector = self._kinds.FileSelector(self._path(directory), recursive=recursive, allow_not_found=True)
        return self._fs.get_file_info(selector)

    def found(self, directory: str) -> list[tuple[str, int]]:
        """All files below a directory."""
        top = f"{self._path(directory)}/"
        every = self._selected(directory, recursive=True)
        return [(one.path.removeprefix(top), one.size) for one in every if one.type == self._kinds.FileType.File]

    def names(self, directory: str) -> list[str]:
        """The names in a directory."""
        return [one.base_name for one in self._selected(directory, recursive=False)]

    def size(self, path: str) -> int | None:
        """The size of a file."""
        return self._fs.get_file_info(self._path(path)).size

    def read(self, path: str) -> str | None:
        """The text of a file."""
        try:
            with self._fs.open_input_stream(self._path(path)) as stream:
                return stream.read().decode()
        except OSError:  # an object that goes while it is read is no FileNotFoundError
            if self.size(path) is None:
                return None
            raise

    def put(self, path: str, text: str) -> None:
        """Create a file under another name, and move it."""
        directory = path.rpartition("/")[0]
        draft = f"{directory}/.{uuid.uuid4().hex}.tmp"
        self._fs.create_dir(self._path(directory), recursive=True)
        with self._fs.open_output_stream(self._path(draft)) as stream:
            stream.write(text.encode())
        if not self.move(draft, path) and self.size(path) is None:
            raise FileNotFoundError(f"{draft} is gone: another process took its owner for dead")

    def move(self, source: str, target: str) -> bool:
        """Move a file."""
        self._fs.create_dir(self._path(target.rpartition("/")[0]), recursive=True)
        try:
            self._fs.move(self._path(source), self._path(target))
        except FileNotFoundError:
            return False
        return True

    def delete(self, path: str) -> None:
        """Delete a tree."""
        with contextlib.suppress(FileNotFoundError):
            kind = self._fs.get_file_info(self._path(path)).type
            if kind == self._kinds.FileType.Directory:
                self._fs.delete_dir(self._path(path))
            elif kind == self._kinds.FileType.File:
                self._fs.delete_file(self._path(path))

    def settle(self, top: str, directories: Iterable[str]) -> None:
        """Nothing is to be done: these file systems keep the names that they have accepted."""


def files_of(target: str, session: Any = None) -> Files:
    """The file system of a target, with the session that writes there, if there is one."""
    scheme = target.partition(":")[0]
    if scheme == "file":
        return LocalFiles()
    if getattr(session, "_jvm", None) is not None:
        return HadoopFiles(session, target)
    if scheme not in ARROW_SCHEMES:
        raise EnvironmentFault(
            f"files at {scheme}: can be published only by a session with a JVM, and this one is a client of Spark Connect"
            if session is not None
            else f"files at {scheme}: cannot be listed without a Spark session",
            remedy=f"use spark.master, or one of the schemes {', '.join(sorted(ARROW_SCHEMES))}"
            if session is not None
            else "pass one: spark=session",
        )
    return ArrowFiles(target)
