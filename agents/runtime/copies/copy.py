"""One copy: it follows all partitions of a topic, and keeps the table that is made of it.

    opening → reading → live        (and from each: stopped; opening again, if something has failed or the copy is built anew)

Promises:

- The rows and the positions are written in one batch, so a restart reads only the difference. A store that does not fit the topic any more
  is built anew, which is logged with the reason, and counted.
- It is ready once it has read up to the end that the topic had when it began to follow it. Until then, and while it is built anew, no task
  has it: tasks that had it before lose it (`lost`), and its store is closed before anything else of it changes.
- If a policy says that a record fails, the copy stops there, and says which record it was. It tries again when a task starts that reads it.
- What fails outside of the records (a broker, a disk) is said and tried again, with longer and longer pauses.
- How old it may be is measured by answers of the broker alone: one that is not fed grows old by itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol
from weakref import WeakValueDictionary

from ....core.errors import DataError, DeclarationError, EnvironmentFault
from ....core.names import StreamPartition
from ...cancellation import passes
from ...job.derive.copied import CopiedTable
from ...job.derive.declaration import Declared
from ...learning import LateTopics, MustLearn, NotYet
from ...live_settings import Settings
from ...logger import Logger
from ...operators.pipeline.trouble import Failed, reason_of
from ...patience import Patience
from ...port.absence import Unread
from ...port.outlasting import outlasted
from ...port.port import Offsets, Port
from ...port.waiting import wait
from ...records.frames.chunks import Chunk
from ...records.limits import LIMIT
from ...state.cache_memory import CacheMemory
from ...state.opening import open_tables
from ...state.store import Owner, Store, StoreBusy, StoreUnusable
from ...state.table import Table
from ...state.tables import TaskTables
from ..reading.intake import FETCH_BYTES, Intake, PartitionSource
from .facts import LIVE, OPENING, READING, STALE, STOPPED, CopyFacts
from .positions import CopyPositions, unfit
from .rows import CopyRows
from .view import CopyTable

log = Logger("headgate.copies")
LOOK_S = 1.0
"""How long it waits for an answer of the broker before it looks at everything else."""
CHUNK_ROWS = 1000
CHUNK_BYTES = 1 << 20
WIDER_S = 30.0
"""How often it is asked whether the topic has more partitions."""
EXPIRE_S = 1.0
ASK_S = 2.0
"""How often a copy that has stopped asks where its topic ends."""
KNOWN_S = 15.0
"""An older answer says nothing of how much it lacks now."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""By the loop's time, as user code waits: in a test driver, a task that waits for the copy would wait for ever for a clock that stands."""
BUSY_S = 0.02
"""The wait before a write to a busy store is tried again; see `state.store`."""


class CopyStopped(DataError):
    """A copy has stopped at a record that its policy lets fail."""


class CopyLost(EnvironmentFault):
    """A copy is not there for a while: a task that reads it starts again, and waits for it."""


class _Anew(Exception):
    """The store must be built anew, for this reason."""


class _Grown(Exception):
    """The topic has more partitions."""


class CopyDisk(Protocol):
    """Where the store of a copy lies. Both calls may take long and run in a thread."""

    def open(self, owner: Owner, tables: Iterable[str]) -> Store:
        """The store, or a new one. Raises `StoreUnusable` if it must be wiped."""
        ...

    def wipe(self) -> None:
        """Remove the store. It must be closed."""
        ...


class CopyNeeds(Protocol):
    """What a copy needs of the process."""

    port: Port
    offsets: Offsets
    settings: Settings
    unread: Unread

    @property
    def producers(self) -> LateTopics: ...
    async def width(self, topic: str) -> int:
        """How many partitions a topic has; 0 if there is no such topic."""
        ...


class Copy:
    """See above."""

    def __init__(
        self,
        needs: CopyNeeds,
        declared: Declared,
        of: CopiedTable,
        disk: CopyDisk,
        decoded: CacheMemory | None,
        owner: Owner,
        lost: Callable[[Exception], None],
    ) -> None:
        """`declared`: the part of the copy. `lost` is called when the tasks that read it cannot go on with it."""
        self.name = of.table.name
        self.topic = of.source.topic
        self.state = OPENING
        self.ready = asyncio.Event()
        """Set while tasks may read it."""
        self.error: CopyStopped | None = None
        """Why it has stopped."""
        self.store: Store | None = None
        self.table: Table[Any, Any] | None = None
        self.views: WeakValueDictionary[int, CopyTable[Any, Any]] = WeakValueDictionary()
        """What tasks read of it, by the id of the object: a table is a mapping, which has no hash."""
        self.counts: Counter[str] = Counter()
        self.read = 0
        self.built_anew = 0
        self.changed = asyncio.Event()
        """Set when it has stopped or is ready."""
        self._needs = needs
        self._declared = declared
        self._of = of
        self._disk = disk
        self._decoded = decoded
        self._owner = owner
        self._lost = lost
        self._tables: TaskTables | None = None
        self._kept = CopyPositions()
        self._goal: dict[StreamPartition, int] = {}
        self._intake: Intake | None = None
        self._trouble = ""
        self._ends: dict[StreamPartition, int] = {}
        """Where each partition ended last, for who reads committed."""
        self._fresh: dict[StreamPartition, float] = {}
        """When (monotonic clock) each partition was last known to be read to its end."""
        self._anew = ""
        """Why the store must be wiped before it is opened again."""
        self._again = asyncio.Event()
        self._busy: asyncio.Task[Any] | None = None
        """What runs in a thread, which cannot be cancelled."""
        self._running: asyncio.Task[Any] | None = None
        self._ending = False
        self._said: dict[str, str] = {}

    # ------------------------------------------------------------------------------------------------------------ its life

    async def run(self) -> None:
        """Follow the topic until it is stopped."""
        self._running = asyncio.current_task()
        pause_s = FIRST_PAUSE_S
        while not self._ending:
            read = self.read
            try:
                await self._once()
                continue
            except BaseException as error:
                if passes(error):
                    raise
                why = reason_of(error)
            log.warning("a copy of a table is not kept up", table=self.name, topic=self.topic, why=why)
            self._trouble = why
            self._lose(CopyLost(f"the copy of table {self.name} is not kept up: {why}"))
            pause_s = FIRST_PAUSE_S if self.read > read else min(LONGEST_PAUSE_S, pause_s * 2)
            await asyncio.sleep(pause_s)

    async def _once(self) -> None:
        """Follow the topic from what is kept, until it must be opened again."""
        await self._close()
        if self._anew:
            await self._in_turn(self._disk.wipe)
            self._fresh, self._goal, self._ends, self._kept = {}, {}, {}, CopyPositions()
            self._anew = ""
        try:
            await self._follow()
        except (_Anew, StoreUnusable) as error:
            self._anew = why = error.reason if isinstance(error, StoreUnusable) else str(error)
            self.built_anew += 1
            log.warning("a copy of a table is built anew", table=self.name, topic=self.topic, why=why)
            self._trouble = f"it is built anew: {why}"
            self._lose(CopyLost(f"the copy of table {self.name} is built anew: {why}"))
        except _Grown:
            log.info("the topic of a copy has more partitions", table=self.name, topic=self.topic)
            self._lose(CopyLost(f"the copy of table {self.name} begins to read more partitions of its topic"))
        except CopyStopped as error:
            await self._stopped(error)

    async def stop(self) -> None:
        """End following, and close the store, which stays on the disk."""
        self._ending = True
        running, self._running = self._running, None
        if running is not None and running is not asyncio.current_task():
            running.cancel()
            await asyncio.wait([running])
        if self._busy is not None:
            await asyncio.wait([self._busy])
        self._tell({})
        if self._intake is not None:
            await self._intake.stop()
        await self._close()

    def try_again(self) -> None:
        """If it has stopped, it goes on where it stopped."""
        if self.state == STOPPED:
            self.state, self.error = OPENING, None
            self._again.set()

    async def _stopped(self, error: CopyStopped) -> None:
        self._again.clear()
        self.state, self.error = STOPPED, error
        log.error("a copy of a table has stopped", table=self.name, topic=self.topic, why=str(error))
        self.ready.clear()
        self.changed.set()
        self._lost(error)
        await self._ask_ends()
        while not await wait(self._needs.port.clock, self._again, ASK_S):
            await self._ask_ends()

    def _lose(self, why: CopyLost) -> None:
        """The store will be opened again: tasks lose it first, and what is not fetched says nothing of how much it lacks."""
        was_ready = self.ready.is_set()
        self.ready.clear()
        self.state, self._ends = OPENING, {}
        if was_ready:
            self._lost(why)

    async def _ask_ends(self) -> None:
        """Nothing is fetched: ask how much it lacks."""
        try:
            for at in self._goal:
                self._ends[at] = await self._needs.offsets.end_of(at, committed=True)
        except Exception as error:  # noqa: BLE001 - a broker, a topic that is gone: what it lacks is then unknown
            self._ends.clear()
            log.debug("the end of a log is unknown", topic=self.topic, why=str(error))

    async def _in_turn(self, work: Callable[[], Any]) -> Any:
        """Do this in a thread; who stops the copy waits for it."""

        async def run() -> Any:
            return await self._needs.port.in_thread(work)

        self._busy = asyncio.get_running_loop().create_task(run(), name=f"{self.name}: store of the copy")
        return await asyncio.shield(self._busy)

    async def _close(self) -> None:
        tables, self._tables, self.table = self._tables, None, None
        if tables is not None:
            tables.close()
        store, self.store = self.store, None
        if store is not None:
            await self._in_turn(store.close)

    # ----------------------------------------------------------------------------------------------------------- following

    async def _follow(self) -> None:
        await self._in_turn(self._open)
        store = self.store
        assert store is not None, "it has been opened"
        bounds = await self._positions(store)
        rows = self._bind(store)
        self.state = READING
        intake = self._intake = Intake(
            self._needs.port,
            [
                PartitionSource(
                    at,
                    self._kept.next[at.partition],
                    topic=self._kept.topic,
                    spanned=rows.source.spanned,
                    bulk=rows.source.bulk,
                    most_bytes=self._needs.settings.value(LIMIT),
                )
                for at in bounds
            ],
            name=f"{self._declared.app.job.slug}-copy-{self.name}",
            buffer_bytes=self._needs.settings.value("buffer.bytes"),
            fetch_bytes=min(FETCH_BYTES, max(1, self._needs.settings.value("buffer.bytes"))),
            watchdog_s=self._needs.settings.seconds("fetch.watchdog"),
        )
        try:
            await outlasted(intake.start)
            self._trouble = ""
            await self._read(intake, rows)
        finally:
            self._intake = None
            self._tell({})
            await intake.stop()
            await rows.close()

    def _open(self) -> None:
        """In a thread: whoever stops the copy meanwhile finds the store, and closes it."""
        self.store = self._disk.open(self._owner, (self.name,))

    async def _positions(self, store: Store) -> dict[StreamPartition, tuple[int, int]]:
        """Where each partition starts and ends. What was kept must fit; what is new begins at the start."""
        needs, topic = self._needs, self.topic
        width = await needs.width(topic)
        if not width:
            raise EnvironmentFault(
                f"the topic '{topic}' does not exist", remedy="create it again; the copy waits for it"
            )
        topic_id = await outlasted(partial(needs.offsets.topic_id, topic))
        found: dict[StreamPartition, tuple[int, int]] = {}
        for at in (StreamPartition(topic, n) for n in range(width)):
            start = await outlasted(partial(needs.offsets.start_of, at))
            found[at] = start, await outlasted(partial(needs.offsets.end_of, at, committed=False))
            self._goal[at] = await outlasted(partial(needs.offsets.end_of, at, committed=True))
        data = store.meta.checkpoint
        kept = CopyPositions() if data is None else CopyPositions.unpacked(data)
        if why := unfit(kept, topic_id, {at.partition: one for at, one in found.items()}):
            raise _Anew(why)
        following = {at.partition: start for at, (start, _) in found.items()} | dict(kept.next)
        self._goal = {at: goal for at, goal in self._goal.items() if at in found}
        self._kept = CopyPositions(topic_id, following, kept.rows)
        return found

    def _bind(self, store: Store) -> CopyRows:
        needs = self._needs
        wall = lambda: needs.port.clock.now().wall  # noqa: E731
        misfit = ""
        try:
            self._tables = open_tables(store, self._declared, clock=wall, memory=self._decoded).tables
        except DeclarationError as error:
            misfit = error.what
        if misfit:  # the topic has everything, so no row has to be converted
            raise _Anew(f"its rows do not fit the code any more ({misfit})")
        tables = self._tables
        assert tables is not None, "they have been opened"
        self.table = tables.table(self.name)
        self.table.caches_written = False
        return CopyRows(
            self._declared,
            self.name,
            self.topic,
            tables,
            now_ms=wall,
            patience=Patience(needs.settings.seconds),
            counts=self.counts,
        )

    async def _read(self, intake: Intake, rows: CopyRows) -> None:
        clock = self._needs.port.clock
        wider_s = expire_s = clock.now().mono
        self._look(intake)
        while True:
            await intake.fill(LOOK_S)
            more = True
            while more:
                more = False
                for at in self._goal:
                    head = intake.head(at)
                    if head.lost is not None:
                        raise _Anew(head.lost.what)
                    if (chunk := intake.take(at, CHUNK_ROWS, most_bytes=CHUNK_BYTES)) is not None:
                        more = True
                        await self._chunk(chunk, rows)
                        await asyncio.sleep(0)  # the tasks of the worker run between two chunks
            now_s = clock.now().mono
            if now_s - expire_s >= EXPIRE_S:
                expire_s = now_s
                await self._expire()
            await self._write({at.partition: position for at, position in intake.positions().items()})
            self._look(intake)
            if now_s - wider_s >= WIDER_S:
                wider_s = now_s
                if await self._needs.width(self.topic) > len(self._goal):
                    raise _Grown

    def _look(self, intake: Intake) -> None:
        """Note how far the copy is, and tell who waits for it."""
        now_s = self._needs.port.clock.now().mono
        positions = intake.positions()
        for at, position in positions.items():
            head = intake.head(at)
            if head.stable is not None:
                self._ends[at] = head.stable
            if head.stable is not None and head.answered_age_s is not None and position >= head.stable:
                self._fresh[at] = max(self._fresh.get(at, now_s - head.answered_age_s), now_s - head.answered_age_s)
        self._tell({str(at): why for at, why in intake.troubles() if why is not None})
        if not self.ready.is_set() and all(positions[at] >= goal for at, goal in self._goal.items()):
            self.state = LIVE
            self.ready.set()
            self.changed.set()
            log.info(
                "a copy of a table is ready", table=self.name, topic=self.topic, rows=self._kept.rows, read=self.read
            )

    def _tell(self, troubles: Mapping[str, str]) -> None:
        """Say what cannot be read, and that it can be read again."""
        before, self._said = self._said, dict(troubles)
        for at in before.keys() - troubles.keys():
            self._needs.unread.back(at)
        for at, why in troubles.items():
            if before.get(at) != why:
                self._needs.unread.tell(at, why)
        self._trouble = next(iter(troubles.values()), "")

    # ------------------------------------------------------------------------------------------------------------- its rows

    async def _chunk(self, chunk: Chunk, rows: CopyRows) -> None:
        chunk.now_ms = self._needs.port.broker.ms(self._needs.port.clock.now())
        outcome = await rows.run(chunk, self._learn)
        tries = 0
        while isinstance(outcome, Failed):
            tries += 1
            if outcome.final or tries > self._needs.settings.value("error.retries"):
                raise self._failed(outcome)
            self._trouble = outcome.why
            log.warning("a record of a copy fails and is tried again", table=self.name, why=outcome.why, attempt=tries)
            await asyncio.sleep(min(LONGEST_PAUSE_S, 2.0 ** (tries - 1)))
            outcome = await rows.run(chunk, self._learn)
        for index, cause in outcome.left_out.items():
            offset = chunk.columns.offset(index)
            log.warning("record is skipped by a copy", table=self.name, at=str(chunk.at), offset=offset, why=str(cause))
        self.counts["left_out"] += len(outcome.left_out)
        self.read += len(chunk)
        await self._write({chunk.at.partition: chunk.next_position})

    def _failed(self, outcome: Failed) -> CopyStopped:
        return CopyStopped(
            f"the copy of table {self.name} has stopped: {outcome.why.partition('. Remedy: ')[0]}",
            remedy=f'correct the code, or leave such records out: app.input(\'{self.topic}\', on_bad_data="skip", on_error="skip"); '
            "then start the worker again: the copy goes on with this record",
        )

    async def _learn(self, unknown: MustLearn) -> None:
        pause_s = 0.1
        while True:
            try:
                await unknown.learn(self._needs.producers)
                return
            except NotYet as away:
                self._trouble = away.what
                log.warning("a copy waits for an answer", table=self.name, why=away.what, to_do=away.remedy)
                await asyncio.sleep(pause_s)
                pause_s = min(LONGEST_PAUSE_S, pause_s * 2)

    async def _expire(self) -> None:
        assert self._tables is not None
        if self._of.table.ttl_ms is not None:
            self._tables.expire(self._needs.port.clock.now().wall)
            await self._write({})

    async def _write(self, positions: Mapping[int, int]) -> None:
        """Write the rows that have changed, and the positions behind them, in one batch."""
        tables, store = self._tables, self.store
        assert tables is not None, "it is open while the copy follows"
        assert store is not None, "it is open while the copy follows"
        following = {**self._kept.next, **positions}
        if following == self._kept.next and not tables.changed and store.meta.checkpoint is not None:
            return
        changes = tables.seal().get(self.name, {})
        keys = list(changes)
        before = store.get_many(self.name, keys)
        added = sum(changes[key] is not None for key in keys) - sum(one is not None for one in before)
        kept = CopyPositions(self._kept.topic, following, self._kept.rows + added)
        while True:
            try:
                tables.applied(0, checkpoint=kept.packed())
                break
            except StoreBusy:
                await asyncio.sleep(BUSY_S)
        for view in self.views.values():
            view.changed_in_copy(keys)
        self._kept = kept

    # --------------------------------------------------------------------------------------------------------------- sight

    @property
    def lag(self) -> int | None:
        """How many records it lacks, as far as the broker's last answers tell; None if it has told nothing yet."""
        intake = self._intake
        if intake is not None and any((head.answered_age_s or 0.0) > KNOWN_S for head in intake.heads().values()):
            return None
        ends = self._ends or self._goal
        return sum(max(0, end - self._kept.next.get(at.partition, 0)) for at, end in ends.items()) if ends else None

    @property
    def waits(self) -> str:
        """Why no task may read it; empty if they may."""
        if self.ready.is_set():
            return ""
        if self.error is not None:
            return str(self.error)
        lag = self.lag
        behind = "it is opened" if lag is None else f"{lag} records behind"
        return f"waiting for table {self.name}: {behind}" + (f" ({self._trouble})" if self._trouble else "")

    def age_ms(self, now_s: float) -> int | None:
        """How long ago all of its partitions were last known to be read to their ends; None if that was never so."""
        if not self._goal or self._goal.keys() - self._fresh.keys():
            return None
        return max(0, round((now_s - min(self._fresh[at] for at in self._goal)) * 1000))

    def facts(self) -> CopyFacts:
        """What is shown of it."""
        now_s = self._needs.port.clock.now().mono
        return CopyFacts(
            self.name,
            self.topic,
            STALE if self.state == LIVE and self._said else self.state,
            self._kept.rows,
            0 if self.store is None else self.store.size(),
            self.lag,
            self.age_ms(now_s),
            self.read,
            self.counts["left_out"],
            self.built_anew,
            dict(self._kept.next),
            self.waits or self._trouble,
        )


async def until_ready(copy: Copy) -> None:
    """Wait until tasks may read it. Raises `CopyStopped` if it stops instead."""
    while not copy.ready.is_set():
        if copy.error is not None:
            raise copy.error
        copy.changed.clear()
        await copy.changed.wait()
