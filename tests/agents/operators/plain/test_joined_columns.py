"""A join of columns with a table gives what a join of rows gives, whatever the keys and whenever the table changes."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.agents.operators.plain.keyed import JoinTableOp
from headgate.agents.testing.driver import Driver
from headgate.core.errors import DeclarationError


class Click(TypedDict):
    ad: str | None
    n: int | None
    keep: bool


class Ad(TypedDict):
    campaign: str
    cost: float | None
    n: int


class Nested(TypedDict):
    tags: list[str]


TABLES = {"text": hg.text(), "key": hg.key(), "json": hg.json()}
KEYS = {"ad": st.one_of(st.none(), st.sampled_from(["a", "b", "ü", ""])), "n": st.one_of(st.none(), st.integers(-1, 2))}


def job(by: str, on: str | None, how: Any, serde: str, filtered: bool, columns: bool) -> hg.App:
    """Clicks with what the table says of their ad; keyed and looked up by `by`."""
    app = hg.App("job", on_error="skip")
    keys = TABLES[serde] if by == "ad" else hg.key()
    ads = app.input("ads", serde=hg.json(Ad), key_serde=keys).table("ads", key_serde=keys, broadcast=on is not None)
    clicks: Any = app.input("clicks", serde=hg.json(Click), key_serde=keys)
    if filtered:
        clicks = clicks.filter(hg.col("keep"))
    if columns:
        clicks.columns(Click).join(ads, on=on, take={"campaign": "campaign", "cost": "cost", "m": "n"}, how=how).to(
            "out"
        )
        return app

    def into(click: Any, ad: Any) -> Any:
        return {
            **click,
            **{new: ad and ad.get(old) for new, old in (("campaign", "campaign"), ("cost", "cost"), ("m", "n"))},
        }

    clicks.join(ads, on=on, into=into, how=how).to("out")
    return app


ADS = st.fixed_dictionaries(
    {"campaign": st.text("xy", max_size=2), "cost": st.sampled_from([None, 1.5]), "n": st.integers(0, 3)}
)


@pytest.mark.usefixtures("either_part")
@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize(
    ("by", "on", "serde"), [("ad", "ad", "text"), ("ad", "ad", "json"), ("ad", None, "text"), ("n", "n", "key")]
)
@settings(deadline=None, max_examples=25)
@given(data=st.data(), filtered=st.booleans(), chunk=st.sampled_from([1, 3, 1000]))
def test_columns_join_as_rows_do(
    by: str, on: str | None, serde: str, how: str, data: Any, filtered: bool, chunk: int
) -> None:
    """Rows and columns of the same records, in the same order, with the same changes of the table between them."""
    sent: list[tuple[str, list[tuple[Any, Any]]]] = []
    for _ in range(data.draw(st.integers(1, 5))):
        clicks = data.draw(st.booleans())
        pairs: list[tuple[Any, Any]] = []
        for _ in range(data.draw(st.integers(1, 6))):
            key = data.draw(KEYS[by])
            if clicks:
                value: Any = {"ad": None, "n": None, "keep": data.draw(st.booleans()), by: key}
                key = key if on is not None or key is not None else (0 if by == "n" else "a")
            else:
                key = key if key is not None else (0 if by == "n" else "a")
                value = data.draw(st.one_of(st.none(), ADS))
            pairs.append((key, value))
        sent.append(("clicks" if clicks else "ads", pairs))
    outcomes: list[Any] = []
    for columns in (False, True):
        with Driver(job(by, on, how, serde, filtered, columns), settings={"chunk.max-records": chunk}) as d:
            for topic, pairs in sent:
                for key, value in pairs:
                    d.send(topic, value, key=key)
            outcomes.append(
                ([(one.key, one.value, one.timestamp) for one in d.read("out")], d.counters.get("join_misses", 0))
            )
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0] or how == "inner" or filtered or not any(topic == "clicks" for topic, _ in sent)


@pytest.mark.usefixtures("either_part")
def test_a_row_of_the_table_that_does_not_fit_is_an_error_of_the_records_that_meet_it() -> None:
    """A table of rows may hold what its type does not say."""
    app = hg.App("job", on_error="dead_letter")
    ads = app.input("ads", serde=hg.json(Ad), key_serde=hg.text()).peek(spoil).table("ads", broadcast=True)
    app.input("clicks", serde=hg.json(Click)).columns().join(ads, on="ad", take=["campaign"]).to("out")
    with Driver(app) as d:
        for key in "abc":
            d.send("ads", {"campaign": key, "cost": None, "n": 1}, key=key)
        d.send_all("clicks", [{"ad": ad, "n": 1, "keep": True} for ad in "abcab"])
        assert [one.value["campaign"] for one in d.read("out")] == ["a", "a"]
        told = [one.exception for one in d.dead_letters()]
        assert ["'campaign' is 7, not text" in one or "'campaign' is missing" in one for one in told] == [True] * 3


def spoil(ad: Any) -> None:
    """A function may change what it gets."""
    if ad["campaign"] == "b":
        ad["campaign"] = 7
    if ad["campaign"] == "c":
        del ad["campaign"]


def test_no_object_is_made_of_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is asked once for each key of a chunk."""
    app = hg.App("job")
    ads = app.input("ads", serde=hg.json(Ad), key_serde=hg.text()).table("ads", broadcast=True)
    app.input("clicks", serde=hg.json(Click)).columns().join(ads, on="ad", take=["campaign"]).to("out")
    monkeypatch.setattr(JoinTableOp, "push", None)
    asked: list[int] = []
    with Driver(app) as d:
        d.send("ads", {"campaign": "x", "cost": None, "n": 1}, key="a")
        (op,) = [one for one in d.tasks["Partition 0"].site.pipeline.operators if one.step.verb == "join"]
        fetch = op.table.fetch
        monkeypatch.setattr(op.table, "fetch", lambda keys: (asked.append(len(keys)), fetch(keys))[1])
        d.send_all("clicks", [{"ad": "ab"[n % 2], "n": 1, "keep": True} for n in range(100)])
        assert len(d.read("out")) == 50
        assert asked == [2]
        d.restart()
        d.send_all("clicks", [{"ad": "a", "n": 1, "keep": True}])
        assert d.read("out")[-1].value == {"ad": "a", "n": 1, "keep": True, "campaign": "x"}


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ({"on": "add"}, "add"),
        ({"on": "ad", "take": ["budget"]}, "budget"),
        ({"on": "ad"}, "the stream has a column 'n', too"),
        ({"on": "ad", "take": {"ad": "campaign"}}, "the stream has a column 'ad', too"),
        ({"on": "ad", "take": []}, "take=.*the fields that are wanted"),
        ({"on": "ad", "take": "campaign"}, "take='campaign'"),
        ({"on": "ad", "take": [1]}, "take="),
        ({"on": "ad", "take": ["cost"], "how": "outer"}, "'inner' or 'left'"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(args: dict[str, Any], told: str) -> None:
    app = hg.App("job")
    ads = app.input("ads", serde=hg.json(Ad)).table("ads", broadcast=True)
    clicks = app.input("clicks", serde=hg.json(Click)).columns()
    with pytest.raises(DeclarationError, match=told):
        clicks.join(ads, **args)


def test_what_is_no_table_of_known_columns_is_refused() -> None:
    app = hg.App("job")
    clicks: Any = app.input("clicks", serde=hg.json(Click)).columns()
    unknown = app.input("ads").table("ads", broadcast=True)
    nested = app.input("more", serde=hg.json(Nested)).table("more", broadcast=True)
    own = app.table("own")
    elsewhere = hg.App("other").input("ads", serde=hg.json(Ad)).table("ads")
    kept = app.input("kept", serde=hg.json(Click)).columns(extra="keep")
    for other, told in (
        (unknown, "fields of the table's rows are not known"),
        (app.input("others"), "takes columns, or a table"),
        (clicks.select(m="n"), "needs within="),
        (own, "takes columns, or a table"),
        (elsewhere, "another app"),
    ):
        with pytest.raises(DeclarationError, match=told):
            clicks.join(other, on="ad")
    with pytest.raises(DeclarationError, match="tags"):
        clicks.join(nested, on="ad", take=["tags"])
    with pytest.raises(DeclarationError, match="extra='keep'"):
        kept.join(nested, on="ad")
