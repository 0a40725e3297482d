"""Inputs that meet by key must be partitioned alike: what is not is refused before its first record, wherever one looks."""

from __future__ import annotations

import asyncio

import pytest
from click.testing import CliRunner

import headgate as hg
from headgate.agents.cli.group import main
from headgate.agents.testing.driver import Driver
from headgate.core.errors import DeclarationError

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]

SOURCE = """
import headgate as hg
app = hg.App("JOB")
rates = app.input("RATES").table("rates")
app.input("ORDERS").join(rates, into=lambda order, rate: {**order, **rate}).to("OUT")
"""
WHY = "partitioned alike, but '{rates}' has 3 partitions and '{orders}' has 4"


async def test_a_join_of_inputs_with_four_and_three_partitions_is_refused_everywhere(job, topic, tmp_path):
    """It joined 9 of 40 keys and said nothing. The plan, the test driver and the worker say the same, and no run has begun that
    corrected code could not follow."""
    orders, rates, out = topic("a-orders", 4), topic("b-rates", 3), topic("out")
    source = SOURCE.replace("RATES", rates).replace("ORDERS", orders).replace("OUT", out)
    why = WHY.format(orders=orders, rates=rates)
    (tmp_path / "alike.py").write_text(source.replace("JOB", job.name))
    await job.write(orders, [{"n": n} for n in range(40)], key=b"k")

    words = ["plan", "alike:app", "--app-dir", str(tmp_path), "-b", job.bootstrap]
    planned = await asyncio.to_thread(CliRunner().invoke, main, words)
    assert planned.exit_code == 2
    scope: dict[str, object] = {}
    exec(source.replace("JOB", job.name), scope)
    with pytest.raises(DeclarationError, match=why):
        Driver(scope["app"], partitions={orders: 4, rates: 3})
    worker = await job.process(source)
    assert await worker.ended() == 2
    for said in (str(planned.output) + str(planned.exception), worker.text()):
        assert why in said
        assert f"put .repartition(…, partitions=4) after app.input('{rates}')" in said
        assert ".table(…, broadcast=True)" in said

    app = hg.App(job.name)
    copy = app.input(rates).table("rates", broadcast=True)
    app.input(orders).join(copy, into=lambda order, rate: {**order, **rate}).to(out)
    await job.write(rates, [{"rate": 2}], key=b"k")
    await job.start(app)
    assert len(await job.values(out, 40)) == 40
