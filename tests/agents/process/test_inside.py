"""`hg.running` and `hg.run`, called wrongly: what is said names what to write instead. What they do is tested on Kafka."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest

import headgate as hg


class Row(TypedDict):
    n: int


def app() -> hg.App:
    made = hg.App("shop")
    made.input("orders").to("out")
    return made


async def awaited() -> None:
    await hg.running(app())  # pyright: ignore[reportGeneralTypeIssues]


def test_a_block_that_is_not_async_says_so() -> None:
    """`with` instead of `async with`."""
    with pytest.raises(hg.DeclarationError, match=r"async with hg\.running\(app\) as worker"), hg.running(app()):
        pass


def test_a_block_that_is_awaited_names_the_function_for_it() -> None:
    """`await hg.running(app)`."""
    waiting = awaited()
    with pytest.raises(hg.DeclarationError, match=r"or await hg\.run\(app\)"):
        waiting.send(None)


@pytest.mark.parametrize("given", ["shop:app", None, hg.App])
def test_what_is_no_app_is_refused(given: Any) -> None:
    """The command line takes a name, this an App."""
    with pytest.raises(hg.DeclarationError, match="needs an App"):
        hg.running(given)


def test_a_job_with_spark_is_refused() -> None:
    """Its JVM and threads would outlive the block."""
    made = app()
    stream = made.input("rows").batch(max_age="10s")
    stream.spark(lambda df, batch: df, schema="n long", name="all", rows=Row).to("results")
    with pytest.raises(hg.DeclarationError, match="headgate run MODULE:app"):
        hg.running(made)
