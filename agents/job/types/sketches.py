"""Aggregates that estimate within a stated error: `count_distinct` beyond a bound, and `quantile`.

What it decides: how many bytes a state takes, and how far a result may be from the truth.

- `count_distinct` is exact up to a bound. Beyond it, a HyperLogLog of 4,096 registers estimates with a standard error of 1.6 %, in 4 KB; or
  the record that goes beyond it is an error.
- `quantile` counts values in buckets that are 2 % wide, as DDSketch does: a result is within 1 % of the value that has that rank. At most
  2,048 buckets are kept, in up to 28 KB: beyond, the lowest are put together, which values from 1e-8 to 1e9 never need.

Promises: states merge in any order, and the result depends on which values there are alone. Equal values have equal hashes in every
process.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from math import ceil, inf, log
from typing import Any, Literal

import msgpack

from ....core.errors import DataError, DeclarationError
from .aggregates import Aggregate, Selector, Where, condition_of, no_fold, selected

BITS = 12
REGISTERS = 1 << BITS
MOST_EXACT = 10_000
LONGEST = 16
"""A value that takes more bytes is told from others by a hash of so many."""
ERROR = 0.01
GAMMA = (1 + ERROR) / (1 - ERROR)
BUCKETS = 2_048
LARGEST = 709.78
"""The logarithm of the greatest float, nearly."""
_LOG = log(GAMMA)
_BYTE = 8
_HIGHEST = int.from_bytes(b"\x80" * REGISTERS, "little")
_INFINITE = 36_000
_OFFSET = 40_000
"""More than any float's number of a bucket, with or without its sign."""
_library: Any = msgpack

# --------------------------------------------------------------------------------------------------------- distinct values


def mark_of(value: Any) -> bytes:
    """What tells a value from others, in at most `LONGEST` bytes; equal numbers have one mark.

    >>> mark_of(1) == mark_of(1.0) != mark_of("1"), len(mark_of("x" * 99))
    (True, 16)
    """
    if value.__class__ is float and value.is_integer():
        value = int(value)
    if value.__class__ is int and not -(2**63) <= value < 2**63:
        value = hex(value).encode()  # as bytes, which no text is
    data: bytes = _library.packb(value)
    return data if len(data) < LONGEST else blake2b(data, digest_size=LONGEST).digest()


def _counted(registers: bytearray, mark: bytes) -> None:
    found = int.from_bytes(blake2b(mark, digest_size=8).digest(), "little")
    register, rest = found & (REGISTERS - 1), found >> BITS
    zeros = 64 - BITS - rest.bit_length() + 1
    if zeros > registers[register]:
        registers[register] = zeros


def _greater(registers: bytes, others: bytes) -> bytearray:
    """The greater of both in each register. All of them at once, as parts of a large number: none has its highest bit.

    >>> list(_greater(bytes(REGISTERS - 2) + bytes([1, 53]), bytes(REGISTERS - 2) + bytes([5, 2]))[-3:])
    [0, 5, 53]
    """
    one, other = int.from_bytes(registers, "little"), int.from_bytes(others, "little")
    not_less = ((one | _HIGHEST) - other) & _HIGHEST
    of_one = (not_less << 1) - (not_less >> (_BYTE - 1))
    return bytearray((other ^ ((one ^ other) & of_one)).to_bytes(REGISTERS, "little"))


def _estimate(registers: bytes) -> int:
    counts = Counter(registers)
    raw = 0.7213 / (1 + 1.079 / REGISTERS) * REGISTERS * REGISTERS
    raw /= math.fsum(count * 2.0**-zeros for zeros, count in counts.items())
    empty = counts[0]
    return round(REGISTERS * log(REGISTERS / empty) if raw <= 2.5 * REGISTERS and empty else raw)


def count_distinct(
    of: Selector, *, exact_up_to: int = 256, then: Literal["estimate", "fail"] = "estimate", where: Where = None
) -> Aggregate:
    """How many different values a field has: `hg.count_distinct("user")`. A null does not count, as in SQL.

    Up to `exact_up_to` values (at most 10,000) are counted exactly; each takes up to 18 bytes, as of a longer one a hash of 128 bits is
    kept. Beyond, with `then="estimate"`, a sketch of 4 KB for each key estimates the number: its standard error is 1.6 %, so 95 % of the
    results are within 3.3 % of the truth. With `then="fail"`, the record that is one too many is an error, and columns are counted as rows.
    """
    if type(exact_up_to) is not int or not 0 <= exact_up_to <= MOST_EXACT:
        remedy = f"how many values are counted exactly: a whole number up to {MOST_EXACT:,}"
        raise DeclarationError(f"hg.count_distinct(exact_up_to={exact_up_to!r})", remedy=remedy)
    if then not in ("estimate", "fail"):
        raise DeclarationError(f"hg.count_distinct(then={then!r})", remedy="'estimate' or 'fail'")

    def sketched(marks: list[bytes]) -> bytearray:
        if then == "fail":
            what = f"hg.count_distinct({of!r}): a key has more than {exact_up_to:,} different values"
            raise DataError(what, remedy="raise exact_up_to=, or let it estimate: then='estimate'")
        registers = bytearray(REGISTERS)
        for mark in marks:
            _counted(registers, mark)
        return registers

    def with_mark(state: Any, mark: bytes) -> Any:
        if not isinstance(state, list):
            _counted(state, mark)
            return state
        place = bisect_left(state, mark)
        if place == len(state) or state[place] != mark:
            state.insert(place, mark)
        return state if len(state) <= exact_up_to else sketched(state)

    def add(state: Any, value: Any) -> Any:
        return state if value is None else with_mark(_changeable(state), mark_of(value))

    def merge(state: Any, other: Any) -> Any:
        if not isinstance(other, list) and not isinstance(state, list):
            return _greater(state, other)
        if not isinstance(other, list):
            state, other = bytearray(other), state
        state = _changeable(state)
        for mark in other:
            state = with_mark(state, mark)
        return state

    def fold(states: list[Any], places: Sequence[int], values: Sequence[Any]) -> None:
        marks = {value: mark_of(value) for value in set(values)}
        for place, value in set(zip(places, values, strict=True)):
            if value is not None:
                states[place] = with_mark(_changeable(states[place]), marks[value])

    return Aggregate(
        "count_distinct",
        selected(of, "count_distinct"),
        list,
        add,
        merge,
        lambda state: len(state) if isinstance(state, list) else _estimate(state),
        copy=lambda state: list(state) if isinstance(state, list) else bytearray(state),
        fold=fold if then == "estimate" else no_fold,
        grows=True,
        where=condition_of(where, "count_distinct"),
    )


def _changeable(state: Any) -> Any:
    """A state that may be changed in place: the bytes of a stored one may not."""
    return bytearray(state) if state.__class__ is bytes else state


# --------------------------------------------------------------------------------------------------------------- quantiles


def bucket_of(value: float) -> int | None:
    """The bucket of a number, in the order of the numbers; None for NaN, which does not count.

    >>> [bucket_of(one) for one in (0, 1.0, -1.0, math.nan)]
    [0, 40000, -40000, None]
    """
    try:
        if value > 0:
            return _OFFSET + (min(ceil(log(value) / _LOG), _INFINITE) if value != inf else _INFINITE)
        if value < 0:
            return -_OFFSET - (min(ceil(log(-value) / _LOG), _INFINITE) if value != -inf else _INFINITE)
        return 0 if value == 0 else None
    except TypeError:
        raise TypeError(f"hg.quantile(): {value!r} is no number") from None


def value_of(bucket: int) -> float:
    """The number that stands for all in a bucket."""
    if not bucket:
        return 0.0
    exponent = (abs(bucket) - _OFFSET) * _LOG + log(2 / (GAMMA + 1))
    size = inf if exponent > LARGEST else math.exp(exponent)
    return size if bucket > 0 else -size


def quantile(of: Selector, q: float, *, where: Where = None) -> Aggregate:
    """The value below which a share `q` of the values lies: `hg.quantile("latency", 0.99)`. None before the first row.

    The result is within 1 % of the value that has rank `q * (n - 1)`, rounded down, among `n` sorted values. A state has up to 2,048
    buckets, in up to 28 KB for each key; values within a factor of ten have 115, in about 600 bytes. Positive values from 1e-8 to 1e9 fit
    into the buckets; where values need more of them, the lowest are put together, and low quantiles may be too high.
    """
    if isinstance(q, bool) or not isinstance(q, int | float) or not 0 <= q <= 1:
        raise DeclarationError(f"hg.quantile(…, {q!r})", remedy="a number from 0 to 1: 0.5 is the median")

    def counted(state: list[list[int]], bucket: int, times: int) -> None:
        buckets, counts = state
        place = bisect_left(buckets, bucket)
        if place < len(buckets) and buckets[place] == bucket:
            counts[place] += times
            return
        buckets.insert(place, bucket)
        counts.insert(place, times)
        if len(buckets) > BUCKETS:
            counts[1] += counts[0]
            del buckets[0], counts[0]

    def add(state: list[list[int]], value: Any) -> list[list[int]]:
        if (bucket := bucket_of(value)) is not None:
            counted(state, bucket, 1)
        return state

    def merge(state: list[list[int]], other: Any) -> list[list[int]]:
        for bucket, times in zip(*other, strict=True):
            counted(state, bucket, times)
        return state

    def fold(states: list[Any], places: Sequence[int], values: Sequence[Any]) -> None:
        for (place, bucket), times in Counter(zip(places, map(bucket_of, values), strict=True)).items():
            if bucket is not None:
                counted(states[place], bucket, times)

    def result(state: Any) -> float | None:
        left = math.floor(q * (sum(state[1]) - 1))
        for bucket, times in zip(*state, strict=True):
            left -= times
            if left < 0:
                return value_of(bucket)
        return None

    return Aggregate(
        "quantile",
        selected(of, "quantile"),
        _no_buckets,
        add,
        merge,
        result,
        copy=lambda state: [list(one) for one in state],
        fold=fold,
        grows=True,
        where=condition_of(where, "quantile"),
    )


def _no_buckets() -> list[list[int]]:
    return [[], []]
