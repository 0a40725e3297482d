"""Whether a service is asked at all: a circuit that opens after so many failures in a row, and closes with the first answer.

Promises: only failures that say that the service is away count, and any answer ends their row. While the circuit is open, no call is made
but probes, one at a time; their failures change nothing but the reason that is shown.
"""

from __future__ import annotations


class Breaker:
    """The circuit of one service. `after`: how many failures in a row open it; 0: it never opens."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.answers = 0
        """How often the service has answered. Whoever waits sees by it whether it has answered someone else meanwhile."""
        self.openings = 0
        """How often the circuit has opened."""
        self.in_a_row = 0
        """How many calls have failed since the last answer."""
        self.open = False

    def answered(self) -> None:
        """The service has answered, be it with a refusal."""
        self.answers += 1
        self.in_a_row = 0
        self.open = False

    def failed(self) -> None:
        """The service was away."""
        self.in_a_row += 1
        if not self.open and 0 < self.after <= self.in_a_row:
            self.open = True
            self.openings += 1
