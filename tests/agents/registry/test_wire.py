"""The bytes in front of a value: what is written is read back, Confluent's library writes the same, and nothing else is taken for it."""

from __future__ import annotations

import contextlib
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.agents.registry import wire
from headgate.core.errors import DataError

PATHS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=8).map(tuple)
MOST_ID = (1 << 32) - 1
SCHEMAS = st.integers(0, MOST_ID) | st.uuids()


@given(SCHEMAS, st.binary())
def test_a_prefix_is_read_back_whatever_follows(schema: int | UUID, rest: bytes) -> None:
    """An id or a GUID, and where it ends."""
    head = wire.prefix(schema)
    assert wire.head_of(head + rest) == head
    assert wire.schema_of(head) == schema


@given(PATHS, st.binary())
def test_a_place_of_a_message_is_read_back_whatever_follows(path: tuple[int, ...], rest: bytes) -> None:
    """The place, and where it ends."""
    data = wire.path(path)
    assert wire.read_path(data + rest, 0) == (path, len(data))


@given(st.binary(max_size=40))
def test_any_bytes_are_a_prefix_or_bad_data(data: bytes) -> None:
    """Nothing else is raised, and nothing is read beyond the bytes."""
    with contextlib.suppress(DataError):
        head = wire.head_of(data)
        assert data.startswith(head)
        assert len(head) == wire.SIZES[data[0]]
        assert wire.prefix(wire.schema_of(head)) == head


@given(st.binary(max_size=40), st.integers(0, 45))
def test_any_bytes_are_a_place_or_bad_data(data: bytes, at: int) -> None:
    """As above, from anywhere."""
    with contextlib.suppress(DataError):
        path, end = wire.read_path(data, at)
        assert at < end <= len(data)
        assert all(number >= 0 for number in path)


@given(st.integers(0, MOST_ID), st.uuids(), PATHS)
def test_confluents_library_writes_the_same_bytes(number: int, guid: UUID, path: tuple[int, ...]) -> None:
    """Their `SchemaId` is the other side."""
    serde = pytest.importorskip("confluent_kafka.schema_registry.serde")
    assert serde.SchemaId("AVRO", schema_id=number).id_to_bytes() == wire.prefix(number)
    assert serde.SchemaId("AVRO", guid=str(guid)).guid_to_bytes() == wire.prefix(guid)
    theirs = serde.SchemaId("PROTOBUF", schema_id=number, message_indexes=list(path)).id_to_bytes()
    assert theirs == wire.prefix(number) + wire.path(path)
