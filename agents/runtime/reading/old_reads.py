"""Names the outputs that do not keep what is made of what a task begins to read.

A result has the event time of what it is made of, and Kafka deletes by a record's timestamp. So a job that reads old records into a topic
of a short retention loses its results soon after they were written. What it decides: records are old if Kafka's timestamps of them are
older than `retention.ms` of an output that they reach. Other event times (`timestamp=`, or `hg-time`) are not known before the records are
read: those of the first chunk of each partition stand for them, long before a window of them closes. What is written is compared and
counted anyway (`buffer`). Promises: the task does not wait for the answer, each output is named once, and a broker that gives none
changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ....core.graph.graph import Graph
from ....core.names import StreamPartition
from ...logger import Logger
from ...port.port import Offsets

log = Logger("headgate.task")


class OldReads:
    """Compares where the tasks of a process begin to read with how long their outputs keep records."""

    def __init__(
        self, graph: Graph, offsets: Offsets, kept_ms: Callable[[str], int | None], now_ms: Callable[[], int]
    ) -> None:
        """`kept_ms`: how long a topic keeps records; None if it deletes none by their age. `now_ms`: the broker's time."""
        self._offsets = offsets
        self._kept_ms = kept_ms
        self._now_ms = now_ms
        self.goes_by(graph)
        self._named: set[str] = set()
        self._begun: set[StreamPartition] = set()
        """The partitions of which a chunk was read."""

    def goes_by(self, graph: Graph) -> None:
        """The job has these inputs now."""
        self._reached = {
            one.stream: sorted(graph.made_of(one.stream))
            for one in graph.inputs
            if not (one.bootstrap or one.producers)
        }

    def asks(self, positions: Mapping[StreamPartition, int]) -> bool:
        """Whether there is anything to ask the broker for."""
        return any(self._outputs(at) for at in positions)

    async def look(self, positions: Mapping[StreamPartition, int]) -> None:
        """Name the outputs that do not keep what is made of the records behind these positions."""
        for at, position in positions.items():
            for topic, kept_ms in self._outputs(at).items():
                try:
                    old = await self._old(at, position, self._now_ms() - kept_ms)
                except Exception as error:  # noqa: BLE001 - nothing depends on it
                    log.info("the age of what is to be read is unknown", partition=str(at), why=str(error))
                    return
                if old and topic not in self._named:
                    self._named.add(topic)
                    log.warning(
                        "records to be read are older than an output keeps its records: Kafka deletes their results soon",
                        topic=topic,
                        retention_ms=kept_ms,
                        partition=str(at),
                        offset=position,
                        old_records=old,
                        remedy=f"raise retention.ms of {topic}, or set its message.timestamp.type to LogAppendTime",
                    )

    def read(self, at: StreamPartition, greatest: int | None) -> None:
        """A chunk was read, up to this event time. Of the first one of a partition, name the outputs that do not keep its results."""
        if at in self._begun or at.stream not in self._reached or greatest is None:
            return
        self._begun.add(at)
        for topic, kept_ms in self._outputs(at).items():
            if greatest < self._now_ms() - kept_ms:
                self._named.add(topic)
                log.warning(
                    "event times that are read are older than an output keeps its records: Kafka deletes their results soon",
                    topic=topic,
                    retention_ms=kept_ms,
                    partition=str(at),
                    event_time_ms=greatest,
                    remedy=f"raise retention.ms of {topic}, or set its message.timestamp.type to LogAppendTime",
                )

    def _outputs(self, at: StreamPartition) -> dict[str, int]:
        """The outputs of this input that delete by age and have not been named, and how long they keep records."""
        reached = (
            (topic, self._kept_ms(topic)) for topic in self._reached.get(at.stream, ()) if topic not in self._named
        )
        return {topic: kept_ms for topic, kept_ms in reached if kept_ms is not None}

    async def _old(self, at: StreamPartition, position: int, since_ms: int) -> int:
        """How many records from this position on were written before this time, at most."""
        first = await self._offsets.of_time(at, since_ms)
        upto = await self._offsets.end_of(at, committed=True) if first is None else first
        return max(0, upto - max(position, await self._offsets.start_of(at))) if position < upto else 0
