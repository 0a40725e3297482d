"""The letters that a task's actor receives: a chunk, or one step of other work. It runs one at a time, and nothing else wakes it."""

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
    """Run one step of a watermark, an end of stream, a drain, a timer or a batch."""

    step: RunStep
    attempt: int = 1


Letter = ChunkLetter | StepLetter
