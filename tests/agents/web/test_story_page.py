"""`/api/story`: the worker's own story, and those of others on the same disk; a request is a name and no path."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.agents.web.story import story_document
from headgate.core.errors import DataError
from headgate.core.names import JobName
from headgate.core.task import protocol as t

from ..stories.machines import Clock, chunk, feed, recorder, started

pytestmark = pytest.mark.asyncio


async def at_once(work: Any) -> Any:
    return work()


def worker(state_dir: Path | None, processor: str = "w1", **more: Any) -> Any:
    options = SimpleNamespace(state_dir=state_dir, processor=processor)
    port = SimpleNamespace(in_thread=at_once)
    return SimpleNamespace(options=options, port=port, job=JobName("sales"), recorder=SimpleNamespace(lost=2), **more)


def written(state_dir: Path, processor: str) -> None:
    clock = Clock()
    keeper = recorder(state_dir / JobName("sales").directory / "stories" / processor, clock)
    task = started(keeper, clock)
    feed(task, clock, *chunk(10), t.WorkFailed("no such key", final=True))
    keeper.turn()


async def test_a_worker_tells_its_own_story_and_names_the_others(tmp_path: Path) -> None:
    written(tmp_path, "w1")
    written(tmp_path, "w2")
    found = await story_document(worker(tmp_path), {"of": "Partition 0"})
    assert (found["worker"], found["here"], found["off"], found["lost"]) == ("w1", ["w2"], "", 2)
    assert [line["event"].split()[0] for line in found["lines"]] == [
        "Start", "StoreOpened", "LogEnds", "Restored", "OffsetsResolved", "CommitDone", "WorkFailed",
    ]  # fmt: skip
    every = await story_document(worker(tmp_path), {"of": "Partition 0", "all": "1"})
    assert len(every["lines"]) == 10
    assert [line["routine"] for line in every["lines"]].count(True) == 3
    last = await story_document(worker(tmp_path), {"of": "Partition 0", "all": "1", "most": "3"})
    assert (last["lines"], last["more"]) == (every["lines"][-3:], 7)
    other = await story_document(worker(tmp_path), {"folder": "w2", "since": str(every["lines"][7]["at_ms"])})
    assert [line["event_number"] for line in other["lines"]] == [9]
    assert (await story_document(worker(tmp_path), {"of": "leader", "all": "1"}))["lines"] == []


@pytest.mark.parametrize("query", [{"folder": "../w2"}, {"folder": ""}, {"since": "soon"}, {"most": "-1"}])
async def test_what_does_not_exist_is_refused(tmp_path: Path, query: dict[str, str]) -> None:
    written(tmp_path, "w2")
    with pytest.raises(DataError) as caught:
        await story_document(worker(tmp_path), query)
    assert caught.value.remedy


async def test_a_worker_that_keeps_none_says_why(tmp_path: Path) -> None:
    none = worker(None)
    assert (await story_document(none, {}))["off"] == "it has no state directory"
    none = worker(tmp_path)
    none.recorder = None
    assert (await story_document(none, {}))["off"] == "story.max-bytes is 0"
    assert (await story_document(worker(tmp_path), {}))["lines"] == []
