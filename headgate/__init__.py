"""headgate: Kafka-native actors in Python, with exact completeness and Spark for the bounded batches.

    import headgate as hg

    app = hg.App("sales", serde=hg.json())
    app.input("orders").filter(lambda order: order["amount"] > 0).to("paid")

This is the whole of what users import. It brings no broker client, no Spark and no Arrow; they come with what needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.agents.actors import Actor, Batches, Context
from headgate.agents.aggregates import Aggregate, aggregate, collect, count, first, last, max, mean, min, sum
from headgate.agents.app import App
from headgate.agents.declared_table import DeclaredTable as Table
from headgate.agents.operators import UserCodeError
from headgate.agents.record import Batch, Record
from headgate.agents.serde import Serde, arrow, custom, json, msgpack, raw, text
from headgate.agents.stream import Stream
from headgate.agents.stream_ends import BatchedStream, TableView
from headgate.agents.timestamps import field
from headgate.core.errors import DataError, DeclarationError, EnvironmentFault, HeadgateError, SettingError

if TYPE_CHECKING:
    from headgate.agents import testing
    from headgate.agents.asking import drain, pause, resume, start, stop

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


ASKING = ("drain", "pause", "resume", "start", "stop")
"""The verbs of the command line that are functions, too; they bring a broker client, so they are imported when they are used."""


def __getattr__(name: str) -> Any:
    if name == "testing":
        import importlib

        return importlib.import_module("headgate.agents.testing")
    if name in ASKING:
        import importlib

        return getattr(importlib.import_module("headgate.agents.asking"), name)
    raise AttributeError(f"module 'headgate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
