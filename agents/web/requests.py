"""Reads requests about tables: what they ask, and of whom. Promise: what is wrong with one is a `DataError` with an example."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, cast

import orjson

from ...core.errors import DataError, HeadgateError
from ...core.settings import duration_ms


class AskedOf(NamedTuple):
    """What a request says of whom to ask."""

    tasks: Collection[str] = ()
    """The tasks that it names, if it names any."""
    stale_ms: int | None = None
    """How old the copy of a standby may be; None: only owners answer."""
    relayed: bool = False
    """Another worker has sent it here."""


class PageOf(NamedTuple):
    """Which rows a page has: of one task, those whose keys begin so, behind a key."""

    task: str
    prefix: bytes
    after: bytes | None
    limit: int


def as_request(request: Any) -> bytes:
    """A request as its body."""
    return orjson.dumps(request, option=orjson.OPT_NON_STR_KEYS)


def request_of(body: bytes) -> dict[str, Any]:
    """A body that asks for keys, or for a page of rows."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise DataError(f"the request is no JSON: {error}", remedy='like {"keys": ["ann", "ben"]}') from error
    if not isinstance(found, dict) or ("keys" in found) == ("scan" in found):
        raise DataError('the request has neither "keys" nor "scan", or both', remedy='like {"keys": ["ann", "ben"]}')
    return cast("dict[str, Any]", found)


def asked_of(request: Mapping[str, Any]) -> AskedOf:
    """Whom a request asks."""
    if "stale" not in request:
        return AskedOf(_tasks(request))
    try:
        return AskedOf(_tasks(request), duration_ms(request["stale"]))
    except (HeadgateError, TypeError, ValueError) as error:
        raise DataError(
            f'"stale" is {request["stale"]!r:.80}, which is no duration', remedy='like "stale": "30s"'
        ) from error


def _tasks(request: Mapping[str, Any]) -> list[str]:
    """The tasks that a request names."""
    named = request.get("tasks", [request["task"]] if request.get("task") else [])
    if not isinstance(named, list) or not all(isinstance(one, str) for one in cast("list[Any]", named)):
        raise DataError('"tasks" is no list of names', remedy='like {"tasks": ["Partition 0"]}')
    return cast("list[str]", named)


def position_of(after: Any, every: Sequence[str]) -> tuple[str, bytes | None]:
    """The task of the next page, and the key behind which it begins."""
    if after is None:
        return every[0], None
    task, _, key = str(after).rpartition("|")
    try:
        if task not in every:
            raise ValueError(f"no task {task!r}")
        return task, bytes.fromhex(key) if key else None
    except ValueError as error:
        raise DataError(
            f'"after" is {after!r:.80}, which no page has given', remedy='give what stood in "next"'
        ) from error


def prefix_of(text: str) -> Any:
    """A prefix in a path: a list in JSON is that of a tuple, all else is text."""
    if text.startswith("["):
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            return text
    return text
