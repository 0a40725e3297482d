"""A letter that must learn something is dropped, and runs again when it is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headgate as hg
from headgate.agents.learning import MustLearn, NotYet
from headgate.agents.runtime.task.at_work import AtWork
from headgate.agents.testing.driver import Driver

RATES = {"EUR": 2, "USD": 3}


class Rates:
    """A service that tells rates, one at a time, to who awaits it. User code gets what is known already."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}
        self.asked: list[str] = []
        self.look: Callable[[], AtWork | None] = lambda: None
        self.seen: list[AtWork | None] = []

    def of(self, currency: str) -> int:
        if currency not in self.known:
            what, lacks = f"the rate of {currency} is not known", f"there is no rate of {currency}"
            raise MustLearn(what, question=currency, lacks=lacks, learn=lambda _: self.ask(currency), remedy="ask")
        return self.known[currency]

    async def ask(self, currency: str) -> None:
        self.asked.append(currency)
        self.seen.append(self.look())
        if currency in RATES:
            self.known[currency] = RATES[currency]
        elif currency == "XXX":
            raise ConnectionError("the service is away")
        elif currency == "LATE" and len(self.asked) < 4:
            raise NotYet("the service starts", remedy="wait")
        elif currency == "LATE":
            self.known[currency] = 9


def converting(rates: Rates) -> hg.App:
    """Counts, looks up and writes: what a letter has done before it stops must not count twice. No policy may leave a record out."""
    app = hg.App("shop", on_error="skip")
    seen = app.table("seen", key=hg.text(), value=hg.json())

    def priced(value: Any) -> Any:
        seen[value["in"]] = seen.get(value["in"], 0) + 1
        try:
            return {"in": value["in"], "total": value["n"] * rates.of(value["in"])}
        except MustLearn as unknown:
            raise ValueError("user code says it in its own words") from unknown

    app.input("orders").map(priced).to("priced")
    return app


def test_a_letter_asks_each_question_once_and_runs_again_with_the_answers() -> None:
    """Two questions in one chunk: it runs three times, and everything that it does counts once."""
    rates = Rates()
    with Driver(converting(rates)) as d:
        d.send_all("orders", [{"in": "EUR", "n": 1}, {"in": "USD", "n": 1}, {"in": "EUR", "n": 5}])
        assert [one.value["total"] for one in d.read("priced")] == [2, 3, 10]
        assert {currency: d.table("seen")[currency] for currency in RATES} == {"EUR": 2, "USD": 1}
    assert rates.asked == ["EUR", "USD"]


@pytest.mark.parametrize(("currency", "why"), [("XXX", "the service is away"), ("ZZZ", "the rate of ZZZ is not known")])
def test_what_cannot_be_learned_fails_the_task_and_no_record(currency: str, why: str) -> None:
    """The service is away, or its answer is no answer: a record is not left out for that, though the policy says skip."""
    with Driver(converting(Rates())) as d, pytest.raises(RuntimeError, match=rf"no rate of {currency}.*{why}"):
        d.send("orders", {"in": currency, "n": 1})


def test_a_letter_waits_until_there_is_an_answer_and_says_for_what() -> None:
    """It asks again; no record is left out, and nothing counts twice."""
    rates = Rates()
    with Driver(converting(rates)) as d:
        (task,) = d.tasks.values()
        rates.look = task.under_way.doing.now
        d.send_all("orders", [{"in": "LATE", "n": 2}, {"in": "EUR", "n": 1}])
        assert [one.value["total"] for one in d.read("priced")] == [18, 2]
        assert (task.under_way.doing.waits_for, rates.asked) == ("", ["LATE"] * 4 + ["EUR"])
        assert d.table("seen")["LATE"] == 1
    assert [one is not None and "waiting: the service starts" in one.what for one in rates.seen] == [
        False, True, True, True, False,
    ]  # fmt: skip
