"""Topics: created with the right settings before anything touches them, compared at each start, and trimmed.

What it decides: which differences between a topic and what the job needs of it refuse the start. Promises:

- Nothing here makes a broker create a topic by itself, and no setting of a topic that exists is ever changed (Kafka's only way
  in this client replaces all of them).
- A difference is reported with the command that removes it; `plan` prints the commands that create what is missing.
- Trimming deletes records of the partitions that it is told, and reports each partition's own error.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    InvalidConfigurationError,
    KafkaError,
    NoError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)

from ...core.errors import EnvironmentFault, HeadgateError
from ...core.names import StreamPartition
from ..records.target_rules import FOREVER_MS, Rules
from .connect import closed, retried, started
from .private import quiet_metadata
from .settings import ClientSettings

PROPERTIES = "client.properties"
ABOUT_PROPERTIES = (
    f"{PROPERTIES} stands for a file with the client settings that Kafka's tool needs (security.protocol=…, …)"
)
DAY_MS = 86_400_000
_CHECKED = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "message.timestamp.type",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    "delete.retention.ms",
)
_NOTHING: Mapping[str, str] = MappingProxyType({})

_ANY_TIME = {
    "message.timestamp.before.max.ms": str(FOREVER_MS),
    "message.timestamp.after.max.ms": str(FOREVER_MS),
}
"""Event times are what users write, and clocks differ: no topic of ours refuses anything because of them. (Kafka's default is an hour.)"""
COORDINATOR = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
HEARTBEAT = {"cleanup.policy": "delete", "retention.ms": "3600000", **_ANY_TIME}
TASK_LOG = {"cleanup.policy": "compact", "delete.retention.ms": str(7 * DAY_MS), **_ANY_TIME}
INTERMEDIATE = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", **_ANY_TIME}
DEAD_LETTERS = {"cleanup.policy": "delete", "retention.ms": str(14 * DAY_MS), **_ANY_TIME}


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic that the job needs. `config` is what it is created with; what of it matters is compared at each start."""

    name: str
    partitions: int
    """0: whoever makes it has to say."""
    config: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    replication: int = -1
    """-1: the brokers' default."""

    def command(self, client: ClientSettings | None = None) -> str:
        """The command that creates it, for teams that may not create topics from an application.

        >>> TopicSpec("t", 2, {"cleanup.policy": "compact"}).command(ClientSettings("b:1"))
        'kafka-topics.sh --bootstrap-server b:1 --create --topic t --partitions 2 --config cleanup.policy=compact'
        """
        words = [*tool("kafka-topics.sh", client), "--create", "--topic", self.name]
        words += ["--partitions", str(self.partitions or "N")]
        if self.replication > 0:
            words += ["--replication-factor", str(self.replication)]
        for name, value in sorted(self.config.items()):
            words += ["--config", f"{name}={value}"]
        return " ".join(map(shlex.quote, words))


@dataclass(frozen=True, slots=True)
class ExistingTopic:
    """A topic as it is."""

    name: str
    partitions: int
    config: Mapping[str, str]

    @property
    def limit(self) -> int:
        """The largest batch that it takes."""
        return int(self.config.get("max.message.bytes", 1_048_588))

    @property
    def rules(self) -> Rules | None:
        """What else it does not take."""
        return Rules.of(self.config)


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as the job needs it."""

    topic: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.what} (remedy: {self.remedy})"


def tool(name: str, client: ClientSettings | None = None) -> list[str]:
    """One of Kafka's own tools, and how it reaches the brokers. What this needs beside an address it takes from a file only.

    >>> tool("kafka-configs.sh", ClientSettings("b:1", {"security.protocol": "SSL"}))
    ['kafka-configs.sh', '--bootstrap-server', 'b:1', '--command-config', 'client.properties']
    """
    words = [name, "--bootstrap-server", "HOST:PORT" if client is None else client.bootstrap]
    return [*words, "--command-config", PROPERTIES] if client is not None and client.guarded else words


def differences(spec: TopicSpec, found: ExistingTopic | None, client: ClientSettings | None = None) -> list[Difference]:
    """How a topic differs from what is needed, with the remedy of each difference."""
    if found is None:
        return [Difference(spec.name, "it does not exist", spec.command(client))]
    out: list[Difference] = []
    if found.partitions != spec.partitions:
        out.append(
            Difference(
                spec.name,
                f"it has {found.partitions} partitions, but {spec.partitions} are needed",
                "the number is fixed for a job with state: create the topic again after `headgate reset`",
            )
        )
    for name in _CHECKED:
        wanted, is_ = spec.config.get(name), found.config.get(name)
        if wanted is not None and is_ is not None and _normal(wanted) != _normal(is_):
            words = [
                *tool("kafka-configs.sh", client),
                "--alter",
                "--entity-type",
                "topics",
                "--entity-name",
                spec.name,
            ]
            words += ["--add-config", f"{name}=[{wanted}]" if "," in wanted else f"{name}={wanted}"]
            out.append(
                Difference(spec.name, f"{name} is {is_}, but {wanted} is needed", " ".join(map(shlex.quote, words)))
            )
    return out


def _normal(value: str) -> str:
    return ",".join(sorted(part.strip() for part in value.split(",")))


class TopicsAdmin:
    """What a job does to topics. One admin client, opened by `start`."""

    def __init__(self, client: ClientSettings) -> None:
        self._client = client
        self._admin: AIOKafkaAdminClient | None = None

    async def start(self, *, deadline_s: float = 60.0) -> None:
        """Connect; tries again while no broker answers."""
        with quiet_metadata():
            self._admin = await started(
                lambda: AIOKafkaAdminClient(**self._client.admin()), "topics", deadline_s=deadline_s, close="close"
            )

    async def stop(self) -> None:
        """Close the connection."""
        admin, self._admin = self._admin, None
        if admin is not None:
            await closed(admin.close)

    def _open(self) -> AIOKafkaAdminClient:
        if self._admin is None:
            raise EnvironmentFault("topics are not started")
        return self._admin

    async def find(self, names: Iterable[str]) -> dict[str, ExistingTopic]:
        """The topics of these that exist, with their settings. Asking creates nothing."""
        admin, wanted = self._open(), sorted(set(names))
        if not wanted:
            return {}

        async def ask() -> list[dict[str, Any]]:
            with quiet_metadata():
                return await admin.describe_topics(wanted)

        widths: dict[str, int] = {}
        for topic in await retried(ask, "topics"):
            error = for_code(topic["error_code"])
            if error is NoError:
                widths[topic["topic"]] = len(topic["partitions"])
            elif error is TopicAuthorizationFailedError:
                raise EnvironmentFault(
                    f"no permission to see the topic {topic['topic']}", remedy="grant DESCRIBE on it, or create it"
                )
        configs = await self._configs(list(widths))
        return {name: ExistingTopic(name, width, configs.get(name, {})) for name, width in widths.items()}

    async def names(self) -> list[str]:
        """Every topic that may be seen, in order."""
        return sorted(await retried(self._open().list_topics, "topics"))

    async def _configs(self, names: list[str]) -> dict[str, dict[str, str]]:
        if not names:
            return {}
        admin = self._open()
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
        out: dict[str, dict[str, str]] = {}
        for response in await retried(lambda: admin.describe_configs(resources), "topic settings"):
            for code, _, _, name, entries in response.resources:
                if for_code(code) is NoError:
                    out[name] = {entry[0]: entry[1] for entry in entries if entry[1] is not None}
        return out

    async def ensure(
        self, specs: Iterable[TopicSpec], *, create: bool = True, deadline_s: float = 30.0
    ) -> dict[str, ExistingTopic]:
        """Create what is missing, then compare everything; raises one error that lists every difference with its remedy."""
        wanted = {spec.name: spec for spec in specs}
        found = await self.find(wanted)
        missing = [spec for name, spec in wanted.items() if name not in found]
        if missing and create:
            await self._create(missing)
            found = await self._appeared(wanted, deadline_s)
        wrong = [d for spec in wanted.values() for d in differences(spec, found.get(spec.name), self._client)]
        if wrong:
            raise EnvironmentFault(
                "topics are not as this job needs them:\n  " + "\n  ".join(f"{d.topic}: {d.what}" for d in wrong),
                remedy="\n  " + "\n  ".join(dict.fromkeys(d.remedy for d in wrong)) + self._client_file(),
            )
        return found

    async def _create(self, specs: list[TopicSpec]) -> None:
        admin = self._open()
        new = [_new_topic(spec) for spec in specs]
        response = await retried(lambda: admin.create_topics(new), "creating topics")
        by_name = {spec.name: spec for spec in specs}
        older: list[TopicSpec] = []
        for name, code, *detail in response.topic_errors:
            error = for_code(code)
            if error in (NoError, TopicAlreadyExistsError):
                continue
            if error is InvalidConfigurationError and not _ANY_TIME.keys().isdisjoint(by_name[name].config):
                older.append(_without_times(by_name[name]))
                continue
            why = next((text for text in detail if isinstance(text, str) and text), error.__name__)
            raise EnvironmentFault(
                f"the topic {name} cannot be created: {why}",
                remedy=f"have it created by somebody with the permission: {by_name[name].command(self._client)}\n"
                f"`headgate topics plan MODULE:app` prints the commands for all topics of the job{self._client_file()}",
            )
        if older:
            await self._create(older)

    def _client_file(self) -> str:
        return f"\n{ABOUT_PROPERTIES}" if self._client.guarded else ""

    async def _appeared(self, wanted: Mapping[str, TopicSpec], deadline_s: float) -> dict[str, ExistingTopic]:
        """A broker may say `created` a moment before it knows the topic."""
        give_up = asyncio.get_running_loop().time() + deadline_s
        while True:
            found = await self.find(wanted)
            if len(found) == len(wanted) or asyncio.get_running_loop().time() > give_up:
                return found
            await asyncio.sleep(0.05)

    async def trim(self, before: Mapping[StreamPartition, int]) -> dict[StreamPartition, int | HeadgateError]:
        """Delete the records below each offset: the partition's new log start, or why it could not be."""
        admin = self._open()
        asked = {TopicPartition(*at): RecordsToDelete(before_offset=offset) for at, offset in before.items()}
        if not asked:
            return {}
        try:
            done = await admin.delete_records(asked)
            return {StreamPartition(*tp): low for tp, low in done.items()}
        except KafkaError:
            # the client stops at the first bad partition and does not say which: one by one, then
            out: dict[StreamPartition, int | HeadgateError] = {}
            for tp, records in asked.items():
                at = StreamPartition(*tp)
                try:
                    out.update(
                        {StreamPartition(*k): low for k, low in (await admin.delete_records({tp: records})).items()}
                    )
                except KafkaError as error:
                    out[at] = _not_trimmed(at, error)
            return out


def _new_topic(spec: TopicSpec) -> NewTopic:
    """The client refuses the protocol's -1 ("the brokers' default") in its constructor, and passes it on."""
    new = NewTopic(spec.name, spec.partitions, 1, topic_configs=dict(spec.config))
    new.replication_factor = spec.replication
    return new


def _without_times(spec: TopicSpec) -> TopicSpec:
    """For brokers before Kafka 3.6, which do not know these settings, and take every time by default."""
    return replace(spec, config={name: value for name, value in spec.config.items() if name not in _ANY_TIME})


def _not_trimmed(at: StreamPartition, error: KafkaError) -> HeadgateError:
    if isinstance(error, TopicAuthorizationFailedError):
        return EnvironmentFault(f"{at} is not trimmed: no permission", remedy=f"grant DELETE on the topic {at.stream}")
    if isinstance(error, UnknownTopicOrPartitionError):
        return EnvironmentFault(f"{at} is not trimmed: it does not exist", remedy="")
    return EnvironmentFault(f"{at} is not trimmed: {error!r}", remedy="it is tried again at the next trimming")
