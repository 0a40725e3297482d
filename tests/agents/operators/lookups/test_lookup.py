"""What `lookup` does with the records of a job: answers are joined in order, asked for once, at a rate; a service may be away."""

from __future__ import annotations

import asyncio
import collections
import copy
import dataclasses
from typing import Any

import pytest

import headgate as hg
from headgate.agents.operators.lookups import own_answers
from headgate.agents.testing.driver import Driver

QUICK = {"error.retries": 0}


class Service:
    """Prices of items, which takes its time, and may be away."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.at_s: list[float] = []
        self.open = self.most_open = 0
        self.fails: dict[Any, list[BaseException]] = {}
        """By item: with what the next calls fail."""
        self.away_for = 0
        """How many more calls find no one."""

    async def price(self, item: Any) -> Any:
        self.asked.append(item)
        self.at_s.append(asyncio.get_running_loop().time())
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            await asyncio.sleep(1 / len(str(item)))
        finally:
            self.open -= 1
        if self.away_for:
            self.away_for -= 1
            raise ConnectionError("no route")
        if errors := self.fails.get(item):
            raise errors.pop(0)
        return f"price of {item}"


def priced(order: dict[str, Any], price: Any) -> dict[str, Any]:
    return {**order, "price": price}


def job(service: Service, **given: Any) -> hg.App:
    app = hg.App("shop")
    app.input("orders").lookup(service.price, **{"on": "item", "into": priced, **given}).to("out")
    return app


def items(texts: str) -> list[dict[str, Any]]:
    return [{"item": item} for item in texts.split()]


def prices(d: Driver) -> list[Any]:
    return [one.value["price"].removeprefix("price of ") for one in d.read("out")]


def test_answers_are_joined_in_order() -> None:
    """The calls return in another order than they began; equal questions are one."""
    service = Service()
    with Driver(job(service)) as d:
        d.send_all("orders", items("a bbb cc a bbb"))
        found = prices(d)
    assert (found, service.asked, service.most_open) == (["a", "bbb", "cc", "a", "bbb"], ["a", "bbb", "cc"], 3)


def test_without_on_and_into_the_value_is_asked_and_replaced() -> None:
    """As `map_async`, with the limits of a lookup; values that cannot be hashed are asked one by one."""
    app = hg.App("shop")

    async def doubled(value: Any) -> Any:
        return {"n": value["n"] * 2}

    app.input("orders").lookup(doubled).to("out")
    with Driver(app) as d:
        d.send_all("orders", [{"n": 1}, {"n": 1}, {"n": 2}])
        assert [one.value["n"] for one in d.read("out")] == [2, 2, 4]


def test_true_and_one_are_two_questions() -> None:
    """They are equal in Python, and the service may tell them apart."""
    service = Service()
    with Driver(job(service, cache="5m")) as d:
        d.send_all("orders", [{"item": 1}, {"item": True}, {"item": 1.0}])
        assert prices(d) == ["1", "True", "1.0"]


def test_no_more_calls_than_allowed_are_under_way() -> None:
    """`concurrency=` is of a task."""
    service = Service()
    with Driver(job(service, concurrency=3)) as d:
        d.send_all("orders", items(" ".join(f"i{n}" for n in range(20))))
        assert len(prices(d)) == 20
    assert service.most_open == 3


def test_calls_keep_the_rate_by_the_time_of_the_loop() -> None:
    """What a pause saves up is a tenth of a second's; the driver's loop waits for no real time."""
    service = Service()
    with Driver(job(service, rate="10/s")) as d:
        d.send_all("orders", items(" ".join(f"i{n}" for n in range(41))))
        assert len(prices(d)) == 41
    most = max(sum(at <= one < at + 1 for one in service.at_s) for at in service.at_s)
    assert (10 <= most <= 12, service.at_s[-1] - service.at_s[0] >= 3.8) == (True, True)


def test_an_answer_is_kept_for_its_time() -> None:
    """By the clock of the job, across letters."""
    service = Service()
    with Driver(job(service, cache="5m")) as d:
        for advanced in ("1m", "3m", "2m"):
            d.send("orders", {"item": "a"})
            d.advance(advanced)
        d.send("orders", {"item": "a"})
        counted = d.counters["lookups_asked"], d.counters["lookups_cached"]
    assert (service.asked, counted) == (["a", "a"], (2, 2))


def test_at_most_so_many_answers_are_kept() -> None:
    """The others are asked for again; within a letter nothing is."""
    service = Service()
    with Driver(job(service, cache="5m", max_cached=1)) as d:
        d.send_all("orders", items("a b"))
        d.send_all("orders", items("b a"))
        assert prices(d) == ["a", "b", "b", "a"]
    assert service.asked == ["a", "b", "a"]


@dataclasses.dataclass
class Offer:
    prices: list[int]


@pytest.mark.parametrize("given", [{}, {"cache": "5m"}], ids=["without a cache", "with one"])
@pytest.mark.parametrize(
    ("answer", "spoil", "sees"),
    [
        ({"of": [1]}, lambda one: one["of"].append(2) or one.update(x=1), lambda one: one),
        (Offer([1]), lambda one: one.prices.append(2), lambda one: one.prices),
        ([{"a": {1}}], lambda one: one[0]["a"].add(2), lambda one: [sorted(each["a"]) for each in one]),
    ],
    ids=["dicts", "a dataclass", "lists and sets"],
)
def test_what_a_record_changes_in_its_answer_no_other_record_sees(
    answer: Any, spoil: Any, sees: Any, given: dict[str, Any]
) -> None:
    """Nor the same record, when its letter runs again; one answer is kept for all of them."""
    asked: list[Any] = []
    seen: list[Any] = []

    async def offer(item: Any) -> Any:
        asked.append(item)
        return copy.deepcopy(answer)

    def into(order: Any, found: Any) -> Any:
        seen.append(copy.deepcopy(sees(found)))
        spoil(found)
        if len(seen) == 2:
            raise ValueError("the letter runs again")
        return order

    app = hg.App("shop", settings={"error.retries": 3})
    app.input("orders").lookup(offer, on="item", into=into, **given).to("out")
    with Driver(app) as d:
        d.send_all("orders", items("a a"))
        d.advance("1m")
        d.send_all("orders", items("a"))
        assert len(d.read("out")) == 3
    assert len(seen) >= 4
    assert [one for one in seen if one != sees(answer)] == []
    assert asked == (["a"] if given else ["a", "a"])


def test_an_answer_that_contains_itself_and_one_of_another_kind_go_on_as_they_are() -> None:
    """A copy of them would have no end, or is known to their own class only."""
    loop: list[Any] = []
    loop.append(loop)
    assert own_answers.own(loop) is not loop
    thing, frozen = object(), ("a", 1)
    assert own_answers.own(thing) is thing
    assert own_answers.own(frozen) == frozen
    counts = collections.Counter("aa")
    own_answers.own(counts)["a"] += 1
    assert counts["a"] == 2


def test_a_batch_is_asked_in_one_call() -> None:
    """The function gets lists of distinct questions; an exception among its answers is that of one record."""
    asked: list[list[str]] = []

    async def many(names: list[str]) -> list[Any]:
        asked.append(names)
        return [ValueError("no such item") if name == "c" else f"price of {name}" for name in names]

    app = hg.App("shop")
    app.input("orders").lookup(many, on="item", batch=2, into=priced, on_error="dead_letter").to("out")
    with Driver(app, settings=QUICK) as d:
        d.send_all("orders", items("a b a c d"))
        assert (prices(d), [one.offset for one in d.dead_letters()]) == (["a", "b", "a", "d"], [3])
    assert asked[:2] == [["a", "b"], ["c", "d"]]


def test_of_a_batch_that_fails_the_record_is_found() -> None:
    """The function raises for all of them, and the answers of the others are needed."""

    async def many(names: list[str]) -> list[Any]:
        if "c" in names:
            raise ValueError("no such item")
        return [f"price of {name}" for name in names]

    app = hg.App("shop")
    app.input("orders").lookup(many, on="item", batch=8, into=priced, on_error="dead_letter").to("out")
    with Driver(app, settings=QUICK) as d:
        d.send_all("orders", items("a b c d e f"))
        assert (prices(d), [one.offset for one in d.dead_letters()]) == (list("abdef"), [2])


WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "too few": (lambda names: names[1:], {"batch": 3}, "gave 2 answers for 3 questions"),
    "no list": (lambda names: "abc", {"batch": 3}, "gave str for 3 questions"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_batch_of_wrong_answers_names_the_function(name: str) -> None:
    """Answers are joined by their place: a list of another length would give records each other's."""
    make, given, said = WRONG[name]

    async def answers_of(names: list[str]) -> Any:
        return make(names)

    app = hg.App("shop")
    app.input("orders").lookup(answers_of, on="item", into=priced, **given).to("out")
    with pytest.raises(hg.UserCodeError) as found, Driver(app, settings=QUICK) as d:
        d.send_all("orders", items("a b c"))
    text = str(found.value)
    assert ("answers_of" in text, said in text, "return a list with one answer for each" in text) == (True, True, True)


def test_what_cannot_be_awaited_is_refused() -> None:
    """A plain function that is no coroutine function cannot be told when it is declared."""
    app = hg.App("shop")
    app.input("orders").lookup(lambda item: item, on="item", into=priced).to("out")
    with pytest.raises(hg.UserCodeError, match=r"gave str, which cannot be awaited.*map\(\) takes a plain one"):
        with Driver(app, settings=QUICK) as d:
            d.send("orders", {"item": "a"})


def test_what_cannot_be_hashed_cannot_be_looked_up_in_a_cache() -> None:
    """The message says what `on=` is for."""
    service = Service()
    app = hg.App("shop")
    app.input("orders").lookup(service.price, cache="5m").to("out")
    with pytest.raises(hg.UserCodeError, match=r"a dict cannot be looked up in a cache.*on= a field"):
        with Driver(app, settings=QUICK) as d:
            d.send("orders", {"item": "a"})


def test_a_call_that_hangs_ends_at_its_timeout() -> None:
    """The record, the function and the argument are named; the service has answered others, so it is the record's error."""

    async def hangs(item: str) -> str:
        await asyncio.sleep(0 if item != "b" else 1e6)
        return f"price of {item}"

    app = hg.App("shop")
    app.input("orders").lookup(hangs, on="item", timeout="2s", into=priced).to("out")
    with pytest.raises(hg.UserCodeError) as found, Driver(app, settings=QUICK) as d:
        d.send_all("orders", items("a b c"))
    said = str(found.value)
    assert ("gave no answer within 2 s; see timeout=" in said, "hangs" in said) == (True, True)


def test_a_record_that_fails_is_asked_again() -> None:
    """`retry=` times; then its policy decides, and the others go on. They are asked once."""
    service = Service()
    service.fails = {"b": [KeyError("b")] * 2, "c": [KeyError("c")] * 9}
    with Driver(job(service, on_error="dead_letter", retry=2), settings=QUICK) as d:
        d.send_all("orders", items("a b c d"))
        found = prices(d), [one.offset for one in d.dead_letters()]
    assert (found, service.asked.count("a"), service.asked.count("b")) == ((["a", "b", "d"], [2]), 1, 3)
    assert service.asked.count("c") == 3


@pytest.mark.parametrize("policy", ["fail", "skip", "dead_letter"])
def test_a_service_that_is_away_is_no_records_fault(policy: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The circuit opens, which is said; the records wait for a probe that is answered. None is lost, whatever the policy."""
    service = Service()
    service.away_for = 40
    with Driver(job(service, on_error=policy, concurrency=4), settings=QUICK) as d:
        d.send_all("orders", items("a b c d e f g h"))
        found = prices(d), d.dead_letters(), d.counters["lookup_circuits_opened"]
    log = capfd.readouterr().err
    assert found == (list("abcdefgh"), [], 1)
    for said in ("the circuit of Service.price is open", "ConnectionError: no route", "a letter waits no longer"):
        assert said in log
    assert len(service.asked) == 40 + 8


def test_probes_are_one_at_a_time_and_ask_for_other_things() -> None:
    """One question may be what fails: the next probe asks for the next one."""
    service = Service()
    service.away_for = 12
    with Driver(job(service, concurrency=2, breaker=4, retry=0), settings=QUICK) as d:
        d.send_all("orders", items("a b c"))
        assert prices(d) == ["a", "b", "c"]
    probes = service.asked[4:12]
    assert {*probes} == {"a", "b", "c"}


def test_an_error_that_is_not_of_the_service_does_not_open_the_circuit() -> None:
    """A refusal is an answer: it ends a row of failures."""
    service = Service()
    service.fails = {item: [KeyError(item)] * 99 for item in "abcdefgh"}
    with Driver(job(service, on_error="skip", retry=0), settings=QUICK) as d:
        d.send_all("orders", items("a b c d e f g h i"))
        assert (prices(d), d.counters["lookup_circuits_opened"], d.counters["records_skipped"]) == (["i"], 0, 8)


def test_errors_of_a_service_are_told() -> None:
    """`away=` names the errors of a client's library."""

    class Gone(Exception):
        pass

    service = Service()
    service.fails = {"a": [Gone()] * 20}
    with Driver(job(service, away=(Gone,), on_error="skip", retry=0), settings=QUICK) as d:
        d.send_all("orders", items("a"))
        assert prices(d) == ["a"]


def test_without_a_circuit_the_policy_decides() -> None:
    """`breaker=0`."""
    service = Service()
    service.away_for = 1000
    with Driver(job(service, breaker=0, on_error="skip"), settings=QUICK) as d:
        d.send_all("orders", items("a b"))
        assert (prices(d), len(service.asked)) == ([], 6)


def test_a_function_that_cancels_itself_is_an_error() -> None:
    """A TaskGroup does not report it; without this its records would wait for ever."""

    async def ends(item: str) -> str:
        task = asyncio.current_task()
        if item == "b":
            assert task is not None
            task.cancel()
            await asyncio.sleep(1)
        return f"price of {item}"

    app = hg.App("shop")
    app.input("orders").lookup(ends, on="item", into=priced, on_error="dead_letter", concurrency=1).to("out")
    with Driver(app, settings=QUICK) as d:
        d.send_all("orders", items("a b c"))
        assert (prices(d), [one.offset for one in d.dead_letters()]) == (["a", "c"], [1])


class Away(BaseException):
    """What `except Exception` does not see."""


def cancels() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


def leaves() -> None:
    raise Away


def says_cancelled() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("ends", [cancels, leaves, says_cancelled, None], ids=["cancels", "leaves", "raises", "lists"])
def test_of_a_batch_that_ends_with_no_exception_only_the_record_whose_fault_it_is_fails(ends: Any) -> None:
    """Also if `gather(…, return_exceptions=True)` has put it into the list: a call that was cancelled is none of `Exception`."""

    async def many(asked: list[str]) -> list[Any]:
        if ends is not None and "b" in asked:
            ends()
            await asyncio.sleep(0)
        return [asyncio.CancelledError() if one == "b" else f"price of {one}" for one in asked]

    app = hg.App("shop")
    app.input("orders").lookup(many, on="item", into=priced, on_error="dead_letter", batch=4).to("out")
    with Driver(app, settings=QUICK) as d:
        d.send_all("orders", items("a b c d e"))
        assert (prices(d), [one.offset for one in d.dead_letters()]) == (["a", "c", "d", "e"], [1])


def test_a_drain_waits_for_the_service() -> None:
    """What is in flight is done before the run is drained: nothing overtakes it."""
    service = Service()
    service.away_for = 30
    with Driver(job(service), settings=QUICK) as d:
        d.send_all("orders", items("a b c"))
        d.drain()
        assert prices(d) == ["a", "b", "c"]


def test_rows_of_windows_are_looked_up() -> None:
    """A letter that is no chunk waits, too, and runs again from its beginning without counting anything twice."""
    service = Service()
    service.away_for = 30
    app = hg.App("shop")
    counts = app.input("orders", timestamp="ts").repartition("item").window(hg.tumbling("1s")).agg(n=hg.count())
    counts.lookup(service.price, on=lambda row: row["n"], into=priced).to("out")
    with Driver(app, settings=QUICK) as d:
        d.send_all("orders", [{"item": "a", "ts": 1}, {"item": "a", "ts": 2}])
        d.end("orders")
        assert [(one.value["n"], one.value["price"]) for one in d.read("out")] == [(2, "price of 2")]
