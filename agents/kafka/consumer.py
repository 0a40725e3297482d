"""The port's consumer over Kafka: an aiokafka consumer, assigned by hand, without a group, read committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from ...core.names import StreamPartition
from ..cancellation import Unasked, answered
from ..records.kafka.fetched import FetchAnswer, Taken
from .connect import closed, started
from .private import asked_again, client_of, observe, reads_no_more, set_fetch_bytes, set_long_poll, taker
from .settings import ClientSettings
from .topic_ids import ask_ids, topic_id

LOOKS_MS = 1000
"""How often the client looks for something to fetch where nothing has told it of any; by itself it does so five times a second, for each
consumer. Answers, seeks and resumed partitions wake it."""
GAP_S = 3.0
"""A partition that was not fetched for longer, for its buffer was full or this process stood still, may be another topic's since: a broker
answers by the name of a topic, and no error comes where the new one is as long. In a shorter gap that is noticed with the next metadata."""
METADATA_MS = 30_000
"""How often metadata is asked for without a cause, unless the client settings say otherwise."""


class KafkaConsumer:
    """Wraps one `AIOKafkaConsumer`. It never resets a position by itself."""

    def __init__(
        self,
        client: ClientSettings,
        answered: Callable[[StreamPartition, FetchAnswer], None],
        *,
        name: str,
        fetch_bytes: int,
        max_wait_ms: int,
        raw: bool,
    ) -> None:
        self._client = client
        self._answered = answered
        self._name = name
        self._options: dict[str, Any] = {
            "max_partition_fetch_bytes": fetch_bytes,
            "fetch_max_wait_ms": max_wait_ms,
            "consumer_timeout_ms": LOOKS_MS,
            "metadata_max_age_ms": METADATA_MS,
            "client_id": name,
        }
        self._raw = raw
        self._doubtful: set[str] = set()
        """Topics of which an answer was an error, or came behind a gap, since the metadata was read: they may have been re-created."""
        self._heard_s: dict[StreamPartition, float] = {}
        """When the last answer for each partition came."""
        self._looking: Any = None
        self._looks = 0
        self._withheld: list[Taken] = []
        """What was fetched of doubtful topics: one answer of each partition, which is not fetched meanwhile."""
        self._paused: set[StreamPartition] = set()
        """What the reader does not want to be fetched."""
        self._cleared: list[Taken] = []
        """What was fetched of them before the doubt was cleared."""
        self._take: Any = None
        self.consumer: AIOKafkaConsumer | None = None

    async def start(self, where: Callable[[], Mapping[StreamPartition, int]], *, deadline_s: float) -> None:
        """See `port`."""
        consumer = await started(self._make, f"intake of {self._name}", deadline_s=deadline_s)
        self.consumer = consumer
        observe(consumer, self._heard)
        self._take = taker(consumer, raw=self._raw)
        if positions := where():
            consumer.assign([TopicPartition(*at) for at in positions])
            for at, position in positions.items():  # no await after assign: aiokafka might reset the position
                consumer.seek(TopicPartition(*at), position)

    def _make(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            **{
                **self._options,
                **self._client.consumer(),
                "enable_auto_commit": False,
                "auto_offset_reset": "none",
                "isolation_level": "read_committed",
                "group_id": None,
            }
        )

    def _live(self) -> AIOKafkaConsumer:
        assert self.consumer is not None, "asked of a consumer that was not started"
        return self.consumer

    async def take(self) -> list[Taken]:
        """See `port`. After an error or a gap, records of its topic wait for new metadata, which tells whether they are another topic's."""
        with answered("reading"):
            fetched = await self._take()  # meanwhile the doubt may be cleared, which moves what is withheld
        found, cleared, self._cleared, self._withheld = [*self._withheld, *fetched], self._cleared, [], []
        if self._doubtful:
            self._look()
            self._withheld = [one for one in found if one.at.stream in self._doubtful and one.error is None]
            for one in self._withheld:  # fetches would go on until the doubt is cleared, as many as a broker can answer
                self._live().pause(TopicPartition(*one.at))
            found = [one for one in found if one.at.stream not in self._doubtful or one.error is not None]
        return [*cleared, *found]

    def _heard(self, at: StreamPartition, answer: FetchAnswer) -> None:
        gap_s = answer.at_s - self._heard_s.get(at, answer.at_s)
        self._heard_s[at] = answer.at_s
        if answer.error or (
            gap_s > GAP_S and at.stream not in self._doubtful
        ):  # a broker that is slow must not be doubted for ever
            self._doubtful.add(at.stream)
            self._looks = 0
            self._look()
        self._answered(at, answer)

    def _look(self) -> None:
        """Ask for metadata, unless that is under way."""
        if self._looking is None and self.consumer is not None:
            self._looking = asked_again(self.consumer)
            self._looking.add_done_callback(self._looked)

    def _looked(self, done: asyncio.Future[bool]) -> None:
        """Two answers clear the doubt: the first may have been asked for before the error."""
        self._looking = None
        if done.cancelled() or done.exception() is not None or not done.result():
            return  # the next `take` asks again
        self._looks += 1
        if self._looks < 2:
            self._look()
        else:
            self._doubtful.clear()
            self._cleared += (
                self._withheld
            )  # also if the next answer is doubtful again, as each is of a broker that takes its time
            withheld, self._withheld = self._withheld, []
            for one in withheld:
                self._fetch_on(one.at)

    def _fetch_on(self, at: StreamPartition) -> None:
        """Nothing of this partition is withheld any more: it is fetched, unless the reader has paused it."""
        if at not in self._paused and self.consumer is not None:
            self.consumer.resume(TopicPartition(*at))

    def seek(self, at: StreamPartition, offset: int) -> None:
        """See `port`. What was withheld may begin at this offset, too, and be of the topic before."""
        withheld = any(one.at == at for one in self._withheld)
        self._withheld, self._cleared = (
            [one for one in some if one.at != at] for some in (self._withheld, self._cleared)
        )
        self._live().seek(TopicPartition(*at), offset)
        if withheld:
            self._fetch_on(at)

    def pause(self, at: StreamPartition) -> None:
        """See `port`."""
        self._paused.add(at)
        self._live().pause(TopicPartition(*at))

    def resume(self, at: StreamPartition) -> None:
        """See `port`."""
        self._paused.discard(at)
        if all(one.at != at for one in self._withheld):
            self._live().resume(TopicPartition(*at))

    def long_poll(self, most_ms: int) -> None:
        """See `port`."""
        set_long_poll(self._live(), most_ms)

    def fetch_bytes(self, most: int) -> None:
        """See `port`."""
        set_fetch_bytes(self._live(), most)

    async def bounds(self, at: StreamPartition, *, within_s: float) -> tuple[int, int] | None:
        """See `port`. Asks for both, because the answer that rejects a position does not contain them."""
        consumer, tp = self._live(), TopicPartition(*at)
        try:
            async with asyncio.timeout(within_s):
                with answered("the bounds of a log"):
                    starts, ends = await asyncio.gather(consumer.beginning_offsets([tp]), consumer.end_offsets([tp]))
        except (KafkaError, TimeoutError, Unasked):
            return None
        return starts[tp], ends[tp]

    def knows(self, topic: str) -> bool:
        """See `port`."""
        return self._live().partitions_for_topic(topic) is not None

    def topic_id(self, topic: str) -> str:
        """See `port`."""
        return topic_id(client_of(self._live()), topic)

    async def topic_id_now(self, topic: str, *, within_s: float) -> str:
        """See `port`."""
        try:
            async with asyncio.timeout(within_s):
                with answered("the id of a topic"):
                    return (await ask_ids(client_of(self._live()), [topic])).get(topic, "")
        except (KafkaError, TimeoutError, Unasked):
            return ""

    @property
    def dead(self) -> bool:
        """See `port`."""
        return reads_no_more(self._live())

    async def stop(self) -> None:
        """See `port`."""
        consumer, self.consumer = self.consumer, None
        if consumer is not None:
            await closed(consumer.stop)
