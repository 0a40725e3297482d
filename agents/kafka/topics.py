"""Topics: created with the right settings before anything uses them, compared at each start, and trimmed.

It decides which differences between a topic and what the job needs refuse the start. Promises:

- No broker creates a topic because of a request made here, and no setting of an existing topic is changed (the only call that this client
  has for it replaces all settings).
- A difference is reported with the command that removes it. `plan` prints the commands that create what is missing.
- Trimming deletes only records of the given partitions, and reports an error for each partition that failed.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    KafkaError,
    NoError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)

from ...core.errors import EnvironmentFault, HeadgateError, TopicsDiffer
from ...core.names import StreamPartition
from ..port.port import LOG_DELETE_RETENTION_MS
from ..records.kafka.target_rules import FOREVER_MS, Rules
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
_AT_MOST = ("segment.bytes", "min.cleanable.dirty.ratio", "max.compaction.lag.ms")
"""Settings that may also be smaller than needed: compaction then only comes sooner."""
_NOTHING: Mapping[str, str] = MappingProxyType({})

_ANY_TIME = {
    "message.timestamp.before.max.ms": str(FOREVER_MS),
    "message.timestamp.after.max.ms": str(FOREVER_MS),
}
"""Users choose the event times, and clocks differ, so headgate's topics reject no timestamp. (Kafka's default allows an hour.)"""
COORDINATOR = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
HEARTBEAT = {"cleanup.policy": "delete", "retention.ms": "3600000", **_ANY_TIME}
TASK_LOG = {
    "cleanup.policy": "compact",
    "delete.retention.ms": str(LOG_DELETE_RETENTION_MS),
    "segment.bytes": str(64 << 20),
    "min.cleanable.dirty.ratio": "0.3",
    "max.compaction.lag.ms": "3600000",
    **_ANY_TIME,
}
"""Restoring reads the whole log, and the active segment is never compacted: so segments are small, and compaction comes soon."""
INTERMEDIATE = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", **_ANY_TIME}
SHARED = {"cleanup.policy": "delete", "retention.bytes": "-1", "message.timestamp.type": "LogAppendTime"}
"""A stream for other jobs, which adds how long it is kept. Retention goes by the time of writing: event times may be old."""
DEAD_LETTERS = {"cleanup.policy": "delete", **_ANY_TIME}


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic that the job needs. It is created with `config` and `preferred`; the settings that matter are compared at each start."""

    name: str
    partitions: int
    """0: the caller that creates it must choose."""
    config: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    replication: int = -1
    """-1: the brokers' default."""
    grows: bool = False
    """It gets more partitions if it has too few."""
    any_width: bool = False
    """The number of partitions is only for its creation: one that someone else has made is right as it is."""
    shared: bool = False
    """Several jobs may write it, so the job must say how many partitions it has if that is not what it would choose."""
    preferred: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    """What a topic that exists may have otherwise. That is named, as is another number of replicas; it refuses no start."""

    def command(self, client: ClientSettings | None = None) -> str:
        """The command that creates it, for teams whose applications may not create topics.

        >>> TopicSpec("t", 2, {"cleanup.policy": "compact"}).command(ClientSettings("b:1"))
        'kafka-topics.sh --bootstrap-server b:1 --create --topic t --partitions 2 --config cleanup.policy=compact'
        """
        words = [*tool("kafka-topics.sh", client), "--create", "--topic", self.name]
        words += ["--partitions", str(self.partitions or "N")]
        if self.replication > 0:
            words += ["--replication-factor", str(self.replication)]
        for name, value in sorted({**self.config, **self.preferred}.items()):
            words += ["--config", f"{name}={value}"]
        return " ".join(map(shlex.quote, words))

    def wider(self, client: ClientSettings | None = None) -> str:
        """The command that gives it as many partitions as are needed.

        >>> TopicSpec("t", 4).wider(ClientSettings("b:1"))
        'kafka-topics.sh --bootstrap-server b:1 --alter --topic t --partitions 4'
        """
        words = ["--alter", "--topic", self.name, "--partitions", str(self.partitions)]
        return " ".join(map(shlex.quote, [*tool("kafka-topics.sh", client), *words]))


@dataclass(frozen=True, slots=True)
class ExistingTopic:
    """A topic as it exists."""

    name: str
    partitions: int
    config: Mapping[str, str]
    replicas: int = 0
    """Of the partition that has the fewest; 0 if that is not known."""

    @property
    def limit(self) -> int:
        """The size in bytes of the largest batch that the topic accepts."""
        return int(self.config.get("max.message.bytes", 1_048_588))

    @property
    def rules(self) -> Rules | None:
        """The topic's other rules for records."""
        return Rules.of(self.config)


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between a topic and what the job needs."""

    topic: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.what} (remedy: {self.remedy})"


def tool(name: str, client: ClientSettings | None = None) -> list[str]:
    """The command line of one of Kafka's tools, with how it reaches the brokers. Kafka's tools take client settings only from a file.

    >>> tool("kafka-configs.sh", ClientSettings("b:1", {"security.protocol": "SSL"}))
    ['kafka-configs.sh', '--bootstrap-server', 'b:1', '--command-config', 'client.properties']
    """
    words = [name, "--bootstrap-server", "HOST:PORT" if client is None else client.bootstrap]
    return [*words, "--command-config", PROPERTIES] if client is not None and client.guarded else words


def differences(spec: TopicSpec, found: ExistingTopic | None, client: ClientSettings | None = None) -> list[Difference]:
    """The differences between an existing topic and what is needed, each with its remedy."""
    if found is None:
        return [Difference(spec.name, "it does not exist", spec.command(client))]
    out: list[Difference] = []
    if found.partitions != spec.partitions and not spec.any_width:
        remedy = "the number is fixed for a job with state: create the topic again after `headgate reset`"
        if spec.grows and found.partitions < spec.partitions:
            remedy = spec.wider(client)
        elif spec.shared:
            remedy = f'declare it so: .share("{spec.name}", partitions={found.partitions})'
        out.append(
            Difference(spec.name, f"it has {found.partitions} partitions, but {spec.partitions} are needed", remedy)
        )
    for name in (*_CHECKED, *_AT_MOST):
        wanted, is_ = spec.config.get(name), found.config.get(name)
        if wanted is None or is_ is None:
            continue
        if float(is_) > float(wanted) if name in _AT_MOST else _normal(wanted) != _normal(is_):
            needed = f"at most {wanted}" if name in _AT_MOST else wanted
            what = f"{name} is {is_}, but {needed} is needed"
            out.append(Difference(spec.name, what, _alter(spec.name, name, wanted, client)))
    return out


def departures(spec: TopicSpec, found: ExistingTopic, client: ClientSettings | None = None) -> list[Difference]:
    """What of an existing topic is not as the job's settings would have it, each with how to change it. It is used all the same.

    >>> [str(one) for one in departures(TopicSpec("t", 1, replication=3), ExistingTopic("t", 1, {}, replicas=1))]
    ['t: it has 1 replica, and the settings say 3 (remedy: kafka-reassign-partitions.sh gives its partitions other replicas)']
    """
    out: list[Difference] = []
    if 0 < spec.replication != found.replicas > 0:
        what = f"it has {found.replicas} replica{'s' * (found.replicas > 1)}, and the settings say {spec.replication}"
        out.append(Difference(spec.name, what, "kafka-reassign-partitions.sh gives its partitions other replicas"))
    for name, wanted in sorted(spec.preferred.items()):
        is_ = found.config.get(name)
        if is_ is not None and _normal(is_) != _normal(wanted):
            what = f"{name} is {is_}, and the settings say {wanted}"
            out.append(Difference(spec.name, what, _alter(spec.name, name, wanted, client)))
    return out


def _alter(topic: str, name: str, value: str, client: ClientSettings | None) -> str:
    """The command that changes a setting of a topic."""
    given = f"{name}=[{value}]" if "," in value else f"{name}={value}"
    words = [*tool("kafka-configs.sh", client), "--alter", "--entity-type", "topics", "--entity-name", topic]
    return " ".join(map(shlex.quote, [*words, "--add-config", given]))


class Compared(NamedTuple):
    """What is to be done so that topics are as a job needs them."""

    missing: list[TopicSpec]
    """They are created."""
    narrow: list[TopicSpec]
    """They are given more partitions."""
    wrong: list[Difference]
    """What the job does not change by itself: the start is refused."""

    def must_fit(self, client: ClientSettings) -> None:
        """Raise every difference, each with its remedy, in one message."""
        if self.wrong:
            raise TopicsDiffer(
                "topics are not as this job needs them:\n  " + "\n  ".join(f"{d.topic}: {d.what}" for d in self.wrong),
                remedy="\n  " + "\n  ".join(dict.fromkeys(d.remedy for d in self.wrong)) + _client_file(client),
            )


def compared(
    specs: Iterable[TopicSpec], found: Mapping[str, ExistingTopic], client: ClientSettings | None = None
) -> Compared:
    """Compare topics with what is needed, before anything is created: for the worker that creates them, and for a plan."""
    there = [(spec, found[spec.name]) for spec in specs if spec.name in found]
    narrow = [spec for spec, one in there if spec.grows and one.partitions < spec.partitions]
    wider = [(replace(spec, partitions=one.partitions) if spec in narrow else spec, one) for spec, one in there]
    wrong = [d for spec, one in wider for d in differences(spec, one, client)]
    return Compared([spec for spec in specs if spec.name not in found], narrow, wrong)


def _client_file(client: ClientSettings) -> str:
    return f"\n{ABOUT_PROPERTIES}" if client.guarded else ""


def _normal(value: str) -> str:
    return ",".join(sorted(part.strip() for part in value.split(",")))


class TopicsAdmin:
    """The operations of a job on topics. `start` opens one admin client."""

    def __init__(self, client: ClientSettings) -> None:
        self._client = client
        self._admin: AIOKafkaAdminClient | None = None

    async def start(self, *, deadline_s: float = 60.0) -> None:
        """Connect. Retries while no broker answers."""
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
            raise EnvironmentFault("the topic client is not started")
        return self._admin

    async def find(self, names: Iterable[str]) -> dict[str, ExistingTopic]:
        """Those of these topics that exist, with their settings. Nothing is created."""
        admin, wanted = self._open(), sorted(set(names))
        if not wanted:
            return {}

        async def ask() -> list[dict[str, Any]]:
            with quiet_metadata():
                return await admin.describe_topics(wanted)

        widths: dict[str, int] = {}
        replicas: dict[str, int] = {}
        for topic in await retried(ask, "topics"):
            error = for_code(topic["error_code"])
            if error is NoError:
                widths[topic["topic"]] = len(topic["partitions"])
                replicas[topic["topic"]] = min((len(one["replicas"]) for one in topic["partitions"]), default=0)
            elif error is TopicAuthorizationFailedError:
                raise EnvironmentFault(
                    f"no permission to see the topic {topic['topic']}", remedy="grant DESCRIBE on it, or create it"
                )
        configs = await self._configs(list(widths))
        return {
            name: ExistingTopic(name, width, configs.get(name, {}), replicas[name]) for name, width in widths.items()
        }

    async def names(self) -> list[str]:
        """The names of all visible topics, sorted."""
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
        """Create what is missing, widen what grows, then compare all topics. One error lists every difference with its remedy."""
        wanted = {spec.name: spec for spec in specs}
        found = await self.find(wanted)
        first = compared(list(wanted.values()), found, self._client)
        if create and first.missing:
            await self._create(first.missing)
        if create:
            for spec in first.narrow:
                await self._widen(spec)
        if create and (first.missing or first.narrow):
            found = await self._appeared(wanted, deadline_s)
        wrong = [d for spec in wanted.values() for d in differences(spec, found.get(spec.name), self._client)]
        Compared([], [], wrong).must_fit(self._client)
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
            if error is InvalidReplicationFactorError and by_name[name].replication > 0:
                raise EnvironmentFault(
                    f"the topic {name} cannot be created: {why}",
                    remedy="set topic.replicas to at most the number of brokers, or to 0 for the brokers' default",
                )
            if error is InvalidTopicError:
                raise EnvironmentFault(f"the topic {name} cannot be created: {why}", remedy="give it another name")
            raise EnvironmentFault(
                f"the topic {name} cannot be created: {why}",
                remedy=f"ask someone with the permission to create it: {by_name[name].command(self._client)}\n"
                f"`headgate topics plan MODULE:app` prints the commands for all topics of the job{_client_file(self._client)}",
            )
        if older:
            await self._create(older)

    async def _widen(self, spec: TopicSpec) -> None:
        admin, new = self._open(), {spec.name: NewPartitions(spec.partitions)}
        try:
            await retried(lambda: admin.create_partitions(new), "adding partitions")
        except InvalidPartitionsError:
            pass  # another worker was faster; the comparison tells
        except KafkaError as error:
            raise EnvironmentFault(
                f"the topic {spec.name} cannot be given {spec.partitions} partitions: {error}",
                remedy=f"ask someone with the permission to do it: {spec.wider(self._client)}{_client_file(self._client)}",
            ) from error

    async def _appeared(self, wanted: Mapping[str, TopicSpec], deadline_s: float) -> dict[str, ExistingTopic]:
        """Wait until the topics are visible: a broker may confirm a creation a moment before it knows the topic."""
        give_up = asyncio.get_running_loop().time() + deadline_s
        while True:
            found = await self.find(wanted)
            there = [s for s in wanted.values() if s.name in found]
            wide = all(found[s.name].partitions >= s.partitions for s in there if s.grows)
            if (len(there) == len(wanted) and wide) or asyncio.get_running_loop().time() > give_up:
                return found
            await asyncio.sleep(0.05)

    async def trim(self, before: Mapping[StreamPartition, int]) -> dict[StreamPartition, int | HeadgateError]:
        """Delete the records below each offset. Returns each partition's new log start, or the error."""
        admin = self._open()
        asked = {TopicPartition(*at): RecordsToDelete(before_offset=offset) for at, offset in before.items()}
        if not asked:
            return {}
        try:
            done = await admin.delete_records(asked)
            return {StreamPartition(*tp): low for tp, low in done.items()}
        except KafkaError:
            # the client stops at the first failing partition and does not name it: retry one by one
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

    async def delete(self, names: Iterable[str]) -> None:
        """Delete topics, one after the other. One that does not exist is deleted already."""
        admin = self._open()
        for topic in names:
            answer: Any = await admin.delete_topics([topic])
            for name, code, *_ in answer.topic_error_codes:
                error = for_code(code)
                if error not in (NoError, UnknownTopicOrPartitionError):
                    raise EnvironmentFault(
                        f"the topic {name} cannot be deleted: {error.__name__}",
                        remedy="grant the permission DELETE on it; `delete.topic.enable` of the brokers must be true",
                    )


def _new_topic(spec: TopicSpec) -> NewTopic:
    """A topic with the protocol's -1 ("the brokers' default") as replication factor. The client's constructor refuses it, but sends it if
    set later.
    """
    new = NewTopic(spec.name, spec.partitions, 1, topic_configs={**spec.config, **spec.preferred})
    new.replication_factor = spec.replication
    return new


def _without_times(spec: TopicSpec) -> TopicSpec:
    """The topic without the timestamp limits. Brokers before 3.6 do not know these settings, and accept every timestamp."""
    return replace(spec, config={name: value for name, value in spec.config.items() if name not in _ANY_TIME})


def _not_trimmed(at: StreamPartition, error: KafkaError) -> HeadgateError:
    if isinstance(error, TopicAuthorizationFailedError):
        return EnvironmentFault(f"{at} is not trimmed: no permission", remedy=f"grant DELETE on the topic {at.stream}")
    if isinstance(error, UnknownTopicOrPartitionError):
        return EnvironmentFault(f"{at} is not trimmed: it does not exist", remedy="")
    return EnvironmentFault(f"{at} is not trimmed: {error!r}", remedy="it is tried again at the next trimming")
