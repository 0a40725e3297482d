"""Works A, B, C, K and M on plain Faust (its own consumer, its defaults but for the commits, memory store; updates are sent one by one)."""

from __future__ import annotations

import os
import time
from typing import Any

import faust

WORK, SOURCE, TARGET = os.environ["BENCH_WORK"], os.environ["BENCH_SOURCE"], os.environ["BENCH_TARGET"]
PARTITIONS = int(os.environ.get("BENCH_PARTITIONS", "4"))
WORKER = os.environ.get("BENCH_WORKER", "")
session: dict[str, float] = {}
if "BENCH_SESSION_S" in os.environ:
    session = {"broker_session_timeout": float(os.environ["BENCH_SESSION_S"]), "broker_heartbeat_interval": 1.0}
app = faust.App(
    os.environ["BENCH_JOB"],
    broker=f"kafka://{os.environ['BENCH_BOOTSTRAP']}",
    topic_partitions=PARTITIONS,
    topic_disable_leader=True,
    topic_replication_factor=1,
    web_enabled=False,
    broker_commit_interval=int(os.environ["BENCH_COMMIT_MS"]) / 1000,
    consumer_auto_offset_reset="earliest",
    datadir=os.environ["BENCH_STATE"],
    **session,
)
used = ("user", "amount", "p", "i") if os.environ["BENCH_SHAPE"] == "nested" else ()
source = app.topic(SOURCE, value_serializer="json")
target = app.topic(TARGET, value_serializer="json")
seen = total = 0

if WORK == "A":

    @app.agent(source)
    async def filtered(stream: Any) -> None:
        """Work A."""
        async for value in stream:
            if value["amount"] >= 10:
                if used:
                    value = {name: value[name] for name in used}
                value["total"] = value["amount"] * 2
                await target.send(value=value)

elif WORK == "B":
    table = app.Table("counts", default=lambda: [0, 0], partitions=4)

    @app.agent(source)
    async def counted(stream: Any) -> None:
        """Work B."""
        async for value in stream.group_by(lambda value: value["user"], name="user", partitions=4):
            user = value["user"]
            n, sums = table[user]
            table[user] = [n + 1, sums + value["amount"]]
            await target.send(key=user, value={"n": n + 1, "total": sums + value["amount"]})

elif WORK == "M":

    @app.agent(source)
    async def signed(stream: Any) -> None:
        """Work M."""
        async for value in stream:
            made = {"p": value["p"], "n": value["i"], "w": WORKER}
            await target.send(key=value["user"], value=made, partition=value["p"])

elif WORK == "K":
    seen_by_user = app.Table("counts", default=int, partitions=PARTITIONS)

    @app.agent(source)
    async def kept(stream: Any) -> None:
        """Work K."""
        async for value in stream:
            user = value["user"]
            seen_by_user[user] = n = seen_by_user[user] + 1
            await target.send(key=user, value={"p": value["p"], "n": n, "w": WORKER}, partition=value["p"])

else:

    @app.agent(source)
    async def summed(stream: Any) -> None:
        """Work C."""
        global seen, total
        async for value in stream:
            total += value["amount"]
            seen += 1
            if seen % 1000 == 0:
                os.write(1, b"MARK %f %d %d\n" % (time.time(), seen, total))  # Faust turns prints into log lines


if __name__ == "__main__":
    app.main()
