"""The table of words that people bring."""

from __future__ import annotations

import copy
import pickle

import pytest

from headgate.core.columns.expressions import col
from headgate.core.errors import DeclarationError, UnknownName
from headgate.core.words import APP, ROWS, WORDS, brought


def test_a_word_has_one_meaning_on_a_thing() -> None:
    """Two rows for one word would answer by chance."""
    found = [(name, on) for word in WORDS for on in word.on for name in word.names]
    assert sorted({one for one in found if found.count(one) > 1}) == []


def test_a_word_is_answered_with_what_to_write_and_where_it_stands() -> None:
    """Who types a word of Kafka Streams reads one line and goes on."""
    error = brought("suppress", ROWS)
    assert error is not None
    assert error.what == "a stream of rows has no 'suppress', which Kafka Streams has"
    assert error.remedy.endswith("(docs/windows.md#when-a-window-closes)")
    assert brought("suppress", APP) is None


def test_an_unknown_name_is_a_missing_attribute_too() -> None:
    """`hasattr` says no, and the error survives the way between processes."""
    error = UnknownName("an app has no 'x'", remedy="y")
    assert isinstance(error, DeclarationError)
    assert isinstance(error, AttributeError)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301 - just made


def test_an_expression_knows_the_words_of_dataframes() -> None:
    """And what a library asks of any object does not trip."""
    amount = col("amount")
    with pytest.raises(DeclarationError, match=r"\.is_in\(\[…\]\)"):
        amount.isin  # noqa: B018 # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="an expression has no 'sqrt'"):
        amount.sqrt  # noqa: B018 # type: ignore[attr-defined]
    assert not hasattr(amount, "isNull")
    assert str(copy.copy(amount).node) == "amount"
