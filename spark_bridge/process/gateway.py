"""A JVM for PySpark: started, connected to, and shut down.

PySpark's own start of a JVM waits for it without limit, and no one learns which process it is before it is up. Here the process is known
from the beginning, has a directory of its own (`home`), and is killed if it does not come up in time. The connection is made by PySpark.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import shlex
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakSet

from ..base.errors import SparkPlanError
from . import standard_error, submit
from .conf import is_local
from .home import Home
from .launched import Launched, Program

UP_S = 120.0
"""How long a JVM may take to say its port. It takes two seconds on an idle machine."""
END_S = 5.0
PR_SET_PDEATHSIG = 1
_prctl: Any = getattr(ctypes.CDLL(None), "prctl", None)
_parent = ThreadPoolExecutor(1, "spark-parent")
_environment = threading.Lock()
_launched = Launched()
_ended: WeakSet[Any] = WeakSet()
"""The JVMs that were ended here."""
OVER = "a DataFrame, or another object of Spark, that was kept from an earlier batch belongs to a session that is over"
ANEW = (
    "create it again with df.sparkSession, or keep it together with the id of its application, as docs/spark.md shows"
)


def launch(conf: Mapping[str, str], home: Home, begun: Callable[[Any], None]) -> Any:
    """Start a JVM with these settings, and connect PySpark to it. Raises `OSError` if it does not come up; nothing of it is left then.

    `begun` is called with its process as soon as there is one.
    """
    from pyspark import SparkContext
    from pyspark.find_spark_home import _find_spark_home

    from .names import remember

    address = home.path / "port"
    standard_error.write(home.path)
    command = [str(Path(_find_spark_home()) / "bin" / "spark-submit"), *submit.options(conf, home.path)]
    command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    environment = {**os.environ, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(address)}
    environment.pop("SPARK_LOCAL_DIRS", None)  # it would win over `spark.local.dir`, which is inside of `home`
    if is_local(
        conf.get("spark.master", "")
    ):  # no executor connects from elsewhere; Spark's pages would listen on all addresses
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    wanted = Program(command, environment, str(home.path))
    program = _launched.instead_of(wanted)
    process = child(program.command, program.environment, (home.lock,))
    standard_error.passed_on(process.stderr)
    try:
        begun(process)
        _wait(process, address)
        _launched.is_up(wanted, process.pid)
        gateway = _connected(address.read_bytes())
    except BaseException:
        end(process)
        raise
    remember(gateway)
    logging.getLogger().addFilter(_wanted)  # py4j reports there; a filter that is there already is not added again
    gateway.proc = process
    context: Any = SparkContext
    context._gateway, context._jvm = gateway, gateway.jvm
    return gateway


def child(command: Sequence[str], environment: Mapping[str, str], kept: Sequence[int]) -> subprocess.Popen[bytes]:
    """Begin a program that ends when its input does: it never outlives this process, even if this one is killed while that one is stopped.

    On Linux it is told to go on (SIGCONT) when the thread that has begun it ends, so that is one that lasts as long as the process.
    """
    return _parent.submit(
        subprocess.Popen,
        command,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        pass_fds=kept,
        start_new_session=True,  # an interrupt at the keyboard is the worker's business
        preexec_fn=None if _prctl is None else _goes_on_alone,
    ).result()


def _goes_on_alone() -> None:
    """In the child: nothing is imported here, for another thread may hold a lock."""
    assert _prctl is not None
    _prctl(PR_SET_PDEATHSIG, signal.SIGCONT)


def _wait(process: subprocess.Popen[bytes], address: Path) -> None:
    give_up = time.monotonic() + UP_S
    while not address.exists():
        if process.poll() is not None:
            raise ConnectionError(f"the JVM ended with {process.returncode} before it was ready")
        if time.monotonic() > give_up:
            raise ConnectionError(f"the JVM was not ready after {UP_S:g} s")
        time.sleep(0.02)


def _connected(address: bytes) -> Any:
    """PySpark's gateway to the JVM that told its port and its secret."""
    from pyspark.java_gateway import launch_gateway

    port, length = struct.unpack_from("!ii", address)
    with _environment:
        os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
        os.environ["PYSPARK_GATEWAY_SECRET"] = address[8 : 8 + length].decode()
        try:
            return launch_gateway()
        finally:
            del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]


def kill(process: Any) -> None:
    """Kill a JVM, also one that is stopped; and the program that makes its command line, if it has not begun. Does not wait for its end."""
    if process is None:
        return
    standard_error.silence(process.stderr)
    _ended.add(process)
    with contextlib.suppress(Exception):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(Exception):
        process.kill()


def _wanted(record: logging.LogRecord) -> bool:
    """Whether to log this. py4j reports an error, with its traceback, for each call that a JVM leaves unanswered. A JVM that is ended here
    may have calls under way, such as the one that asks how much memory Spark takes: that is no error, and the caller gets an exception.
    """
    from py4j.protocol import Py4JNetworkError

    if record.exc_info is None or not isinstance(record.exc_info[1], Py4JNetworkError):
        return True
    process = process_of()
    return process is not None and process not in _ended


def end(process: Any) -> None:
    """Kill a JVM, and wait until it is gone."""
    kill(process)
    with contextlib.suppress(Exception):
        process.stdin.close()
    with contextlib.suppress(Exception):
        process.wait(END_S)


def let_go() -> Callable[[], None]:
    """Kill this process's JVM, and make PySpark forget it; PySpark itself would keep talking to a dead one. The next one can be started at
    once: returns what waits until nothing is left of this one, which takes half a second.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context: Any = SparkContext
    last: Any = context._gateway
    updates: Any = getattr(context._active_spark_context, "_accumulatorServer", None)
    process = process_of()
    if process is not None:
        kill(process)  # first: everything else talks to it, and it may hang
    context._active_spark_context = context._gateway = context._jvm = None
    session: Any = SparkSession
    session._instantiatedSession = None
    session._activeSession = None
    client = getattr(last, "_gateway_client", None)
    if client is not None:
        _retire(client)

    def shut_down() -> None:
        if process is not None:
            end(process)
        for close in (
            lambda: last.shutdown(),
            lambda: updates.shutdown(),  # a thread, and a socket in /tmp
        ):
            with contextlib.suppress(Exception):
                close()

    return shut_down


def _retire(client: Any) -> None:
    """Make what is left of a JVM's objects unusable: DataFrames in a variable of the user. The next JVM counts its objects from zero,
    and would take one of them for any of its own.
    """
    from py4j.java_gateway import JavaObject

    over = _over()
    for one in gc.get_objects():
        if type(one) is JavaObject and one._gateway_client is client:
            one.__class__ = over


@cache
def _over() -> Any:
    """The class of objects of a JVM that is gone."""
    from py4j.java_gateway import JavaObject, is_magic_member

    base: Any = JavaObject

    class Over(base):
        def _get_object_id(self) -> Any:
            raise SparkPlanError(OVER, remedy=ANEW)

        def __getattr__(self, name: str) -> Any:
            if is_magic_member(name):
                raise AttributeError(name)
            raise SparkPlanError(OVER, remedy=ANEW)

    return Over


def process_of() -> Any:
    """The JVM that PySpark talks to in this process, if it was started here."""
    from pyspark import SparkContext

    context: Any = SparkContext
    return None if context._gateway is None else vars(context._gateway).get("proc")
