"""The other half of the fixed seeds: no invariant is violated."""

from __future__ import annotations

import pytest

from tests.sim.blocks import fixed_blocks, run_fixed


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("block", fixed_blocks(1))
def test_fixed_seeds(block: int):
    """Fixed seeds that passed must still pass."""
    run_fixed(block)
