"""Parquet files of batches without Spark: pyarrow writes them, and they are published as Spark's are (`spark_bridge.data.publish`).

    rows → files of an attempt, sealed → a transaction names the attempt → published

What it promises: an attempt has a directory of its own, and is complete when `staged` returns. Its files have the declared columns without
those that make directories, as Spark's have.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from ...core.batching.batches import BatchInfo, manifest_entry
from ...core.batching.publishing import SeriesPaths, SparkWrite, Undone
from ...core.errors import DataError, DeclarationError, EnvironmentFault
from ...core.settings import nearest
from .sink import TargetDown

FORMAT = "parquet"
SCHEMES = ("file", "s3", "s3a", "s3n", "gs", "abfs", "abfss", "hdfs")
"""Where pyarrow can write."""
OFTEN = (
    "compression",
    "compression_level",
    "data_page_size",
    "dictionary_pagesize_limit",
    "use_dictionary",
    "version",
    "write_page_index",
    "write_statistics",
)
"""Options of pyarrow's Parquet writer that are often given."""
MOST_DIRECTORIES = 1024
"""A batch has rows for at most so many directories."""


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options that pyarrow's Parquet writer does not have, or values that it does not take."""
    import pyarrow as pa
    from pyarrow import dataset

    kind: Any = dataset.ParquetFileFormat()
    for name, value in options.items():
        try:
            kind.make_write_options(**{name: value})
        except (TypeError, ValueError, AttributeError, pa.ArrowException) as error:
            near = nearest(str(name), OFTEN)
            raise DeclarationError(
                f"to_files(options={{{name!r}: {value!r:.80}}}): {error}",
                remedy=f"did you mean '{near}'?"
                if near and name not in OFTEN
                else "the options of pyarrow.dataset.ParquetFileFormat.make_write_options",
            ) from None


def staged(write: SparkWrite, table: Any, batch: BatchInfo, stage: str) -> str:
    """Write the rows of a batch to the directory of a new attempt. Returns the attempt."""
    import pyarrow as pa
    from pyarrow import dataset, fs

    from ...spark_bridge.data.files import arrow_path, files_of
    from ...spark_bridge.data.publish import Publisher

    attempt = uuid.uuid4().hex
    where = SeriesPaths(write.path, write.series).attempt(batch.number, attempt)
    kind: Any = dataset.ParquetFileFormat()
    parts = pa.schema([table.schema.field(name) for name in write.partition_by])
    entry = manifest_entry(write, batch, stage, attempt)
    try:
        system, path = fs.FileSystem.from_uri(arrow_path(where))
        dataset.write_dataset(
            table,
            path,
            filesystem=system,
            format=kind,
            file_options=kind.make_write_options(**dict(write.options)),
            partitioning=dataset.partitioning(parts, flavor="hive") if write.partition_by else None,
            basename_template=f"part-{{i}}-c000.{write.format}",
            max_partitions=MOST_DIRECTORIES,
            use_threads=False,
        )
        Publisher(files_of(write.path), write).seal(entry)
    except OSError as error:
        raise _down(write, error) from error
    return attempt


def published(write: SparkWrite, number: int, attempt: str, undone: Undone) -> tuple[int, int]:
    """Publish an attempt that a transaction has named. Returns how many old batches were forgotten, and of how many the files deleted."""
    from ...spark_bridge.data.files import files_of
    from ...spark_bridge.data.publish import Publisher, Unpublished

    try:
        return Publisher(files_of(write.path), write).publish(number, attempt, undone)
    except (Unpublished, DataError, EnvironmentFault):
        raise
    except OSError as error:
        raise _down(write, error) from error


def _down(write: SparkWrite, error: Exception) -> TargetDown:
    return TargetDown(
        f"the files of a batch cannot be written to {write.path}: {type(error).__name__}: {error}",
        remedy="the task tries again; check that the worker may write, list, rename and delete there",
    )
