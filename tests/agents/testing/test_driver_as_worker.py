"""A test driver runs what a worker runs: what a job does there, with its choosers, bounds, limits and commits, it does in a test."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import headgate as hg
from headgate.agents.testing.driver import Driver
from headgate.core.names import StreamPartition


def backlog(d: Driver, *records: tuple[str, Any, int], first: Any = 0) -> None:
    """Records that all wait when the task begins: it has failed at something before they came."""
    with pytest.raises(hg.UserCodeError):
        d.send("boom", first)
    for topic, value, at in records:
        d.send(topic, value, at=at)
    d.restart()


class Breaks:
    """Fails once."""

    def __init__(self) -> None:
        self.done = False

    def __call__(self, value: Any) -> Any:
        if not self.done:
            self.done = True
            raise ValueError("once")
        return value


def two_inputs(seen: list[Any], *, chooser: Any = None, **options: Any) -> hg.App:
    app = hg.App("job", chooser=chooser)
    app.input("boom", **options.pop("boom", {})).map(Breaks()).to("broken")

    def note(value: Any) -> Any:
        seen.append(value)
        return value

    for topic, given in options.items():
        app.input(topic, **given).map(note).to("out")
    return app


def test_priorities_decide_what_is_read_first() -> None:
    """A job with an urgent input passed its test, in which inputs came in alphabetical order, and failed on its worker."""
    for high in ("a", "b"):
        seen: list[Any] = []
        app = two_inputs(seen, a={"priority": int(high == "a")}, b={"priority": int(high == "b")})
        with Driver(app, settings={"chunk.max-records": 1}) as d:
            backlog(d, *[(topic, f"{topic}{n}", 0) for n in range(3) for topic in ("a", "b")])
            low = "b" if high == "a" else "a"
            assert seen == [f"{high}{n}" for n in range(3)] + [f"{low}{n}" for n in range(3)]


def test_nothing_behind_a_bound_is_handed_out() -> None:
    """Also when it was fetched in the same answer, and when what lies below comes in several chunks."""
    seen: list[Any] = []
    app = hg.App("job")
    app.input("in", until={0: 3, 1: 0}).map(lambda value: seen.append(value) or value).to("out")
    with Driver(app, partitions={"in": 2}, settings={"chunk.max-records": 2}) as d:
        d.send_all("in", [1, 2, 3, 4, 5], partition=0)
        d.send_all("in", [6], partition=1)
        assert seen == [1, 2, 3]
        assert set(d.states.values()) == {"ended"}


def test_sources_wait_while_too_much_lies_between_two_stages() -> None:
    """What `intermediate.max-lag` promises a worker's disk, a test can see."""
    told: list[set[str]] = []
    breaks = Breaks()
    app = hg.App("job")

    def second(value: Any) -> Any:
        breaks(value)
        told.append(set(d.tasks["Partition 0"].machine.inputs.closed.values()))
        return value

    app.input("in").repartition("k").map(second).to("out")
    with Driver(app, settings={"intermediate.max-lag": 2, "chunk.max-records": 1}) as d:
        with pytest.raises(hg.UserCodeError):
            d.send_all("in", [{"k": str(n)} for n in range(20)])
        d.send_all("in", [{"k": str(n)} for n in range(20, 40)])
        d.restart()
        assert len(d.read("out")) == 40
        assert "lag" in told[0]
        assert "lag" not in told[-1]


def test_what_expires_is_deleted_in_the_log_too() -> None:
    """A restore that brought it back would be a table that remembers what it has promised to forget."""
    app = hg.App("job", key_serde=hg.text())
    kept = app.table("kept", value=hg.json(), ttl="1m")

    def keep(value: Any) -> Any:
        kept[value] = 1
        return value

    app.input("in").map(keep).to("out")
    log = StreamPartition(app.job.slug and "__headgate_log_job_1", 0)
    with Driver(app) as d:
        d.send_all("in", ["x", "y"])
        d.advance("30s")
        assert dict(d.table("kept")) == {"x": 1, "y": 1}
        d.advance("1m")
        assert dict(d.table("kept")) == {}
        gone = [one.key for one in d.topics.records(log) if one.value is None]
        assert {key[-1:] for key in gone if key} >= {b"x", b"y"}
        d.restart()
        assert dict(d.table("kept")) == {}


def test_a_restart_reads_tables_from_the_task_log() -> None:
    """As on another machine: nothing is left of a task but what was committed."""
    app = hg.App("job")
    app.input("in", key="k").agg(name="counts", n=hg.count()).to("out")
    with Driver(app, partitions={"in": 2}) as d:
        for n in range(4):
            d.send("in", {"k": "a"}, partition=n % 2)
        before = {name: actor.state.store for name, actor in d.tasks.items()}
        d.restart()
        assert all(actor.state.store is not before[name] for name, actor in d.tasks.items())
        assert [d.table("counts").task(task)["a"] for task in d.tasks] == [{"n": 2}] * 2


def test_all_that_follows_from_a_call_is_one_commit() -> None:
    """However many chunks it is: a commit for each would be a driver that waits for memory."""
    app = hg.App("job")
    app.input("in").to("out")
    with Driver(app, settings={"chunk.max-records": 10}) as d:
        before = d.topics.log(StreamPartition("__headgate_log_job_1", 0)).end
        d.send_all("in", list(range(1000)))
        log = d.topics.log(StreamPartition("__headgate_log_job_1", 0))
        checkpoints = [piece for piece in log.pieces if piece.base >= before]
        assert len(d.read("out")) == 1000
        assert len(checkpoints) <= 3


def test_outputs_that_need_not_be_exactly_once() -> None:
    """They go out through the second producer, and are there all the same."""
    app = hg.App("job", settings={"guarantee": "at_least_once"})
    app.input("in", key="k").agg(name="counts", n=hg.count()).to("out")
    with Driver(app) as d:
        d.send_all("in", [{"k": "a"}, {"k": "b"}])
        assert sorted(r.key for r in d.read("out")) == ["a", "b"]


def test_a_failed_task_waits_for_its_next_attempt_in_the_jobs_own_time() -> None:
    """A retry is a matter of the clock that `advance` moves: a sleep of user code does not bring it."""
    tries: list[int] = []

    def picky(value: int) -> int:
        tries.append(value)
        if len(tries) == 1:
            raise ValueError("not now")
        return value

    app = hg.App("job")
    app.input("in").map(picky).to("out")
    with Driver(app, settings={"error.retries": 3}) as d:
        d.send("in", 7)
        assert d.read("out") == []
        d.advance("1m")
        assert [r.value for r in d.read("out")] == [7]


def test_a_driver_that_no_one_closes_leaves_nothing_behind() -> None:
    """Its tasks end with it, and no loop complains of them."""
    script = (
        "import gc, headgate as hg\n"
        "from headgate.agents.testing.driver import Driver\n"
        "app = hg.App('job')\n"
        "app.input('in').to('out')\n"
        "Driver(app).send('in', 1)\n"
        "gc.collect()\n"
        "d = Driver(app)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_test_of_a_job_needs_neither_kafka_nor_faust() -> None:
    """It starts as fast as the job's own imports do."""
    script = (
        "import sys, headgate as hg\n"
        "app = hg.App('job')\n"
        "app.input('in').to('out')\n"
        "with hg.testing.Driver(app) as d:\n"
        "    d.send('in', 1)\n"
        "    assert len(d.read('out')) == 1\n"
        "print({'faust', 'aiokafka', 'pyspark', 'pyarrow', 'aiohttp'} & {name.split('.')[0] for name in sys.modules})\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("set()\n", "")
