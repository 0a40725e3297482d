"""All options of a worker process, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..job.derive.declaration import Declared
from ..kafka.settings import ClientSettings

_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options of one worker process."""

    declared: Declared
    client: ClientSettings
    processor: str
    location: str
    process: str
    """The id of this start of the process; every start has another."""
    token: str
    """Random characters for the names of its incarnations."""
    state_dir: Path | None = None
    """None keeps tables in memory."""
    state_memory: int = 256 << 20
    """The memory for tables of all tasks together, in bytes: decoded rows, and RocksDB's caches and write buffers."""
    run_id: str = ""
    deployment: str = ""
    settings: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    """Settings from the file, the environment and the app."""
    alone: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    """Settings that belong to this worker alone, such as `state.memory`; they are not written into the run."""
    flags: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    """Settings from the command line and the environment; they take precedence over overrides."""
    host: str = ""
    user: str = ""
    pid: int = 0
    version: str = ""
    url: str = ""
    web_port: int = 0
    lock_free: bool = False
    forerunners: frozenset[str] | None = None
    """The processes that have held the lock file before; None: not known."""
    supervised: bool = False
    since_ms: int = 0
    """When the supervisor of this process began; 0 without one."""
    no_wait: bool = False
    bounded: bool = False
    compression: str | None = None
    jitter_s: float = 0.0
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """What is masked wherever it is written down."""
    job_uuid: str = ""
    """A new random id, used if the job has none yet."""
