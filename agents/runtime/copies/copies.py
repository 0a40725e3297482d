"""The copies that a worker keeps, and the tasks that read them.

Promises:

- A copy is followed from the first task on that this worker starts, and until the worker ends, whether it still has tasks or not.
- A task has the copies of the job once all of them are ready (`ready`), and is told when it loses one (`joins`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ...job.derive.declaration import Declared
from ...port.port import Process
from ...state.cache_memory import CacheMemory
from ...state.store import Owner
from .copy import Copy, CopyDisk, CopyNeeds, until_ready
from .facts import CopyFacts
from .view import CopyTable, view_of


class CopiesNeeds(CopyNeeds, Protocol):
    """What copies need of the process."""

    @property
    def process(self) -> Process: ...


class Copies:
    """See above."""

    def __init__(
        self,
        needs: CopiesNeeds,
        declared: Declared,
        disk: Callable[[str], CopyDisk],
        decoded: CacheMemory | None,
        job_uuid: Callable[[], str],
    ) -> None:
        """`disk`: where the stores of a table's copies lie. `job_uuid`: the id of the job's life, once the first task starts."""
        self._needs = needs
        self._declared = declared
        self._disk = disk
        self._decoded = decoded
        self._job_uuid = job_uuid
        self.all: dict[str, Copy] = {}
        """By table; empty until a task starts."""
        self.lost_why = ""
        """Why tasks had to start again last."""
        self._readers: dict[str, Callable[[Exception], None]] = {}

    @property
    def any(self) -> bool:
        """Whether the job has tables of which workers keep copies."""
        return bool(self._declared.copied)

    async def start(self) -> None:
        """Begin to follow, unless that is so already. A copy that has stopped tries again."""
        for copy in self.all.values():
            copy.try_again()
        for name, of in self._declared.copied.items():
            if name not in self.all:
                owner = Owner(self._job_uuid(), f"the copy of table {name}", -1)
                made = Copy(
                    self._needs, self._declared.of_copy(name), of, self._disk(name), self._decoded, owner, self._lose
                )
                self.all[name] = made
                await self._needs.process.serve(f"copy of {name}", made.run)

    async def ready(self) -> None:
        """Wait until tasks may read all of them. Raises `CopyStopped` if one has stopped."""
        for copy in list(self.all.values()):
            await until_ready(copy)

    def joins(self, task: str, lost: Callable[[Exception], None]) -> None:
        """This task reads them from now on; `lost` is called when it cannot go on with one."""
        self._readers[task] = lost

    def leaves(self, task: str) -> None:
        """This task has ended."""
        self._readers.pop(task, None)

    def _lose(self, why: Exception) -> None:
        self.lost_why = str(why)
        for lost in list(self._readers.values()):
            lost(why)

    def views(self, clock: Callable[[], int]) -> Mapping[str, CopyTable[Any, Any]]:
        """What a task reads of each of them. They must be ready."""
        memory = CacheMemory() if self._decoded is None else self._decoded
        found: dict[str, CopyTable[Any, Any]] = {}
        for name, copy in self.all.items():
            store, table = copy.store, copy.table
            assert store is not None, "a copy that is ready is open"
            assert table is not None, "a copy that is ready is open"
            spec = self._declared.copied[name].table
            bound = {"key": spec.key_serde, "value": spec.serde, "ttl_ms": spec.ttl_ms, "layout": table.layout}
            view = found[name] = view_of(name, copy.topic, store, clock=clock, memory=memory, **bound)
            copy.views[id(view)] = view
        return found

    def facts(self) -> list[CopyFacts]:
        """What is shown of them."""
        return [copy.facts() for _, copy in sorted(self.all.items())]

    @property
    def waits(self) -> str:
        """Why tasks wait; empty if none has to."""
        return "; ".join(why for _, copy in sorted(self.all.items()) if (why := copy.waits))

    async def stop(self) -> None:
        """Close all of them; their stores stay on the disk."""
        copies, self.all = list(self.all.values()), {}
        for copy in copies:
            await copy.stop()
