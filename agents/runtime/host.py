"""What a task needs of the worker around it; `worker.Worker` is one, and nothing else of it is used by a task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ...core.names import StreamPartition
from ...core.orders import Order, Start
from ...core.task import protocol as t
from ...core.task.plan import TaskPlan
from ..port.absence import Unread
from ..port.port import Mailbox, Port

if TYPE_CHECKING:
    from ...core.orders import Report
    from ..job.declaration import Declared
    from .buffer import TaskBuffer
    from .guarantee import SplitBuffer
    from .state import TaskStore
    from .task import TaskActor
    from .task_intake import TaskIntake


class Host(Protocol):
    """What a task needs of the worker around it."""

    declared: Declared
    spark: Any
    """Who runs functions of PySpark, for jobs that use it."""

    unread: Unread
    """Who says which inputs are not read, for all tasks together."""

    @property
    def port(self) -> Port: ...
    @property
    def careful(self) -> set[str]:
        """Tasks whose aggregates hold nothing back for the commit, because a commit has failed on it."""
        ...

    @property
    def spark_in_flight(self) -> int: ...

    def seconds(self, name: str) -> float:
        """A duration setting."""
        ...

    def buffer(self, task: str) -> TaskBuffer | SplitBuffer: ...
    async def room(self) -> None: ...
    async def check_streams(self, plan: TaskPlan) -> None:
        """The streams between stages are as wide as the leader wrote; raises where one is not."""
        ...

    def report(self, report: Report) -> None: ...
    async def learn(self, topic: str) -> None:
        """A target that user code has named, and that no step has declared."""
        ...

    def want_commit(self, task: str, urgent: bool) -> None: ...
    def poisoned(self, task: str, why: str) -> None:
        """Outputs of this task are in the open transaction, and its positions will not be: the transaction must not commit."""
        ...

    def spawn(self, work: Awaitable[None], name: str) -> asyncio.Task[None]: ...
    async def serve(self, name: str, work: Awaitable[None]) -> Any: ...
    def count(self, task: str, name: str, amount: int) -> None: ...
    def gone(self, task: str) -> None: ...
    def again(self, start: Start, *orders: Order) -> None:
        """Begin this task once more, under the grant that it has, and give it these orders."""
        ...

    def open_state(self, task: str, log_partition: int) -> TaskStore: ...
    def ask_offsets(self, order: t.ResolveOffsets) -> Awaitable[t.OffsetsResolved]: ...
    def make_intake(self, actor: TaskActor, positions: Mapping[StreamPartition, int]) -> TaskIntake: ...
    def mailbox(
        self,
        name: str,
        on_letter: Callable[[Any], Awaitable[None]],
        on_gone: Callable[[BaseException | None], None],
        on_again: Callable[[], None],
    ) -> Mailbox:
        """An actor's mailbox. `on_gone` is told once when the actor has stopped, `on_again` when somebody has started it again."""
        ...
