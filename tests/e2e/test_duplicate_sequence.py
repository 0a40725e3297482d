"""A broker that has had a batch already, and does not know any more where: that is a success."""

from __future__ import annotations

import pytest
from aiokafka.producer.sender import SendProduceReqHandler

import headgate as hg

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
DUPLICATE = 46


async def test_a_batch_that_was_there_already_is_committed(job, topic, monkeypatch):
    """The worker ended with `KeyError`. Now the store stands where it stood in the log, and a restart reads the difference again: every
    count is right."""
    inp, out = topic("in"), topic("out")
    told, original = [], SendProduceReqHandler.handle_response

    def handle_response(self, response):
        for at, (name, partitions) in enumerate(response.topics):
            if name == job.topics.log:
                told.append(name)
                changed = [(one[0], DUPLICATE, -1, *one[3:]) for one in partitions]
                response.topics[at] = (name, changed)
        return original(self, response)

    monkeypatch.setattr(SendProduceReqHandler, "handle_response", handle_response)

    def app():
        made = hg.App(job.name)
        made.input(inp, key="k").agg(n=hg.count(), name="counts").to(out)
        return made

    one = await job.start(app())
    await one.until_running(1)
    for n in range(3):
        await job.write(inp, [{"k": "a"}])
        await job.records(out, n + 1)
    assert len(told) >= 3
    await one.crash()
    two = await job.start(app())
    await two.until_running(1)
    await job.write(inp, [{"k": "a"}])
    assert [v["n"] for v in await job.values(out, 4)] == [1, 2, 3, 4]
