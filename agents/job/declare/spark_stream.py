"""The result of a Spark stage: a stream like any other, or what Spark itself writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, TypeVar

from ....core.batching.publishing import declared_write
from ..steps.batches import SparkStep, WriteStep
from ..types.arguments import called_from, check_function
from .stream import Stream
from .stream_ends import Ended

K = TypeVar("K")
V = TypeVar("V")


class SparkStream(Stream[K, V]):
    """The rows that a PySpark function returns for each batch."""

    def write(
        self,
        target: str | PathLike[str] | Callable[[Any, Any], Any],
        /,
        *,
        format: str | None = None,
        partition_by: str | Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Ended:
        """Let Spark write the result of each batch, instead of passing it on.

        >>> lots.spark(revenue, schema=schema).write("s3a://lake/revenue", partition_by=["country"])

        `target` is a directory: an absolute path or a URI of any file system of Spark. `format` is `parquet` (default), `orc` or
        `json`: each batch is there exactly once, and `hg.published(path)` gives the files of the batches that are whole. With
        `format="delta"` each batch is a transaction of a Delta table, exactly once, too. `options` go to Spark's writer.

        `target` may also be a function `(df, batch)` that writes in any other way, at least once: `batch.id` stays the same when a batch is
        written again.
        """
        if callable(target):
            check_function(target, "write", number=2, signature="(df, batch)")
        assert isinstance(self.step, SparkStep), "only a Spark stage has this verb"
        write = declared_write(target, format, partition_by, options, self.step.columns)
        self.app.add(WriteStep(parents=(self.step,), write=write, where=called_from()))
        return Ended("write()")
