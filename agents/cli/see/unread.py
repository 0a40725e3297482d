"""What is to be said of what a job does not read in its run: topics of its patterns, also those that do not exist any more, and partitions
that an input has got.
"""

from __future__ import annotations

from collections.abc import Iterable

from ....core.coordination.messages import OVER, SetRun
from ....core.coordination.run_choice import too_old
from ....core.coordination.state import JobState
from ....core.graph.patterned import PATTERN, patterns_of_run, unread_by_run
from ....core.names import Topics
from ...kafka.connect import CONNECT_S
from ...kafka.settings import ClientSettings
from ...kafka.topics import TopicsAdmin
from ...process.reading import shown

MOST = 10
"""How many topics a line names."""
SOON = "the leader looks for new ones each inputs.look-interval"


async def unread_topics(client: ClientSettings, topics: Topics, state: JobState) -> list[str]:
    """What is to be said of the topics of the job's patterns and of its inputs; mostly nothing."""
    run = state.run
    if run is None or run.state in OVER:
        return []
    ungrown = [f"'{stream}' has got partitions that are not read yet: {why}" for stream, why in run.ungrown.items()]
    if not any(f'"{PATTERN}":' in text for text in run.fingerprint.values()):
        return ungrown
    admin = TopicsAdmin(client)
    await admin.start(deadline_s=CONNECT_S)
    try:
        there = await admin.names()
    finally:
        await admin.stop()
    return [*ungrown, *_unread(run, there, topics), *_gone(run, state, there, topics), *_without_tasks(state)]


def _without_tasks(state: JobState) -> list[str]:
    """The workers that are too old for what has joined the run."""
    return [
        f"worker '{one.processor}' of version {one.version} gets no tasks: it cannot read the topics that have joined this run; upgrade it"
        for one in too_old(state)
    ]


def _unread(run: SetRun, there: Iterable[str], topics: Topics) -> list[str]:
    """The topics that match and are not read, by the reason."""
    said: list[str] = []
    for pattern, some in unread_by_run(run.fingerprint, there, topics).items():
        by_reason: dict[str, list[str]] = {}
        for topic in some:
            if topic not in run.joined:
                by_reason.setdefault(run.unjoined.get(topic, SOON), []).append(topic)
        said += [
            f"{_named(few, 'match', 'matches')} '{pattern}', not read in this run: {why}"
            for why, few in by_reason.items()
        ]
    return said


def _gone(run: SetRun, state: JobState, there: Iterable[str], topics: Topics) -> list[str]:
    """The topics of patterns that the run reads and that do not exist."""
    read = set() if state.model is None else state.model.streams.keys() - set(there)
    gone = sorted(topic for topic in read if topic in run.joined or topic in patterns_of_run(run.fingerprint))
    if not gone:
        return []
    drain = f"`headgate drain {shown(topics.job)}` and start it again"
    then = f"{drain}, which leaves it out; if it is made again, on_lost= of the input decides"
    return [f"{_named(gone, 'of a pattern do not exist', 'of a pattern does not exist')} any more: {then}"]


def _named(some: list[str], many: str, one: str) -> str:
    """So many topics, some of them by name, and what they do.

    >>> _named(["orders-it"], "match", "matches")
    '1 topic (orders-it) matches'
    """
    more = ", …" if len(some) > MOST else ""
    names = f"({', '.join(some[:MOST])}{more})"
    return f"{len(some)} topics {names} {many}" if len(some) > 1 else f"1 topic {names} {one}"
