"""The topics that a test driver writes to: as wide as the test says, with the limits that a worker would set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from ...core.graph.model import JobModel
from ..job.derive.declaration import Declared
from ..runtime.writing.buffer import DEFAULT_LIMIT
from ..runtime.writing.outbox import Outbox
from .logs import Logs

OWN_LIMIT = 8 << 20
"""The limit of the job's own topics (`job_topics.LARGE`)."""


class MemoryTargets:
    """See `runtime.Targets`."""

    def __init__(self, declared: Declared, logs: Logs, tasks: int) -> None:
        self._logs = logs
        graph, names = declared.graph, declared.topics
        self._names = names
        self._inputs = sorted(graph.input)
        self._own = {names.log, names.dead_letters, *graph.framed}
        self._all = sorted({*self._own, *graph.outputs})
        logs.widths[names.log] = tasks

    async def input_counts(self) -> dict[str, int]:
        """See `coordination.JobTopics`."""
        return {stream: self._logs.width(stream) for stream in self._inputs}

    async def more_counts(self) -> dict[str, int]:
        """See `coordination.JobTopics`. None comes."""
        return {}

    async def ensure_for(self, model: JobModel | None, tasks: int) -> None:
        """See `coordination.JobTopics`."""
        self._logs.widths.update({} if model is None else model.widths, **{self._names.log: tasks})

    async def width(self, topic: str) -> int:
        """See `runtime`."""
        return self._logs.width(topic)

    async def check_widths(self, widths: Mapping[str, int]) -> None:
        """See `runtime`."""

    def limit(self, topic: str) -> int | None:
        """See `runtime`."""
        return OWN_LIMIT if topic in self._own else DEFAULT_LIMIT

    def kept_ms(self, topic: str) -> int | None:
        """See `runtime`. Logs in memory keep everything."""

    async def learn(self, outbox: Outbox | None) -> None:
        """See `runtime`."""
        for topic in self._all:
            self._tell(outbox, topic)
        if outbox is not None:
            outbox.ask = partial(self._tell, outbox)

    async def learn_one(self, producers: Iterable[Outbox | None], topic: str) -> None:
        """See `runtime`."""
        for producer in producers:
            self._tell(producer, topic)

    def _tell(self, outbox: Outbox | None, topic: str) -> None:
        if outbox is not None:
            outbox.know(topic, self._logs.width(topic), self.limit(topic) or DEFAULT_LIMIT)
