"""Keys in JSON: each form is one key."""

from __future__ import annotations

import doctest
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headgate as hg
from headgate.agents.queries import committed, json_keys
from headgate.agents.queries.json_keys import after_prefix, decoded, encoded, encoded_text, prefix_bytes
from headgate.agents.records.values import keys
from headgate.core.errors import DataError

ATOMS = st.one_of(st.text(), st.integers(-(1 << 63), (1 << 64) - 1), st.booleans(), st.binary(), st.uuids())
KEYS = st.recursive(ATOMS, lambda parts: st.lists(parts, max_size=3).map(tuple), max_leaves=6)


@given(KEYS)
def test_a_key_goes_through_json_and_stays_itself(key: Any) -> None:
    """What a page of rows shows can be asked for."""
    data = keys.encode(key)
    form = orjson.loads(orjson.dumps(decoded(hg.key(), data)))
    assert encoded("t", hg.key(), [form]) == [data]


@pytest.mark.parametrize(
    ("serde", "text", "key"),
    [
        (hg.text(), "7", b"7"),
        (hg.key(), "7", b"7"),
        (hg.key(int), "7", keys.encode(7)),
        (hg.key(bool), "true", keys.encode(True)),
        (
            hg.key(UUID),
            "12345678-1234-5678-1234-567812345678",
            keys.encode(UUID(int=0x12345678123456781234567812345678)),
        ),
        (hg.key(tuple[str, int]), '["DE", 7]', keys.encode(("DE", 7))),
        (hg.raw(), "0x01ff", b"\x01\xff"),
        (hg.json(), "7", b'"7"'),
    ],
)
def test_text_in_a_path_is_the_first_key_that_it_can_be(serde: Any, text: str, key: bytes) -> None:
    """A table of whole numbers is asked for `/7`, and so is one of text."""
    assert encoded_text("t", serde, text) == key


@pytest.mark.parametrize(
    ("serde", "form", "said"),
    [
        (hg.key(int), "seven", "table t: 'seven' is no key of it: is str and not int"),
        (hg.key(), None, "table t: null is no key"),
        (hg.key(), {"bytes": "xx"}, "is no bytes in hex"),
        (hg.key(), {"uuid": "xx"}, "is no UUID"),
        (hg.key(), 1.5, "is no key of it"),
        (hg.raw(), "text", "is no key of it"),
    ],
)
def test_what_is_no_key_of_the_table_is_refused(serde: Any, form: Any, said: str) -> None:
    """An absent key and a wrong one differ."""
    with pytest.raises(DataError, match=said):
        encoded("t", serde, [form])


def test_a_prefix_is_of_text_or_of_a_tuple() -> None:
    """All keys that begin so lie between it and what follows it."""
    for prefix, inside, outside in (
        ("D", ["D", "DE", "D\U0010ffff"], ["C", "E", ("D",)]),
        (("DE",), [("DE", 1), ("DE", "x"), ("DE",)], [("D", 1), ("DEU", 1), "DE"]),
    ):
        low = prefix_bytes("t", hg.key(), json_keys.form_of(prefix))
        high = after_prefix(low)
        assert high is not None
        for key in inside:
            assert low <= keys.encode(key) < high, key
        for key in outside:
            assert not low <= keys.encode(key) < high, key
    with pytest.raises(DataError, match="no prefixes"):
        prefix_bytes("t", hg.json(), "a")
    with pytest.raises(DataError, match="is no prefix"):
        prefix_bytes("t", hg.key(), 7)


def test_examples_hold() -> None:
    """Those of the docstrings."""
    assert doctest.testmod(json_keys).failed == 0
    assert doctest.testmod(committed).failed == 0
