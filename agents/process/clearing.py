"""Emptying tables of a job in its task log, from outside of any worker.

What it decides: what the log holds of each table, and what is written so that every restore begins with a table empty: the deletion of
each of its keys and of its schema, beside whatever else stands there. Promises:

- All tasks are emptied in one transaction: all of it counts, or nothing does.
- The transaction is the leader's. Before a worker can be granted a task somebody must lead, and that ends what is open of whoever led
  before: no task is ever restored from half of it.
- A store on a disk sees the deletions as it sees those of any commit: it follows the log, or is not trusted.
- The job's code is not needed: the log holds the schema of each of its tables.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass

from ...core.errors import EnvironmentFault
from ...core.graph.schema import SCHEMA_TABLE, unpack_history
from ...core.names import JobName, StreamPartition, leader_id
from ...core.task.checkpoint import decode_checkpoint, parse_log_value
from ..job.schemas import TABLE
from ..kafka.connect import CONNECT_S
from ..kafka.offsets import KafkaOffsets
from ..kafka.port import KafkaPort
from ..kafka.settings import ClientSettings
from ..kafka.topics import TopicsAdmin
from ..port.errors import OutboxError
from ..runtime.buffer import LogWrite
from ..runtime.log import log_write, restore
from ..runtime.outbox import Outbox
from ..state.expiry_index import TTL_TABLE, IndexRows
from ..state.opening import OWN
from ..state.store import Changes, MemoryStore, StoreMeta

SIZE_BYTES = 4


class Census(MemoryStore):
    """What a log comes to: the keys of each table with how many bytes their values take, and the schemas.

    Of tables that are not in `names` only that they are there; None: of all tables.
    """

    def __init__(self, names: frozenset[str] | None = None) -> None:
        super().__init__()
        self._names = names

    def _put(self, changes: Changes, meta: StoreMeta) -> None:
        super()._put({table: self._counted(table, rows) for table, rows in changes.items()}, meta)

    def _counted(self, table: str, rows: Mapping[bytes, bytes | None]) -> IndexRows:
        if table == SCHEMA_TABLE:
            return dict(rows)
        if table in OWN or table.startswith(TTL_TABLE) or (self._names is not None and table not in self._names):
            return {}
        return {k: None if v is None else len(v).to_bytes(SIZE_BYTES, "big") for k, v in rows.items()}

    def kinds(self) -> dict[str, str]:
        """Every table that rows or a schema tell of, emptied ones included, and what keeps it: an aggregate, a batch step …"""
        found = {n: TABLE for n in self.tables() if n not in OWN and not n.startswith(TTL_TABLE)}
        for key, data in self.range(SCHEMA_TABLE):
            name = key.decode()
            found[name] = unpack_history(name, parse_log_value(data).body).kind
        return found

    def keys(self, table: str) -> tuple[int, int]:
        """How many keys a table has, and their bytes with those of their values."""
        rows = list(self.range(table))
        return len(rows), sum(len(key) + int.from_bytes(size, "big") for key, size in rows)

    def deletions(self, tables: Iterable[str]) -> dict[str, IndexRows]:
        """What makes these tables empty, and their schemas unknown."""
        found: dict[str, IndexRows] = {}
        schemas: IndexRows = {}
        for table in tables:
            if rows := {key: None for key, _ in self.range(table)}:
                found[table] = dict(rows)
            if self.get(SCHEMA_TABLE, table.encode()) is not None:
                schemas[table.encode()] = None
        return {**found, SCHEMA_TABLE: schemas} if schemas else found


@dataclass(frozen=True, slots=True)
class Part:
    """What one task has of a table. `schema`: whether its log knows how rows of it are to be read."""

    task: str
    keys: int
    size: int
    schema: bool


@dataclass(frozen=True, slots=True)
class Kept:
    """One table of a job; `parts` in those tasks that hold anything of it."""

    name: str
    kind: str
    parts: tuple[Part, ...] = ()

    @property
    def keys(self) -> int:
        """Of all tasks."""
        return sum(part.keys for part in self.parts)

    @property
    def size(self) -> int:
        """Bytes, of all tasks."""
        return sum(part.size for part in self.parts)


@dataclass(frozen=True, slots=True)
class LogContents:
    """What the logs of a job hold: its tables by name, and the next offset to read of each partition."""

    tables: Mapping[str, Kept]
    positions: Mapping[StreamPartition, int]


def put_together(logs: Mapping[str, Census]) -> LogContents:
    """What all tasks hold, by task."""
    kinds: dict[str, str] = {}
    positions: dict[StreamPartition, int] = {}
    for census in logs.values():
        said = census.kinds()
        kinds |= {name: kind for name, kind in said.items() if kind != TABLE or name not in kinds}
        if census.meta.checkpoint is not None:
            positions |= decode_checkpoint(census.meta.checkpoint).positions
    tables: dict[str, Kept] = {}
    for name, kind in sorted(kinds.items()):
        parts: list[Part] = []
        for task, census in logs.items():
            keys, size = census.keys(name)
            schema = census.get(SCHEMA_TABLE, name.encode()) is not None
            if keys or schema:
                parts.append(Part(task, keys, size, schema))
        tables[name] = Kept(name, kind, tuple(parts))
    return LogContents(tables, dict(sorted(positions.items())))


async def read_logs(
    client: ClientSettings, topic: str, changelogs: Mapping[str, int], names: Iterable[str] = ()
) -> dict[str, Census]:
    """What the log of each task comes to now, as far as it is committed. `names`: count the keys of these only; none: of all."""
    wanted = frozenset(names) or None
    found: dict[str, Census] = {}
    offsets = KafkaOffsets(client)
    await offsets.start()
    try:
        for task, partition in sorted(changelogs.items(), key=lambda one: one[1]):
            at = StreamPartition(topic, partition)
            start, end = await offsets.start_of(at), await offsets.end_of(at, committed=True)
            census = found[task] = Census(wanted)
            await restore(KafkaPort(client), at, census, start=start, end=end)
    finally:
        await offsets.stop()
    return found


class LogClearer:
    """Writes to the task logs of a job while nobody else can: it holds the leader's transactional id."""

    def __init__(self, client: ClientSettings, outbox: Outbox, topic: str) -> None:
        self._client = client
        self._outbox = outbox
        self._topic = topic

    async def clear(self, logs: Mapping[str, Census], changelogs: Mapping[str, int], tables: Iterable[str]) -> None:
        """Delete all rows of these tables, and their schemas, in one transaction."""
        wanted, now_ms = list(tables), int(time.time() * 1000)
        writes: list[LogWrite] = []
        for task, census in logs.items():
            if changes := census.deletions(wanted):
                at = StreamPartition(self._topic, changelogs[task])
                writes.append(log_write(task, at, changes, None, now_ms=now_ms))
        await self._learn()
        self._outbox.divide(writes)
        await self._outbox.flush()
        await self._outbox.commit()

    async def _learn(self) -> None:
        topics = TopicsAdmin(self._client)
        await topics.start(deadline_s=CONNECT_S)
        try:
            found = (await topics.find([self._topic]))[self._topic]
        finally:
            await topics.stop()
        self._outbox.know(found.name, found.partitions, found.limit)


@contextlib.asynccontextmanager
async def leading(client: ClientSettings, job: JobName, topic: str, *, timeout_ms: int) -> AsyncIterator[LogClearer]:
    """Take the leader's id: until somebody else does, nobody can be granted a task. Says what has become of a write that failed."""
    outbox = Outbox(KafkaPort(client), leader_id(job), name=f"{job.slug}-clear", transaction_timeout_ms=timeout_ms)
    owner: asyncio.Task[None] | None = None
    try:
        await outbox.start(deadline_s=CONNECT_S)
        owner = asyncio.get_running_loop().create_task(outbox.run(), name="tables clear")
        yield LogClearer(client, outbox, topic)
    except OutboxError as error:
        raise EnvironmentFault(told(error), remedy="run the same command again: it continues with the rest") from error
    finally:
        await outbox.stop()
        if owner is not None:
            await asyncio.wait([owner])
            if not owner.cancelled():
                owner.exception()  # whoever waited for the commit has heard it


def told(error: OutboxError) -> str:
    """What has become of it, for people."""
    if error.committed is None:
        return f"it is unknown whether the tables are empty now: {error.what}"
    return f"nothing was changed, because a worker or another command has taken over, or no broker accepts it: {error.what}"
