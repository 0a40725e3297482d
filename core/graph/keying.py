"""Which partitioner placed the keys of an input, as far as one task can tell, and whether inputs that meet by key agree.

Java clients, and headgate, place a key by murmur2; librdkafka's default places it by CRC32. A join of two topics written by one of each
finds no match for most keys, although each record by itself is fine. So each task tests the keys of its own partitions: a key is where a
partitioner would have placed it, or elsewhere. What it decides:

- *Known*: at least 50 distinct keys, 99 % of them where murmur2 (or CRC32) places them.
- `other`: as many keys, and neither partitioner explains them. `unknown`: fewer keys. A task that owns all partitions of an input tests
  nothing.
- *A join*, or any other stage that brings streams together by key, fails if two of its inputs are known or declared (`partitioner=`) to be
  partitioned differently, or if one matches neither partitioner. A few keys are enough if they contradict clearly: at least three, and more
  than a tenth of all, are elsewhere. Without a contradiction the job goes on: an empty or small topic can be joined; it is shown as
  unknown, and tested as it grows.
- *An aggregate* only needs equal keys in one partition, so a single input never fails. `other` is worth a warning.

What the user declares with `partitioner=` counts; a test that contradicts it only warns.
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
"""With this many distinct keys, a partitioner is known."""
MOST = 200
"""The most distinct keys that are tested; more than `ENOUGH`, because some may be stray."""
SHARE = 0.99
HOPELESS = 0.9
"""Below this share of matching keys, no more keys are needed to rule a partitioner out."""
PLAIN = 3
"""How many keys elsewhere contradict a partitioner clearly."""
SURE_BITS = 20
"""Keys that all match one partitioner count as evidence for it if chance would do that only once in a million (2^20) cases."""


class Sample:
    """The distinct keys of one input in one task, and how many are where each partitioner would have placed them.

    >>> sample = Sample(4, (1,))
    >>> sample.add(["a", "b"], {"murmur2": [1, 1], "crc32": [1, 2]})
    >>> sample.keys, sample.agree, sample.verdict
    (2, {'murmur2': 2, 'crc32': 1}, 'unknown')
    """

    def __init__(self, width: int, owned: Sequence[int]) -> None:
        self.owned = frozenset(owned)
        self.agree: dict[str, int] = dict.fromkeys(PARTITIONERS, 0)
        self._bits = log2(width / max(1, len(self.owned)))
        """The information in one key: the fewer partitions this task owns, the less likely a key is here by chance."""
        self._seen: set[object] = set()

    @property
    def keys(self) -> int:
        """How many distinct keys it has."""
        return len(self._seen)

    def new(self, keys: Sequence[object]) -> list[object]:
        """Those of these keys that are not in the sample yet, as many as it still takes."""
        return [key for key in dict.fromkeys(keys) if key is not None and key not in self._seen][: MOST - self.keys]

    def add(self, keys: Sequence[object], places: Mapping[str, Sequence[int]]) -> None:
        """Add new keys; `places` says, for each partitioner, where it would have placed each key."""
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
        """Whether the verdict is reached, so that no more keys are needed."""
        return self.verdict != UNKNOWN

    def elsewhere(self, partitioner: str = "") -> int:
        """How many tested keys are not where this partitioner (by default the better one) places them."""
        return self.keys - (self.agree[partitioner] if partitioner else max(self.agree.values()))

    def contradicts(self, partitioner: str) -> bool:
        """Whether the keys, even if few, were clearly not placed by this partitioner."""
        return self.elsewhere(partitioner) >= PLAIN and self.agree[partitioner] < self.keys * HOPELESS

    @property
    def shows(self) -> str:
        """The only partitioner that explains all keys, if there are enough keys to rule out chance; otherwise empty."""
        all_there = [name for name in PARTITIONERS if self.agree[name] == self.keys]
        return all_there[0] if len(all_there) == 1 and self.keys * self._bits >= SURE_BITS else ""


def to_test(graph: Graph) -> frozenset[str]:
    """The inputs whose keys are tested: those kept or joined by key, and those that declare their partitioning with `key=`.

    >>> from headgate.core.graph.graph import Input
    >>> sorted(to_test(Graph((Input("a"), Input("b", key="id")), (Stage("m", "map", ("a",)),))))
    ['b']
    """
    by_key = {stream for stage in graph.stages for stream in met(graph, stage) if stream in graph.input}
    return frozenset(by_key | {one.stream for one in graph.inputs if one.key is not None}) - graph.broadcast


def check_stated(graph: Graph) -> None:
    """Refuse streams that meet by key but are declared to be partitioned differently; this needs no test of keys."""
    if (error := disagreement(graph, {})) is not None:
        raise error


def disagreement(graph: Graph, samples: Mapping[str, Sample]) -> DeclarationError | None:
    """Why streams that meet by key cannot meet, by what is declared and tested; None if nothing contradicts it."""
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
    """The stream's partitioner: murmur2 if headgate writes it, else what is declared, else what its keys tell; empty if unknown."""
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
        remedy=f"put .repartition(…) after {behind}, write the topics with one partitioner (librdkafka: partitioner=murmur2_random), "
        "or, if both are partitioned alike, declare it: app.input(…, partitioner=)",
    )


def _spread(graph: Graph, stream: str, partitioner: str) -> str:
    if partitioner == OTHER:
        key = graph.input[stream].key
        return "has keys in partitions that match neither murmur2 nor CRC32 for " + (
            f"those of '{key}'" if key else "them"
        )
    return f"by {partitioner}"
