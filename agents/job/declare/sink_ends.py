"""Batches that end in a sink, without Spark: a table of a database, files, a sink of the user's own.

Promises: what a sink cannot keep is refused at the line that declares it: a key of rows that several tasks may write, a policy that a sink
cannot follow, columns that are not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any, Literal

from ....core.batching.publishing import declared_write
from ....core.batching.spark_schema import check_column
from ....core.errors import DeclarationError
from ....core.secrets import masked
from ...sinks.databases import ONE_WRITER, connecting, database_of
from ...sinks.files import FORMATS, SCHEMES
from ...sinks.sink import Sink
from ...sinks.sql import APPEND, MODES, UPSERT, SqlSink, SqlTable
from ..derive.batch_columns import columns_of_batch
from ..steps.batches import BatchStep, DeliverStep, WriteStep
from ..steps.sources import InputStep, ShuffleStep
from ..steps.step import Policy, Step
from .batches import batch
from .checks import check_policy, name_of
from .declaring import Declaring, added
from .ends import Ended

MAX_ROWS = 10_000
"""Rows of a batch, unless the verb says otherwise. PostgreSQL took 56, 193 and 187 thousand rows a second by upsert, and 143, 557 and 452
by append, in batches of 1,000, 10,000 and 50,000."""
MAX_AGE = "1s"
MAX_ROWS_OF_FILES = 1_000_000
MAX_AGE_OF_FILES = "1m"
"""Each batch makes at least one file."""


class EndsInSinks(Declaring):
    """What a stream of rows or of columns can end in besides Kafka."""

    _columns: Any = None

    def to_sql(
        self,
        url: str,
        table: str,
        *,
        key: str | Sequence[str] = (),
        mode: Literal["upsert", "append"] | None = None,
        order: Literal["key", "any"] = "key",
        rows: Any = None,
        max_rows: int = MAX_ROWS,
        max_age: str | float = MAX_AGE,
        name: str | None = None,
        on_error: Policy = None,
    ) -> Ended:
        """Write rows to a table of PostgreSQL, SQLite or DuckDB, once in effect. Needs `headgate[sql]`.

        >>> orders.repartition("id").to_sql("postgresql://me@db/sales", "orders", key="id")

        With a `key`, a row replaces the earlier one of its key (`mode="upsert"`), otherwise rows are appended. All rows of a key must go
        through one task: the key contains the field by which the stream is partitioned, or `order="any"` says that it does not matter
        which of two rows comes last. A table that is missing is created. A batch has `max_rows`, or what has come in `max_age`. `rows` is
        the class of the fields, where they are not known. `on_error` decides about rows that the database refuses.
        """
        where = f"to_sql('{table}')"
        database = database_of(url)
        names = (key,) if isinstance(key, str) else tuple(key)
        made = mode if mode is not None else UPSERT if names else APPEND
        if made not in MODES or (made == UPSERT) != bool(names) or not isinstance(table, str) or not table:
            raise DeclarationError(
                f"{where}: mode={mode!r} with key={key!r}",
                remedy='key="id" replaces the rows of a key (mode="upsert"); without a key, rows are appended (mode="append")',
            )
        if order not in ("key", "any"):
            raise DeclarationError(f"{where}: order={order!r}", remedy='"key" or "any"')
        step = _batch(self, where, name or f"sql-{table.replace('_', '-')}", rows, max_rows, max_age)
        for one in names:
            check_column(one, step.columns.names, f"{where}: key={key!r}")
        if made == UPSERT and order == "key":
            _check_order(self.step, names, where)
        into = SqlTable(url, table, step.columns, names, made)
        make = partial(SqlSink, into, connecting(database))
        writer = f" ({database}: one writer at a time)" if database in ONE_WRITER else ""
        step.deliver(f"{masked(url)} {table}{writer}", make, on_error, transactional=True)
        return Ended("to_sql()")

    def to_files(
        self,
        path: str | PathLike[str],
        *,
        format: Literal["parquet", "orc"] = "parquet",
        partition_by: str | Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        rows: Any = None,
        max_rows: int = MAX_ROWS_OF_FILES,
        max_age: str | float = MAX_AGE_OF_FILES,
        name: str | None = None,
        on_error: Policy = None,
    ) -> Ended:
        """Write rows to files in a directory, once in effect, without Spark; `hg.published(path)` gives the files of whole batches.

        >>> orders.to_files("s3://lake/orders", partition_by="country", max_age="5m")

        `path` is an absolute path or a URI that pyarrow can write to (`s3`, `gs`, `abfs`, `hdfs`), with the credentials of the worker's
        environment. `options` go to pyarrow's Parquet writer. The other arguments are those of `to_sql`.
        """
        if format not in FORMATS:
            raise DeclarationError(f"to_files(format={format!r})", remedy=f"one of {', '.join(FORMATS)}")
        if format == "orc" and options:
            raise DeclarationError("to_files(options=…) with format='orc'", remedy="options are those of Parquet")
        target = declared_write(path, format, (), None).path
        if target.partition(":")[0] not in SCHEMES:
            raise DeclarationError(
                f"to_files({path!r}): pyarrow does not write there",
                remedy=f"one of {', '.join(SCHEMES)}; or .spark(…).write(…)",
            )
        last = target.rpartition("/")[2]
        step = _batch(self, f"to_files('{last}')", name or "files-" + _plain(last), rows, max_rows, max_age)
        write = declared_write(path, format, partition_by, None, step.columns.names)
        write = replace(write, options=tuple(sorted((options or {}).items())))
        delivered = step.deliver(target, _no_sink, on_error, transactional=True)
        added(self, WriteStep, parents=(delivered,), write=write)
        return Ended("to_files()")

    def to_sink(
        self,
        sink: type[Sink],
        /,
        *,
        rows: Any = None,
        max_rows: int = MAX_ROWS,
        max_age: str | float = MAX_AGE,
        name: str | None = None,
        on_error: Policy = None,
        **args: Any,
    ) -> Ended:
        """Write batches of rows with a sink of your own, a subclass of `hg.Sink`; each task makes one with `args`.

        >>> orders.to_sink(Webhook, url="https://example.com/orders", max_rows=500)

        It is at least once, unless the class says that it is `transactional`. A batch comes again with the same id and the same rows.
        """
        if not (isinstance(sink, type) and issubclass(sink, Sink)):
            raise DeclarationError(
                f"to_sink({sink!r:.80})", remedy="a subclass of hg.Sink; its arguments follow by name"
            )
        policy = on_error or self.app.on_error
        if not sink.transactional and policy != "fail" and on_error is not None:
            raise DeclarationError(
                f"to_sink({sink.__name__}, on_error={on_error!r}): which rows are refused is found by writing parts of a batch, "
                "and this sink does not undo what it has written",
                remedy="let the sink itself leave such rows out, or make it transactional",
            )
        step = _batch(self, f"to_sink({sink.__name__})", name or sink.__name__, rows, max_rows, max_age)
        step.deliver(sink.__name__, partial(sink, **args), on_error, transactional=sink.transactional)
        return Ended("to_sink()")


class _batch:
    """The batches of a verb, with the columns that they have."""

    def __init__(self, of: EndsInSinks, where: str, name: str, rows: Any, max_rows: int, max_age: str | float) -> None:
        if of._columns is not None:
            of._columns.alone(where.partition("(")[0] + "()")
        schema = None if of._columns is None else of._columns.schema
        self._of = of
        self._name = name_of("sink", None, name)
        self._step: BatchStep = batch(of, max_rows, None, max_age, f"{self._name}-batches", schema, for_sink=True)
        self.columns = columns_of_batch(self._step, rows, where)

    def deliver(self, target: str, make: Callable[[], Any], on_error: Policy, *, transactional: bool) -> DeliverStep:
        """Pass them to a sink."""
        policy = check_policy(on_error, f"{self._name}(on_error)")
        return added(
            self._of,
            DeliverStep,
            parents=(self._step,),
            name=self._name,
            rows=self.columns,
            make=make,
            target=target,
            transactional=transactional,
            on_error=policy,
        )


def _plain(text: str) -> str:
    """A text with nothing but what the name of a step may have."""
    return "".join(one if one.isascii() and one.isalnum() else "-" for one in text)


def _no_sink() -> Any:
    raise AssertionError("files are written without a sink")


def _check_order(step: Step, key: tuple[str, ...], where: str) -> None:
    """Refuse a key whose rows may go through several tasks."""
    field = partitioned_by(step)
    if field == "" or field in key:
        return
    known = "it is not known by which field the stream is partitioned" if field is None else f"it is '{field}'"
    raise DeclarationError(
        f"{where}: key={list(key)} does not contain the field by which the stream is partitioned ({known}), so several tasks may write the "
        "same row, and no one knows which comes last",
        remedy=f'.repartition("{key[0]}") before it, an input with key="{key[0]}", or order="any" if it does not matter',
    )


def partitioned_by(step: Step) -> str | None:
    """The field that says to which task a row goes; empty if all rows go to one; None if it is not known."""
    if isinstance(step, ShuffleStep):
        if step.gathers:
            return ""
        if step.everyone:
            return None
        if step.by is not None:
            return step.by if isinstance(step.by, str) else None
    if isinstance(step, InputStep):
        return step.key if isinstance(step.key, str) else None
    found = {partitioned_by(one) for one in step.parents}
    return found.pop() if len(found) == 1 else None
