"""A stream joined with a table of its own aggregate: each record meets what was committed before it, also after a kill."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]

JOB = """
import headgate as hg

app = hg.App("JOB")
orders = app.input("IN", key="user")
spent = orders.agg(total=hg.sum("amount"), name="spent").table("spent-so-far")
orders.join(spent, how="left", into=lambda order, row: {**order, "spent": row["total"] if row else 0}).to("OUT")
"""


async def test_a_record_meets_the_row_of_an_earlier_commit(job, topic):
    inp, out = topic("in", 1), topic("out", 1)
    source = JOB.replace("IN", inp).replace("OUT", out)
    first = await job.process(source)
    for n in range(3):
        await job.write(inp, [{"user": "ann", "amount": 5}])
        await job.records(out, n + 1)
    first.kill()
    await first.ended()
    await job.process(source, "w2")
    await job.write(inp, [{"user": "ann", "amount": 5}])
    assert [row["spent"] for row in await job.values(out, 4)] == [0, 5, 10, 15]
