"""Headers of W3C's Trace Context: which span they name, and how many links come of many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.agents.tracing.contexts import MOST_LINKS, TraceContext, context_of, links_of

ONE = TraceContext(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331)


def test_a_context_reads_what_it_has_written():
    """The example of the specification."""
    assert ONE.header == b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert context_of(ONE.header) == ONE
    assert context_of(ONE._replace(sampled=False).header) == ONE._replace(sampled=False)


@pytest.mark.parametrize(
    ("header", "known"),
    [
        (b"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", True),  # a later version may say more
        (b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", False),
        (b"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", False),
        (b"00-00000000000000000000000000000000-b7ad6b7169203331-01", False),
        (b"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", False),
        (b"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", False),
        (b"", False),
    ],
)
def test_what_the_specification_refuses_is_no_context(header: bytes, known: bool):
    """Whoever writes records may write anything into their headers."""
    assert (context_of(header) is not None) == known


@given(st.lists(st.one_of(st.none(), st.binary(max_size=60))))
def test_any_bytes_are_links_or_none(headers: list[bytes | None]):
    """A chunk must not fail by a header."""
    links = links_of(headers)
    assert len(links.contexts) <= MOST_LINKS


def test_links_are_bounded_and_what_is_left_out_is_counted():
    """A chunk of 2,000 records may have as many producers. Each is linked to once."""
    many = [TraceContext(1, number).header for number in range(1, 201)]
    links = links_of([None, *many, *many])
    assert links.contexts[:2] == (TraceContext(1, 1), TraceContext(1, 2))
    assert (len(links.contexts), links.dropped) == (MOST_LINKS, 200 - MOST_LINKS)
