"""How long batches in files stay: what is declared, what is refused, and what a job forgets on the test driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import pytest

import headgate as hg
from headgate.agents.job.steps.batches import WriteStep
from headgate.core.batching.publishing import Keep
from headgate.core.errors import DeclarationError


class Order(TypedDict):
    day: str
    ts: int


def orders(app: hg.App) -> Any:
    """An input with times of its own."""
    return app.input("orders", serde=hg.json(Order), timestamp="ts")


def test_what_is_declared_reaches_the_stage() -> None:
    """Files stay for a day where nothing else is said; without `keep`, for ever."""
    app = hg.App("sales")
    sales = orders(app)
    sales.to_files("/lake/a", keep="30d")
    sales.to_files("/lake/b", keep=60, delete_after="0s")
    sales.to_files("/lake/c")
    day = 86_400_000
    found = [step.write.keep for step in app.steps if isinstance(step, WriteStep)]
    assert found == [Keep(30 * day, day), Keep(60_000, 0), None]


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda app: orders(app).to_files("/lake", delete_after="1d"), "without keep.*says which batches"),
        (lambda app: orders(app).to_files("/lake", keep="0s"), "keeps nothing"),
        (lambda app: orders(app).to_files("/lake", keep="long"), r"to_files\(keep\).*not a duration"),
        (lambda app: spark(app).write("/lake", format="delta", keep="1d"), "VACUUM"),
        (lambda app: spark(app).write(lambda df, batch: None, keep="1d"), "the function itself"),
        (lambda app: spark(app, by="reference").write("/lake", keep="1d"), "how old their rows are is not known"),
    ],
)
def test_what_cannot_be_kept_is_refused(declare: Callable[[hg.App], Any], words: str) -> None:
    """With the remedy, at the line that declares it."""
    with pytest.raises(DeclarationError, match=words):
        declare(hg.App("sales"))


def spark(app: hg.App, **more: Any) -> Any:
    """A stage of Spark."""
    batches = app.input("orders", serde=hg.json(Order), timestamp="ts").batch(max_rows=10, **more)
    return batches.spark(
        lambda df, batch: df, rows=Order if not more else None, schema="day string, ts long", name="same"
    )


def test_old_days_go(tmp_path: Path) -> None:
    """A job that runs has the files of the last days only. What was there before `keep` was declared goes, too."""

    def run(days: range, **more: Any) -> None:
        app = hg.App("sales", serde=hg.json())
        orders(app).to_files(tmp_path, partition_by="day", max_rows=2, **more)
        with hg.testing.Driver(app) as driver:
            for hour in range(24 * days.start, 24 * days.stop):
                driver.send("orders", {"day": f"{hour // 24:02}", "ts": hour * 3_600_000})
            driver.drain()

    run(range(10), keep="3d", delete_after="0s")
    listed = {Path(one) for one in hg.published(tmp_path)}
    assert listed == set(tmp_path.glob("day=*/*.parquet"))
    assert {one.parent.name for one in listed} == {"day=06", "day=07", "day=08", "day=09"}
    assert len(listed) == 37
