"""The ids of topics, which aiokafka does not ask for: by them a topic that was deleted and re-created is distinguished from the one before.

Every metadata request of a client carries them, so they cost no request of their own. They are written as Kafka's tools write them. Brokers
before version 2.8, and some that only speak Kafka's protocol, have none: such an id is empty, unknown, and equals any. That is logged
once.

Promises: ids and leaders of a client are of one and the same answer, so nothing is fetched from a topic whose id is older than its leader.
A topic that does not exist has no id.
"""

from __future__ import annotations

import base64
from collections.abc import Collection
from io import BytesIO
from typing import Any, cast

from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.types import Boolean, CompactArray, CompactString, Int16, Int32, Schema, TaggedFields

from ..logger import Logger
from .contract import UPDATE

log = Logger("headgate.topics")


class _Id:
    """A topic id on the wire: sixteen bytes. As text it is Kafka's own form; the id of all zeros is none."""

    @classmethod
    def encode(cls, value: str) -> bytes:
        return base64.urlsafe_b64decode(value + "==") if value else bytes(16)

    @classmethod
    def decode(cls, data: BytesIO) -> str:
        raw = data.read(16)
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode() if any(raw) else ""

    @classmethod
    def repr(cls, value: str) -> str:
        return repr(value)


_TEXT: Any = CompactString("utf-8")
_IDENTITY = cast("Any", _Id)
_NUMBERS: Any = CompactArray(Int32)
_TAGS = ("tags", TaggedFields)
_Response: Any = Response


class _Answer(_Response):
    """Version 10, in the shape of the versions that aiokafka reads, with the ids alongside."""

    API_KEY = 3
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", CompactArray(("node_id", Int32), ("host", _TEXT), ("port", Int32), ("rack", _TEXT), _TAGS)),
        ("cluster_id", _TEXT),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("topic", _TEXT),
                ("topic_id", _IDENTITY),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", _NUMBERS),
                        ("isr", _NUMBERS),
                        ("offline_replicas", _NUMBERS),
                        _TAGS,
                    ),
                ),
                ("operations", Int32),
                _TAGS,
            ),
        ),
        ("operations", Int32),
        _TAGS,
    )

    def __init__(self, *fields: Any) -> None:
        super().__init__(*fields)
        found: Any = self
        self.headgate_ids = {topic: identity for error, topic, identity, *_ in found.topics if not error}
        self.headgate_operations = {topic: fields[-2] for error, topic, *fields in found.topics if not error}
        self.brokers = [tuple(broker[:4]) for broker in found.brokers]
        self.topics = [
            (error, topic, internal, [(wrong, at, leader, *rest[:3]) for wrong, at, leader, _, *rest in partitions])
            for error, topic, _, internal, partitions, *_ in found.topics
        ]


class _Asked(RequestStruct):
    FLEXIBLE_VERSION = True
    API_KEY = 3
    API_VERSION = 10
    RESPONSE_TYPE = _Answer
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", _IDENTITY), ("topic", _TEXT), _TAGS)),
        ("allow_auto_topic_creation", Boolean),
        ("cluster_operations", Boolean),
        ("topic_operations", Boolean),
        _TAGS,
    )


class IdentifyingRequest(MetadataRequest):
    """aiokafka's request, which also asks for ids where the broker has them."""

    asks_operations = False
    """Whether it asks what this user may do with the topics."""

    def build(self, request_struct_class: Any) -> Any:
        """See `MetadataRequest`."""
        if request_struct_class is not _Asked:
            return super().build(request_struct_class)
        any_self: Any = self
        named = None if any_self._topics is None else [("", topic, {}) for topic in any_self._topics]
        return _Asked(named, any_self._allow_auto_topic_creation is not False, False, self.asks_operations, {})


_request: Any = IdentifyingRequest
_request._CLASSES = (*cast("Any", MetadataRequest)._CLASSES, _Asked)
_logged = False


def _update_metadata(self: Any, metadata: Any) -> Any:
    self.headgate_ids = getattr(metadata, "headgate_ids", {})
    return UPDATE(self, metadata)


ClusterMetadata.update_metadata = _update_metadata


def _tell_none(there: bool, identity: str) -> None:
    """Log, once, that a topic exists and has no id. Only who asks for an id knows that: other requests of aiokafka's bring none."""
    global _logged
    if there and not identity and not _logged:
        _logged = True
        log.info(
            "the brokers return no topic ids: a topic that is deleted and re-created cannot be recognized by its id"
        )


def topic_id(client: AIOKafkaClient, topic: str) -> str:
    """The id of the topic according to the client's latest metadata; empty if it is not known."""
    cluster: Any = client.cluster
    found: str = getattr(cluster, "headgate_ids", {}).get(topic, "")
    _tell_none(topic in cluster.topics(), found)
    return found


async def ask_ids(client: AIOKafkaClient, topics: Collection[str]) -> dict[str, str]:
    """The ids of these topics as of now, of those that exist. Creates nothing."""
    answer: Any = await client.send(client.get_random_node(), IdentifyingRequest(sorted(topics), False))
    ids: dict[str, str] = getattr(answer, "headgate_ids", {})
    for error, topic, *_ in answer.topics:
        _tell_none(not error, ids.get(topic, ""))
    return ids


class _OperationsRequest(IdentifyingRequest):
    asks_operations = True


_operations: Any = _OperationsRequest
_operations._CLASSES = _request._CLASSES  # aiokafka gives each subclass those of the first one


async def ask_operations(
    client: AIOKafkaClient, topics: Collection[str]
) -> tuple[dict[str, int] | None, dict[str, int]]:
    """What this user may do with these topics, as bits by Kafka's codes of operations, and the errors of the others. The first is None if
    the brokers do not say it.
    """
    answer: Any = await client.send(client.get_random_node(), _OperationsRequest(sorted(topics), False))
    return getattr(answer, "headgate_operations", None), {topic: error for error, topic, *_ in answer.topics if error}
