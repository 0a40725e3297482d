"""headgate: Kafka-native actors in Python, with exact completeness and Spark for the bounded batches.

    import headgate as hg

    app = hg.App("sales", serde=hg.json())
    app.input("orders").filter(lambda order: order["amount"] > 0).to("paid")

This is the whole of what users import. Each name is brought when it is used, so a command begins at once; no broker client, no Spark and
no Arrow come before something needs them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headgate.agents import testing
    from headgate.agents.actors import Actor, Batches, Context
    from headgate.agents.aggregates import Aggregate, aggregate, collect, count, first, last, max, mean, min, sum
    from headgate.agents.app import App
    from headgate.agents.asking import drain, metadata, pause, resume, start, stop
    from headgate.agents.declared_table import DeclaredTable as Table
    from headgate.agents.operators import UserCodeError
    from headgate.agents.record import Batch, Record
    from headgate.agents.serde import Serde, arrow, custom, json, msgpack, raw, text
    from headgate.agents.stream import Stream
    from headgate.agents.stream_ends import BatchedStream, TableView
    from headgate.agents.timestamps import field
    from headgate.core.errors import DataError, DeclarationError, EnvironmentFault, HeadgateError, SettingError

    bytes = raw
    """The bytes as they are: the same as `hg.raw`."""

__version__ = "0.1.0"
__all__ = [
    "Actor",
    "Aggregate",
    "App",
    "Batch",
    "BatchedStream",
    "Batches",
    "Context",
    "DataError",
    "DeclarationError",
    "EnvironmentFault",
    "HeadgateError",
    "Record",
    "Serde",
    "SettingError",
    "Stream",
    "Table",
    "TableView",
    "UserCodeError",
    "aggregate",
    "arrow",
    "bytes",
    "collect",
    "count",
    "custom",
    "drain",
    "field",
    "first",
    "json",
    "last",
    "max",
    "mean",
    "metadata",
    "min",
    "msgpack",
    "pause",
    "raw",
    "resume",
    "start",
    "stop",
    "sum",
    "testing",
    "text",
]


_FROM = {
    "agents.actors": "Actor Batches Context",
    "agents.aggregates": "Aggregate aggregate collect count first last max mean min sum",
    "agents.app": "App",
    "agents.asking": "drain metadata pause resume start stop",
    "agents.declared_table": "Table",
    "agents.operators": "UserCodeError",
    "agents.record": "Batch Record",
    "agents.serde": "Serde arrow bytes custom json msgpack raw text",
    "agents.stream": "Stream",
    "agents.stream_ends": "BatchedStream TableView",
    "agents.timestamps": "field",
    "core.errors": "DataError DeclarationError EnvironmentFault HeadgateError SettingError",
}
"""Module → the names that come from it."""
_THERE = {"Table": "DeclaredTable", "bytes": "raw"}
"""What is called otherwise where it comes from."""
_WHERE = {name: module for module, names in _FROM.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name == "testing":
        return importlib.import_module("headgate.agents.testing")
    if name not in _WHERE:
        raise AttributeError(f"module 'headgate' has no attribute {name!r}")
    module = importlib.import_module(f"headgate.{_WHERE[name]}")
    found = globals()[name] = getattr(module, _THERE.get(name, name))
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
