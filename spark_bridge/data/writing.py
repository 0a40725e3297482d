"""How Spark writes the result of a batch: to the directory of an attempt, to a Delta table, or as a function of the user does it.

What it promises: an attempt has a directory of its own, and is complete when `save` returns. In a Delta table a batch is one transaction,
which the table refuses to make twice: it remembers the greatest turn of the series, so batches are written in the order of their turns.
"""

from __future__ import annotations

import uuid
from typing import Any

from ...core.batching.batches import BatchInfo, SparkStage, manifest_entry
from ...core.batching.publishing import DELTA, SeriesPaths, SparkWrite, Undone
from ...core.errors import DataError, EnvironmentFault
from ..base.errors import SparkError, SparkPlanError, first_lines, said
from .files import files_of
from .forget import Forgotten
from .publish import Publisher, Unpublished

NO_SOURCE = ("DATA_SOURCE_NOT_FOUND", "Failed to find the data source", "Failed to find data source")


class NotWritten(SparkError):
    """The user's function failed, for whatever reason. It may succeed the next time."""


class FilesDown(SparkError, EnvironmentFault):
    """The file system failed. The batch is not to blame."""


def save(session: Any, frame: Any, batch: BatchInfo, stage: SparkStage) -> str:
    """SparkWrite the result of a batch. Returns the attempt whose files wait to be published, or nothing if none do."""
    write = stage.write
    assert write is not None, "only a stage that writes gets here"
    if write.save is not None:
        _by_user(write, frame, batch)
        return ""
    missing = [name for name in write.partition_by if name not in frame.columns]
    if missing:
        raise SparkPlanError(
            f"write(partition_by={list(write.partition_by)}): the result has no column {', '.join(map(repr, missing))}",
            remedy=f"its columns are {', '.join(frame.columns)}: see the schema= of .spark()",
        )
    writer = frame.write.format(write.format).options(**dict(write.options))
    if write.partition_by:
        writer = writer.partitionBy(*write.partition_by)
    if write.format == DELTA:
        with_id = writer.mode("append").option("txnAppId", write.series).option("txnVersion", str(batch.turn))
        _save(with_id, write, write.path)
        return ""
    attempt = uuid.uuid4().hex
    # version 2 moves the files of a task one by one, and may leave some of a task that failed
    writer = writer.mode("errorifexists").option("mapreduce.fileoutputcommitter.algorithm.version", "1")
    _save(writer, write, SeriesPaths(write.path, write.series).attempt(batch.number, attempt))
    entry = manifest_entry(write, batch, stage.name, attempt)
    try:
        Publisher(files_of(write.path, session), write).seal(entry)
    except OSError as error:
        raise _down(write, error) from error
    return attempt


def try_out(frame: Any) -> None:
    """Compute a result and write it nowhere, to see whether a row makes it fail."""
    frame.write.format("noop").mode("overwrite").save()


def publish(session: Any, write: SparkWrite, number: int, attempt: str, undone: Undone) -> Forgotten:
    """Publish an attempt that a transaction has named."""
    try:
        return Publisher(files_of(write.path, session), write).publish(number, attempt, undone)
    except (Unpublished, DataError, EnvironmentFault):
        raise
    except Exception as error:  # a file system of Hadoop raises what its JVM did
        raise _down(write, error) from error


def _by_user(write: SparkWrite, frame: Any, batch: BatchInfo) -> None:
    assert write.save is not None, "the user's function writes"
    try:
        write.save(frame, batch)
    except Exception as error:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        if isinstance(error, Py4JError | PySparkException):
            raise  # Spark's own error, which says what helps
        name = getattr(write.save, "__qualname__", repr(write.save))
        raise NotWritten(
            f"{name}() could not write batch {batch.id}: {type(error).__name__}: {first_lines(said(error))}"
        ) from error


def _save(writer: Any, write: SparkWrite, path: str) -> None:
    try:
        writer.save(path)
    except Exception as error:
        if any(sign in said(error) for sign in NO_SOURCE):
            raise SparkPlanError(
                f"this Spark session has no data source '{write.format}': {first_lines(said(error))}",
                remedy="give Spark its jars, for example with the setting spark.jars.packages = "
                "io.delta:delta-spark_<Scala version>:<Delta version>, and spark.sql.extensions and spark.sql.catalog.spark_catalog as "
                "the documentation of Delta says",
            ) from error
        raise


def _down(write: SparkWrite, error: Exception) -> FilesDown:
    return FilesDown(
        f"the files of a batch cannot be published to {write.path}: {type(error).__name__}: {first_lines(said(error))}",
        remedy="the task tries again; check that the worker may write, list, rename and delete there",
    )
