"""What a member is told once, when its process starts. Values, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class MemberConfig:
    """Who this process is, what it would run, and what is known of the process before it."""

    processor: str
    process: str
    """The process start."""
    token: str
    """Random letters and digits, behind the counter of each of its incarnations."""
    location: str = ""
    url: str = ""
    pid: int = 0
    version: str = ""
    deployment: str = ""
    fingerprint: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    run_id: str = ""
    """What `--run-id` asked for."""
    job: str = ""
    """Name and id, exactly."""
    lock_free: bool = False
    """The processor's lock file in the state directory was free: whoever ran here before is dead."""
    supervised: bool = False
    """The supervisor that started this process says that the one before it is dead."""
    no_wait: bool = False
    """`--no-wait`: do not wait for a run that is closed; exit with 4."""
    bounded: bool = False
    """`--bounded`: begin another run when the last one has ended."""
    beat_s: float = 1.0
    session_s: float = 6.0
    retry_s: float = 1.0
    backoff_s: float = 1.0
    """First pause before a broken target is asked whether it can be written; it doubles up to thirty times that."""
