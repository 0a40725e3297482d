"""Asks a running job for the state of its tables, from any program: `hg.query("sales", "spent")`.

It finds the workers in the coordinator stream, or at the addresses that it is given, and asks one of them; that one asks the owners of the
keys (`web.queries`). While a task moves, restores, or its worker has died, it reads on in the stream and asks again, until the deadline.

Promises: a value was committed, and the answer says by which commit of which task, and how old that is. A key is absent only if every task
that may have it has said so; what could not be asked within the deadline is an error that names the task and what to do. Only who allows it
(`stale=`) gets the older answer of a standby, which says so. Nothing is written, and no group is joined.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import AsyncIterator, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self, cast
from urllib.parse import quote, urlsplit

import orjson

from ...core.coordination.metadata import LOCALITY, stored
from ...core.errors import DataError, DeclarationError, EnvironmentFault, HeadgateError, NotFound
from ...core.names import JobName, Topics
from ...core.secrets import masked
from ...core.settings import duration_ms
from ..queries.json_keys import form_of, is_plain, key_of
from .configuration import CommandLine, configure
from .reading import Follower, following

if TYPE_CHECKING:
    from aiohttp import ClientSession

FORM = "async with hg.query(job, table) as table: found = await table.get(key)"
IN_A_PROGRAM = "a program without a loop puts the whole block into a coroutine, `async def main(): …`, and calls asyncio.run(main())"
TIMEOUT_S = 10.0
"""How long a question waits for the task that answers it, by default."""
TRY_S = 5.0
"""How long one worker may take, and at least `LEAST_S` with a shorter deadline."""
LEAST_S = 3.0
SILENT_S = 10.0
PAUSE_S = 0.1
AT_ONCE = 1_000
"""The most keys of one request."""
PAGE = 500
MOST_CONNECTIONS = 100
"""To one worker: questions that wait for one that has stopped do not take them from the others."""


class StateAway(EnvironmentFault):
    """No worker could answer within the deadline. `task`: the task that was to be asked; empty if no worker could be reached.
    `state`: `moving`, `restoring`, `failed` or `unreachable`."""

    def __init__(self, what: str, *, remedy: str = "", task: str = "", state: str = "unreachable") -> None:
        super().__init__(what, remedy=remedy)
        self.task = task
        self.state = state


@dataclass(frozen=True, slots=True)
class CommittedValue:
    """What was committed of a key.

    `value` is None if there is no row: then `task` is empty where several tasks were asked. `commit` is the position of the task's log
    behind its last commit, and `age_s` how long ago its worker last knew that nothing newer was committed. Of several tasks that have no
    row they are the least and the greatest. `standby`: it is of the copy of a standby, or one of several tasks is.
    """

    key: Any
    value: Any
    task: str
    commit: int | None
    age_s: float
    standby: bool = False

    @property
    def found(self) -> bool:
        """Whether there is a row."""
        return self.value is not None


class QueriedTable:
    """A table of a running job, read from outside; see `query`. One may be used by many coroutines at the same time."""

    def __init__(
        self,
        job: str,
        table: str,
        *,
        bootstrap: str,
        urls: Sequence[str],
        token: str,
        timeout_s: float,
        stale_s: float | None = None,
    ) -> None:
        self._job, self._table = job, table
        self._bootstrap, self._token = bootstrap, token
        self._timeout_s = timeout_s
        self._of: dict[str, Any] = {} if stale_s is None else {"stale": stale_s}
        self._given = [url.rstrip("/") for url in urls]
        self._urls: list[str] = []
        self._turn = itertools.count(random.randrange(1 << 16))
        self._stack = contextlib.AsyncExitStack()
        self._session: ClientSession | None = None
        self._follower: Follower | None = None
        self._looking: asyncio.Task[None] | None = None
        """Waits for news of the coordinator stream, for all questions that wait for them."""
        self._silent: dict[str, float] = {}
        """The addresses that have not answered last, and when they are asked again; before that, only if there is no other."""
        self._plain = False

    # ------------------------------------------------------------------------------------------------------------------ asking

    async def get(self, key: Any, *, task: str = "") -> CommittedValue:
        """The value of a key. `task`: ask only this task, for a table in which several have rows of the same key.

        >>> async with hg.query("sales", "spent") as spent:
        ...     (await spent.get("ann")).value
        """
        (found,) = await self.get_many([key], task=task)
        return found

    async def get_many(self, keys: Sequence[Any], *, task: str = "") -> list[CommittedValue]:
        """The values of keys, in their order: one request for each thousand.

        >>> [one.value for one in await spent.get_many(["ann", "ben"])]
        """
        found: list[CommittedValue] = []
        for start in range(0, len(keys), AT_ONCE):
            some = keys[start : start + AT_ONCE]
            request: dict[str, Any] = {"keys": list(map(form_of, some)), **({"task": task} if task else {}), **self._of}
            answer = await self._post(request)
            commits = answer["commits"]
            marks = [_mark(one) for one in commits]
            absent = marks[0] if len(marks) == 1 else _together(commits)
            for key, value, at in zip(some, answer["values"], answer["at"], strict=True):
                of = absent if at is None else marks[at]
                found.append(CommittedValue(key, value, of.task, of.commit, of.age_s, of.standby))
        return found

    async def scan(
        self, *, prefix: Any = None, limit: int | None = None, task: str = ""
    ) -> AsyncIterator[CommittedValue]:
        """All rows, or those whose keys begin with a text or with the first parts of a tuple: task by task, of each in the order of keys.

        Each page of rows is of one commit of its task; between two pages the task goes on.

        >>> async for row in spent.scan(prefix="an", limit=100):
        ...     print(row.key, row.value)
        """
        request: dict[str, Any] = {**self._of, **({"task": task} if task else {})}
        if prefix is not None:
            request["prefix"] = form_of(prefix)
        left = limit
        while left is None or left > 0:
            answer = await self._post({"scan": {**request, "limit": PAGE if left is None else min(PAGE, left)}})
            mark = _mark(answer["commit"])
            for form, value in answer["rows"]:
                yield CommittedValue(
                    form if self._plain else key_of(form), value, mark.task, mark.commit, mark.age_s, mark.standby
                )
            if answer["next"] is None:
                return
            request["after"] = answer["next"]
            left = None if left is None else left - len(answer["rows"])

    # -------------------------------------------------------------------------------------------------------------- the block

    async def __aenter__(self) -> Self:
        """Find the workers, and ask one whether the table can be asked."""
        import aiohttp

        async with contextlib.AsyncExitStack() as stack:
            configuration = configure(CommandLine(bootstrap=self._bootstrap), need_broker=not self._given)
            token = self._token or str(configuration.value("web.token"))
            if not token.isprintable():
                raise DeclarationError(
                    "the token of hg.query contains a control character, such as the end of a line",
                    remedy="leave out what follows the token in the file that it was read from: token=text.strip()",
                )
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            connector = aiohttp.TCPConnector(limit=0, limit_per_host=MOST_CONNECTIONS)
            self._session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector, headers=headers))
            if not self._given:
                topics = Topics(JobName.parse(self._job), str(configuration.value("topic.prefix")))
                self._follower = await stack.enter_async_context(following(configuration.client, topics))
            stack.push_async_callback(self._stop_looking)
            self._stack = stack.pop_all()
        try:
            await self._refresh()
            answer = await self._ask("GET", "/api/query", None)
            known = {one["table"]: one for one in answer["tables"]}
            if self._table not in known:
                await self._post({"keys": [""]})  # whoever is asked for it says why it cannot be
                raise NotFound(f"the job has no table '{self._table}'", remedy=f"it has {', '.join(known)}")
            self._plain = is_plain(known[self._table]["keys"])
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self._stack.aclose()

    def __enter__(self) -> NoReturn:
        raise DeclarationError("hg.query(…) is asynchronous, and `with` is not", remedy=f"{FORM}; {IN_A_PROGRAM}")

    def __exit__(self, *_: object) -> None:
        """Only so that `with` says what to write instead."""

    def __await__(self) -> Generator[Any, Any, NoReturn]:
        raise DeclarationError("hg.query(…) is a block", remedy=FORM)

    # --------------------------------------------------------------------------------------------------------------- requests

    async def _post(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            body = orjson.dumps(request, option=orjson.OPT_NON_STR_KEYS)
        except TypeError as error:
            raise DataError(
                f"table {self._table}: what is asked for has no JSON, and so is no key: {error}",
                remedy="keys are text, whole numbers of 64 bits, bytes, booleans, UUIDs, and tuples of them, or what its serde takes",
            ) from error
        return await self._ask("POST", f"/api/query/{quote(self._table, safe='')}", body)

    async def _ask(self, method: str, path: str, body: bytes | None) -> dict[str, Any]:
        """The answer of a worker. While it is known that another one may answer soon, asks again until the deadline."""
        give_up = time.monotonic() + self._timeout_s
        while True:
            left_s = give_up - time.monotonic()
            try:
                return await self._once(method, path, body, min(TRY_S, max(LEAST_S, left_s)))
            except StateAway as error:
                left_s = give_up - time.monotonic()
                if error.state == "failed" or left_s <= 0:
                    raise
            await self._wait(left_s)

    async def _once(self, method: str, path: str, body: bytes | None, most_s: float = TRY_S) -> dict[str, Any]:
        """Ask the next worker, which may take so long. One that cannot be reached is left out for a while."""
        import aiohttp

        if self._session is None or self._session.closed:
            raise HeadgateError(
                f"the table '{self._table}' of {self._job} is not open: its block has not begun, or is over",
                remedy=f"{FORM}; {IN_A_PROGRAM}",
            )
        if not self._urls:
            raise StateAway(
                f"no worker of {self._job} serves its pages",
                remedy="start one with `headgate run`, and see `headgate status`",
            )
        now_s, silent = time.monotonic(), self._silent
        urls = [one for one in self._urls if silent.get(one, 0.0) <= now_s] or self._urls
        url = urls[next(self._turn) % len(urls)]
        if url in silent:
            silent[url] = now_s + SILENT_S  # one question tries it, and the others do not wait for it
        limit = aiohttp.ClientTimeout(total=most_s)
        try:
            async with self._session.request(method, f"{url}{path}", data=body, timeout=limit) as response:
                status, data = response.status, await response.read()
            silent.pop(url, None)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            silent[url] = time.monotonic() + SILENT_S
            raise StateAway(
                f"the worker at {url} does not answer ({type(error).__name__})",
                remedy="`headgate status` shows whether it lives; its web.host must be one that can be reached from here",
            ) from error
        if status == 401:
            raise EnvironmentFault(f"the worker at {url} rejects the token", remedy="give its web.token with token=")
        return _document(url, status, data)

    async def _wait(self, most_s: float) -> None:
        """Wait for news: of the coordinator stream, or else a moment. All questions that wait share one look at the stream."""
        if self._follower is None:
            await asyncio.sleep(min(PAUSE_S, most_s))
            return
        looking = self._looking
        if looking is None or looking.done():
            looking = self._looking = asyncio.get_running_loop().create_task(self._look(self._follower))
        await asyncio.wait([looking], timeout=most_s)
        if looking.done() and not looking.cancelled():
            looking.result()

    async def _look(self, follower: Follower) -> None:
        await follower.more()
        await self._refresh()

    async def _stop_looking(self) -> None:
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _refresh(self) -> None:
        """The workers that are there, according to the stream."""
        if self._follower is None:
            self._urls = list(self._given)
            return
        state = await self._follower.to_end()
        self._urls = [one["url"] for one in stored(state, LOCALITY).values() if one["url"]]


def query(
    job: str,
    table: str,
    *,
    bootstrap: str = "",
    url: str | Sequence[str] = (),
    token: str = "",
    timeout: float | str = TIMEOUT_S,
    stale: float | str | None = None,
) -> QueriedTable:
    """A table of a running job, for other programs: `get`, `get_many` and `scan` what is committed. Use it with `async with`.

    >>> async with hg.query("sales", "spent") as spent:
    ...     found = await spent.get("ann")
    ...     print(found.value, found.commit, found.age_s)

    The workers are found through Kafka, or at `url`, the address of one worker's pages or several, without it. `token`: their `web.token`.
    `timeout`: how long a question waits while its task moves, restores, or is taken over from a worker that has died; then it raises.
    `stale`: how old the answer of a standby may be, which then answers in place of an owner that cannot, without waiting.
    """
    urls = [url] if isinstance(url, str) else list(url)
    for one in urls:
        _check_address(one)
    stale_s = None if stale is None else duration_ms(stale) / 1000
    return QueriedTable(
        job,
        table,
        bootstrap=bootstrap,
        urls=urls,
        token=token,
        timeout_s=duration_ms(timeout) / 1000,
        stale_s=stale_s,
    )


def _check_address(url: Any) -> None:
    """Refuse what is no address of a worker's pages."""
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise DeclarationError(
            f"hg.query(url={masked(repr(url))}) is no address of a worker's pages",
            remedy='it begins with http:// or https://, such as "http://127.0.0.1:38113"; `headgate status` shows those of a job',
        )


_KINDS = {400: DataError, 404: NotFound, 409: DataError}


def _document(url: str, status: int, data: bytes) -> dict[str, Any]:
    """What a worker has answered. Raises what it refuses."""
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or (status != 200 and "error" not in found):
        raise StateAway(f"{url} answers {status}, and not as a worker does", remedy="check the address")
    document = cast("dict[str, Any]", found)
    if status == 200:
        return document
    if status == 503:
        task, state = document.get("task", ""), document.get("state", "moving")
        raise StateAway(document["error"], remedy=document["remedy"], task=task, state=state)
    raise _KINDS.get(status, HeadgateError)(document["error"], remedy=document.get("remedy", ""))


class _Mark(NamedTuple):
    """The commit that a value is of."""

    task: str
    commit: int | None
    age_s: float
    standby: bool = False


def _mark(commit: dict[str, Any]) -> _Mark:
    return _Mark(commit["task"], commit["commit"], commit["age_ms"] / 1000, bool(commit.get("standby")))


def _together(commits: Sequence[dict[str, Any]]) -> _Mark:
    """Of no single task, the least commit and the greatest age."""
    positions = [one["commit"] for one in commits]
    least = None if None in positions else min(positions, default=None)
    age_ms = max((one["age_ms"] for one in commits), default=0)
    return _Mark("", least, age_ms / 1000, any(one.get("standby") for one in commits))
