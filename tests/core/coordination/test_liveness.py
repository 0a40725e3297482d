"""Silence counts only in own heartbeats that came back."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.coordination.events import Heartbeat
from headgate.core.coordination.liveness import Liveness, decode_beat, encode_beat
from headgate.core.errors import DataError


def beat(process: str, sent: float = 0.0, **given: object) -> Heartbeat:
    return Heartbeat(f"proc-{process}", process, "000001-a", sent, **given)


def test_silence_grows_with_own_heartbeats_and_ends_with_a_word():
    live = Liveness("me", 1.0)
    assert live.silence("you") == 0.0
    for n in range(4):
        live.heard(beat("me", n))
    assert live.silence("you") == 3.0
    live.heard(beat("you", 77.0))
    assert live.silence("you") == 0.0


def test_an_outage_counts_as_one_interval():
    """Nothing of ours came back for a minute: nobody could be heard."""
    live = Liveness("me", 1.0)
    live.silence("you")
    live.heard(beat("me", 0))
    live.heard(beat("me", 60))
    assert live.silence("you") == 1.0


def test_a_broker_that_comes_and_goes_kills_no_one():
    """Three outages of two seconds, and by chance only our own heartbeats came through between them: nobody else could speak."""
    live = Liveness("me", 1.0)
    live.silence("you")
    for sent in (0.0, 3.0, 6.0, 9.0):
        live.heard(beat("me", sent))
    assert live.silence("you") == 3.0


def test_heartbeats_that_come_a_little_late_count_in_full():
    """A heart that beats each 1.4 s still sees six seconds of silence in six seconds."""
    live = Liveness("me", 1.0)
    live.silence("you")
    for n in range(6):
        live.heard(beat("me", n * 1.4))
    assert live.silence("you") == pytest.approx(7.0)


def test_a_slow_reader_sees_the_same_silence_as_a_fast_one():
    """Only the order in the topic and the times of sending matter, never when something was read."""
    live = Liveness("me", 1.0)
    live.silence("you")
    for n in range(10):
        live.heard(beat("me", n))
        live.heard(beat("you", n))
    assert live.silence("you") == 0.0


def test_a_duplicate_or_late_heartbeat_of_our_own_advances_nothing():
    live = Liveness("me", 1.0)
    live.silence("you")
    for sent in (5.0, 6.0, 6.0, 5.5, 7.0):
        live.heard(beat("me", sent))
    assert live.silence("you") == 2.0


def test_a_clock_can_be_started_anew():
    live = Liveness("me", 1.0)
    live.silence("you")
    for n in range(9):
        live.heard(beat("me", n))
    live.restart("you")
    assert live.silence("you") == 0.0
    live.heard(beat("me", 9))
    assert live.silence("you") == 1.0


def test_turns_and_deaths_are_remembered_until_forgotten():
    live = Liveness("me", 1.0)
    assert not live.heard(beat("you", turn_age_s=9.0))
    assert live.turn_age("you") == 9.0
    assert live.turn_age("nobody") == 0.0
    assert not live.heard(beat("you", gone=True))
    for n in range(4):
        live.heard(beat("me", n))
    assert live.gone("you")
    live.forget({"other"})
    assert not live.gone("you")
    assert live.turn_age("you") == 0.0


def test_a_word_of_someones_death_counts_once_a_living_one_would_have_spoken():
    """Anybody who may write to the topic can say it. A process that speaks after it is not dead, and a dead one never does."""
    live = Liveness("me", 1.0)
    live.heard(beat("me", 0.0))
    live.heard(beat("you", gone=True))
    live.heard(beat("me", 1.0))
    live.heard(beat("me", 2.0))
    assert not live.gone("you")
    live.heard(beat("you", 9.0))
    for sent in (3.0, 4.0, 5.0, 6.0):
        live.heard(beat("me", sent))
    assert not live.gone("you")
    live.heard(beat("you", gone=True))
    for sent in (7.0, 8.0):
        live.heard(beat("me", sent))
    live.heard(beat("you", gone=True))
    assert not live.gone("you")
    live.heard(beat("me", 9.0))
    assert live.gone("you")


def test_no_one_is_told_of_its_own_death():
    """A forged word under the own id changes nothing."""
    live = Liveness("me", 1.0)
    live.heard(beat("me", 0.0))
    assert not live.heard(beat("me", gone=True))
    for n in range(1, 6):
        live.heard(beat("me", float(n)))
    assert not live.gone("me")
    assert live.silence("me") == 0.0


GOLDEN = (
    "89a17601a970726f636573736f72a27031a770726f63657373a178ab696e6361726e6174696f6ea8303030303031"
    "2d61a673656e745f73cb3ff8000000000000aa7475726e5f6167655f73cb0000000000000000a47465726d03a467"
    "6f6e65c2a46c6f616481a36c6167cb4008000000000000"
)


def test_golden_bytes():
    given_beat = Heartbeat("p1", "x", "000001-a", 1.5, 0.0, 3, False, {"lag": 3.0})
    assert encode_beat(given_beat).hex() == GOLDEN
    assert decode_beat(bytes.fromhex(GOLDEN)) == given_beat


@pytest.mark.parametrize(
    "value",
    [
        None, b"", b"\xc1", b"x" * 20_000, msgpack.packb([1]), msgpack.packb({"v": 2}), msgpack.packb({"v": 1}),
        encode_beat(beat("x", float("inf"))), encode_beat(beat("x", turn_age_s=-1.0)), encode_beat(beat("x", turn_age_s=float("nan"))),
    ],
)  # fmt: skip
def test_what_is_no_heartbeat_is_refused(value: bytes | None):
    with pytest.raises(DataError):
        decode_beat(value)


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=40))
def test_any_bytes_are_a_heartbeat_or_an_error(value: bytes):
    try:
        assert isinstance(decode_beat(value), Heartbeat)
    except DataError as error:
        assert error.what  # noqa: PT017
