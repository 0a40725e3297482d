"""A worker inside of another program's event loop: `await hg.run(app)`, `async with hg.running(app) as worker`.

What it decides: how the worker begins and ends where a command line and signals do not decide it.

Promises:

- Nothing of the host program is taken over: no signals, no logging, no garbage collection, no port. Several workers may run in one loop.
- When the block is left, in whatever way, the worker commits, releases its tasks and leaves, as by SIGTERM, within `stop.timeout`. A second
  cancellation shortens that; nothing of the worker is left behind in the loop, or the error says what.
- If the worker fails, the block is cancelled, and raises the worker's error where it ends. If the worker ends by itself (its run was
  stopped, drained or has ended), the block goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, NoReturn

from ...core.errors import DeclarationError, EnvironmentFault
from ..job.declare.app import App
from ..queries.here import read_here
from ..queries.parts import QueryParts
from ..worker.worker import Worker
from .configuration import CommandLine, configure
from .launch import Identity, Seat, bound_inputs, state_root, take_seat, worker_options
from .patterns import find_topics

_NONE: Mapping[str, Any] = MappingProxyType({})


class WorkerFailed(EnvironmentFault):
    """A worker in this program could not run, or could not go on."""


class HostedWorker:
    """A worker that runs while a block of an asyncio program does; `hg.running` makes it."""

    def __init__(self, app: App, line: CommandLine, identity: Identity) -> None:
        self._app = app
        self._line = line
        self._identity = identity
        self._seat: Seat | None = None
        self._worker: Worker | None = None
        self._parts: QueryParts | None = None
        self._task: asyncio.Task[int] | None = None
        self._host: asyncio.Task[Any] | None = None
        self._cancels: int | None = None
        """How often the host's task had been asked to end before the worker's failure did; None if it did not."""

    # ------------------------------------------------------------------------------------------------------ what users call

    @property
    def processor(self) -> str:
        """The id of the worker."""
        return "" if self._seat is None else self._seat.processor

    @property
    def tasks(self) -> dict[str, str]:
        """The tasks that it has, each with its state, such as `running`."""
        if self._worker is None:
            return {}
        return {name: str(actor.machine.phase) for name, actor in sorted(self._worker.actors.items())}

    def get(self, table: str, key: Any) -> Any:
        """The value of a key in a table of `app.table(…)` or `.table(…)`, or the result of an aggregate, as of the newest commit; None if
        there is no such row.

        >>> async with hg.running(app) as worker:
        ...     worker.get("totals", "ann")

        Only tasks of this worker are read. If the row may be in one that another worker has, or that is not restored yet, this raises
        instead of answering that there is none.
        """
        if self._parts is None or self._task is None or self._task.done():
            raise EnvironmentFault("this worker does not run", remedy="ask inside of the block of hg.running(app)")
        return read_here(self._parts, table, key)

    async def ended(self) -> None:
        """Wait until the worker has ended: its run was stopped, was drained, or has ended. Raises the error with which it failed."""
        assert self._task is not None, "async with has begun"
        await asyncio.wait([self._task])
        if (error := self._failure()) is not None:
            raise error

    # -------------------------------------------------------------------------------------------------------------- the block

    async def __aenter__(self) -> HostedWorker:
        if self._task is not None:
            raise DeclarationError("this worker has run already", remedy="async with hg.running(app) for each block")
        configuration = configure(self._line, app=self._app.settings)
        root = state_root(configuration, self._app.job)
        self._seat = take_seat(root, str(configuration.value("processor.id")))
        try:
            await find_topics(self._app, configuration)
            self._worker = Worker(worker_options(self._app, configuration, self._seat, self._identity, root=root))
            self._parts = QueryParts(self._worker)
        except BaseException:
            self._seat.leave()
            raise
        loop = asyncio.get_running_loop()
        self._host = asyncio.current_task()
        self._task = loop.create_task(self._worker.run(), name=f"worker {self._seat.processor}")
        self._task.add_done_callback(self._has_ended)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, _: TracebackType | None
    ) -> None:
        host, self._host = self._host, None
        try:
            await self._leave()
        finally:
            assert self._seat is not None
            self._seat.leave()
        failure = self._failure()
        if self._cancels is not None and host is not None and host.uncancel() > self._cancels:
            return  # someone else has asked for the end of the host's task, too: that goes on
        if failure is not None and (raised is None or self._cancels is not None):
            raise failure

    def __enter__(self) -> NoReturn:
        raise DeclarationError("hg.running(app) is awaited", remedy="async with hg.running(app) as worker: …")

    def __exit__(self, *_: object) -> None:
        """Only so that `with` says what to write instead."""

    def __await__(self) -> NoReturn:
        raise DeclarationError(
            "hg.running(app) is a block", remedy="async with hg.running(app) as worker: …, or await hg.run(app)"
        )

    # ---------------------------------------------------------------------------------------------------------------- its end

    def _has_ended(self, task: asyncio.Task[int]) -> None:
        """A worker that has failed ends the block."""
        host = self._host
        if host is not None and self._failure() is not None and not host.done():
            self._cancels = host.cancelling()
            host.cancel()

    async def _leave(self) -> None:
        """Commit, release, and leave. A cancellation meanwhile shortens this, and is passed on when the worker has ended."""
        task, worker = self._task, self._worker
        assert task is not None
        assert worker is not None
        if not task.done():
            if hasattr(worker.coordination, "member"):
                worker.leave("the block of hg.running has ended")
            else:
                task.cancel()
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                cancelled = error
                task.cancel()
        if cancelled is not None:
            raise cancelled

    def _failure(self) -> BaseException | None:
        """With what the worker has failed; None if it has not."""
        task, worker = self._task, self._worker
        assert task is not None
        assert worker is not None
        if not task.done() or task.cancelled():
            return None
        if (error := task.exception()) is not None:
            return error
        if worker.ending.held:
            what = f"these did not stop and were abandoned: {', '.join(worker.ending.held)}"
            return WorkerFailed(what, remedy="committed work is safe; user code must end when it is cancelled")
        if task.result():
            return WorkerFailed(
                worker.participant.exit_why, remedy="the log says more; headgate run has the same worker"
            )
        return None


def running(
    app: App,
    *,
    bootstrap: str = "",
    settings: Mapping[str, Any] = _NONE,
    state_dir: str | Path | None = None,
    processor_id: str = "",
    run_id: str = "",
    bounded: bool = False,
) -> HostedWorker:
    """A worker of this job in the event loop of the caller, while a block runs. Use it with `async with`.

    >>> async with hg.running(app) as worker:
    ...     await serve()

    Settings come from where `headgate run` takes them; `settings`, and the other arguments, stand for its options. Signals, logging and
    ports stay the host's. When the block is left, the worker commits and leaves; if the worker fails, the block ends with its error.
    """
    if not isinstance(app, App):
        raise DeclarationError(f"hg.running({app!r}) needs an App", remedy="app = hg.App(…)")
    if any(step.in_spark for step in app.steps):
        raise DeclarationError(
            "a job with Spark steps needs a process of its own, whose threads and JVM end with it",
            remedy="headgate run MODULE:app",
        )
    if bounded:
        bound_inputs(app)
    given = dict(settings)
    if state_dir is not None:
        given["state.dir"] = str(state_dir)
    if processor_id:
        given["processor.id"] = processor_id
    return HostedWorker(
        app, CommandLine(bootstrap=bootstrap, settings=given), Identity(run_id=run_id, bounded=bounded, no_wait=False)
    )


async def run(
    app: App,
    *,
    bootstrap: str = "",
    settings: Mapping[str, Any] = _NONE,
    state_dir: str | Path | None = None,
    processor_id: str = "",
    run_id: str = "",
    bounded: bool = False,
) -> None:
    """Run a worker of this job in the event loop of the caller, until its run has ended, or until this is cancelled: then it commits and
    leaves. Raises what the worker failed with. The arguments are those of `running`.

    >>> asyncio.run(hg.run(app))
    """
    block = running(
        app,
        bootstrap=bootstrap,
        settings=settings,
        state_dir=state_dir,
        processor_id=processor_id,
        run_id=run_id,
        bounded=bounded,
    )
    async with block as worker:
        await worker.ended()
