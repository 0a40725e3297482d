"""A join of two streams of columns gives what a join of their rows gives, and refuses what it cannot do."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.testing.driver import Driver
from headgate.core.errors import DeclarationError

LEFT = ("id", "at", "text", "whole", "number", "yes")


class Left(TypedDict):
    id: str
    at: int
    text: str | None
    whole: int | None
    number: float | None
    yes: bool | None


class Right(TypedDict):
    ref: str
    at: int
    paid: float | None
    note: str | None


def job(*, columns: bool, how: Any, shuffled: bool, filtered: bool, late: bool) -> hg.App:
    app = hg.App("job", on_error="skip")
    more: dict[str, Any] = {"timestamp": "at", "key_serde": hg.text()}
    left: Any = app.input("left", serde=hg.json(Left), key=None if shuffled else "id", **more)
    right: Any = app.input("right", serde=hg.json(Right), key=None if shuffled else "ref", **more)
    if columns:
        left, right = left.columns(), right.columns()
    if filtered:
        left, right = left.filter(hg.col("whole") >= 0), right.filter(hg.col("paid") >= 0.0)
    if shuffled:
        left, right = left.repartition("id", name="l"), right.repartition("ref", name="r")
    given: dict[str, Any] = {"within": ("5ms", "10ms"), "how": how, "on": ("id", "ref"), "grace": "2ms"}
    given |= {"late": "late"} if late else {}

    def into(one: Any, other: Any) -> Any:
        of_left = {name: one and one[name] for name in LEFT}
        return {**of_left, "note": other and other["note"], "paid": other and other["paid"]}

    wanted = {"take": ["note", "paid"]} if columns else {"into": into}
    left.join(right, **given, **wanted).to("out")
    return app


ROWS = {
    "left": st.fixed_dictionaries(
        {
            "id": st.sampled_from("abc"),
            "at": st.integers(0, 40),
            "text": st.one_of(st.none(), st.text(max_size=3)),
            "whole": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
            "number": st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
            "yes": st.one_of(st.none(), st.booleans()),
        }
    ),
    "right": st.fixed_dictionaries(
        {
            "ref": st.sampled_from("abc"),
            "at": st.integers(0, 40),
            "paid": st.one_of(st.none(), st.sampled_from([-1.5, 0.0, 7.25, 1e300])),
            "note": st.one_of(st.none(), st.text('xü"\\', max_size=3)),
        }
    ),
}
SENT = st.lists(
    st.sampled_from(sorted(ROWS)).flatmap(
        lambda topic: st.tuples(st.just(topic), st.lists(ROWS[topic], min_size=1, max_size=5), st.booleans())
    ),
    max_size=7,
)


@pytest.mark.usefixtures("either_part")
@settings(deadline=None, max_examples=40)
@given(
    how=st.sampled_from(["inner", "left", "outer"]),
    sent=SENT,
    shuffled=st.booleans(),
    filtered=st.booleans(),
    late=st.booleans(),
    restarts=st.booleans(),
)
def test_columns_join_as_rows_do(
    how: str, sent: list[Any], shuffled: bool, filtered: bool, late: bool, restarts: bool
) -> None:
    """The same pairs in the same order with the same headers, the same records alone, the same late ones."""
    outcomes: list[Any] = []
    for columns in (False, True):
        app = job(columns=columns, how=how, shuffled=shuffled, filtered=filtered, late=late)
        with Driver(app) as d:
            for topic, rows, headers in sent:
                for row in rows:
                    d.send(topic, row, key=row.get("id") or row.get("ref"), headers=[("h", b"1")] if headers else ())
                d.advance("1s")
                if restarts:
                    d.restart()
            d.drain()
            read = [[(one.key, one.value, one.timestamp, one.headers) for one in d.read(of)] for of in ("out", "late")]
            outcomes.append((*read, d.counters.get("late_rows", 0)))
    assert outcomes[1] == outcomes[0]


def streams(app: hg.App) -> Any:
    kinds = (("left", Left, "id"), ("right", Right, "ref"))
    return [app.input(name, serde=hg.json(kind), key=key, timestamp="at").columns() for name, kind, key in kinds]


def one(kind: Any, **more: Any) -> Any:
    return dict.fromkeys(kind.__annotations__) | more


def test_a_record_that_comes_out_alone_and_fails_later_is_left_out_alone() -> None:
    """Its letter has no chunk. The steps behind the join still work on columns."""
    app = hg.App("job", on_error="skip")
    left, right = streams(app)
    joined = left.join(right, within="1ms", how="left", on=("id", "ref"), take=["paid"])
    joined.with_columns(share=hg.col("whole") % hg.col("at")).to("out")
    with Driver(app) as d:
        for key, at in (("a", 0), ("b", 7), ("c", 0), ("d", 7)):
            d.send("left", one(Left, id=key, at=at, whole=10))
        d.drain()
        assert [(found.key, found.value["share"], found.value["paid"]) for found in d.read("out")] == [
            ("b", 3, None), ("d", 3, None),
        ]  # fmt: skip
        assert d.counters["records_skipped"] == 2


def test_pairs_of_columns_are_windowed_and_joined_again() -> None:
    app = hg.App("job")
    left, right = streams(app)
    third = app.input("third", serde=hg.json(Right), key="ref", timestamp="at").columns()
    twice = left.join(right, within="5ms", on=("id", "ref"), take={"first": "paid"}, name="one")
    twice = twice.join(third, within="5ms", on=("id", "ref"), take={"second": "paid"}, name="two")
    twice.window(hg.tumbling("1s")).agg(n=hg.count(), total=hg.sum("second")).to("out")
    with Driver(app) as d:
        d.send("left", one(Left, id="a", at=1))
        for topic, paid in (("right", 1.0), ("third", 2.0), ("third", 3.0)):
            d.send(topic, one(Right, ref="a", at=2, paid=paid))
        d.drain()
        (found,) = d.read("out")
        assert (found.key, found.value["n"], found.value["total"]) == ("a", 2, 5.0)


def test_what_is_declared_wrong_is_refused_at_its_line() -> None:
    app = hg.App("job")
    left, right = streams(app)
    rows = app.input("rows", key="k", timestamp="at")
    refused = {
        "needs within=": lambda: left.join(right, take=["paid"]),
        "there is no column 'payed'": lambda: left.join(right, within="1s", take=["payed"]),
        "the stream has a column 'at', too": lambda: left.join(right, within="1s"),
        "join() of columns takes columns, or a table": lambda: left.join(rows, within="1s"),
        "join() of rows takes rows, not columns": lambda: rows.join(right, within="1s", into=lambda a, b: a),
        "another app": lambda: left.join(streams(hg.App("other"))[1], within="1s", take=["paid"]),
        "how='full'": lambda: left.join(right, within="1s", take=["paid"], how="full"),
        "take=[]": lambda: left.join(right, within="1s", take=[]),
        "extra='keep' keeps all fields": lambda: streams_that_keep(app).join(right, within="1s", take=["paid"]),
    }
    for what, declare in refused.items():
        with pytest.raises(DeclarationError) as error:
            declare()
        assert what in str(error.value)


def streams_that_keep(app: hg.App) -> Any:
    return app.input("kept", serde=hg.json(Left), key="id", timestamp="at").columns(extra="keep")


def test_other_columns_are_another_format_of_what_waits() -> None:
    """So a change of them is refused while records wait, as a change of the serdes is."""
    formats: set[str] = set()
    for columns, take in ((LEFT, ["note"]), (("id",), ["note"]), (LEFT, ["paid"])):
        app = hg.App("job")
        left, right = streams(app)
        left.select(*columns).join(right, within="9s", on=("id", "ref"), take=take, name="j").to("out")
        (table,) = Declared(app).tables()
        formats.add(table.schema.value)
    assert len(formats) == 3
    assert "rows of columns (id: text) and columns (note: text | null)" in formats
