"""A counting job over the edges, one drawn run of it, and its account: lost 0, doubled 0, silent 0.

The job passes every record through each kind of operator to one output, counts them by key behind a shuffle to another, and has an
actor number them in its table for a third. It is bounded: a worker that has done all exits 0. A worker that a fault has ended, and one
whose task failed and says why, is followed by another, as a supervisor or an operator would do; one that does nothing and
says nothing is *silent*, which is what must never be.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import orjson

import headgate as hg

from .edges import Edges, Fault

PARTITIONS = 2
KEYS = 7
LIFE_S = 240.0
"""No life takes so long, whatever strikes: what has not ended then must say why."""
SETTINGS = {"error.retries": 3, "chunk.max-records": 40, "chooser.batch-size": 40, "session.timeout": "3s"}
SETTINGS |= {"release.timeout": "5s", "watermark.idle-timeout": "300ms"}


@dataclass
class Outcome:
    """What became of one drawn run."""

    struck: list[Fault]
    lives: list[str] = field(default_factory=list)
    """How each worker ended."""
    wrong: list[str] = field(default_factory=list)


def declared(edges: Edges, name: str, source: str, copies: str, counts: str, numbers: str, sunk: set[int]) -> hg.App:
    """The job: every function of it asks the edges what to answer."""
    app = hg.App(name, key_serde=hg.text(), settings=SETTINGS)
    records = app.input(source, timestamp="t", until="newest")
    app.table("numbers", value=hg.json())
    serde: Any = hg.custom(orjson.loads, lambda value: edges.user("dumps", orjson.dumps(value)), name="counted")

    async def awaited(value: Any) -> Any:
        await asyncio.sleep(0)
        return edges.user("map_async", value)

    def stamped(record: Any) -> Any:
        headers = [("n", edges.user("headers", str(record.value["n"]).encode()))]
        return hg.Record(record.key, record.value, edges.user("timestamp", record.value["t"]), headers)

    def kept(value: Any) -> bool:
        edges.user("filter")
        return value["n"] >= 0

    def sink(batch: Any) -> None:
        edges.user("sink")
        sunk.update(value["n"] for value in batch.values)

    passed = (
        records.flat_map(lambda value: edges.user("flat_map", [value]))
        .filter(kept)
        .map(lambda value: edges.user("map", {"n": value["n"], "k": value["k"], "t": value["t"]}))
        .map_async(awaited, concurrency=4)
        .map(stamped, with_record=True)
    )
    passed.to(
        copies,
        key=lambda value: edges.user("key", value["k"]),
        partition=lambda record: edges.user("partition", record.value["n"] % PARTITIONS),
        serde=serde,
    )
    passed.sink(sink)

    def add(state: Any, value: Any) -> Any:
        edges.user("add")
        return state + value["n"]

    def merge(one: Any, other: Any) -> Any:
        edges.user("merge")
        return one + other

    total: Any = hg.aggregate(lambda: edges.user("init", 0), add, merge)
    passed.repartition("k").agg(n=hg.count(), total=total).to(counts)

    @app.actor(records)
    class Numbering(hg.Actor):
        def on_start(self, ctx: Any) -> None:
            edges.user("on_start")
            table = ctx.table("numbers")
            if "timer" not in table:  # a task that begins again starts its actor again, too
                table["timer"] = 1
                ctx.timer("late", at=1_000_000 + 50)

        async def on_batch(self, ctx: Any, batch: Any) -> None:
            await asyncio.sleep(0)
            edges.user("on_batch")
            table = ctx.table("numbers")
            for value in batch.values:
                number = table[value["k"]] = table.get(value["k"], 0) + 1
                ctx.emit(
                    numbers,
                    {"n": value["n"], "k": value["k"], "number": number},
                    key=value["k"],
                    headers=[("n", edges.user("emit", b"x"))],
                )

        def on_watermark(self, ctx: Any, timestamp: int) -> None:
            edges.user("on_watermark")

        def on_timer(self, ctx: Any, name: str, timestamp: int) -> None:
            edges.user("on_timer")
            ctx.emit(numbers, {"timer": name}, key=ctx.task)

        def on_end_of_stream(self, ctx: Any) -> None:
            edges.user("on_end_of_stream")
            ctx.emit(numbers, {"ended": ctx.task}, key=ctx.task)

        def on_stop(self, ctx: Any) -> None:
            edges.user("on_stop")

    @app.agent(records)
    async def watching(batches: Any) -> Any:
        async for batch in batches:
            edges.user("agent")
            _ = batch.values

    return app


async def run(job: Any, topic: Any, plan: list[Fault], *, records: int = 400) -> Outcome:
    """One run under these faults, and lives without any until all is done."""
    source, copies, counts, numbers = (topic(name, PARTITIONS) for name in ("in", "copies", "counts", "numbers"))
    truth = [{"n": n, "k": f"k{n % KEYS}", "t": 1_000_000 + n} for n in range(records)]
    await job.write(source, truth)
    sunk: set[int] = set()
    edges = Edges(plan)
    outcome = Outcome(edges.struck)
    with edges:
        for life in range(6):
            app = declared(edges, job.name, source, copies, counts, numbers, sunk)
            worker = await job.start(app, f"w{life}")
            ended, said = await _life(worker)
            outcome.lives.append(said)
            if ended == 0:
                break
            if not said:
                outcome.wrong.append(f"silent: {worker.states()} {worker.worker.participant.why}\n{worker.story()}")
                edges.armed = False
            if not worker.task.done():
                edges.armed = False  # an operator has seen the reason; what is wrong has been mended
                await worker.stop()
        else:
            outcome.wrong.append(f"never done: {outcome.lives}")
    if not outcome.wrong:
        outcome.wrong += await _differences(job, truth, copies, counts, numbers, sunk)
    return outcome


async def _life(worker: Any) -> tuple[int | None, str]:
    """Its exit code, None if it has none, and what it says of why it ended or stands still; empty if it is silent."""
    try:
        code = await asyncio.wait_for(asyncio.shield(worker.task), LIFE_S)
    except TimeoutError:
        actors = worker.worker.actors.values()
        whys = [f"{a.name} {a.machine.phase}: {a.site.notes.said.get('failure', '')}" for a in actors]
        failed = [why for a, why in zip(actors, whys, strict=True) if a.machine.phase == "failed" and a.site.notes.said]
        return None, "; ".join(failed)
    except BaseException as error:  # noqa: BLE001 - whatever ended it
        return None, f"the worker ended by {type(error).__name__}: {error}"
    return code, worker.worker.participant.exit_why or f"exit {code}"


async def _differences(job: Any, truth: list[Any], copies: str, counts: str, numbers: str, sunk: set[int]) -> list[str]:
    """Everything that a plain reader finds wrong."""
    wrong: list[str] = []
    wanted = Counter(row["n"] for row in truth)
    found = Counter(value["n"] for value in await job.values(copies, len(truth)))
    wrong += _compared("copies", wanted, found)
    numbered = await job.values(numbers, len(truth))
    wrong += _compared("numbers", wanted, Counter(value["n"] for value in numbered if "n" in value))
    hooks = Counter(next(iter(value)) for value in numbered if "n" not in value)
    if hooks != {"timer": PARTITIONS, "ended": PARTITIONS}:
        wrong.append(f"hooks: {dict(hooks)}, and there are {PARTITIONS} tasks")
    each = Counter((value["k"], value["number"]) for value in numbered if "n" in value)
    if any(times > PARTITIONS for times in each.values()):
        wrong.append(f"numbers: a table gave one twice: {each.most_common(3)}")
    last: dict[str, Any] = {}
    for record in await job.records(counts, KEYS):
        value, key = orjson.loads(record.value), record.key.decode()
        if value["n"] <= last.get(key, {"n": 0})["n"]:
            wrong.append(f"counts: {key} goes from {last[key]} to {value}")
        last[key] = value
    for key in {row["k"] for row in truth}:
        own = [row["n"] for row in truth if row["k"] == key]
        if last.get(key) != {"n": len(own), "total": sum(own)}:
            wrong.append(f"counts: {key} ends with {last.get(key)} instead of {len(own)}, {sum(own)}")
    if missing := set(wanted) - sunk:
        wrong.append(f"sink: {len(missing)} lost")
    return wrong


def _compared(where: str, wanted: Counter[int], found: Counter[int]) -> list[str]:
    lost, doubled = wanted - found, found - wanted
    wrong = [f"{where}: {sum(lost.values())} lost, {sorted(lost)[:5]}"] if lost else []
    return wrong + ([f"{where}: {sum(doubled.values())} doubled, {sorted(doubled)[:5]}"] if doubled else [])
