"""Places tasks on workers: `place`, a pure function, and the check that a user's own placement must pass.

It decides, in this order:

1. *Balance.* With n tasks and m processors, every processor gets ⌊n/m⌋ or ⌈n/m⌉ tasks, without exception.
2. *Fewest moves.* Among all balanced placements it chooses one in which as many tasks as possible stay with their previous processor.
3. *Location.* Among those it chooses one in which as many as possible of the moved tasks come to a processor at the location where they
  last ran (whose disk has their store).
4. *Former location.* To the seats that are left come tasks that ran at their location before they came to their processor. So a processor
  that returns gets back what it had. Of several tasks that could go, those that left last do: their stores there lack least.
5. *Least loaded.* The remaining tasks go to the processors with the fewest tasks.

Promises: the result is immutable, the same for the same arguments in any order and on any machine, and stable (placing again with the
result as `previous` changes nothing).

Why a flow: goals 2 and 3 cannot be reached by placing the tasks one by one. Which of its surplus tasks a processor gives away, and which
processors get the ⌈n/m⌋+1 seats, together decide how many others can go to their old location. The number of tasks that stay is a plain
sum, Σ min(held, seats). The rest is a maximum flow from processors with a surplus, and from tasks without a processor, over locations, to
free seats. A location has few edges, so the network is small: 1,000 tasks on 100 processors take some milliseconds.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Protocol, cast

from ..errors import DeclarationError
from ..names import natural
from ..user_rule import called

Placement = Mapping[str, tuple[str, ...]]
"""Processor → its tasks, both in natural order; immutable."""


@dataclass(frozen=True, slots=True)
class Former:
    """Where a task ran before, and when it left, by any clock."""

    location: str
    left: int


class Placer(Protocol):
    """The interface of a user's own placement: a function with this signature, named by its import path."""

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
    *,
    former: Mapping[str, Former] = MappingProxyType({}),
) -> Placement:
    """The placement of `tasks` on the processors that `processor_locality` names.

    `task_locality`: where a task last ran. `processor_locality`: where each processor is (None: unknown, matches nothing). `previous`:
    which processor had the task. `former`: where each task ran before it came to the processor that has it. Unknown tasks and processors in
    these are ignored. Without processors the result is empty; without tasks every processor has `()`.

    >>> dict(place(["a", "b", "c"], {"c": "rack"}, {"p1": None, "p2": "rack"}, {"a": "p1"}))
    {'p1': ('a', 'b'), 'p2': ('c',)}
    """
    processors = sorted(set(processor_locality), key=natural)
    ordered = sorted(set(tasks), key=natural)
    if not processors:
        return MappingProxyType({})
    return _Placing(ordered, task_locality, {p: processor_locality[p] for p in processors}, previous, former).result()


class _Placing:
    """One call of `place`: its steps share seats, holders and tasks without a processor."""

    def __init__(
        self,
        tasks: list[str],
        task_locality: Mapping[str, str | None],
        processors: dict[str, str | None],
        previous: Mapping[str, str | None],
        former: Mapping[str, Former],
    ) -> None:
        self.processors = processors
        self.location = {task: task_locality.get(task) for task in tasks}
        self.floor, self.extra = divmod(len(tasks), len(processors))
        self.held: dict[str, list[str]] = {p: [] for p in processors}
        self.homeless: list[str] = []
        for task in tasks:
            self.held.get(previous.get(task) or "", self.homeless).append(task)
        self.former = {task: former[task] for held in self.held.values() for task in held if task in former}
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
        """How many tasks go from where to which location, so that as many as possible come to where they last ran."""
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
        # A holder must give away what exceeds its ceiling, and one task more if there are not enough ceilings for all.
        flow.edge("source", "no ceiling", max(0, len(self.surplus) - self.extra))
        for p in self.surplus:
            flow.edge("source", ("gives", p), len(self.held[p]) - self.floor - 1)
            flow.edge("no ceiling", ("gives", p), 1)
            for location, count in Counter(self.location[task] for task in self.held[p]).items():
                if location is not None and location in room:
                    flow.edge(("gives", p), ("location", location), count)
        flow.run()
        if self.former:
            flow.keep()
            for p in self.surplus:
                for location, count in Counter(map(self._ran_before, self.held[p])).items():
                    if location in room:
                        flow.edge(("gives", p), ("former", location), count)
                        flow.edge(("former", location), ("location", location), len(self.former))
            flow.run()
        return flow

    def _ran_before(self, task: str) -> str:
        """Where it ran before it came to its processor; empty if that is not known."""
        found = self.former.get(task)
        return "" if found is None else found.location

    def _ceilings(self, flow: _Flow) -> set[str]:
        """The processors that get ⌈n/m⌉ tasks: first those that hold that many, then those where a moved task last ran, then those with the
        most.
        """
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
        """Take the surplus from its holder: first tasks for which the flow found a place, then tasks without a store here, then the last
        ones.
        """
        away: list[str] = []
        due: Counter[str | None] = Counter()
        former: Counter[str] = Counter()
        for at in {self.location[task] for task in self.held[processor]}:
            if at is not None:
                due[at] = flow.used(("gives", processor), ("location", at))
        for at in set(map(self._ran_before, self.held[processor])):
            former[at] = flow.used(("gives", processor), ("former", at))
        rest: list[str] = []
        for task in reversed(self.held[processor]):
            if due[self.location[task]] > 0:
                due[self.location[task]] -= 1
                away.append(task)
            else:
                rest.append(task)
        for task in sorted(rest, key=self._left, reverse=True) if former.total() else ():
            if former[self._ran_before(task)] > 0:
                former[self._ran_before(task)] -= 1
                away.append(task)
                rest.remove(task)
        here = self.processors[processor]
        rest.sort(key=lambda task: here is not None and self.location[task] == here)
        away += rest[: len(self.held[processor]) - seats - len(away)]
        gone = set(away)
        self.held[processor] = [task for task in self.held[processor] if task not in gone]
        return away

    def _left(self, task: str) -> int:
        found = self.former.get(task)
        return 0 if found is None else found.left

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
        moved[:] = [task for task in unseated if not self._seat(task, heaps.get(self._ran_before(task), []), seats)]

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
    """Maximum flow with integers (Dinic: layers by breadth-first search, then paths along them, until the sink is cut off)."""

    def __init__(self) -> None:
        self.left: defaultdict[_Node, dict[_Node, int]] = defaultdict(dict)
        self.given: dict[tuple[_Node, _Node], int] = {}

    def edge(self, source: _Node, target: _Node, capacity: int) -> None:
        if capacity > 0:
            self.left[source][target] = capacity
            self.left[target].setdefault(source, 0)
            self.given[source, target] = capacity

    def keep(self) -> None:
        """What flows by now is not led elsewhere."""
        for source, target in self.given:
            self.left[target][source] = 0

    def used(self, source: _Node, target: _Node) -> int:
        """The flow along this edge."""
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
    """The same placement with `task` at `to`, for an operator's request. Its previous owner gets another task in return if the balance
    requires it.

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
    """The checked result of a placement. Raises `DeclarationError` with its name if it raises or returns an invalid result.

    >>> dict(asked("default", place, ["a"], {}, {"p1": None}, {}))
    {'p1': ('a',)}
    """
    given = list(tasks), dict(task_locality), dict(processor_locality), dict(previous)
    return check_placement(name, called("placement", name, placer, *given), tasks, processor_locality)


def check_placement(name: str, answer: object, tasks: Collection[str], processors: Collection[str]) -> Placement:
    """The result of the placement called `name`, frozen. It is refused unless each task is placed exactly once, at a known processor.

    Balance is not required: a user's own placement exists to place differently.
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
    """A user's result as plain values, or an error about it. Iterating over it runs user code, which may also raise."""
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
