"""What a commit writes to a stream between two stages, and in how many steps its reader takes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import headgate as hg
from headgate.agents.operators.source.decode import SourceOp
from headgate.agents.runtime.reading.chooser import TaskChooser
from headgate.agents.testing.driver import Driver
from headgate.core.names import StreamPartition
from headgate.core.progress.frames import is_control

WIDTH = 4
BETWEEN = "job-1-by-user"


@pytest.fixture
def driver() -> Iterator[Driver]:
    app = hg.App("job")
    app.input("orders").repartition("user", name="by-user").agg(n=hg.count()).to("counts")
    with Driver(app, partitions={"orders": WIDTH}) as made:
        made.send_all("orders", orders(0))  # the first commit says who the producers are
        made.advance("1s")
        yield made


def orders(at: int) -> list[Any]:
    """Records in each partition, of users in each partition."""
    return [hg.Record(f"{n}", {"user": f"u{n % 50}"}, at + n) for n in range(50 * WIDTH)]


def kinds(driver: Driver, partition: int) -> list[bool]:
    """Whether each record of a partition is a control message."""
    found = driver.topics.records(StreamPartition(BETWEEN, partition))
    return [is_control(one.value) for one in found if one.value is not None]


def test_the_data_of_all_producers_is_one_chunk(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """And their control messages stand behind it."""
    before = [len(kinds(driver, partition)) for partition in range(WIDTH)]
    chunks: list[str] = []

    def seen(self: Any, chunk: Any, skip: Any) -> Any:
        chunks.append(str(chunk.at))
        return read(self, chunk, skip)

    read = SourceOp.read
    monkeypatch.setattr(SourceOp, "read", seen)
    driver.send_all("orders", orders(1000))
    for partition in range(WIDTH):
        assert kinds(driver, partition)[before[partition] :] == [False] * WIDTH + [True] * WIDTH
        assert chunks.count(f"{BETWEEN}:{partition}") == 1


def test_control_messages_in_a_row_are_taken_in_one_step(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    def asked(self: Any, *given: Any) -> Any:
        answer = choose(self, *given)
        if answer is not None:
            steps.append(answer.at.stream)
        return answer

    choose = TaskChooser.choose
    monkeypatch.setattr(TaskChooser, "choose", asked)
    driver.send_all("orders", orders(1000))
    assert steps.count(BETWEEN) == 2 * WIDTH, "one for the data, one for the messages of all producers"
