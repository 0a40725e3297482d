"""The files of a story: bounded, oldest first, readable whatever happened to the process that wrote them."""

from __future__ import annotations

import random
import struct

import pytest

from headgate.agents.stories.files import (
    LEAST_BYTES,
    MAGIC,
    PIECES,
    LeftOut,
    StoryFiles,
    blocks_of,
    files_in,
    folder_of,
    folders_in,
)
from headgate.core.errors import DataError

MS = 1_767_225_600_000


def noise(number, size=20_000):
    """Bytes that do not become smaller, which say which they are."""
    return number.to_bytes(4, "big") + random.Random(number).randbytes(size)


def size_of(folder):
    return sum(path.stat().st_size for path in files_in(folder))


def numbers(folder, since_ms=0):
    left_out = LeftOut()
    found = [int.from_bytes(one[:4], "big") for path in files_in(folder) for one in blocks_of(path, since_ms, left_out)]
    return found, left_out


def test_the_files_of_a_worker_stay_below_the_bound_and_the_newest_stay(tmp_path):
    """Much more is written than is kept, by one process after the other: after each block it is no more than the bound, and what is
    there is the end of the story, without a hole."""
    most = PIECES * LEAST_BYTES
    number = 0
    for process in ("first", "second"):
        files = StoryFiles(tmp_path, process, most)
        for _ in range(60):
            files.write(noise(number), MS + number, MS + number)
            number += 1
            assert size_of(tmp_path) <= most
        files.close()
    found, left_out = numbers(tmp_path)
    assert found == list(range(found[0], number))
    assert found[0] > 0
    assert len(found) > 15
    assert (left_out.bytes, left_out.files) == (0, 0)


def test_a_block_that_is_larger_than_a_file_still_is_within_the_bound(tmp_path):
    most = PIECES * LEAST_BYTES
    files = StoryFiles(tmp_path, "p", most)
    for number in range(9):
        files.write(noise(number, 3 * LEAST_BYTES), MS + number, MS + number)
        assert size_of(tmp_path) <= most
    assert numbers(tmp_path)[0][-1] == 8


def test_a_block_that_is_larger_than_the_bound_is_refused_and_what_is_there_stays(tmp_path):
    """Less than 512 KiB is not kept."""
    files = StoryFiles(tmp_path, "p", 1)
    files.write(noise(0, LEAST_BYTES), MS, MS)
    with pytest.raises(OSError, match=r"takes \d+ bytes, more than story\.max-bytes"):
        files.write(noise(1, PIECES * LEAST_BYTES), MS, MS)
    files.write(noise(2), MS, MS)
    assert numbers(tmp_path)[0] == [0, 2]


@pytest.mark.parametrize("cut", [1, 7, 8, 15, 16, 17, 5000, 20_019])
def test_a_last_block_that_is_not_complete_is_left_out_and_counted(tmp_path, cut):
    """kill -9 in the middle of a write: what was written before is there."""
    files = StoryFiles(tmp_path, "p", 1 << 20)
    for number in range(3):
        files.write(noise(number), MS + number, MS)
    files.close()
    (path,) = files_in(tmp_path)
    whole = path.read_bytes()
    (length,) = struct.unpack_from(">I", whole, len(MAGIC))
    last = len(whole) - length - 16
    path.write_bytes(whole[: last + cut])
    found, left_out = numbers(tmp_path)
    assert found == [0, 1]
    assert (left_out.bytes, left_out.files) == (cut, 1)
    later = StoryFiles(tmp_path, "q", 1 << 20)  # the next process begins a file of its own
    later.write(noise(7), MS + 7, MS + 7)
    assert numbers(tmp_path)[0] == [0, 1, 7]


def test_damaged_bytes_are_left_out_with_what_is_behind_them(tmp_path):
    files = StoryFiles(tmp_path, "p", 1 << 20)
    for number in range(3):
        files.write(noise(number), MS, MS)
    files.close()
    (path,) = files_in(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    found, left_out = numbers(tmp_path)
    assert found == [0]
    assert left_out.bytes > 40_000


def test_blocks_before_a_time_are_not_read(tmp_path):
    files = StoryFiles(tmp_path, "p", 1 << 20)
    for number in range(4):
        files.write(noise(number), MS + number * 1000, MS)
    assert numbers(tmp_path, MS + 2000)[0] == [2, 3]


@pytest.mark.parametrize("length", [0, 1, 16])
def test_a_file_whose_process_ended_before_its_first_block_is_empty(tmp_path, length):
    (tmp_path / "x.story").write_bytes(MAGIC[:length])
    found, left_out = numbers(tmp_path)
    assert (found, left_out.bytes) == ([], length)


def test_what_is_no_story_is_refused_with_its_name(tmp_path):
    other = tmp_path / "a.story"
    other.write_bytes(b"something else that is longer")
    with pytest.raises(DataError, match=r"a\.story is not a story"):
        list(blocks_of(other, 0, LeftOut()))
    other.write_bytes(b"headgate story 2\nmore")
    with pytest.raises(DataError, match=r"another format: 'headgate story 2'") as caught:
        list(blocks_of(other, 0, LeftOut()))
    assert "the version of headgate that wrote it" in caught.value.remedy


def test_workers_with_any_names_have_directories_of_their_own(tmp_path):
    """A worker's name is no path."""
    for worker in ("w1", "W1", "../w1"):
        StoryFiles(folder_of(tmp_path, worker), "p", 1 << 20).write(b"x", MS, MS)
    assert len(folders_in(tmp_path)) == 3
    assert all(one.parent == tmp_path / "stories" for one in folders_in(tmp_path))
    assert folders_in(tmp_path / "nothing") == []
