"""What runs on the executors to see whether they have what a job needs. It travels there as a whole, and imports nothing of headgate unless
the job needs headgate there.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import platform
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

PYTHON, SPARK, MODULE, HEADGATE, BROKER, SPOOL = "python", "spark", "module", "headgate", "broker", "spool"
"""The kinds of what an executor may lack."""
CONNECT_S = 5.0


def look(wanted: dict[str, Any]) -> Callable[[int], str]:
    """A function for one row: it says as JSON what this executor is, and what it lacks."""

    def here(_: int) -> str:
        return json.dumps(
            {
                "host": socket.gethostname(),
                "python": platform.python_version(),
                "lacks": [*_code(wanted), *_brokers(wanted), *_spool(wanted)],
            }
        )

    return here


def _code(wanted: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if list(sys.version_info[:2]) != wanted["python"]:
        ours = ".".join(map(str, wanted["python"]))
        yield PYTHON, f"runs Python {platform.python_version()}, and the worker {ours}"
    if wanted["spark"]:
        has = importlib.import_module("pyspark").__version__
        if has.split(".")[:2] != wanted["spark"].split(".")[:2]:
            yield SPARK, f"has PySpark {has}, and the worker {wanted['spark']}"
    for name in wanted["modules"]:
        if importlib.util.find_spec(name) is None:
            yield MODULE, f"has no module '{name}'"
    if wanted["headgate"] and importlib.util.find_spec("headgate") is not None:
        has = importlib.import_module("headgate").__version__
        if has != wanted["headgate"]:
            yield HEADGATE, f"has headgate {has}, and the worker {wanted['headgate']}"


def _brokers(wanted: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Whether every broker can be reached, and, if so, whether the client that reads there is let in."""
    reached = True
    for address in wanted["brokers"]:
        name, _, port = address.rpartition(":")
        try:
            socket.create_connection((name.strip("[]"), int(port)), CONNECT_S).close()
        except OSError as error:
            reached = False
            yield BROKER, f"cannot reach the broker {address}: {error.strerror or error}"
    if wanted["kafka"] and reached and importlib.util.find_spec("headgate") is not None:
        path, arguments = wanted["kafka"]
        try:
            ranges = importlib.import_module("headgate.spark_bridge.data.ranges")
            ranges.brokers_of(ranges.Connect(path, arguments))
        except Exception as error:  # noqa: BLE001 - anything that goes wrong here goes wrong in each batch
            yield BROKER, f"cannot read from the brokers: {type(error).__name__}: {error}"


def _spool(wanted: dict[str, Any]) -> Iterator[tuple[str, str]]:
    path, text = wanted["spool"] or ("", "")
    if not path:
        return
    try:
        with open(path) as file:
            found = file.read()
    except OSError as error:
        yield SPOOL, f"cannot read spark.spool, {path}: {error.strerror or error}"
        return
    if found != text:
        yield SPOOL, f"has another file at {path} than the worker has written to spark.spool"
