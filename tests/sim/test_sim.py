"""Half of the ordinary fixed seeds, and the basis of any simulation: the same seed gives the same trace everywhere."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

from headgate.core.coordination.member.member import Member
from tests.sim.blocks import ROOT, fixed_blocks, run_fixed
from tests.sim.outcome import outcome, unheard
from tests.sim.process import Process
from tests.sim.world import World


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("block", fixed_blocks(0))
def test_fixed_seeds(block: int):
    """Fixed seeds that passed must still pass."""
    run_fixed(block)


def test_the_same_seed_gives_the_same_trace():
    """A run is a function of its seed: the traces are equal, line by line."""
    some, again = ([outcome(seed, trace=True).trace for seed in (3, 11)] for _ in range(2))
    assert min(map(len, some)) > 500
    assert some == again
    assert some[0] != some[1]


def test_the_same_seed_gives_the_same_trace_in_another_process():
    """Nothing depends on the order of a set: processes with other hash seeds print the same."""
    digests = set()
    for hash_seed in ("0", "1", "4242"):
        printed = subprocess.run(
            [sys.executable, "-m", "tests.sim", "7", "--trace"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            timeout=250,
            check=False,
        ).stdout
        assert printed.count(b"\n") > 500
        digests.add(hashlib.sha256(printed).hexdigest())
    assert len(digests) == 1


def test_a_world_without_faults_drains():
    """The plain case: nothing goes wrong, every row is counted once, and the drain is answered."""
    for seed in range(5):
        found = outcome(seed, faulty=False)
        assert found.ok, str(found)
        assert found.rows > 50


class Remembering(World):
    """Remembers every process that it has started."""

    def __init__(self, seed: int) -> None:
        self.had: list[Process] = []
        super().__init__(seed, faulty=False)

    def make_member(self, process: Process) -> Member:
        self.had.append(process)
        return super().make_member(process)


def test_a_world_that_is_over_has_no_living_process():
    """Python closes a forgotten coroutine inside whatever runs then, and its last time limit would cancel the wrong task."""
    world = Remembering(7)
    with unheard():
        world.run()
    assert world.had
    assert all(process.loop.is_closed() for process in world.had)
