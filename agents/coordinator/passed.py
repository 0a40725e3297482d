"""What has happened to the job lately, as the coordinator stream says it: its last records, which the fold keeps no longer.

The stream is compacted: a worker that starts reads only the last record of each key, and from then on all of them. What it shows of the
past therefore begins at its own start, with what compaction has left.

Promises: bounded by kind, so that many grants do not displace a change of the leader. Records that only repeat a state are left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import chain

from ...core.coordination import messages as c
from ...core.orders import TaskState

KEPT: Mapping[str, int] = {
    "set-run": 60, "set-leader": 30, "set-processor": 100, "set-fence": 50, "set-grant": 200, "set-task-state": 50,
    "set-request": 100, "set-answer": 100, "set-config": 100,
}  # fmt: skip
"""How many records are kept, by kind. Of the states of tasks only failures."""


class PassedEntries:
    """Takes the records of the stream in their order."""

    def __init__(self) -> None:
        self._kept = {kind: deque[c.Entry](maxlen=most) for kind, most in KEPT.items()}

    def take(self, entries: Iterable[c.Entry]) -> None:
        """Take the next records."""
        for entry in entries:
            if entry.message is None or entry.key is None or entry.problem or entry.key[0] not in self._kept:
                continue
            if isinstance(entry.message, c.SetTaskState) and entry.message.state != TaskState.FAILED:
                continue
            kept = self._kept[entry.key[0]]
            if not self._repeats(kept, entry):
                kept.append(entry)

    def _repeats(self, kept: deque[c.Entry], entry: c.Entry) -> bool:
        """Whether it says the same state as the record of its key before, like the progress of a request."""
        if not isinstance(entry.message, c.SetProcessor | c.SetAnswer | c.SetTaskState):
            return False
        before = next((one.message for one in reversed(kept) if one.key == entry.key), None)
        return isinstance(before, type(entry.message)) and before.state == entry.message.state

    def all(self) -> list[c.Entry]:
        """What is kept, oldest first."""
        return sorted(chain.from_iterable(self._kept.values()), key=lambda entry: entry.offset)
