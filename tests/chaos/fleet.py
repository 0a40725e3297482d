"""Three brokers, three workers, and a network between them: counts, windows and a join over inputs of which some partitions are quiet.

    python -m tests.chaos.fleet [FAULTS] [SECONDS] [SEED] [QUIET] [CALM_EVERY] [FILE]

So many faults (60) that had an effect, of each kind one at least, within so many seconds (1800). Of the six partitions of each input so
many (1, at most 4) are always quiet, and one more speaks in bursts. Workers are killed, stopped and ended, and so is the leader; one more
comes and goes; their disks are full; brokers are killed and stopped; an operator moves tasks, pauses and seeks inputs, changes settings;
and each worker has a network of its own, which is cut, loses answers, delays requests, and lets them overtake each other
(`fleet_faults`).

In the end each order is counted once, in its table and in what came out of it, and stands in one result of its window; each pair and each
row without a partner has come out once, and nothing was late (`fleet_account`). And time has gone on: after the last fault, and after
each CALM_EVERY (15) faults, everything that had ended by then is out within `idle-timeout` + `session.timeout` + 10 s, windows as well as
what the join says of rows without a partner, while the load goes on. How long a busy machine takes is no matter of headgate: the last
fault is over when all workers are up, and for as long as the main thread of one of them, or its network's, has waited for a processor
since then, more is allowed. What was measured, and how long that was, is printed. With a FILE a line of JSON is added to it;
`tests.chaos.long` adds up such lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
from confluent_kafka.admin import AdminClient, NewTopic

from headgate.agents.broker.broker import Broker
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.process.exporting import export
from headgate.agents.process.requests import Request, ask
from headgate.core.names import JobName, Topics
from tests import disks

from . import pairs
from .fleet_account import OUTPUTS, Account, Count, Found
from .fleet_faults import FAULTS, FULL, PATIENCE_S, START_S, STEP_S, Going
from .fleet_load import PARTITIONS, Flow, Results
from .fleet_operator import Operator
from .fleet_worker import IDLE_S, SESSION_S, Worker, waited_s
from .outputs import Leaving, Named, somewhere
from .reader import read_all
from .windows import Record

BOUND_S = IDLE_S + SESSION_S + 10.0
CALM_EVERY = 15
"""After so many faults there is none until time has gone on."""
TOPICS = ("orders", "payments", "counts", "windows", "pairs", "late", "late_rows")
GUEST = "w4"


@dataclass
class Calm:
    """How time went on after a fault."""

    faults: int
    """So many had happened."""
    over_s: dict[str, float]
    """By output: how long after the end of the last fault all was out that had ended by then."""
    up_s: dict[str, float]
    """By output: how long after all workers were up all was out that had ended by then."""
    starved_s: float
    """For how long one of the threads that all work passes through has waited for a processor meanwhile."""

    @property
    def in_time(self) -> bool:
        """Whether that is as it must be."""
        return max(self.up_s.values()) - self.starved_s <= BOUND_S

    def __str__(self) -> str:
        told = (f"{name} are out after {self.up_s[name]:.1f} s" for name in OUTPUTS)
        more = f"{max(self.over_s.values()):.1f} s after the last harm was done, {self.starved_s:.1f} s of waiting for a processor"
        return (
            f"{self.faults} faults: {', '.join(told)}{'' if self.in_time else f', {BOUND_S:g} s are allowed'}; {more}"
        )


class Fleet:
    """Everything that takes part."""

    def __init__(
        self,
        broker: Broker,
        directory: Path,
        seed: int,
        quiet: int = 1,
        per_second: int = 200,
        *,
        out: Callable[[str], Leaving],
        mounts: bool,
    ) -> None:
        self.broker, self.directory = broker, directory
        self.chance = random.Random(seed)
        self.job = f"fleet{seed}"
        self.topics = {kind: f"{self.job}-{kind.replace('_', '-')}" for kind in TOPICS}
        self.names = {"CHAOS_JOB": self.job} | {f"CHAOS_{kind.upper()}": name for kind, name in self.topics.items()}
        self.leaving = out(self.job)
        self.names |= self.leaving.names
        self._create()
        self.happened: Counter[str] = Counter()
        self.effects: Counter[str] = Counter()
        self.nothing: Counter[str] = Counter()
        """The faults that did nothing."""
        self.calms: list[Calm] = []
        self._going: list[Going] = []
        self._away: int | None = None
        """The broker that is."""
        self.results = Results(broker.bootstrap, self.topics["windows"], self.topics["pairs"])
        self.results.start()
        self.loads = [
            Flow(broker.bootstrap, self.topics[kind], rate, quiet)
            for kind, rate in (("orders", per_second), ("payments", per_second // 2))
        ]
        for load in self.loads:
            load.start()
        names = [f"w{n + 1}" for n in range(3)]
        self.disks = {name: disks.Disk(self.disk_of(name)) for name in (*names, GUEST)} if mounts else {}
        self.kinds = {kind: fault for kind, fault in FAULTS.items() if mounts or kind != FULL}
        self.set: dict[str, str] = {}
        """The settings that an operator has changed."""
        self.guest: Worker | None = None
        """One worker more, which comes and goes."""
        self.table: list[Count] = []
        """The counts, as they are exported in the end."""
        self.operator = Operator(broker.bootstrap, self.job)
        self.workers = [Worker(self, name) for name in names]

    def _create(self) -> None:
        """A partition of an input has one replica, so that what is appended is visible at once; the outputs have three.

        With more replicas a record is visible when the others have it. One that waits for a replica that stands still is older than what
        another partition shows meanwhile, and no reader can know of it.
        """
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        stamped = {"message.timestamp.type": "LogAppendTime"}
        made = [NewTopic(self.topics[kind], PARTITIONS, 1, config=stamped) for kind in ("orders", "payments")]
        made += [
            NewTopic(name, PARTITIONS, 3) for name in (*(self.topics[kind] for kind in TOPICS[2:]), self.leaving.topic)
        ]
        for future in admin.create_topics(made).values():
            future.result(60)

    # -------------------------------------------------------------------------------------------------------------- faults

    def one_that_runs(self) -> Worker | None:
        """A worker that can be struck, if possible one that has tasks."""
        awake = [one for one in self.workers if one.awake]
        ready = [one for one in awake if one.ready]
        return self.chance.choice(ready or awake) if awake else None

    def one_connected(self) -> Worker:
        """A worker whose network can be disturbed, if possible one that has tasks."""
        return self.one_that_runs() or self.chance.choice(self.workers)

    def one_broker(self) -> int | None:
        """A broker that serves; one at most is away at a time, for two of three are a quorum."""
        node = self.chance.choice((1, 2, 3))
        return node if self._away is None else None

    @contextlib.contextmanager
    def without(self, node: int) -> Iterator[None]:
        """This broker is away."""
        self._away = node
        yield
        self._away = None

    def disk_of(self, name: str) -> Path:
        """Where a worker has its state."""
        return self.directory / f"disk-of-{name}"

    @contextlib.contextmanager
    def visited(self) -> Iterator[Worker]:
        """One worker more is there."""
        self.guest = guest = Worker(self, GUEST)
        try:
            yield guest
        finally:
            guest.close()
            self.guest = None

    def turn(self) -> None:
        """Let the faults go on, count those that are through, and start the workers that have ended."""
        for one in self._going:
            one.turn(time.monotonic())
            if one.effect is not None:
                self.happened[one.kind] += one.effect > 0
                self.nothing[one.kind] += one.effect == 0
                self.effects[one.kind] += one.effect
        self._going = [one for one in self._going if one.effect is None]
        for worker in self.workers:
            worker.start_again()

    # ------------------------------------------------------------------------------------------------------------- waiting

    def _until(self, done: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait for something; the ends of the logs, if it does not come."""
        give_up = time.monotonic() + seconds
        while not done():
            tails = [one.tail() for one in self.workers] if time.monotonic() > give_up else []
            assert not tails, "\n".join([f"{seconds:g} s are over, waiting for {what}", *tails])
            self.turn()
            time.sleep(STEP_S)

    def _pause(self, done: Callable[[], bool], seconds: float) -> None:
        """Let things go on, until something has happened or that time is over."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not done():
            self.turn()
            time.sleep(STEP_S)

    def calm(self) -> Calm:
        """Wait until the faults are over and the workers up, and from then on until all is out that has ended; how long that took."""
        self._until(lambda: not any(one.acts for one in self._going), START_S, "faults to end")
        over_ms = int(time.time() * 1000)
        self._until(lambda: all(one.up for one in self.workers), START_S, "workers to be up")
        up_ms = int(time.time() * 1000)
        took: dict[int, dict[str, float]] = {over_ms: {}, up_ms: {}}

        def out() -> bool:
            for since_ms, done in took.items():
                for output in OUTPUTS:
                    if output not in done and not self.results.progress.open(since_ms, output):
                        done[output] = time.time() - since_ms / 1000
            return len(took[up_ms]) == len(OUTPUTS)

        before = waited_s(thread for one in self.workers for thread in one.threads)
        self._until(out, START_S, f"all to be out that ended at {up_ms}")
        starved = max((seconds - before[thread] for thread, seconds in waited_s(before).items()), default=0.0)
        self._until(lambda: not self._going, START_S, "the effects of the faults")
        calm = Calm(self.happened.total(), took[over_ms], took[up_ms], starved)
        print(calm, flush=True)
        return calm

    def torment(self, faults: int, until_s: float, calm_every: int) -> None:
        """So many faults, and all kinds of them, and the calm behind them."""
        self.calm()
        calm_at, bag = calm_every, list[str]()
        while not self.enough(faults) and time.monotonic() < until_s:
            if self.happened.total() >= calm_at:
                calm_at += calm_every
                self.calms.append(self.calm())
            if not bag:
                bag = list(self.kinds)
                self.chance.shuffle(bag)
            kind = bag.pop()
            self._pause(lambda: any(one.awake and one.ready for one in self.workers), PATIENCE_S)
            self._going.append(Going(kind, FAULTS[kind].strikes(self)))
            self._pause(lambda: False, self.chance.uniform(0.2, 2.5))
        self.calms.append(self.calm())

    def enough(self, faults: int) -> bool:
        """Whether so many have had an effect, and each kind has."""
        return self.happened.total() >= faults and all(self.happened[kind] for kind in self.kinds)

    def settle(self) -> int:
        """End the load and drain the job; how many records there were."""
        made = sum(load.end() for load in self.loads)
        self._until(
            lambda: self.leaving.complete(self.loads[0].leaving), START_S, "all orders to be in the table and in files"
        )
        give_up = time.monotonic() + START_S
        while sum(n for _, n, _ in self.table) < self.loads[0].made and time.monotonic() < give_up:
            self.table = self._exported()
        client = ClientSettings(self.broker.bootstrap)
        answer = asyncio.run(ask(client, Topics(JobName(self.job)), Request("drain"), timeout_s=START_S))
        assert getattr(answer, "state", answer) == "done", answer
        for worker in self.workers:
            assert worker.process.wait(START_S) == 0, worker.tail()
        return made

    def _exported(self) -> list[Count]:
        """The counts that the tables of the workers hold."""
        to = self.directory / f"counts-{uuid.uuid4().hex}"
        client = ClientSettings(self.broker.bootstrap)
        asyncio.run(export(client, Topics(JobName(self.job)), "counts", to, form="jsonl", timeout_s=START_S))
        rows = [orjson.loads(line) for file in to.glob("*.jsonl") for line in file.read_bytes().splitlines()]
        return [(row["key"], row["value"]["n"], row["value"]["total"]) for row in rows]

    def close(self) -> None:
        """End what still runs."""
        self.operator.close()
        for worker in (*self.workers, *([self.guest] if self.guest else [])):
            worker.close()
        for load in self.loads:
            if load.is_alive():
                with contextlib.suppress(AssertionError):
                    load.end()
        self.results.end()

    # ------------------------------------------------------------------------------------------------------------- account

    def account(self) -> tuple[Account, int, int]:
        """What is wrong; how many windows there are, and how many pairs."""
        found = Account()
        for kind in ("late", "late_rows"):
            found.late += [f"{kind}: {one.value()}" for one in read_all(self.broker.bootstrap, self.topics[kind])]
        orders = list(self._written("orders"))
        found.counts(orders, self._counts(), "output")
        found.counts(orders, self.table, "table")
        windows = found.windows(orders, self._windows())
        lefts, rights = (
            [pairs.Row(key, seq, ms, "r") for key, ms, seq, _ in rows] for rows in (orders, self._written("payments"))
        )
        values = (orjson.loads(one.value() or b"") for one in read_all(self.broker.bootstrap, self.topics["pairs"]))
        found.lost += self.leaving.wrong(Counter(key for key, *_ in orders), self._named())
        joined = Counter((value["key"], value["left"], value["right"]) for value in values)
        return found, windows, found.pairs(lefts, rights, joined)

    def _written(self, kind: str) -> Iterator[Record]:
        """What an input holds."""
        seen = set[pairs.Id]()
        for message in read_all(self.broker.bootstrap, self.topics[kind]):
            value = orjson.loads(message.value() or b"")
            assert (value["key"], value["seq"]) not in seen, "the load itself wrote it twice"
            seen.add((value["key"], value["seq"]))
            yield value["key"], message.timestamp()[1], value["seq"], value["amount"]

    def _named(self) -> Iterator[Named]:
        """What has left by the topic."""
        for message in read_all(self.broker.bootstrap, self.leaving.topic):
            yield orjson.loads(message.value() or b"")

    def _counts(self) -> Iterator[Count]:
        """What came out of the counts, in the order of each key."""
        for message in read_all(self.broker.bootstrap, self.topics["counts"]):
            value = orjson.loads(message.value() or b"")
            yield (message.key() or b"").decode(), value["n"], value["total"]

    def _windows(self) -> Iterator[Found]:
        """What came out of the windows."""
        for message in read_all(self.broker.bootstrap, self.topics["windows"]):
            value = orjson.loads(message.value() or b"")
            yield (message.key() or b"").decode(), value["window_start"], value["n"], value["total"]


def told(fleet: Fleet, made: int, account: tuple[Account, int, int]) -> Iterator[str]:
    """What happened, in lines."""
    yield f"{fleet.happened.total()} faults had an effect, {fleet.nothing.total()} had none:"
    for kind, fault in fleet.kinds.items():
        nothing = f", {fleet.nothing[kind]} without" if fleet.nothing[kind] else ""
        yield f"  {kind:22}{fleet.happened[kind]:4}{nothing}   {fleet.effects[kind]} {fault.does}"
    yield f"requests: {', '.join(f'{n} {what}' for what, n in sorted(fleet.operator.answers.items()))}"
    for output in OUTPUTS:
        slowest = max(fleet.calms, key=lambda one: one.up_s[output])
        yield f"{output}: at the latest, with {slowest}"
        yield f"  {fleet.results.progress.slowest[output] / 1000:.1f} s after its end the slowest one was out, faults included"
    found, windows, joined = account
    yield f"{made} records, {windows} windows, {joined} pairs: {found}"
    yield from (f"  {one}" for one in found.wrong[:20])


def line(fleet: Fleet, made: int, account: tuple[Account, int, int], seed: int, quiet: int, took_s: float) -> str:
    """The same for programs."""
    found, windows, joined = account
    return json.dumps(
        {
            "seed": seed, "quiet": quiet, "ended": time.strftime("%Y-%m-%d %H:%M", time.gmtime()), "seconds": round(took_s),
            "faults": dict(fleet.happened), "effects": dict(fleet.effects), "records": made, "windows": windows, "pairs": joined,
            "lost": len(found.lost), "doubled": len(found.doubled), "late": len(found.late), "calms": len(fleet.calms),
            "in_time": sum(one.in_time for one in fleet.calms),
            "slowest_s": round(max((max(one.up_s.values()) for one in fleet.calms), default=0.0), 1),
            "slowest_own_s": round(max((max(one.up_s.values()) - one.starved_s for one in fleet.calms), default=0.0), 1),
        }
    )  # fmt: skip


def main(
    faults: int = 60,
    seconds: int = 1800,
    seed: int = 1,
    quiet: int = 1,
    calm_every: int = CALM_EVERY,
    file: str = "",
) -> int:
    """Torment, and account."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is ended by `timeout`, too
    mounts, began = disks.private(), time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="headgate-fleet-"))
    print(f"seed {seed}, {quiet} quiet partitions of {PARTITIONS}, in {directory}", flush=True)
    if not mounts:
        print("this machine lets no process mount a file system of its own: no disk will be full", flush=True)
    with (
        Broker.start(directory / "kafka", nodes=3, timeout_s=START_S) as broker,
        somewhere(directory / "out") as out,
    ):
        fleet = Fleet(broker, directory, seed, quiet, out=out, mounts=mounts)
        try:
            fleet.torment(faults, time.monotonic() + seconds, calm_every)
            made = fleet.settle()
        finally:
            fleet.close()
        account = fleet.account()
    print(*told(fleet, made, account), sep="\n", flush=True)
    if file:
        with Path(file).open("a") as kept:
            kept.write(line(fleet, made, account, seed, quiet, time.monotonic() - began) + "\n")
    if not account[0].wrong and fleet.enough(faults) and all(calm.in_time for calm in fleet.calms):
        shutil.rmtree(directory, ignore_errors=True)
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(*(int(word) if word.isdigit() else word for word in sys.argv[1:])))
