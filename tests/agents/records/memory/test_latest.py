"""The last record of each key, in the order of the keys: both ways give the same."""

from __future__ import annotations

import random
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.agents.records.layout import longs
from headgate.agents.records.memory.latest import latest_rows
from headgate.agents.records.memory.record_spans import RecordSpans, packed
from headgate.agents.records.native import chosen

BUILT = [chosen.COMPILED, chosen.PLAIN] if chosen.COMPILED is not None else [chosen.PLAIN]
PIECES = st.sampled_from([b"", b"\0", b"a", b"\xff", b"user-", b"1234567", b"12345678", b"\0" * 8])
KEYS = st.none() | st.binary(max_size=3) | st.lists(PIECES, max_size=6).map(b"".join)


def both_ways(keys):
    """What each way finds; the same."""
    found = []
    for built in BUILT:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(chosen, "part", built)
            found.append(longs(latest_rows(packed(keys))).tolist())
    assert found[1:] == found[:-1]
    return found[0]


def of_a_dict(keys):
    """The same by a dict."""
    last = {key or b"": row for row, key in enumerate(keys)}
    return [row for _, row in sorted(last.items())]


@given(st.lists(KEYS, max_size=80))
def test_of_each_key_the_last_record(keys):
    """Keys that begin alike, end in zeros, are equal, empty or null."""
    assert both_ways(keys) == of_a_dict(keys)


def test_many_keys():
    """As many as a restore folds at once: of several tables, by number, by random bytes, and of any length, each several times."""
    chance = random.Random(7)
    keys = [b"\x01\x06counts%010d" % chance.randrange(3_000) for _ in range(6_000)]
    keys += [b"\x01\x05other" + chance.randbytes(16) for _ in range(2_000)]
    keys += [b"x" * chance.randrange(3_000) for _ in range(500)]
    chance.shuffle(keys)
    assert both_ways(keys) == of_a_dict(keys)


@pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")
def test_what_makes_no_sense_is_refused():
    """Before a byte outside of the buffer is read."""
    for start, size in ((-1, 1), (0, -2), (0, 4), (4, 0), (2**62, 2**62)):
        with pytest.raises(ValueError):
            latest_rows(RecordSpans(b"abc", array("q", [0, start]), array("q", [1, size])))
    with pytest.raises(ValueError):
        latest_rows(RecordSpans(b"abc", array("q", [0]), array("q")))
