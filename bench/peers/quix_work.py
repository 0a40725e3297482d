"""Works A, B, C, K and M on Quix Streams: its defaults (at least once, librdkafka) but for the commits, which it makes every 5 s."""

from __future__ import annotations

import os
import time
from typing import Any

from quixstreams import Application

WORK, SOURCE, TARGET = os.environ["BENCH_WORK"], os.environ["BENCH_SOURCE"], os.environ["BENCH_TARGET"]
USED = ("user", "amount", "p", "i") if os.environ["BENCH_SHAPE"] == "nested" else ()
"""The fields of a nested record that A writes."""
GUARANTEE: Any = os.environ.get("BENCH_GUARANTEE", "at-least-once")
WORKER = os.environ.get("BENCH_WORKER", "")
seen = total = 0


def with_total(value: dict[str, Any]) -> dict[str, Any]:
    """Work A's field."""
    if USED:
        value = {name: value[name] for name in USED}
    value["total"] = value["amount"] * 2
    return value


def count(value: dict[str, Any], state: Any) -> dict[str, Any]:
    """Work B's step."""
    now = state.get("now") or [0, 0]
    now = [now[0] + 1, now[1] + value["amount"]]
    state.set("now", now)
    return {"n": now[0], "total": now[1]}


def sign(value: dict[str, Any]) -> dict[str, Any]:
    """Work M's step."""
    return {"p": value["p"], "n": value["i"], "w": WORKER}


def keep(value: dict[str, Any], state: Any) -> dict[str, Any]:
    """Work K's step."""
    n = state.get("n", 0) + 1
    state.set("n", n)
    return {"p": value["p"], "n": n, "w": WORKER}


def add_up(value: dict[str, Any]) -> None:
    """Work C's step."""
    global seen, total
    total += value["amount"]
    seen += 1
    if seen % 1000 == 0:
        print(f"MARK {time.time()} {seen} {total}", flush=True)


def main() -> None:
    """Run until killed."""
    session: dict[str, Any] = {}
    if "BENCH_SESSION_S" in os.environ:
        ms = int(float(os.environ["BENCH_SESSION_S"]) * 1000)
        session = {"consumer_extra_config": {"session.timeout.ms": ms, "heartbeat.interval.ms": 1000}}
    app = Application(
        broker_address=os.environ["BENCH_BOOTSTRAP"],
        consumer_group=os.environ["BENCH_JOB"],
        auto_offset_reset="earliest",
        processing_guarantee=GUARANTEE,
        commit_interval=int(os.environ["BENCH_COMMIT_MS"]) / 1000,
        state_dir=os.environ["BENCH_STATE"],
        loglevel="WARNING",
        **session,
    )
    frame = app.dataframe(app.topic(SOURCE, value_deserializer="json"))
    match WORK:
        case "A":
            frame = frame.filter(lambda value: value["amount"] >= 10).apply(with_total)
            frame.to_topic(app.topic(TARGET, value_serializer="json"))
        case "B":
            frame = frame.group_by("user").apply(count, stateful=True)
            frame.to_topic(app.topic(TARGET, value_serializer="json"))
        case "M":
            frame.apply(sign).to_topic(app.topic(TARGET, value_serializer="json"))
        case "K":
            frame.apply(keep, stateful=True).to_topic(app.topic(TARGET, value_serializer="json"))
        case _:
            frame.update(add_up)
    app.run()


if __name__ == "__main__":
    main()
