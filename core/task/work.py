"""What the actor of a task works on: a chunk, or one step of a letter, and how often it has failed.

There is at most one of the two. If a step's letter needs another step, the step stays until its commit is durable. Failed work stays until
it is retried or dropped.
"""

from __future__ import annotations

from ..machine import Now
from ..names import StreamPartition
from .plan import TaskSettings
from .protocol import ChunkTaken, DropChunk, RunStep, TaskInstruction, TaskNote, WorkFailed


class Work:
    """The current work."""

    def __init__(self) -> None:
        self.chunk: ChunkTaken | None = None
        self.step: RunStep | None = None
        self.step_made: int | None = None
        """The step is complete, and its letter needs another one, which runs when this change is durable."""
        self.attempt = 0
        """How often the work has failed."""
        self.retry_s: float | None = None
        """When the failed work is retried."""

    @property
    def idle(self) -> bool:
        """Whether there is no work."""
        return self.chunk is None and self.step is None

    @property
    def awaited(self) -> bool:
        """Whether the actor owes an answer: it has work that waits neither for a retry nor for the commit of a step."""
        return not self.idle and self.retry_s is None and self.step_made is None

    def reads(self, at: StreamPartition) -> bool:
        """Whether the actor works on a chunk of this partition."""
        return self.chunk is not None and self.chunk.at == at

    def upto(self, at: StreamPartition, position: int) -> int:
        """The position of the partition once the current chunk is complete."""
        return self.chunk.upto if self.chunk is not None and self.chunk.at == at else position

    def succeeded(self) -> None:
        """Note that the chunk or the step is complete: the next failure counts as the first."""
        self.attempt, self.retry_s = 0, None

    def failed(self, event: WorkFailed, settings: TaskSettings, now: Now) -> TaskNote | None:
        """Plan the next attempt; None if there is none, and the task fails."""
        self.attempt += 1
        if event.final or self.attempt > settings.error_retries:
            return None
        wait = min(settings.error_backoff_s * 2 ** (self.attempt - 1), settings.error_backoff_max_s)
        self.retry_s = now.mono + wait
        return TaskNote("retry", f"attempt {self.attempt} in {wait:g} s: {event.why}", "warning")

    def drop(self) -> None:
        """Drop the work."""
        self.chunk = self.step = self.retry_s = self.step_made = None

    def stop(self, why: str) -> list[TaskInstruction]:
        """Make the actor drop its work. Work that only waits is dropped here, because the actor would not answer."""
        if not self.awaited:
            self.drop()
        return [] if self.idle else [DropChunk(why)]
