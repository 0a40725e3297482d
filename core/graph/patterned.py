"""What the fingerprint of a run tells of its inputs by pattern: which topics they read, and which have come since.

It needs no code of the job: who only looks at a job has none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

from ..names import Topics, of_kafka
from ..targets import ClosedTopics

INPUT = "input:"
"""Before the name of an input in a fingerprint."""
PATTERN = "pattern"
"""The field of its pattern there."""


def matching(pattern: str, found: Iterable[str], own: Collection[str], names: Topics) -> list[str]:
    """The topics among these that a pattern means: not those of headgate and of the brokers, and not the job's own in another way."""
    closed = ClosedTopics(names)
    wanted = (topic for topic in set(found).difference(own) if re.fullmatch(pattern, topic))
    return sorted(topic for topic in wanted if not (of_kafka(topic) or closed.closed(topic)))


def read_by_run(fingerprint: Mapping[str, str], patterns: Iterable[str]) -> list[str]:
    """The topics that a run reads by these patterns, of its fingerprint."""
    inputs = [part[len(INPUT) :] for part in fingerprint if part.startswith(INPUT)]
    return [topic for topic in inputs if any(re.fullmatch(one, topic) for one in patterns)]


def patterns_of_run(fingerprint: Mapping[str, str]) -> dict[str, str]:
    """Topic → the pattern by which a run began to read it, of its fingerprint.

    >>> patterns_of_run({"input:orders-de": '{"pattern": "orders-.*"}', "input:rates": "{}"})
    {'orders-de': 'orders-.*'}
    """
    fields = {part[len(INPUT) :]: _fields(text) for part, text in fingerprint.items() if part.startswith(INPUT)}
    return {topic: str(one[PATTERN]) for topic, one in fields.items() if PATTERN in one}


def unread_by_run(fingerprint: Mapping[str, str], found: Iterable[str], names: Topics) -> dict[str, list[str]]:
    """By pattern, which of these topics match and were not read when this run began, as far as its fingerprint tells, for who has no
    code."""
    fields = {part: _fields(text) for part, text in fingerprint.items()}
    own = {part[len(INPUT) :] for part in fields if part.startswith(INPUT)}
    own |= {str(topic) for one in fields.values() for topic in one.get("writes", ())}
    patterns = set(patterns_of_run(fingerprint).values())
    there = set(found)
    unread = {pattern: matching(pattern, there, own, names) for pattern in sorted(patterns)}
    return {pattern: topics for pattern, topics in unread.items() if topics}


def _fields(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:  # a setting, which is no map of fields
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
