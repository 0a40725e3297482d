"""Answers questions about tables over HTTP, whichever worker is asked.

    GET  /api/query                       the tables that can be asked
    GET  /api/query/{table}/{key}         one key, which stands as text
    GET  /api/query/{table}?prefix=&limit=&after=      a page of rows, task by task
    POST /api/query/{table}               {"keys": […]} or {"scan": {"prefix": …, "limit": …, "after": …}}

A worker reads the tasks that it runs, and asks the workers of the others. It relays instead of redirecting: the keys of a batch are with
several workers, a table whose keys anybody placed is asked of all, the other workers may not be reachable for who asks, and a client gives
its token to no second address. A request that was relayed once is not relayed again: it names the incarnation that it is meant for, and
whoever else gets it refuses.

`stale=30s` allows an older answer: where the owner of a task cannot answer, its standby does, from its copy, if that is no older.

Promises: values are committed ones, and the answer says of which commit of which task. No row (`"found": false`, or null in a batch) means
that every task that may have the key has said so. What is not known is an error with its remedy: 400 what cannot be asked, 404 no such
table, 409 a key that several tasks have, 503 a task that no worker can answer for now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import quote

import msgspec
import orjson

from ...core.errors import DataError, HeadgateError, NotFound, StoreUnreadable
from ..queries.committed import CommitMark, CommittedPart, written
from ..queries.json_keys import decoded, encoded, encoded_text, prefix_bytes
from ..queries.parts import QueryParts, SeveralTasks, TaskOwner, TaskUnserved, spread
from ..queries.queryable import Queryable
from ..queries.quick_rows import QuickRows
from .requests import AskedOf, PageOf, as_request, asked_of, position_of, prefix_of, request_of

if TYPE_CHECKING:
    from aiohttp import ClientSession

    from ..worker.worker import Worker

MOST_KEYS = 1_000
"""The most keys of one request, which is answered in one turn of the worker's loop."""
MOST_ROWS = 1_000
RELAY_S = 2.0
"""How long another worker may take. The owner and then the standby of a task are asked within the time that a client waits for one worker,
which is 5 s for `hg.query`."""
RELAYS = 100
"""The most connections to one other worker: those that wait for one that has stopped do not take them from the others."""
MEANT_FOR = "X-Headgate-Incarnation"
"""The header of a relayed request: the incarnation that is asked."""
OK, WRONG, MISSING, AMBIGUOUS, AWAY = 200, 400, 404, 409, 503


class QueryAnswer(NamedTuple):
    """Status and body of an answer."""

    status: int
    body: bytes


@dataclass(slots=True)
class FoundKeys:
    """What is known of the keys of one request so far."""

    values: list[Any]
    at: list[int | None]
    """By key: the number of the commit that its value is of."""
    commits: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def add(self, numbers: Sequence[int], values: Sequence[Any], commit: dict[str, Any], table: Queryable) -> None:
        """The answer of one task, for the keys with these numbers."""
        place = len(self.commits)
        self.commits.append(commit)
        own, at = self.values, self.at
        for number, value in zip(numbers, values, strict=True):
            if value is None:
                continue
            if at[number] is not None:
                first = self.commits[cast("int", at[number])]["task"]
                raise SeveralTasks(table.name, first, commit["task"], "name the one that is meant with task=")
            own[number], at[number] = value, place


class RelayedKeys(msgspec.Struct, gc=False):
    """The answer of another worker to a batch; its values stay JSON."""

    values: list[msgspec.Raw]
    at: list[int | None]
    commits: list[dict[str, Any]]


class RelayedRows(msgspec.Struct, gc=False):
    """The same for a page of rows."""

    rows: list[tuple[Any, msgspec.Raw]]
    commit: dict[str, Any]
    next: str | None


_READ_KEYS = msgspec.json.Decoder(RelayedKeys).decode
_READ_ROWS = msgspec.json.Decoder(RelayedRows).decode


class Queries:
    """Answers for one worker. `token`: what it says to other workers of the job. `heard_ms`: when the coordinator stream was last heard."""

    def __init__(self, worker: Worker, token: str = "", *, heard_ms: Callable[[], int] = lambda: 0) -> None:
        self._worker = worker
        self._token = token
        self._session: ClientSession | None = None
        self.parts = QueryParts(worker, heard_ms)
        self._quick = QuickRows(self.parts, worker.options.processor, heard_ms, lambda: worker.port.clock.now().wall)

    async def stop(self) -> None:
        """Close the connections to other workers."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    # --------------------------------------------------------------------------------------------------------------- requests

    def quick(self, table: str, key: bytes) -> bytes | None:
        """The row of a key as most ask for it, if this worker has what it takes at hand."""
        return self._quick.answer(table, key)

    def at_once(self, table: str, key: str, query: Mapping[str, str], meant: str) -> QueryAnswer | None:
        """The answer for one key, if this worker has all tasks that must be asked; otherwise None."""
        try:
            self._for_me(meant)
            asked = self.parts.table(table)
            raw = encoded_text(table, asked.key, key)
            found = self._all_here(asked, [raw], spread(self.parts, asked, [raw], asked_of(query).tasks))
            return None if found is None else QueryAnswer(OK, _one(asked, raw, found))
        except HeadgateError as error:
            return failure(error)

    def batch_at_once(self, table: str, body: bytes, meant: str) -> QueryAnswer | None:
        """The same for a batch of keys."""
        try:
            self._for_me(meant)
            asked = self.parts.table(table)
            request = request_of(body)
            if "keys" not in request:
                return None
            raw, of = self._keys(asked, request)
            found = self._all_here(asked, raw, spread(self.parts, asked, raw, of.tasks))
            return None if found is None else QueryAnswer(OK, _many(asked, found))
        except HeadgateError as error:
            return failure(error)

    async def key(self, table: str, key: str, query: Mapping[str, str], meant: str = "") -> QueryAnswer:
        """The row of one key."""
        try:
            self._for_me(meant)
            asked = self.parts.table(table)
            raw = encoded_text(table, asked.key, key)
            found = await self._everywhere(asked, [raw], asked_of(query)._replace(relayed=bool(meant)))
            return QueryAnswer(OK, _one(asked, raw, found))
        except HeadgateError as error:
            return failure(error)

    async def post(self, table: str, body: bytes, meant: str = "") -> QueryAnswer:
        """A batch of keys, or a page of rows."""
        try:
            self._for_me(meant)
            asked = self.parts.table(table)
            request = request_of(body)
            if "scan" in request:
                return QueryAnswer(OK, await self._scan(asked, request["scan"], bool(meant)))
            raw, of = self._keys(asked, request)
            return QueryAnswer(OK, _many(asked, await self._everywhere(asked, raw, of._replace(relayed=bool(meant)))))
        except HeadgateError as error:
            return failure(error)

    async def page(self, table: str, query: Mapping[str, str]) -> QueryAnswer:
        """A page of rows; `prefix` is a text, or the first parts of a tuple in JSON."""
        try:
            asked = self.parts.table(table)
            request: dict[str, Any] = {name: query[name] for name in ("after", "task", "stale") if name in query}
            if "limit" in query:
                request["limit"] = int(query["limit"]) if query["limit"].isdigit() else query["limit"]
            if prefix := query.get("prefix", ""):
                request["prefix"] = prefix_of(prefix)
            return QueryAnswer(OK, await self._scan(asked, request, False))
        except HeadgateError as error:
            return failure(error)

    def opened(self, table: str, task: str, meant: str) -> tuple[Queryable, CommittedPart, dict[str, Any]]:
        """A table's part in one of this worker's tasks, and its commit, to be read at once."""
        self._for_me(meant)
        asked = self.parts.table(table)
        self.parts.known([task])
        return asked, *self._part(asked, task, None)

    def listed(self) -> QueryAnswer:
        """The tables that can be asked, the tasks and the workers."""
        job = self.parts.job
        tables = [
            {
                "table": one.name,
                "kind": one.kind,
                "keys": one.key.name,
                "values": one.value.name,
                "placed_by": "every worker"
                if one.copied
                else "every task"
                if one.broadcast
                else one.stream or "unknown",
            }
            for one in self.parts.tables.values()
        ]
        tasks: list[dict[str, Any]] = []
        for task in self.parts.tasks:
            grant = job.held(task)
            tasks.append({"task": task, "worker": None if grant is None else grant.processor})
        return QueryAnswer(OK, orjson.dumps({"job": str(self._worker.job), "tables": tables, "tasks": tasks}))

    def _for_me(self, meant: str) -> None:
        if meant and meant != self._worker.incarnation:
            raise TaskUnserved(
                "the task",
                "moving",
                f"{meant} was asked, and this is {self._worker.incarnation or 'no worker yet'}",
                "ask again",
            )

    def _keys(self, asked: Queryable, request: Mapping[str, Any]) -> tuple[list[bytes], AskedOf]:
        forms = request.get("keys")
        if not isinstance(forms, list) or not 0 < len(cast("list[Any]", forms)) <= MOST_KEYS:
            raise DataError(f'"keys" is no list of 1 to {MOST_KEYS} keys', remedy='like {"keys": ["ann", "ben"]}')
        return encoded(asked.name, asked.key, cast("list[Any]", forms)), asked_of(request)

    # ---------------------------------------------------------------------------------------------------------------- reading

    def _all_here(self, asked: Queryable, keys: list[bytes], wanted: Mapping[str, list[int]]) -> FoundKeys | None:
        """What these tasks have; None if this worker cannot read all of them."""
        parts: list[tuple[list[int], CommittedPart]] = []
        for task, numbers in wanted.items():
            part = self.parts.part(task, asked)
            if part is None:
                return None
            parts.append((numbers, part))
        found = FoundKeys([None] * len(keys), [None] * len(keys))
        now_ms = self._worker.port.clock.now().wall
        for numbers, part in parts:
            picked = keys if len(numbers) == len(keys) else [keys[n] for n in numbers]
            found.add(numbers, part.read(picked), self._commit(part.at(now_ms)), asked)
        return found

    def _here(self, asked: Queryable, keys: list[bytes], wanted: Mapping[str, list[int]], of: AskedOf) -> FoundKeys:
        """What these tasks have. Raises `TaskUnserved` if this worker cannot read one."""
        found = self._all_here(asked, keys, wanted)
        if found is not None:
            return found
        if of.stale_ms is None or not of.relayed:
            lacks = next(task for task in wanted if self.parts.part(task, asked) is None)
            raise self.parts.unserved(lacks, asked)
        found = FoundKeys([None] * len(keys), [None] * len(keys))
        for task, numbers in wanted.items():
            found.add(numbers, *self._copied(asked, [keys[n] for n in numbers], task, of.stale_ms), asked)
        return found

    def _copied(
        self, asked: Queryable, keys: list[bytes], task: str, stale_ms: int
    ) -> tuple[list[Any], dict[str, Any]]:
        """What this worker has of a task that it runs, or is the standby of."""
        part, commit = self._part(asked, task, stale_ms)
        return part.read(keys), commit

    def _part(self, asked: Queryable, task: str, stale_ms: int | None) -> tuple[CommittedPart, dict[str, Any]]:
        """A task's part and its commit, to be read at once: its own, or with `stale_ms` the copy of its standby. Raises `TaskUnserved`."""
        now_ms = self._worker.port.clock.now().wall
        part = self.parts.part(task, asked)
        if part is None:
            if stale_ms is None:
                raise self.parts.unserved(task, asked)
            part = self.parts.followed(task, asked, stale_ms, now_ms)
        return part, self._commit(part.at(now_ms))

    def _commit(self, mark: CommitMark) -> dict[str, Any]:
        me = self._worker.options.processor
        said: dict[str, Any] = {"task": mark.task, "worker": me, "commit": mark.position, "age_ms": mark.age_ms}
        return {**said, "standby": True} if mark.standby else said

    async def _everywhere(self, asked: Queryable, keys: list[bytes], of: AskedOf) -> FoundKeys:
        """What all tasks have that may have one of these keys."""
        wanted = spread(self.parts, asked, keys, of.tasks)
        here = {task: numbers for task, numbers in wanted.items() if of.relayed or self.parts.has(task)}
        others: dict[TaskOwner, dict[str, list[int]]] = {}
        lost: dict[str, TaskUnserved] = {}
        for task, numbers in wanted.items():
            if task not in here:
                try:
                    others.setdefault(self.parts.owner(task), {})[task] = numbers
                except TaskUnserved as error:
                    lost[task] = error
        found = self._here(asked, keys, here, of)
        answers = await asyncio.gather(
            *(self._relay_keys(owner, asked, keys, some) for owner, some in others.items()), return_exceptions=True
        )
        for some, answer in zip(others.values(), answers, strict=True):
            if isinstance(answer, TaskUnserved):
                lost |= dict.fromkeys(some, answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                for numbers, values, commit in answer:
                    found.add(numbers, values, commit, asked)
        if lost and of.stale_ms is not None:
            lost = await self._from_copies(asked, keys, {task: wanted[task] for task in lost}, of.stale_ms, lost, found)
        for task, error in lost.items():
            if any(found.at[n] is None for n in wanted[task]):
                raise error
        return found

    async def _from_copies(
        self,
        asked: Queryable,
        keys: list[bytes],
        wanted: Mapping[str, list[int]],
        stale_ms: int,
        lost: Mapping[str, TaskUnserved],
        found: FoundKeys,
    ) -> dict[str, TaskUnserved]:
        """Ask the standbys of tasks whose owners cannot answer. Returns why those that cannot either do not, by task."""

        async def one(task: str) -> None:
            owner, numbers = self._standby(task, lost[task]), wanted[task]
            if owner.incarnation == self._worker.incarnation:
                found.add(numbers, *self._copied(asked, [keys[n] for n in numbers], task, stale_ms), asked)
                return
            for some, values, commit in await self._relay_keys(owner, asked, keys, {task: numbers}, stale_ms):
                found.add(some, values, commit, asked)

        answers = await asyncio.gather(*map(one, wanted), return_exceptions=True)
        away: dict[str, TaskUnserved] = {}
        for task, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, TaskUnserved):
                away[task] = _neither(task, lost[task], answer)
            elif isinstance(answer, BaseException):
                raise answer
        return away

    def _standby(self, task: str, error: TaskUnserved) -> TaskOwner:
        """The standby of a task whose owner cannot answer. Raises that error if it has none."""
        found = self.parts.standby(task)
        if found is None:
            raise error
        return found

    async def _relay_keys(
        self,
        owner: TaskOwner,
        asked: Queryable,
        keys: list[bytes],
        wanted: Mapping[str, list[int]],
        stale_ms: int | None = None,
    ) -> list[tuple[Sequence[int], Sequence[Any], dict[str, Any]]]:
        """Ask another worker for its tasks; of each commit the keys, their values, and the commit. `stale_ms`: for its copies, too."""
        numbers = sorted({n for some in wanted.values() for n in some})
        forms = [decoded(asked.key, keys[n]) for n in numbers]
        request: dict[str, Any] = {"keys": forms, "tasks": list(wanted)}
        if stale_ms is not None:
            request["stale"] = stale_ms / 1000
        answer = _READ_KEYS(await self._relayed(owner, asked, request, next(iter(wanted))))
        found: list[tuple[Sequence[int], Sequence[Any], dict[str, Any]]] = []
        for place, commit in enumerate(answer.commits):
            own = [i for i, at in enumerate(answer.at) if at == place]
            values = [orjson.Fragment(bytes(answer.values[i])) for i in own]
            found.append(([numbers[i] for i in own], values, commit))
        return found

    async def _relayed(self, owner: TaskOwner, asked: Queryable, request: dict[str, Any], task: str) -> bytes:
        """The answer of another worker. Raises what it refuses, and `TaskUnserved` if it does not answer."""
        import aiohttp

        if self._session is None:
            headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, limit_per_host=RELAYS),
                timeout=aiohttp.ClientTimeout(total=RELAY_S),
                headers=headers,
            )
        url = f"{owner.url}/api/query/{quote(asked.name, safe='')}"
        try:
            async with self._session.post(
                url, data=as_request(request), headers={MEANT_FOR: owner.incarnation}
            ) as response:
                status, body = response.status, await response.read()
            if status == OK:
                return body
            answer = orjson.loads(body) if status in (WRONG, MISSING, AMBIGUOUS, AWAY) else {}
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            why = f"its worker {owner.processor} does not answer at {owner.url} ({type(error).__name__})"
            raise TaskUnserved(
                task, "unreachable", why, "ask again; `headgate status JOB` shows whether it lives"
            ) from error
        if status == 401:
            why = f"its worker {owner.processor} rejects the token of this one"
            raise TaskUnserved(task, "unreachable", why, "give all workers of a job the same web.token")
        if status == AWAY and "state" in answer:
            raise TaskUnserved(
                answer.get("task", task), answer["state"], answer.get("why", answer["error"]), answer["remedy"]
            )
        if status not in _KINDS:
            raise TaskUnserved(task, "unreachable", f"its worker {owner.processor} answers {status}", "ask again")
        raise _KINDS[status](answer["error"], remedy=answer["remedy"])

    # ------------------------------------------------------------------------------------------------------------------ pages

    async def _scan(self, asked: Queryable, request: Any, relayed: bool) -> bytes:
        """A page of rows of one task, and where the next page begins."""
        limit = request.get("limit", 100) if isinstance(request, dict) else None
        if not isinstance(limit, int) or not 0 < limit <= MOST_ROWS:
            raise DataError(f'"limit" is no number from 1 to {MOST_ROWS}', remedy='like {"scan": {"limit": 100}}')
        given = cast("dict[str, Any]", request)
        tasks, stale_ms, _ = asked_of(given)
        self.parts.known(tasks)
        prefix = prefix_bytes(asked.name, asked.key, given["prefix"]) if "prefix" in given else b""
        every = list(tasks) or self._scanned(asked)
        begins = given.get("after")
        if isinstance(begins, str) and asked.broadcast and not tasks:
            # all tasks have the same rows: whichever task the page before was of, this worker goes on with its own
            begins = f"{every[0]}|{begins.rpartition('|')[2]}"
        task, after = position_of(begins, every)
        page = PageOf(task, prefix, after, limit)
        if relayed or self.parts.has(task):
            rows, commit, following = self._rows_here(asked, page, stale_ms if relayed else None)
        else:
            rows, commit, following = await self._rows_elsewhere(asked, page, {**given, "task": task}, stale_ms)
        if following is None and task != every[-1]:
            following = f"{every[every.index(task) + 1]}|"
        return written({"table": asked.name, "rows": rows, "commit": commit, "next": following})

    def _scanned(self, asked: Queryable) -> list[str]:
        every = self.parts.tasks
        if not every:
            raise TaskUnserved("the job", "moving", "it has no tasks yet", "ask again when it runs")
        return [next(filter(self.parts.has, every), every[0])] if asked.broadcast else every

    async def _rows_elsewhere(
        self, asked: Queryable, page: PageOf, request: dict[str, Any], stale_ms: int | None
    ) -> tuple[list[Any], dict[str, Any], str | None]:
        """A page of a task's owner, or else of its standby."""
        try:
            return _rows_of(await self._relayed(self.parts.owner(page.task), asked, {"scan": request}, page.task))
        except TaskUnserved as error:
            if stale_ms is None:
                raise
            lost = error
        owner = self._standby(page.task, lost)
        try:
            if owner.incarnation == self._worker.incarnation:
                return self._rows_here(asked, page, stale_ms)
            return _rows_of(await self._relayed(owner, asked, {"scan": request}, page.task))
        except TaskUnserved as error:
            refused = error
        raise _neither(page.task, lost, refused)

    def _rows_here(
        self, asked: Queryable, page: PageOf, stale_ms: int | None
    ) -> tuple[list[Any], dict[str, Any], str | None]:
        part, commit = self._part(asked, page.task, stale_ms)
        rows = list(islice(part.rows(page.prefix, page.after), page.limit))
        last = f"{page.task}|{rows[-1][0].hex()}" if len(rows) == page.limit else None
        return [[decoded(asked.key, key), value] for key, value in rows], commit, last


def _rows_of(body: bytes) -> tuple[list[Any], dict[str, Any], str | None]:
    """A page that another worker has read."""
    answer = _READ_ROWS(body)
    rows = [[key, orjson.Fragment(bytes(value))] for key, value in answer.rows]
    return rows, answer.commit, answer.next


def _neither(task: str, owner: TaskUnserved, standby: TaskUnserved) -> TaskUnserved:
    """Why neither the owner of a task nor its standby answers."""
    if owner is standby:
        return TaskUnserved(task, owner.state, f"{owner.why}; it has no standby that serves pages", owner.remedy)
    return TaskUnserved(task, owner.state, "; ".join(dict.fromkeys((owner.why, standby.why))), standby.remedy)


_KINDS: Mapping[int, type[HeadgateError]] = {AMBIGUOUS: SeveralTasks, WRONG: DataError, MISSING: NotFound}


def failure(error: HeadgateError) -> QueryAnswer:
    """The answer that says an error."""
    said: dict[str, Any] = {"error": error.what, "remedy": error.remedy}
    if isinstance(error, TaskUnserved):
        return QueryAnswer(AWAY, orjson.dumps({**said, "task": error.task, "state": error.state, "why": error.why}))
    if isinstance(error, StoreUnreadable):
        return QueryAnswer(AWAY, orjson.dumps({**said, "state": "moving"}))
    status = next((number for number, kind in _KINDS.items() if isinstance(error, kind)), WRONG)
    return QueryAnswer(status, orjson.dumps(said))


def _one(asked: Queryable, key: bytes, found: FoundKeys) -> bytes:
    at = found.at[0]
    commits = found.commits
    said = {"table": asked.name, "key": decoded(asked.key, key), "found": at is not None, "value": found.values[0]}
    if at is None and len(commits) != 1:
        return written({**said, "commits": commits})
    return written({**said, **commits[0 if at is None else at]})


def _many(asked: Queryable, found: FoundKeys) -> bytes:
    return written({"table": asked.name, "values": found.values, "at": found.at, "commits": found.commits})
