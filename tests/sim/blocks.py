"""Blocks of fixed seeds, so that several processes can share them. `tests.sim.fuzz` runs other seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import count, islice
from pathlib import Path

import pytest

from tests.sim.faults import CALLS_FROM, EDGES_FROM, FURTHER_FROM, calls_of, edges_of, further_of
from tests.sim.outcome import outcome, story

ROOT = Path(__file__).resolve().parents[2]
BLOCK = 5
FIXED = 10
"""The worlds of planted bugs, which are run without them, too, are some fifty more; most of them are small."""
EDGE_BLOCK = 3
"""How many seeds with edges there are besides, how many with further requests, and how many with calls that the client cancels."""
CALM = [4_000_067, 4_000_080]
"""Seeds whose worlds become calm, so that time must go on: one job, and two that share."""
BRANCHED = [5_000_000, 5_000_034, 5_000_044, 5_000_052, 5_000_066, 5_000_101, 5_000_026, 5_000_050]
"""Seeds whose jobs have branches: each policy, parked rows among them, each kind of timer, and a table that is joined."""
DISMISSING = 50_011
"""A world in which workers are stopped by command, and work on."""
TICKING = [8_000_001, 8_000_003, 8_000_009]
"""Seeds in whose jobs the clock calls a function."""
RELEASED = [9_000_045, 9_000_056, 9_000_102, 9_000_111]
"""Seeds in which operators release parked rows, for which time waits."""
LEFT_OUT = [10_000_304, 10_000_563, 10_000_703, 10_000_716, 10_001_179]
"""Seeds in which operators have parked rows left out."""
ASKING = [11_000_002, 11_000_005, 11_000_016, 11_000_020]
"""Seeds whose jobs ask a service, in both ways."""
RANKED = [7_000_001, 7_000_002, 7_000_014]
"""Seeds whose jobs rank rows, in each of the ways of columns."""


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


def edge_blocks(besides: Collection[int] = ()) -> list[list[int]]:
    """The first seeds that draw edges, further requests, and cancelled calls; those with branches, calm ones, those that rank rows or
    tick, those that release parked rows or leave them out, and those that ask a service. `besides`: seeds that are run elsewhere."""
    drawn = ((edges_of, EDGES_FROM), (further_of, FURTHER_FROM), (calls_of, CALLS_FROM))
    blocks = [list(islice(filter(of, count(first)), EDGE_BLOCK)) for of, first in drawn]
    blocks += [BRANCHED, CALM, RANKED, TICKING, RELEASED, LEFT_OUT, ASKING]
    own = ([seed for seed in block if seed not in besides] for block in blocks)
    return [block for block in own if block]


def run_fixed(block: int) -> None:
    """Run one block of the fixed seeds."""
    run_block(list(range(block * BLOCK, (block + 1) * BLOCK)))
