"""Empties tables of a job in its task log, from outside of its workers.

It decides what the log contains of each table, and what must be written so that every restore finds a table empty: a deletion for each of
its keys and for its schema. Promises:

- All tasks are emptied in one transaction: either all of them or none.
- The transaction uses the leader's transactional id. Before a worker can be granted a task, a leader must be elected, which fences the
  previous one and aborts its open transaction. So no task is ever restored from a half-emptied log.
- A store on disk treats the deletions like any other commit: it follows the log, or is discarded.
- The job's code is not needed, because the log contains the schema of each of its tables.
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
from ...core.task.stored.checkpoint import decode_checkpoint, parse_log_value
from ..job.types.schemas import TABLE
from ..kafka.connect import CONNECT_S
from ..kafka.offsets import KafkaOffsets
from ..kafka.port import KafkaPort
from ..kafka.settings import ClientSettings
from ..kafka.topics import TopicsAdmin
from ..port.errors import OutboxError
from ..runtime.store.log import log_write, restore
from ..runtime.writing.buffer import LogWrite
from ..runtime.writing.outbox import Outbox
from ..state.expiry_index import TTL_TABLE, IndexRows
from ..state.opening import OWN
from ..state.store import Changes, MemoryStore, StoreMeta

SIZE_BYTES = 4


class Census(MemoryStore):
    """The contents of a task log: the keys of each table with the size of their values, and the schemas.

    Of a table that is not in `names`, it records only that it exists. None means all tables.
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
        """Every table that has rows or a schema, including emptied ones, and what kind of step owns it: an aggregate, a batch step …"""
        found = {n: TABLE for n in self.tables() if n not in OWN and not n.startswith(TTL_TABLE)}
        for key, data in self.range(SCHEMA_TABLE):
            name = key.decode()
            found[name] = unpack_history(name, parse_log_value(data).body).kind
        return found

    def keys(self, table: str) -> tuple[int, int]:
        """The number of keys of a table, and the size of keys and values in bytes."""
        rows = list(self.range(table))
        return len(rows), sum(len(key) + int.from_bytes(size, "big") for key, size in rows)

    def deletions(self, tables: Iterable[str]) -> dict[str, IndexRows]:
        """The deletions that empty these tables and remove their schemas."""
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
    """What one task holds of a table. `schema`: whether its log contains the schema of the rows."""

    task: str
    keys: int
    size: int
    schema: bool


@dataclass(frozen=True, slots=True)
class Kept:
    """One table of a job, with its `parts` in the tasks that hold something of it."""

    name: str
    kind: str
    parts: tuple[Part, ...] = ()

    @property
    def keys(self) -> int:
        """The keys of all tasks."""
        return sum(part.keys for part in self.parts)

    @property
    def size(self) -> int:
        """The bytes of all tasks."""
        return sum(part.size for part in self.parts)


@dataclass(frozen=True, slots=True)
class LogContents:
    """The contents of a job's task logs: its tables by name, and the next offset to read of each partition."""

    tables: Mapping[str, Kept]
    positions: Mapping[StreamPartition, int]


def put_together(logs: Mapping[str, Census]) -> LogContents:
    """The contents of the logs of all tasks."""
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
    """The committed contents of each task's log. `names`: count only the keys of these tables; empty means all."""
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
    """Writes to the task logs of a job while no one else can, because it holds the leader's transactional id."""

    def __init__(self, client: ClientSettings, outbox: Outbox, topic: str) -> None:
        self._client = client
        self._outbox = outbox
        self._topic = topic

    async def clear(self, logs: Mapping[str, Census], changelogs: Mapping[str, int], tables: Iterable[str]) -> None:
        """Delete all rows of these tables and their schemas, in one transaction."""
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
    """Take the leader's transactional id: until another process takes it, no task can be granted. A failed write raises an error that says
    whether it took effect.
    """
    outbox = Outbox(KafkaPort(client), leader_id(job), name=f"{job.slug}-clear", transaction_timeout_ms=timeout_ms)
    owner: asyncio.Task[None] | None = None
    try:
        await outbox.start(deadline_s=CONNECT_S)
        owner = asyncio.get_running_loop().create_task(outbox.run(), name="tables clear")
        yield LogClearer(client, outbox, topic)
    except OutboxError as error:
        raise EnvironmentFault(
            failure_text(error), remedy="run the same command again: it continues with the rest"
        ) from error
    finally:
        await outbox.stop()
        if owner is not None:
            await asyncio.wait([owner])
            if not owner.cancelled():
                owner.exception()  # mark as retrieved: `commit` has raised it


def failure_text(error: OutboxError) -> str:
    """Whether the write took effect, for people."""
    if error.committed is None:
        return f"it is unknown whether the tables are empty now: {error.what}"
    return f"nothing was changed, because a worker or another command has taken over, or no broker accepts it: {error.what}"
