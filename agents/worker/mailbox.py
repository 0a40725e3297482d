"""A Faust agent as an actor: one thread of control, a bounded mailbox, and an end that is reported.

Faust provides the channel, the agent and its life cycle. This class closes its gaps (each was measured on faust-streaming 0.15):

- Faust silently drops a put before the agent has started or after it has stopped; `put` raises an error.
- Faust acknowledges an exception in an agent's body and restarts the agent; here the body ends, with the exception in `failure`.
- An agent that was stopped and dropped can be started again, and nothing would stop it; here it stops itself.
- The app keeps three references to a stopped agent; here they are removed, so that tasks can come and go for weeks.
- Faust keeps the last value that it has handed out; here a letter is let go when it has ended, however long the next one takes to come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ..cancellation import passes
from ..port.port import MailboxClosed
from .sensors import place_of


class _Posted:
    """A letter on its way. Faust's stream and its sensors keep what they handed out last until the next one comes, so they are given this
    instead of the letter, whose records keep what was fetched with them in memory."""

    __slots__ = ("_letter",)

    def __init__(self, letter: Any) -> None:
        self._letter = letter

    def opened(self) -> Any:
        """The letter, which is no longer kept here."""
        letter, self._letter = self._letter, None
        return letter


class AgentMailbox:
    """One actor. Calls `on_letter` with one letter at a time, and `on_gone` once when the agent has stopped."""

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
        """`on_again` is called if someone starts the agent again after it was stopped. This mailbox then stays closed, and the agent is
        stopped again: a new life needs a new mailbox, and no one would stop an agent that no one owns.
        """
        self.app = app
        self.name = name
        self.failure: BaseException | None = None
        self.open = False
        self._on_letter = on_letter
        self._on_gone = on_gone
        self._on_again = on_again
        self._over = False
        self._stopped = asyncio.Event()
        self._size = size
        self._waiting = 0
        """Letters that were put and not yet taken."""
        self.channel = app.channel(maxsize=size)
        self.agent = app.agent(self.channel, name=name)(self._body)
        self._watch_stop()

    def _watch_stop(self) -> None:
        """Treat a stop of the agent through Faust's API as the end of the actor, because no one would read the mailbox any more."""
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
        """Start the agent, and begin to take letters."""
        await self.agent.start()
        self.open = True

    async def put(self, letter: Any) -> None:
        """Put a letter into the mailbox; waits while it is full. Raises `MailboxClosed` if the actor has stopped."""
        if self.open and self._waiting < self._size:  # there is room: put does not wait, so nothing comes in between
            self._waiting += 1
            await self.channel.put(_Posted(letter))
            return
        if self.open:
            putting = asyncio.ensure_future(self.channel.put(_Posted(letter)))  # noqa: TID251 - awaited on the next line, to its end
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
        async for posted in letters:
            self._waiting -= 1
            if self._over:
                continue
            await self._read(posted.opened(), letters)

    async def _read(self, letter: Any, letters: Any) -> None:
        """Have one letter handled. Its name ends here, and so do its records, if no one else keeps them."""
        place, offset = place_of(letter)
        state = self.app.sensors.on_stream_event_in(place, offset, letters, letter)
        try:
            await self._on_letter(letter)
        except BaseException as error:  # any exception is this actor's failure
            if passes(error):
                raise  # the agent is being stopped: `on_stop` reports that
            self.failure = error
            self._gone(error)
        finally:
            self.app.sensors.on_stream_event_out(place, offset, letters, letter, state)

    def _gone(self, why: BaseException | None) -> None:
        self.open = False
        self._stopped.set()
        if not self._over:
            self._over = True
            self._on_gone(why)

    async def stop(self) -> None:
        """Stop the agent, cancel what it is doing, and remove all references to it."""
        self._over = True
        self.open = False
        self._stopped.set()
        await self.agent.stop()
        self.app.agents.pop(self.name, None)
        self.app.topics.beacon.discard(self.agent)
        children = self.app.agents.beacon.children
        children[:] = [node for node in children if getattr(node, "data", node) is not self.agent]
