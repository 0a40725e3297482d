"""Works A, B and C on Bytewax (librdkafka), one worker; its state and its positions are stored every 200 ms."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import Any

import bytewax.operators as op
import orjson
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kop
from bytewax.connectors.stdio import StdOutSink
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main

WORK, SOURCE, TARGET = os.environ["BENCH_WORK"], os.environ["BENCH_SOURCE"], os.environ["BENCH_TARGET"]
BROKERS = os.environ["BENCH_BOOTSTRAP"].split(",")
USED = ("user", "amount", "p", "i") if os.environ["BENCH_SHAPE"] == "nested" else ()
"""The fields of a nested record that A writes."""
seen = total = 0


def with_total(value: dict[str, Any]) -> KafkaSinkMessage[Any, Any]:
    """Work A's field."""
    if USED:
        value = {name: value[name] for name in USED}
    value["total"] = value["amount"] * 2
    return KafkaSinkMessage(None, orjson.dumps(value))


def count(now: tuple[int, int] | None, amount: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Work B's step."""
    n, sums = now or (0, 0)
    return (n + 1, sums + amount), (n + 1, sums + amount)


def update(pair: tuple[str, tuple[int, int]]) -> KafkaSinkMessage[Any, Any]:
    """Work B's output."""
    user, (n, sums) = pair
    return KafkaSinkMessage(user.encode(), orjson.dumps({"n": n, "total": sums}))


def add_up(values: list[dict[str, Any]]) -> list[str]:
    """Work C's step, of a batch."""
    global seen, total
    total += sum([value["amount"] for value in values])
    seen += len(values)
    return [f"MARK {time.time()} {seen} {total}"]


flow = Dataflow("bench")
read = kop.input("in", flow, brokers=BROKERS, topics=[SOURCE])
values = op.map("parse", read.oks, lambda message: orjson.loads(message.value))
match WORK:
    case "A":
        kept = op.filter("keep", values, lambda value: value["amount"] >= 10)
        kop.output("out", op.map("total", kept, with_total), brokers=BROKERS, topic=TARGET)
    case "B":
        keyed = op.key_on("user", values, lambda value: value["user"])
        amounts = op.map_value("amount", keyed, lambda value: value["amount"])
        kop.output(
            "out", op.map("update", op.stateful_map("count", amounts, count), update), brokers=BROKERS, topic=TARGET
        )
    case _:
        op.output("out", op.flat_map_batch("add", values, add_up), StdOutSink())


if __name__ == "__main__":
    init_db_dir(os.environ["BENCH_STATE"], 1)
    cli_main(
        flow,
        epoch_interval=timedelta(milliseconds=int(os.environ["BENCH_COMMIT_MS"])),
        recovery_config=RecoveryConfig(os.environ["BENCH_STATE"]),
    )
