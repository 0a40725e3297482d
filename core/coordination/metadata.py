"""The metadata of a job by namespace and key: read from the folded coordinator stream, written through requests.

    config       setting   → the operator's override of it
    locality     processor → the worker: its location, its incarnation, the tasks that it holds
    assignments  task      → the worker that runs it and the one that should, the grant, its reported state, the location of its store
    requests     id        → the request, who sent it, and its state

Every write is a request: `config` values are put and removed by requests that set and unset an override, and `requests` contains the
requests themselves. The leader writes `assignments`, and workers write `locality` about themselves; a write to one of these is refused, and
the error names what to use instead.

Promises: values are plain (maps, lists, texts, numbers) and belong to the caller. The same state gives the same values to the command line,
to a worker's pages and to a program. Namespaces are independent. A secret becomes no request: it is refused before it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from ..errors import DataError
from ..graph.model import JobModel
from ..names import natural
from ..settings import offer, parse
from . import messages as c
from . import requests as r
from .state import FINAL, JobState

CONFIG, LOCALITY, ASSIGNMENTS, REQUESTS = "config", "locality", "assignments", "requests"
RETIRING = "retiring"
"""The state of a worker that is about to leave, and works on while others prepare its tasks."""
WRITTEN = "written"
"""The state of a request without an answer."""

Values = dict[str, Any]


def known(namespace: str) -> None:
    """Raise `DataError` for a namespace that does not exist.

    >>> known("config")
    """
    if namespace not in _READ:
        raise DataError(f"there is no namespace '{namespace}'", remedy=offer(namespace, _READ))


def stored(state: JobState, namespace: str) -> Values:
    """All keys of a namespace with their values.

    >>> stored(JobState(), "locality")
    {}
    """
    known(namespace)
    return _READ[namespace](state)


def put(namespace: str, key: str, value: Any) -> c.SetRequest:
    """The request that puts this value. In `requests`, the key is the id of the request.

    >>> put("config", "chunk.max-records", 10).verb, put("requests", "nightly", {"verb": "drain"}).uuid
    ('set-config', 'nightly')
    """
    _must_be_written_by_asking(namespace)
    if namespace == CONFIG:
        made = c.SetRequest("", r.SET_CONFIG, arguments={"setting": key, "value": value})
        r.refuse_secrets(made)
        parse(key, value)
        return made
    return _request(key, value)


def _request(key: str, value: Any) -> c.SetRequest:
    given: Mapping[str, Any] = cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
    verb, run, arguments = given.get("verb", ""), given.get("run") or "", given.get("arguments", {})
    made = c.SetRequest(key, verb, run, arguments)
    if strange := sorted(given.keys() - {"verb", "run", "arguments"}):
        wrong = f"it has no field '{strange[0]}'"
    elif not (isinstance(verb, str) and isinstance(run, str) and isinstance(arguments, Mapping)):
        wrong = "'verb' and 'run' are strings, and 'arguments' is an object"
    else:
        wrong = r.problem(made) if key else "it needs an id"
    if wrong:
        raise DataError(f"not a request: {wrong}", remedy='like {"verb": "pause", "arguments": {"stream": "orders"}}')
    r.refuse_secrets(made)
    return made


def removed(namespace: str, key: str) -> c.SetRequest:
    """The request that removes this key: it unsets an override, or withdraws a pending request.

    >>> removed("requests", "nightly").verb
    'withdraw'
    """
    _must_be_written_by_asking(namespace)
    if namespace == CONFIG:
        return c.SetRequest("", r.UNSET_CONFIG, arguments={"setting": key})
    return c.SetRequest("", r.WITHDRAW, arguments={"request": key})


class MetadataStore:
    """The metadata of a job: get, put, remove and all, by namespace (`config`, `locality`, `assignments`, `requests`).

    `hg.metadata(JOB)` returns that of a running job, over its coordinator stream; `driver.metadata` that of a test driver, in memory:

    >>> app = hg.App("sales")
    >>> _ = app.input("orders").to("copies")
    >>> with hg.testing.Driver(app) as driver:
    ...     driver.metadata.put("config", "chunk.max-records", 10)
    ...     driver.metadata.all("config"), driver.metadata.get("assignments", "Partition 0")["worker"]
    ({'chunk.max-records': 10}, 'driver')

    It stores nothing itself. Each read folds the current stream. `put` and `remove` return when the leader has accepted the request; if it
    is refused, they raise the reason. For `locality` and `assignments` they raise an error that names what to use instead. `state` returns
    the folded state, `ask` sends a request.
    """

    def __init__(self, state: Callable[[], JobState], ask: Callable[[c.SetRequest], None]) -> None:
        self._state, self._ask = state, ask

    def get(self, namespace: str, key: str) -> Any | None:
        """The value, or None."""
        return self.all(namespace).get(key)

    def put(self, namespace: str, key: str, value: Any) -> None:
        """Put a value: of a setting, or a request `{"verb": …, "run": …, "arguments": {…}}` under an id of your choice. The same request
        under the same id is sent only once.
        """
        self._ask(put(namespace, key, value))

    def remove(self, namespace: str, key: str) -> None:
        """Remove an override, so that the next source applies again; or withdraw a pending request."""
        self._ask(removed(namespace, key))

    def all(self, namespace: str) -> dict[str, Any]:
        """All keys of the namespace with their current values, as a copy."""
        known(namespace)
        return stored(self._state(), namespace)


INSTEAD: Mapping[str, tuple[str, str]] = {
    LOCALITY: ("a worker, about itself", "`headgate stop JOB --worker P` takes a worker out; a worker announces itself when it starts"),
    ASSIGNMENTS: ("the leader", "`headgate move JOB TASK --to P`, or put a request of the verb 'move', gives a task to a worker"),
}  # fmt: skip
"""Namespaces without direct writes: who writes them, and what to use instead."""


def _must_be_written_by_asking(namespace: str) -> None:
    known(namespace)
    if namespace in INSTEAD:
        who, remedy = INSTEAD[namespace]
        raise DataError(f"'{namespace}' is written only by {who}", remedy=remedy)


# ----------------------------------------------------------------------------------------------------------- namespaces


def _config(state: JobState) -> Values:
    return {name: one.value for name, one in sorted(state.configs.items())}


def _locality(state: JobState) -> Values:
    """The newest incarnation of each processor that has not left."""
    found: Values = {}
    for processor in state.processors():
        worker = state.newest(processor)
        if worker is None or worker.state == c.ProcessorState.LEFT:
            continue
        member = state.member(processor)
        held = [g.task for g in state.grants() if g.processor == processor and state.held(g.task)]
        found[processor] = {
            "processor": processor,
            "incarnation": worker.incarnation,
            "process": worker.process,
            "state": RETIRING if worker.retires else worker.state,
            "counts": member is not None and member.incarnation == worker.incarnation and not member.out,
            "location": worker.location,
            "url": worker.url,
            "pid": worker.pid,
            "version": worker.version,
            "tasks": sorted(held, key=natural),
        }
    return found


def _assignments(state: JobState) -> Values:
    """Every task of the model, and every task that ever had a grant."""
    model = JobModel() if state.model is None else state.model
    wanted, preparing = model.wanted, model.preparing
    found: Values = {}
    for name in sorted({*wanted, *(grant.task for grant in state.grants())}, key=natural):
        grant, said = state.held(name), state.task_state(name)
        found[name] = {
            "task": name,
            "worker": grant.processor if grant is not None else None,
            "wanted": wanted.get(name),
            "preparing": preparing[name].processor if name in preparing and preparing[name].under_way else None,
            "standby": state.standby(name),
            "grant": grant.grant if grant is not None else None,
            "said": said.state if said is not None else None,
            "why": said.why if said is not None else "",
            "location": state.location(name),
        }
    return found


def _requests(state: JobState) -> Values:
    """All known requests, oldest first. Of a request with a final answer, only the answer remains, for a limited time.

    Until when one may be taken up is a time of the broker's clock. Only the leader, who knows that clock, says whether it has passed.
    """
    places: dict[str, tuple[int, int]] = {}
    for kind in ("set-answer", "set-request"):
        places |= {str(uuid): state.at[kind, (uuid,)] for (uuid,) in state.messages[kind]}
    found: Values = {}
    for uuid in sorted(places, key=places.__getitem__):
        request, answer = state.request(uuid), state.answer(uuid)
        said = WRITTEN if answer is None else answer.state
        found[uuid] = {
            "request": uuid,
            "verb": None if request is None else request.verb,
            "arguments": {} if request is None else dict(request.arguments),
            "run": None if request is None else request.run_id or None,
            "by": None if request is None else request.requested_by,
            "state": said,
            "why": "" if answer is None else answer.why,
            "progress": {} if answer is None else dict(answer.progress),
            "written_ms": None if request is None else places[uuid][1],
            "not_after_ms": None if request is None or answer is not None else request.not_after,
        }
    return found


def open_requests(state: JobState) -> list[Values]:
    """The requests without a final answer.

    >>> open_requests(JobState())
    []
    """
    return [one for one in stored(state, REQUESTS).values() if one["verb"] and one["state"] not in FINAL]


_READ = {CONFIG: _config, LOCALITY: _locality, ASSIGNMENTS: _assignments, REQUESTS: _requests}
