"""The pages of a worker: Faust's own web server, read-only, on loopback by default.

    /             a live page for people                    /metrics   for Prometheus
    /api/job      the job, as the page shows it
    /api/status   this worker, its tasks, the job           /livez     200 while the main loop turns; else a thread answers 503
    /api/model    the job model                             /readyz    200 once its tasks run; 503 before that, and from the
    /api/config   settings and where they come from                    start of a drain, a stop or a leave
    /api/tables   tables and their rows                     /api/batches   batches, and the state of Spark
    /api/query    keys of tables, whichever worker has them  /api/export   all rows of a table in one task
    /api/story    what machines of this worker saw and decided

Promises: no page changes anything. Secrets are masked. The port is bound before the worker starts, so the worker can announce its address.
Who may read is decided in `door`.
"""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any

import orjson
from faust.web.drivers.aiohttp import Web
from faust.web.views import View

from ...core.errors import EnvironmentFault, HeadgateError
from ..logger import Logger
from ..port.waiting import pause
from ..process.configuration import Configuration
from ..state.scan import NoSuchTable
from ..status import documents
from ..status.batches import batches
from ..status.job_view import JobView
from ..status.recent import EVERY_S
from ..worker.load.health import readiness
from .door import PageDoor, keeper
from .exporting import export_lines, streamed
from .queries import MEANT_FOR, Queries, QueryAnswer, failure
from .quick import QuickFront, QuickSite
from .story import story_document
from .stuck import Stuck
from .tables import Elsewhere, table_document

if TYPE_CHECKING:
    from ..worker.worker import Worker

log = Logger("headgate.web")


def page_text() -> str:
    """The HTML of the page for people."""
    return resources.files(__package__ or "").joinpath("page.html").read_text(encoding="utf-8")


class _Web(Web):
    """Faust's server on a socket that is already bound, without Faust's own pages, which show Faust's tables and topics."""

    bound: socket.socket

    def _enabled_blueprints(self) -> list[Any]:
        return []

    front: QuickFront

    def _create_site(self) -> Any:
        return QuickSite(self._runner, self.bound, self.front)


class Page:
    """The web server of one worker. It binds its port first, and starts when the worker exists."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0, door: PageDoor | None = None) -> None:
        self.host = host
        self.port = port
        self._door = door if door is not None else PageDoor(host)
        self.worker: Worker | None = None
        self.configuration: Configuration | None = None
        self._socket: socket.socket | None = None
        self._web: _Web | None = None
        self._stuck: Stuck | None = None
        self._queries: Queries | None = None
        self._job: JobView | None = None
        self._sampling: asyncio.Task[None] | None = None

    @property
    def job(self) -> JobView:
        """The job, as this worker knows it."""
        assert self._job is not None
        return self._job

    @property
    def queries(self) -> Queries:
        """What answers questions about tables."""
        assert self._queries is not None
        return self._queries

    @property
    def url(self) -> str:
        """The address of the page."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{socket.gethostname() if self.host in ('0.0.0.0', '::') else host}:{self.port}"

    async def bind(self) -> None:
        """Bind the port."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((self.host, self.port))
        except OSError as error:
            made.close()
            raise EnvironmentFault(
                f"the pages cannot be served at {self.host}:{self.port}: {error.strerror}",
                remedy="use another --web-port; 0 means a free port",
            ) from error
        self._socket, self.port = made, made.getsockname()[1]

    def run_id(self) -> str:
        """The run that the worker knows of, for its log."""
        return documents.run_id(self.worker) if self.worker is not None else ""

    async def start(self, worker: Worker, configuration: Configuration) -> None:
        """Start to serve."""
        assert self._socket is not None, "call bind() first"
        self.worker, self.configuration = worker, configuration
        self._job = JobView(worker)
        self._sampling = worker.host.spawn(partial(self._sample, worker), "numbers of the job")
        self._queries = Queries(worker, self._door.token, heard_ms=lambda: worker.coordination.heard_ms)
        web = self._web = _Web(worker.app)
        web.bound, web.front = self._socket, QuickFront(self._door, self._queries, worker.sensor.requests)
        web.web_app.middlewares.append(keeper(self._door, lambda status, why: web.text(f"{why}\n", status=status)))
        for pattern, view in VIEWS.items():
            made = view(worker.app, web)
            made.page = self
            web.route(pattern, made)
        await web.start()
        if self._door.open:
            log.warning("everyone in the network can read the pages", host=self.host, remedy="set web.token")
        heartbeat = worker.coordination.heartbeat
        self._stuck = Stuck(
            self._socket,
            lambda: heartbeat.turned_s,
            lambda: documents.work_under_way(worker),
            self._door,
            blocked=lambda: worker.runtime.solitude.blocked(),
        )
        self._stuck.start()

    async def _sample(self, worker: Worker) -> None:
        """Keep the last minutes of the job in numbers."""
        while True:
            await pause(worker.port.clock, EVERY_S)
            try:
                self.job.sample()
            except Exception:  # a line of the page is not worth a worker
                log.exception("the numbers of the job are not taken")

    async def stop(self) -> None:
        """Stop serving."""
        if self._sampling is not None:
            self._sampling.cancel()
        if self._stuck is not None:
            self._stuck.stop()
        web, self._web = self._web, None
        if web is not None:
            await web.stop()
        if self._queries is not None:
            await self._queries.stop()
        if self._socket is not None:
            self._socket.close()


class _View(View):
    page: Page

    @property
    def worker(self) -> Worker:
        """The worker that the page shows."""
        assert self.page.worker is not None
        return self.page.worker

    def document(self, value: Any, status: int = 200) -> Any:
        """A JSON response. Keys of any type become text."""
        body = orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_INDENT_2)
        return self.web.bytes(body, content_type="application/json", status=status)


class Index(_View):
    """The page for people."""

    async def get(self, request: Any, **_: Any) -> Any:
        """The page. It loads `/api/job` itself."""
        return self.web.html(page_text())


class JobPage(_View):
    async def get(self, request: Any, **_: Any) -> Any:
        """The job, from what all of its workers say."""
        return self.document(self.page.job.document())


class Status(_View):
    async def get(self, request: Any, **_: Any) -> Any:
        """This worker, its tasks, and what it knows of the job."""
        return self.document(documents.status(self.worker))


class Model(_View):
    async def get(self, request: Any, **_: Any) -> Any:
        """The job model."""
        return self.document(documents.model(self.worker))


class Config(_View):
    async def get(self, request: Any, **_: Any) -> Any:
        """Every setting, its value, and its origin."""
        assert self.page.configuration is not None
        return self.document(documents.config(self.worker, self.page.configuration))


class TablesPage(_View):
    async def get(self, request: Any, table: str = "", key: str = "", **_: Any) -> Any:
        """The tables of the tasks in this process, the rows of one table, or the row of one key."""
        try:
            return self.document(table_document(self.worker, table, key, request.query))
        except Elsewhere as error:
            return self.document({"error": error.what, "remedy": error.remedy, **error.answer}, 421)
        except NoSuchTable as error:
            return self.document({"error": error.what, "remedy": error.remedy}, 404)
        except HeadgateError as error:
            return self.document({"error": error.what, "remedy": error.remedy}, 400)


class QueryPage(_View):
    """Keys and rows of tables, from whichever worker has them."""

    async def get(self, request: Any, table: str = "", key: str = "", **_: Any) -> Any:
        """The row of a key, a page of rows, or the tables that can be asked."""
        queries, meant = self.page.queries, request.headers.get(MEANT_FOR, "")
        if not table:
            return self._answer(queries.listed())
        if not key:
            return self._answer(await queries.page(table, request.query))
        return self._answer(await queries.key(table, key, request.query, meant))

    async def post(self, request: Any, table: str = "", key: str = "", **_: Any) -> Any:
        """The rows of a batch of keys, or a page of rows."""
        meant = request.headers.get(MEANT_FOR, "")
        return self._answer(await self.page.queries.post(table, await request.read(), meant))

    def _answer(self, answer: QueryAnswer) -> Any:
        return self.web.bytes(answer.body, content_type="application/json", status=answer.status)


class ExportPage(_View):
    async def get(self, request: Any, table: str = "", **_: Any) -> Any:
        """All rows of one of this worker's tasks, of one commit, a line each."""
        lines = export_lines(
            self.page.queries, table, request.query.get("task", ""), request.headers.get(MEANT_FOR, "")
        )
        try:
            return await streamed(request, lines)
        except HeadgateError as error:
            answer = failure(error)
            return self.web.bytes(answer.body, content_type="application/json", status=answer.status)


class BatchesPage(_View):
    async def get(self, request: Any, **_: Any) -> Any:
        """The batches of the tasks in this process."""
        return self.document(batches(self.worker))


class StoryPage(_View):
    async def get(self, request: Any, **_: Any) -> Any:
        """What the machines of this worker saw and decided, and which other stories lie on its disk."""
        try:
            return self.document(await story_document(self.worker, request.query))
        except HeadgateError as error:
            return self.document({"error": error.what, "remedy": error.remedy}, 400)


class Metrics(_View):
    async def get(self, request: Any, **_: Any) -> Any:
        """The metrics for Prometheus."""
        from ..status.metrics import CONTENT_TYPE, render

        response = self.web.bytes(render(self.worker))
        response.headers["Content-Type"] = CONTENT_TYPE
        return response


class Live(_View):
    async def get(self, request: Any, **_: Any) -> Any:
        """Answer `ok`. If the main loop is blocked, `stuck` answers instead."""
        return self.web.text("ok\n")


class Ready(_View):
    async def get(self, request: Any, **_: Any) -> Any:
        """Whether this worker is working now, or what it waits for."""
        ready, why = readiness(self.worker.participant)
        return self.web.text("ready\n" if ready else f"not ready: {why}\n", status=200 if ready else 503)


VIEWS: dict[str, type[_View]] = {
    "/": Index,
    "/api/job": JobPage,
    "/api/status": Status,
    "/api/model": Model,
    "/api/config": Config,
    "/api/tables": TablesPage,
    "/api/tables/{table}": TablesPage,
    "/api/tables/{table}/{key:.*}": TablesPage,
    "/api/query": QueryPage,
    "/api/query/{table}": QueryPage,
    "/api/query/{table}/{key:.*}": QueryPage,
    "/api/export/{table}": ExportPage,
    "/api/batches": BatchesPage,
    "/api/story": StoryPage,
    "/metrics": Metrics,
    "/livez": Live,
    "/readyz": Ready,
}
