"""The other half of the fixed seeds: nothing that may never be seen is seen."""

from __future__ import annotations

import pytest

from tests.sim.blocks import fixed_blocks, run_fixed


@pytest.mark.parametrize("block", fixed_blocks(1))
def test_fixed_seeds(block: int):
    """The same seeds every time: what was right stays right."""
    run_fixed(block)
