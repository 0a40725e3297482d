"""The metadata of a job by namespace and key: what the fold of its coordinator stream says, and the request that a write becomes.

    config        setting   → the operator's override of it
    locality      processor → the worker: where it is, under which incarnation it lives, which tasks it holds
    assignments   task      → who runs it and who should, under which grant, what it says, where its store lies
    requests      id        → what was asked for, by whom, and what has become of it

Every writer asks: a value of `config` is put and removed by the request that sets and unsets it, and `requests` holds the requests
themselves. The other two are written by the leader and by workers about themselves; a write is refused with what does it instead.

Promises: values are plain (maps, lists, texts, numbers) and nobody's but the caller's; the same state gives the same values to the command
line, to a worker's pages and to a program; namespaces do not see each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from ..errors import DataError
from ..names import natural
from ..settings import offer, parse
from . import messages as c
from . import requests as r
from .state import FINAL, JobState

CONFIG, LOCALITY, ASSIGNMENTS, REQUESTS = "config", "locality", "assignments", "requests"
WRITTEN = "written"
"""The state of a request that nobody has answered yet."""

Values = dict[str, Any]


def known(namespace: str) -> None:
    """Raise `DataError` for a namespace that is none.

    >>> known("config")
    """
    if namespace not in _READ:
        raise DataError(f"there is no namespace '{namespace}'", remedy=offer(namespace, _READ))


def stored(state: JobState, namespace: str, now_ms: int) -> Values:
    """Every key of a namespace with its value. `now_ms`: wall time, for what nobody may answer any more.

    >>> stored(JobState(), "locality", 0)
    {}
    """
    known(namespace)
    return _READ[namespace](state, now_ms)


def put(namespace: str, key: str, value: Any) -> c.SetRequest:
    """What must be asked for so that this value stands there. In `requests` its id is the key.

    >>> put("config", "chunk.max-records", 10).verb, put("requests", "nightly", {"verb": "drain"}).uuid
    ('set-config', 'nightly')
    """
    _must_be_written_by_asking(namespace)
    if namespace == CONFIG:
        parse(key, value)
        return c.SetRequest("", r.SET_CONFIG, arguments={"setting": key, "value": value})
    return _request(key, value)


def _request(key: str, value: Any) -> c.SetRequest:
    given: Mapping[str, Any] = cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
    verb, run, arguments = given.get("verb", ""), given.get("run") or "", given.get("arguments", {})
    made = c.SetRequest(key, verb, run, arguments)
    if strange := sorted(given.keys() - {"verb", "run", "arguments"}):
        wrong = f"it knows no '{strange[0]}'"
    elif not (isinstance(verb, str) and isinstance(run, str) and isinstance(arguments, Mapping)):
        wrong = "'verb' and 'run' are texts, and 'arguments' is a map"
    else:
        wrong = r.problem(made) if key else "it needs an id"
    if wrong:
        raise DataError(f"not a request: {wrong}", remedy='like {"verb": "pause", "arguments": {"stream": "orders"}}')
    return made


def removed(namespace: str, key: str) -> c.SetRequest:
    """What must be asked for so that nothing stands there: an override is taken back, a request that waits is withdrawn.

    >>> removed("requests", "nightly").verb
    'withdraw'
    """
    _must_be_written_by_asking(namespace)
    if namespace == CONFIG:
        return c.SetRequest("", r.UNSET_CONFIG, arguments={"setting": key})
    return c.SetRequest("", r.WITHDRAW, arguments={"request": key})


class MetadataStore:
    """Metadata of a job: get, put, remove and all, by namespace (`config`, `locality`, `assignments`, `requests`).

    Of a job that runs, by `hg.metadata(JOB)`, over its coordinator stream; of a test driver, by `driver.metadata`, in memory:

    >>> app = hg.App("sales")
    >>> _ = app.input("orders").to("copies")
    >>> with hg.testing.Driver(app) as driver:
    ...     driver.metadata.put("config", "chunk.max-records", 10)
    ...     driver.metadata.all("config"), driver.metadata.get("assignments", "Partition 0")["worker"]
    ({'chunk.max-records': 10}, 'driver')

    It holds nothing. Each read folds what there is now, and `put` and `remove` return when the leader has taken the request up; they raise
    what it was refused for, and for `locality` and `assignments` what is to be used instead. `state` folds, `ask` carries a request.
    """

    def __init__(
        self, state: Callable[[], JobState], ask: Callable[[c.SetRequest], None], now_ms: Callable[[], int]
    ) -> None:
        self._state, self._ask, self._now_ms = state, ask, now_ms

    def get(self, namespace: str, key: str) -> Any | None:
        """The value, or None."""
        return self.all(namespace).get(key)

    def put(self, namespace: str, key: str, value: Any) -> None:
        """Ask for this value: of a setting, or a request `{"verb": …, "run": …, "arguments": {…}}` under an id of your own. The same
        request under the same id is asked for once."""
        self._ask(put(namespace, key, value))

    def remove(self, namespace: str, key: str) -> None:
        """Take an override back, so that the next source applies again; or withdraw a request that waits."""
        self._ask(removed(namespace, key))

    def all(self, namespace: str) -> dict[str, Any]:
        """Every key of the namespace with its value, as it is now; later changes do not reach it."""
        known(namespace)
        return stored(self._state(), namespace, self._now_ms())


INSTEAD: Mapping[str, tuple[str, str]] = {
    LOCALITY: ("a worker, about itself,", "`headgate stop JOB --worker P` takes a worker out; one says where it is when it starts"),
    ASSIGNMENTS: ("the leader alone", "`headgate move JOB TASK --to P`, or put a request of the verb 'move', gives a task to a worker"),
}  # fmt: skip
"""Namespaces that nobody writes by asking for a value: who does, and what somebody may have meant."""


def _must_be_written_by_asking(namespace: str) -> None:
    known(namespace)
    if namespace in INSTEAD:
        who, remedy = INSTEAD[namespace]
        raise DataError(f"'{namespace}' is written by {who} and by nobody else", remedy=remedy)


# ------------------------------------------------------------------------------------------------------------ what is read


def _config(state: JobState, _: int) -> Values:
    return {name: one.value for name, one in sorted(state.configs.items())}


def _locality(state: JobState, _: int) -> Values:
    """The newest life of each processor that has not left."""
    found: Values = {}
    for processor in state.processors():
        life = state.newest(processor)
        if life is None or life.state == c.ProcessorState.LEFT:
            continue
        member = state.member(processor)
        held = [g.task for g in state.grants() if g.processor == processor and state.held(g.task)]
        found[processor] = {
            "processor": processor,
            "incarnation": life.incarnation,
            "process": life.process,
            "state": life.state,
            "counts": member is not None and member.incarnation == life.incarnation and not member.dismissed,
            "location": life.location,
            "url": life.url,
            "pid": life.pid,
            "version": life.version,
            "tasks": sorted(held, key=natural),
        }
    return found


def _assignments(state: JobState, _: int) -> Values:
    """Each task of the model, and each that ever had a grant."""
    wanted: Mapping[str, str] = {} if state.model is None else state.model.wanted
    found: Values = {}
    for name in sorted({*wanted, *(grant.task for grant in state.grants())}, key=natural):
        grant, said = state.held(name), state.task_state(name)
        found[name] = {
            "task": name,
            "worker": grant.processor if grant is not None else None,
            "wanted": wanted.get(name),
            "grant": grant.grant if grant is not None else None,
            "said": said.state if said is not None else None,
            "why": said.why if said is not None else "",
            "location": state.location(name),
        }
    return found


def _requests(state: JobState, now_ms: int) -> Values:
    """All that are known, oldest first. Of one that has its final answer only that is left, and kept for a time."""
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
            "state": c.Reason.EXPIRED if request is not None and r.expired(request, answer, now_ms) else said,
            "why": "" if answer is None else answer.why,
            "progress": {} if answer is None else dict(answer.progress),
            "written_ms": None if request is None else places[uuid][1],
        }
    return found


def open_requests(state: JobState, now_ms: int) -> list[Values]:
    """Those that nobody has given a final answer yet, expired ones included.

    >>> open_requests(JobState(), 0)
    []
    """
    return [one for one in stored(state, REQUESTS, now_ms).values() if one["verb"] and one["state"] not in FINAL]


_READ = {CONFIG: _config, LOCALITY: _locality, ASSIGNMENTS: _assignments, REQUESTS: _requests}
