"""Everything that a worker is told when it starts, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..job.declaration import Declared
from ..kafka.settings import ClientSettings

_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """One worker process."""

    declared: Declared
    client: ClientSettings
    processor: str
    location: str
    process: str
    """The process start: unique for each."""
    token: str
    """Random letters and digits for its incarnations."""
    state_dir: Path | None = None
    """None keeps tables in memory."""
    state_memory: int = 256 << 20
    """Bytes that tables may take, all tasks together: for decoded rows, and for caches and write buffers of RocksDB."""
    run_id: str = ""
    deployment: str = ""
    settings: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    """From the file and the environment, and what the app was given."""
    flags: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    """From the command line: they win over overrides."""
    host: str = ""
    user: str = ""
    pid: int = 0
    version: str = ""
    url: str = ""
    web_port: int = 0
    lock_free: bool = False
    supervised: bool = False
    no_wait: bool = False
    bounded: bool = False
    compression: str | None = None
    jitter_s: float = 0.0
    job_uuid: str = ""
    """A fresh one, for a job that has none yet."""
