"""Blocks of fixed seeds, so that several processes can share them. `tests.sim.fuzz` runs other seeds."""

from __future__ import annotations

from collections import Counter
from itertools import count, islice
from pathlib import Path

import pytest

from tests.sim.faults import EDGES_FROM, FURTHER_FROM, edges_of, further_of
from tests.sim.outcome import outcome, story

ROOT = Path(__file__).resolve().parents[2]
BLOCK = 25
FIXED = 125
EDGE_BLOCK = 12
"""How many seeds with edges there are besides, and how many with further requests."""
CALM = [4_000_067, 4_000_080]
"""Seeds whose worlds become calm, so that time must go on: one job, and two that share."""


def run_block(seeds: list[int]) -> Counter[str]:
    """Run the seeds; on the first failure, print its trace."""
    effects: Counter[str] = Counter()
    for seed in seeds:
        found = outcome(seed)
        if not found.ok:
            pytest.fail(story(seed), pytrace=False)
        effects.update(found.effects)
    print("faults that took effect:", ", ".join(f"{name} {count}" for name, count in effects.most_common()))
    return effects


def fixed_blocks(part: int) -> list[int]:
    """The blocks of one half of the fixed seeds."""
    return list(range(part, FIXED // BLOCK, 2))


def edge_blocks() -> list[list[int]]:
    """The first seeds that draw edges, the first ones that draw further requests, and calm ones."""
    edges, further = filter(edges_of, count(EDGES_FROM)), filter(further_of, count(FURTHER_FROM))
    return [list(islice(edges, EDGE_BLOCK)), list(islice(further, EDGE_BLOCK)), CALM]


def run_fixed(block: int) -> None:
    """Run one block of the fixed seeds."""
    run_block(list(range(block * BLOCK, (block + 1) * BLOCK)))
