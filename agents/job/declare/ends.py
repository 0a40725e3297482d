"""What a chain of verbs can end in: a topic, a stream for other jobs, a table.

Promises: a declaration is checked at its own line, in the words of its verb.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ....core.errors import DeclarationError, UnknownName
from ....core.words import VIEW
from ...records.values.serdes import OUTPUT_KEY
from ...records.values.serdes import key as own_key
from ..derive.result_fields import check_field, check_written
from ..steps.ends import ShareStep, SinkStep, ToStep
from ..steps.keyed import TableStep, WindowStep
from ..steps.sources import shuffles_before
from ..steps.step import Step, lineage
from ..types.arguments import check_function, check_selector, duration
from ..types.windows import window_key
from .checks import (
    Selector,
    check_migrate,
    check_output_key,
    check_partitions,
    check_policy,
    check_topic,
    table_name_of,
)
from .declaring import Declaring, added, serde_for
from .refused_verbs import RefusesVerbs

if TYPE_CHECKING:
    from ....core.columns.schema import ColumnSchema
    from ...records.columns.batch import Batch
    from ...records.values.record import Record
    from ...records.values.serdes import Serde
    from ..steps.step import Policy
    from ..types.schemas import Migrate

K = TypeVar("K")
V = TypeVar("V")
MIN_RETENTION_MS = 3_600_000


class Ended(RefusesVerbs):
    """What `to`, `share`, `sink` and `write` return: nothing can follow it. To write *and* continue, use the stream before it twice."""

    def __init__(self, verb: str) -> None:
        self._verb = verb

    def _refused(self, verb: str) -> UnknownName:
        return UnknownName(
            f".{verb}() cannot follow {self._verb}, which has no output",
            remedy="keep the stream before it in a variable, and use it twice",
        )


class TableView(Declaring, Generic[K, V]):
    """A table that follows a stream. Join with it, or read it in an actor."""

    KIND = VIEW
    step: TableStep

    @property
    def name(self) -> str:
        """The table's name."""
        return self.step.name

    def __repr__(self) -> str:
        return f"<table {self.step.name} of {self.app.name}>"


class EndsOfRows(Declaring, Generic[K, V]):
    """What a stream of rows can end in."""

    def table(
        self,
        name: str,
        *,
        broadcast: bool = False,
        key_serde: Serde[Any] | None = None,
        serde: Serde[Any] | None = None,
        ttl: str | float | None = None,
        migrate: Migrate | None = None,
        on_error: Policy = None,
    ) -> TableView[K, V]:
        """The last value of each key; a null value deletes the key. `broadcast=True` keeps a copy of the whole table on every worker."""
        shuffles = shuffles_before(self.step)
        if broadcast and shuffles and not shuffles[-1].everyone:
            raise DeclarationError(
                f"table('{name}', broadcast=True) after repartition: each task gets only its part",
                remedy=f'put .broadcast("{name}-everywhere") before the table',
            )
        step = added(
            self,
            TableStep,
            name=table_name_of(name),
            key_serde=serde_for(self, key_serde, "table(key_serde", self.app.key_serde),
            serde=serde_for(self, serde, "table(serde"),
            broadcast=broadcast,
            ttl_ms=duration(ttl, f"table('{name}'): ttl") if ttl is not None else None,
            migrate=check_migrate(migrate, f"table('{name}')"),
            on_error=check_policy(on_error, f"table('{name}', on_error)"),
        )
        return TableView(self.app, step)

    def to(
        self,
        topic: str,
        *,
        key: Selector | None = None,
        serde: Serde[Any] | None = None,
        key_serde: Serde[Any] | None = None,
        partition: Callable[[Record[K, V]], int] | None = None,
        on_error: Policy = None,
    ) -> Ended:
        """Write to an output topic, exactly once.

        Without `key`, the record's own key is written. `key=hg.window_key`, behind a window that says `at_end=`, is the record's key and
        the start of its window: a compacted topic then keeps a result for each. The partition is the one that Kafka's Java client
        would choose, unless `partition(record)` says otherwise.
        """
        check_topic(topic, "to")
        if key is window_key:
            _check_behind_window(self.step, topic)
            _check_keyed_by_window(self.step, topic)
            key_serde = key_serde if key_serde is not None else own_key()
        elif key is not None:
            check_selector(key, f"to('{topic}', key=…)")
            check_field(self.step, key, f"to('{topic}', key={key!r})")
        if partition is not None:
            check_function(partition, f"to('{topic}', partition=…)", signature="(record)")
        serde = serde_for(self, serde, f"to('{topic}', serde", self.app.serde)
        check_written(self.step, serde, f"to('{topic}')")
        if key_serde is None and self.app.output_key_serde.name == OUTPUT_KEY:
            check_output_key(self.step, key, topic)
        key_serde = serde_for(self, key_serde, f"to('{topic}', key_serde", self.app.output_key_serde)
        return ended(self, topic, on_error, key=key, serde=serde, key_serde=key_serde, partition=partition)

    def share(
        self,
        topic: str,
        *,
        retention: str | float = "7d",
        key: Selector | None = None,
        partitions: int | None = None,
        serde: Serde[Any] | None = None,
        key_serde: Serde[Any] | None = None,
        on_error: Policy = None,
    ) -> Ended:
        """Write a stream for other headgate jobs, exactly once, with watermarks and end of stream: another job reads it by
        `app.input(topic, producers=["this-job"])` as if it were one job with this one.

        The topic holds frames, not plain records: what is no headgate job should read a `.to(…)` beside it. Kafka deletes what is older
        than `retention`, whether it was read or not. Without `key`, the record's own key is written, and each record goes to the partition
        of its key. `partitions` is the number of partitions of the topic: by default that of the widest stream behind it.
        """
        own = serde_for(self, serde, f"share('{topic}', serde")
        keys = serde_for(self, key_serde, f"share('{topic}', key_serde", self.app.key_serde)
        return share(self, topic, retention, key, partitions, own, keys, on_error)

    def sink(self, fn: Callable[[Batch[K, V]], Any], *, on_error: Policy = None) -> Ended:
        """Call `fn(batch)` with each chunk, at least once. `batch.meta["id"]` is the same when a chunk is tried again; after a crash the
        records may be cut into other chunks, so write by a key of the rows."""
        check_function(fn, "sink", signature="(batch)", awaits=True)
        added(self, SinkStep, fn=fn, on_error=check_policy(on_error, "sink"))
        return Ended("sink()")


def ended(of: Declaring, topic: str, on_error: Policy, **given: Any) -> Ended:
    """The end `.to(…)`, of rows or of columns, once it is checked."""
    added(of, ToStep, topic=topic, on_error=check_policy(on_error, f"to('{topic}', on_error)"), **given)
    return Ended(f"to('{topic}')")


def share(
    of: Declaring,
    topic: str,
    retention: str | float,
    key: Selector | None,
    partitions: int | None,
    serde: Serde[Any],
    key_serde: Serde[Any],
    on_error: Policy,
    schema: ColumnSchema | None = None,
) -> Ended:
    """The end `.share(…)`, of rows or of columns. Its arguments are those of the verb."""
    check_topic(topic, "share")
    if key is not None:
        check_selector(key, f"share('{topic}', key=…)")
        check_field(of.step, key, f"share('{topic}', key={key!r})")
    check_written(of.step, serde, f"share('{topic}')")
    check_partitions(partitions, f"share('{topic}', ")
    kept_ms = duration(retention, f"share('{topic}'): retention")
    if kept_ms < MIN_RETENTION_MS:
        raise DeclarationError(
            f"share('{topic}', retention={retention!r}) would delete records before other jobs can read them",
            remedy='at least an hour, and longer than a reading job may be stopped: retention="7d"',
        )
    added(
        of,
        ShareStep,
        topic=topic,
        key=key,
        serde=serde,
        key_serde=key_serde,
        retention_ms=kept_ms,
        partitions=partitions,
        schema=schema,
        on_error=check_policy(on_error, f"share('{topic}', on_error)"),
    )
    return Ended(f"share('{topic}')")


def _check_behind_window(step: Step, topic: str) -> None:
    """Refuse `hg.window_key` where there are no results of a window."""
    if not any(isinstance(one, WindowStep) for one in lineage((step,))):
        raise DeclarationError(
            f"to('{topic}', key=hg.window_key): no window stands before it, so its records have no window_start",
            remedy="put it behind .window(…).agg(…), or name a field of the value: key=…",
        )


def _check_keyed_by_window(step: Step, topic: str) -> None:
    """Refuse `hg.window_key` behind a window of which no one has said what becomes of it at an end.

    What an end or a drain closes may be opened again by the next run, from nothing: under the same key, its result replaces the first one.
    """
    steps, seen = [step], set[int]()
    while steps:
        one = steps.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if not isinstance(one, WindowStep):
            steps += one.parents
        elif not one.end_said:
            raise DeclarationError(
                f"to('{topic}', key=hg.window_key): a drain, or the end of a bounded run, closes what is open in '{one.name}' "
                f"({one.where}); the next run may open such a window again, from nothing, and its result overwrites the first one",
                remedy='window(…, at_end="keep"): windows stay open over drains and ends, and each gives one result of all its rows; '
                'window(…, at_end="close"): each run gives a result of its own rows, of which a compacted topic keeps the last',
            )
