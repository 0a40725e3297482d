"""The operator of the fleet: follows the coordinator stream, as commands do, and sends requests, as they do.

A request that brokers or leaders do not answer in time counts as none: it may be carried out nevertheless. What must not stay half done (a
pause) is sent until it is done. What became of requests is kept by kind of answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from headgate.agents.cli.options import Target
from headgate.agents.cli.steer.seek import checkpoint_of
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.process.reading import following
from headgate.agents.process.requests import Request, ask
from headgate.core.coordination.state import JobState
from headgate.core.names import JobName, StreamPartition, Topics

T = TypeVar("T")
logging.getLogger("aiokafka").addHandler(logging.NullHandler())  # brokers are away all the time
AGAIN_S = 0.5
ASK_S = 40.0


class Operator:
    """One operator, in a thread of its own."""

    def __init__(self, bootstrap: str, job: str) -> None:
        self.client, self.topics = ClientSettings(bootstrap), Topics(JobName(job))
        self.answers: Counter[str] = Counter()
        self._job = JobState()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="operator", daemon=True)
        self._thread.start()
        self._run(self._follow())

    def _run(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _follow(self) -> None:
        while True:
            with contextlib.suppress(Exception):  # no job yet, or no broker answers: both pass
                async with following(self.client, self.topics) as stream:
                    while True:
                        self._job = stream.job
                        await stream.more()
            await asyncio.sleep(AGAIN_S)

    def sees(self, look: Callable[[JobState], T]) -> T:
        """What the stream says, as far as it is read."""

        async def now() -> T:
            return look(self._job)

        return self._run(now()).result(60)

    def holder(self, task: str) -> str:
        """Who has a task; empty if no one."""
        grant = self.sees(lambda job: job.held(task))
        return "" if grant is None else grant.processor

    def leader(self) -> tuple[str, int]:
        """Who leads, and in which term."""
        found = self.sees(lambda job: job.leader)
        return ("", 0) if found is None else (found.processor, found.term)

    def ask(self, verb: str, **arguments: Any) -> Future[bool]:
        """Send a request; whether it is done."""

        async def send() -> bool:
            try:
                outcome = await ask(self.client, self.topics, Request(verb, arguments=arguments), timeout_s=ASK_S)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is counted, and the account judges
                self.answers[f"{verb}: {type(error).__name__}"] += 1
                return False
            self.answers[f"{verb}: {outcome.state}"] += 1
            return outcome.state == "done"

        return self._run(send())

    def position(self, task: str, at: StreamPartition) -> Future[int | None]:
        """Where the task's last checkpoint stands in one of its inputs."""

        to = cast(Target, SimpleNamespace(client=self.client, topics=self.topics))

        async def read() -> int | None:
            with contextlib.suppress(Exception):
                found = await checkpoint_of(to, self._job, task)
                return None if found is None else found.positions.get(at)
            return None

        return self._run(read())

    def close(self) -> None:
        """Stop following."""

        async def end() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for one in others:
                one.cancel()
            await asyncio.wait(others, timeout=30)

        self._run(end()).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
