"""Names that a cluster generates never return: the contents of the coordinator stream are limited by the number of living workers."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.core.coordination.leader import cleanup as leader_cleanup
from headgate.core.coordination.leader.draft import Draft
from tests.sim.generations import Generations
from tests.sim.invariants import Violation

NAMES = 10_000


@pytest.mark.timeout(1200)  # about two minutes of one core; a shared machine may be slow
def test_ten_thousand_generations_of_workers_leave_nothing_behind():
    """Each pod has a new name. Without cleanup, the stream, and with it the start of every worker, would grow with every pod that ever
    lived.

    The leaders and members are the real ones; they are elected, killed and cleaned up. The stream is compacted and checked at each change.
    """
    world = Generations(1, NAMES)
    world.run()
    truth = world.invariants.truth(world.job)
    assert (world.begun, world.looks) == (NAMES, NAMES - 2)
    assert world.effects["kill"] > NAMES // 2
    assert world.effects["sigterm"] > NAMES // 10
    assert truth.terms > 100, "leaders go, too"
    assert sum(one.rows for _, one in world.accounts()) > 20, "the job has worked"
    assert len(truth.state.at) <= world.most < 200
    world.invariants.folds(world.job)
    print(f"{truth.terms} leaders, at most {world.most} keys, {world.schedule.steps} steps")


def test_a_leader_that_forgets_nobody_is_found_within_two_hundred(monkeypatch: pytest.MonkeyPatch):
    """What the test above is worth: without the rule that cleans up, the world fails at once."""

    def nobody(draft: Draft, most: int) -> list[Any]:
        return []

    monkeypatch.setattr(leader_cleanup, "_gone", nobody)
    with pytest.raises(Violation, match="workers that are long gone"):
        Generations(1, 200).run()
