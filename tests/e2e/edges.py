"""Faults at the edges of a worker: its Kafka clients, its store, the user's functions.

`with Edges(plan) as edges:` wraps every coroutine of aiokafka that a worker awaits, what is taken out of its fetcher, every request that
goes over a wire, every call of RocksDB, and gives the job functions that ask `edges` before they answer. A plan says which pass over
which edge goes wrong, and how.

A fault of a client comes before the call (nothing was done), or behind it (it was done, and the answer is lost). Each strikes once;
a full disk lasts. `struck` says what really happened: a plan that meets nothing proves nothing.
"""

from __future__ import annotations

import asyncio
import functools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError, NodeNotReadyError, RequestTimedOutError, UnknownError

from headgate.agents.kafka.consumer import KafkaConsumer
from headgate.agents.state import rocks as store_rocks

FULL_S = 1.0
"""How long a disk stays full."""
NO_SPACE = "IO error: No space left on device: while appending to a file"

APIS = {0: "produce", 1: "fetch", 2: "list-offsets", 3: "metadata", 10: "find-coordinator", 22: "init-producer-id"}
APIS |= {24: "add-partitions", 26: "end-transaction", 32: "describe-configs"}
CALLS: dict[type[Any], tuple[str, ...]] = {
    AIOKafkaProducer: ("start", "stop", "send_batch", "begin_transaction", "commit_transaction"),
    AIOKafkaConsumer: ("start", "stop", "beginning_offsets", "end_offsets"),
    KafkaConsumer: ("take",),
    AIOKafkaAdminClient: ("start", "close", "describe_topics", "describe_configs", "create_topics"),
}
RAISED: dict[str, Callable[[], BaseException]] = {
    "connection": lambda: KafkaConnectionError("injected: the connection fell"),
    "not ready": lambda: NodeNotReadyError("injected"),
    "timed out": lambda: RequestTimedOutError("injected"),
    "unknown": lambda: UnknownError("injected"),
    "os": lambda: OSError(104, "injected: connection reset by peer"),
    "odd": lambda: ValueError("injected: the library is wrong"),
    "cancelled": lambda: asyncio.CancelledError("injected: nobody here asked for it"),
}
THROWN: dict[str, Callable[[], BaseException]] = {
    "value": lambda: ValueError("injected"),
    "cancelled": lambda: asyncio.CancelledError("injected"),
    "interrupt": lambda: KeyboardInterrupt("injected"),
    "exit": lambda: SystemExit(3),
    "group": lambda: BaseExceptionGroup("injected", [ValueError("one"), KeyboardInterrupt("two")]),
    "generator": lambda: GeneratorExit("injected"),
    "stop": lambda: StopIteration("injected"),
    "timeout": lambda: TimeoutError("injected"),
}
WRONG: dict[str, Any] = {
    "object": object(),
    "set": {1, 2},
    "nan": float("nan"),
    "float": 1.5e300,
    "huge": 2**70,
    "surrogate": "\ud800",
    "class": dict,
    "bytearray": bytearray(b"x"),
    "none": None,
}


@dataclass(frozen=True)
class Fault:
    """The `nth` pass over `edge` goes wrong as `kind` says; `behind`: after the call was made."""

    edge: str
    nth: int
    kind: str
    behind: bool = False


CLIENT_EDGES = tuple(f"{kind.__name__}.{call}" for kind, calls in CALLS.items() for call in calls)
WIRE_EDGES = tuple(f"wire.{name}" for name in APIS.values())
STORE_EDGES = ("store.write", "store.get", "store.open", "store.scan", "store.flush", "store.close")
USER_EDGES = (
    "map", "filter", "flat_map", "map_async", "key", "partition", "timestamp", "headers", "init", "add", "merge", "agent", "sink",
    "dumps", "on_start", "on_batch", "on_timer", "on_watermark", "on_end_of_stream", "emit", "on_stop",
)  # fmt: skip
RETURNS = ("map", "map_async", "key", "partition", "timestamp", "headers", "dumps", "emit", "flat_map")
"""Edges whose answer can be of a type that nobody can take."""
OFTEN = {"wire.fetch": 40, "wire.produce": 25, "wire.end-transaction": 12, "wire.metadata": 12, "wire.list-offsets": 12}
OFTEN |= {"store.write": 12, "store.get": 12, "AIOKafkaProducer.send_batch": 25, "KafkaConsumer.take": 40}
OFTEN |= {
    "AIOKafkaProducer.commit_transaction": 12,
    "AIOKafkaProducer.begin_transaction": 12,
}


def drawn(seed: int, faults: int = 3) -> list[Fault]:
    """Faults of this seed: a third each at clients and wire, the store, the user's functions."""
    chance = random.Random(seed)
    return [_one(chance) for _ in range(faults)]


def _one(chance: random.Random) -> Fault:
    where = chance.choice(("client", "wire", "store", "user", "user"))
    if where == "user":
        edge = chance.choice(USER_EDGES)
        returns = edge in RETURNS and chance.random() < 0.5
        kind = "returns " + chance.choice(sorted(WRONG)) if returns else chance.choice(sorted(THROWN))
        return Fault(f"user.{edge}", chance.randint(1, 60 if edge in RETURNS else 3), kind)
    if where == "store":
        edge = chance.choice(STORE_EDGES)
        kind = "full" if edge == "store.write" and chance.random() < 0.5 else "refused"
        return Fault(edge, chance.randint(1, OFTEN.get(edge, 3)), kind)
    edge = chance.choice(CLIENT_EDGES if where == "client" else WIRE_EDGES)
    return Fault(edge, chance.randint(1, OFTEN.get(edge, 4)), chance.choice(sorted(RAISED)), chance.random() < 0.5)


class Edges:
    """The wrapped edges, while it is entered."""

    def __init__(self, plan: Iterable[Fault]) -> None:
        self.plan = list(plan)
        self.passes: Counter[str] = Counter()
        self.struck: list[Fault] = []
        self.armed = False
        self._full_until = 0.0
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> Edges:
        for kind, calls in CALLS.items():
            for call in calls:
                self._wrap(kind, call, f"{kind.__name__}.{call}")
        self._wrap(AIOKafkaClient, "send", None)
        real = store_rocks.Rdict
        store_rocks.Rdict = _Disks(real, self)
        self._undo.append(lambda: setattr(store_rocks, "Rdict", real))
        self.armed = True
        return self

    def __exit__(self, *_: object) -> None:
        self.armed = False
        for undo in reversed(self._undo):
            undo()

    def _wrap(self, kind: type[Any], call: str, edge: str | None) -> None:
        original = getattr(kind, call)

        @functools.wraps(original)
        async def wrapped(this: Any, *words: Any, **more: Any) -> Any:
            at = edge or f"wire.{APIS.get(getattr(words[1], 'API_KEY', -1), 'other')}"
            fault = self.next(at)
            if fault is not None and not fault.behind:
                raise RAISED[fault.kind]()
            answer = await original(this, *words, **more)
            if fault is not None:
                raise RAISED[fault.kind]()
            return answer

        setattr(kind, call, wrapped)
        self._undo.append(lambda: setattr(kind, call, original))

    def next(self, edge: str) -> Fault | None:
        """One pass over this edge; the fault that was planned for it."""
        if not self.armed:
            return None
        self.passes[edge] += 1
        for fault in self.plan:
            if fault.edge == edge and fault.nth == self.passes[edge]:
                self.struck.append(fault)
                return fault
        return None

    def store(self, edge: str) -> None:
        """A call of RocksDB; raises what RocksDB does."""
        if edge == "store.write" and self.armed and time.monotonic() < self._full_until:
            raise Exception(NO_SPACE)  # rocksdict raises plain Exception
        fault = self.next(edge)
        if fault is not None:
            if fault.kind == "full":
                self._full_until = time.monotonic() + FULL_S
            raise Exception(NO_SPACE if edge == "store.write" else "Corruption: injected")

    def user(self, edge: str, right: Any = None) -> Any:
        """What a function of the user's answers: the right thing, or what was planned."""
        fault = self.next(f"user.{edge}")
        if fault is None:
            return right
        if fault.kind.startswith("returns "):
            return WRONG[fault.kind.removeprefix("returns ")]
        raise THROWN[fault.kind]()


class _Disks:
    """`Rdict`, whose databases ask before each call."""

    def __init__(self, real: Any, edges: Edges) -> None:
        self._real, self._edges = real, edges

    def __call__(self, *words: Any, **more: Any) -> Any:
        self._edges.store("store.open")
        return _Disk(self._real(*words, **more), self._edges)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _Disk:
    """A database or one of its column families."""

    def __init__(self, real: Any, edges: Edges) -> None:
        self._real, self._edges = real, edges

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def get_column_family(self, name: str) -> Any:
        return _Disk(self._real.get_column_family(name), self._edges)

    def write(self, *words: Any) -> Any:
        self._edges.store("store.write")
        return self._real.write(*words)

    def get(self, *words: Any, **more: Any) -> Any:
        self._edges.store("store.get")
        return self._real.get(*words, **more)

    def items(self, *words: Any, **more: Any) -> Any:
        self._edges.store("store.scan")
        return self._real.items(*words, **more)

    def flush(self, *words: Any) -> Any:
        self._edges.store("store.flush")
        return self._real.flush(*words)

    def close(self) -> None:
        real, self._real = self._real, None
        real.close()
        del real
        self._edges.store("store.close")
