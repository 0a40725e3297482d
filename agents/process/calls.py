"""The requests as functions for programs: `hg.drain("sales")`. Each does what the command of its name does.

Promise: a call in a thread that runs an event loop is refused, because it would block that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from ...core.coordination import messages as c
from ...core.coordination import requests as r
from ...core.coordination.fleet import WORKERS
from ...core.coordination.metadata import MetadataStore
from ...core.errors import HeadgateError
from ...core.names import JobName, Topics
from ...core.settings import duration_ms
from ..kafka.settings import ClientSettings
from .cascade import drained
from .configuration import CommandLine, configure
from .reading import folded
from .requests import TIMEOUT_S, Outcome, Request, ask, drains_of

T = TypeVar("T")


def _ask_now(job: str, request: Request, bootstrap: str, wait: bool, timeout: float | str) -> Outcome:
    client, topics = _reached(job, bootstrap)
    return _run(ask(client, topics, request, wait=wait, timeout_s=duration_ms(timeout) / 1000))


def _run(work: Coroutine[Any, Any, T]) -> T:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    work.close()
    raise HeadgateError(
        "an event loop runs in this thread, and this call would block it",
        remedy="call it in another thread: `await asyncio.to_thread(hg.drain, job)`",
    )


def _reached(job: str, bootstrap: str) -> tuple[ClientSettings, Topics]:
    configuration = configure(CommandLine(bootstrap=bootstrap))
    return configuration.client, Topics(JobName.parse(job), str(configuration.value("topic.prefix")))


def metadata(job: str, *, bootstrap: str = "", timeout: float | str = TIMEOUT_S) -> MetadataStore:
    """The metadata of a job: overrides, workers, tasks and requests, by namespace and key.

    >>> sales = hg.metadata("sales")
    >>> sales.get("assignments", "Partition 0")["worker"]
    >>> sales.put("config", "commit.interval", "500ms")
    """
    client, topics = _reached(job, bootstrap)
    limit_s = duration_ms(timeout) / 1000

    def carried(request: c.SetRequest) -> None:
        _run(ask(client, topics, Request.of(request), wait=False, timeout_s=limit_s))

    return MetadataStore(lambda: _run(folded(client, topics)), carried)


def drain(
    job: str,
    *,
    run_id: str = "",
    mode: str = r.DEFAULT_MODE,
    bootstrap: str = "",
    wait: bool = True,
    timeout: float | str = TIMEOUT_S,
    cascade: bool = False,
) -> Outcome:
    """Drain a job: stop reading, finish what was read, close the run. The same as `headgate drain JOB`.

    With `cascade`, wait, then drain the jobs that read what this one shares, and so on; the outcome is that of the last job that was
    drained.

    >>> hg.drain("sales", timeout="5m")
    """
    if cascade:
        client, topics = _reached(job, bootstrap)
        limit_s = duration_ms(timeout) / 1000
        return _run(drained(client, topics, {"mode": mode}, run_id=run_id, timeout_s=limit_s))
    return _ask_now(job, Request(r.DRAIN, run_id, {"mode": mode}), bootstrap, wait, timeout)


def drains(job: str, *, bootstrap: str = "") -> list[dict[str, Any]]:
    """The drains of a job that are pending or in progress, oldest first. The same as `headgate drain JOB --list`."""
    client, topics = _reached(job, bootstrap)
    return drains_of(_run(folded(client, topics)))


def withdraw(
    job: str, request: str, *, bootstrap: str = "", wait: bool = True, timeout: float | str = TIMEOUT_S
) -> Outcome:
    """Withdraw a pending request, such as a drain of a run that has not begun. The same as `headgate requests withdraw`."""
    return _ask_now(job, Request(r.WITHDRAW, arguments={"request": request}), bootstrap, wait, timeout)


def stop(
    job: str, *, run_id: str = "", bootstrap: str = "", wait: bool = True, timeout: float | str = TIMEOUT_S
) -> Outcome:
    """Stop a job: its workers commit and leave. `start` resumes the run."""
    return _ask_now(job, Request(r.STOP, run_id), bootstrap, wait, timeout)


def start(
    job: str, *, run_id: str = "", bootstrap: str = "", wait: bool = True, timeout: float | str = TIMEOUT_S
) -> Outcome:
    """Begin a run, or resume the stopped one. A worker must be running."""
    return _ask_now(job, Request(r.START, run_id), bootstrap, wait, timeout)


def pause(job: str, *, stream: str = "", bootstrap: str = "", timeout: float | str = TIMEOUT_S) -> Outcome:
    """Stop reading the whole job or one stream, until `resume`."""
    return _ask_now(job, Request(r.PAUSE, arguments={"stream": stream} if stream else {}), bootstrap, True, timeout)


def resume(job: str, *, stream: str = "", bootstrap: str = "", timeout: float | str = TIMEOUT_S) -> Outcome:
    """Continue reading after `pause`."""
    return _ask_now(job, Request(r.RESUME, arguments={"stream": stream} if stream else {}), bootstrap, True, timeout)


def scale(
    job: str, workers: int, *, bootstrap: str = "", wait: bool = True, timeout: float | str = TIMEOUT_S
) -> Outcome:
    """Set the number of workers, which the supervisor of `headgate run --workers` follows. The same as `headgate scale JOB N`.

    >>> hg.scale("sales", 3)
    """
    return _ask_now(
        job, Request(r.SET_CONFIG, arguments={"setting": WORKERS, "value": workers}), bootstrap, wait, timeout
    )


def grow(
    job: str, *, run_id: str = "", bootstrap: str = "", wait: bool = True, timeout: float | str = TIMEOUT_S
) -> Outcome:
    """Look now for new partitions of the inputs. The same as `headgate grow JOB`. The outcome's `progress["inputs"]` says for each what was
    found, and what follows.

    >>> hg.grow("sales").progress["inputs"]
    """
    return _ask_now(job, Request(r.GROW, run_id), bootstrap, wait, timeout)
