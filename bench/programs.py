"""The programs that the benches compare: how each is started, what it is called, and why one is left out.

All of them commit every 200 ms, unless their label says something else. `BENCH_…` variables give each its work, topics and input.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .peers.kafka_streams import EQUAL_COMMITS, TUNED, absent, command
from .rig import HERE, Program, has_module

COMMIT_MS = 200
EXACTLY_ONCE = "processing.guarantee=exactly_once_v2"


@dataclass(frozen=True)
class Peer:
    """One program, with the settings that it is started with."""

    kind: str
    """headgate, streams, or what stands before `_work.py` in its file's name."""
    label: str
    form: str = ""
    """How headgate's job is written: rows, typed rows or columns."""
    settings: tuple[str, ...] = ()
    """Of headgate (`--set`) or of Kafka Streams."""
    commit_ms: int = COMMIT_MS
    module: str = ""
    """What it cannot run without."""


PEERS = {
    "headgate": Peer("headgate", "headgate, rows, exactly once", "rows"),
    "headgate-typed": Peer("headgate", "headgate, typed rows, exactly once", "typed", module="msgspec"),
    "headgate-columns": Peer("headgate", "headgate, columns, exactly once", "columns", module="msgspec"),
    "headgate-50ms": Peer("headgate", "headgate, rows, exactly once, commits each 50 ms", "rows", ("commit.interval=50ms",), 50),
    "headgate-alo": Peer("headgate", "headgate, rows, at least once", "rows", ("guarantee=at_least_once",)),
    "headgate-columns-alo": Peer("headgate", "headgate, columns, at least once", "columns", ("guarantee=at_least_once",), module="msgspec"),
    "streams": Peer(
        "streams", "Kafka Streams, 1 thread, exactly_once_v2, as shipped but for the commits", settings=(EXACTLY_ONCE, *EQUAL_COMMITS)
    ),
    "streams-tuned": Peer("streams", "Kafka Streams, 1 thread, exactly_once_v2, tuned to our batches", settings=(EXACTLY_ONCE, *TUNED)),
    "streams-shipped": Peer(
        "streams", "Kafka Streams, exactly_once_v2, as shipped (commits each 100 ms)", settings=(EXACTLY_ONCE,), commit_ms=100
    ),
    "streams-alo": Peer("streams", "Kafka Streams, at least once, as shipped", commit_ms=30_000),
    "quix": Peer("quix", "Quix Streams, at least once", module="quixstreams"),
    "bytewax": Peer("bytewax", "Bytewax, at least once", module="bytewax"),
    "faust": Peer("faust", "Faust, at least once", module="faust"),
    "bare": Peer("bare", "bare aiokafka loop, at least once"),
    "polars": Peer("polars", "bare librdkafka + polars loop, at least once", module="polars"),
}  # fmt: skip


def without(peer: str, work: str, shape: str = "as-is") -> str:
    """Why a program is left out; empty if it is not."""
    kind, module = PEERS[peer].kind, PEERS[peer].module
    if kind in ("bare", "polars") and work == "B":
        return "state, changelog and repartitioning are what a bare loop lacks"
    if work in "WJ" and kind not in ("headgate", "streams"):
        return f"{work} is compared with Kafka Streams only"
    if shape == "avro" and (work not in "ABC" or kind not in ("headgate", "streams")):
        return f"{work} in Avro is not written for {kind}"
    if work == "S" and kind != "headgate":
        return "S is measured for headgate only"
    if kind == "streams":
        return absent()
    if module and not has_module(module):
        return f"{module} is not installed: `make bench` installs it"
    return ""


@dataclass(frozen=True)
class Job:
    """What a program is started for."""

    work: str
    name: str
    source: str
    target: str
    shape: str = "as-is"
    grace_ms: int = 0
    """Of the windows of W, and of the join of J."""
    worker: int = 0
    """The number of this worker, if several run the same job."""
    registry: str = ""
    """Where the schemas of records in Avro stand."""


def program(peer: str, job: Job, bootstrap: str, directory: Path, settings: Sequence[str] = ()) -> Program:
    """The program for a peer, not started. `settings`: more of headgate's."""
    one = PEERS[peer]
    title = f"{job.name}-{job.worker}" if job.worker else job.name
    state = directory / title
    state.mkdir(exist_ok=True)
    peers = HERE / "peers"
    env = {"BENCH_WORK": job.work, "BENCH_SOURCE": job.source, "BENCH_TARGET": job.target, "BENCH_BOOTSTRAP": bootstrap,
           "BENCH_JOB": job.name, "BENCH_STATE": str(state), "BENCH_GRACE_MS": str(job.grace_ms), "BENCH_FORM": one.form,
           "BENCH_SHAPE": job.shape, "BENCH_COMMIT_MS": str(one.commit_ms),
           "BENCH_REGISTRY": job.registry, "PYTHONUNBUFFERED": "1"}  # fmt: skip
    match one.kind:
        case "headgate":
            words = [sys.executable, "-m", "headgate.agents.cli", "run", "headgate_work:app", "--app-dir", str(peers)]
            words += ["-b", bootstrap, "--state-dir", str(state), "--log-format", "json"]
            words += ["--processor-id", f"worker-{job.worker}"] if job.worker else []
            registry = [f"registry.url={job.registry}"] if job.registry else []
            for pair in (*one.settings, *registry, *settings):
                words += ["--set", pair]
        case "streams":
            words = [*command(job.work, bootstrap, job.source, job.target, job.name, state), *one.settings]
        case "faust":
            words = [sys.executable, str(peers / "faust_work.py"), "worker", "-l", "warn", "--without-web"]
        case _:
            words = [sys.executable, str(peers / f"{one.kind}_work.py")]
    return Program(words, env, directory / f"{title}.log")
