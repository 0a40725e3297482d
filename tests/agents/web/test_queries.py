"""Questions about tables over HTTP: what one worker answers of its own tasks, and what it says of the others."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from types import SimpleNamespace as Bag
from typing import Any

import orjson
import pytest

import headgate as hg
from headgate.agents.queries.parts import TaskOwner
from headgate.agents.records.kafka.partitioner import Partitioner
from headgate.agents.testing.driver import Driver
from headgate.agents.web.door import PageDoor
from headgate.agents.web.exporting import export_lines
from headgate.agents.web.queries import Queries, QueryAnswer
from headgate.agents.web.quick import QuickConnection, QuickFront
from headgate.core.coordination import messages as c
from headgate.core.coordination.state import JobState
from headgate.core.errors import HeadgateError, NotFound
from headgate.core.graph.model import JobModel
from headgate.core.names import StreamPartition

WIDE = 2**70


def job() -> hg.App:
    app = hg.App("job")
    bytes_of = app.table("bytes", key=hg.key(int), value=hg.raw())

    def noted(order):
        bytes_of[order["n"]] = b"\x01\xff"
        return order

    orders = app.input("in").repartition("user", partitions=2, name="by-user").map(noted)
    orders.agg(n=hg.count(), total=hg.sum("n"), name="counts")
    orders.table("latest", ttl="1h")
    orders.table("plain")
    return app


def asking(d: Driver, *tasks: str, state: JobState | None = None) -> Any:
    """A worker that runs these tasks of a test driver, or all of them."""
    member = None if state is None else Bag(view=Bag(job=state))
    return Bag(
        options=Bag(processor="w1"),
        incarnation="000001-x",
        actors={task: actor for task, actor in d.tasks.items() if not tasks or task in tasks},
        declared=next(iter(d.tasks.values())).state.declared,
        coordination=Bag() if member is None else Bag(member=member),
        port=next(iter(d.tasks.values())).state.port,
        job="job/1",
    )


def filled(d: Driver) -> None:
    d.send_all("in", [{"user": f"u{n}", "n": n} for n in range(10)])
    d.advance("1s")


def state_of(d: Driver, *, said: str = "", grant: bool = True) -> JobState:
    """Task 0 is with w1; task 1 is with w2, which serves no pages."""
    state = JobState()
    tasks = {f"Partition {n}": (StreamPartition("job-1-by-user", n),) for n in range(2)}
    written: list[Any] = [
        c.SetRun("r1", "d1", c.RunState.RUNNING, "u"),
        c.SetJobModel(JobModel(1, 1, "r1", "d1", tasks, {"Partition 0": "w1", "Partition 1": "w2"})),
        c.SetProcessor("w1", "000001-x", "p1", "here", c.ProcessorState.JOINED, url="http://127.0.0.1:1"),
        c.SetProcessor("w2", "000001-y", "p2", "here", c.ProcessorState.JOINED, url=""),
        c.SetGrant("Partition 0", d.tasks["Partition 0"].grant, "w1", "000001-x"),
    ]
    if grant:
        written.append(c.SetGrant("Partition 1", 7, "w2", "000001-y"))
    if said:
        written.append(c.SetTaskState("Partition 1", 7, said, "the disk is full"))
    for offset, message in enumerate(written):
        state.apply(c.Entry(offset, c.key_of(message), message))
    return state


def document(answer: Any) -> Any:
    return orjson.loads(answer.body)


def test_a_key_is_answered_with_its_commit() -> None:
    """Results of an aggregate as outputs have them; a row without a key says so, and which task has said it."""
    with Driver(job()) as d:
        filled(d)
        queries = Queries(asking(d))
        answer = queries.at_once("counts", "u7", {}, "")
        assert answer is not None
        found = document(answer)
        assert (found["found"], found["value"], found["worker"]) == (True, {"n": 1, "total": 7}, "w1")
        assert found["task"] in ("Partition 0", "Partition 1")
        absent = document(queries.at_once("counts", "zoe", {}, ""))
        assert (absent["found"], absent["value"]) == (False, None)
        assert {one["task"] for one in absent["commits"]} == {"Partition 0", "Partition 1"}
        many = document(queries.batch_at_once("bytes", b'{"keys": [3, 4, 11]}', ""))
        assert many["values"] == [{"bytes": "01ff"}, {"bytes": "01ff"}, None]
        assert many["at"][2] is None
        assert document(queries.at_once("latest", "u3", {}, ""))["value"] == {"user": "u3", "n": 3}
        d.advance("2h")  # expired, and not deleted yet perhaps
        assert document(queries.at_once("latest", "u3", {}, ""))["found"] is False


def test_the_age_grows_while_no_one_is_heard_and_a_commit_is_under_way() -> None:
    """A task without changes is as current as what the coordinator stream has said last; an owner that is cut off cannot know."""
    with Driver(job()) as d:
        filled(d)
        heard = [0]
        queries = Queries(asking(d), heard_ms=lambda: heard[0])
        d.advance("20s")
        now_ms = next(iter(d.tasks.values())).state.port.clock.now().wall
        assert document(queries.at_once("counts", "u7", {}, ""))["age_ms"] > 15_000
        heard[0] = now_ms - 300
        assert document(queries.at_once("counts", "u7", {}, ""))["age_ms"] == 300
        states = [actor.state for actor in d.tasks.values()]
        for state in states:
            state._checkpoints.append(b"")
        assert document(queries.at_once("counts", "u7", {}, ""))["age_ms"] > 15_000
        for state in states:
            state._checkpoints.clear()
        for state in states:  # it notes now and then that it is idle: of what it knows, and not of what it does not
            state.refresh(heard[0])
            state.refresh(heard[0] - 5_000)
        heard[0] = 0
        assert document(queries.at_once("counts", "u7", {}, ""))["age_ms"] == 300


def test_only_committed_values_are_shown() -> None:
    """What a task has changed and not committed is not there yet."""
    with Driver(job()) as d:
        filled(d)
        worker, queries = asking(d), Queries(asking(d))
        before = document(queries.at_once("latest", "u3", {}, ""))
        for actor in worker.actors.values():
            table = actor.state.table("latest")
            table["u3"] = {"user": "u3", "n": 33}
            assert table["u3"]["n"] == 33
        assert document(queries.at_once("latest", "u3", {}, ""))["value"] == before["value"]
        for actor in worker.actors.values():
            actor.state.drop()


def test_pages_of_rows_go_through_all_tasks() -> None:
    """A page is of one task; what follows it is told, until there is nothing more."""

    async def pages(queries: Queries, scan: dict[str, Any]) -> list[str]:
        found: list[str] = []
        after = None
        while True:
            request = {**scan, **({"after": after} if after else {})}
            page = document(await queries.post("latest", orjson.dumps({"scan": request})))
            found += [key for key, _ in page["rows"]]
            assert len(page["rows"]) <= scan["limit"]
            if (after := page["next"]) is None:
                return found

    with Driver(job()) as d:
        filled(d)
        queries = Queries(asking(d))
        assert sorted(asyncio.run(pages(queries, {"limit": 3}))) == [f"u{n}" for n in range(10)]
        assert asyncio.run(pages(queries, {"limit": 3, "prefix": "u7"})) == ["u7"]
        one = document(asyncio.run(queries.page("latest", {"prefix": "u7", "limit": "5"})))
        assert [key for key, _ in one["rows"]] in (["u7"], [])
        wrong = asyncio.run(queries.post("latest", b'{"scan": {"after": "elsewhere|00"}}'))
        assert (wrong.status, document(wrong)["error"]) == (400, "\"after\" is 'elsewhere|00', which no page has given")


@pytest.mark.parametrize(
    ("said", "grant", "state", "why"),
    [
        ("", True, "unreachable", "serves no pages"),
        ("failed", True, "failed", "the disk is full"),
        ("", False, "moving", "no worker has it"),
    ],
)
def test_a_task_that_cannot_be_asked_is_no_absent_key(said: str, grant: bool, state: str, why: str) -> None:
    """Keys of the other task go on."""
    with Driver(job()) as d:
        filled(d)
        tasks = {task: set(dict(one.state.table("latest").items())) for task, one in d.tasks.items()}
        here, there = min(tasks["Partition 0"]), min(tasks["Partition 1"])
        queries = Queries(asking(d, "Partition 0", state=state_of(d, said=said, grant=grant)))
        assert document(asyncio.run(queries.key("latest", here, {})))["found"] is True
        assert queries.at_once("latest", there, {}, "") is None
        answer = asyncio.run(queries.key("latest", there, {}))
        assert (answer.status, document(answer)["state"], document(answer)["task"]) == (503, state, "Partition 1")
        assert why in document(answer)["error"]
        assert document(answer)["remedy"]
        batch = asyncio.run(queries.post("latest", orjson.dumps({"keys": [here, there]})))
        assert batch.status == 503
        assert asyncio.run(queries.post("latest", orjson.dumps({"keys": [here]}))).status == 200


def test_a_key_is_not_absent_because_the_standby_of_another_task_has_answered() -> None:
    """A worker that has two tasks is gone: one of them has a standby that answers, and the other one has none."""
    with Driver(job()) as d:
        filled(d)
        tasks = {task: set(dict(one.state.table("latest").items())) for task, one in d.tasks.items()}
        here, there = min(tasks["Partition 0"]), min(tasks["Partition 1"])
        state = state_of(d)
        written: list[Any] = [
            c.SetProcessor("w2", "000001-y", "p2", "here", c.ProcessorState.JOINED, url="http://127.0.0.1:1"),
            c.SetGrant("Partition 0", 9, "w2", "000001-y"),
        ]
        for message in written:
            state.apply(c.Entry(state.position, c.key_of(message), message))
        worker = asking(d, "none", state=state)
        worker.runtime = Bag(followers=Bag(all={"Partition 0": Bag(store=d.tasks["Partition 0"].state.store)}))
        queries = Queries(worker)
        me = TaskOwner("w1", worker.incarnation, "http://127.0.0.1:1")
        queries.parts.standby = lambda task: me if task == "Partition 0" else None  # type: ignore[method-assign]

        async def asked(*keys: str) -> Any:
            try:
                return await queries.post("latest", orjson.dumps({"keys": keys, "stale": "1h"}))
            finally:
                await queries.stop()

        answer = asyncio.run(asked(here))
        assert (answer.status, document(answer)["values"][0]["user"]) == (200, here)
        answer = asyncio.run(asked(here, there))
        assert (answer.status, document(answer).get("task")) == (503, "Partition 1")
        assert "no standby" in document(answer)["error"]


def test_a_copy_that_is_built_anew_has_no_absent_keys() -> None:
    """Its store is there, and lacks rows that it is yet to read. Another worker whose page began elsewhere goes on with its own tasks."""
    app = hg.App("job")
    rates = app.input("rates", key="c").table("rates", broadcast=True)
    app.input("in", key="c").join(rates, on="c", into=lambda row, rate: rate).to("out")
    with Driver(app, partitions={"in": 2}) as d:
        d.send_all("rates", [{"c": f"c{n}", "rate": n} for n in range(5)])
        d.advance("1s")
        worker = asking(d, "Partition 1")
        worker.runtime = d._runtime
        queries = Queries(worker)
        scan = {"limit": 2, "after": f"Partition 0|{b'c1'.hex()}"}
        page = document(asyncio.run(queries.post("rates", orjson.dumps({"scan": scan}))))
        assert ([key for key, _ in page["rows"]], page["next"]) == (["c2", "c3"], f"Partition 1|{b'c3'.hex()}")
        (copy,) = d._runtime.copies.all.values()
        assert document(queries.at_once("rates", "c9", {}, ""))["found"] is False
        copy.ready.clear()
        assert queries.at_once("rates", "c9", {}, "") is None
        for answer in (
            asyncio.run(queries.key("rates", "c9", {})),
            asyncio.run(queries.post("rates", b'{"keys": ["c9"]}', worker.incarnation)),
            asyncio.run(queries.page("rates", {})),
        ):
            assert (answer.status, document(answer)["state"]) == (503, "restoring")
            assert "table rates" in document(answer)["why"]
        copy.ready.set()


@pytest.mark.parametrize("table", ["latest", "counts", "plain"])
def test_the_quick_answer_is_the_servers(table: str) -> None:
    """Of a key whose task is known, there or not: byte by byte, but for its age."""

    def same(answer: Any) -> bytes:
        return re.sub(rb'"age_ms":\d+', b"", answer.body)

    with Driver(job()) as d:
        filled(d)
        queries = Queries(asking(d, state=state_of(d)))
        odd = [f"{letter}{n}" for letter in ('"', "\\", "\t", "ü", " ", "") for n in range(40, 50)]
        mine = [key for key in (*(f"u{n}" for n in range(40)), *odd) if Partitioner(2).one(key.encode()) == 0]
        assert 30 < len(mine) < 70
        for key in mine:
            quick, slow = queries.quick(table, key.encode()), asyncio.run(queries.key(table, key, {}))
            assert quick is not None
            assert same(QueryAnswer(200, quick)) == same(slow)
            assert document(slow)["task"] == "Partition 0"
            assert document(slow)["found"] == (key.startswith("u") and int(key[1:]) < 10)
        assert queries.quick(table, b"\xff") is None


def test_a_task_under_another_grant_is_not_read() -> None:
    """A worker that has not heard yet that its task was granted away does not answer for it once it has."""
    with Driver(job()) as d:
        filled(d)
        queries = Queries(asking(d, state=state_of(d, said="failed")))
        there = min(dict(d.tasks["Partition 1"].state.table("latest").items()))
        assert queries.at_once("latest", there, {}, "") is None
        assert asyncio.run(queries.key("latest", there, {})).status == 503
        assert document(queries.at_once("latest", "u1", {}, "000002-z"))["state"] == "moving"


def either(queries: Queries, key: str) -> Any:
    """The answer, if there is one: both ways say so."""
    answer = queries.at_once("latest", key, {}, "")
    assert (queries.quick("latest", key.encode()) is None) == (answer is None)
    return answer


def test_a_task_that_is_granted_away_is_read_no_more() -> None:
    """From the record of the coordinator stream on that says so, also where it was read a moment ago."""
    with Driver(job()) as d:
        filled(d)
        state = state_of(d)
        queries = Queries(asking(d, state=state))
        there = min(dict(d.tasks["Partition 0"].state.table("latest").items()))
        assert document(either(queries, there))["found"]
        moved = c.SetGrant("Partition 0", d.tasks["Partition 0"].grant + 1, "w2", "000002-y")
        state.apply(c.Entry(state.position, c.key_of(moved), moved))
        assert either(queries, there) is None


def test_a_task_that_stops_is_read_no_more() -> None:
    """Its grant stands, and it was read a moment ago; what runs under the same name later is read anew."""
    with Driver(job()) as d:
        filled(d)
        asked = asking(d, state=state_of(d))
        queries, actor = Queries(asked), asked.actors["Partition 0"]
        there = min(dict(actor.state.table("latest").items()))
        assert document(either(queries, there))["found"]
        for readable, tables in ((False, actor.state.tables), (True, None)):
            state = Bag(store=actor.state.store, tables=tables, settled=True)
            asked.actors["Partition 0"] = Bag(machine=Bag(readable=readable), state=state, grant=actor.grant)
            assert either(queries, there) is None
        del asked.actors["Partition 0"]
        assert either(queries, there) is None
        asked.actors["Partition 0"] = actor
        assert document(either(queries, there))["found"]


def test_a_key_in_two_tasks_is_told_and_not_guessed() -> None:
    """A function has written it in both."""
    app = hg.App("job")
    last = app.table("last", key=hg.text())

    def noted(order):
        last["key"] = order
        return order

    app.input("in").map(noted).to("out")
    with Driver(app, partitions={"in": 2}) as d:
        for key in ("a", "b", "c", "d"):
            d.send("in", {"k": key}, key=key)
        d.advance("1s")
        queries = Queries(asking(d))
        answer = queries.at_once("last", "key", {}, "")
        assert answer is not None
        assert answer.status == 409
        assert "Partition 0 and Partition 1" in document(answer)["error"]
        assert document(queries.at_once("last", "key", {"task": "Partition 1"}, ""))["task"] == "Partition 1"
        assert (
            document(queries.at_once("last", "key", {"task": "Partition 5"}, ""))["error"]
            == "there is no task 'Partition 5'"
        )


# ----------------------------------------------------------------------------------------------------------- the quick way


class Connected:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.protocol: Any = None
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_extra_info(self, name: str) -> Any:
        return None


class Handed:
    """The server's protocol."""

    def __init__(self) -> None:
        self.data = b""

    def connection_made(self, transport: Any) -> None:
        transport.set_protocol(self)

    def data_received(self, data: bytes) -> None:
        self.data += data


def quick(d: Driver, door: PageDoor) -> tuple[QuickConnection, Connected, Handed]:
    handed, transport, served = Handed(), Connected(), Counter[int]()
    one = QuickConnection(QuickFront(door, Queries(asking(d)), served), lambda: handed)
    one.connection_made(transport)  # type: ignore[arg-type]
    return one, transport, handed


GET = b"GET /api/query/counts/u7 HTTP/1.1\r\nHost: localhost:1\r\n\r\n"


def test_requests_are_answered_in_their_order_however_they_are_cut() -> None:
    """Two in one read, and one in many."""
    body = b'{"keys": ["u7"]}'
    post = b"POST /api/query/counts HTTP/1.1\r\nhost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    with Driver(job()) as d:
        filled(d)
        one, transport, _ = quick(d, PageDoor())
        one.data_received(GET + post)
        whole = transport.written
        assert whole.count(b"HTTP/1.1 200 OK") == 2
        assert whole.index(b'"key":"u7"') < whole.index(b'"values":[{"n":1,"total":7}]')
        one, transport, handed = quick(d, PageDoor())
        for byte in GET + post:
            one.data_received(bytes([byte]))
        assert (transport.written, handed.data) == (whole, b"")


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /api/query HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /api/query/counts?limit=2 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /api/query/counts/u7 HTTP/1.0\r\nHost: localhost\r\n\r\n",
        b"GET /api/query/counts/u7 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"POST /api/query/counts HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /api/query/counts HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"POST /api/query/counts HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n",
        b"POST /api/query/counts HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /api/query/counts HTTP/1.1\r\nHost: localhost\r\nContent-Length : 1\r\n\r\n",
        b"POST /api/query/counts HTTP/1.1\r\nHost: localhost\r\nX: a\nContent-Length: 1\r\n\r\n",
        b"GET /api/query/counts/u7 HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n",
        b"PUT /api/query/counts/u7 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"nonsense",
    ],
)
def test_whatever_is_unusual_is_the_servers_from_its_first_byte(request_: bytes) -> None:
    """It answers everything, and refuses what is to be refused."""
    with Driver(job()) as d:
        filled(d)
        one, transport, handed = quick(d, PageDoor())
        one.data_received(GET)
        one.data_received(request_)
        assert transport.written.count(b"HTTP/1.1 ") == 1
        assert handed.data == request_
        assert transport.protocol is handed


def test_the_door_is_that_of_the_pages() -> None:
    """Without the token a request is left to the server, which refuses it; with it, it is answered."""
    with Driver(job()) as d:
        filled(d)
        one, transport, handed = quick(d, PageDoor("0.0.0.0", "t"))
        one.data_received(GET.replace(b"\r\n\r\n", b"\r\nAuthorization: Bearer t\r\n\r\n"))
        assert transport.written.startswith(b"HTTP/1.1 200 OK")
        one.data_received(GET)
        assert handed.data == GET
        one, transport, _ = quick(d, PageDoor())
        one.data_received(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert transport.closed


def test_an_export_is_of_the_commit_that_it_names() -> None:
    """What is committed while rows are sent is not among them, and the last line says that nothing is missing."""
    with Driver(job()) as d:
        filled(d)
        queries = Queries(asking(d))

        async def lines() -> list[Any]:
            found: list[Any] = []
            async for some in export_lines(queries, "latest", "Partition 0", ""):
                found += map(orjson.loads, some.splitlines())
            return found

        before = dict(d.tasks["Partition 0"].state.table("latest").items())
        head, *rows, end = asyncio.run(lines())
        assert (head["task"], head["keys"], head["broadcast"]) == ("Partition 0", "key", False)
        assert {row["key"]: row["value"] for row in rows} == before
        assert end == {"rows": len(before)}
        with pytest.raises(NotFound, match="no table"):
            asyncio.run(anext(export_lines(queries, "nothing", "Partition 0", "")))
        with pytest.raises(HeadgateError, match="no task"):
            asyncio.run(anext(export_lines(queries, "latest", "Partition 9", "")))
