"""Tests by which partitioner the inputs of a task were partitioned (`core.graph.keying`), as their chunks arrive.

It looks at each chunk before its rows are processed, and only until the partitioner is known: it hashes each distinct key of an input
once. A topic with fewer than 50 keys costs one pass over the keys of each chunk.

The result is logged, counted and shown. If inputs that meet by key disagree, the test raises `KeysApart`. No error policy applies to it,
because no record is to blame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID
from zlib import crc32

from ....core.errors import HeadgateError
from ....core.graph.keying import CRC32, MOST, MURMUR2, OTHER, Sample, disagreement, to_test
from ....core.task.plan import InputPlan
from ...job.derive.declaration import Declared
from ...job.steps.sources import SourceStep
from ...logger import Logger
from ...records.frames.chunks import Chunk
from ...records.kafka.partitioner import partition_of
from ...records.values.keys import MARK, encode_output

log = Logger("headgate.keys")


class KeysApart(HeadgateError):
    """Inputs that meet by key are partitioned by different partitioners."""


class KeyTest:
    """The key samples of one task's inputs."""

    def __init__(
        self, declared: Declared, task: str, inputs: Iterable[InputPlan], count: Callable[[str, int], None]
    ) -> None:
        self.declared = declared
        self.task = task
        self._count = count
        matter = to_test(declared.graph)
        own = {
            one.stream: one
            for one in inputs
            if one.external and one.stream in matter and len(one.partitions) < one.width
        }
        self.samples = {stream: Sample(one.width, one.partitions) for stream, one in own.items()}
        self._widths = {stream: one.width for stream, one in own.items()}
        self._open = set(self.samples)
        self._values: dict[str, set[bytes]] = {stream: set() for stream in own}
        """For inputs whose key is a field: the values of that field that were tested, as key bytes."""
        self._apart: KeysApart | None = None

    def see(self, step: SourceStep, chunk: Chunk, keys: Callable[[], list[Any] | None]) -> None:
        """Test a chunk of this input that is about to run; `keys` makes the keys of its rows, if they come from a field."""
        stream = step.name
        if stream in self._open:
            if step.key is not None:
                raw = self._stated(step, chunk, keys() or [])
            else:
                raw = chunk.keys if chunk.has_keys else []
            self._add(stream, self.samples[stream].new(raw))
        if self._apart is not None and stream in self.samples:
            raise self._apart

    def shown(self) -> dict[str, dict[str, Any]]:
        """By input: the partitioner found, the one declared, how many keys were tested, and how many the latter would place elsewhere."""
        found: dict[str, dict[str, Any]] = {}
        for stream, sample in sorted(self.samples.items()):
            said = self.declared.graph.input[stream].partitioner
            found[stream] = {
                "partitioner": sample.verdict,
                "said": said,
                "tested": sample.keys,
                "elsewhere": sample.elsewhere(said or ""),
            }
        return found

    def _stated(self, step: SourceStep, chunk: Chunk, keys: list[Any]) -> list[bytes]:
        """The bytes that a producer would have partitioned by: the record's own key, if it is that field, otherwise the encoded field."""
        seen = self._values[step.name]
        if len(seen) >= MOST:
            return []
        serde = step.key_serde or self.declared.app.key_serde
        own = chunk.keys
        # bytes that name a schema are known to their producer alone; a value that cannot be a key fails where it is used
        written = own if serde.asks else serde.dumps_many(keys).values
        found: list[bytes] = []
        for index, data in enumerate(written):
            if not data or data in seen:
                continue
            seen.add(data)
            there = own[index]
            if there is not None and (serde.asks or _reads_as(serde, there, data)):
                found.append(there)
            elif step.key_serde is not None or data[:1] != MARK:
                found.append(data)
            elif there in _elsewhere(keys[index]):
                found.append(there)
            if len(seen) >= MOST:
                break
        return found

    def _add(self, stream: str, new: list[Any]) -> None:
        keys = [bytes(key) for key in new if key]  # a record with an empty key may be in any partition
        if not keys:
            return
        sample, width = self.samples[stream], self._widths[stream]
        places = {
            MURMUR2: [partition_of(key, width) for key in keys],
            CRC32: [crc32(key) % width for key in keys],
        }
        sample.add(keys, places)
        if sample.decided:
            self._open.discard(stream)
            self._known(stream, sample)
        error = disagreement(self.declared.graph, self.samples)
        if error is not None:
            self._apart = KeysApart(error.what, remedy=error.remedy)

    def _known(self, stream: str, sample: Sample) -> None:
        one = self.declared.graph.input[stream]
        elsewhere = sample.elsewhere(one.partitioner or "")
        self._count("keys_tested", sample.keys)
        self._count("keys_elsewhere", elsewhere)
        about = {"task": self.task, "input": stream, "tested": sample.keys, "elsewhere": elsewhere}
        if sample.verdict == OTHER:
            by = f" by '{one.key}'" if one.key is not None else ""
            log.warning(
                f"the input is not partitioned{by} as murmur2 or crc32 would: equal keys may be in several tasks, and are counted in each",
                remedy=f'.repartition("{one.key}")' if one.key is not None else ".repartition(…)",
                **about,
            )
        elif one.partitioner not in (None, sample.verdict):
            log.warning(
                f"the input declares the partitioner {one.partitioner}, but its keys indicate {sample.verdict}", **about
            )
        else:
            log.info("the partitioner of an input is known", partitioner=sample.verdict, **about)


def _reads_as(serde: Any, raw: Any, data: bytes) -> bool:
    try:
        return bool(serde.dumps(serde.loads(raw)) == data)
    except Exception:  # noqa: BLE001 - a key that cannot be decoded is not this field
        return False


def _elsewhere(key: Any) -> list[bytes]:
    """How other clients write such a key if no `key_serde=` is declared: as text, or as a big-endian integer of 8 or 4 bytes."""
    if isinstance(key, int):
        sizes = [size for size in (8, 4) if -(1 << 8 * size - 1) <= key < 1 << 8 * size - 1]
        return [encode_output(int(key)), *(key.to_bytes(size, "big", signed=True) for size in sizes)]
    return [encode_output(key)] if isinstance(key, bytes | UUID) else []
