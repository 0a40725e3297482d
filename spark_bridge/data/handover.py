"""Tables on their way into the JVM of this process and back, with few calls to it.

A call to the JVM takes the interpreter's lock twice, which the loop of a busy worker holds most of the time. `createDataFrame` makes
many calls for a table, most of them for what never changes in a session. Here that is asked once, and a table needs three.

The private names of PySpark that this needs stand in this file alone. Promise: the DataFrame is the one that `createDataFrame` makes. It
makes it, too: on Spark Connect, where files are encrypted, and should one of those names be missing.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import pyarrow as pa

from ..base.jobs import is_connect

SparkColumns = tuple[Any, str, pa.Schema]
"""The columns of a table: as Spark names their types, the same as JSON, and the Arrow types in which Spark takes them."""


class Door(NamedTuple):
    """What is asked of a session once."""

    context: Any
    jvm_session: Any
    activate: Any
    read: Any
    frame: Any
    uncache: Any
    """Functions of the JVM."""
    zone: str
    ntz: bool
    large: bool
    most_rows: int


_doors: WeakKeyDictionary[Any, Door | None] = WeakKeyDictionary()


def frame_of_table(session: Any, table: pa.Table) -> Any:
    """As `session.createDataFrame(table)`."""
    door = None if is_connect(session) else _door(session)
    if door is None or not table.num_columns:
        return session.createDataFrame(table)
    from pyspark.sql.classic.dataframe import DataFrame
    from pyspark.sql.pandas.types import _check_arrow_table_timestamps_localize

    type(session)._activeSession = session
    door.activate(door.jvm_session)
    kind, as_json, taken = _kind(table.schema.remove_metadata(), ntz=door.ntz, large=door.large)
    table = _check_arrow_table_timestamps_localize(table, kind, True, door.zone).cast(taken)
    number, path = tempfile.mkstemp(dir=door.context._temp_dir)
    try:
        with os.fdopen(number, "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            for batch in table.to_batches(max_chunksize=door.most_rows):
                writer.write_batch(batch)
        return DataFrame(door.frame(door.read(path), as_json, door.jvm_session), session)
    finally:
        os.unlink(path)


def own_session(session: Any, *, as_it_is: bool) -> Any:
    """A session for one attempt at a batch: temporary views, functions and settings of it are seen by no one else, and end with it.

    It begins like a new one, or `as_it_is`: with all that the given session has. Context, cache and catalog are those of the given session.
    A session of Spark Connect is shared, because another one takes a connection of its own.
    """
    if is_connect(session):
        return session
    java = session._jsparkSession
    made = type(session)(session._sc, java.cloneSession() if as_it_is else java.newSession())
    if not as_it_is and (door := _door(session)) is not None:
        _doors[made] = door._replace(jvm_session=made._jsparkSession)
    return made


def forget(session: Any, frame: Any) -> None:
    """The attempt with this DataFrame is over: drop from Spark's cache all that holds rows of it. What was cached of other data stays. Of a
    Connect server, only the DataFrame itself can be named.

    The cache belongs to the context. Spark would hold the rows for as long as its JVM lives, and no one can ask for them any more.
    """
    with suppress(Exception):  # if the session is over, so is its cache
        if is_connect(session):
            frame.unpersist()
        elif (door := _door(session)) is not None:
            door.uncache(frame._jdf, True)


def plan_of(frame: Any) -> Any:
    """What a DataFrame shows, in the JVM."""
    return frame._jdf.queryExecution().analyzed()


def elements(array: Any, count: int) -> list[Any]:
    """The elements of an array of the JVM; a `JavaArray` asks for its length with each."""
    from py4j import protocol

    client, which = array._gateway_client, array._get_object_id()
    asked = protocol.ARRAY_COMMAND_NAME + protocol.ARRAY_GET_SUB_COMMAND_NAME + which + "\n"
    return [
        protocol.get_return_value(
            client.send_command(asked + protocol.get_command_part(at) + protocol.END_COMMAND_PART), client
        )
        for at in range(count)
    ]


def _door(session: Any) -> Door | None:
    if session not in _doors:
        found = None
        with suppress(AttributeError):  # another version of PySpark
            found = _asked(session)
        _doors[session] = found
    return _doors[session]


def _asked(session: Any) -> Door | None:
    context, jvm, conf = session.sparkContext, session._jvm, session.conf
    if context._encryption_enabled:
        return None
    utils = jvm.PythonSQLUtils
    return Door(
        context,
        session._jsparkSession,
        session._get_j_spark_session_class(jvm).setActiveSession,
        utils.readArrowStreamFromFile,
        utils.toDataFrame,
        session._jsparkSession.sharedState().cacheManager().uncacheQuery,
        conf.get("spark.sql.session.timeZone"),
        conf.get("spark.sql.timestampType") == "TIMESTAMP_NTZ",
        conf.get("spark.sql.execution.arrow.useLargeVarTypes") == "true",
        int(conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")),
    )


@lru_cache(256)
def _kind(schema: pa.Schema, *, ntz: bool, large: bool) -> SparkColumns:
    from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
    from pyspark.sql.types import StructType

    kind = StructType()
    for field in schema:
        kind.add(field.name, from_arrow_type(field.type, ntz), nullable=field.nullable)
    taken = to_arrow_schema(
        kind, error_on_duplicated_field_names_in_struct=True, timezone="UTC", prefers_large_types=large
    )
    return kind, kind.json(), taken
