"""Writes all rows of a table of a running job into files: `headgate state export`.

Each task's rows come from the worker that has it, of one commit of that task (`web.exporting`); the commits stand in `_export.json`. A task
that moves meanwhile is read again from its next owner, at a later commit. Rows go to the disk as they come, so memory is bounded by a page.

Promises: the directory appears when it is complete, or not at all. Nothing is stopped, and nothing but files is written. Parquet has one
schema for all tasks, declared by the table or made of the values (`ColumnKinds`), so rows are first kept as lines and converted at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import orjson

from ...core.errors import DataError, EnvironmentFault, HeadgateError, NotFound
from ...core.names import Topics, natural, task_directory
from ..kafka.settings import ClientSettings
from .exported_columns import ColumnKinds, to_parquet
from .queries import StateAway
from .reading import Follower, following

if TYPE_CHECKING:
    from aiohttp import ClientSession

IDLE_S = 60.0
"""How long a worker may send nothing."""
MANIFEST = "_export.json"
FORMATS = ("parquet", "jsonl")


@dataclass(frozen=True, slots=True)
class ExportedTask:
    """One task's part of an export."""

    task: str
    worker: str
    commit: int | None
    age_ms: int
    rows: int
    file: str


class TaskLeft(EnvironmentFault):
    """A task's rows did not come to their end."""


async def export(
    client: ClientSettings,
    topics: Topics,
    table: str,
    to: Path,
    *,
    form: str = "parquet",
    token: str = "",
    timeout_s: float = 60.0,
    report: Callable[[ExportedTask], object] = lambda _: None,
) -> dict[str, Any]:
    """Export a table into a new directory; returns what `_export.json` says. `timeout_s`: how long to wait for one task's worker."""
    import aiohttp

    draft, held = _drafted(to)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    limit = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=IDLE_S)
    kinds = ColumnKinds() if form == "parquet" else None
    try:
        async with (
            following(client, topics) as stream,
            aiohttp.ClientSession(headers=headers, timeout=limit) as session,
        ):
            found = await _all_tasks(_Source(stream, session, table, timeout_s), draft, kinds, report)
        if kinds is not None:
            for one in found:
                await asyncio.to_thread(to_parquet, draft / f"{one.file}.jsonl", draft / f"{one.file}.parquet", kinds)
                (draft / f"{one.file}.jsonl").unlink()
        document = {
            "job": str(topics.job),
            "table": table,
            "format": form,
            "rows": sum(one.rows for one in found),
            "tasks": [
                {
                    "task": one.task,
                    "worker": one.worker,
                    "commit": one.commit,
                    "age_ms": one.age_ms,
                    "rows": one.rows,
                    "file": f"{one.file}.{form}",
                }
                for one in found
            ],
        }
        (draft / MANIFEST).write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
        draft.rename(to)
        return document
    except OSError as error:
        raise EnvironmentFault(f"{to} cannot be written: {error.strerror or error}", remedy="see its disk") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        os.close(held)


def _drafted(to: Path) -> tuple[Path, int]:
    """The directory next to it that becomes it, and what holds its lock. What exports that were killed have left there is removed."""
    if to.exists():
        raise EnvironmentFault(f"{to} exists", remedy="export into a directory that does not exist yet")
    draft = to.parent / f".{to.name}.{uuid.uuid4().hex[:8]}"
    try:
        draft.mkdir(parents=True)
        held = os.open(draft, os.O_RDONLY)
    except OSError as error:
        raise EnvironmentFault(f"{to} cannot be made: {error.strerror}", remedy="choose another directory") from error
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove_left(to)
    return draft, held


def _remove_left(to: Path) -> None:
    """Remove the drafts of this directory whose exports do not run any more: no one holds their locks."""
    a_draft = re.compile(rf"\.{re.escape(to.name)}\.[0-9a-f]{{8}}").fullmatch
    for one in [one for one in to.parent.iterdir() if a_draft(one.name)]:
        with contextlib.suppress(OSError):  # another one is at it, or it is not ours
            found = os.open(one, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(one)
            finally:
                os.close(found)


@dataclass(slots=True)
class _Source:
    """Where rows come from."""

    stream: Follower
    session: ClientSession
    table: str
    timeout_s: float


async def _all_tasks(
    source: _Source, draft: Path, kinds: ColumnKinds | None, report: Callable[[ExportedTask], object]
) -> list[ExportedTask]:
    model = source.stream.job.model
    if model is None:
        raise NotFound("the job has never run", remedy="start it with `headgate run`")
    found: list[ExportedTask] = []
    for task in sorted(model.tasks, key=natural):
        give_up = time.monotonic() + source.timeout_s
        while True:
            try:
                one, everywhere = await _task(source, task, draft, kinds)
                break
            except (StateAway, TaskLeft) as error:
                if time.monotonic() >= give_up or getattr(error, "state", "") == "failed":
                    raise
            await source.stream.more()
            await source.stream.to_end()
        found.append(one)
        report(one)
        if everywhere:  # each task has all of it
            break
    return found


async def _task(source: _Source, task: str, draft: Path, kinds: ColumnKinds | None) -> tuple[ExportedTask, bool]:
    """One task's rows, into a file. Raises `StateAway` or `TaskLeft` if another owner may have them soon."""
    import aiohttp

    job = source.stream.job
    grant = job.held(task)
    worker = None if grant is None else job.recorded(grant.processor).get(grant.incarnation)
    if worker is None or not worker.url:
        why = "no worker has it" if worker is None else f"its worker {worker.processor} serves no pages"
        raise StateAway(
            f"{task} cannot be read now: {why}", remedy="`headgate status` shows the tasks and their workers", task=task
        )
    url = f"{worker.url}/api/export/{quote(source.table, safe='')}"
    meant = {"X-Headgate-Incarnation": worker.incarnation}
    file = task_directory(task)
    try:
        async with source.session.get(url, params={"task": task}, headers=meant) as response:
            if response.status != 200:
                raise _refused(task, worker.url, response.status, await response.read())
            lines = _Lines(kinds)
            with (draft / f"{file}.jsonl").open("wb") as out:
                async for some in response.content.iter_any():
                    await asyncio.to_thread(out.writelines, lines.taken(some))
    except (aiohttp.ClientError, TimeoutError, orjson.JSONDecodeError) as error:
        raise TaskLeft(
            f"{task}: its worker {worker.processor} at {worker.url} does not answer ({type(error).__name__})",
            remedy="`headgate status` shows whether it lives; its web.host must be one that can be reached from here",
        ) from error
    head = lines.complete(task)
    commit = {name: head[name] for name in ("task", "worker", "commit", "age_ms")}
    return ExportedTask(**commit, rows=lines.rows, file=file), bool(head["broadcast"])


class _Lines:
    """The lines of a task as they come: the first and the last are about the rows between them."""

    def __init__(self, kinds: ColumnKinds | None) -> None:
        self._kinds = kinds
        self._rest = b""
        self._head: dict[str, Any] | None = None
        self._last: dict[str, Any] = {}
        self.rows = 0

    def taken(self, some: bytes) -> list[bytes]:
        """The rows that are complete now, each a line."""
        *lines, self._rest = (self._rest + some).split(b"\n")
        found: list[bytes] = []
        for line in lines:
            document: dict[str, Any] = orjson.loads(line)
            if self._head is None:
                self._head = document
                if self._kinds is not None:
                    self._kinds.declare(document.get("fields"))
            elif "key" in document:
                if self._kinds is not None:
                    self._kinds.seen(document["key"], document["value"])
                found.append(line + b"\n")
            else:
                self._last = document
        self.rows += len(found)
        return found

    def complete(self, task: str) -> dict[str, Any]:
        """The first line. Raises `TaskLeft` if the last one has not come."""
        if self._head is None or self._last.get("rows") != self.rows:
            why = self._last.get("error", "the connection ended")
            raise TaskLeft(f"{task} has left its worker while it was read: {why}", remedy="export again")
        return self._head


def _refused(task: str, url: str, status: int, body: bytes) -> HeadgateError:
    if status == 401:
        return EnvironmentFault(
            f"the worker at {url} rejects the token", remedy="give its web.token with HEADGATE_WEB_TOKEN or --web-token"
        )
    try:
        document: dict[str, Any] = orjson.loads(body)
        what, remedy = document["error"], document.get("remedy", "")
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return StateAway(f"{task}: {url} answers {status}", remedy="check the address", task=task)
    if status == 503:
        return StateAway(what, remedy=remedy, task=task, state=document.get("state", "moving"))
    return {404: NotFound}.get(status, DataError)(what, remedy=remedy)
