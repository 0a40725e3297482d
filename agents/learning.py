"""What a letter may have to learn before it can run: the partitions of a topic that user code names, a schema, an answer of a service.

What it decides: the loop never waits for it. Whatever finds in a letter that something is not known raises `MustLearn`, through user code,
too. The letter is dropped, however far it was; the question is answered while other tasks run; then the letter runs again from its
beginning.

Promises: no record is to blame, so no policy is asked about any. A task asks each question once: what cannot be learned, or is not known
afterwards, fails the task, which restarts by itself. If there is no answer yet (`NotYet`), the letter waits, and says for what: it asks
again until there is one, or it is called off.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Protocol

from ..core.errors import EnvironmentFault, causes


class LateTopics(Protocol):
    """The topics that are written to; see `Producers`."""

    async def learn(self, topic: str) -> None: ...


class MustLearn(EnvironmentFault):
    """Something must be learned before the letter can run."""

    def __init__(
        self, what: str, *, question: Hashable, lacks: str, learn: Callable[[LateTopics], Awaitable[None]], remedy: str
    ) -> None:
        """Equal questions have one answer. `learn` asks, and keeps the answer where the letter will look for it; `lacks` is said if that
        fails."""
        super().__init__(what, remedy=remedy)
        self.question = question
        self.lacks = lacks
        self.learn = learn


class NotYet(EnvironmentFault):
    """There is no answer yet: who is asked is away, or someone else must bring first what is asked for. The question is asked again."""


def to_learn(error: BaseException) -> MustLearn | None:
    """What must be learned, if a letter failed because it is not known; no matter what user code has made of it."""
    return next((one for one in causes(error) if isinstance(one, MustLearn)), None)
