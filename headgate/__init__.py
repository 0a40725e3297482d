"""headgate: Kafka-native actors in Python, with exact completeness and Spark for the bounded batches.

    import headgate as hg

    app = hg.App("sales", serde=hg.json())
    app.input("orders").filter(lambda order: order["amount"] > 0).to("paid")

Users import nothing else. Each name is imported when it is first used, so commands start fast: no broker client, no Spark and no Arrow
are loaded before something needs them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headgate import frames, testing
    from headgate.agents.cli.printed import output_schema
    from headgate.agents.job.declare.actors import Actor, Batches, Context
    from headgate.agents.job.declare.actors import ClockTick as Tick
    from headgate.agents.job.declare.app import App
    from headgate.agents.job.declare.declared_table import DeclaredTable as Table
    from headgate.agents.job.declare.ends import TableView
    from headgate.agents.job.declare.streams import BatchedStream, ColumnStream, SparkStream, Stream, WindowedStream
    from headgate.agents.job.types.aggregates import (
        Aggregate,
        aggregate,
        collect,
        count,
        first,
        last,
        max,
        mean,
        min,
        reduce,
        sum,
    )
    from headgate.agents.job.types.parking import park
    from headgate.agents.job.types.ranked import arg_max, arg_min, top
    from headgate.agents.job.types.sketches import count_distinct, quantile
    from headgate.agents.job.types.timestamps import field
    from headgate.agents.job.types.windows import Window, hopping, session, sliding, tumbling, window_key
    from headgate.agents.operators.base.stateless import UserCodeError
    from headgate.agents.process.calls import drain, drains, grow, metadata, pause, resume, scale, start, stop, withdraw
    from headgate.agents.process.inside import HostedWorker, run, running
    from headgate.agents.process.queries import CommittedValue, QueriedTable, query
    from headgate.agents.records.columns.batch import Batch, ColumnBatch
    from headgate.agents.records.values.logical_types import Digits
    from headgate.agents.records.values.record import Record
    from headgate.agents.records.values.serdes import Serde, arrow, custom, json, key, msgpack, raw, text
    from headgate.agents.registry.avro import avro
    from headgate.agents.registry.json_schema import json_schema
    from headgate.agents.registry.protobuf import protobuf
    from headgate.agents.sinks.sink import RowsRefused, Sink, TargetDown
    from headgate.core.choosing.chooser import Choice
    from headgate.core.columns.expressions import Expression, coalesce, col, concat, greatest, least, when
    from headgate.core.errors import DataError, DeclarationError, EnvironmentFault, HeadgateError, SettingError
    from headgate.spark_bridge.data.publish import published

    bytes = raw
    """The bytes, unchanged: the same as `hg.raw`."""

__version__ = "0.1.0"
__all__ = [
    "Actor",
    "Aggregate",
    "App",
    "Batch",
    "BatchedStream",
    "Batches",
    "Choice",
    "ColumnBatch",
    "ColumnStream",
    "CommittedValue",
    "Context",
    "DataError",
    "DeclarationError",
    "Digits",
    "EnvironmentFault",
    "Expression",
    "HeadgateError",
    "HostedWorker",
    "QueriedTable",
    "Record",
    "RowsRefused",
    "Serde",
    "SettingError",
    "Sink",
    "SparkStream",
    "Stream",
    "Table",
    "TableView",
    "TargetDown",
    "Tick",
    "UserCodeError",
    "Window",
    "WindowedStream",
    "aggregate",
    "arg_max",
    "arg_min",
    "arrow",
    "avro",
    "bytes",
    "coalesce",
    "col",
    "collect",
    "concat",
    "count",
    "count_distinct",
    "custom",
    "drain",
    "drains",
    "field",
    "first",
    "frames",
    "greatest",
    "grow",
    "hopping",
    "json",
    "json_schema",
    "key",
    "last",
    "least",
    "max",
    "mean",
    "metadata",
    "min",
    "msgpack",
    "output_schema",
    "park",
    "pause",
    "protobuf",
    "published",
    "quantile",
    "query",
    "raw",
    "reduce",
    "resume",
    "run",
    "running",
    "scale",
    "session",
    "sliding",
    "start",
    "stop",
    "sum",
    "testing",
    "text",
    "top",
    "tumbling",
    "when",
    "window_key",
    "withdraw",
]


_FROM = {
    "agents.job.declare.actors": "Actor Batches Context Tick",
    "agents.job.types.aggregates": "Aggregate aggregate collect count first last max mean min reduce sum",
    "agents.job.types.parking": "park",
    "agents.job.types.ranked": "arg_max arg_min top",
    "agents.job.types.sketches": "count_distinct quantile",
    "agents.job.declare.app": "App",
    "agents.cli.printed": "output_schema",
    "agents.process.calls": "drain drains grow metadata pause resume scale start stop withdraw",
    "agents.process.inside": "HostedWorker run running",
    "agents.process.queries": "CommittedValue QueriedTable query",
    "agents.job.declare.declared_table": "Table",
    "agents.operators.base.stateless": "UserCodeError",
    "agents.records.columns.batch": "Batch ColumnBatch",
    "agents.records.values.logical_types": "Digits",
    "agents.records.values.record": "Record",
    "agents.registry.avro": "avro",
    "agents.registry.json_schema": "json_schema",
    "agents.registry.protobuf": "protobuf",
    "agents.sinks.sink": "RowsRefused Sink TargetDown",
    "agents.records.values.serdes": "Serde arrow bytes custom json key msgpack raw text",
    "agents.job.declare.ends": "TableView",
    "agents.job.declare.streams": "BatchedStream ColumnStream SparkStream Stream WindowedStream",
    "agents.job.types.timestamps": "field",
    "agents.job.types.windows": "Window hopping session sliding tumbling window_key",
    "core.choosing.chooser": "Choice",
    "core.columns.expressions": "Expression coalesce col concat greatest least when",
    "core.errors": "DataError DeclarationError EnvironmentFault HeadgateError SettingError",
    "spark_bridge.data.publish": "published",
}
"""Module → the names that are imported from it."""
_MODULES = ("frames", "testing")
_THERE = {"Table": "DeclaredTable", "Tick": "ClockTick", "bytes": "raw"}
"""Names that are different in the module that they come from."""
_WHERE = {name: module for module, names in _FROM.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"headgate.{name}")
    if name not in _WHERE:
        if name.startswith("_"):
            raise AttributeError(f"module 'headgate' has no attribute {name!r}")
        from headgate.core.words import PACKAGE, brought

        raise brought(name, PACKAGE) or AttributeError(f"module 'headgate' has no attribute {name!r}")
    module = importlib.import_module(f"headgate.{_WHERE[name]}")
    found = globals()[name] = getattr(module, _THERE.get(name, name))
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
