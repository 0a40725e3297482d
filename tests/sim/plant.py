"""A planted bug: attributes of the product that are replaced while one world runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .branches import BRANCHES_FROM, RELEASING_FROM, SKIPPING_FROM, TICKING_FROM, Branches
from .faults import CALLS, CALLS_FROM, EDGES, EDGES_FROM, FURTHER, FURTHER_FROM
from .lookups import LOOKUPS_FROM, ONE, SEVERAL
from .timely import CALM_FROM, timed

if TYPE_CHECKING:
    from .world import World

ABSENT = object()
FIRST = 50_000
BRANCHES = frozenset(
    word
    for one in (
        Branches("dead_letter", False, "event", True),
        Branches("skip", False, "clock", True),
        Branches("parks", True, "", False),
    )
    for word in one.words
)
"""What only worlds from `BRANCHES_FROM` on have."""


class Plant:
    """One bug: attributes that are replaced while a world runs."""

    def __init__(
        self, name: str, why: str, patches: Callable[[], list[tuple[Any, str, Any]]], needs: tuple[str, ...] = ()
    ) -> None:
        """`needs`: faults, requests, `windows` or a kind of them, `columns` or a way of them, `tables`, several `hosts`, `follows`,
        `standby`, `shares`, `modulo`, `bounded`, `at least once`, `calm`, `groups`, a policy, `timers`, `enriched`, `ticking`. Without
        them the bug has no effect, and a seed is skipped.
        """
        self.name = name
        self.why = why
        self.needs = frozenset(needs)
        self._patches = patches
        self._undo: list[tuple[Any, str, Any]] = []

    @property
    def first(self) -> int:
        """The first seed that may have what it needs."""
        if self.needs & {ONE, SEVERAL}:
            return LOOKUPS_FROM
        if "leave-out" in self.needs:
            return SKIPPING_FROM
        if "release" in self.needs:
            return RELEASING_FROM
        if "ticking" in self.needs:
            return TICKING_FROM
        if self.needs & BRANCHES:
            return BRANCHES_FROM
        if self.needs & {"calm", "groups"}:
            return CALM_FROM
        if self.needs & CALLS.keys():
            return CALLS_FROM
        if self.needs & {*FURTHER, "at least once"}:
            return FURTHER_FROM
        return EDGES_FROM if self.needs & EDGES.keys() else FIRST

    def shows(self, seed: int) -> bool:
        """Whether the world of this seed has everything that the bug needs."""
        from .world import World

        if not self.needs:
            return True
        world = World(seed)
        has = {
            "tables": world.shape.stateful,
            "hosts": len(world.locations) > 1,
            "follows": world.follows,
            "standby": world.standby > 0,
            "shares": world.sharing is not None,
            "modulo": world.shape.modulo,
            "bounded": world.shape.bounded,
            "at least once": world.at_least_once,
            "groups": world.groups,
            "calm": world.timely.calm and any(map(timed, world.jobs)),
        }
        drawn = {name for name, true in has.items() if true}
        if world.shape.windows is not None:
            drawn |= world.shape.windows.words
        joining = next((job.joining for job in world.jobs if job.joining is not None), None)
        if joining is not None:
            drawn |= joining.words
        branches = next((job.branches for job in world.jobs if job.branches is not None), None)
        if branches is not None:
            drawn |= branches.words
        if world.shape.columns:
            drawn |= {"columns", world.shape.columns}
        return world.faults is not None and self.needs <= drawn | {*world.faults.kinds}

    def into(self, world: World) -> None:
        """Plant the bug."""
        for owner, attribute, replacement in self._patches():
            assert hasattr(owner, attribute) or not callable(replacement), (
                f"{self.name} changes {attribute}, which {owner} has no more"
            )
            self._undo.append((owner, attribute, owner.__dict__.get(attribute, ABSENT)))
            setattr(owner, attribute, replacement)

    def out(self) -> None:
        """Remove it."""
        for owner, attribute, original in reversed(self._undo):
            if original is ABSENT:
                delattr(owner, attribute)
            else:
                setattr(owner, attribute, original)
        self._undo = []
