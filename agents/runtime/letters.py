"""The letters that a task's actor takes: a chunk, or one step of something else. One at a time, and nothing else wakes it."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.task.protocol import RunStep
from ..records.chunks import Chunk


@dataclass(frozen=True, slots=True)
class ChunkLetter:
    """Run this chunk. `attempt` counts from 1."""

    chunk: Chunk
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class StepLetter:
    """Do one step of a watermark, an end, a drain, a timer, a batch."""

    step: RunStep
    attempt: int = 1


Letter = ChunkLetter | StepLetter
