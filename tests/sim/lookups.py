"""A service that some simulated jobs ask about each row, and the account of its answers: most worlds with branches from `LOOKUPS_FROM` on.

    rows  →  shuffle by key  →  lookup  →  `ASKED`

It answers late, so that answers come in another order than they were asked for. Now and then it does not answer, or is away for a while;
tasks are moved and killed while their questions are out. Asked about several rows, it refuses some of them, and these are skipped.

Of the rows that the committed positions speak for, each that is not refused has come out once, with an answer to its own question; those of
a key come out in their order. An answer was asked for by the process that commits its row, under the same grant.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from .job import Row, row_of

if TYPE_CHECKING:
    from .life import Watched
    from .log import Kafka, Record
    from .process import Process

LOOKUPS_FROM = 11_000_000
ASKED, ASKING = "asked", "asking"
"""The topic of results, and the stream before the service."""
ONE, SEVERAL = "asks", "asks several"
"""How it is asked: by key with a cache, or about several rows at a time."""
BATCH = 3
TIMEOUT_S = 1.0


class Service:
    """What is asked. Each call tells when it was made, and by which process."""

    def __init__(self, process: Callable[[], Process]) -> None:
        self._process = process

    async def one(self, question: Any) -> dict[str, Any]:
        """One answer, or an error that says that it is away."""
        process = self._process()
        world, now_s = process.world, process.world.schedule.moment
        chance = world.rng.random()
        if chance < 0.02:
            world.away_until_s = now_s + 0.6 * world.rng.random()
            world.took_effect("service-away")
        if now_s < world.away_until_s:
            raise ConnectionError("the service is away")
        if chance < 0.03:
            world.took_effect("service-silent")
            await asyncio.sleep(3 * TIMEOUT_S)
        elif chance < 0.6:
            await asyncio.sleep(0.1 * world.rng.random())
        return {"of": question, "by": process.name, "at": now_s, "came": world.schedule.moment}

    async def several(self, questions: list[Any]) -> list[Any]:
        """An answer to each question, or why it is refused."""
        answer = await self.one(None)
        return [ValueError(f"{one} is refused") if refused(one[1]) else {**answer, "of": one} for one in questions]


def refused(seq: int) -> bool:
    """Whether the service refuses this row, where it is asked about several."""
    return seq % 13 == 5


def question_of(row: Any) -> tuple[int, int]:
    """What is asked about a row."""
    return row["p"], row["s"]


def with_answer(row: Any, answer: Any) -> Any:
    """The row, and what was answered."""
    return {**row, "answer": answer}


def declare(before: Any, how: str, service: Service) -> None:
    """Ask about each of these rows."""
    rows = before.repartition("k", name=ASKING, partitions=2)
    # a service that is away is back before a record would be judged
    calls: dict[str, Any] = {"into": with_answer, "retry": 8, "breaker": 3, "concurrency": 3, "timeout": TIMEOUT_S}
    if how == ONE:
        rows.lookup(service.one, on="k", cache="2s", max_cached=5, **calls).to(ASKED)
    else:
        rows.lookup(service.several, on=question_of, batch=BATCH, on_error="skip", **calls).to(ASKED)


def foreign(process: Process, actors: Mapping[str, Watched], records: Iterable[Record]) -> str:
    """What is wrong with answers of rows that became visible; empty if nothing is."""
    for record in records:
        answer, actor = orjson.loads(record.value)["answer"], actors[record.by[0]]
        if answer["by"] != process.name or answer["at"] < actor.since_s:
            return f"{actor.name} gives an answer of {answer['by']} of {answer['at']:.3f}, and works here since {actor.since_s:.3f}"
    return ""


def wrong(kafka: Kafka, how: str, rows: Iterable[Row]) -> list[tuple[object, ...]]:
    """What differs from these rows, in their order."""
    want = [row for row in rows if how == ONE or not refused(row.seq)]
    records = kafka.read(ASKED, 0, 0, 1 << 30)[0]
    come = [row_of(record.value) for record in records]
    found: list[tuple[object, ...]] = []
    if (true := Counter(want)) != (have := Counter(come)):
        found.append((ASKED, {"lost": true - have, "too many": have - true}))
    lanes = _lanes(want)
    found += [("disordered", lane, seqs) for lane, seqs in _lanes(come).items() if seqs != lanes.get(lane)]
    for row, record in zip(come, records, strict=True):
        about = orjson.loads(record.value)["answer"]["of"]
        if about != (str(row.key) if how == ONE else [row.producer, row.seq]):
            found.append(("an answer to another question", row, about))
    return found


def _lanes(rows: Iterable[Row]) -> dict[tuple[int, int], list[int]]:
    """By key and producer, the numbers of the rows in their order."""
    lanes: dict[tuple[int, int], list[int]] = {}
    for row in rows:
        lanes.setdefault((row.key, row.producer), []).append(row.seq)
    return lanes
