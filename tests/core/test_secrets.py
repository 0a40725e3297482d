"""Which parts of a text are secrets, and what a search for them costs."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import secrets
from headgate.core.secrets import MASK, found_in, masked

WORDS = st.text("abc/@:.%-_~!$*", min_size=4, max_size=20).filter(
    lambda word: "://" not in f":{word}" and word.strip("*") and word[0] != "-"
)
"""What a password may consist of where nothing quotes it."""


def test_the_examples_hold() -> None:
    assert doctest.testmod(secrets).failed == 0


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("-Dx.password='a b c' -Dy=1", "-Dx.password='***' -Dy=1"),
        ('password = "a \\" b, c";', 'password = "***";'),
        ('{\\"token\\": \\"a b\\", 1}', '{\\"token\\": \\"***\\", 1}'),
        ('{\\"token\\": \\"a b', '{\\"token\\": \\"***'),
        ("password='cut o", "password='***"),
        ("password=it's,x", "password=***,x"),
        ('{"opts": "-Dpassword=abc", "y": 1}', '{"opts": "-Dpassword=***", "y": 1}'),
        ('secret=password="a b" c', 'secret=***" c'),
        ("token=ab; tab", "token=***; tab"),
        ("token=abcd; cabcde", "token=***; c***e"),
        ("s3a://u:pa/ss@h/x", "s3a://u:***@h/x"),
        ("s3a://u:pa@ss@h", "s3a://u:***@h"),
        ("s3a://u:p@h,s3a://v:q@h", "s3a://u:***@h,s3a://v:***@h"),
        ("http://u:pass@h", "http://***@h"),
        ("http://tok:@h", "http://***@h"),
        ("git+https://to@k@h", "git+https://***@h"),
        ("https://h?mail=a@b", "https://h?mail=a@b"),
        ("hdfs://ann@h", "hdfs://ann@h"),
        ("--password -x", "--password -x"),
        ("--password 'a b' c", "--password '***' c"),
        ("sig: 15", "sig: 15"),
        ("the method's signature: f", "the method's signature: f"),
        ("password => hunter2", "password => ***"),
    ],
)
def test_what_is_masked(text: str, shown: str) -> None:
    assert masked(text) == shown


@given(WORDS)
def test_a_password_does_not_come_through(word: str) -> None:
    """Whatever it consists of, in an address, behind its name, or behind an option."""
    for text in (f"see s3a://me:{word}@bucket/x", f"run --password {word} now", f"-Dx.password='{word}' -Dy=1"):
        assert word in found_in(text)
        assert word not in masked(text)
        assert MASK in masked(text)


@given(st.text(st.sampled_from("token= :/@'\"\\-Bearer https://u.sig&\n"), max_size=60))
def test_any_text_can_be_searched(text: str) -> None:
    """What is found is part of the text, and none of it is left, but for what is too short to be told from other letters."""
    found = found_in(text)
    assert all(secret in text for secret in found)
    assert not [
        one for one in found if len(one) >= secrets.SHORTEST_REPEATED and MASK not in one and one in masked(text)
    ]


HOSTILE = (
    "token", "token=", "token='", 'token="', 'token=\\"', 'token=\\\\\\"', "token =", "token \n", "a.", "-", "--token ", "--token", "api_",
    "://", "://a:b@", "://a:", "://a.b.", "https://a@", "@", "bearer ", "bearer", "authorization: ", "authorization:a", "sig=", " ", "'",
    "\\", "=", "x\\'=", "private-", 'password="\\',
)  # fmt: skip


@pytest.mark.parametrize("part", HOSTILE)
def test_no_text_takes_long(part: str) -> None:
    """Twice the text, twice the time: lines of a log hold data of users, and a search that goes back and forth takes hours for these."""
    masked(part * (300_000 // len(part)))
