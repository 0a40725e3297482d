"""What runs on the executors to see whether they have what a job needs. It travels there as a whole and imports nothing of headgate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def look(wanted: dict[str, Any]) -> Callable[[int], str]:
    """A function for one row: it says what this executor is, or, behind an exclamation mark, what it lacks."""

    def here(_: int) -> str:
        import importlib.util
        import platform
        import socket
        import sys

        host = socket.gethostname()
        lacks: list[str] = []
        if list(sys.version_info[:2]) != wanted["python"]:
            ours = ".".join(map(str, wanted["python"]))
            lacks.append(f"runs Python {platform.python_version()}, and the worker {ours}")
        for name in ("pyarrow", *wanted["modules"]):
            if importlib.util.find_spec(name) is None:
                lacks.append(f"has no module '{name}'")
        for address in wanted["brokers"]:
            name, _, port = address.rpartition(":")
            try:
                socket.create_connection((name.strip("[]"), int(port)), 5).close()
            except OSError as error:
                lacks.append(f"cannot reach the broker {address}: {error.strerror or error}")
        if lacks:
            return f"!{host} " + ", ".join(lacks)
        return f"{host}: Python {platform.python_version()}"

    return here
