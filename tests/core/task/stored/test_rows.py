"""Rows of the control table: what this version wrote it reads, and says of everything else what it is."""

from __future__ import annotations

import contextlib
from itertools import product

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.errors import CheckpointError
from headgate.core.progress.frames import NO_TIME
from headgate.core.progress.markers import Announcement
from headgate.core.progress.producers import Said, StreamPhase, StreamStatus
from headgate.core.task.stored.rows import VERSION, pack_rows, unpack_rows

ROWS = {
    (":heard", "s"): ("r", 5, 0),
    (":time", "step"): ("r", 5),
    (":said", "s"): ("r", 1, 5, False, True, None),
    (":relayed", "s"): ("r", 1, 5, False, True, "drain"),
    ("s", -1, "told"): ("r", 0, 5, True, ""),
    ("s", 0, "own"): ("r", 2, 5, False, ""),
    ("s", 0, "job", "sales/1"): ("r", "other run", 1, 2, ("past",), (1, 5, False, 0, "")),
    ("s", 1, "job", "sales/1"): ("r", "", -1, 0, (), None),
    ("s", 0, "said", "sales/1", "Partition 0"): ("r", 1, 5, False, 0, ""),
}
AWAY = {
    (":said", "t"): ("r", 1, 5, True, False, None, True),
    ("s", 0, "said", "sales/1", "Partition 1"): ("r", 1, 5, True, 0, "", True),
}
"""Without their last field these are whole, too."""
LIFTED = {("s", 0, "said", "sales/1", "Partition 2"): ("r", 1, 5, False, 0, "", False, 7, 9)}


def stored(key, *row, version=VERSION):
    return [(msgpack.packb(key), msgpack.packb((version, *row)))]


def test_what_was_written_is_read():
    packed = pack_rows({**ROWS, **AWAY, **LIFTED, ("s", 7, "own"): None})
    assert packed.pop(msgpack.packb(("s", 7, "own"))) is None
    assert dict(unpack_rows(packed.items())) == ROWS | AWAY | LIFTED


@pytest.mark.parametrize(
    "said",
    [
        Said(1, 5, True),
        Said(1, 5, True, away=True),
        Said(1, 5, True, lift=9),
        Said(1, 5, True, mark=9),
        Said(1, NO_TIME, False, StreamPhase.DRAINED, "d", False, 7, 9),
    ],
)
def test_everything_that_a_producer_has_said_is_read_again(said):
    """Except that it is idle, which was only true of its moment."""
    row = ("r", *said.row())
    ((_, found),) = unpack_rows(pack_rows({("s", 0, "said", "sales/1", "a"): row}).items())
    assert Said(*found[1:]) == said._replace(idle=said.away)
    job = ("r", "run", 1, 2, (), said.row())
    ((_, found),) = unpack_rows(pack_rows({("s", 0, "job", "sales/1"): job}).items())
    assert found == job


@pytest.mark.parametrize("status", [StreamStatus(StreamPhase.OPEN, 5, True), StreamStatus(0, 5, True, "", True)])
def test_how_far_a_stream_was_is_read_again(status):
    row = ("r", *status.row())
    ((_, found),) = unpack_rows(pack_rows({("s", -1, "told"): row}).items())
    assert StreamStatus(*found[1:]) == status._replace(idle=status.away)


@pytest.mark.parametrize("kind", [":said", ":relayed"])
@pytest.mark.parametrize("flags", list(product([False, True], repeat=4)))
@pytest.mark.parametrize("drained", [None, "d"])
def test_every_announcement_that_a_task_makes_is_read_again(kind, flags, drained):
    """A row that its own writer made and its reader refused let a task give up at each of its restarts."""
    idle, ended, away, left = flags
    said = Announcement(1, 5, idle, ended, drained, away, left)
    row = ("r", *said.row())
    ((_, found),) = unpack_rows(pack_rows({(kind, "s"): row}).items())
    assert found == row
    assert Announcement(*found[1:]) == said


def test_a_newer_row_is_named_with_its_version():
    """Whoever rolls back reads which version it needs, and not that an index is out of range."""
    with pytest.raises(CheckpointError, match="format version 2; this headgate reads up to 1"):
        unpack_rows(stored(["s", 0, "own"], {"anything": 1}, version=2))


SHORTER = {(key, n) for key in LIFTED for n in (6, 7)}
"""These are whole as well."""


@pytest.mark.parametrize("key", [*ROWS, *AWAY, *LIFTED])
def test_a_damaged_row_is_named(key):
    """Every field taken away, added, or of another type; every key shortened, lengthened, or unknown."""
    row = (ROWS | AWAY | LIFTED)[key]
    bad = [(key, row[:n]) for n in range(len(row) - (key in AWAY)) if (key, n) not in SHORTER]
    bad += [(key, (*row, 1))]
    bad += [(key, (*row[:n], 1.5, *row[n + 1 :])) for n in range(len(row))]
    bad += [(key[:n], row) for n in range(len(key))]
    bad += [((*key, "more"), row), ((*key, 1), row)]
    bad += [((*key[:n], 1.5, *key[n + 1 :]), row) for n in range(len(key))]
    bad += [((*key[:2], "unknown", *key[3:]), row)]
    for wrong_key, wrong_row in bad:
        with pytest.raises(CheckpointError, match="control table cannot be read by format version 1"):
            unpack_rows(stored(wrong_key, *wrong_row))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\x01", b"\x91\x01"),
        (b"\xc1", b"\x91\x01"),
        (b"\x91\xa1s", b""),
        (b"\x91\xa1s", b"\x90"),
        (b"\x91\xa1s", b"\x91\x00"),
    ],
)
def test_bytes_that_are_no_row_are_named(key, value):
    with pytest.raises(CheckpointError, match="control table cannot be read by format version 1"):
        unpack_rows([(key, value)])


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_any_bytes_are_rows_or_an_error_that_says_so(key, value):
    with contextlib.suppress(CheckpointError):
        unpack_rows([(key, value)])
