"""Under which subject a schema stands: Confluent's three strategies, or one by name.

"topic"          orders-value, orders-key
"record"         com.shop.Order
"topic-record"   orders-com.shop.Order
a function       (topic, part, record) → subject
"""

from __future__ import annotations

from collections.abc import Callable

from ...core.errors import DeclarationError
from ...core.settings import offer

SubjectName = str | Callable[[str, str, str], str]
STRATEGIES = ("topic", "record", "topic-record")


def named_subject(strategy: SubjectName, topic: str, part: str, record: str) -> str:
    """The subject of the values or keys (`part`) of a topic, whose schema describes a record of this name.

    >>> [named_subject(one, "orders", "value", "com.shop.Order") for one in STRATEGIES]
    ['orders-value', 'com.shop.Order', 'orders-com.shop.Order']
    """
    if callable(strategy):
        return strategy(topic, part, record)
    if strategy == "record":
        return record
    return f"{topic}-{record if strategy == 'topic-record' else part}"


def checked_strategy(strategy: SubjectName, verb: str, record: str) -> SubjectName:
    """Refuse a strategy that does not exist, or that needs the name of a record where there is none."""
    if callable(strategy):
        return strategy
    if strategy not in STRATEGIES:
        raise DeclarationError(
            f"{verb}(subject={strategy!r}): {offer(str(strategy), STRATEGIES)}",
            remedy=f"one of {', '.join(map(repr, STRATEGIES))}, or a function (topic, part, record)",
        )
    if strategy != "topic" and not record:
        raise DeclarationError(
            f"{verb}(subject={strategy!r}): the schema has no record, whose name would be the subject's",
            remedy="give it a schema with a name, or subject='topic'",
        )
    return strategy
