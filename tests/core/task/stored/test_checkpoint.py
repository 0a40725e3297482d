"""Checkpoints and entries of the task log: golden bytes, stable bytes, and errors that name version and remedy."""

from __future__ import annotations

import doctest
from contextlib import suppress
from dataclasses import replace

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.errors import CheckpointError, DeclarationError
from headgate.core.names import StreamPartition
from headgate.core.orders import TaskState
from headgate.core.task.stored import checkpoint as module
from headgate.core.task.stored.checkpoint import (
    CHECKPOINT_KEY,
    CONTROL_TABLE,
    PHASES,
    Checkpoint,
    LogKey,
    decode_checkpoint,
    encode_checkpoint,
    expiring_heads,
    expiry_bytes,
    log_value,
    parse_log_key,
    parse_log_value,
    table_prefix,
)

FULL = Checkpoint(
    job="sales/1",
    job_uuid="u",
    run="r1",
    epoch=3,
    positions={StreamPartition("b", 1): 5, StreamPartition("a", 2): 300, StreamPartition("a", 0): 2},
    until={StreamPartition("a", 0): 9},
    phase=TaskState.DRAINED,
    drain_id="d1",
    hooks=frozenset({"on_drain", "on_end_of_stream"}),
    applied=("s1", "s2"),
    processor="p1",
    incarnation="000007-3f2a",
    grant=4,
)
GOLDEN = (
    "8ea17601a36a6f62a773616c65732f31a475756964a175a372756ea27231a565706f636803a9706f736974696f6e739295a161000202cd012c93a1620105"
    "a5756e74696c9193a1610009a57068617365a7647261696e6564a5647261696ea26431a5686f6f6b7392a86f6e5f647261696eb06f6e5f656e645f6f665f73"
    "747265616da76170706c69656492a27331a27332a970726f636573736f72a27031ab696e6361726e6174696f6eab3030303030372d33663261a56772616e7404"
)


def test_golden_bytes():
    assert encode_checkpoint(FULL).hex() == GOLDEN
    assert decode_checkpoint(bytes.fromhex(GOLDEN)) == FULL
    assert CHECKPOINT_KEY == b"\x01checkpoint"
    assert (table_prefix("counts") + b"DE") == b"\x02\x06countsDE"
    assert (table_prefix(CONTROL_TABLE) + b"k") == b"\x02\x09__controlk"
    assert log_value(b"v") == b"\x00v"
    assert log_value(b"v", 258) == b"\x01\x00\x00\x00\x00\x00\x00\x01\x02v"
    assert log_value(b"v", schema=258) == b"\x02\x01\x02v"
    assert log_value(b"v", 258, 258) == b"\x03\x00\x00\x00\x00\x00\x00\x01\x02\x01\x02v"


def test_checkpoints_name_topics_and_those_of_before_know_none():
    """A missing id is unknown, for ever; one that is there takes few bytes."""
    at, other = StreamPartition("a", 0), StreamPartition("a", 2)
    known = replace(FULL, topics={at: "one", other: "one", StreamPartition("b", 1): "two"}, adopted={"zero": "one"})
    assert encode_checkpoint(known).endswith(
        b"\xa6topics\x92\x94\xa1a\xa3one\x00\x02\x93\xa1b\xa3two\x01\xa7adopted\x91\x92\xa4zero\xa3one"
    )
    assert decode_checkpoint(encode_checkpoint(known)) == known
    assert decode_checkpoint(bytes.fromhex(GOLDEN)).topics == {}
    assert decode_checkpoint(bytes.fromhex(GOLDEN)).adopted == {}
    assert decode_checkpoint(changed(adopted=["zero"])).adopted == {"zero": ""}


TEXT = st.text(max_size=8)
NUMBER = st.integers(0, 2**63 - 1)
POSITIONS = st.dictionaries(st.builds(StreamPartition, TEXT, st.integers(0, 9)), NUMBER, max_size=6)
ANY = st.builds(
    Checkpoint,
    job=TEXT,
    job_uuid=TEXT,
    run=TEXT,
    epoch=NUMBER,
    positions=POSITIONS,
    until=POSITIONS,
    topics=st.dictionaries(st.builds(StreamPartition, TEXT, st.integers(0, 9)), TEXT, max_size=6),
    adopted=st.dictionaries(TEXT, TEXT, max_size=3),
    phase=st.sampled_from(PHASES),
    drain_id=TEXT,
    hooks=st.frozensets(TEXT, max_size=3),
    applied=st.lists(TEXT, max_size=3).map(tuple),
    processor=TEXT,
    incarnation=TEXT,
    grant=NUMBER,
)


@settings(deadline=None)
@given(ANY, st.randoms(use_true_random=False))
def test_equal_checkpoints_have_equal_bytes(checkpoint, random):
    items = list(checkpoint.positions.items())
    random.shuffle(items)
    fields = {name: getattr(checkpoint, name) for name in Checkpoint.__slots__}
    shuffled = Checkpoint(**(fields | {"positions": dict(items)}))
    assert encode_checkpoint(shuffled) == encode_checkpoint(checkpoint)
    assert decode_checkpoint(encode_checkpoint(checkpoint)) == checkpoint


def changed(**changes):
    fields = msgpack.unpackb(bytes.fromhex(GOLDEN)) | changes
    return msgpack.packb({key: value for key, value in fields.items() if value is not ...})


def test_unknown_fields_are_ignored():
    assert decode_checkpoint(changed(more=[1])) == FULL


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "not msgpack"),
        (b"\xc1", "not msgpack"),
        (b"\x01", "not a map"),
        (b"\x80", "no format version"),
        (changed(v=True), "no format version"),
        (changed(v=0), "no format version"),
        (changed(job=...), "job is not text"),
        (changed(phase="asleep"), "the phase 'asleep' is unknown"),
        (changed(epoch=-1), "epoch is not a number"),
        (changed(grant="1"), "grant is not a number"),
        (changed(hooks="on_drain"), "hooks is not a list of strings"),
        (changed(applied=[1]), "applied is not a list of strings"),
        (changed(positions=1), "positions is not a list"),
        (changed(positions=[1]), "does not name streams"),
        (changed(positions=[[]]), "does not name streams"),
        (changed(positions=[["a", 1]]), "does not name streams"),
        (changed(positions=[[1, 1, 1]]), "does not name streams"),
        (changed(until=[["a", 0, -1]]), "until is not a number"),
        (changed(topics=1), "topics is not a list"),
        (changed(topics=[1]), "topics does not name streams"),
        (changed(topics=[["a", 1, 0]]), "topics does not name streams"),
        (changed(topics=[["a", "one", "0"]]), "topics is not a number"),
        (changed(adopted=1), "adopted is not a list"),
        (changed(adopted=[["one", 2]]), "adopted does not name pairs of topics"),
        (changed(adopted=[1]), "adopted does not name pairs of topics"),
    ],
)
def test_what_cannot_be_read_says_why_and_what_to_do(data, what):
    with pytest.raises(CheckpointError, match=what) as caught:
        decode_checkpoint(data)
    assert "version" in caught.value.what
    assert caught.value.remedy


def test_a_newer_version_is_named():
    with pytest.raises(CheckpointError, match="format version 2; this headgate reads up to 1") as caught:
        decode_checkpoint(changed(v=2))
    assert "newer" in caught.value.remedy


def test_what_would_not_be_read_is_not_written():
    with pytest.raises(CheckpointError):
        encode_checkpoint(Checkpoint("j", "u", "r", phase="asleep"))


@settings(deadline=None, max_examples=80)
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data):
    for read in (decode_checkpoint, parse_log_key, parse_log_value):
        with suppress(CheckpointError):
            read(data)


def test_another_run_goes_on_at_the_same_positions():
    assert FULL.for_run("r1") is FULL
    new = FULL.for_run("r2")
    assert (new.run, new.phase, new.drain_id, new.hooks, dict(new.until)) == (
        "r2",
        TaskState.RUNNING,
        "",
        frozenset(),
        {},
    )
    assert (new.positions, new.applied, new.job_uuid) == (FULL.positions, FULL.applied, FULL.job_uuid)


@settings(deadline=None)
@given(
    st.text(min_size=1, max_size=20), st.binary(max_size=20), st.text(min_size=1, max_size=20), st.binary(max_size=20)
)
def test_keys_of_tables_never_mix_and_keep_their_order(table, key, other_table, other_key):
    assert parse_log_key(table_prefix(table) + key) == LogKey(table, key)
    assert ((table_prefix(table) + key) == (table_prefix(other_table) + other_key)) == (
        (table, key) == (other_table, other_key)
    )
    assert (table_prefix(table) + key).startswith(table_prefix(other_table)) == (table == other_table)
    assert ((table_prefix(table) + key) < (table_prefix(table) + other_key)) == (key < other_key)


def test_keys_that_are_not_ours():
    assert parse_log_key(CHECKPOINT_KEY) == LogKey(None, b"")
    for key in (b"", b"\x01", b"\x02", b"\x02\x00", b"\x02\x00x", b"\x02\x05abc", b"\x02\x01\xff", b"\x03x"):
        with pytest.raises(CheckpointError, match="unknown to format version 1"):
            parse_log_key(key)


def test_table_names():
    assert (table_prefix("counts") + b"DE").startswith(table_prefix("counts"))
    for name in ("", "t" * 250):
        with pytest.raises(DeclarationError, match="bytes"):
            table_prefix(name)


def test_values_carry_when_they_expire_and_their_schema():
    for value in (b"", b"x" * 30):
        for expires in (None, 0, -1, 5, 2**62):
            for schema in (0, 1, 65_535):
                data = log_value(value, expires, schema)
                assert parse_log_value(data) == (value, expires, schema)
                assert expiry_bytes(data) == (None if expires is None else expires.to_bytes(8, "big", signed=True))
                assert data.startswith(expiring_heads((5).to_bytes(8, "big"))) == (expires == 5)
    for data in (b"", b"\x02x", b"\x01\x00", b"\x04x", b"\xff"):
        with pytest.raises(CheckpointError, match="format version 1 does not know"):
            parse_log_value(data)


def test_its_examples_are_true():
    assert doctest.testmod(module).failed == 0
