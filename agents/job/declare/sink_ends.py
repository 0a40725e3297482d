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
from ....core.batching.spark_schema import ROWS, check_column
from ....core.columns.logical import DATE
from ....core.columns.schema import ColumnSpec
from ....core.errors import DeclarationError
from ....core.secrets import masked
from ...sinks.databases import ONE_WRITER, connecting, database_of
from ...sinks.files import FORMAT, SCHEMES, check_options
from ...sinks.own import check_sink
from ...sinks.sink import Sink
from ...sinks.sql import APPEND, MODES, UPSERT, SqlSink, SqlTable, check_types
from ..derive.batch_columns import columns_of_batch
from ..derive.keyed_rows import KeyOfRows, key_of_rows, names_of_values, takes_updates
from ..steps.batches import BatchStep, DeliverStep, WriteStep
from ..steps.step import Policy, Step
from .batches import batch
from .checks import check_policy, name_of
from .declaring import Declaring, added
from .ends import Ended
from .keeping import kept

SINK, FILES = "sink", "files"
"""The first part of the settings that limit a batch, unless the verb does."""


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
        max_rows: int | None = None,
        max_age: str | float | None = None,
        name: str | None = None,
        on_error: Policy = None,
    ) -> Ended:
        """Write rows to a table of PostgreSQL, SQLite or DuckDB, once in effect. Needs `headgate[sql]`.

        >>> orders.repartition("id").to_sql("postgresql://me@db/sales", "orders", key="id")

        With a `key`, a row replaces the earlier one of its key (`mode="upsert"`), otherwise rows are appended. All rows of a key must go
        through one task: the key contains the field by which the stream is partitioned, or `order="any"` says that it does not matter
        which of two rows comes last. If the values have no such field, as results of aggregates, it is made of the key of the record. A
        table that is missing is created. A batch has `max_rows`, or what has come in `max_age`; else the settings `sink.max-rows` and
        `sink.max-age` say so. `rows` is the class of the fields, where they are not known. `on_error` decides about rows that the database
        refuses.

        A file of SQLite has one writer at a time, for which the others wait. A file of DuckDB belongs to one process: the job has one
        worker, or its tasks fail.
        """
        where = f"to_sql('{table}')"
        database = database_of(url)
        names: tuple[Any, ...] = tuple(key) if isinstance(key, Sequence) and not isinstance(key, str) else (key,)
        if not isinstance(table, str) or not table:
            raise DeclarationError(
                f"to_sql(…, {table!r:.80})", remedy='the name of a table: "orders", or "sales.orders"'
            )
        if not all(isinstance(one, str) and one for one in names) or len(set(names)) < len(names):
            raise DeclarationError(
                f"{where}: key={key!r:.80} names no columns, or one twice",
                remedy='key="id", or key=("country", "day"); leave key out to append rows',
            )
        made = mode if mode is not None else UPSERT if names else APPEND
        if made not in MODES or (made == UPSERT) != bool(names):
            raise DeclarationError(
                f"{where}: mode={mode!r} with key={key!r}",
                remedy='key="id" replaces the rows of a key (mode="upsert"); without a key, rows are appended (mode="append")',
            )
        if order not in ("key", "any"):
            raise DeclarationError(f"{where}: order={order!r}", remedy='"key" or "any"')
        called = name or f"sql-{table.replace('_', '-')}"
        of = key_of_rows(self.app, self.step, names, rows, where) if names else None
        ordered = of is not None and order == "key"
        if of is not None and ordered:
            _check_order(self.step, of, names, where)
        step = _batch(self, where, called, rows, max_rows, max_age, SINK, of, names)
        check_types(step.columns, where)
        for one in names:
            check_column(one, step.columns.names, f"{where}: key={key!r}", ROWS)
        if of is not None and ordered and (why := of.refused(names, where)) is not None:
            raise why
        into = SqlTable(url, table, step.columns, names, made)
        make = partial(SqlSink, into, connecting(database))
        writer = f" ({database}: one writer at a time)" if database in ONE_WRITER else ""
        step.deliver(f"{masked(url)} {table}{writer}", make, on_error, transactional=True, meets=ordered)
        return Ended("to_sql()")

    def to_files(
        self,
        path: str | PathLike[str],
        *,
        partition_by: str | Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        rows: Any = None,
        max_rows: int | None = None,
        max_age: str | float | None = None,
        keep: str | float | None = None,
        delete_after: str | float | None = None,
        name: str | None = None,
        on_error: Policy = None,
    ) -> Ended:
        """Write rows to Parquet files in a directory, once in effect, without Spark; `hg.published(path)` gives the files of whole batches.

        >>> orders.to_files("s3://lake/orders", partition_by="country", max_age="5m")

        `path` is an absolute path or a URI that pyarrow can write to (`s3`, `gs`, `abfs`, `hdfs`), with the credentials of the worker's
        environment. `options` go to pyarrow's Parquet writer. The other arguments are those of `to_sql`; the settings are
        `files.max-rows` and `files.max-age`.

        With `keep="30d"`, batches whose newest row is older are forgotten: `hg.published` does not give their files any more, which are
        deleted `delete_after` later (`1d`).
        """
        if callable(path):
            raise DeclarationError(
                f"to_files({path!r:.80})", remedy="a path; a function that writes is a sink: .to_sink(…)"
            )
        if options is not None and not isinstance(options, Mapping):
            raise DeclarationError(f"to_files(options={options!r:.80})", remedy='options={"compression": "zstd"}')
        if options:
            check_options(options)
        target = declared_write(path, FORMAT, (), None, verb="to_files").path
        if target.partition(":")[0] not in SCHEMES:
            raise DeclarationError(
                f"to_files({path!r}): pyarrow does not write there",
                remedy=f"one of {', '.join(SCHEMES)}; or .spark(…).write(…)",
            )
        last = target.rpartition("/")[2]
        step = _batch(self, f"to_files('{last}')", name or "files-" + _plain(last), rows, max_rows, max_age, FILES)
        write = declared_write(path, FORMAT, partition_by, None, step.columns.names, verb="to_files")
        for one in write.partition_by:
            _check_directory(step.columns[one], f"to_files('{last}'): partition_by")
        write = replace(
            write, options=tuple(sorted((options or {}).items())), keep=kept("to_files", keep, delete_after)
        )
        delivered = step.deliver(target, _no_sink, on_error, transactional=True)
        added(self, WriteStep, parents=(delivered,), write=write)
        return Ended("to_files()")

    def to_sink(
        self,
        sink: type[Sink],
        /,
        *,
        rows: Any = None,
        max_rows: int | None = None,
        max_age: str | float | None = None,
        name: str | None = None,
        on_error: Policy = None,
        **args: Any,
    ) -> Ended:
        """Write batches of rows with a sink of your own, a subclass of `hg.Sink`; each task makes one with `args`.

        >>> orders.to_sink(Webhook, url="https://example.com/orders", max_rows=500)

        It is at least once, unless the class says that it is `transactional`. A batch comes again with the same id and the same rows. The
        methods of the class are plain functions, which are called in a thread; its `__init__` has no argument that is called like one of
        these. What does not fit is refused here.
        """
        own = {"rows": rows, "max_rows": max_rows, "max_age": max_age, "name": name, "on_error": on_error}
        check_sink(sink, args, own)
        policy = on_error or self.app.on_error
        if not sink.transactional and policy != "fail" and on_error is not None:
            raise DeclarationError(
                f"to_sink({sink.__name__}, on_error={on_error!r}): which rows are refused is found by writing parts of a batch, "
                "and this sink does not undo what it has written",
                remedy="let the sink itself leave such rows out, or make it transactional",
            )
        step = _batch(self, f"to_sink({sink.__name__})", name or sink.__name__, rows, max_rows, max_age, SINK)
        step.deliver(sink.__name__, partial(sink, **args), on_error, transactional=sink.transactional)
        return Ended("to_sink()")


class _batch:
    """The batches of a verb, with the columns that they have."""

    def __init__(
        self,
        of: EndsInSinks,
        where: str,
        name: str,
        rows: Any,
        max_rows: int | None,
        max_age: str | float | None,
        limited_by: str,
        key: KeyOfRows | None = None,
        key_names: Sequence[str] = (),
    ) -> None:
        """`key`: what is known of that of the rows, and `key_names`, what the target has as its key."""
        if of._columns is not None:
            of._columns.alone(where.partition("(")[0] + "()")
        schema = None if of._columns is None else of._columns.schema
        self._of = of
        self._name = name_of("sink", None, name)
        self._step: BatchStep = batch(
            of,
            max_rows,
            None,
            max_age,
            f"{self._name}-batches",
            schema,
            limited_by=limited_by,
            key_column=None if key is None else key.made,
            takes_updates=key is not None and takes_updates(of.step, key_names, key),
        )
        self.columns = columns_of_batch(self._step, rows, where)

    def deliver(
        self, target: str, make: Callable[[], Any], on_error: Policy, *, transactional: bool, meets: bool = False
    ) -> DeliverStep:
        """Pass them to a sink. `meets`: the order of rows with one key counts."""
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
            meets=meets,
            on_error=policy,
        )


def _plain(text: str) -> str:
    """A text with nothing but what the name of a step may have."""
    return "".join(one if one.isascii() and one.isalnum() else "-" for one in text)


def _check_directory(column: ColumnSpec, where: str) -> None:
    """Refuse a column whose values make no names of directories that are read again as what they were."""
    if column.path or (column.logical is not None and column.logical.name != DATE):
        said = "a field of a nested object" if column.path else column.said
        raise DeclarationError(
            f"{where}: '{column.name}' is {said}",
            remedy="name a number, a boolean, text or a date: .with_columns(day=…)",
        )


def _no_sink() -> Any:
    raise AssertionError("files are written without a sink")


def _check_order(step: Step, of: KeyOfRows, key: tuple[str, ...], where: str) -> None:
    """Of updates, refuse a key whose rows may go through several tasks before they are refused as rows of a batch."""
    if not of.updates:
        return
    names = names_of_values(step)
    if of.made is not None:
        names = (*(names or ()), of.made.name)
    if names is not None and set(names).issuperset(key) and (why := of.refused(key, where)) is not None:
        raise why
