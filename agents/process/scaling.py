"""Lets the supervisor of `headgate run --workers` follow the number of workers that its job is to have, up and down.

The number stands in the coordinator stream (`headgate scale`); `core.coordination.fleet` decides what follows from it. A worker that is to
go is stopped for good through the leader, so its tasks move at once, planned, and the others keep theirs; with `stop.prepare` it works on
until they are prepared there. A worker that the leader does not know, or that no leader answers for, gets SIGTERM. If the number rises
again meanwhile, the worker of that name starts anew once the one that goes has gone.

Promises: it reads, and writes only these requests. Without a broker or a job the supervisor starts what its flag says, and follows later.
Why it does not follow is said once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol

from aiokafka.errors import KafkaError

from ...core.coordination import requests as r
from ...core.coordination.fleet import OVER_THE_FLAG, WORKERS, crew, strangers, unsettled, wanted
from ...core.coordination.state import JobState
from ...core.errors import DeadlinePassed, HeadgateError, NotFound
from ...core.names import Topics
from ..kafka.settings import ClientSettings
from .configuration import OVERRIDE, Configuration
from .reading import following
from .requests import Request, ask

AGAIN_S = 2.0
"""How long it waits before it reads again: there is no job yet, or the brokers are away."""


async def until_settled(
    client: ClientSettings, topics: Topics, number: int, timeout_s: float, say: Callable[[str], None]
) -> None:
    """Wait until so many workers are there, and each task runs where it is to run. `say` gets what is still to come, whenever it changes.
    Raises `DeadlinePassed` with it."""
    deadline, last = time.monotonic() + timeout_s, ""
    async with following(client, topics) as stream:
        while why := unsettled(stream.job, number):
            if why != last:
                say(why)
            last = why
            if time.monotonic() >= deadline:
                raise DeadlinePassed(
                    f"after {timeout_s:g} s {why}",
                    remedy="the number stays set; `headgate status` shows the workers, and the supervisor says why it does not follow",
                )
            await stream.more()


class Numbered(Protocol):
    """The supervisor, as far as this needs it: its workers by number."""

    @property
    def leaving(self) -> bool:
        """Whether it is told to end."""
        ...

    def numbers(self) -> set[int]:
        """The workers that are there, and stay."""
        ...

    def begin(self, number: int) -> None:
        """Start a worker."""
        ...

    def retire(self, number: int) -> str:
        """Not restart this worker any more. Returns its name."""
        ...

    def dismiss(self, number: int) -> None:
        """Send SIGTERM to a retired worker, if it still runs."""
        ...


class NumberFollower:
    """Reads the wanted number, and makes a supervisor have it."""

    def __init__(
        self, configuration: Configuration, topics: Topics, front: str, flag: int, say: Callable[[str], None]
    ) -> None:
        """`front`: what the names of the supervisor's workers begin with. `flag`: the number of `--workers`, 0 without."""
        self._configuration = configuration
        self._topics = topics
        self._front = front
        self._flag = flag
        self._say = say
        self._said = ""

    async def first(self) -> int:
        """How many workers to begin with."""
        try:
            async with following(self._configuration.client, self._topics) as stream:
                if not strangers(stream.job, self._front):
                    return self._wanted(stream.job)
        except (HeadgateError, KafkaError):  # no job yet, or no broker: the workers say so themselves
            pass
        return self.alone

    @property
    def alone(self) -> int:
        """How many workers to begin with if the job cannot be read."""
        return self._wanted(JobState())

    async def follow(self, supervisor: Numbered) -> None:
        """Follow until this is cancelled."""
        while True:
            try:
                async with following(self._configuration.client, self._topics) as stream:
                    await self._apply(stream.job, supervisor)
                    while True:
                        if await stream.more():
                            await self._apply(stream.job, supervisor)
            except NotFound:
                pass
            except (HeadgateError, KafkaError) as error:
                self._once(f"the number of workers cannot be read, and stays ({error}); trying again")
            await asyncio.sleep(AGAIN_S)

    async def _apply(self, state: JobState, supervisor: Numbered) -> None:
        if supervisor.leaving:
            return
        number, present = self._wanted(state), supervisor.numbers()
        found = crew(number, present, strangers(state, self._front))
        self._once(found.why and f"the number of workers is not followed: {found.why}")
        if found.start or found.stop:
            self._say(f"{number} workers are wanted, {len(present)} are there")
        for one in found.start:
            supervisor.begin(one)
        going = [(one, supervisor.retire(one)) for one in found.stop]
        await asyncio.gather(*(self._stop(supervisor, one, processor) for one, processor in going))

    async def _stop(self, supervisor: Numbered, number: int, processor: str) -> None:
        request = Request(r.STOP, arguments={"worker": processor, "for_good": True})
        try:
            answer = await ask(self._configuration.client, self._topics, request, wait=False)
            self._say(f"{processor} is stopped for good{answer.why and f': {answer.why}'}")
        except (HeadgateError, KafkaError) as error:
            self._say(f"{processor} is told to leave by SIGTERM: {error}")
            supervisor.dismiss(number)

    def _wanted(self, state: JobState) -> int:
        overrides: dict[str, Any] = {name: one.value for name, one in state.configs.items() if name == WORKERS}
        setting = self._configuration.resolved(overrides)[WORKERS]
        if OVERRIDE in setting.masked and setting.origin in OVER_THE_FLAG:
            self._once(f"`headgate scale` has no effect here: '{WORKERS}' is set by {setting.origin}")
        return wanted(setting, self._flag) or 1

    def _once(self, text: str) -> None:
        if text and text != self._said:
            self._say(text)
            self._said = text
