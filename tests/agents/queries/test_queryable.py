"""Which tables others can ask, and where a key of each is."""

from __future__ import annotations

import pytest

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.queries.queryable import NotQueryable, queryables, refused
from headgate.core.errors import NotFound


def job() -> Declared:
    """Tables of all kinds."""
    app = hg.App("job")
    own = app.table("own", key=hg.text())
    app.input("rates", key="currency").table("rates", broadcast=True)
    by_user = app.input("orders").repartition("user", name="by-user")
    by_user.filter(lambda order: own.get(order) is None).agg(n=hg.count(), name="counts")
    by_user.map(lambda record: record, with_record=True).agg(n=hg.count(), name="maybe-elsewhere")
    app.input("more", key="k").table("more")
    by_user.window(hg.tumbling("1m"), name="minutes").agg(n=hg.count()).to("out")
    return Declared(app)


def test_the_task_of_a_key_is_known_where_headgate_placed_it() -> None:
    """Whoever wrote an input may have partitioned it as they like, and a function may give a record another key."""
    found = queryables(job())
    places = {name: "every task" if one.broadcast else one.stream for name, one in found.items()}
    assert places == {
        "own": "",
        "rates": "every task",
        "counts": "job-1-by-user",
        "maybe-elsewhere": "",
        "more": "",
    }


@pytest.mark.parametrize(
    ("table", "kind", "said"),
    [
        ("minutes", NotQueryable, "keeps it in blocks"),
        ("__checkpoint", NotQueryable, "headgate's own"),
        ("count", NotFound, "counts"),
    ],
)
def test_what_cannot_be_asked_says_why_and_what_to_do(table: str, kind: type[Exception], said: str) -> None:
    """A window's blocks are no rows; a mistyped name is told the nearest."""
    error = refused(job(), table)
    assert isinstance(error, kind)
    assert said in str(error)
    assert error.remedy
