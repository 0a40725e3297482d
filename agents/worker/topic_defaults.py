"""With how many replicas, and with which retention, a job creates topics: what its settings say.

It decides nothing that the job's correctness needs: that is in the `config` of a `TopicSpec`, and a topic that lacks it refuses the start.
Promises: what the settings leave open is the brokers' to choose. A topic that is there and is not as the settings say is used as it is, and
named with the command that changes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ...core.errors import SettingError
from ..kafka.topics import DAY_MS, TopicSpec


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """What a job's settings say of the topics that it creates. Zero: the brokers choose."""

    replicas: int = 0
    min_insync: int = 0
    outputs_kept_ms: int = 0
    dead_letters_kept_ms: int = 14 * DAY_MS

    @classmethod
    def of(cls, value: Callable[[str], Any]) -> TopicDefaults:
        """What these settings say. Raises `SettingError` if no record could be written then."""
        replicas, min_insync = int(value("topic.replicas")), int(value("topic.min-insync"))
        if 0 < replicas < min_insync:
            raise SettingError(
                f"topic.min-insync={min_insync} is more than topic.replicas={replicas}: no record could be written",
                remedy="with three replicas, two in sync allow one broker to be away: topic.replicas=3, topic.min-insync=2",
            )
        return cls(
            replicas, min_insync, int(value("topic.output-retention")), int(value("topic.dead-letters-retention"))
        )

    def own(self, spec: TopicSpec) -> TopicSpec:
        """A topic that the job keeps for itself, or for other jobs."""
        return self._with(spec, 0)

    def output(self, spec: TopicSpec) -> TopicSpec:
        """An output that the job creates."""
        return self._with(spec, self.outputs_kept_ms)

    def dead_letters(self, spec: TopicSpec) -> TopicSpec:
        """The topic of its dead letters."""
        return self._with(spec, self.dead_letters_kept_ms)

    def _with(self, spec: TopicSpec, kept_ms: int) -> TopicSpec:
        preferred = {
            **({"min.insync.replicas": str(self.min_insync)} if self.min_insync else {}),
            **({"retention.ms": str(kept_ms)} if kept_ms else {}),
        }
        return replace(spec, preferred=preferred, replication=self.replicas or -1)
