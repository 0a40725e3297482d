"""Which topics no one but their job writes records to: one check for jobs and for tools, for declared names and for computed ones.

What it decides: a topic is closed if it is one of headgate or of Kafka itself, if its name is kept for the streams of a job, or if it holds
frames: a record that is no frame would stop every job that reads it. Jobs are refused names that others may come to use. For tools only
what is there counts, and that is known from the models: a name alone does not make a topic a job's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from .names import JobName, Topics, kept_by_others, of_headgate, of_kafka

NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ClosedTopics:
    """What someone who writes knows of the jobs on the cluster."""

    job: Topics | None = None
    """The job that writes; None: a person with a tool."""
    kept: Collection[JobName] = ()
    """Other jobs, whose names are kept for their streams."""
    framed: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """The streams that hold frames, each with a job that writes it."""
    owned: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """Other topics that belong to a job, each with it."""

    def closed(self, topic: str) -> str:
        """Why no records may be written to this topic; empty if they may.

        >>> ClosedTopics(framed={"priced": "pricing/1"}).closed("priced")
        "it holds the frames of the job 'pricing/1', and any other record would stop every job that reads it"
        >>> ClosedTopics().closed("sales-1-orders"), ClosedTopics(Topics(JobName("sales"))).closed("sales-1-orders")
        ('', "names that begin with 'sales-1-' are kept for the job's own streams")
        """
        if topic in self.framed:
            return f"it holds the frames of the job '{self.framed[topic]}', and any other record would stop every job that reads it"
        if topic in self.owned:
            return f"it belongs to the job '{self.owned[topic]}'"
        if self.job is not None and (why := self.job.kept(topic, written=True)):
            return why
        if of_headgate(topic):
            return "it is a topic of headgate itself"
        if of_kafka(topic):
            return "it is a topic of Kafka itself"
        prefix = "" if self.job is None else self.job.prefix
        keeper = kept_by_others(topic, self.kept, prefix)
        if keeper is None:
            return ""
        return f"names that begin with '{Topics(keeper, prefix).own}' are kept for the streams of the job '{keeper}'"
