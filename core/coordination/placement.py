"""Which worker runs which task: `place`, a pure function, and the check that a placement of somebody else's must pass.

What it decides, in this order:

1. *Balance.* With n tasks on m processors every processor gets ⌊n/m⌋ or ⌈n/m⌉ tasks. Never anything else.
2. *Fewest moves.* Among all balanced placements it takes one in which as many tasks as possible stay with their previous
   processor.
3. *Location.* Among those it takes one in which as many as possible of the tasks that cannot stay come to a processor at
   the location where they last ran (whose disk holds their store).
4. *Least loaded.* What is left goes to whoever has least.

What it promises: the result is immutable, the same for the same arguments in any order and on any machine, and stable
(placing again with the result as `previous` changes nothing).

Why a flow: points 2 and 3 cannot be had by going through the tasks one by one. Which of its surplus tasks a processor gives
away, and which processors get the ⌈n/m⌉ seats, decides together how many others can be at their old location. How many stay is
a plain count, Σ min(held, seats); the rest is a maximum flow from processors with a surplus, and from tasks without a home, over
locations, to free seats. A location has few edges, so the network is small: 1,000 tasks on 100 processors take some milliseconds.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Protocol, cast

from ..errors import DeclarationError
from ..names import natural
from ..user_rule import called

Placement = Mapping[str, tuple[str, ...]]
"""Processor → its tasks, both in natural order; immutable."""


class Placer(Protocol):
    """What a placement of your own looks like: a function with this signature, named by import path."""

    def __call__(
        self,
        tasks: Collection[str],
        task_locality: Mapping[str, str | None],
        processor_locality: Mapping[str, str | None],
        previous: Mapping[str, str | None],
        /,
    ) -> Mapping[str, Collection[str]]: ...


def place(
    tasks: Iterable[str],
    task_locality: Mapping[str, str | None],
    processor_locality: Mapping[str, str | None],
    previous: Mapping[str, str | None],
) -> Placement:
    """The placement of `tasks` on the processors that `processor_locality` names.

    `task_locality`: where a task last ran; `processor_locality`: where each processor is (None = unknown, matches nothing);
    `previous`: who had the task. Names in the two that are not tasks or processors any more are ignored.
    Without processors the answer is empty, for nobody can have anything; without tasks everybody has `()`.

    >>> dict(place(["a", "b", "c"], {"c": "rack"}, {"p1": None, "p2": "rack"}, {"a": "p1"}))
    {'p1': ('a', 'b'), 'p2': ('c',)}
    """
    processors = sorted(set(processor_locality), key=natural)
    ordered = sorted(set(tasks), key=natural)
    if not processors:
        return MappingProxyType({})
    return _Placing(ordered, task_locality, {p: processor_locality[p] for p in processors}, previous).result()


class _Placing:
    """One call of `place`: the steps share what they know of seats, holders and homeless tasks."""

    def __init__(
        self,
        tasks: list[str],
        task_locality: Mapping[str, str | None],
        processors: dict[str, str | None],
        previous: Mapping[str, str | None],
    ) -> None:
        self.processors = processors
        self.location = {task: task_locality.get(task) for task in tasks}
        self.floor, self.extra = divmod(len(tasks), len(processors))
        self.held: dict[str, list[str]] = {p: [] for p in processors}
        self.homeless: list[str] = []
        for task in tasks:
            self.held.get(previous.get(task) or "", self.homeless).append(task)
        self.surplus = [p for p, held in self.held.items() if len(held) > self.floor]
        self.roomy = [p for p, held in self.held.items() if len(held) <= self.floor]

    def result(self) -> Placement:
        flow = self._flow()
        ceiling = self._ceilings(flow)
        seats = {p: self.floor + (p in ceiling) for p in self.processors}
        moved = self.homeless + [task for p in self.surplus for task in self._given_away(p, seats[p], flow)]
        self._seat_by_location(moved, seats)
        self._seat_by_load(moved, seats)
        return MappingProxyType({p: tuple(sorted(held, key=natural)) for p, held in self.held.items()})

    def _flow(self) -> _Flow:
        """How many tasks go from where to which location, so that as many as possible find a seat where they last ran."""
        flow = _Flow()
        free: Counter[str] = Counter()
        room: Counter[str] = Counter()
        for p in self.roomy:
            if (location := self.processors[p]) is not None:
                free[location] += self.floor - len(self.held[p])
                room[location] += 1
        spare = max(0, self.extra - len(self.surplus))
        for location in room:
            flow.edge(("location", location), "sink", free[location])
            flow.edge(("location", location), "spare seats", room[location])
        flow.edge("spare seats", "sink", spare)
        for location, count in Counter(self.location[task] for task in self.homeless).items():
            if location is not None and location in room:
                flow.edge("source", ("location", location), count)
        # A holder must give away what exceeds its ceiling; one task more where the ceilings do not suffice for all.
        flow.edge("source", "no ceiling", max(0, len(self.surplus) - self.extra))
        for p in self.surplus:
            flow.edge("source", ("gives", p), len(self.held[p]) - self.floor - 1)
            flow.edge("no ceiling", ("gives", p), 1)
            for location, count in Counter(self.location[task] for task in self.held[p]).items():
                if location is not None and location in room:
                    flow.edge(("gives", p), ("location", location), count)
        flow.run()
        return flow

    def _ceilings(self, flow: _Flow) -> set[str]:
        """Who gets ⌈n/m⌉: first who holds so many, then who sits where a moved task wants to go, then who has most already."""
        if len(self.surplus) > self.extra:
            bound = [p for p in self.surplus if not flow.used("no ceiling", ("gives", p))]
            return set(bound[: self.extra])
        ceiling = set(self.surplus)
        wanted: Counter[str | None] = Counter()
        for at in self.processors.values():
            if at is not None:
                wanted[at] = flow.used(("location", at), "spare seats")
        later: list[str] = []
        for p in self.roomy:
            at = self.processors[p]
            if wanted[at] > 0:
                wanted[at] -= 1
                ceiling.add(p)
            else:
                later.append(p)
        ceiling.update(later[: self.extra - len(ceiling)])
        return ceiling

    def _given_away(self, processor: str, seats: int, flow: _Flow) -> list[str]:
        """Takes the surplus from its holder: first what the flow found a place for, then what has no store here, then the last."""
        away: list[str] = []
        due: Counter[str | None] = Counter()
        for at in {self.location[task] for task in self.held[processor]}:
            if at is not None:
                due[at] = flow.used(("gives", processor), ("location", at))
        rest: list[str] = []
        for task in reversed(self.held[processor]):
            if due[self.location[task]] > 0:
                due[self.location[task]] -= 1
                away.append(task)
            else:
                rest.append(task)
        here = self.processors[processor]
        rest.sort(key=lambda task: here is not None and self.location[task] == here)
        away += rest[: len(self.held[processor]) - seats - len(away)]
        gone = set(away)
        self.held[processor] = [task for task in self.held[processor] if task not in gone]
        return away

    def _seat_by_location(self, moved: list[str], seats: dict[str, int]) -> None:
        at: defaultdict[str, list[str]] = defaultdict(list)
        for p in self.roomy:
            location = self.processors[p]
            if location is not None:
                at[location].append(p)
        unseated: list[str] = []
        heaps = {location: [(len(self.held[p]), n, p) for n, p in enumerate(ps)] for location, ps in at.items()}
        for heap in heaps.values():
            heapq.heapify(heap)
        for task in sorted(moved, key=natural):
            if not self._seat(task, heaps.get(self.location[task] or "", []), seats):
                unseated.append(task)
        moved[:] = unseated

    def _seat_by_load(self, moved: list[str], seats: dict[str, int]) -> None:
        heap = [(len(self.held[p]), n, p) for n, p in enumerate(self.processors)]
        heapq.heapify(heap)
        for task in moved:
            self._seat(task, heap, seats)

    def _seat(self, task: str, heap: list[tuple[int, int, str]], seats: dict[str, int]) -> bool:
        while heap:
            load, n, p = heapq.heappop(heap)
            if load < seats[p]:
                self.held[p].append(task)
                heapq.heappush(heap, (load + 1, n, p))
                return True
        return False


_Node = str | tuple[str, str]


class _Flow:
    """Maximum flow with whole numbers (Dinic: a breadth-first layering, then paths along it, until the sink is cut off)."""

    def __init__(self) -> None:
        self.left: defaultdict[_Node, dict[_Node, int]] = defaultdict(dict)
        self.given: dict[tuple[_Node, _Node], int] = {}

    def edge(self, source: _Node, target: _Node, capacity: int) -> None:
        if capacity > 0:
            self.left[source][target] = capacity
            self.left[target].setdefault(source, 0)
            self.given[source, target] = capacity

    def used(self, source: _Node, target: _Node) -> int:
        """What flows along this edge."""
        return self.given.get((source, target), 0) - self.left[source].get(target, 0)

    def run(self) -> None:
        while "sink" in (layer := self._layers()):
            dead: set[_Node] = set()
            while self._path(layer, dead):
                pass

    def _layers(self) -> dict[_Node, int]:
        layer: dict[_Node, int] = {"source": 0}
        queue: deque[_Node] = deque(["source"])
        while queue:
            node = queue.popleft()
            for target, capacity in self.left[node].items():
                if capacity > 0 and target not in layer:
                    layer[target] = layer[node] + 1
                    queue.append(target)
        return layer

    def _path(self, layer: dict[_Node, int], dead: set[_Node]) -> bool:
        path: list[_Node] = ["source"]
        while path and path[-1] != "sink":
            node = path[-1]
            for target, capacity in self.left[node].items():
                if capacity > 0 and target not in dead and layer.get(target) == layer[node] + 1:
                    path.append(target)
                    break
            else:
                dead.add(path.pop())
        if not path:
            return False
        steps = list(pairwise(path))
        amount = min(self.left[a][b] for a, b in steps)
        for a, b in steps:
            self.left[a][b] -= amount
            self.left[b][a] += amount
        return True


def moved(placement: Mapping[str, Collection[str]], task: str, to: str) -> Placement:
    """The same placement with `task` at `to`, by an operator's request; whoever lost it gets one back if that keeps the balance.

    >>> dict(moved({"p1": ["a", "b"], "p2": ["c"]}, "a", "p2"))
    {'p1': ('b',), 'p2': ('a', 'c')}
    """
    owner = next((p for p, held in placement.items() if task in held), None)
    if owner is None or to not in placement:
        raise DeclarationError(
            f"'{task}' cannot move to '{to}': " + ("no such task" if owner is None else "no such processor"),
            remedy="see `headgate model` for the names of tasks and processors",
        )
    held = {p: sorted(tasks, key=natural) for p, tasks in placement.items()}
    if owner != to:
        if len(held[to]) >= len(held[owner]):
            held[owner].append(held[to].pop())
        held[owner].remove(task)
        held[to].append(task)
    return MappingProxyType({p: tuple(sorted(held[p], key=natural)) for p in sorted(held, key=natural)})


def asked(
    name: str,
    placer: Placer,
    tasks: Collection[str],
    task_locality: Mapping[str, str | None],
    processor_locality: Mapping[str, str | None],
    previous: Mapping[str, str | None],
) -> Placement:
    """What a placement answers, checked; `DeclarationError` with its name if it raises or answers what none may.

    >>> dict(asked("default", place, ["a"], {}, {"p1": None}, {}))
    {'p1': ('a',)}
    """
    given = list(tasks), dict(task_locality), dict(processor_locality), dict(previous)
    return check_placement(name, called("placement", name, placer, *given), tasks, processor_locality)


def check_placement(name: str, answer: object, tasks: Collection[str], processors: Collection[str]) -> Placement:
    """What the placement called `name` has answered, frozen; refused unless each task stands exactly once, at a known processor.

    Balance is not asked for: to place otherwise is the reason to bring a placement of one's own.
    """

    def refuse(what: str) -> DeclarationError:
        return DeclarationError(
            f"the placement '{name}' {what}", remedy="place each task once, on one of the given processors"
        )

    result = called("placement", name, _plain, answer, refuse)
    if isinstance(result, DeclarationError):
        raise result
    if unknown := sorted(set(result) - set(processors)):
        raise refuse(f"names an unknown processor: '{unknown[0]}'")
    counts = Counter(task for held in result.values() for task in held)
    if strange := sorted(set(counts) - set(tasks)):
        raise refuse(f"places an unknown task: '{strange[0]}'")
    if twice := sorted(task for task, count in counts.items() if count > 1):
        raise refuse(f"places '{twice[0]}' more than once")
    if processors and (left := sorted(set(tasks) - set(counts), key=natural)):
        raise refuse(f"does not place '{left[0]}' ({len(left)} of {len(set(tasks))} tasks are left out)")
    return MappingProxyType(
        {p: tuple(sorted(result.get(p, ()), key=natural)) for p in sorted(set(processors), key=natural)}
    )


def _plain(answer: object, refuse: Callable[[str], DeclarationError]) -> dict[str, list[str]] | DeclarationError:
    """A user's answer as plain values, or what is none about it. Walking through it runs code of the user's, and that may raise, too."""
    if not isinstance(answer, Mapping):
        return refuse(f"returned {answer!r}, which is not a mapping of processors to tasks")
    result: dict[str, list[str]] = {}
    for processor, held in cast("Mapping[object, Iterable[object]]", answer).items():
        if not isinstance(processor, str):
            return refuse(f"names a processor {processor!r}, which is not text")
        if isinstance(held, str):
            return refuse(f"gives '{processor}' {held!r}, which is not a list of tasks")
        result[processor] = []
        for task in held:
            if not isinstance(task, str):
                return refuse(f"gives '{processor}' {task!r}, which is not a task")
            result[processor].append(task)
    return result
