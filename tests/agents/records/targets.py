"""Targets of the fuzzer: random arguments for each compiled part, right and wrong ones, and the same call to its plain twin. Here:
buffers of integers, windows, lists, and rows of vectors; `targets_records`, `targets_states` and `targets_arrow` have the others.

A target is a function of a source of chance. It raises at the first difference: another result, another verdict, or an error that is no
refusal. Buffers come from `exactly`: behind their last byte a sanitizer watches.
"""

from __future__ import annotations

import random
import struct
from array import array
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

from headgate.agents.records.columns.groups import null_among, numbers_in
from headgate.agents.records.columns.matching import matching
from headgate.agents.records.columns.session_runs import session_runs
from headgate.agents.records.columns.window_rows import WindowedRows, rows_of_ends, rows_of_times
from headgate.agents.records.kafka.partitioner import Partitioner
from headgate.agents.records.layout import longs
from headgate.agents.records.memory.latest import latest_rows
from headgate.agents.records.memory.longs import (
    distances,
    extremes,
    first_above,
    gathered,
    listed_extremes,
    scaled,
    scattered,
    summed,
)
from headgate.agents.records.memory.record_spans import RecordSpans, among, is_text, marked, pieces
from headgate.agents.records.memory.taking import join, spans_of, take, take_spans
from headgate.agents.records.memory.vectors import Vector, dicts_of
from headgate.agents.records.native import chosen
from headgate.core.windows.matching import SearchedSlice
from headgate.core.windows.spans import Spans

from . import trees

REFUSED = (ValueError, IndexError, OverflowError, TypeError, MemoryError)
"""What the compiled parts and their twins raise for arguments that make no sense."""
RECORDS = 500
"""How many mutated records a round compares."""
EDGES = [0, 1, -1, -2, 2**31, 2**32, 2**40, 2**61, 2**62, 2**63 - 1, -(2**63), 1 - 2**63]
SOME_BYTES = [b"", b"a", b"\0", b"\xff", b"\xff\x15\x01", "ü".encode(), b"abc" * 9, b"\x80", b"\xed\xa0\x80"]


def exactly(data: bytes) -> Any:
    """A buffer of just this size, on the heap."""
    return array("B", data)


def q(numbers: Sequence[int]) -> Any:
    """64-bit integers in a buffer of just their size."""
    return exactly(array("q", numbers).tobytes())


@contextmanager
def plainly() -> Iterator[None]:
    """Everything goes the plain way."""
    built, chosen.part = chosen.part, chosen.PLAIN
    try:
        yield
    finally:
        chosen.part = built


def told(call: Callable[[], Any]) -> Any:
    """What it returns, or that it is refused."""
    try:
        return "made", call()
    except REFUSED:
        return "refused"


def alike(call: Callable[[], Any]) -> Any:
    """Both ways give the same result, or refuse."""
    found = told(call)
    with plainly():
        wanted = told(call)
    assert found == wanted, f"compiled: {found}\nplain:    {wanted}"
    return found


def survived(call: Callable[[], Any]) -> None:
    """Whatever it says, no memory is touched that is not its own: the twin may judge later, or not at all."""
    told(call)


# ------------------------------------------------------------------------------------------------------------- by chance


def ints(chance: random.Random, count: int) -> list[int]:
    """So many integers, some of them at an edge."""
    wide = chance.choice((3, 100, 2**33, 2**62))
    return [chance.choice(EDGES) if chance.random() < 0.1 else chance.randint(-wide, wide) for _ in range(count)]


def indexes(chance: random.Random, length: int, *, wrong: float = 0.1) -> list[int]:
    """Indexes into so many; in some calls, one does not exist."""
    made = [chance.randrange(length) for _ in range(chance.randrange(12))] if length else []
    if chance.random() < wrong:
        made.insert(chance.randint(0, len(made)), chance.choice([length, -1, *EDGES]))
    return made


def some(chance: random.Random, of: Callable[[], Any]) -> Any:
    """None, or what is made."""
    return None if chance.random() < 0.4 else of()


def parts(chance: random.Random, count: int, *, nulls: float = 0.2) -> list[bytes | None]:
    """So many byte strings, or None."""

    def one() -> bytes:
        return chance.choice(SOME_BYTES) if chance.random() < 0.5 else chance.randbytes(chance.randrange(20))

    return [None if chance.random() < nulls else one() for _ in range(count)]


def spans(found: Sequence[bytes | None]) -> RecordSpans:
    """Where these parts lie in one buffer."""
    ends = list(accumulate((len(one or b"") for one in found), initial=0))
    sizes = [-1 if one is None else len(one) for one in found]
    return RecordSpans(exactly(b"".join(one or b"" for one in found)), q(ends[:-1]), q(sizes))


def hurt(chance: random.Random, buffer: Any) -> Any:
    """A buffer of integers with one that is wrong, or one too few, or half of one."""
    way, made = chance.randrange(6), bytearray(bytes(buffer))
    if way == 0:
        return exactly(bytes(made[:-8]))
    if way == 1:
        return exactly(bytes(made[:-3]))
    if len(made) >= 8:
        at = chance.randrange(len(made) // 8) * 8
        if way == 2:
            made[at + chance.randrange(8)] ^= 1 << chance.randrange(8)
        else:
            made[at : at + 8] = struct.pack("q", chance.choice(EDGES))
    return exactly(bytes(made))


def hurt_spans(chance: random.Random, of: RecordSpans) -> RecordSpans:
    """Spans of which one part is wrong."""
    data, starts, sizes = of
    way = chance.randrange(3)
    if way == 0:
        return RecordSpans(exactly(bytes(data)[: chance.randint(0, len(data))]), starts, sizes)
    return (
        RecordSpans(data, hurt(chance, starts), sizes) if way == 1 else RecordSpans(data, starts, hurt(chance, sizes))
    )


def vector(chance: random.Random, kind: Any, length: int) -> Vector:
    """A column, of which few rows are null or none."""
    nulls = chance.choice((0, 0, 0.3))
    if kind == "number":
        values: list[Any] = [trees.value(chance, chance.choice(["int64", "float64"])) for _ in range(length)]
    else:
        values = [trees.value(chance, kind) for _ in range(length)]
    return cut(Vector.of(kind, [None if chance.random() < nulls else one for one in values]))


def cut(one: Vector) -> Vector:
    """The same column in buffers of just their size."""
    return trees.cut_exactly(one, exactly)


def hurt_vector(chance: random.Random, of: Vector) -> Vector:
    """A column of which one part is wrong: a length, an offset, a buffer that is cut."""
    one = cut(of)
    way = chance.randrange(4)
    if way == 0:
        one.length = chance.choice([of.length + 1, of.length + 8, *EDGES])
    elif way == 1:
        one.data = exactly(bytes(of.data)[: -chance.choice((1, 8))])
    elif of.offsets is not None and len(bytes(of.offsets)):
        made = bytearray(bytes(of.offsets))
        at = chance.randrange(len(made))
        made[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        one.offsets = exactly(bytes(made) if way == 2 else bytes(of.offsets)[:-1])
    elif of.validity is not None:
        one.validity = exactly(bytes(of.validity)[:-1])
    return one


def shown(value: Any) -> Any:
    """Values as text: -0.0 is not 0.0, 1 is not 1.0, and NaN is itself."""
    return repr(value)


KINDS: Any = ("int64", "float64", "bool", "text")
KIND_OR_NUMBER: Any = (*KINDS, "number")


# ------------------------------------------------------------------------------------------------------------- the targets


def longs_target(chance: random.Random) -> None:
    """Buffers of integers."""
    numbers = ints(chance, chance.randrange(20))
    of, rows = q(numbers), q(indexes(chance, len(numbers)))
    alike(lambda: longs(gathered(of, rows)).tolist())
    rest = chance.choice(EDGES)
    alike(lambda: longs(scattered(rows, rows, len(numbers), rest=rest)).tolist())
    alike(lambda: extremes(of))
    listed = [*of, *chance.sample([None, 1.5, True, 2**63, -(2**63)], chance.randrange(2))]
    alike(lambda: listed_extremes(listed))
    small = q([one % 2**31 - 2**30 for one in numbers])
    add, factor, divisor = (
        chance.randint(-(2**30), 2**30),
        chance.randint(-99, 2**31),
        chance.choice((1, 2, 1000, 2**62)),
    )
    alike(lambda: longs(scaled(small, add=add, factor=factor, divisor=divisor)).tolist())
    start = chance.randint(0, len(numbers))
    stop, limit = chance.randint(start, len(numbers)), chance.choice([*numbers, *EDGES])
    alike(lambda: first_above(of, start, stop, limit))
    start, stop = chance.choice(EDGES), chance.choice(EDGES)
    survived(lambda: first_above(of, start, min(stop, 40), limit))
    alike(lambda: distances(of, limit))
    packed = hurt(chance, distances(of, 0)) if chance.random() < 0.5 else distances(of, 0)
    alike(lambda: None if (found := summed(bytes(packed))) is None else longs(found).tolist())
    torn = hurt(chance, of)
    alike(lambda: longs(gathered(torn, rows)).tolist())
    survived(lambda: distances(torn, limit))
    survived(lambda: (scaled(torn, add=chance.choice(EDGES), factor=chance.choice(EDGES)), extremes(torn)))


def windows_target(chance: random.Random) -> None:
    """Rows by window: tumbling and hopping ones, times anywhere."""
    size = chance.choice((1, 7, 40, 1000, 86_400_000, 2**59))
    every = max(1, chance.choice((size, size // 2, size // 3, size - 1, size // 40)))
    times = (
        ints(chance, chance.randrange(20)) if chance.random() < 0.4 else [chance.randint(-50, 99) for _ in range(20)]
    )
    rows, closed = some(chance, lambda: indexes(chance, len(times))), chance.choice([*times, *EDGES, 10, 50])
    windows = Spans(size, every, chance.choice((0, 1, every - 1, -every, -7)))

    def plain(found: WindowedRows) -> Any:
        late = [] if found.late is None else longs(found.late).tolist()
        return {end: one and longs(one).tolist() for end, one in found.open}, late, found.partly

    chosen = None if rows is None else q(rows)
    alike(lambda: plain(rows_of_times(windows, q(times), chosen, closed)))
    alike(lambda: plain(rows_of_ends(q(times), closed)))
    wrong = Spans(chance.choice(EDGES), chance.choice(EDGES), chance.choice(EDGES))
    if not (0 < wrong.every < wrong.size // 1000):  # so many windows of a row are a question of memory
        survived(lambda: rows_of_times(wrong, q(times), chosen, closed))
    survived(lambda: rows_of_times(windows, hurt(chance, q(times)), chosen, closed))
    numbers = [chance.randrange(4) for _ in (times if rows is None else rows)]

    def runs(gap: int) -> Any:
        of, *others = session_runs(q(numbers), q(times), chosen, gap)
        return longs(of).tolist(), others

    gap = chance.choice((0, 1, 40, *EDGES))
    alike(lambda: runs(gap))
    survived(lambda: session_runs(hurt(chance, q(numbers)), hurt(chance, q(times)), chosen, gap))


def lists_target(chance: random.Random) -> None:
    """Vectors as lists, lists as dicts."""
    length = chance.choice((0, 1, 7, 8, 9, chance.randrange(40)))
    kinds = [chance.choice(KINDS) for _ in range(3)]
    made = [vector(chance, kind, length) for kind in kinds]
    for one in made:
        alike(lambda one=one: shown(one.values()))
        rows = some(chance, lambda: q(indexes(chance, length, wrong=0)))
        alike(lambda one=one, rows=rows: null_among(one, rows))
        torn = hurt_vector(chance, one)
        survived(torn.values)
        survived(lambda torn=torn: null_among(torn, q(indexes(chance, length))))
    alike(lambda: shown(dicts_of(("a", "b", "c"), length, [one.values() for one in made])))
    survived(lambda: dicts_of(("a", "b"), length, [made[0].values()]))
    numbers = [chance.choice([None, 1, 1.5, True, 2**63, -(2**63), "a", *ints(chance, 2)]) for _ in range(length)]
    clean = [one for one in numbers if type(one) in (int, float)]
    for given in (numbers, clean):
        alike(lambda given=given: None if (found := numbers_in(given)) is None else (found.kind, shown(found.values())))


def taking_target(chance: random.Random) -> None:
    """Rows of vectors and spans, vectors joined, keys by partition."""
    kind, length = chance.choice(KIND_OR_NUMBER), chance.randrange(30)
    one, rows = vector(chance, kind, length), q(indexes(chance, length))

    def told_of(found: Vector) -> Any:
        return found.kind, found.length, shown(found.values()), found.nulls

    if kind != "number":
        alike(lambda: told_of(take(one, rows)))
        others = [vector(chance, chance.choice((kind, kind, kind, chance.choice(KINDS))), chance.randrange(12))]
        alike(lambda: told_of(join([one, *others, one])))
        torn = hurt_vector(chance, one)
        survived(lambda: (take(torn, rows).values(), join([one, torn, one]).values()))
        survived(lambda: join([torn, one]).values())
        survived(lambda: spans_of(torn))
    if kind == "text":
        alike(lambda: pieces(spans_of(one)))
    some_parts = parts(chance, chance.randrange(20))
    of = spans(some_parts)
    chosen = some(chance, lambda: q(indexes(chance, len(some_parts))))
    alike(lambda: pieces(spans_of(take_spans(of, chosen))))
    width = chance.choice((1, 2, 7, 50))
    alike(lambda: [longs(part).tolist() for part in Partitioner(width).split_spans(of, chosen)])
    alike(lambda: Partitioner(width).split(some_parts))
    alike(lambda: (pieces(of), is_text(of)))
    alike(lambda: longs(latest_rows(of)).tolist())
    alike(lambda: told_of_octets(chosen_part().to_base64(*of)))
    coded = spans([None if one is None else _nearly_base64(chance, one) for one in some_parts])
    alike(lambda: told_of_octets(chosen_part().of_base64(*coded)))
    alike(lambda: marked(of, chosen, b"\xff") if chosen is None else None)
    lying = hurt_spans(chance, of)
    alike(lambda: pieces(lying) if len(lying.offsets) == len(lying.lengths) and len(lying.offsets) % 8 == 0 else None)
    survived(lambda: (take_spans(lying, chosen), is_text(lying)))
    survived(lambda: latest_rows(lying))
    survived(lambda: (chosen_part().to_base64(*lying), chosen_part().of_base64(*lying)))
    survived(lambda: (Partitioner(width).split_spans(lying, chosen), pieces(lying)))
    survived(lambda: marked(lying, chosen, b"a"))
    few = {one for one in some_parts if one is not None and chance.random() < 0.3} | {b"", b"none of them"}
    alike(lambda: among(of, few))
    survived(lambda: among(lying, few))


def chosen_part() -> Any:
    """The way that things go at the moment."""
    return chosen.part


def told_of_octets(made: Any) -> Any:
    """A column of bytes as plain values."""
    data, ends, valid, nulls = made
    return bytes(data), bytes(ends), None if valid is None else bytes(valid), nulls


def _nearly_base64(chance: random.Random, data: bytes) -> bytes:
    """Bytes in base64, sometimes with a letter that is wrong or missing."""
    made = bytearray(b64encode(data))
    if made and chance.random() < 0.1:
        at = chance.randrange(len(made))
        made[at : at + chance.randrange(2)] = chance.choice((b"=", b"-", b"\xff", b"A", b""))
    return bytes(made)


def latest_target(chance: random.Random) -> None:
    """Keys of which many are equal or begin alike: the last record of each."""
    some_parts = [
        chance.choice(SOME_BYTES) * chance.randrange(4) + (one or b"") for one in parts(chance, chance.randrange(90))
    ]
    of = spans([one if chance.random() < 0.9 else None for one in some_parts])
    alike(lambda: longs(latest_rows(of)).tolist())
    lying = hurt_spans(chance, of)
    survived(lambda: latest_rows(lying))
    if len(lying.offsets) == len(lying.lengths) and len(lying.offsets) % 8 == 0:
        alike(lambda: longs(latest_rows(lying)).tolist())


def matching_target(chance: random.Random) -> None:
    """Slices of a join, packed or not, and arriving rows: the same pairs; and arguments that are none."""
    names = [b"%d" % number for number in range(chance.choice((1, 3, 40)))] + SOME_BYTES[:3]
    near = ints(chance, 12) if chance.random() < 0.2 else list(range(40))
    rows = [
        [(chance.choices(names, k=size), chance.choices(near, k=size)) for size in some_sizes]
        for some_sizes in (
            [chance.randrange(1, 60) for _ in range(chance.randrange(4))] for _ in range(chance.randrange(4))
        )
    ]
    keys = chance.choices(names, k=chance.randrange(1, 60))
    times = chance.choices(near, k=len(keys))
    back, ahead = (chance.choice((0, 1, 7, 2**62)) for _ in range(2))

    def found() -> Any:
        how = matching()
        made: list[SearchedSlice] = []
        for slices in rows:
            index, all_times = how.index(), array("q")
            for some_keys, some_times in slices:
                index.add(some_keys)
                all_times.extend(some_times)
                if chance.random() < 0.3:
                    index.pack()
            if all_times:
                made.append(SearchedSlice(index, all_times, min(all_times), max(all_times)))
        return how.find(made, keys, times, back, ahead)

    alike(found)
    index: Any = matching().index()
    wrong: Any = chance.choice((7, [7], [b"a", "a"], None, b"ab", [b"a"]))
    survived(lambda: index.add(wrong))
    few = array("q", range(chance.randrange(3)))
    survived(lambda: matching().find([SearchedSlice(index, few, 0, 9)], wrong, chance.choice((wrong, [1], few)), 3, 3))
