"""The queue of spans: bounded, counted, and never waited for."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import structlog

from headgate.agents.tracing.sending import AGAIN_S, SpanSender


class Target:
    """A receiver whose requests a test answers."""

    def __init__(self) -> None:
        self.got: list[list[Any]] = []
        self.asked = threading.Event()
        self.why = ""
        self.raises: Exception | None = None
        self.answers = threading.Event()
        self.answers.set()
        self.now_s = 1000.0

    def sender(self, *, most: int = 10, batch: int = 4, every_s: float = 3600.0) -> SpanSender:
        return SpanSender(self.send, "here", most=most, batch=batch, every_s=every_s, now_s=lambda: self.now_s)

    def send(self, spans: Sequence[Any]) -> str:
        self.asked.set()
        self.answers.wait()
        if self.raises is not None:
            raise self.raises
        self.got.append(list(spans))
        return self.why


def test_spans_go_in_requests_of_bounded_size():
    """In their order."""
    target = Target()
    sender = target.sender()
    for number in range(6):
        sender.add(number)
    sender.turn()
    assert target.got == [[0, 1, 2, 3], [4, 5]]
    assert (sender.sent, sender.dropped) == (6, 0)


def test_a_request_goes_out_as_soon_as_it_is_full_and_the_rest_at_the_end():
    """The thread waits neither for the interval nor for more."""
    target = Target()
    sender = target.sender()
    sender.start()
    for number in range(4):
        sender.add(number)
    assert target.asked.wait(60)
    sender.add(4)
    sender.stop(60)
    assert [span for request in target.got for span in request] == [0, 1, 2, 3, 4]
    assert (sender.sent, sender.dropped) == (5, 0)


def test_while_the_receiver_hangs_the_queue_does_not_grow_and_nothing_waits():
    """The newest are dropped. An end does not wait for longer than it may; what was left is dropped, too."""
    target = Target()
    target.answers.clear()
    sender = target.sender(most=10, batch=4)
    sender.start()
    for number in range(4):
        sender.add(number)
    assert target.asked.wait(60)
    for number in range(100):
        sender.add(number)
    assert sender.dropped == 90
    sender.stop(0.01)
    assert (sender.sent, sender.dropped) == (0, 100)
    target.answers.set()


def test_what_a_receiver_refuses_is_counted_and_reported_at_growing_intervals():
    """Once, after a minute, after two more; and when it takes spans again."""
    target = Target()
    sender = target.sender()
    target.why = "Connection refused"
    with structlog.testing.capture_logs() as logs:
        for after_s in (0, AGAIN_S / 2, AGAIN_S / 2, AGAIN_S, AGAIN_S):
            target.now_s += after_s
            sender.add("span")
            sender.turn()
        target.why = ""
        sender.add("span")
        sender.turn()
    said = [(one["event"], one["dropped"]) for one in logs]
    away = "spans are dropped: their receiver does not take them"
    assert said == [(away, 1), (away, 3), (away, 5), ("the receiver of spans takes them again", 5)]
    assert (sender.sent, sender.dropped) == (1, 5)


def test_a_fault_of_a_library_ends_nothing():
    """It counts as a refusal."""
    target = Target()
    sender = target.sender()
    target.raises = ValueError("no such span")
    sender.add("span")
    sender.turn()
    target.raises = None
    sender.add("span")
    sender.turn()
    assert (sender.sent, sender.dropped) == (1, 1)
