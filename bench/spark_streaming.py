"""Structured Streaming's environment: the newest PySpark whose Kafka connector can be fetched, in a venv of its own in the user's cache.

The connector is not part of PySpark. Its jars are fetched as the broker's are.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

from headgate.agents.broker.ivy import Jar, fetch
from headgate.agents.broker.jars import pyspark_jars
from headgate.agents.broker.java import find_java
from headgate.agents.broker.places import cache_dir
from headgate.core.errors import HeadgateError

VERSION = "4.2.0"
JARS = (
    Jar("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION, 0, ""),
    Jar("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", VERSION, 0, ""),
    Jar("org.apache.kafka", "kafka-clients", "3.9.1", 0, ""),
    Jar("org.apache.commons", "commons-pool2", "2.12.1", 0, ""),
)


def _home() -> Path:
    return cache_dir() / "bench" / f"spark-{VERSION}"


def python() -> str:
    """The interpreter of the environment."""
    return str(_home() / "venv" / "bin" / "python")


def jars() -> str:
    """The connector, as `spark.jars` wants it."""
    return ",".join(str(_home() / jar.file) for jar in JARS)


@cache
def absent() -> str:
    """Why there is no Structured Streaming here; empty if there is. The first call makes the environment."""
    home = _home()
    home.mkdir(parents=True, exist_ok=True)
    if not all((home / jar.file).exists() for jar in JARS):
        try:
            fetch(JARS, home, java=find_java(), ivy_jar=sorted(pyspark_jars().glob("ivy-*.jar"))[-1])
        except HeadgateError as error:
            return f"its jars cannot be fetched: {error}"
    if not (home / ".made").exists():
        print(f"# making an environment with PySpark {VERSION} in {home}", flush=True)
        for words in (
            [sys.executable, "-m", "venv", str(home / "venv")],
            [python(), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"pyspark=={VERSION}"],
        ):
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode:
                return f"its environment cannot be made: {done.stderr[-300:]}"
        (home / ".made").touch()
    return ""
