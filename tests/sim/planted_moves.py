"""Planted bugs of moves: of what is prepared, and taken over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headgate.core.task import protocol as facts

from .plant import Plant


def _follower_reads_what_is_not_committed() -> list[tuple[Any, str, Any]]:
    from .port import SimConsumer

    def read(self: SimConsumer, log: Any, position: int, limit: int) -> Any:
        return log.read(position, limit, not self.name.startswith("follow-"))

    return [(SimConsumer, "read", read)]


def _difference_is_not_replayed() -> list[tuple[Any, str, Any]]:
    from headgate.agents.runtime.store.state import TaskStore

    original = TaskStore.restore

    async def restore(self: TaskStore, order: facts.Restore, tell: Any) -> Any:
        return await original(self, replace(order, start=order.end) if self.prepared else order, tell)

    return [(TaskStore, "restore", restore)]


def _preparer_begins_without_a_grant() -> list[tuple[Any, str, Any]]:
    from headgate.core.coordination.leader import handover
    from headgate.core.coordination.leader.grants import _grant

    original = handover._write

    def write(draft: Any, model: Any, wanted: Any, over: Any) -> None:
        original(draft, model, wanted, over)
        for task, to in wanted.items():
            if draft.state.held(task) is not None:
                _grant(draft, task, draft.workers()[to])

    return [(handover, "_write", write)]


def _stop_forgets_what_is_prepared() -> list[tuple[Any, str, Any]]:
    from headgate.core.coordination.leader import handover

    return [(handover, "_put_off", lambda run, model: {})]


MOVES = (
    Plant(
        "follower-uncommitted",
        "whoever follows the log of a task takes records of its log that are not committed",
        _follower_reads_what_is_not_committed,
        ("standby", "hosts", "tables"),
    ),
    Plant(
        "difference-left-out",
        "a task that takes over a store that was prepared does not replay what it lacks",
        _difference_is_not_replayed,
        ("follows", "hosts", "tables"),
    ),
    Plant(
        "granted-when-prepared",
        "a task that is prepared is granted before its owner has released it",
        _preparer_begins_without_a_grant,
        ("follows", "hosts", "tables"),
    ),
    Plant(
        "stop-forgets-moves",
        "a stop ends what is prepared, and the run goes on with its tasks where they were",
        _stop_forgets_what_is_prepared,
        ("follows", "hosts", "tables", "stop"),
    ),
)
