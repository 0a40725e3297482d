"""A process as a participant in its job: its two machines, and the tasks and producers that they control.

    coordination  the coordinator stream, `Member` and `Leader`
    runtime       the tasks, each under its grant; the producer of the current incarnation
    overrides     the settings that operators have changed

The runtime carries out the machines' orders, and its reports are fed back to the machines. The same code runs on a worker and in the
simulator: it knows a port and a `RuntimeHost`, but neither Kafka nor Faust. It decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from ...core.coordination import messages as c
from ...core.coordination.leader.leader import Leader
from ...core.coordination.member import protocol as mw
from ...core.coordination.member.member import Member
from ...core.errors import DeclarationError, EnvironmentFault
from ...core.orders import Report, RunView, TaskReported, TaskState
from ...core.task.plan import TaskPlan
from ..coordinator.coordination import Coordination
from ..coordinator.leader_edge import LeaderTopics
from ..job.derive.declaration import Declared
from ..job.derive.plans import task_settings
from ..live_settings import Settings
from ..logger import Logger
from ..measured import Clocks
from ..port.port import Offsets, Port
from ..runtime.host.runtime import Runtime, RuntimeHost, TargetTopics
from ..stories.follow import LEADER, MEMBER, NoStories, Stories
from ..tracing.traces import Traces
from .load.health import LONG_S, Health, letter_load
from .load.lags import Lags, Owned, TaskLags, owned_by
from .load.load import load_of
from .load.times import Times
from .load.work_load import Rates
from .machine_settings import leader_config, member_config
from .options import WorkerOptions
from .settings_taken import Overrides

log = Logger("headgate.worker")
LOOK = "inputs.look-interval"


class WorkerTopics(TargetTopics, LeaderTopics, Protocol):
    """The topics of the job, as its writers and its leader use them."""


class Participant:
    """See above. `over` is set once the process has left the job; `exit_code` and `exit_why` then say how."""

    def __init__(
        self,
        options: WorkerOptions,
        host: RuntimeHost,
        port: Port,
        offsets: Offsets,
        topics: WorkerTopics,
        settings: Settings,
        *,
        refuse: Callable[[DeclarationError], None],
        more: Mapping[str, Callable[[], None]],
        spark: Any = None,
        sinks: Any = None,
        memory: Any = None,
        clocks: Clocks | None = None,
        stories: Stories | None = None,
        traces: Traces | None = None,
    ) -> None:
        """`refuse` is called if the declared job cannot run. `more`: further parts of the process that take settings (`settings_taken`).
        `clocks`, `stories`, `traces`: see `Runtime`.
        """
        declared = options.declared
        self.refuse = refuse
        self.ready = False
        self.why = "starting"
        self.exit_code: int | None = None
        self.exit_why = ""
        self.over = asyncio.Event()
        self.times = Times()
        self.rates = Rates()
        self.lags = Lags()
        self.health = Health(port.clock.now().mono)
        self.on_waiting: Callable[[str, str, str], None] | None = None
        """Called while the process waits because its run is closed: with the reason, the run's state, and the reason of the run's
        failure.
        """
        self._options = options
        self._host = host
        self._port = port
        self._settings = settings
        self._exits_on_failure = False
        """The setting `failure.policy`."""
        stamp = c.Stamp(options.host, options.user, f"worker {options.processor}", 0)
        self.coordination = Coordination(self, host, port, offsets, topics, declared.graph, declared.topics, stamp)
        self.runtime = Runtime(
            f"{declared.app.job.slug}-{options.processor}",
            host,
            self,
            port,
            declared,
            settings,
            topics,
            offsets,
            spark=spark,
            sinks=sinks,
            memory=memory,
            compression=options.compression,
            clocks=clocks,
            stories=stories,
            traces=traces,
        )
        self._stories = stories or NoStories()
        self.actors = self.runtime.actors
        """The tasks in this process."""
        self.tasks = self.runtime.granted
        self.producers = self.runtime.producers
        self.unread = self.runtime.unreadable.passed
        tasks = self._tell_tasks
        own = {
            "trace": self._trace,
            "committer": self._pace,
            "task": tasks,
            "intake": tasks,
            "chooser": tasks,
            "spark": tasks,
        }
        self._look_s = 0.0
        self._started = False
        self.overrides = Overrides(options, settings, {**own, "worker": self._judge, **more})
        self.config_changed = self.overrides.take

    async def start(self) -> None:
        """Join the job."""
        self.overrides.tell()
        self._started = True
        given = self._settings.given
        own, leading = member_config(self._options, given), leader_config(self._options, given)
        member, leader = Member(own), Leader(leading)
        self._stories.follow(member, MEMBER, own.processor, own)
        self._stories.follow(leader, LEADER, own.processor, leading)
        await self.coordination.start(
            member,
            leader,
            beat_s=self._settings.seconds("heartbeat.interval"),
            look_s=lambda: self._look_s,
        )

    # ------------------------------------------------------------------------------------------- what the machines order

    def standing(self, ready: bool, why: str) -> None:
        """See `coordination.World`."""
        said = (self.ready, self.why.partition(":")[0])
        self.ready, self.why = ready, why
        if said != (ready, why.partition(":")[0]):  # not each time that one more of its tasks has started
            log.info("readiness", ready=ready, why=why)
        run = self.coordination.member.view.job.run
        if self.on_waiting is not None and not ready and run is not None and why.startswith(f"run {run.run_id} is "):
            self.on_waiting(why, run.state, run.failed)

    def exit(self, code: int, why: str) -> None:
        """See `coordination.World`. The leadership is handed back first."""
        self.exit_code, self.exit_why = code, why
        log.info("exit", code=code, why=why)
        self._host.spawn(self._resign, "resign")

    async def _resign(self) -> None:
        await self.coordination.resign()
        self.over.set()

    def follow(self, order: mw.Follow) -> None:
        """See `coordination.World`."""
        self.runtime.followers.follow(
            order.logs, lambda task, grant: self.coordination.feed_member(mw.Followed(task, grant))
        )

    def write_out(self, order: mw.WriteOut) -> None:
        """See `coordination.World`."""
        for task in order.tasks:
            if (actor := self.actors.get(task)) is not None:
                self._host.spawn(actor.state.write_out, f"{task}: writes out its store")

    def load(self) -> Mapping[str, float]:
        """See `coordination.World`. The facts are looked at here, because this is called at each recorded turn of the main loop."""
        now = self._port.clock.now()
        self.health.look(self.coordination.reader.answers, self.actors.values(), now)
        return load_of(self, now)

    def under_way(self) -> Mapping[str, float]:
        """See `coordination.World`."""
        return letter_load(self.actors.values(), self._port.clock.now().wall, LONG_S)

    def owned(self) -> Owned:
        """The tasks that this worker is granted, whether they run or not, each with what it reads."""
        member = getattr(self.coordination, "member", None)
        if member is None:
            return {}
        owned = owned_by(member.view.job, self._options.processor)
        copied = self.declared.graph.copied
        return {task: tuple(at for at in parts if at.stream not in copied) for task, parts in owned.items()}

    def lags_now(self) -> dict[str, TaskLags]:
        """The lag of each partition of its tasks, as far as it is known."""
        return self.lags.look(self.owned(), self.actors, self._port.clock.now().mono)

    # ------------------------------------------------------------------------------------------- what the runtime asks for

    @property
    def declared(self) -> Declared:
        """The job as its code declares it, with the topics that have joined its run."""
        member = getattr(self.coordination, "member", None)
        run = None if member is None else member.view.job.run
        return self._options.declared.joined(() if run is None or run.state in c.OVER else run.joined)

    def plan(self, task: str) -> TaskPlan:
        """See `runtime.Job`. The plan contains the bounds that the run resolved, so it is the same whenever the task starts. What has
        joined the run came after it began, so that all of it is new.
        """
        job = self.coordination.member.view.job
        if job.model is None or task not in job.model.tasks:
            raise RuntimeError(f"{task} was granted, but is not in the job model")
        declared, run = self.declared, job.run
        self.runtime.goes_by(declared)
        plan = declared.task_plan(task, job.model, task_settings(self._settings.given))
        if run is None:
            return plan
        inputs = [
            replace(
                one,
                start="oldest" if one.start == "newest" and one.stream in run.joined else one.start,
                start_of=dict(enumerate(run.starts.get(one.stream, ()))),
                until_of=dict(enumerate(run.untils.get(one.stream, ()))) or one.until_of,
            )
            for one in plan.inputs
        ]
        return replace(plan, inputs=tuple(inputs))

    def run_view(self) -> RunView | None:
        """See `runtime.Job`."""
        return self.coordination.member.view.job.run_view()

    def report(self, report: Report) -> None:
        """See `runtime.Job`. The report is fed to the member once the current event is handled."""
        loop = asyncio.get_running_loop()
        loop.call_soon(self.coordination.feed_member, report)
        if isinstance(report, TaskReported) and report.state == TaskState.FAILED and self._exits_on_failure:
            loop.call_soon(self.exit, 1, f"{report.task} failed: {report.why}")

    def letters_left(self, task: str, grant: int) -> Sequence[c.LetterMark]:
        """See `runtime.Job`."""
        said = {
            number: one for number, one in self.coordination.member.view.job.letters(task).items() if number < grant
        }
        return said[max(said)].marks if said else ()

    async def say_letters(self, task: str, grant: int, marks: Sequence[c.LetterMark]) -> None:
        """See `runtime.Job`."""
        await self.coordination.member_edge.say(c.SetLetters(task, grant, tuple(marks)))

    def producer_lost(self, lost: mw.ProducerLost) -> None:
        """See `runtime.Job`. The member decides what follows."""
        self.coordination.feed_member(lost)

    # -------------------------------------------------------------------------------------------------- who takes settings

    def _pace(self) -> None:
        committing = self.producers.committing
        if committing is not None:
            committing.pace(self._settings.seconds("commit.interval"))

    def _tell_tasks(self) -> None:
        for actor in list(self.actors.values()):
            actor.take_settings()

    def _trace(self) -> None:
        """A worker that is to trace from its start, and cannot, does not start. One that works already works on."""
        share, propagates = self._settings.value("trace.sample"), self._settings.value("trace.propagate")
        try:
            self.runtime.traces.take(share, propagates=propagates)
        except EnvironmentFault as error:
            if not self._started:
                raise
            log.error("nothing is traced", why=error.what, to_do=error.remedy)

    def _judge(self) -> None:
        self._exits_on_failure = self._settings.text("failure.policy") == "exit"
        before, self._look_s = self._look_s, self._settings.seconds(LOOK)
        if self._look_s != before:
            self.coordination.look()
