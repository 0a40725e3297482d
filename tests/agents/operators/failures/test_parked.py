"""Parked records: a sick key waits with all that come after it, the other keys go on; each record arrives once, in the order of its key."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.agents.job.types.schemas import PARKED
from headgate.agents.testing.driver import Driver
from headgate.core.errors import DeclarationError
from headgate.core.orders import LEAVE_OUT, RELEASE, SeekApplied, Unpark


class Keyed(TypedDict):
    k: str
    n: int


KEYS = "abc"
FORMS = ["rows", "typed", "columns", "frames", "frames of columns", "key of the value", "async", "behind a count"]
PARK = hg.park(after="10s", times=1000)


class Scene:
    """A job whose step fails for the keys that are sick."""

    def __init__(self, form: str = "rows", policy: Any = PARK, **options: Any) -> None:
        self.sick = set[str]()
        self.bad = set[tuple[str, int]]()
        self.found = defaultdict[str, list[int]](list)
        self.calls: list[tuple[str, int]] = []
        app = hg.App("job")
        typed = form in ("typed", "columns", "frames of columns")
        self.keyed_by_value = form == "key of the value"
        if self.keyed_by_value:
            options |= {"key": "k", "key_serde": hg.text()}
        stream: Any = app.input("in", serde=hg.json(Keyed) if typed else hg.json(), **options)
        if form in ("columns", "frames of columns"):
            stream = stream.columns()
        if form == "frames":
            stream = stream.repartition(lambda v: v["k"], name="again")
        if form == "frames of columns":
            stream = stream.repartition("k", name="again")
        if form in ("columns", "frames of columns"):
            stream = stream.rows()
        checked = (
            stream.map_async(self.check_later, on_error=policy)
            if form == "async"
            else stream.map(self.check, on_error=policy)
        )
        checked.to("out")
        if form == "behind a count":
            checked.agg(n=hg.count(), name="counts").to("counted")
        self.driver = Driver(app)

    def check(self, value: Any) -> Any:
        self.calls.append((value["k"], value["n"]))
        if value["k"] in self.sick or self.calls[-1] in self.bad:
            raise ValueError(f"{value['k']} is sick")
        return value

    async def check_later(self, value: Any) -> Any:
        return self.check(value)

    def send(self, *sent: tuple[str | None, Any]) -> None:
        """Send these records as one chunk; a key of None: none."""
        rows = [
            hg.Record(None if self.keyed_by_value else key, {"k": key or "?", "n": n}, self.driver.wall_ms)
            for key, n in sent
        ]
        self.driver.send_all("in", rows)

    def out(self) -> dict[str, list[int]]:
        """What has come out so far, by key."""
        for record in self.driver.read("out"):
            self.found[record.value["k"]].append(record.value["n"])
        return dict(self.found)

    def parked(self) -> list[list[Any]]:
        return parked(self.driver)


def parked(driver: Driver) -> list[list[Any]]:
    """The rows of all tasks."""
    tables = [actor.state.table(PARKED) for actor in driver.tasks.values()]
    return [row for table in tables for _, row in sorted(table.items())]


@pytest.fixture
def scene() -> Any:
    one = Scene()
    with one.driver:
        yield one


@pytest.mark.parametrize("form", FORMS)
def test_a_sick_key_waits_and_the_others_go_on(form: str) -> None:
    """While it is sick, only its first record is tried again. When it is well, all of them follow, in their order."""
    scene = Scene(form)
    with scene.driver as d:
        scene.sick.add("b")
        scene.send(*((key, n) for n in range(4) for key in KEYS))
        for n in range(4, 8):
            scene.send(*((key, n) for key in KEYS))
        assert scene.out() == {"a": list(range(8)), "c": list(range(8))}
        assert (d.counters["records_parked"], d.counters["records_failed"]) == (8, 1)
        scene.calls.clear()
        d.advance("25s")
        assert scene.calls == [("b", 0)] * 2
        scene.sick.clear()
        d.restart()
        scene.send(("b", 8))
        d.advance("10s")
        assert scene.out()["b"] == list(range(9))
        assert d.counters["parked_records_released"] == d.counters["records_parked"] == 9
        scene.send(("b", 9))
        assert scene.out()["b"] == list(range(10))


@settings(max_examples=60, deadline=None)
@given(
    form=st.sampled_from(FORMS),
    acts=st.lists(
        st.one_of(
            st.lists(st.sampled_from("abcd"), min_size=1, max_size=8),
            st.sampled_from(
                ["advance", "advance long", "restart", *(f"{how} {key}" for how in ("ill", "well") for key in "abc")]
            ),
        ),
        max_size=25,
    ),
)
def test_each_record_arrives_once_in_the_order_of_its_key(form: str, acts: list[Any]) -> None:
    """Whatever falls ill, gets well, comes and restarts in between."""
    scene, sent = Scene(form), defaultdict[str, list[int]](list)
    with scene.driver as d:
        for act in acts:
            match act:
                case "advance":
                    d.advance("6s")
                case "advance long":
                    d.advance("60s")
                case "restart":
                    d.restart()
                case str():
                    how, key = act.split()
                    scene.sick.add(key) if how == "ill" else scene.sick.discard(key)
                case _:
                    rows = [(key, len(sent[key]) + list(act[:place]).count(key)) for place, key in enumerate(act)]
                    scene.send(*rows)
                    for key, n in rows:
                        sent[key].append(n)
            assert all(found == sent[key][: len(found)] for key, found in scene.out().items())
            assert scene.out().get("d", []) == sent["d"]
        scene.sick.clear()
        d.advance("60s")
        assert scene.out() == {key: found for key, found in sent.items() if found}
        assert scene.parked() == []
        if form == "behind a count":
            counts = {record.key: record.value["n"] for record in d.read("counted")}
            assert counts == {key: len(found) for key, found in sent.items() if found}


def test_a_record_without_a_key_waits_alone(scene: Scene) -> None:
    scene.sick.add("?")
    scene.send((None, 0))
    scene.sick.clear()
    scene.send((None, 1))
    assert scene.out() == {"?": [1]}
    scene.driver.advance("10s")
    assert scene.out() == {"?": [1, 0]}


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(("then", "letters", "skipped"), [("dead_letter", 3, 0), ("skip", 0, 3)])
def test_a_key_that_has_used_its_tries_is_waited_for_no_longer(
    then: str, letters: int, skipped: int, times: int
) -> None:
    """Its first record leaves; each one behind it is tried once, until one succeeds. A new failure has all its tries again."""
    scene = Scene(policy=hg.park(after="10s", times=times, then=then))
    with scene.driver as d:
        scene.sick.add("a")
        scene.send(("a", 0), ("a", 1), ("a", 2))
        for _ in range(times - 1):
            d.advance("10s")
        assert d.counters["dead_letters"] + d.counters["records_skipped"] == 0
        d.advance("10s")
        assert (d.counters["dead_letters"], d.counters["records_skipped"]) == (letters, skipped)
        assert [letter.offset for letter in d.dead_letters()] == list(range(letters))
        assert scene.parked() == []
        scene.send(("a", 3))
        for tries in range(times - 1):
            d.advance("10s")
            assert [row[11] for row in scene.parked()] == [tries + 1]
        scene.sick.clear()
        d.advance("10s")
        assert scene.out() == {"a": [3]}


def test_one_that_succeeds_ends_the_giving_up() -> None:
    scene = Scene(policy=hg.park(after="10s", times=1))
    with scene.driver as d:
        scene.bad |= {("a", 0), ("a", 2)}
        scene.send(("a", 0), ("a", 1), ("a", 2), ("a", 3))
        d.advance("10s")
        assert scene.out() == {"a": [1]}
        assert [letter.offset for letter in d.dead_letters()] == [0]
        assert [row[3] for row in scene.parked()] == [2, 3]
        d.advance("10s")
        assert scene.out() == {"a": [1, 3]}


def test_giving_up_may_fail_the_task() -> None:
    scene = Scene(policy=hg.park(after="10s", times=1, then="fail"))
    with scene.driver as d:
        scene.sick.add("a")
        scene.send(("a", 0))
        with pytest.raises(Exception, match="a is sick"):
            d.advance("60s")


def test_more_than_may_be_parked_fails_the_task() -> None:
    scene = Scene(policy=hg.park(after="10s", max_parked=3))
    with scene.driver:
        scene.sick.add("a")
        scene.send(("a", 0), ("a", 1), ("a", 2))
        with pytest.raises(Exception, match="4 records are parked, and max_parked is 3"):
            scene.send(("a", 3))


def ask(scene: Scene, what: str, *numbers: int | None, request: str = "u1") -> str:
    """An operator's order, to the only task. Returns the reason if it was refused."""
    driver = scene.driver
    [actor] = driver.tasks.values()
    refused: list[str] = []
    original = actor._job.report
    actor._job.report = lambda report: (  # pyright: ignore[reportAttributeAccessIssue]
        refused.append(report.refused) if isinstance(report, SeekApplied) else original(report)
    )

    async def tell() -> None:
        actor.feed(Unpark(request, what, *numbers))

    driver._settle(tell())
    actor._job.report = original  # pyright: ignore[reportAttributeAccessIssue]
    [why] = refused
    return why


@pytest.mark.parametrize("form", ["rows", "frames"])
def test_what_is_released_is_tried_at_once(form: str) -> None:
    """A try that fails counts; after one that succeeds, the others of the key follow."""
    scene = Scene(form, policy=hg.park(after="1h", times=1000))
    with scene.driver as d:
        scene.sick |= {"a", "b"}
        scene.send(*((key, n) for n in range(3) for key in KEYS))
        scene.calls.clear()
        assert ask(scene, RELEASE, None) == ""
        d.advance("1ms")
        assert set(scene.calls) == {("a", 0), ("b", 0)}
        assert [row[11] for row in scene.parked() if row[12]] == [1, 1]
        scene.sick.clear()
        number = next(n for n, row in numbered(d) if row[2] == b"b")
        assert ask(scene, RELEASE, number, request="u2") == ""
        assert scene.out() == {"c": [0, 1, 2], "b": [0, 1, 2]}
        assert "not parked any more" in ask(scene, RELEASE, number, request="u3")
        d.restart()
        assert ask(scene, RELEASE, None, request="u4") == ""
        assert scene.out()["a"] == [0, 1, 2]
        assert ask(scene, RELEASE, None, request="u5") == "no such record is parked"


def test_the_first_record_of_a_key_is_left_out_and_the_others_follow() -> None:
    scene = Scene(policy=hg.park(after="1h", times=1000))
    with scene.driver as d:
        scene.bad.add(("a", 0))
        scene.send(("a", 0), ("b", 0), ("a", 1))
        first = numbered(d)[0][0]
        assert ask(scene, LEAVE_OUT, first, first) == ""
        assert scene.out() == {"b": [0], "a": [1]}
        assert (d.counters["records_skipped"], d.counters["parked_records_released"], scene.parked()) == (1, 2, [])


def test_all_that_was_seen_is_left_out_and_nothing_else() -> None:
    """What is parked later stays."""
    scene = Scene(policy=hg.park(after="1h", times=1000))
    with scene.driver as d:
        scene.sick |= {"a", "b"}
        scene.send(("a", 0), ("b", 0), ("a", 1))
        last = numbered(d)[-1][0]
        scene.send(("a", 2), ("b", 1))
        scene.sick.clear()
        assert ask(scene, LEAVE_OUT, None, last) == ""
        assert scene.out() == {"a": [2], "b": [1]}
        assert d.counters["records_skipped"] == 3


def test_an_order_meets_no_other_record_after_a_restart() -> None:
    """The last record leaves, the worker starts again, and another is parked: an order that names the first changes nothing of it."""
    scene = Scene(policy=hg.park(after="1h", times=1000))
    with scene.driver as d:
        scene.bad |= {("a", 0), ("b", 0)}
        scene.send(("a", 0))
        first = numbered(d)[0][0]
        assert ask(scene, LEAVE_OUT, first, first) == ""
        d.restart()
        scene.send(("b", 0))
        ((again, _),) = numbered(d)
        assert again > first
        assert ask(scene, LEAVE_OUT, first, first, request="u2") != ""
        assert [number for number, _ in numbered(d)] == [again]


def test_a_task_with_too_many_goes_on_when_some_are_left_out() -> None:
    scene = Scene(policy=hg.park(after="1h", max_parked=3))
    with scene.driver as d:
        scene.sick.add("a")
        scene.send(("a", 0), ("a", 1), ("a", 2))
        assert ask(scene, LEAVE_OUT, None, numbered(d)[1][0]) == ""
        scene.send(("a", 3), ("b", 0))
        assert [row[3] for row in scene.parked()] == [2, 3]
        assert d.counters["records_parked"] == 4


def numbered(driver: Driver) -> list[tuple[int, list[Any]]]:
    """The rows of all tasks, with their numbers."""
    tables = [actor.state.table(PARKED) for actor in driver.tasks.values()]
    return [row for table in tables for row in sorted(table.items())]


def test_a_function_decides_case_by_case() -> None:
    """It may let a record wait, at first, and later say otherwise."""
    answers = iter([hg.park(after="10s"), "park", "dead_letter"])
    scene = Scene(policy=lambda record, error: next(answers))
    with scene.driver as d:
        scene.sick.add("a")
        scene.send(("a", 0))
        d.advance("10s")
        assert [row[11:13] for row in scene.parked()] == [[1, d.wall_ms + 300_000]]
        d.advance("5m")
        assert (scene.parked(), d.counters["dead_letters"]) == ([], 1)


def test_what_cannot_be_read_waits_too() -> None:
    """Until its schema, say, is corrected."""
    known = [False]

    def loads(data: bytes) -> Any:
        if data == b"new" and not known[0]:
            raise ValueError("unknown")
        return data.decode()

    app = hg.App("job", serde=hg.custom(loads, str.encode, name="own"))
    app.input("in", on_bad_data=hg.park(after="10s")).to("out")
    with Driver(app) as d:
        d.send_all("in", [hg.Record("a", b"old", 0), hg.Record("b", b"new", 0), hg.Record("b", b"old", 0)])
        assert [r.value for r in d.read("out")] == ["old"]
        known[0] = True
        d.advance("10s")
        assert [r.value for r in d.read("out")] == ["new", "old"]


@pytest.mark.parametrize("how", ["end", "drain"])
def test_an_end_tries_once_more_and_leaves_the_rest_to_the_next_run(how: str) -> None:
    """The keys that are well by then arrive, before windows close. The others stay parked."""
    sick = {"a", "b"}

    def check(value: Any) -> Any:
        if value["k"] in sick:
            raise ValueError("sick")
        return value

    app = hg.App("job")
    rows = app.input("in", timestamp="ts").map(check, on_error=hg.park(after="1h"))
    rows.window(hg.tumbling("10s"), name="counts").agg(n=hg.count()).to("out")
    with Driver(app) as d:
        d.send_all("in", [hg.Record(k, {"k": k, "ts": ts}, ts) for ts in (1000, 2000) for k in KEYS])
        sick.remove("b")
        d.end() if how == "end" else d.drain()
        assert {r.key: r.value["n"] for r in d.read("out")} == {"b": 2, "c": 2}
        assert [row[2] for row in parked(d)] == [b"a", b"a"]


def test_rows_without_a_record_become_dead_letters() -> None:
    """The result of a window has no record that could wait."""

    def fails(value: Any) -> Any:
        raise ValueError("no")

    app = hg.App("job")
    rows = app.input("in", timestamp="ts").window(hg.tumbling("10s"), name="counts").agg(n=hg.count())
    rows.map(fails, on_error="park").to("out")
    with Driver(app) as d:
        d.send("in", {"ts": 1000}, key="a")
        d.send("in", {"ts": 20_000}, key="b")
        assert d.counters["dead_letters"] == 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"after": 0}, "park(after=0)"),
        ({"after": "soon"}, "park(after='soon')"),
        ({"times": 0}, "park(times=0)"),
        ({"max_parked": 1.5}, "park(max_parked=1.5)"),
        ({"then": "park"}, "park(then='park')"),
        ({"hold": "soon"}, "park(hold='soon')"),
        ({"hold": -1}, "park(hold=-1)"),
    ],
)
def test_what_cannot_be_is_refused_at_its_line(given: dict[str, Any], says: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        hg.park(**given)
    assert says in str(refused.value)


def windowed(hold: Any, *, later: bool = False, through: str = "") -> Any:
    """A job that counts by windows what its step takes, and the keys that are ill."""
    sick = set[str]()

    def check(value: Any) -> Any:
        if value["k"] in sick:
            raise ValueError("ill")
        return value

    app = hg.App("job")
    rows: Any = app.input("in", timestamp="ts").map(check, on_error=hg.park(after="1h", times=99, hold=hold))
    if through:
        rows = rows.repartition("k", name="again")
    rows.window(hg.tumbling("10s"), name="counts").agg(n=hg.count()).to("counted")
    return app, sick


@pytest.mark.parametrize("through", ["", "a shuffle"])
@pytest.mark.parametrize("hold", ["5m", 0])
def test_time_waits_for_parked_records_as_long_as_their_policy_says(hold: Any, through: str) -> None:
    """A record that gets well meanwhile is in its window; after that, and without `hold=`, it is late, and counted."""
    app, sick = windowed(hold, through=through)
    with Driver(app, now=1_000_000) as d:
        sick.add("a")
        for key, ts in [("b", 1_000), ("a", 2_000), ("b", 25_000)]:
            d.send("in", {"k": key, "ts": ts}, key=key)
            d.advance("1s")
        held = hold != 0
        assert [r.key for r in d.read("counted")] == ([] if held else ["b"])
        d.restart()
        d.advance("1m")
        assert [r.key for r in d.read("counted")] == []
        sick.clear()
        d.advance("1h")
        later = sorted(r.key for r in d.read("counted"))
        assert later == (["b"] if held else [])
        assert late(d) == 1


def test_a_record_that_gets_well_in_time_is_in_its_window() -> None:
    """Its event time is that of its value, wherever it stands among those of its key."""
    app, sick = windowed("2h")
    with Driver(app, now=1_000_000) as d:
        sick.add("a")
        for key, ts in [("b", 1_000), ("a", 12_000), ("a", 2_000), ("b", 25_000)]:
            d.send("in", {"k": key, "ts": ts}, key=key)
            d.advance("1s")
        assert d.read("counted") == []
        d.restart()
        d.advance("10m")
        assert d.read("counted") == []
        sick.clear()
        d.advance("1h")
        found = sorted((r.key, r.value["n"]) for r in d.read("counted"))
        assert found == [("a", 1), ("a", 1), ("b", 1)]
        assert late(d) == 0


@pytest.mark.parametrize("well", [True, False])
def test_an_end_waits_for_no_key_that_stays_ill(well: bool) -> None:
    """Each has one more try before windows close."""
    app, sick = windowed("10h")
    with Driver(app, now=1_000_000) as d:
        sick.add("a")
        for key, ts in [("b", 1_000), ("a", 2_000), ("b", 25_000)]:
            d.send("in", {"k": key, "ts": ts}, key=key)
        assert d.read("counted") == []
        if well:
            sick.clear()
        d.end("in")
        found = sorted(r.key for r in d.read("counted"))
        assert found == (["a", "b", "b"] if well else ["b", "b"])
        assert late(d) == 0


def test_a_drain_waits_for_no_key_that_stays_ill() -> None:
    app, sick = windowed("10h")
    with Driver(app, now=1_000_000) as d:
        sick.add("a")
        for key, ts in [("b", 1_000), ("a", 2_000), ("b", 25_000)]:
            d.send("in", {"k": key, "ts": ts}, key=key)
        d.drain()
        assert sorted(r.key for r in d.read("counted")) == ["b", "b"]
        assert [row[2] for row in parked(d)] == [b"a"]


def late(driver: Driver) -> int:
    """How many rows were late for a window."""
    pipelines = [actor.site.pipeline for actor in driver.tasks.values()]
    return sum(found.rows for one in pipelines if one is not None for _, _, found in one.windows())
