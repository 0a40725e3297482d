"""The embedded brokers that run on this machine for this user, so that other commands find one without being told where.

Decides: what `headgate kafka up` started is listed, under the user's data directory; what tests start is not.
Promises: an entry counts only while its process lives, so an entry that was left behind does no harm.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path

from ...core.errors import HeadgateError
from .broker import Broker
from .places import home_dir


def running_broker() -> str | None:
    """Where the embedded broker that was started last is to be reached, or None if none runs.

    A secure one is not offered: its address alone does not let anybody in.
    """
    for broker in running_brokers():
        if not broker.identity.secure:
            return broker.bootstrap
    return None


def running_brokers() -> list[Broker]:
    """Every running embedded broker of this user, the one started last first."""
    found: list[tuple[float, Broker]] = []
    for entry in _directory().glob("*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, HeadgateError):
            broker = Broker.at(json.loads(entry.read_text())["data"])
            if broker is not None and broker.pids():
                found.append((entry.stat().st_mtime, broker))
    return [broker for _, broker in sorted(found, key=lambda pair: pair[0], reverse=True)]


def enlist(broker: Broker) -> None:
    """Let other commands find this broker."""
    _directory().mkdir(parents=True, exist_ok=True)
    entry = _entry(broker.data)
    draft = entry.with_suffix(".new")
    draft.write_text(json.dumps({"data": str(broker.data)}) + "\n")
    draft.replace(entry)


def strike_off(data: Path) -> None:
    """The broker of this directory is down."""
    _entry(data).unlink(missing_ok=True)


def _directory() -> Path:
    return home_dir() / "running"


def _entry(data: Path) -> Path:
    return _directory() / f"{hashlib.sha256(str(data.absolute()).encode()).hexdigest()[:16]}.json"
