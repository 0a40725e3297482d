"""Three workers are replaced one by one, by the next version of headgate with the next version of the code, and back again: the graph is
the same, and nothing is lost, doubled, or moved without need.

The next version is this one, made to write what a later minor version may: a field more in each heartbeat, each record of the coordinator
stream, each control frame and each checkpoint. So two versions run one job, and each reads what the other has written.
"""

from __future__ import annotations

import json
import signal

import orjson
import pytest

from .test_locations import disk, until_running
from .test_skipped_records import command

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio, pytest.mark.slow]
KEYS = 120

SOURCE = """
import os
import sys
import msgpack
import headgate as hg

LATER = os.environ["LATER"]
WRITERS = (
    ("headgate.core.coordination.liveness", "encode_beat"),
    ("headgate.core.progress.frames", "encode"),
    ("headgate.core.task.stored.checkpoint", "encode_checkpoint"),
    ("headgate.core.coordination.wire", "encode"),
)


def module_of(write):
    return write.__module__.rpartition(".")[2]


def with_more(write):
    def writes(*args):
        found = write(*args)
        key, value = found if isinstance(found, tuple) else (None, found)
        at = next((at for at in (0, 1) if value[at : at + 1] and (0x80 < value[at] < 0x90 or value[at] == 0xDE)), None)
        if at is not None:  # a map, behind the type in a frame
            fields = msgpack.unpackb(value[at:], strict_map_key=False)
            value = value[:at] + msgpack.packb({**fields, "later": [1, {"more": "of the next version"}]})
            os.write(1, f"LATER {module_of(write)}\\n".encode())  # in one piece: several threads write
        return value if key is None else (key, value)
    return writes


if LATER:
    for module, name in WRITERS:
        __import__(module)
        known = getattr(sys.modules[module], name)
        made = with_more(known)
        for one in [one for one in sys.modules.values() if one is not None]:
            for attribute, value in list(vars(one).items()):
                if value is known:
                    setattr(one, attribute, made)


def seen(row):
    return {**row, "by": LATER or "now"}


app = hg.App("JOB")
app.input("IN").map(seen).repartition("k", name="by-key", partitions=3).agg(n=hg.count(), last=hg.last("by"), name="counts").to("OUT")
"""


class Upgraded:
    """The job, its workers, and what was written so far."""

    def __init__(self, job, topic):
        self.job, self.inp, self.out = job, topic("in", 3), topic("out", 3)
        self.source = SOURCE.replace("IN", self.inp).replace("OUT", self.out)
        self.rounds = 0

    async def worker(self, number, later):
        words = ("--set", "location.provider=env:RACK", "--set", "placement.rejoin-grace=10m", *disk(self.job, number))
        return await self.job.process(self.source, f"w{number}", *words, LATER=later, RACK=f"rack-{number}")

    async def write(self, rounds):
        for _ in range(rounds):
            self.rounds += 1
            await self.job.write(self.inp, [{"k": f"k{n}"} for n in range(KEYS)])

    async def counted(self):
        """The last count of each key, and which version has read its last record, once all that was written is counted."""
        while True:
            found = {one.key: orjson.loads(one.value) for one in await self.job.records(self.out, KEYS)}
            if sum(row["n"] for row in found.values()) >= self.rounds * KEYS:
                return found

    async def grants(self):
        """The worker of each task, and the number of its grant."""
        said, _ = await command(self.job, "status", self.job.name, "-o", "json")
        return {task["task"]: (task["worker"], task["grant"]) for task in json.loads(said)["tasks"]}


async def test_workers_are_replaced_one_by_one_by_the_next_version_and_back(job, topic):
    fleet = Upgraded(job, topic)
    workers = {number: await fleet.worker(number, "") for number in (1, 2, 3)}
    for one in workers.values():
        await until_running(one, 1)
    await fleet.write(5)
    await fleet.counted()
    before = await fleet.grants()
    assert sorted(worker for worker, _ in before.values()) == ["w1", "w2", "w3"]
    for later, times in (("next", 1), ("", 2)):
        for number in (1, 2, 3):
            workers[number].process.send_signal(signal.SIGTERM)
            await fleet.write(1)
            assert await workers[number].ended() == 0
            await fleet.write(1)
            workers[number] = await fleet.worker(number, later)
            await until_running(workers[number], 1)
            assert ("LATER" in workers[number].text()) == bool(later)
        await fleet.write(1)
        found = await fleet.counted()
        assert {row["n"] for row in found.values()} == {fleet.rounds}
        assert {row["last"] for row in found.values()} == {later or "now"}
        after = await fleet.grants()
        # each has moved when its worker left, prepared, and back to its disk: no other task has moved with it
        assert after == {task: (worker, grant + 2 * times) for task, (worker, grant) in before.items()}
    wrote = {line.split()[1] for one in job.processes for line in one.text().splitlines() if line.startswith("LATER ")}
    assert wrote == {"liveness", "frames", "checkpoint", "wire"}
    assert all("unreadable" not in one.text() for one in job.processes)
    await job.ask("drain")
    for one in workers.values():
        assert await one.ended() == 0
    found = await fleet.counted()
    assert {key: row["n"] for key, row in found.items()} == {b"k%d" % n: fleet.rounds for n in range(KEYS)}
