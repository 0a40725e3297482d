"""Files of client settings as Java has them."""

from __future__ import annotations

import contextlib
import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import properties
from headgate.core.errors import SettingError
from headgate.core.properties import ENCODING, line, read

SEEN = """\
# what a team has
! and another comment, which \\
security.protocol = SASL_SSL\r
sasl.mechanism:PLAIN\r\n   client.id\tsales

ssl.truststore.certificates=-----BEGIN CERTIFICATE-----\\n\\
   MII=\\n\\
   -----END CERTIFICATE-----
empty
a\\ b\\=c = d\\:e\\\\
unicode=\\u00e9\\uD83D\\uDE00
client.id=orders\\
"""


def test_the_examples_hold() -> None:
    assert doctest.testmod(properties).failed == 0


def test_a_file_is_read_as_java_reads_it() -> None:
    """Comments do not continue, values do; the last of two values counts."""
    assert read(SEEN) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "client.id": "orders",
        "ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----",
        "empty": "",
        "a b=c": "d:e\\",
        "unicode": "é😀",
    }
    assert read("\\\n  a=b") == read("a=b\\") == {"a": "b"}


def test_a_path_with_single_backslashes_is_refused_without_its_value() -> None:
    """Java refuses it, too. The value may be a password."""
    with pytest.raises(SettingError, match="line 2: ") as wrong:
        read("a=b\npassword=hunter\\users2")
    assert "hunter" not in str(wrong.value)


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=5))
def test_what_is_written_is_read_back(pairs: dict[str, str]) -> None:
    """Passwords and paths hold anything; the bytes are those that Java takes for text."""
    text = "".join(line(name, value) + "\n" for name, value in pairs.items())
    assert read(text.encode(ENCODING).decode(ENCODING)) == pairs


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    """A file that is something else altogether gives pairs of no use, or one message."""
    with contextlib.suppress(SettingError):
        read(text)
