"""Names that a cluster generates never return: the contents of the coordinator stream are limited by the number of living workers."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.core.coordination.leader import cleanup as leader_cleanup
from headgate.core.coordination.leader.draft import Draft
from tests.sim.generations import come_and_gone
from tests.sim.invariants import Violation

NAMES = 400
"""A worker may be remembered for two minutes at most, in which some 80 others come and go: this is five times as many. More show no more,
because the stream is checked at each change: `make fuzz` runs ten thousand.
"""


@pytest.mark.timeout(600)
def test_hundreds_of_generations_of_workers_leave_nothing_behind():
    """Each pod has a new name. Without cleanup, the stream, and with it the start of every worker, would grow with every pod that ever
    lived.

    The leaders and members are the real ones; they are elected, killed and cleaned up. The stream is compacted and checked at each change.
    """
    print(come_and_gone(NAMES))


def test_a_leader_that_forgets_no_one_is_found_within_two_hundred(monkeypatch: pytest.MonkeyPatch):
    """What the test above is worth: without the rule that cleans up, the world fails at once."""

    def nobody(draft: Draft, most: int) -> list[Any]:
        return []

    monkeypatch.setattr(leader_cleanup, "_gone", nobody)
    with pytest.raises(Violation, match="workers that are long gone"):
        come_and_gone(200)
