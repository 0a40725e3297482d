"""By which partitioner the keys of an input were spread, as far as one task can tell, and whether inputs that meet by key agree.

Java's clients place a key by murmur2, and so do we; librdkafka's default places it by CRC32. A join of two topics that were written by
one of each finds nothing for most keys, and no record is wrong by itself. So each task tests the keys of its own partitions: a key is
where a partitioner would have put it, or elsewhere. What it decides:

- *Known*: at least 50 distinct keys, 99 % of them where murmur2 (or CRC32) puts them.
- *other*: as many, and neither explains where they are. `unknown`: fewer keys. A task that owns all partitions of an input tests nothing.
- *A join* (and whatever else brings streams together by key) fails when two of its inputs are known, or said by `partitioner=`, to be
  spread differently, or one is spread by neither. Few keys are enough where they contradict plainly: three or more that are elsewhere,
  and a tenth of all. What contradicts nothing goes on: an empty topic, or a small one, can be joined; it is shown as unknown, and tested
  as it grows.
- *An aggregate* needs equal keys in one partition only, so for a single input nothing fails. `other` is worth a warning.

What a user says by `partitioner=` counts, and what is tested against it only warns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import log2

from ..errors import DeclarationError
from .checks import met
from .graph import Graph, Stage

MURMUR2, CRC32 = "murmur2", "crc32"
PARTITIONERS = (MURMUR2, CRC32)
UNKNOWN, OTHER = "unknown", "other"
VERDICTS = (UNKNOWN, MURMUR2, CRC32, OTHER)

ENOUGH = 50
"""Distinct keys from which on a partitioner is known."""
MOST = 200
"""Distinct keys that are tested at most: some may be strays."""
SHARE = 0.99
HOPELESS = 0.9
"""Below this share nobody waits for more keys."""
PLAIN = 3
"""Keys elsewhere that contradict a partitioner plainly."""
SURE_BITS = 20
"""Keys that all agree with one partitioner show it, for comparing, when chance would do that once in a million times."""


class Sample:
    """The distinct keys of one input in one task, and how many are where each partitioner would have put them.

    >>> sample = Sample(4, (1,))
    >>> sample.add(["a", "b"], {"murmur2": [1, 1], "crc32": [1, 2]})
    >>> sample.keys, sample.agree, sample.verdict
    (2, {'murmur2': 2, 'crc32': 1}, 'unknown')
    """

    def __init__(self, width: int, owned: Sequence[int]) -> None:
        self.owned = frozenset(owned)
        self.agree: dict[str, int] = dict.fromkeys(PARTITIONERS, 0)
        self._bits = log2(width / max(1, len(self.owned)))
        """What one key tells: the fewer of the partitions are here, the less likely is it here by chance."""
        self._seen: set[object] = set()

    @property
    def keys(self) -> int:
        """How many distinct keys it has."""
        return len(self._seen)

    def new(self, keys: Sequence[object]) -> list[object]:
        """Those of these keys that it has not, as many as it takes."""
        return [key for key in dict.fromkeys(keys) if key is not None and key not in self._seen][: MOST - self.keys]

    def add(self, keys: Sequence[object], places: Mapping[str, Sequence[int]]) -> None:
        """New keys, and the partition in which each partitioner would have put each."""
        self._seen.update(keys)
        for name, partitions in places.items():
            self.agree[name] += sum(partition in self.owned for partition in partitions)

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        if self.keys < ENOUGH:
            return UNKNOWN
        best = max(PARTITIONERS, key=lambda name: self.agree[name])
        share = self.agree[best] / self.keys
        if share >= SHARE:
            return best
        return UNKNOWN if share >= HOPELESS and self.keys < MOST else OTHER

    @property
    def decided(self) -> bool:
        """More keys would change nothing."""
        return self.verdict != UNKNOWN

    def elsewhere(self, partitioner: str = "") -> int:
        """Tested keys that are not where this partitioner (else the better one) puts them."""
        return self.keys - (self.agree[partitioner] if partitioner else max(self.agree.values()))

    def contradicts(self, partitioner: str) -> bool:
        """Whether its keys, few as they may be, were plainly not placed by this one."""
        return self.elsewhere(partitioner) >= PLAIN and self.agree[partitioner] < self.keys * HOPELESS

    @property
    def shows(self) -> str:
        """The one partitioner that explains all its keys beyond chance, if they are that many; else nothing."""
        all_there = [name for name in PARTITIONERS if self.agree[name] == self.keys]
        return all_there[0] if len(all_there) == 1 and self.keys * self._bits >= SURE_BITS else ""


def to_test(graph: Graph) -> frozenset[str]:
    """The inputs whose keys matter: what is kept or joined by key, and what says by `key=` how it is partitioned.

    >>> from headgate.core.graph.graph import Input
    >>> sorted(to_test(Graph((Input("a"), Input("b", key="id")), (Stage("m", "map", ("a",)),))))
    ['b']
    """
    by_key = {stream for stage in graph.stages for stream in met(graph, stage) if stream in graph.input}
    return frozenset(by_key | {one.stream for one in graph.inputs if one.key is not None}) - graph.broadcast


def check_stated(graph: Graph) -> None:
    """Refuse what meets by key and is said to be spread differently: nothing needs to be tested for that."""
    if (error := disagreement(graph, {})) is not None:
        raise error


def disagreement(graph: Graph, samples: Mapping[str, Sample]) -> DeclarationError | None:
    """Why streams that meet by key cannot meet, as far as is said or tested; None if nothing speaks against it."""
    for stage in graph.ordered:
        streams = sorted(met(graph, stage))
        if len(streams) < 2:
            continue
        sure = {stream: known for stream in streams if (known := _known(graph, samples, stream))}
        for one, other in pairwise(sure):
            if sure[one] != sure[other] or OTHER in (sure[one], sure[other]):
                return _apart(graph, stage, {one: sure[one], other: sure[other]})
        if OTHER in sure.values():
            return _apart(graph, stage, sure)
        shown = sure or {s: samples[s].shows for s in streams if s in samples and samples[s].shows}
        for other in streams:
            for one, partitioner in shown.items():
                if other not in sure and other in samples and samples[other].contradicts(partitioner):
                    return _apart(graph, stage, {one: partitioner, other: samples[other].shows or OTHER})
    return None


def _known(graph: Graph, samples: Mapping[str, Sample], stream: str) -> str:
    """Its partitioner, if it is ours, said, or known by its keys."""
    if stream in graph.writer:
        return MURMUR2
    if (said := graph.input[stream].partitioner) is not None:
        return said
    verdict = samples[stream].verdict if stream in samples else UNKNOWN
    return "" if verdict == UNKNOWN else verdict


def _apart(graph: Graph, stage: Stage, found: Mapping[str, str]) -> DeclarationError:
    what = " and ".join(f"'{stream}' {_spread(graph, stream, found[stream])}" for stream in sorted(found))
    inputs = [stream for stream in sorted(found) if stream in graph.input and found[stream] != MURMUR2]
    behind = " and ".join(f"app.input('{stream}')" for stream in inputs or sorted(found))
    return DeclarationError(
        f"'{stage.name}' ({stage.verb}) combines streams that are partitioned differently: {what}; most equal keys would not meet",
        remedy=f"put .repartition(…) behind {behind}, write the topics with one partitioner (librdkafka: partitioner=murmur2_random), "
        "or, if both are partitioned alike, declare it: app.input(…, partitioner=)",
    )


def _spread(graph: Graph, stream: str, partitioner: str) -> str:
    if partitioner == OTHER:
        key = graph.input[stream].key
        return "has keys in partitions that match neither murmur2 nor CRC32 for " + (
            f"those of '{key}'" if key else "them"
        )
    return f"by {partitioner}"
