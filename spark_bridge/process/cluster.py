"""Checks what a cluster must have before the first batch goes there, and says what is missing, and where.

- The master or the server can be reached from here.
- An executor comes within `spark.executors-timeout`.
- The executors run this version of Python and PySpark, and have Arrow's library and the code of `spark.package`.
- If batches are read from Kafka there, the executors have headgate, and reach every address that the brokers advertise.
- If batches may go to files, the executors read what this worker writes to `spark.spool`.

A small job visits the executors that are there when the session starts, with a task for each of their cores. One that comes later says what
it lacks in the batch.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...core.batching.ranges import RangeError
from ..base.errors import BrokersAway, SparkAway, SparkDown, SparkLost, SparkPlanError, first_lines, said, typed
from ..base.jobs import Jobs, is_connect
from ..data import ranges
from ..data.terms import Terms
from . import executor_check, package

CONNECT_S = 5.0
MOST_WAITS = 10
"""So many times the patience, at most, is waited for executors that are there and have not answered."""
TRIED = 8, 1000
"""How many tasks try the executors, at least and at most: as many as they have cores reach each of them, if they are idle."""
REMEDIES: Mapping[str, str] = {
    executor_check.PYTHON: "name the right Python of the executors in spark.pyspark.python, or ship an environment: spark.archives",
    executor_check.SPARK: "use the same version of Spark and of PySpark on both sides",
    executor_check.MODULE: "install it there, or ship it: spark.package for code, spark.archives with spark.pyspark.python for an "
    "environment",
    executor_check.HEADGATE: "install the same version of headgate on both sides: executors read batches by reference with it",
    executor_check.BROKER: "executors read batches by reference from Kafka: let them reach every address that the brokers advertise "
    "(advertised.listeners), or declare the batch with by='inline'",
    executor_check.SPOOL: "set spark.spool to a directory that this worker and all executors share, under the same path, and whose mode "
    "lets the executors' user read it",
}
"""By what executors lack."""


def addresses(url: str) -> list[tuple[str, int]]:
    """Hosts and ports in the address of a standalone master, of a Kubernetes API server or of a Connect server; none for other masters.

    >>> addresses("spark://a:7077,b:7078"), addresses("k8s://https://api"), addresses("sc://c/;token=x"), addresses("yarn")
    ([('a', 7077), ('b', 7078)], [('api', 443)], [('c', 15002)], [])
    """
    kind, _, rest = url.partition("://")
    port = {"spark": 7077, "sc": 15002, "k8s": 443}.get(kind)
    if port is None:
        return []
    found: list[tuple[str, int]] = []
    for one in rest.removeprefix("https://").removeprefix("http://").partition("/")[0].split(","):
        match = re.fullmatch(r"\[?([^\[\]]+?)\]?(?::(\d+))?", one)
        if match is not None:
            found.append((match[1], int(match[2] or port)))
    return found


def reachable(url: str) -> None:
    """Raise `SparkAway` if no one listens there. Spark itself would try for minutes before it says so."""
    refused: list[str] = []
    for host, port in addresses(url):
        try:
            socket.create_connection((host, port), CONNECT_S).close()
            return
        except OSError as error:
            refused.append(f"{host}:{port}: {error.strerror or error}")
    if refused:
        setting = "spark.remote" if url.startswith("sc://") else "spark.master"
        raise SparkAway(
            f"Spark cannot be reached at {url.partition(';')[0]}: {'; '.join(refused)}",
            remedy=f"start it, or correct {setting}",
        )


def complete(master: str, given: Mapping[str, str]) -> None:
    """Raise `SparkDown` if a kind of cluster cannot work without something that is not there. Spark itself says it late, or unclearly."""
    if master == "yarn" and not (os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR")):
        raise SparkDown(
            "spark.master is yarn, and neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set",
            remedy="set one of them to the directory of the cluster's configuration",
        )
    images = ("spark.kubernetes.container.image", "spark.kubernetes.executor.container.image")
    elsewhere = os.environ.get("SPARK_CONF_DIR") or os.environ.get("SPARK_HOME")  # a spark-defaults.conf may say it
    if master.startswith("k8s://") and not elsewhere and not any(given.get(name) for name in images):
        raise SparkDown(
            f"spark.master is {master}, and no image of the executors is set",
            remedy="set spark.kubernetes.container.image to an image with Spark, this version of Python, and PyArrow",
        )
    if given.get("spark.submit.deployMode", "client") != "client":
        raise SparkDown(
            "spark.submit.deployMode is not client: the driver runs on the worker's machine",
            remedy="leave it out; only executors run on the cluster",
        )


def executors_of(session: Any) -> int:
    """How many executors a session has now; a Connect server does not say, and whoever cannot be asked has none."""
    if is_connect(session):
        return 0
    try:
        return session.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1  # the driver is one of them
    except Exception:  # noqa: BLE001 - the session is over
        return 0


def check(session: Any, terms: Terms, where: str) -> list[str]:
    """Run a small job on the executors. Returns what they said of themselves, for people. Raises `SparkDown` for what is missing, and
    `SparkLost` if the session has died."""
    with _marked(terms) as spool:
        wanted = _wanted(terms, spool, connect=is_connect(session))
        jobs, answers, tried = Jobs("check", "check"), [], 0
        while (tasks := _tasks(session)) > tried:  # more executors may have come meanwhile
            tried = tasks
            found = _within(terms.executors_s, jobs, _ask(session, jobs, wanted, tasks), where)
            answers += [json.loads(one) for one in found]
    lacks = {(kind, f"{one['host']} {what}") for one in answers for kind, what in one["lacks"]}
    if lacks:
        raise _lacking(lacks, where)
    return sorted({f"{one['host']}: Python {one['python']}" for one in answers})


@contextlib.contextmanager
def _marked(terms: Terms) -> Iterator[tuple[str, str] | None]:
    """A file in the spool, and its text, which the executors must find."""
    if terms.spool is None:
        yield None
        return
    with contextlib.ExitStack() as marked:
        try:
            found = marked.enter_context(terms.spool.marked())
        except (SparkPlanError, OSError) as error:
            what = error.what if isinstance(error, SparkPlanError) else f"spark.spool: {terms.spool.root}: {error}"
            raise SparkDown(what, remedy=REMEDIES[executor_check.SPOOL]) from error
        yield found


def _wanted(terms: Terms, spool: tuple[str, str] | None, *, connect: bool) -> dict[str, Any]:
    import pyspark

    return {
        "python": list(sys.version_info[:2]),
        "spark": "" if connect else pyspark.__version__,  # a Connect server may be newer than its clients
        "headgate": sys.modules["headgate"].__version__ if terms.kafka else "",
        "modules": ["pyarrow", *sorted({*package.modules_in(terms.package), *(["headgate"] if terms.kafka else [])})],
        "brokers": brokers(terms),
        "kafka": terms.kafka,
        "spool": spool,
    }


def _tasks(session: Any) -> int:
    """How many tasks of a job reach every executor that is there now; of a Connect server only the least is known."""
    least, most = TRIED
    return least if is_connect(session) else min(most, max(least, session.sparkContext.defaultParallelism))


def brokers(terms: Terms) -> list[str]:
    """Every address that the brokers advertise, if the executors read there. Reaching one is not enough. Raises `SparkAway` if no one
    answers from here."""
    if terms.kafka is None:
        return []
    try:
        return ranges.brokers_of(ranges.Connect(*terms.kafka))
    except RangeError as error:
        raise SparkAway(
            f"the brokers that executors read from are not known: {error.what}", remedy=error.remedy
        ) from error


def _lacking(lacks: set[tuple[str, str]], where: str) -> SparkDown:
    kinds = [kind for kind in REMEDIES if any(kind == lack for lack, _ in lacks)]
    what = f"the executors of {where} are not ready: {'; '.join(sorted(text for _, text in lacks))}"
    # a broker that restarts is back soon
    return (BrokersAway if kinds == [executor_check.BROKER] else SparkDown)(
        what, remedy="; ".join(REMEDIES[kind] for kind in kinds)
    )


def _ask(session: Any, jobs: Jobs, wanted: dict[str, Any], tasks: int) -> Callable[[], list[str]]:
    """What asks the executors; it waits for the first of them."""
    from pyspark import cloudpickle
    from pyspark.sql import functions as F

    cloudpickle.register_pickle_by_value(executor_check)  # headgate need not be there
    jobs.begin(session)
    look = executor_check.look(wanted)
    asked = F.udf(look, "string", useArrow=False)
    frame = session.range(0, tasks, 1, tasks).select(asked("id").alias("said")).distinct()
    return lambda: [row["said"] for row in frame.collect()]


def _within(patience_s: float, jobs: Jobs, work: Callable[[], list[str]], where: str) -> list[str]:
    """What the work returns; its jobs are cancelled when nothing came in time."""
    late, done = threading.Event(), threading.Event()

    def watch() -> None:
        waited = 0
        while not done.wait(patience_s):
            waited += 1
            if waited < MOST_WAITS and executors_of(jobs.session):
                continue  # they are there, and slow
            late.set()
            with contextlib.suppress(Exception):  # whoever waits for the session hears it
                jobs.cancel()
            return

    threading.Thread(target=watch, name="spark-check", daemon=True).start()
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - Spark may raise anything
        if late.is_set():
            raise SparkAway(
                f"{where} has provided no executor for {patience_s:g} s (spark.executors-timeout)",
                remedy="see whether it has free cores and memory; several workers share a standalone cluster only if "
                "spark.cores.max bounds each of them",
            ) from None
        lost = typed(error)
        if isinstance(lost, SparkLost) and lost.session:
            raise lost from None  # it says nothing of the executors
        raise _executor_error(error, where, is_connect(jobs.session)) from None
    finally:
        done.set()


def _executor_error(error: Exception, where: str, connect: bool) -> SparkDown:
    text = said(error)
    if "PYTHON_VERSION_MISMATCH" in text:
        remedy = (
            "run the Connect server with the Python of this worker: PYSPARK_PYTHON"
            if connect
            else f"install Python {sys.version_info[0]}.{sys.version_info[1]} there, and name it in spark.pyspark.python"
        )
    elif "InvalidClassException" in text or "serialVersionUID" in text:
        import pyspark

        return SparkDown(
            f"{where} runs another version of Spark than this worker's PySpark, {pyspark.__version__}",
            remedy="use the same version on both sides",
        )
    elif "Cannot run program" in text or "No such file or directory" in text:
        remedy = "name the Python of the executors in spark.pyspark.python; by default it is where this worker's is"
    else:
        remedy = "see what the executors log"
    return SparkDown(f"the executors of {where} cannot run Python: {first_lines(text)}", remedy=remedy)
