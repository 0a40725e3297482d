"""How long it takes from an event until its result can be read, at a steady rate.

What it decides: which results say what made them. One that has the time of a bid is as late as it was appended after that
bid was produced. One of a window is as late as it was appended after the first event was produced that lets the window
close. The outputs of the other queries have no time, and are not measured.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence

import orjson
from confluent_kafka import Producer

from .feed import Encoded
from .judging import ms_of
from .oracle import LATE_MS

CAUSES = {
    **dict.fromkeys(("q0", "q1", "q10", "q13", "q14", "q18"), ("dateTime", 0)),
    **dict.fromkeys(("q9", "q20"), ("bid_dateTime", 0)),
    **dict.fromkeys(("q5", "q7"), ("window_end", LATE_MS)),
    "q8": ("starttime", 10_000 + LATE_MS),
    "q11": ("endtime", LATE_MS),
    "ysb": ("window_end", LATE_MS),
}
"""The field of a result that has a time, and how much later in event time it is made."""
FLUSH_S = 60.0


def paced(bootstrap: str, names: dict[str, str], phase: Sequence[Encoded], seconds: float) -> list[tuple[int, float]]:
    """Write a phase evenly over some seconds. Returns the event times with the times at which they were produced."""
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "1", "log_level": 0}
    producer = Producer({**settings, "queue.buffering.max.messages": 1_000_000})
    made: list[tuple[int, float]] = []
    began = time.time()
    while len(made) < len(phase):
        due = min(len(phase), int((time.time() - began) / seconds * len(phase)) + 1)
        for event in phase[len(made) : due]:
            made.append((event.at, time.time()))
            producer.produce(names[event.kind], event.value, event.key, partition=event.partition)
        producer.poll(0.002)
    if left := producer.flush(FLUSH_S):
        raise AssertionError(f"{left} records of the input were not written")
    return made


def delays_ms(
    query: str, made: Sequence[tuple[int, float]], outputs: Iterable[tuple[float, bytes | None]]
) -> list[float]:
    """How late the results were that these events have made, in ms and in ascending order. `outputs`: when appended, and the value."""
    name, more = CAUSES[query]
    found: list[float] = []
    for appended, value in outputs:
        if value is None or appended < made[0][1]:
            continue
        cause = ms_of(orjson.loads(value)[name]) + more
        place = bisect_left(made, (cause, 0.0))
        if place < len(made) and cause >= made[0][0]:
            found.append((appended - made[place][1]) * 1000)
    return sorted(found)
