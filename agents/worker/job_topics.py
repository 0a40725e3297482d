"""The topics of one job: which must exist, with which settings, and the widths and limits of the others.

Inputs are only looked up. The job's own topics are created; where that is not permitted, an error names the commands that do it. A
missing output is an error with the command that creates it, since its name may be mistyped. With `topic.create-outputs` it is created with
as many partitions as the widest input, and logged; a client would let the broker create it with one partition. Nothing is created for a job
whose inputs or outputs are refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from ...core.errors import DeclarationError, EnvironmentFault
from ...core.graph.model import JobModel
from ...core.names import JobName, Topics, collision, jobs_in, kept_by_others, parse_internal
from ...core.settings import did_you_mean
from ...core.targets import ClosedTopics
from ..coordinator.job_states import framed_streams, states_of_all
from ..job.derive.declaration import Declared
from ..job.derive.patterns import matching
from ..job.derive.references import unfetched
from ..job.steps.ends import ShareStep
from ..kafka.connect import CONNECT_S
from ..kafka.port import KafkaPort
from ..kafka.settings import ClientSettings
from ..kafka.topics import (
    COORDINATOR,
    DEAD_LETTERS,
    HEARTBEAT,
    INTERMEDIATE,
    SHARED,
    TASK_LOG,
    Difference,
    ExistingTopic,
    TopicsAdmin,
    TopicSpec,
    departures,
)
from ..logger import Logger
from ..runtime.writing.outbox import Outbox
from .topic_defaults import TopicDefaults

log = Logger("headgate.topics")
LOOK_S = 1.0
"""How often a stream that another job creates is looked for."""
TO_COME = "waiting for streams that other jobs share; they create them when they start"
LARGE = {"max.message.bytes": str(8 << 20)}


class NotThere(EnvironmentFault):
    """What a job reads does not exist, so that the widths of its own topics are unknown."""


class JobTopics:
    """The topics of a job, as a worker knows them."""

    def __init__(
        self,
        client: ClientSettings,
        declared: Declared,
        *,
        create_outputs: bool = False,
        defaults: TopicDefaults | None = None,
    ) -> None:
        """`defaults`: what the settings say of the topics that are created."""
        self.declared = declared
        self.create_outputs = create_outputs
        self._defaults = TopicDefaults() if defaults is None else defaults
        self._departed: set[Difference] = set()
        """What was named already."""
        self.names = declared.topics
        self.topics = TopicsAdmin(client)
        self._client = client
        self._known: dict[str, ExistingTopic] = {}
        self._named: set[str] = set()
        """Targets that user code named while it ran, or that were asked about because they had failed."""
        self.more: list[str] = []
        """The topics that match a pattern of the job and are no inputs of its code: they came after its run began."""
        self.away: list[str] = []
        """The inputs that match a pattern of the job and do not exist any more."""

    @classmethod
    def of(cls, client: ClientSettings, declared: Declared, value: Callable[[str], Any]) -> JobTopics:
        """The topics, as these settings would have them."""
        creates = bool(value("topic.create-outputs"))
        return cls(client, declared, create_outputs=creates, defaults=TopicDefaults.of(value))

    async def start(self) -> None:
        """Connect."""
        await self.topics.start()

    async def stop(self) -> None:
        """Close the client."""
        await self.topics.stop()

    def fixed(self) -> list[TopicSpec]:
        """The topics that every job has, whatever its tasks."""
        return [
            self._defaults.own(TopicSpec(self.names.coordinator, 1, COORDINATOR)),
            self._defaults.own(TopicSpec(self.names.heartbeat, 1, HEARTBEAT)),
            self._defaults.dead_letters(TopicSpec(self.names.dead_letters, 1, {**DEAD_LETTERS, **LARGE})),
        ]

    async def ensure_fixed(self) -> None:
        """Create or check them. Inputs must exist, except that a stream of another job is waited for; so must outputs, if the job is not to
        create them.
        """
        await self.refuse_names()
        if await self.streams_to_come():  # commands about this job find it while it waits
            await self._keep(self.fixed())
            await self._streams_of_others()
        await self.input_counts()
        if missing := await self.refuse_targets():
            await self._make_outputs(missing)
        await self._keep(self.fixed())
        await self._look_at_the_rest()

    async def _make_outputs(self, missing: list[str]) -> None:
        """Create outputs, or refuse to."""
        width = widest(self._counts())
        if not self.create_outputs:
            raise no_outputs(missing, width)
        log.warning("output topics are created", topics=missing)
        self._known |= await self.topics.ensure(self._output(topic, width) for topic in missing)

    async def refuse_names(self) -> None:
        """Refuse names of topics that another job on the cluster uses or keeps. `headgate plan` asks the same."""
        there = await self.topics.names()
        self._alone(there)
        graph = self.declared.graph
        self._refuse({*graph.outputs, *graph.shared}, ClosedTopics(self.names, kept=self._others(there)))

    async def refuse_targets(self) -> list[str]:
        """Refuse inputs and outputs that are there and cannot be used so. Returns the missing outputs. `headgate plan` asks the same, after
        `input_counts`.
        """
        self._refuse_compacted()
        found = await self.topics.find(self.declared.graph.outputs)  # of one that is an input, too, the same is asked
        await self._refuse_framed(found)
        self._known |= found
        if self.create_outputs:
            self._name_departures([self._output(name, one.partitions) for name, one in found.items()], found)
        return sorted(self.declared.graph.outputs - found.keys())

    def _refuse_compacted(self) -> None:
        """Refuse batches by reference of a compacted topic: the records of a range would not be the same at each attempt."""
        for topic, step in unfetched(self.declared.steps).items():
            if topic in self._known and "compact" in self._known[topic].config.get("cleanup.policy", ""):
                raise EnvironmentFault(
                    f"the topic '{topic}' is compacted, and batch '{step.name}' ({step.where}) is by reference to its offsets",
                    remedy="leave out by='reference': a record that compaction removes would be missing when the batch runs again",
                )

    async def _streams_of_others(self) -> None:
        """Wait until the streams that other jobs share exist: those jobs create them, and may start later."""
        logged = False
        while missing := await self.streams_to_come():
            if not logged:
                logged = True
                log.warning(TO_COME, streams=missing)
            await asyncio.sleep(LOOK_S)

    async def streams_to_come(self) -> dict[str, str]:
        """The streams of other jobs that do not exist yet, each with its jobs."""
        jobs = {one.stream: one.producers for one in self.declared.graph.inputs if one.producers}
        there = await self.topics.find(jobs)
        return {stream: ", ".join(jobs[stream]) for stream in sorted(jobs.keys() - there.keys())}

    def _others(self, there: Iterable[str]) -> list[JobName]:
        """The other jobs on the cluster."""
        return [job for job in jobs_in(there, self.names.prefix) if job.safe != self.names.job.safe]

    def _refuse(self, targets: Iterable[str], known: ClosedTopics) -> None:
        """Refuse targets that are closed to this job."""
        for topic in sorted(targets):
            if why := known.closed(topic):
                shared = "; or share(…) there, too, and name both jobs in producers= where it is read"
                raise DeclarationError(
                    f"the job '{self.names.job}' cannot write '{topic}': {why}",
                    remedy=f"write to a topic of another name{shared if topic in known.framed else ''}",
                )

    async def _refuse_framed(self, targets: Mapping[str, ExistingTopic]) -> None:
        """Refuse targets that another job shares: a record that is no frame would stop every job that reads them. Only topics with the
        settings of shared streams are looked for in the models of all jobs.
        """
        marks = SHARED.items()
        suspects = [name for name, one in targets.items() if marks <= one.config.items()]
        if not suspects:
            return
        states = await states_of_all(KafkaPort(self._client), self.topics.names, self.names.prefix, within_s=CONNECT_S)
        others = {name: job for name, job in framed_streams(states).items() if job != str(self.names.job)}
        self._refuse(suspects, ClosedTopics(self.names, framed=others))

    def _alone(self, there: Iterable[str]) -> None:
        """Refuse to start if another job on this cluster uses a topic of this one, judging by names. (The coordinator stream itself names
        its job.)
        """
        steps = [step.name for step in self.declared.sources.values() if not step.foreign]
        for name in there:
            found = parse_internal(name, prefix=self.names.prefix)
            if found is None or found[1].safe == self.names.job.safe:
                continue
            if topic := collision(self.names, Topics(found[1], self.names.prefix), own_steps=steps):
                raise DeclarationError(
                    f"the job '{self.names.job}' would share the topic '{topic}' with the job '{found[1]}'",
                    remedy="give this job another name or id, or the step another name",
                )

    async def _keep(self, specs: list[TopicSpec]) -> None:
        found = await self.topics.ensure(specs)
        self._known |= found
        self._name_departures(specs, found)

    def departures(self, specs: Iterable[TopicSpec], found: Mapping[str, ExistingTopic]) -> list[Difference]:
        """What of these topics is not as the settings say. They are used as they are."""
        return [one for spec in specs if spec.name in found for one in departures(spec, found[spec.name], self._client)]

    async def _look_at_the_rest(self) -> None:
        """Name departures of the topics that a leader creates, which it asks about only when it gives the job a model."""
        specs = [spec for spec in self._of_a_model() if spec.preferred or spec.replication > 0]
        found = await self.topics.find([spec.name for spec in specs])
        self._name_departures(specs, found)

    def _name_departures(self, specs: Iterable[TopicSpec], found: Mapping[str, ExistingTopic]) -> None:
        """Name what of these topics is not as the settings say, each once."""
        for one in self.departures(specs, found):
            if one not in self._departed:
                self._departed.add(one)
                log.warning("a topic is not as the settings say", topic=one.topic, what=one.what, todo=one.remedy)

    async def input_counts(self) -> dict[str, int]:
        """The current number of partitions of each input. A missing input is an error."""
        names = sorted(self.declared.graph.input)
        found = await self.topics.find(names)
        self._known |= found
        missing = [name for name in names if name not in found]
        self._gone([name for name in missing if self.declared.inputs[name].matched])
        if missing := [name for name in missing if name not in self.away]:
            there = others_topics(await self.topics.names(), self.names.prefix)
            raise NotThere(
                f"the input topic{'s' * (len(missing) > 1)} {' and '.join(map(repr, missing))} "
                f"do{'es' * (len(missing) == 1)} not exist",
                remedy="\n  ".join(self._instead(name, there) for name in missing),
            )
        return {name: found[name].partitions for name in names if name in found}

    async def counts_of(self, names: Collection[str]) -> dict[str, int]:
        """The current number of partitions of those of these topics that exist, after `input_counts`."""
        found = await self.topics.find(sorted(names))
        self._known |= found
        return {name: one.partitions for name, one in found.items()}

    def _gone(self, missing: list[str]) -> None:
        """Topics of a pattern do not exist any more. The others are read on, so this is no error of the job."""
        before, self.away = self.away, missing
        if new := sorted(set(missing) - set(before)):
            log.warning(
                "topics of a pattern do not exist any more",
                topics=new,
                todo=f"headgate drain {self.names.job}, and start it again, which leaves them out; if they are made again, on_lost= of the "
                "input decides",
            )

    async def more_counts(self) -> dict[str, int]:
        """The partitions of the topics that match a pattern and are no inputs of this code: they came after the run began."""
        declared = self.declared
        if not declared.patterns:
            return {}
        there, steps = await self.topics.names(), declared.steps
        wanted = {topic for one in declared.patterns for topic in matching(one, there, steps, self.names)}
        found = await self.topics.find(sorted(wanted - declared.inputs.keys()))
        self.more = sorted(found)
        self._known |= found
        return {name: one.partitions for name, one in found.items()}

    async def output_counts(self) -> dict[str, int]:
        """The current number of partitions of each output that exists, after `input_counts`. One that is missing and not created by the job
        is an error.
        """
        found = await self.topics.find(self.declared.graph.outputs)
        missing = sorted(self.declared.graph.outputs - found.keys())
        if missing and not self.create_outputs:
            raise no_outputs(missing, widest(self._counts()))
        return {name: one.partitions for name, one in found.items()}

    def _counts(self) -> dict[str, int]:
        """What `input_counts` found."""
        return {name: self._known[name].partitions for name in self.declared.graph.input if name in self._known}

    def _instead(self, missing: str, there: list[str]) -> str:
        near = did_you_mean(missing, there) or "fix the name in app.input(…)."
        return (
            f"{near} Or create it, with N partitions, one per task: `headgate topics create {missing} --partitions N`"
        )

    def specs_for(self, model: JobModel | None, tasks: int) -> list[TopicSpec]:
        """The task log, the intermediate streams and the streams for other jobs, for a job model."""
        specs = [self._log(tasks)] if tasks else []
        if model is not None:
            specs += self._framed(model.widths)
        return specs

    def _framed(self, widths: Mapping[str, int]) -> list[TopicSpec]:
        """The intermediate streams, and those for other jobs."""
        graph = self.declared.graph
        kept = {step.topic: str(step.retention_ms) for step in self.declared.steps if isinstance(step, ShareStep)}
        between = dict.fromkeys(graph.writer, INTERMEDIATE)
        shared = {stream: {**SHARED, "retention.ms": kept[stream]} for stream in graph.shared}
        return [
            self._defaults.own(TopicSpec(stream, widths[stream], {**config, **LARGE}, shared=stream in shared))
            for stream, config in sorted({**between, **shared}.items())
            if stream in widths
        ]

    def all_specs(
        self, counts: Mapping[str, int], widths: Mapping[str, int], tasks: int
    ) -> tuple[list[TopicSpec], list[TopicSpec]]:
        """Every topic of the job before it runs: its own topics, and its outputs as they would be created."""
        own = [*self.fixed(), self._log(tasks)]
        outputs = [self._output(name, widest(counts)) for name in sorted(self.declared.graph.outputs)]
        return own + self._framed(widths), outputs

    def specs_of_unknown_width(self) -> list[TopicSpec]:
        """All topics of the job while inputs do not exist, its inputs first. Who creates them by hand gives the number of partitions."""
        graph = self.declared.graph
        others = {one.stream for one in graph.inputs if one.producers}
        inputs = [name for name in sorted(graph.input) if name not in others and not self.declared.inputs[name].matched]
        return [
            *(self._defaults.own(TopicSpec(name, 0)) for name in inputs),
            *self.fixed(),
            *self._of_a_model(),
            *(self._output(name, 0) for name in sorted(graph.outputs - set(inputs))),
        ]

    def _of_a_model(self) -> list[TopicSpec]:
        """What a leader creates, with a model of unknown width."""
        return [
            self._log(0),
            *self._framed(dict.fromkeys({*self.declared.graph.writer, *self.declared.graph.shared}, 0)),
        ]

    def _log(self, tasks: int) -> TopicSpec:
        """The task log. It grows with the tasks of a job without state; those of a job with state are fixed."""
        grows = not self.declared.graph.stateful
        return self._defaults.own(TopicSpec(self.names.log, tasks, {**TASK_LOG, **LARGE}, grows=grows))

    def _output(self, name: str, width: int) -> TopicSpec:
        """An output as it is created. Who makes it a moment before may choose another width."""
        return self._defaults.output(TopicSpec(name, width, any_width=True))

    async def ensure_for(self, model: JobModel | None, tasks: int) -> None:
        """Create or check the topics for this model."""
        await self._keep(self.specs_for(model, tasks))

    def _targets(self) -> set[str]:
        """What the outboxes write to: the job's own topics, what it declares, and what user code has named."""
        graph = self.declared.graph
        return {self.names.dead_letters, self.names.log, *graph.outputs, *graph.framed, *self._named}

    async def learn(self, outbox: Outbox | None) -> None:
        """Tell an outbox all targets of this job."""
        if outbox is None:
            return
        wanted = self._targets()
        unknown = [name for name in wanted if name not in self._known]
        if unknown:
            self._known |= await self.topics.find(unknown)
        for name in wanted:
            if name in self._known:
                _tell(outbox, self._known[name])

    async def learn_one(self, producers: Iterable[Outbox | None], topic: str) -> None:
        """Tell the outboxes about a target that user code names while it runs, or that has failed. If it does not exist, it is created or
        refused as other outputs are. What the job declares or keeps for itself was judged before it began.
        """
        found = await self.topics.find([topic])
        if topic not in self._targets():  # an input is known, and may be another job's stream all the same
            self._refuse([topic], ClosedTopics(self.names, kept=self._others(await self.topics.names())))
            await self._refuse_framed(found)
        if topic not in found:
            await self._make_outputs([topic])
        self._known |= found
        self._named.add(topic)
        for producer in producers:
            if producer is not None:
                _tell(producer, self._known[topic])

    async def width(self, topic: str) -> int:
        """How many partitions a topic has; 0 if there is no such topic."""
        found = await self.topics.find([topic])
        return found[topic].partitions if topic in found else 0

    def limit(self, topic: str) -> int | None:
        """The topic's max.message.bytes, if known."""
        return self._known[topic].limit if topic in self._known else None

    def kept_ms(self, topic: str) -> int | None:
        """How old the topic's records may be when they are written; None if that is unknown, or any."""
        rules = self._known[topic].rules if topic in self._known else None
        return None if rules is None else rules.kept_ms

    async def check_widths(self, widths: Mapping[str, int]) -> None:
        """Check that the job's own streams have as many partitions as its model says. A stream that was widened or created again by hand is
        an error: its writers and its readers would map the same key to different partitions.
        """
        found = await self.topics.find(widths)
        for name, width in sorted(widths.items()):
            if name in found and found[name].partitions != width:
                says = f"the topic '{name}' has {found[name].partitions} partitions, and the job's model says {width}"
                if name in self.declared.graph.shared:
                    raise EnvironmentFault(
                        says,
                        remedy=f'drain the job, then declare .share("{name}", partitions={found[name].partitions}), here and in '
                        "every other job that shares it; the jobs that read it read the new partitions from their next run",
                    )
                again = TopicSpec(name, width, {**INTERMEDIATE, **LARGE})
                raise EnvironmentFault(
                    says,
                    remedy="if it holds no unread records (the job was drained), delete it and create it again; otherwise "
                    f"run `headgate reset`: {self._defaults.own(again).command(self._client)}",
                )


def widest(counts: Mapping[str, int]) -> int:
    """The number of partitions for a new output: that of the widest input.

    >>> widest({"orders": 3, "rates": 1})
    3
    """
    return max(counts.values(), default=1)


def no_outputs(missing: list[str], partitions: int) -> EnvironmentFault:
    """Missing outputs, as an error with the command that creates them.

    >>> print(no_outputs(["totals"], 3).remedy)
    `headgate topics create totals --partitions 3`, or let the job create what is missing: topic.create-outputs=true
    """
    one = len(missing) == 1
    return EnvironmentFault(
        f"the output topic{'' if one else 's'} {' and '.join(map(repr, missing))} do{'es' if one else ''} not exist",
        remedy=f"`headgate topics create {' '.join(missing)} --partitions {partitions}`, or let the job create what is missing: "
        "topic.create-outputs=true",
    )


def _tell(outbox: Outbox, found: ExistingTopic) -> None:
    outbox.know(found.name, found.partitions, found.limit, found.rules)


def others_topics(topics: Iterable[str], prefix: str) -> list[str]:
    """The topics that may be inputs: neither internal ones nor those that headgate has made for a job on this cluster.

    >>> others_topics(["orders", "sales-1-dead-letters", "sales-1-by-user", "__headgate_coordinator_sales_1", "sales-2"], "")
    ['orders', 'sales-2']
    """
    names = list(topics)
    jobs = jobs_in(names, prefix)
    return [name for name in names if not name.startswith("__") and kept_by_others(name, jobs, prefix) is None]
