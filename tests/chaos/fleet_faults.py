"""What happens to the fleet: faults that say what they did.

A fault is a generator of `Fleet.turn`: it strikes, says for how many seconds it waits, undoes what it has done, and returns how much that
did: connections that broke, requests that were late. What did nothing (nobody was there to be struck, no request was caught) returns 0,
and does not count. Behind a `None` the fault is over, and only its effect is still waited for.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import psutil

from headgate.core.names import StreamPartition
from tests.proxy import ADD_PARTITIONS, END_TXN, FETCH, PRODUCE, Frame

from .fleet_load import PARTITIONS

if TYPE_CHECKING:
    from .fleet import Fleet

Steps = Generator[float | None, None, int]
STEP_S = 0.05
PATIENCE_S = 10.0
"""For a request to come, and for its answer."""
LONG_S = 60.0
START_S = 240.0
FULL = "disk full"
TASKS = tuple(f"Partition {n}" for n in range(PARTITIONS))
VALUES: dict[str, tuple[str, ...]] = {
    "commit.interval": ("50ms", "200ms", "1s"),
    "placement.prepare": ("0s", "5s"),
    "standby": ("0", "1"),
    "placement.rejoin-grace": ("auto", "1s"),
}
"""What an operator sets, and to what."""


@dataclass(frozen=True)
class Fault:
    """One kind."""

    strikes: Callable[[Fleet], Steps]
    does: str
    """What is counted of its effect."""


class Going:
    """A fault that has struck."""

    def __init__(self, kind: str, steps: Steps) -> None:
        self.kind, self.steps = kind, steps
        self.acts = True
        """Whether it still does harm."""
        self.effect: int | None = None
        self._next_s = 0.0

    def turn(self, now_s: float) -> None:
        """Go on, as far as it is time."""
        while self.effect is None and self._next_s <= now_s:
            try:
                wait_s = next(self.steps)
            except StopIteration as end:
                self.effect, self.acts = end.value, False
                return
            self.acts = self.acts and wait_s is not None
            self._next_s = now_s + (wait_s or STEP_S)


def until(done: Callable[[], bool], seconds: float, *, over: bool = False) -> Generator[float | None, None, bool]:
    """Wait for something; whether it came. `over`: the fault is."""
    for _ in range(int(seconds / STEP_S)):
        if done():
            return True
        yield None if over else STEP_S
    return done()


def frozen(pid: int) -> bool:
    """Whether a process is stopped. Another fault may have ended it meanwhile."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    return False


# ------------------------------------------------------------------------------------------------------------------- workers


def killed(fleet: Fleet) -> Steps:
    """A worker that has tasks is gone by SIGKILL."""
    worker = fleet.one_that_runs()
    if worker is None:
        return 0
    process, ready = worker.process, worker.ready
    process.send_signal(signal.SIGKILL)
    gone = yield from until(lambda: process.poll() is not None, LONG_S)
    return int(gone and ready and process.returncode == -signal.SIGKILL)


def ended(fleet: Fleet) -> Steps:
    """A worker that has tasks ends in good order."""
    worker = fleet.one_that_runs()
    if worker is None:
        return 0
    process, ready = worker.process, worker.ready
    process.send_signal(signal.SIGTERM)
    gone = yield from until(lambda: process.poll() is not None, LONG_S)
    return int(gone and ready and process.returncode == 0)


def stopped(fleet: Fleet, least_s: float, most_s: float, *, superseded: bool) -> Steps:
    """The kernel shows a worker that has tasks as stopped; `superseded`: when it goes on, it finds that its incarnation has ended."""
    worker = fleet.one_that_runs()
    if worker is None:
        return 0
    process, ready, incarnations = worker.process, worker.ready, worker.incarnations
    process.send_signal(signal.SIGSTOP)
    shown = yield from until(lambda: frozen(process.pid), PATIENCE_S)
    yield fleet.chance.uniform(least_s, most_s)
    if process.poll() is not None:
        return 0  # somebody has killed it meanwhile
    process.send_signal(signal.SIGCONT)
    if superseded:
        shown &= yield from until(
            lambda: worker.incarnations > incarnations or process.poll() is not None, LONG_S, over=True
        )
    return int(ready and shown)


def leader_killed(fleet: Fleet) -> Steps:
    """The worker that leads is gone by SIGKILL, and another term begins."""
    name, term = fleet.operator.leader()
    worker = next((one for one in fleet.workers if one.name == name and one.awake), None)
    if worker is None:
        return 0
    process = worker.process
    process.send_signal(signal.SIGKILL)
    gone = yield from until(lambda: process.poll() is not None, LONG_S)
    follows = yield from until(lambda: fleet.operator.leader()[1] > term, LONG_S, over=True)
    return int(gone and follows and process.returncode == -signal.SIGKILL)


def joined(fleet: Fleet) -> Steps:
    """One worker more comes, gets a task, and goes again: by SIGTERM, or because it is told to stop."""
    if fleet.guest is not None:
        return 0
    with fleet.visited() as guest:
        yield from until(lambda: guest.ready, LONG_S)
        held = yield from until(lambda: any(fleet.operator.holder(task) == guest.name for task in TASKS), LONG_S)
        yield fleet.chance.uniform(0.5, 4.0)
        if fleet.chance.random() < 0.5:
            guest.process.send_signal(signal.SIGTERM)
        else:
            told = fleet.operator.ask("stop", worker=guest.name, for_good=True)
            yield from until(told.done, LONG_S)
            if not told.result(LONG_S):
                guest.process.send_signal(signal.SIGTERM)
        gone = yield from until(lambda: not guest.runs, START_S)
    return int(held and gone and guest.process.returncode == 0)


def disk_filled(fleet: Fleet) -> Steps:
    """The disk of a worker is full for a while."""
    worker = fleet.one_connected()
    disk, refused = fleet.disks[worker.name], worker.refuses()
    disk.fill()
    felt = yield from until(lambda: worker.refuses() > refused, PATIENCE_S)
    yield fleet.chance.uniform(0.2, 3.0)
    disk.free()
    return int(felt)


# ------------------------------------------------------------------------------------------------------------------ operator


def moved(fleet: Fleet) -> Steps:
    """A task is moved to another worker."""
    worker = fleet.one_that_runs()
    holders = {task: fleet.operator.holder(task) for task in TASKS}
    others = [task for task, holder in holders.items() if worker is not None and holder not in ("", worker.name)]
    if worker is None or not worker.ready or not others:
        return 0
    task = fleet.chance.choice(others)
    done = fleet.operator.ask("move", task=task, to=worker.name)
    yield from until(done.done, LONG_S)
    return int(done.result(LONG_S) and fleet.operator.holder(task) == worker.name)


def sought(fleet: Fleet) -> Steps:
    """An input is paused, one of its partitions goes to the position that it has, and reading goes on."""
    stream, partition = fleet.topics[fleet.chance.choice(("orders", "payments"))], fleet.chance.randrange(PARTITIONS)
    paused = fleet.operator.ask("pause", stream=stream)
    yield from until(paused.done, LONG_S)
    at = StreamPartition(stream, partition)
    position = fleet.operator.position(TASKS[partition], at)
    yield from until(position.done, LONG_S)
    done, to = False, position.result(LONG_S)
    if paused.result(LONG_S) and to is not None:
        order = {"partition": partition, "to": to, "positions": {str(partition): to}}
        answer = fleet.operator.ask("seek", stream=stream, **order)
        yield from until(answer.done, LONG_S)
        done = answer.result(LONG_S)
    while True:  # a pause that no one ends is no fault, but a stop
        resumed = fleet.operator.ask("resume", stream=stream)
        yield from until(resumed.done, LONG_S)
        if resumed.result(LONG_S):
            return int(done)


def configured(fleet: Fleet) -> Steps:
    """A setting is changed for all workers, while they work."""
    setting = fleet.chance.choice(list(VALUES))
    value = fleet.chance.choice([one for one in VALUES[setting] if one != fleet.set.get(setting)])
    done = fleet.operator.ask("set-config", setting=setting, value=value)
    yield from until(done.done, LONG_S)
    if not done.result(LONG_S):
        return 0
    fleet.set[setting] = value
    return int(setting in fleet.operator.sees(lambda job: job.overrides))


# ------------------------------------------------------------------------------------------------------------------- brokers


def broker_killed(fleet: Fleet) -> Steps:
    """A broker is gone by SIGKILL, and comes back."""
    node = fleet.one_broker()
    if node is None:
        return 0
    with fleet.without(node):
        fleet.broker.kill(node)
        gone = fleet.broker.daemon(node).pid() is None
        yield fleet.chance.uniform(0.0, 4.0)
        with ThreadPoolExecutor(1) as pool:
            back = pool.submit(fleet.broker.restart, node, timeout_s=START_S)
            yield from until(back.done, START_S)
            back.result(START_S)
    return int(gone)


def broker_stopped(fleet: Fleet) -> Steps:
    """The kernel shows a broker as stopped: it keeps its connections and answers nobody."""
    node = fleet.one_broker()
    pid = None if node is None else fleet.broker.daemon(node).pid()
    if node is None or pid is None:
        return 0
    with fleet.without(node):
        fleet.broker.pause(node)
        shown = yield from until(lambda: frozen(pid), PATIENCE_S)
        yield fleet.chance.uniform(1.0, 7.0)
        fleet.broker.resume(node)
    return int(shown)


# ------------------------------------------------------------------------------------------------------------------- network


def cut(fleet: Fleet) -> Steps:
    """A worker has no network."""
    proxy = fleet.one_connected().proxy
    broken = proxy.away()
    yield fleet.chance.uniform(0.2, 8.0)
    proxy.back()
    return broken


def severed(fleet: Fleet) -> Steps:
    """The connections of a worker break."""
    broken = fleet.one_connected().proxy.sever()
    yield None
    return broken


def delayed(fleet: Fleet) -> Steps:
    """Requests of a worker are slow."""
    proxy = fleet.one_connected().proxy
    rule = proxy.delay(fleet.chance.choice((PRODUCE, FETCH, -1)), fleet.chance.uniform(0.1, 1.0))
    yield fleet.chance.uniform(1.0, 5.0)
    rule.left = 0
    return rule.count


def lost(fleet: Fleet) -> Steps:
    """A broker has carried a request out, and its answer is lost."""
    rule = fleet.one_connected().proxy.lose(fleet.chance.choice((END_TXN, PRODUCE, ADD_PARTITIONS)))
    yield from until(lambda: rule.count > 0, PATIENCE_S)
    rule.left = 0
    yield from until(lambda: rule.answered, PATIENCE_S * (rule.count > 0), over=True)
    return int(rule.answered)


def reordered(fleet: Fleet, api: int) -> Steps:
    """A request of a transaction is held back and its connection breaks; then others overtake it, and it comes nevertheless."""
    worker = fleet.one_connected()
    rule = worker.proxy.hold(api, lambda frame: _of_tasks(frame) != "")
    caught = yield from until(lambda: rule.frame is not None, PATIENCE_S)
    rule.left = 0
    if not caught or rule.frame is None:
        return 0
    own = _of_tasks(rule.frame)
    worker.proxy.sever()

    def overtaken() -> int:
        return sum(_of_tasks(frame) == own for frame in rule.passed)

    yield from until(lambda: overtaken() > 0, PATIENCE_S)
    yield fleet.chance.uniform(STEP_S, 1.0)
    rule.deliver()
    yield from until(lambda: rule.answered, PATIENCE_S, over=True)
    return overtaken() if rule.answered else 0


def _of_tasks(frame: Frame) -> str:
    """Whose transaction this is, without the incarnation; empty if it is not one of tasks."""
    owner = frame.transaction.rpartition(".")[0]
    return owner if ".worker." in owner else ""


FAULTS = {
    "worker kill -9": Fault(killed, "workers gone that had tasks"),
    "leader kill -9": Fault(leader_killed, "leaders gone that others followed"),
    "worker joins, leaves": Fault(joined, "workers that came, had tasks, and went"),
    FULL: Fault(disk_filled, "disks that refused a write"),
    "task moved": Fault(moved, "tasks moved by an operator"),
    "input paused, sought": Fault(sought, "partitions that went on where they were told to"),
    "setting changed": Fault(configured, "settings changed for all"),
    "worker SIGTERM": Fault(ended, "workers ended that had tasks"),
    "worker SIGSTOP": Fault(
        partial(stopped, least_s=0.5, most_s=2.0, superseded=False), "workers stopped that had tasks"
    ),
    "worker SIGSTOP, long": Fault(
        partial(stopped, least_s=5.0, most_s=9.0, superseded=True), "workers fenced that had tasks"
    ),
    "broker kill -9": Fault(broker_killed, "brokers gone"),
    "broker SIGSTOP": Fault(broker_stopped, "brokers stopped"),
    "network cut": Fault(cut, "connections broken, and no new ones"),
    "connections broken": Fault(severed, "connections broken"),
    "requests delayed": Fault(delayed, "requests delayed"),
    "answers lost": Fault(lost, "requests carried out without an answer"),
    "commits reordered": Fault(partial(reordered, api=END_TXN), "requests that overtook a commit"),
    "writes reordered": Fault(partial(reordered, api=PRODUCE), "requests that overtook a write"),
}
