"""What an error of a job in use says: which step, at which line, of which record, what was expected, and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import headgate as hg
from headgate.agents.testing.driver import Driver


def failed(declare: Callable[[hg.App], Any], *values: Any) -> str:
    """Why a job fails of these records; a step that is to blame is named with its line."""
    app = hg.App("job")
    declare(app)
    with Driver(app) as d, pytest.raises(hg.HeadgateError) as wrong:
        d.send_all("in", list(values))
    said = str(wrong.value)
    assert re.search(r"\(\S*test_blame\.py:\d+\)", said), "the line"
    return said


GOOD = {"k": "a", "total": 1}
AGGREGATES = {
    "sum": lambda: hg.sum("totla"),
    "min": lambda: hg.min("totla"),
    "last": lambda: hg.last("totla"),
    "first": lambda: hg.first("totla"),
}


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("combines", [True, False])
def test_a_misspelt_field_of_agg_is_the_aggregates_and_not_the_shuffles(aggregate: str, combines: bool) -> None:
    """Whoever reads `shuffle 'by-k'` looks for a wrong word in the repartition, which has none."""

    def declare(app: hg.App) -> None:
        rows = app.input("in").repartition("k") if combines else app.input("in", key="k")
        rows.agg(x=AGGREGATES[aggregate](), name="totals").to("out")

    app = hg.App("job")
    declare(app)
    with Driver(app) as d, pytest.raises(hg.HeadgateError) as wrong:
        d.send("in", GOOD)
    said = str(wrong.value)
    assert re.search(r"agg 'totals' \(\S*test_blame\.py:\d+\)", said)
    assert "shuffle 'by-k'" not in said
    assert "the value has no field 'totla': did you mean 'total'?" in said


def no_merge(one: Any, other: Any) -> Any:
    raise ValueError("it does not merge")


def test_a_merge_that_raises_is_the_aggregates_and_not_the_shuffles() -> None:
    """Two chunks of one commit meet before the shuffle; whoever reads `shuffle 'by-k'` looks at a step that calls no function of his."""
    app = hg.App("job")
    n = hg.aggregate(list, lambda state, value: [*state, value["k"]], no_merge)
    app.input("in").repartition("k").agg(n=n, name="totals").to("out")
    with Driver(app, settings={"chunk.max-records": 1}) as d, pytest.raises(hg.HeadgateError) as wrong:
        d.send_all("in", [GOOD, GOOD])
    said = str(wrong.value)
    assert re.search(r"agg 'totals' \(\S*test_blame\.py:\d+\) raised ValueError: it does not merge", said)
    assert "shuffle 'by-k'" not in said


@pytest.mark.parametrize(
    "step",
    [
        lambda s: s.repartition("kk").agg(n=hg.count()),
        lambda s: s.rekey("kk").to("out"),
        lambda s: s.to("out", key="kk"),
    ],
)
def test_a_misspelt_field_of_any_step_is_named_with_those_that_there_are(step: Any) -> None:
    """A bare KeyError('kk') says neither what the record has nor what was meant."""
    assert "the value has no field 'kk': did you mean 'k'?" in failed(lambda app: step(app.input("in")), GOOD)


@pytest.mark.parametrize(
    "step", [lambda s: s.repartition(lambda v: v["n"], name="by-n"), lambda s: s.rekey(lambda v: v["n"])]
)
def test_a_key_that_its_serde_does_not_take_names_the_parameter_of_keys(step: Any) -> None:
    """`serde=`, which the message named, is that of the values: giving it changed nothing."""
    said = failed(lambda app: step(app.input("in")).to("out", key_serde=hg.text()), {"n": 5})
    assert "the key cannot be encoded as text" in said
    assert "key_serde=" in said
    assert "another serde=" not in said


def test_a_key_that_a_table_does_not_take_names_the_table() -> None:
    """A job has many tables; which one it was, and of which serde, had to be guessed."""

    def declare(app: hg.App) -> None:
        table = app.table("seen", key=hg.text(), value=hg.json())
        app.input("in").map(lambda v: table.get(v["n"])).to("out")

    said = failed(declare, {"n": 5})
    assert "map (" in said
    assert "table seen: the key cannot be encoded as text" in said
    assert "key=" in said


STEPS = {
    "map": lambda s: s.map(lambda v: v["n"]),
    "filter": lambda s: s.filter(lambda v: v["n"]),
    "flat_map": lambda s: s.flat_map(lambda v: [v["n"]]),
    "map_async": lambda s: s.map_async(later),
    "map with the record": lambda s: s.map(lambda r: r.value["n"], with_record=True),
    "rekey": lambda s: s.rekey(lambda v: v["n"]),
    "rekey by name": lambda s: s.rekey("n"),
    "agg": lambda s: s.agg(n=hg.sum("n")),
    "agg of a function": lambda s: s.agg(n=hg.sum(lambda v: v["n"])),
}


async def later(value: Any) -> Any:
    return value["n"]


@pytest.mark.parametrize("step", STEPS)
def test_a_tombstone_is_called_one_where_user_code_cannot_take_it(step: str) -> None:
    """`'NoneType' object is not subscriptable` is Python's word for it; that a record may have no value is Kafka's, and unknown to many."""
    app = hg.App("job")
    STEPS[step](app.input("in", key_serde=hg.text())).to("out", key_serde=hg.json())
    with Driver(app) as d:
        d.send("in", {"n": 1}, key="a")
        with pytest.raises(hg.HeadgateError) as wrong:
            d.send("in", None, key="a")
    said = str(wrong.value)
    assert re.search(r"\(\S*test_blame\.py:\d+\)", said)
    assert "its value is null (a tombstone): drop such records with .filter(" in said


def test_a_null_value_is_not_blamed_for_what_another_record_did() -> None:
    """The tombstone before it went through."""
    said = failed(lambda app: app.input("in").map(lambda v: v and v["n"]).to("out"), None, {"m": 1})
    assert "tombstone" not in said


def test_a_number_where_iso_text_is_expected() -> None:
    """`fromisoformat: argument must be str` names neither the field's unit nor the one that takes numbers."""
    app = hg.App("job")
    app.input("in", timestamp=hg.field("ts", unit="iso")).to("out")
    with (
        Driver(app) as d,
        pytest.raises(ValueError, match=r"expected ISO text.* found 1700000000; numbers take unit='s'"),
    ):
        d.send("in", {"ts": 1700000000})


@pytest.mark.parametrize(
    ("options", "meant"),
    [
        ({"start": "latest"}, "newest"),
        ({"start": "earliest"}, "oldest"),
        ({"start": "newst"}, "newest"),
        ({"on_lost": "latest"}, "newest"),
        ({"until": "latest"}, "newest"),
    ],
)
def test_kafkas_words_for_the_ends_of_a_partition_are_understood(options: Any, meant: str) -> None:
    """Refused at the line that says it, with the word that is meant."""
    with pytest.raises(hg.DeclarationError, match=rf"input\('in'.*did you mean '{meant}'\?"):
        hg.App("job").input("in", **options)
