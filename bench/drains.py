"""How long a drain takes, idle and under load.

    python -m bench drains [--quick] [--idle 20] [--loaded 3]

A job shuffles and copies (one worker, four partitions). Idle: it has nothing to do. Loaded: it works off a backlog at full speed. A drain
takes from the broker's append time of the request to that of the final answer in the coordinator stream. What was in flight is what the job
still wrote after the request; the rate is that of the two seconds before it.

Promised: 300 ms idle (median); under load what is in flight divided by the rate, plus one second. Prints a table; writes
`bench/out/drains.json`; exits with 1 if a promise is not kept.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
import uuid
from pathlib import Path
from statistics import median
from typing import Any

from headgate.agents.broker.broker import Broker
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.process.reading import following
from headgate.agents.process.requests import Request, ask
from headgate.core.coordination import messages as c
from headgate.core.names import JobName, Topics

from . import report
from .restart import fill, wait_ready
from .rig import PARTITIONS, Program, make_topic, read_all, scratch

IDLE_MS, MORE_MS = 300.0, 1000.0
RATE_MS = 2000
JOB = """
import os
import headgate as hg
app = hg.App(os.environ["BENCH_JOB"])
app.input(os.environ["BENCH_SOURCE"]).repartition("user").to(os.environ["BENCH_TARGET"])
"""


class Life:
    """One run of a job of its own."""

    def __init__(self, bootstrap: str, directory: Path, records: int) -> None:
        self.bootstrap = bootstrap
        self.name = f"drains-{uuid.uuid4().hex[:6]}"
        self.source, self.target = f"{self.name}-in", f"{self.name}-out"
        make_topic(bootstrap, self.source)
        make_topic(bootstrap, self.target, {"message.timestamp.type": "LogAppendTime"})
        if records:
            fill(bootstrap, self.source, records)
        (directory / "drained_job.py").write_text(JOB)
        words = [sys.executable, "-m", "headgate.agents.cli", "run", "drained_job:app", "--app-dir", str(directory)]
        words += ["-b", bootstrap, "--state-dir", str(directory / self.name), "--log-format", "json"]
        env = {"BENCH_JOB": self.name, "BENCH_SOURCE": self.source, "BENCH_TARGET": self.target}
        self.program = Program(words, env, directory / f"{self.name}.log").start()
        wait_ready(self.program, 60)

    def drain(self) -> tuple[int, int]:
        """Drain it. The wall-clock times of the request and of the answer, in ms."""
        found = asyncio.run(self._drain())
        self.program.popen.wait(60)
        self.program.stop()
        return found

    async def _drain(self) -> tuple[int, int]:
        client, topics = ClientSettings(self.bootstrap), Topics(JobName(self.name))
        answer = await ask(client, topics, Request("drain"), timeout_s=120)
        async with following(client, topics, keep=True) as stream:
            written = [(one.message, one.append_ms) for one in stream.entries]
        asked = next(at for one, at in written if isinstance(one, c.SetRequest) and one.uuid == answer.uuid)
        ended = next(
            at for one, at in written if isinstance(one, c.SetAnswer) and (one.uuid, one.state) == (answer.uuid, "done")
        )
        return asked, ended


def loaded(bootstrap: str, directory: Path, records: int, busy_s: float) -> dict[str, Any]:
    """A drain in the middle of a backlog."""
    life = Life(bootstrap, directory, records)
    time.sleep(busy_s)
    asked, ended = life.drain()
    walls = [message.timestamp()[1] for message in read_all(bootstrap, life.target)]
    if len(walls) == records:
        raise AssertionError(f"all of {records} records were through before the drain: more are needed")
    flight = sum(wall > asked for wall in walls)
    rate = sum(asked - RATE_MS < wall <= asked for wall in walls) / RATE_MS * 1000
    limit = flight / max(rate, 1.0) * 1000 + MORE_MS
    return {"ms": ended - asked, "in_flight": flight, "rate": rate, "limit_ms": limit, "load": os.getloadavg()[0]}


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench drains", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--quick", action="store_true", help="fewer drains")
    words.add_argument("--idle", type=int, default=20)
    words.add_argument("--loaded", type=int, default=3)
    given = words.parse_args()
    idle_count, loaded_count = (5, 1) if given.quick else (given.idle, given.loaded)
    with scratch() as directory, Broker.start(directory / "kafka") as broker:
        idle: list[int] = []
        for _ in range(idle_count):
            life = Life(broker.bootstrap, directory, 0)
            time.sleep(1.0)  # so that nothing of the start is left to do
            asked, ended = life.drain()
            idle.append(ended - asked)
        print(
            f"idle, {PARTITIONS} tasks: {median(idle):.0f} ms median of {len(idle)}, {max(idle)} ms longest"
            f"   (promised {IDLE_MS:.0f} ms)   load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        rows = [loaded(broker.bootstrap, directory, 3_000_000, 4.0) for _ in range(loaded_count)]
        for row in rows:
            print(
                f"loaded: {row['ms']} ms with {row['in_flight']:,} records in flight at {row['rate']:,.0f} a second"
                f"   (promised {row['limit_ms']:.0f} ms)   load {row['load']:.1f}",
                flush=True,
            )
    report.keep("drains", {"idle_ms": idle, "loaded": rows})
    return int(median(idle) > IDLE_MS or any(row["ms"] > row["limit_ms"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
