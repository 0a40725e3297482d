"""What a task leaves behind when its process dies in the middle of a letter."""

from __future__ import annotations

import os
import signal
import struct
from dataclasses import replace
from pathlib import Path

import msgpack

from headgate.agents.state.marks import SIZE, FileMarks, NoMarks, opened, read
from headgate.core.names import StreamPartition
from headgate.core.task.suspects import Mark

MARK = Mark(StreamPartition("in", 3), 7, 9, 1, 2, topic="id")


def test_a_killed_process_leaves_its_mark_to_the_next_owner(tmp_path: Path) -> None:
    """The kernel keeps the pages of a process that SIGKILL ended; nothing was flushed."""
    child = os.fork()
    if child == 0:
        marks = FileMarks(tmp_path, 1)
        marks.begin(Mark(what="watermark of in"))
        marks.end()
        marks.begin(MARK)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert opened(tmp_path, 2).left == (MARK,)


def test_what_is_kept_goes_from_owner_to_owner_until_it_is_cleared(tmp_path: Path) -> None:
    """Each owner has a file of its own, so a stalled one that wakes up writes into a file that is not read any more."""
    stalled = FileMarks(tmp_path, 1)
    stalled.begin(MARK)
    second = FileMarks(tmp_path, 2)
    assert second.left == (MARK,)
    stalled.begin(Mark(what="drain"))
    second.close()
    second.close()  # a task is put down twice if its worker ends meanwhile
    second.begin(Mark(what="end"))
    second.end()
    assert [one.name for one in tmp_path.iterdir()] == ["2"]
    third = FileMarks(tmp_path, 3)
    assert third.left == (MARK,)
    third.keep([])
    third.close()
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_fit_or_is_damaged_is_no_mark(tmp_path: Path) -> None:
    """Nothing may be blamed because of a damaged file."""
    marks = FileMarks(tmp_path / "a", 1)
    marks.begin(Mark(what="x" * 2000))
    assert read(tmp_path / "a" / "1") == []
    (tmp_path / "a" / "1").write_bytes(b"\xff\x00" + b"\xc1" * SIZE)
    assert read(tmp_path / "a" / "1") == []
    (tmp_path / "file").write_text("")
    assert isinstance(opened(tmp_path / "file", 1), NoMarks)


def test_of_more_than_the_file_holds_the_worst_are_kept(tmp_path: Path) -> None:
    """All of them were forgotten, and each letter had to end its worker again."""
    worst, many = Mark(what="worst", deaths=2), [Mark(what=f"{n:0160}") for n in range(100)]
    FileMarks(tmp_path, 1).keep([worst, *many])
    left = opened(tmp_path, 2).left
    assert left == (worst, *many[: len(left) - 1])
    assert len(left) > 30


def test_a_file_of_an_older_version_is_read(tmp_path: Path) -> None:
    """It has no ids of topics."""
    body = msgpack.packb(("in", 3, 7, 9, 1, 2, ""))
    (tmp_path / "1").write_bytes(struct.pack("<H", len(body)) + body + bytes(SIZE))
    assert read(tmp_path / "1") == [replace(MARK, topic="")]
