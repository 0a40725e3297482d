"""Which rights a job needs at the brokers: every operation on every topic, group and transactional id, and what for.

Promises:

- The list depends on the declared job alone, so it can be asked for before anything exists, by someone who has no rights at all.
- It holds what the workers use, and nothing more. What Kafka derives by itself is left out: reading, writing, deleting and altering include
  describing, and who may write to some topic may write idempotently.
- Topics are named one by one. A transactional id contains its worker and incarnation, so its right is for a prefix.

Topics that user code names while it runs (`ctx.emit` to a computed name) are not known here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..names import JobName, Topics, TransactionalId
from .graph import Graph

TOPIC, GROUP, TRANSACTIONAL_ID = "topic", "group", "transactional-id"
READ, WRITE, CREATE, DELETE, ALTER, CONFIGS = "Read", "Write", "Create", "Delete", "Alter", "DescribeConfigs"


@dataclass(frozen=True, slots=True)
class Right:
    """Operations on some resources of one kind.

    >>> Right(GROUP, ("sales-1",), (READ,), "shows positions").arguments()
    ['--operation', 'Read', '--group', 'sales-1']
    """

    resource: str
    names: tuple[str, ...]
    operations: tuple[str, ...]
    why: str
    prefixed: bool = False
    """Whether a name stands for all names that begin with it."""

    def arguments(self) -> list[str]:
        """The words for `kafka-acls.sh` that name operations and resources."""
        words = [word for operation in self.operations for word in ("--operation", operation)]
        words += [word for name in self.names for word in (f"--{self.resource}", name)]
        return [*words, "--resource-pattern-type", "prefixed"] if self.prefixed else words


def rights(graph: Graph, topics: Topics, *, create: bool = True, outputs: bool = False) -> list[Right]:
    """The rights of the workers of a job. `create`: whether they may create its own topics, and give the task log of a job without state
    more partitions; without it, an administrator does both beforehand. `outputs`: whether they then create missing outputs, too.

    >>> names = [right.names for right in rights(Graph(), Topics(JobName("sales")))]
    >>> names[-2:]
    [('sales-1',), ('headgate.sales.1.',)]
    """
    made = (CREATE,) if create else ()
    grows = (ALTER,) if create and not graph.stateful else ()
    framed, shared = graph.intermediates, graph.shared
    between = (READ, WRITE, DELETE, CONFIGS, *made)
    found = [
        _topics(graph.input, (READ, CONFIGS), "reads its inputs, and shows its positions there"),
        _topics(framed, between, "sends rows from task to task, and deletes what was read"),
        _topics(graph.outputs, (WRITE, CONFIGS, *(made if outputs else ())), "writes its outputs"),
        _topics(shared, (WRITE, CONFIGS, *made), "writes the streams that it shares with other jobs"),
        _topics((topics.dead_letters,), (WRITE, CONFIGS, *made), "writes records that failed"),
        _topics((topics.log,), (READ, WRITE, CONFIGS, *made, *grows), "keeps tables and positions"),
        _topics((topics.coordinator, topics.heartbeat), (READ, WRITE, CONFIGS, *made), "coordinates its workers"),
        Right(GROUP, (topics.job.slug,), (READ,), "shows its positions to tools for lag"),
        Right(TRANSACTIONAL_ID, (transactional_prefix(topics.job),), (WRITE,), "writes in transactions", prefixed=True),
    ]
    return [right for right in found if right.names]


def transactional_prefix(job: JobName) -> str:
    """What all transactional ids of the job begin with: those of its leader, of its workers and of their probes.

    >>> transactional_prefix(JobName("a.b", "2"))
    'headgate.a%2Eb.2.'
    """
    return str(TransactionalId(job)).removesuffix("leader")


def _topics(names: Iterable[str], operations: tuple[str, ...], why: str) -> Right:
    return Right(TOPIC, tuple(sorted(names)), operations, why)
