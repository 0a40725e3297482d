"""A Faust agent as an actor: one thread of control, a bounded mailbox, and an end that can be seen.

Faust gives the channel, the agent and its life. What Faust leaves open is closed here (each was measured on faust-streaming 0.15):

- a put before the agent has started, or after it has stopped, is dropped in silence: `put` refuses it instead;
- an exception in an agent's body is acknowledged and the agent restarted: here the body ends with the failure in `failure`;
- an agent that was stopped and let go of can be started again, and nobody would stop it: it stops itself;
- a stopped agent is still referenced from three places of the app: they are cleared, so that tasks can come and go for weeks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ..cancellation import passes
from ..port.port import MailboxClosed
from .sensors import place_of


class AgentMailbox:
    """One actor. `on_letter` is awaited for one letter at a time; `on_gone` is told once when the agent has stopped."""

    def __init__(
        self,
        app: Any,
        name: str,
        on_letter: Callable[[Any], Awaitable[None]],
        on_gone: Callable[[BaseException | None], None],
        *,
        on_again: Callable[[], None] | None = None,
        size: int = 16,
    ) -> None:
        """`on_again` is called when somebody starts the agent again after it was stopped. This mailbox stays closed and its agent stopped:
        whoever begins anew makes another, and an agent that reads for nobody would be stopped by nobody."""
        self.app = app
        self.name = name
        self.failure: BaseException | None = None
        self.open = False
        self._on_letter = on_letter
        self._on_gone = on_gone
        self._on_again = on_again
        self._told = False
        self._stopped = asyncio.Event()
        self._size = size
        self._waiting = 0
        """Letters that were put in and not taken out."""
        self.channel = app.channel(maxsize=size)
        self.agent = app.agent(self.channel, name=name)(self._body)
        self._watch_stop()

    def _watch_stop(self) -> None:
        """Whoever stops the agent through Faust's own API stops the actor: nobody may put into a mailbox that nobody reads."""
        original = self.agent.on_stop

        async def on_stop() -> None:
            await original()
            self._gone(self.failure)

        self.agent.on_stop = on_stop
        started = self.agent.on_started

        async def on_started() -> None:
            await started()
            if self._stopped.is_set():
                if self._on_again is not None:
                    self._on_again()
                await self.agent.stop()

        self.agent.on_started = on_started

    async def start(self) -> None:
        """Start the agent; from here on letters are taken."""
        await self.agent.start()
        self.open = True

    async def put(self, letter: Any) -> None:
        """Put a letter in; waits while the mailbox is full. Raises `MailboxClosed` when the actor has gone."""
        if self.open and self._waiting < self._size:  # there is room: it does not wait, so nothing can come between
            self._waiting += 1
            await self.channel.put(letter)
            return
        if self.open:
            putting = asyncio.ensure_future(self.channel.put(letter))  # noqa: TID251 - awaited on the next line, with its end
            gone = asyncio.ensure_future(self._stopped.wait())  # noqa: TID251
            done, _ = await asyncio.wait([putting, gone], return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
            if putting in done:
                await putting
                self._waiting += 1
                return
            putting.cancel()
        raise MailboxClosed(f"the actor '{self.name}' is gone") from self.failure

    async def _body(self, letters: Any) -> None:
        async for letter in letters:
            self._waiting -= 1
            if self._told:
                continue
            place, offset = place_of(letter)
            state = self.app.sensors.on_stream_event_in(place, offset, letters, letter)
            try:
                await self._on_letter(letter)
            except BaseException as error:  # whatever it is, it is the failure of this actor
                if passes(error):
                    raise  # the agent is being stopped, and says so when it has
                self.failure = error
                self._gone(error)
            finally:
                self.app.sensors.on_stream_event_out(place, offset, letters, letter, state)

    def _gone(self, why: BaseException | None) -> None:
        self.open = False
        self._stopped.set()
        if not self._told:
            self._told = True
            self._on_gone(why)

    async def stop(self) -> None:
        """Stop the agent (what runs is cancelled), and let go of it."""
        self._told = True
        self.open = False
        self._stopped.set()
        await self.agent.stop()
        self.app.agents.pop(self.name, None)
        self.app.topics.beacon.discard(self.agent)
        children = self.app.agents.beacon.children
        children[:] = [node for node in children if getattr(node, "data", node) is not self.agent]
