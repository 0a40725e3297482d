"""The other half of the fixed seeds, and seeds of this very commit: nothing that may never be seen is seen."""

from __future__ import annotations

import pytest

from tests.sim.blocks import BLOCK, OF_COMMIT, commit, fixed_blocks, run_block, run_fixed


@pytest.mark.parametrize("block", fixed_blocks(1))
def test_fixed_seeds(block: int):
    """The same seeds every time: what was right stays right."""
    run_fixed(block)


@pytest.mark.parametrize("block", range(OF_COMMIT // BLOCK))
def test_seeds_of_this_commit(block: int):
    """Other seeds with every commit: what nobody has looked at yet."""
    base = 1_000_000 + commit() * 1000
    run_block([base + n for n in range(block * BLOCK, (block + 1) * BLOCK)])
