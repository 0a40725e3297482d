"""What a Spark session is given by its worker, and what the worker expects of the executors."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .spool import Spool


@dataclass(frozen=True, slots=True)
class Terms:
    """The defaults are those of a local master, whose executor has all that the worker has."""

    package: tuple[Path, ...] = ()
    """Code for the executors."""
    kafka: tuple[str, tuple[Any, ...]] | None = field(default=None, repr=False)
    """How executors reach Kafka (the import path of a client, and its arguments), if batches are read there."""
    spool: Spool | None = None
    """Where executors read large batches."""
    probe_s: float = 30.0
    executors_s: float = 120.0
