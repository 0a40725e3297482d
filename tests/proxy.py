"""A network between Kafka clients and their brokers that a test can disturb, frame by frame.

A proxy listens once for each broker, and rewrites the addresses in the brokers' answers, so that clients find no way around it. A test that
gives each of its clients a proxy of its own disturbs one of them alone.

    hold    keep a request back, and the connection with it; deliver it later: through its own connection, or, if the client has closed
            that meanwhile, through a fresh one, as a slow network does
    cut     break the connection before a request, or behind it, so that its answer is lost
    delay   keep a request back for a time
    sever   break all connections; `away` also refuses new ones until `back`

What a rule catches is told by the API key (`PRODUCE`, `END_TXN` …) and, if given, by a predicate of the frame. Requests of one connection
are never reordered, for TCP does not do it either; frames of different connections overtake each other when one is held.

Promises: bytes that no rule catches pass unchanged, apart from the addresses. Plain text only: no TLS.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")
Address = tuple[str, int]
PRODUCE, FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR = 0, 1, 2, 3, 10
INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN = 22, 24, 26
FLEXIBLE = {PRODUCE: 9, INIT_PRODUCER_ID: 2, ADD_PARTITIONS: 3, END_TXN: 3}
"""The requests that begin with a transactional id, and since which version their strings are compact."""
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Frame:
    """One request on its way to a broker."""

    raw: bytes
    broker: Address

    @property
    def api(self) -> int:
        """The API key."""
        return struct.unpack_from(">h", self.raw)[0]

    @property
    def version(self) -> int:
        """The version of the request."""
        return struct.unpack_from(">h", self.raw, 2)[0]

    @property
    def correlation(self) -> int:
        """The number by which the client recognises the answer."""
        return struct.unpack_from(">i", self.raw, 4)[0]

    @property
    def transaction(self) -> str:
        """The transactional id of a request that writes or ends a transaction; empty for any other."""
        flexible = FLEXIBLE.get(self.api)
        if flexible is None or (self.api == PRODUCE and self.version < 3):
            return ""
        cursor = _Cursor(self.raw, 8)
        cursor.text(compact=False)  # the client's name
        cursor.tags(self.version >= flexible)
        return cursor.text(self.version >= flexible).decode()


When = Callable[[Frame], bool]


@dataclass
class Held:
    """What a rule does with the requests that it catches, and a handle on the one that it has caught."""

    api: int
    when: When
    left: int
    """How many more requests it catches."""
    does: str
    """hold, cut, lose or delay."""
    seconds: float = 0.0
    loop: asyncio.AbstractEventLoop = field(kw_only=True)
    frame: Frame | None = None
    count: int = 0
    """How many it has caught."""
    passed: list[Frame] = field(default_factory=list[Frame])
    """The requests that came through while one was held back, so that they have overtaken it."""
    go: asyncio.Event = field(default_factory=asyncio.Event)
    answer: asyncio.Future[bytes] | None = None
    _caught: threading.Event = field(default_factory=threading.Event)

    def catches(self, frame: Frame) -> bool:
        """Whether this request is meant; counts it."""
        if self.left <= 0 or self.api not in (-1, frame.api) or not self.when(frame):
            return False
        self.left -= 1
        self.count += 1
        self.frame = frame
        self.answer = self.loop.create_future()
        self._caught.set()
        return True

    def caught(self, timeout_s: float = PATIENCE_S) -> bool:
        """Wait until a request is caught."""
        return self._caught.wait(timeout_s)

    @property
    def answered(self) -> bool:
        """Whether the broker has carried out what was caught last."""
        return self.answer is not None and self.answer.done()

    def deliver(self) -> None:
        """Deliver the held request, and do not wait for it."""
        self.loop.call_soon_threadsafe(self.go.set)

    def release(self, timeout_s: float = PATIENCE_S) -> bytes:
        """Deliver the held request now. Returns the broker's answer, behind its correlation id."""
        assert self.answer is not None, "nothing was caught"
        answer = self.answer

        async def answered() -> bytes:
            self.go.set()
            return await asyncio.wait_for(answer, timeout_s)

        return asyncio.run_coroutine_threadsafe(answered(), self.loop).result(timeout_s + 1)


class Proxy:
    """See the module. Use it as a context manager; `bootstrap` is what clients are given."""

    def __init__(self, bootstrap: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._brokers: list[Address] = []
        for one in bootstrap.split(","):
            host, _, port = one.strip().rpartition(":")
            self._brokers.append((host, int(port)))
        self._ports: dict[Address, int] = {}
        self._servers: list[asyncio.Server] = []
        self._rules: list[Held] = []
        self._lines: set[_Line] = set()
        self._afresh: set[asyncio.Task[None]] = set()
        self._away = False
        self.refused = threading.Event()
        """Whether a connection was refused since `away`."""
        self.seen: list[int] = []
        """The API key of each request that came, in order."""

    def __enter__(self) -> Proxy:
        self._thread.start()
        for broker in self._brokers:
            self._run(self.port_of(broker))
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    @property
    def bootstrap(self) -> str:
        """The addresses of the proxy, for `-b`."""
        return ",".join(f"127.0.0.1:{self._ports[broker]}" for broker in self._brokers)

    @property
    def thread(self) -> int:
        """Where it runs, by the kernel's number."""
        return self._thread.native_id or 0

    # ------------------------------------------------------------------------------------------------------------ rules

    def hold(self, api: int, when: When = lambda _: True, times: int = 1) -> Held:
        """Hold the next request of this kind back until its `release`."""
        return self._rule("hold", api, when, times)

    def cut(self, api: int, when: When = lambda _: True, times: int = 1) -> Held:
        """Break the connection in place of the next such requests: the broker never sees them."""
        return self._rule("cut", api, when, times)

    def lose(self, api: int, when: When = lambda _: True, times: int = 1) -> Held:
        """Break the connection when the broker has carried the next such requests out: their answers are lost."""
        return self._rule("lose", api, when, times)

    def delay(self, api: int, seconds: float, when: When = lambda _: True, times: int = 1_000_000) -> Held:
        """Keep each such request back for a time."""
        return self._rule("delay", api, when, times, seconds)

    def _rule(self, does: str, api: int, when: When, times: int, seconds: float = 0.0) -> Held:
        async def made() -> Held:
            rule = Held(api, when, times, does, seconds, loop=self._loop)
            self._rules.append(rule)
            return rule

        return self._run(made())

    def sever(self) -> int:
        """Break all connections; how many there were. Requests that are held stay deliverable."""

        async def broken() -> int:
            lines = list(self._lines)
            for line in lines:
                line.hang_up()
            return len(lines)

        return self._run(broken())

    def away(self) -> int:
        """Break all connections, and refuse new ones; how many there were."""
        self._away = True
        self.refused.clear()
        return self.sever()

    def back(self) -> None:
        """Accept connections again."""
        self._away = False

    # ------------------------------------------------------------------------------------------------------ connections

    async def port_of(self, broker: Address) -> int:
        """The port of the proxy that stands for this broker."""
        if broker not in self._ports:

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await self._serve(broker, reader, writer)

            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            self._servers.append(server)
            self._ports[broker] = server.sockets[0].getsockname()[1]
        return self._ports[broker]

    async def _serve(self, broker: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._away:
            self.refused.set()
            writer.transport.abort()
            return
        line = _Line(self, broker, reader, writer)
        self._lines.add(line)
        try:
            await line.run()
        except asyncio.CancelledError:
            pass  # by `_close`; asyncio calls it an error of the connection otherwise
        finally:
            line.hang_up()
            self._lines.discard(line)

    def later(self, frame: Frame, rule: Held) -> None:
        """Deliver a held request through a fresh connection when it is released: its own is gone."""
        self._afresh.add(self._loop.create_task(_afresh(frame, rule)))

    def rule_for(self, frame: Frame) -> Held | None:
        """The first rule that catches this request."""
        self.seen.append(frame.api)
        found = next((rule for rule in self._rules if rule.catches(frame)), None)
        for rule in self._rules:
            if rule.does == "hold" and rule.frame not in (None, frame) and not rule.go.is_set():
                rule.passed.append(frame)
        return found

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for line in list(self._lines):
            line.hang_up()
        own = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not own]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Line:
    """One connection of a client, and the one behind it to the broker."""

    def __init__(
        self, proxy: Proxy, broker: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.proxy, self.broker, self.reader, self.writer = proxy, broker, reader, writer
        self.up: asyncio.StreamWriter | None = None
        self.asked: dict[int, tuple[Frame, Held | None]] = {}
        """What the broker was asked and has not answered, by correlation id."""
        self.held: tuple[Frame, Held] | None = None
        self.requests: asyncio.Queue[Frame] = asyncio.Queue()

    def hang_up(self) -> None:
        """Break both connections."""
        for writer in (self.writer, self.up):
            if writer is not None:
                writer.transport.abort()

    async def run(self) -> None:
        """Carry requests and answers until one side closes. A client that closes is noticed also while a request of it is held."""
        try:
            answers, self.up = await asyncio.open_connection(*self.broker)
        except OSError:
            return
        loop = asyncio.get_running_loop()
        parts = [loop.create_task(part) for part in (self._read(), self._forward(self.up), self._back(answers))]
        try:
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for part in parts:
                part.cancel()
            ends = await asyncio.gather(*parts, return_exceptions=True)
            if self.held is not None:
                self.proxy.later(*self.held)
        for end in ends:
            if isinstance(end, Exception) and not isinstance(end, OSError | EOFError):
                raise end

    async def _read(self) -> None:
        while True:
            self.requests.put_nowait(Frame(await _frame(self.reader), self.broker))

    async def _forward(self, up: asyncio.StreamWriter) -> None:
        while True:
            frame = await self.requests.get()
            rule = self.proxy.rule_for(frame)
            if rule is not None and rule.does == "cut":
                return
            if rule is not None and rule.does == "delay":
                await asyncio.sleep(rule.seconds)
            if rule is not None and rule.does == "hold":
                self.held = frame, rule
                await rule.go.wait()
                self.held = None
            self.asked[frame.correlation] = frame, rule
            up.write(_sized(frame.raw))

    async def _back(self, answers: asyncio.StreamReader) -> None:
        while True:
            raw = await _frame(answers)
            frame, rule = self.asked.pop(struct.unpack_from(">i", raw)[0])
            if rule is not None and rule.answer is not None and not rule.answer.done():
                rule.answer.set_result(raw[4:])
            if rule is not None and rule.does == "lose":
                return
            self.writer.write(_sized(await _rewritten(raw, frame, self.proxy.port_of)))


async def _afresh(frame: Frame, rule: Held) -> None:
    await rule.go.wait()
    answers, up = await asyncio.open_connection(*frame.broker)
    up.write(_sized(frame.raw))
    raw = await _frame(answers)
    up.transport.abort()
    assert rule.answer is not None
    rule.answer.set_result(raw[4:])


async def _frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])


def _sized(raw: bytes) -> bytes:
    return struct.pack(">i", len(raw)) + raw


# ------------------------------------------------------------------------------------------------- addresses in answers


class _Cursor:
    """Reads an answer from its beginning, and notes what is to be replaced."""

    def __init__(self, raw: bytes, at: int) -> None:
        self.raw, self.at = raw, at
        self.kept, self.parts = 0, list[bytes]()

    def take(self, shape: str) -> int:
        """A number of fixed size."""
        value = struct.unpack_from(shape, self.raw, self.at)[0]
        self.at += struct.calcsize(shape)
        return value

    def varint(self) -> int:
        """An unsigned number of variable size."""
        value = shift = 0
        while True:
            byte = self.raw[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    def text(self, compact: bool) -> bytes:
        """A string, or null as an empty one."""
        length = self.varint() - 1 if compact else self.take(">h")
        start, self.at = self.at, self.at + max(0, length)
        return self.raw[start : self.at]

    def tags(self, compact: bool) -> None:
        """The tagged fields at the end of a structure."""
        for _ in range(self.varint() if compact else 0):
            self.varint()
            self.at += self.varint()

    async def address(self, compact: bool, port_of: Callable[[Address], Coroutine[Any, Any, int]]) -> None:
        """Replace a host and a port."""
        start = self.at
        host = self.text(compact).decode()
        port = self.take(">i")
        if port < 0:
            return
        local = b"127.0.0.1"
        size = bytes([len(local) + 1]) if compact else struct.pack(">h", len(local))
        self.parts += [self.raw[self.kept : start], size + local + struct.pack(">i", await port_of((host, port)))]
        self.kept = self.at

    def done(self) -> bytes:
        """The answer with its replacements."""
        return b"".join(self.parts) + self.raw[self.kept :]


async def _rewritten(raw: bytes, frame: Frame, port_of: Callable[[Address], Coroutine[Any, Any, int]]) -> bytes:
    """The answer with the proxy's addresses in place of the brokers'."""
    api, version = frame.api, frame.version
    if api not in (METADATA, FIND_COORDINATOR):
        return raw
    compact = version >= (9 if api == METADATA else 3)
    cursor = _Cursor(raw, 4)
    cursor.tags(compact)
    if version >= (3 if api == METADATA else 1):
        cursor.take(">i")  # throttle time
    if api == FIND_COORDINATOR and version < 4:
        cursor.take(">h")
        if version >= 1:
            cursor.text(compact)
        cursor.take(">i")
        await cursor.address(compact, port_of)
        return cursor.done()
    for _ in range(cursor.varint() - 1 if compact else cursor.take(">i")):
        if api == FIND_COORDINATOR:
            cursor.text(compact)
        cursor.take(">i")
        await cursor.address(compact, port_of)
        if api == FIND_COORDINATOR:
            cursor.take(">h")
        if api == FIND_COORDINATOR or version >= 1:
            cursor.text(compact)
        cursor.tags(compact)
    return cursor.done()
