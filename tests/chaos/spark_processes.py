"""A real standalone Spark cluster, and a real Spark Connect server, from PySpark's own jars, on free ports of this machine.

Each process ends with this one, even by SIGKILL, and `close` kills whatever it has begun.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import psutil
import pytest

from headgate.agents.broker import quickstart
from headgate.agents.broker.java import find_java
from headgate.agents.broker.ports import free_ports
from headgate.agents.worker.spark_jvm import QUIET, archive_of_spark

UP_S = 240.0
ON_REQUEST = pytest.mark.skipif(
    not os.environ.get("HEADGATE_TEST_SPARK"), reason="takes minutes; HEADGATE_TEST_SPARK=1 runs it"
)


def free_port() -> int:
    """A port that nobody uses, nor gets by chance while its process is down."""
    return free_ports(1)[0]


def java_options() -> str:
    """For each JVM of a cluster, executors among them, as for the JVMs of workers in tests: they live for one test, and compute next to
    nothing. With the archive of Spark's classes, if there is one, they take half the CPU time."""
    archive = archive_of_spark()
    found = quickstart.using(archive) if archive.exists() else []
    return " ".join(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *found, QUIET])


class SparkProcess:
    """One JVM of Spark that is not ours."""

    more: Mapping[str, str] = MappingProxyType({})
    """Variables of its environment besides those of all."""

    def __init__(self, directory: Path, name: str, *command: str, port: int | None = None) -> None:
        import pyspark

        directory.mkdir(parents=True, exist_ok=True)
        home = Path(pyspark.__file__).parent
        self.name, self.port = name, port
        self.log = directory / f"{name}.log"
        self.command = [str(home / "bin" / command[0]), *command[1:]]
        self.environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "JAVA_HOME": str(find_java().home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "JDK_JAVA_OPTIONS": java_options(),
            "SPARK_LOCAL_DIRS": str(directory / "tmp"),
            "PYSPARK_PYTHON": sys.executable,
            **self.more,
        }
        self.begin()

    def begin(self) -> None:
        """Start it, or start it again, on the same port."""
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment,
                preexec_fn=_with_this_process,
            )

    def up(self) -> None:
        """Wait until it takes connections."""
        give_up = time.monotonic() + UP_S
        while self.port is not None:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            assert self.popen.poll() is None, f"{self.name} has ended:\n{self.log.read_text()[-2000:]}"
            assert time.monotonic() < give_up, f"{self.name} does not come up:\n{self.log.read_text()[-2000:]}"
            time.sleep(0.05)

    def said(self, text: str) -> None:
        """Wait until it has said this."""
        give_up = time.monotonic() + UP_S
        while text not in self.log.read_text(errors="replace"):
            assert time.monotonic() < give_up, f"{self.name} never says {text}:\n{self.log.read_text()[-2000:]}"
            time.sleep(0.05)

    def kill(self) -> None:
        """kill -9."""
        self.popen.send_signal(signal.SIGKILL)
        self.popen.wait(60)

    def below(self, part: str) -> Iterator[psutil.Process]:
        """Processes below this one with this in their command line."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for one in psutil.Process(self.popen.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if part in " ".join(one.cmdline()):
                        yield one

    def close(self) -> None:
        """Kill it, and all that it has begun."""
        below = list(self.below(""))
        self.kill()
        for one in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(below, timeout=240)


def _with_this_process() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Standalone:
    """A master and its workers."""

    def __init__(self, directory: Path, workers: int = 2, memory: str = "600m") -> None:
        self.memory = memory
        """Of each worker."""
        self.port = free_port()
        self.url = f"spark://127.0.0.1:{self.port}"
        self.master = SparkProcess(
            directory, "master", "spark-class", "org.apache.spark.deploy.master.Master",
            "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(free_port()), port=self.port,
        )  # fmt: skip
        self.directory = directory
        self.workers = [self.worker(number) for number in range(workers)]

    def worker(self, number: int) -> SparkProcess:
        """One more worker, with one core."""
        return SparkProcess(
            self.directory, f"worker-{number}", "spark-class", "org.apache.spark.deploy.worker.Worker",
            "--host", "127.0.0.1", "--cores", "1", "--memory", self.memory, "--webui-port", str(free_port()),
            "--work-dir", str(self.directory / f"work-{number}"), self.url,
        )  # fmt: skip

    def up(self) -> Standalone:
        """Wait until all workers are registered."""
        self.master.up()
        for worker in self.workers:
            worker.said("Successfully registered with master")
        return self

    def executors(self) -> list[psutil.Process]:
        """The executors of all workers."""
        return [one for worker in self.workers for one in worker.below("CoarseGrainedExecutorBackend")]

    def close(self) -> None:
        """Kill all of them."""
        for one in (*self.workers, self.master):
            one.close()


class ConnectServer(SparkProcess):
    """A Spark Connect server on `local[2]`."""

    def __init__(self, directory: Path, memory: str = "700m") -> None:
        port = free_port()
        self.more = {"SPARK_DAEMON_MEMORY": memory}  # its heap is that of a daemon, whatever --driver-memory says
        self.url = f"sc://127.0.0.1:{port}"
        super().__init__(
            directory, "connect", "spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
            "--master", "local[2]", "--driver-memory", memory, "--conf", "spark.ui.enabled=false",
            "--conf", "spark.connect.grpc.binding.address=127.0.0.1", "--conf", f"spark.connect.grpc.binding.port={port}",
            "--conf", "spark.python.unix.domain.socket.enabled=true",
            port=port,
        )  # fmt: skip


CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.driver.memory": "512m",
}
"""For a session on `Standalone`."""
