"""What a task works on: it is named while it lasts, and reported and counted if it takes long."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace as Bag
from typing import Any

from headgate.agents.runtime.task.at_work import AtWork
from headgate.agents.runtime.task.doing import ChunkLetter, Doing, StepLetter
from headgate.core.names import StreamPartition
from headgate.core.task.protocol import RunStep


class Chunk:
    """Records 3 to 9."""

    at = StreamPartition("in", 0)
    next_position = 10
    columns = Bag(offset=lambda index: 3 + index)

    def __len__(self) -> int:
        return 7


class Scene:
    """A task whose clock and settings the test sets."""

    def __init__(self, limit_s: float = 30.0, awaits: str = "") -> None:
        self.mono = 100.0
        self.counts: Counter[str] = Counter()
        self.lines: list[tuple[str, dict[str, Any]]] = []
        log = Bag(info=self._say, warning=self._say)
        site: Any = Bag(
            name="Partition 0",
            clock=Bag(now=lambda: Bag(mono=self.mono)),
            settings=Bag(seconds=lambda _: limit_s),
            log=log,
            patience=Bag(longest=lambda: awaits),
            count=lambda what: self.counts.update([what]),
        )
        self.doing = Doing(site)

    def _say(self, event: str, **fields: Any) -> None:
        self.lines.append((event, fields))


def test_a_letter_that_does_not_end_is_named_reported_and_counted_once() -> None:
    """110 seconds passed without a word: nothing had failed."""
    scene = Scene(awaits="lookup in map_async (job.py:7)")
    chunk: Any = Chunk()
    scene.doing.begins(ChunkLetter(chunk))
    for _ in range(1000):
        scene.doing.look()
        scene.mono += 0.5
    told = "in:0 offsets 3 to 9, awaiting lookup in map_async (job.py:7)"
    assert scene.doing.now() == AtWork("Partition 0", told, 500.0)
    assert scene.counts == {"slow_letters": 1}
    assert [fields["for_s"] for _, fields in scene.lines] == [30, 60, 120, 240, 480]
    assert scene.lines[0] == ("a letter takes long", {"letter": told, "for_s": 30})
    scene.doing.ends()
    assert scene.lines[-1] == ("a letter that took long has ended", {"letter": "in:0 offsets 3 to 9", "took_s": 500.0})
    assert scene.doing.now() is None
    assert scene.doing.look() is None


def test_a_letter_that_blocked_the_loop_is_counted_at_its_end() -> None:
    """Nobody could look meanwhile."""
    scene = Scene()
    scene.doing.begins(StepLetter(RunStep(1, "watermark", "in", 5)))
    scene.mono += 40.0
    scene.doing.ends()
    assert scene.lines == [("a letter took long", {"letter": "watermark of in", "took_s": 40.0})]
    assert scene.counts == {"slow_letters": 1}


def test_short_letters_and_a_limit_of_zero_are_not_reported() -> None:
    """0s means no reports."""
    for limit_s, took_s in ((30.0, 0.5), (30.0, 29.0), (0.0, 1000.0)):
        scene = Scene(limit_s)
        scene.doing.begins(StepLetter(RunStep(1, "due", None, None, "windows/3")))
        scene.mono += took_s
        assert scene.doing.look() is None
        scene.doing.ends()
        assert (scene.lines, scene.counts) == ([], {})
