"""Kafka Streams: compiled where a JDK is present, its jars fetched as the broker's are; else the column says why it is empty."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

from headgate.agents.broker.ivy import Jar, fetch
from headgate.agents.broker.jars import pyspark_jars
from headgate.agents.broker.java import find_java
from headgate.agents.broker.places import cache_dir
from headgate.core.errors import HeadgateError

VERSION = "4.4.0"
OWN = (
    Jar("org.apache.kafka", "kafka-streams", VERSION, 0, ""),
    Jar("org.apache.kafka", "kafka-clients", VERSION, 0, ""),
    Jar("org.rocksdb", "rocksdbjni", "10.1.3", 0, ""),
)
SHIPPED = (
    "jackson-annotations",
    "jackson-core",
    "jackson-databind",
    "slf4j-api",
    "lz4-java",
    "snappy-java",
    "zstd-jni",
    "avro",
)
TUNED = (
    "commit.interval.ms=200", "max.poll.records=2000", "producer.batch.size=1000000", "producer.linger.ms=5",
    "producer.buffer.memory=134217728", "consumer.max.partition.fetch.bytes=4194304", "consumer.fetch.max.bytes=52428800",
    "statestore.cache.max.bytes=67108864",
)  # fmt: skip
"""Our batch sizes and our commit interval."""
EQUAL_COMMITS = ("commit.interval.ms=200",)
"""Our commit interval only."""
HERE = Path(__file__).parent


def _home() -> Path:
    return cache_dir() / "bench" / f"kafka-streams-{VERSION}"


@cache
def absent() -> str:
    """Why there is no Kafka Streams here; empty if there is."""
    if shutil.which("javac") is None:
        return "no JDK here (javac): Kafka Streams is not compiled"
    home = _home()
    home.mkdir(parents=True, exist_ok=True)
    if not all((home / jar.file).exists() for jar in OWN):
        ivy = sorted(pyspark_jars().glob("ivy-*.jar"))[-1]
        try:
            fetch(OWN, home, java=find_java(), ivy_jar=ivy)
        except HeadgateError as error:
            return f"its jars cannot be fetched: {error}"
    done = subprocess.run(
        ["javac", "-cp", _classpath(), "-d", str(home / "classes"), *map(str, sorted(HERE.glob("*.java")))],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return "" if done.returncode == 0 else f"it does not compile: {done.stderr[:500]}"


def _classpath() -> str:
    home, shipped = _home(), pyspark_jars()
    jars = [home / jar.file for jar in OWN]
    jars += [sorted(shipped.glob(f"{name}-[0-9]*.jar"))[-1] for name in SHIPPED]
    return ":".join(str(path) for path in [home / "classes", *jars])


def command(work: str, bootstrap: str, source: str, target: str, name: str, state: Path) -> list[str]:
    """What starts it, without further settings."""
    java = shutil.which("java") or find_java().path
    head = [java, "-Xmx1g", "-cp", _classpath(), "Work"]
    return [*head, work, bootstrap, source, target, name, str(state)]


def that_tells(command: list[str]) -> list[str]:
    """The same program with its group's news on standard error: the class path has log4j, too."""
    jars = [
        sorted(pyspark_jars().glob(f"{name}-[0-9]*.jar"))[-1]
        for name in ("log4j-api", "log4j-core", "log4j-slf4j2-impl")
    ]
    at = command.index("-cp") + 1
    classpath = ":".join([command[at], *map(str, jars)])
    return [
        command[0],
        f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}",
        *command[1:at],
        classpath,
        *command[at + 1 :],
    ]
