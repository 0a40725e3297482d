"""What the connections of headgate receive: any division into pieces, any length, lost connections, and how long memory is whose."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiokafka.conn import create_conn
from aiokafka.errors import CorrelationIdError, KafkaConnectionError
from aiokafka.protocol.admin import ApiVersionResponse_v0
from aiokafka.protocol.fetch import FetchRequest, FetchResponse_v11
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.produce import ProduceRequest, ProduceResponse_v7
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.agents.kafka import private
from headgate.agents.kafka.connection import LARGE, Connection
from headgate.agents.kafka.receiving import LANDING, Protocol

EDGES = [0, 1, 3, LANDING - 4, LANDING, LANDING + 1, 3 * LANDING]


def put(protocol: Protocol, data: bytes, pieces: list[int]) -> None:
    """Give the protocol these bytes as a socket does, in pieces of these sizes, over and over."""
    at = turn = 0
    while at < len(data):
        room = protocol.get_buffer(-1)
        size = min(len(room), len(data) - at, pieces[turn % len(pieces)])
        room[:size] = data[at : at + size]
        protocol.buffer_updated(size)
        at, turn = at + size, turn + 1


async def new_protocol() -> tuple[Protocol, asyncio.StreamReader]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    return Protocol(loop.create_future(), reader, loop=loop), reader


def framed(*answers: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(one)) + one for one in answers)


@settings(deadline=None)
@given(
    st.lists(st.one_of(st.sampled_from(EDGES), st.integers(0, 200)), min_size=1, max_size=6),
    st.lists(st.one_of(st.sampled_from([1, 5, LANDING, 2 * LANDING]), st.integers(1, 5000)), min_size=1, max_size=5),
)
@example([20, 0, 7], [1])
@example([10, 2 * LANDING, 10, LANDING + 1], [1 << 20])
def test_any_division_into_pieces_gives_the_same_answers(sizes: list[int], pieces: list[int]) -> None:
    """Byte by byte, several answers in one read, and answers that are longer than any read."""
    sent = [bytes([65 + turn]) * size for turn, size in enumerate(sizes)]

    async def received() -> list[bytes]:
        protocol, reader = await new_protocol()
        other, _ = await new_protocol()
        data, half = framed(*sent), len(framed(*sent)) // 2
        put(protocol, data[:half], pieces)
        put(other, framed(b"of another connection of the same thread", b"z" * LANDING)[:-1], [13])
        put(protocol, data[half:], pieces)
        return [bytes(await protocol.answer(reader)) for _ in sent]

    assert asyncio.run(received()) == sent


def test_a_reader_that_waits_gets_answers_before_the_end_of_the_connection() -> None:
    """The broker answers and closes: the answer counts, and then the end does."""

    async def received() -> Any:
        protocol, reader = await new_protocol()
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(protocol.answer(reader))
            await asyncio.sleep(0)
            put(protocol, framed(b"first", b"second") + b"\0\0", [3])
            reader.feed_eof()
        assert [waiting.result(), await protocol.answer(reader)] == [b"first", b"second"]
        await protocol.answer(reader)

    with pytest.raises(asyncio.IncompleteReadError):
        asyncio.run(received())


# ------------------------------------------------------------------------------------------------------ a broker of bytes


@contextlib.asynccontextmanager
async def broker(answer: Callable[[int, int], bytes], *, piece: int = 1 << 20, tls: Any = None) -> AsyncIterator[int]:
    """A server whose answer to a request of this API and correlation id are these bytes, sent in pieces; then it closes if they are cut."""
    versions = [(1, 4, 11), (3, 0, 1), (18, 0, 0)]

    serving: dict[Any, asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving[asyncio.current_task()] = writer
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                api, _, correlation = struct.unpack_from(">hhi", await reader.readexactly(size))
                body = ApiVersionResponse_v0(error_code=0, api_versions=versions).encode()
                data = framed(struct.pack(">i", correlation) + body) if api == 18 else answer(api, correlation)
                for at in range(0, len(data), piece):
                    writer.write(data[at : at + piece])
                    await writer.drain()
                if len(data) < 4 or struct.unpack_from(">i", data)[0] > len(data) - 4:
                    break
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in serving.values():
            writer.close()
        if serving:
            await asyncio.wait(serving)


def fetch_answer(correlation: int, *parts: bytes) -> bytes:
    """A fetch answer with these records of the partitions from 0 on."""
    partitions = [(number, 0, 9, 9, 0, [(7, 3)], -1, records) for number, records in enumerate(parts)]
    answer = FetchResponse_v11(throttle_time_ms=0, error_code=0, session_id=0, topics=[("t", partitions)])
    return framed(struct.pack(">i", correlation) + answer.encode())


FETCH = FetchRequest(500, 1, 1 << 20, 1, [("t", [(0, 0, 1 << 20)])])


async def fetched(connection: Any) -> list[Any]:
    """The records of a fetch answer."""
    response = await connection.send(FETCH)
    assert [(topic, [one[:7] for one in parts]) for topic, parts in response.topics] == [
        ("t", [(number, 0, 9, 9, 0, [(7, 3)], -1) for number in range(len(response.topics[0][1]))])
    ]
    return [one[-1] for one in response.topics[0][1]]


@pytest.mark.asyncio
@pytest.mark.parametrize("piece", [1, 4096, 1 << 20])
async def test_a_fetch_answer_is_what_was_sent(piece: int) -> None:
    """Small and large parts of one answer, byte by byte and at once. Only records are handed out as views, and these cannot be written."""
    big, small = b"a" * (LANDING + 9 if piece == 1 else 1 << 20), b"b" * 500
    async with broker(lambda api, correlation: fetch_answer(correlation, big, small, b""), piece=piece) as port:
        connection = await create_conn("127.0.0.1", port)
        for _ in range(1 if piece == 1 else 3):
            one, two, three = await fetched(connection)
            assert (bytes(one), two, three) == (big, small, b"")
            assert isinstance(one, memoryview)
            assert one.readonly
        connection.close()


@pytest.mark.asyncio
async def test_answers_come_through_tls() -> None:
    """TLS has a buffer of its own, and fills an answer's memory from it."""
    trustme = pytest.importorskip("trustme")
    authority, ours, theirs = (
        trustme.CA(),
        ssl.create_default_context(),
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
    )
    authority.configure_trust(ours)
    authority.issue_cert("localhost").configure_cert(theirs)
    sizes = [0, LANDING - 200, LANDING, 1 << 20, 5, 3 << 20]
    turn = iter(sizes)
    async with broker(
        lambda api, correlation: fetch_answer(correlation, b"x" * next(turn)), piece=70_000, tls=theirs
    ) as port:
        connection = await create_conn("localhost", port, ssl_context=ours, security_protocol="SSL")
        for size in sizes:
            (records,) = await fetched(connection)
            assert bytes(records) == b"x" * size
        connection.close()


@pytest.mark.asyncio
async def test_records_that_are_a_part_of_their_answer_do_not_keep_the_others() -> None:
    """The buffer of a partition that is read slowly would otherwise keep what was fetched of all others, beyond its bound."""
    one, two = b"a" * LANDING, b"b" * (1 << 20)
    async with broker(lambda api, correlation: fetch_answer(correlation, one, two)) as port:
        connection = await create_conn("127.0.0.1", port)
        first, second = await fetched(connection)
        assert memoryview(first.obj).nbytes == LANDING
        assert 1 << 20 <= memoryview(second.obj).nbytes <= (1 << 20) * 8 // 7
        connection.close()


@pytest.mark.asyncio
async def test_what_is_kept_of_an_answer_stays_while_others_arrive() -> None:
    """A chunk that is worked on for long lies in the memory of its fetch answer. The answers after it must not be received there."""
    turn = iter(range(100))
    async with broker(lambda api, correlation: fetch_answer(correlation, bytes([next(turn)]) * (1 << 20))) as port:
        connection = await create_conn("127.0.0.1", port)
        kept: list[tuple[int, memoryview]] = []
        for number in range(12):
            (records,) = await fetched(connection)
            assert records[0] == records[-1] == number
            if number % 3 == 0:
                kept.append((number, records[1000:2000]))
            del records
        for number, part in kept:
            assert bytes(part) == bytes([number]) * 1000
        connection.close()


@pytest.mark.asyncio
async def test_an_answer_that_is_not_a_fetch_is_whole_bytes() -> None:
    """aiokafka's decoders of other answers want `bytes`."""

    def metadata(api: int, correlation: int) -> bytes:
        topics = [(0, f"topic-{number:05}-{'x' * 200}", False, []) for number in range(1000)]
        return framed(
            struct.pack(">i", correlation) + response_type(brokers=[], controller_id=1, topics=topics).encode()
        )

    response_type = MetadataRequest([]).prepare({3: (0, 1)}).RESPONSE_TYPE
    async with broker(metadata) as port:
        connection = await create_conn("127.0.0.1", port)
        response = await connection.send(MetadataRequest([]))
        assert len(response.topics) == 1000
        connection.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("topics", [3, 2000])
async def test_equal_metadata_of_several_clients_is_decoded_once(topics: int) -> None:
    """A worker with 64 tasks decoded it 64 times, and each again with each answer. What differs is decoded for itself."""
    turn = iter((7, 7, 8, 7))

    def metadata(api: int, correlation: int) -> bytes:
        named = [(0, f"topic-{number:05}-{'x' * 200}", False, []) for number in range(topics)]
        answer = response_type(brokers=[], controller_id=next(turn), topics=named)
        return framed(struct.pack(">i", correlation) + answer.encode())

    response_type = MetadataRequest([]).prepare({3: (0, 1)}).RESPONSE_TYPE
    async with broker(metadata) as port:
        clients = [await create_conn("127.0.0.1", port) for _ in range(2)]
        found = [await clients[number].send(MetadataRequest([])) for number in (1, 0, 1, 0)]
        assert [one.controller_id for one in found] == [7, 7, 8, 7]
        assert {len(one.topics) for one in found} == {topics}
        assert found[1] is found[0]
        for client in clients:
            client.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("sent", [0, 1, 4, 7, 8, 60, LANDING - 1, LANDING + 3, LANDING * 4])
async def test_a_connection_that_is_lost_in_an_answer_fails_the_request(sent: int) -> None:
    """At any byte: in the length, in the fields, in the records."""
    async with broker(lambda api, correlation: fetch_answer(correlation, b"a" * (LANDING * 5))[:sent]) as port:
        connection = await create_conn("127.0.0.1", port)
        with pytest.raises(KafkaConnectionError):
            await connection.send(FETCH)
        assert not connection.connected()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "answer",
    [
        struct.pack(">i", -5) + b"x" * 100,
        framed(b""),
        framed(b"\0"),
        framed(struct.pack(">i", 2) + b"\1" * LANDING * 2),
    ],
)
async def test_an_answer_that_is_none_ends_the_connection(answer: bytes) -> None:
    """A length below zero, an answer without a correlation id, and fields that do not fit. The request fails; nobody waits for ever."""
    async with broker(lambda api, correlation: answer) as port:
        connection = await create_conn("127.0.0.1", port)
        with pytest.raises(KafkaConnectionError):
            await connection.send(FETCH)
        assert not connection.connected()


@pytest.mark.asyncio
async def test_an_answer_to_another_request_ends_the_connection() -> None:
    """As with aiokafka's own connection, also if the answer is large."""
    async with broker(lambda api, correlation: fetch_answer(correlation + 1, b"a" * (1 << 20))) as port:
        connection = await create_conn("127.0.0.1", port)
        with pytest.raises(CorrelationIdError):
            await connection.send(FETCH)
        assert not connection.connected()


@pytest.mark.asyncio
async def test_the_answer_to_a_request_that_was_given_up_is_dropped() -> None:
    """The next request on the connection gets its own answer."""
    turn = iter(range(100))
    async with broker(lambda api, correlation: fetch_answer(correlation, bytes([next(turn)]) * (1 << 20))) as port:
        connection = await create_conn("127.0.0.1", port)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await connection.send(FETCH)
        (records,) = await fetched(connection)
        assert bytes(records[:3]) == b"\1\1\1"
        connection.close()


@pytest.mark.asyncio
async def test_two_connections_receive_at_the_same_time() -> None:
    """They share the memory in which the beginning of an answer lands."""
    one, two = b"a" * (1 << 20), b"b" * (LANDING * 3)
    async with (
        broker(lambda api, correlation: fetch_answer(correlation, one), piece=999) as first,
        broker(lambda api, correlation: fetch_answer(correlation, two), piece=501) as second,
    ):
        connections = [await create_conn("127.0.0.1", port) for port in (first, second)]
        for _ in range(3):
            found = await asyncio.gather(*map(fetched, connections))
            assert [bytes(parts[0]) for parts in found] == [one, two]
        for connection in connections:
            connection.close()


def test_aiokafka_takes_these_connections() -> None:
    """Every client that headgate starts has imported `private`, which puts them in place."""
    assert private.conn_module.AIOKafkaConnection is Connection
    assert private.conn_module.AIOKafkaProtocol is Protocol


# --------------------------------------------------------------------------------------------------------------- sending


@pytest.mark.asyncio
@pytest.mark.parametrize("sizes", [[10], [LARGE], [3 << 20, 7, LARGE + 1], [0, 1 << 20]])
async def test_a_produce_request_is_written_as_aiokafka_writes_it(sizes: list[int]) -> None:
    """Byte for byte, whatever of it is copied on the way; and its answer is read."""
    batches = [bytes([65 + turn]) * size for turn, size in enumerate(sizes)]
    topics = [("t", [(turn, bytearray(batch)) for turn, batch in enumerate(batches)]), ("other", [(0, b"x")])]
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                size = await reader.readexactly(4)
                request = size + await reader.readexactly(int.from_bytes(size, "big"))
                api, _, correlation = struct.unpack_from(">hhi", request, 4)
                body = ApiVersionResponse_v0(error_code=0, api_versions=[(0, 3, 8), (18, 0, 0)])
                if api == 0:
                    requests.append(request)
                    body = ProduceResponse_v7(topics=[("t", [(0, 0, 5, -1, 0)])], throttle_time_ms=0)
                writer.write(framed(struct.pack(">i", correlation) + body.encode()))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    connection = await create_conn("127.0.0.1", server.sockets[0].getsockname()[1], client_id="me")
    sent = ProduceRequest(required_acks=-1, timeout=500, topics=topics, transactional_id="id")
    for _ in range(2):
        response = await connection.send(sent)
        assert response.topics == [("t", [(0, 0, 5, -1, 0)])]
    prepared = sent.prepare({0: (3, 8)})
    for correlation, request in zip((2, 3), requests, strict=True):
        head = prepared.build_request_header(correlation_id=correlation, client_id="me").encode()
        assert request == framed(head + prepared.encode())
    connection.close()
    server.close()
