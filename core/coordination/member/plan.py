"""The configuration of a member, given when its process starts. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class MemberConfig:
    """The identity of this process, what it would run, and what is known about its predecessor."""

    processor: str
    process: str
    """The start of the process."""
    token: str
    """Random characters that follow the counter in the names of its incarnations."""
    location: str = ""
    url: str = ""
    pid: int = 0
    version: str = ""
    deployment: str = ""
    fingerprint: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    run_id: str = ""
    """The run id given with `--run-id`."""
    job: str = ""
    """Name and id, exactly as given."""
    lock_free: bool = False
    """The processor's lock file in the state directory was free, so its previous process here is dead."""
    forerunners: frozenset[str] | None = None
    """The processes that have held that lock file. Another one may live on another disk, although it claims the same location. None: the
    file does not say."""
    supervised: bool = False
    """The supervisor that started this process says that its predecessor is dead."""
    since_ms: int = 0
    """When that supervisor began, by the wall clock; 0 without a supervisor."""
    no_wait: bool = False
    """`--no-wait`: do not wait if the run is closed; exit with 4."""
    bounded: bool = False
    """`--bounded`: begin another run when the last one has ended."""
    follows: bool = False
    """Whether this process can follow the logs of tasks that others run (`Follow`)."""
    widens: bool = True
    """Whether this process can run tasks that read topics which have joined the run."""
    beat_s: float = 1.0
    session_s: float = 6.0
    retry_s: float = 1.0
    backoff_s: float = 1.0
    """The first pause before a broken target is probed; it doubles up to thirty times that."""
