"""What code of the user's can do in its task, in whatever it is called for: an actor's hook, or a tick of the clock."""

from __future__ import annotations

from typing import Any

from ...job.declare.checks import check_target
from ...job.declare.refused_verbs import RefusesVerbs
from ...records.kafka.writable import whole_ms
from ...records.values.record import Headers
from ..base.stateless import Operator, encode, encode_keys


class InTask(RefusesVerbs):
    """What a hook and a tick have in common; see `actors.Context`."""

    _CALLED = ""
    """How the user's function calls it."""

    def __init__(self, operator: Operator) -> None:
        self._of = operator

    @property
    def task(self) -> str:
        """The name of the task that calls."""
        return self._of.env.task

    @property
    def now_ms(self) -> int:
        """The wall clock, in milliseconds."""
        return self._of.env.now_ms()

    def table(self, name: str) -> Any:
        """A table of the app, bound to this task."""
        return self._of.env.table(name)

    def _time(self, timestamp: int | None) -> int:
        """The time of a record that user code makes, who may have given none."""
        return self.now_ms if timestamp is None else whole_ms(timestamp, "timestamp=")

    def emit(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        timestamp: int | None = None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        """Write a record to a topic, as part of the running letter."""
        step, env, time = self._of.step, self._of.env, self._time(timestamp)
        check_target(topic, f"{self._CALLED}.emit", env.app.topics, env.graph)
        keys = None if key is None else encode_keys(step, env.app.output_key_serde, [key])
        env.emit(topic, partition, keys, encode(step, env.app.serde, [value]), [time], [headers] if headers else None)

    def commit(self) -> None:
        """Commit after the running letter."""
        self._of.env.wants_commit = True
