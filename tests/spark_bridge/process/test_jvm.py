"""The session of a process: imported late, begun once, lent ones left alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.agents.broker.java import find_java
from headgate.core.batching.batch_progress import STOPPED
from headgate.core.errors import EnvironmentFault
from headgate.spark_bridge.base.errors import BrokersAway, SparkAway, SparkDown
from headgate.spark_bridge.process import cluster, gateway
from headgate.spark_bridge.process.conf import code_paths
from headgate.spark_bridge.process.jvm import BEGINS, Sessions


def test_spark_is_imported_only_when_a_session_begins() -> None:
    """A job without Spark pays nothing: neither pyspark nor pyarrow are loaded by the front door, nor by making a bridge."""
    code = (
        "import sys, headgate as hg, headgate.agents.worker.worker\n"
        "assert 'pyspark' not in sys.modules and 'pyarrow' not in sys.modules\n"
        "from headgate.spark_bridge.session.session import Spark\n"
        "Spark()\n"
        "assert 'pyspark' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=180)


def test_a_lent_session_is_neither_replaced_nor_stopped() -> None:
    """It is somebody else's."""
    lent = object()
    sessions = Sessions("local[1]", {}, lent=lent)
    assert sessions.get() is lent
    sessions.stop()
    assert sessions.started == 0
    assert sessions.watch.seen().session.state == STOPPED  # nobody looks at it any more


def test_code_that_is_not_installed_is_found_by_python_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job's module may stand anywhere; functions that it sends to Spark are imported from there again."""
    monkeypatch.syspath_prepend(str(tmp_path))
    paths = code_paths()
    assert str(tmp_path) in paths
    assert not any("site-packages" in path for path in paths)


BEGIN = """
import os, signal, sys
from pyspark import SparkContext
from headgate.agents.broker.java import find_java
from headgate.spark_bridge.process.jvm import Sessions

submits = SparkContext._do_init

def killed_once(context, *rest, **more):
    if not hasattr(SparkContext, "killed"):
        SparkContext.killed = SparkContext._gateway.proc
        os.kill(SparkContext.killed.pid, signal.SIGKILL)
    return submits(context, *rest, **more)

SparkContext._do_init = killed_once
sessions = Sessions("local[1]", {}, java_home=lambda: find_java().home)
session = sessions.get()
assert session.range(3).count() == 3
assert sessions.started == 1 and sessions.is_alive(session)
assert SparkContext.killed.poll() == -signal.SIGKILL
sessions.stop()
"""


@pytest.mark.spark
def test_a_jvm_that_is_killed_while_its_session_begins_is_begun_again(tmp_path: Path) -> None:
    """One before it says its port, the next when PySpark speaks to it already: the third is the session's. Nothing is left of those."""
    real = find_java()
    java, died = tmp_path / "home" / "bin" / "java", tmp_path / "died"
    java.parent.mkdir(parents=True)
    java.write_text(
        f'#!/bin/sh\ncase "$*" in *deploy.SparkSubmit*) if [ ! -e {died} ]; then touch {died}; kill -9 $$; fi;; esac\n'
        f'exec {real.home}/bin/java "$@"\n'
    )
    java.chmod(0o755)
    environment = {**os.environ, "JAVA_HOME": str(java.parent.parent)}
    subprocess.run([sys.executable, "-c", BEGIN], check=True, timeout=240, env=environment)
    assert died.exists()


STOP = """
import sys, threading, time
import psutil
from structlog.testing import capture_logs
from headgate.spark_bridge.base.errors import SparkDown
from headgate.spark_bridge.process.jvm import Sessions

sessions, heard = Sessions("local[1]", {}, java_home=lambda: sys.argv[1]), []

def get():
    try:
        sessions.get()
    except SparkDown as error:
        heard.append(error.what)

with capture_logs() as logs:
    starting = threading.Thread(target=get)
    starting.start()
    while sessions._starting is None:
        time.sleep(0.01)
    sessions.stop()
    starting.join()
    get()
assert heard == ["Spark is stopped"] * 2, heard
assert [one["event"] for one in logs] == ["Spark is starting"], logs
assert all(one.status() == psutil.STATUS_ZOMBIE for one in psutil.Process().children(recursive=True))
"""


def test_a_session_that_is_stopped_while_it_starts_is_no_error(tmp_path: Path) -> None:
    """A worker whose job is refused has begun its JVM already. Nothing of it is left, none is begun later, and nobody complains."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexec sleep 600\n")
    java.chmod(0o755)
    subprocess.run([sys.executable, "-c", STOP, str(tmp_path)], check=True, timeout=180)


def test_what_can_never_begin_is_said_with_its_remedy() -> None:
    """After a few tries, and for good only where whoever asked decides so: the next batch may find a Java."""
    asked: list[int] = []

    def nowhere() -> str:
        asked.append(1)
        raise EnvironmentFault("no Java 17 or newer", remedy="install one")

    sessions = Sessions("local[1]", {}, java_home=nowhere)
    with pytest.raises(SparkDown, match="no Java 17") as found:
        sessions.get()
    assert len(asked) == BEGINS
    assert found.value.remedy == "install one"
    assert isinstance(found.value, EnvironmentFault)
    assert not found.value.final


class Waiting(Sessions):
    """Sessions on a cluster, without one."""

    def __init__(self) -> None:
        super().__init__("spark://there:7077", {})
        self.begun: list[Any] = []
        self.living: list[Any] = []

    def _begin(self) -> Any:
        if self._waits is not None:
            self._forget()
        session = SimpleNamespace(version="4", stop=lambda: self.living.remove(session))
        self.begun.append(session)
        self.living.append(session)
        return session

    def _answers(self, session: Any) -> bool:
        return session in self.living


def test_a_session_waits_for_brokers_that_its_executors_do_not_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """No JVM is started for each time that they are asked, because its session needs nothing else. One that dies meanwhile is replaced, and
    one that lacks more is given up."""
    told: list[Any] = [BrokersAway("x")] * 3 + [SparkDown("no Python"), BrokersAway("x"), ["there"]]

    def check(*_: Any) -> Any:
        answer = told.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(cluster, "check", check)
    sessions = Waiting()
    for _ in range(2):
        with pytest.raises(BrokersAway):
            sessions.get()
    assert len(sessions.begun) == 1
    sessions.living.clear()
    with pytest.raises(BrokersAway):
        sessions.get()
    assert len(sessions.begun) == 2
    with pytest.raises(SparkDown, match="no Python"):
        sessions.get()
    with pytest.raises(BrokersAway):
        sessions.get()
    assert len(sessions.begun) == 3
    assert sessions.get() is sessions.begun[2]
    assert (len(sessions.begun), sessions.started) == (3, 1)


def test_who_takes_the_place_of_a_session_that_died_is_not_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its executors are those of a cluster that has what the job needs. If that was away, it may be another one by now. Who is stopped
    while it waits for brokers is stopped."""
    checked: list[Any] = []
    monkeypatch.setattr(cluster, "check", lambda session, *_: checked.append(session) or ["there"])
    sessions = Waiting()
    sessions.get()
    sessions.living.clear()
    assert sessions.get() is sessions.begun[1]
    assert checked == sessions.begun[:1]
    sessions.living.clear()
    begin = sessions._begin

    def away() -> Any:
        raise SparkAway("nobody listens")

    monkeypatch.setattr(sessions, "_begin", away)
    with pytest.raises(SparkAway):
        sessions.get()
    monkeypatch.setattr(sessions, "_begin", begin)

    def brokers_away(*_: Any) -> Any:
        raise BrokersAway("x")

    monkeypatch.setattr(cluster, "check", brokers_away)
    with pytest.raises(BrokersAway):
        sessions.get()
    assert sessions.living == [sessions.begun[2]]
    sessions.stop()
    assert sessions.living == []
    with pytest.raises(SparkDown, match="Spark is stopped"):
        sessions.get()


def test_no_jvm_is_started_while_no_one_knows_the_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job with batches by reference, whose brokers are away: its batches wait."""

    def away(_: Any) -> list[str]:
        raise SparkAway("no broker answers")

    monkeypatch.setattr(cluster, "reachable", lambda _: None)
    monkeypatch.setattr(cluster, "brokers", away)
    monkeypatch.setattr(gateway, "launch", lambda *_: pytest.fail("started"))
    with pytest.raises(SparkAway, match="no broker answers"):
        Sessions("spark://there:7077", {}).get()
