"""The letter that a task works on, as heartbeats, pages and commands show it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AtWork:
    """The letter under way: what it is, for how long, and which function it awaits."""

    task: str
    what: str
    for_s: float

    @property
    def text(self) -> str:
        """For people.

        >>> AtWork("Partition 0", "orders:0 offsets 3 to 9", 12.3).text
        'Partition 0 has been working on orders:0 offsets 3 to 9 for 12 s'
        """
        return f"{self.task} has been working on {self.what} for {self.for_s:.0f} s"
