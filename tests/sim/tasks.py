"""The tasks of one process and the one producer that they share, as an edge drives them.

Each task is an `Actor`. The committer decides when a transaction begins, what must have happened before it is committed, and when
the stores follow; here that becomes calls to the broker, in parts, so that a kill may come between any two of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headgate.core import orders
from headgate.core.coordination.member import protocol as member_words
from headgate.core.machine import Tick
from headgate.core.names import StreamPartition
from headgate.core.task import commit_protocol as commits
from headgate.core.task import protocol as facts
from headgate.core.task.commit import Committer

from .actor import Actor, Contribution
from .log import Producer, Refused

if TYPE_CHECKING:
    from .process import Process


class Tasks:
    """All actors of a process, and the committer of its present incarnation."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.schedule = process.schedule
        self.kafka = process.kafka
        self.actors: dict[str, Actor] = {}
        self.incarnation = ""
        self.producer: Producer | None = None
        self.committer: Committer | None = None
        self.contributions: dict[str, Contribution] = {}
        self._tick_at = float("inf")
        self.fetch_delay_s = 0.0

    def die(self) -> None:
        """The process is gone."""
        for actor in list(self.actors.values()):
            actor.end()
        self.actors = {}

    def gone(self, actor: Actor) -> None:
        """This task has released or was discarded."""
        actor.end()
        if self.actors.get(actor.name) is actor:
            del self.actors[actor.name]
        if self.committer is not None and actor.incarnation == self.incarnation:
            self.to_committer(commits.TaskGone(actor.name))

    def tell(self, task: str, order: orders.Order) -> None:
        """An order of the member."""
        if isinstance(order, orders.Start):
            old = self.actors.get(task)
            assert old is None, (
                f"{self.process.name} starts {task} while {old and old.machine.state} of grant {old and old.grant}"
            )
            actor = Actor(self, order)
            self.actors[task] = actor
            self.process.world.invariants.actor_started(actor)
            actor.handle(order)
            return
        actor = self.actors.get(task)
        if actor is not None:
            actor.handle(order)

    def again(self, actor: Actor, *seeks: orders.Seek) -> None:
        """A task that has failed begins once more under its grant, in the run as it is now."""
        run = self.process.member.job.run_view()
        for order in (actor.start if run is None else replace(actor.start, run=run), *seeks):
            self.tell(actor.name, order)

    # ------------------------------------------------------------------------------------------------- the committer

    def new_producer(self, incarnation: str, producer: Producer) -> None:
        """A new incarnation can write."""
        self.incarnation = incarnation
        self.producer = producer
        self.committer = Committer(interval_s=0.2, timeout_s=20.0)
        self.contributions = {}
        self._tick_at = float("inf")

    def close_producer(self, incarnation: str) -> None:
        """The member does not need it any more."""
        if incarnation == self.incarnation:
            self.producer = None
            self.committer = None

    def to_committer(self, event: Any) -> None:
        """Give the committer an event and carry out what it says."""
        committer = self.committer
        if committer is None or not self.process.alive:
            return
        instructions = committer.handle(event, self.process.now())
        if self.schedule.trace is not None and (instructions or type(event) is not Tick):
            self.schedule.note(
                f"{self.process.name} C", committer.state, event, "=>", ", ".join(map(str, instructions)) or "-"
            )
        for instruction in instructions:
            COMMITTER_EDGE[type(instruction)](self, instruction)
        self._arm()

    def _arm(self) -> None:
        committer = self.committer
        deadline = None if committer is None else committer.deadline()
        if deadline is None:
            return
        at = deadline - self.process.mono_origin
        if at < self._tick_at - 1e-9:
            self._tick_at = at
            self.schedule.post(self.process, max(0.0, at - self.schedule.moment) + 1e-6, self._tick, at, committer)

    def _tick(self, at: float, committer: Committer) -> None:
        if self._tick_at != at or committer is not self.committer:
            return
        self._tick_at = float("inf")
        deadline = committer.deadline()
        if deadline is not None and deadline <= self.schedule.moment + self.process.mono_origin:
            self.to_committer(Tick())
        else:
            self._arm()

    def answer(self, committer: Committer, event: Any) -> None:
        """An answer to this committer, if it is still the one."""
        if committer is self.committer:
            self.to_committer(event)

    def begin(self, order: commits.Begin) -> None:
        self.schedule.post(self.process, 0.0003, self.answer, self.committer, commits.Begun(order.txn))

    def seal(self, order: commits.Seal) -> None:
        self.contributions = {}
        for task in order.tasks:
            actor = self.actors.get(task)
            if actor is not None and actor.incarnation == self.incarnation:
                actor.handle(facts.CommitBegins(order.txn))
        self.schedule.post(
            self.process, 0.0, self.answer, self.committer, commits.Sealed(order.txn, frozenset(self.contributions))
        )

    def flush(self, order: commits.Flush) -> None:
        """Send everything, in two parts, so that a kill may come between them."""
        producer, committer, job = self.producer, self.committer, self.process.job
        assert producer is not None
        assert committer is not None
        data: list[Any] = []
        logged: list[Any] = []
        for name in sorted(self.contributions):
            one = self.contributions[name]
            data += one.outputs
            place = (job.log_topic, one.actor.log_partition)
            logged += [(*place, ("table", key), value, 0) for key, value in one.changes.items()]
            logged += [(*place, ("row", key), value, 0) for key, value in one.rows.items()]
            logged.append((*place, ("checkpoint",), one.checkpoint, 0))
        kafka = self.kafka

        def send(records: list[Any]) -> None:
            kafka.up()
            for topic, partition, key, value, ts in records:
                kafka.send(producer, topic, partition, key, value, ts)

        def failed(error: Exception | None) -> None:
            if isinstance(error, Refused):
                self.process.world.took_effect("bad-target")
                writers = frozenset(name for name, one in self.contributions.items() if wrote(one, error.target))
                self.answer(committer, commits.ProducerFailed(str(error), "failed", str(error.target), writers))
                return
            kind = "fenced" if error is not None else "failed"
            self.answer(committer, commits.ProducerFailed(str(error or "no answer to a send"), kind))

        def wrote(one: Contribution, at: StreamPartition) -> bool:
            logs = (job.log_topic, one.actor.log_partition) == at
            return logs or any((topic, partition) == at for topic, partition, *_ in one.outputs)

        def logs() -> dict[str, int]:
            send(logged)
            return {name: kafka.end(job.log_topic, one.actor.log_partition) for name, one in self.contributions.items()}

        def second(_: None) -> None:
            self.process.write(logs, lambda ends: self.answer(committer, commits.Flushed(order.txn, ends)), failed)

        self.process.write(lambda: send(data), second, failed)

    def commit(self, order: commits.Commit) -> None:
        producer, committer = self.producer, self.committer
        assert producer is not None
        assert committer is not None
        contributions = self.contributions
        world = self.process.world

        def effect() -> None:
            touched = [(place, records[0].offset) for place, records in producer.touched.items()]
            self.kafka.commit(producer)
            world.invariants.committed(self.process, self.incarnation_of(producer), contributions, touched)

        def failed(error: Exception | None) -> None:
            kind = "fenced" if error is not None else "unknown"
            self.answer(committer, commits.ProducerFailed(str(error or "no answer to the commit"), kind))

        self.process.write(effect, lambda _: self.answer(committer, commits.Committed(order.txn)), failed)

    def incarnation_of(self, producer: Producer) -> str:
        """Whose producer that is."""
        return producer.owner[1]

    def apply(self, order: commits.Apply) -> None:
        one = self.contributions[order.task]
        if one.actor.gone:
            return
        store = one.actor.store
        assert store is not None
        for key, value in one.changes.items():
            store.apply(("table", key), value)
        for key, value in one.rows.items():
            store.apply(("row", key), value)
        store.checkpoint = one.checkpoint
        store.position = order.log_position
        store.followed_until_ms = self.process.now().wall
        one.actor.sealed = {}
        self.schedule.post(self.process, 0.0005, self.answer, self.committer, commits.Applied(order.txn, order.task))

    def tell_done(self, order: commits.TellDone) -> None:
        actor = self.actors.get(order.task)
        if actor is not None and actor.incarnation == self.incarnation:
            actor.handle(facts.CommitDone(order.txn, order.log_position))

    def tell_apply_failed(self, order: commits.TellApplyFailed) -> None:
        actor = self.actors.get(order.task)
        if actor is not None:
            actor.handle(facts.ApplyFailed(order.why))

    def over(self, order: commits.IncarnationOver) -> None:
        incarnation = self.incarnation
        self.producer = None
        self.committer = None
        for actor in list(self.actors.values()):
            if actor.incarnation == incarnation:
                actor.handle(facts.CommitLost(order.why, actor.name in order.blamed))
        failed = tuple((name, order.why) for name in sorted(order.blamed))
        stream, colon, number = order.target.rpartition(":")
        target = StreamPartition(stream, int(number)) if colon else None
        if target is not None:
            self.process.world.invariants.refused(self.process, target, order.blamed)
        self.process.to_member(member_words.ProducerLost(incarnation, order.why, failed, target))


COMMITTER_EDGE: dict[type, Any] = {
    commits.Begin: Tasks.begin,
    commits.Seal: Tasks.seal,
    commits.Flush: Tasks.flush,
    commits.Commit: Tasks.commit,
    commits.Apply: Tasks.apply,
    commits.TellDone: Tasks.tell_done,
    commits.TellApplyFailed: Tasks.tell_apply_failed,
    commits.IncarnationOver: Tasks.over,
}
