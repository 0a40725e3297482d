"""The list of the user's running embedded brokers on this machine, so that other commands find them.

Decides: brokers that `headgate kafka up` started are listed, under the user's data directory; those of tests are not. Promise: an entry
counts only while its process runs, so a stale entry does no harm.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import HeadgateError
from .places import home_dir

if TYPE_CHECKING:
    from .broker import Broker


def running_broker() -> str | None:
    """The address of the embedded broker that was started last; None if none runs.

    A secure broker is not returned, because its address alone is not enough to connect.
    """
    for broker in running_brokers():
        if not broker.identity.secure:
            return broker.bootstrap
    return None


def running_brokers() -> list[Broker]:
    """All running embedded brokers of this user, the latest first."""
    entries = list(_directory().glob("*.json"))
    if not entries:
        return []  # as for most commands, which then need not import a broker
    from .broker import Broker

    found: list[tuple[float, Broker]] = []
    for entry in entries:
        with contextlib.suppress(OSError, ValueError, KeyError, HeadgateError):
            broker = Broker.at(json.loads(entry.read_text())["data"])
            if broker is not None and broker.pids():
                found.append((entry.stat().st_mtime, broker))
    return [broker for _, broker in sorted(found, key=lambda pair: pair[0], reverse=True)]


def enlist(broker: Broker) -> None:
    """Add this broker to the list."""
    _directory().mkdir(parents=True, exist_ok=True)
    entry = _entry(broker.data)
    draft = entry.with_suffix(".new")
    draft.write_text(json.dumps({"data": str(broker.data)}) + "\n")
    draft.replace(entry)


def strike_off(data: Path) -> None:
    """Remove the broker of this directory from the list."""
    _entry(data).unlink(missing_ok=True)


def _directory() -> Path:
    return home_dir() / "running"


def _entry(data: Path) -> Path:
    return _directory() / f"{hashlib.sha256(str(data.absolute()).encode()).hexdigest()[:16]}.json"
