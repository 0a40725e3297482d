"""Batches that Spark works on, beside the letters of their task."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.agents.operators.batches.spark_runs import (
    FIRST_PAUSE_MS,
    LONGEST_PAUSE_MS,
    Runs,
    TargetPauses,
    TookTooLong,
)


@pytest.mark.asyncio
async def test_a_batch_that_takes_too_long_is_called_off_and_has_failed() -> None:
    """A hung job of Spark held its task, a release and a drain for ever."""
    called_off = asyncio.Event()

    async def hangs(*_: Any) -> list[Any]:
        try:
            await asyncio.Event().wait()
        finally:
            called_off.set()
        return []

    bridge: Any = SimpleNamespace(run=hangs)
    batch: Any = SimpleNamespace(number=1, whole=False)
    named: Any = SimpleNamespace(id="Partition 0/s/1", rows=30)
    runs = Runs(bridge, [], lambda _, attempt: named, lambda _: [], lambda: None, lambda: 0.01)
    runs.start([batch], 1)
    async with asyncio.timeout(20):
        with pytest.raises(TookTooLong, match=r"Spark took longer for its 30 rows than spark.batch-timeout, 0.01 s"):
            await runs.result(1)
        await called_off.wait()
    assert not runs.has(1)  # so it can be begun again


class Away(Exception):
    """The target is away."""


@pytest.mark.asyncio
async def test_a_batch_whose_target_is_away_keeps_its_place_and_is_begun_again_after_a_pause() -> None:
    """Those behind it wait. Any other failure is handed out, and not waited for."""
    now, fails, begun = [0], [Away(), Away(), ValueError("bad")], list[int]()
    came = asyncio.Event()

    async def run(info: Any, *_: Any) -> list[Any]:
        begun.append(info.number)
        raise fails.pop(0)

    pauses = TargetPauses(lambda: now[0])
    runs = Runs(
        SimpleNamespace(run=run),  # type: ignore[arg-type]
        [],
        lambda one, _: SimpleNamespace(number=one.number, id=f"p/s/{one.number}", rows=1),  # type: ignore[arg-type, return-value]
        lambda _: [],  # type: ignore[arg-type, return-value]
        came.set,
        outlasts=lambda error: isinstance(error, Away),
        pauses=pauses,
    )
    first, second = batches = [SimpleNamespace(number=number, whole=False) for number in (1, 2)]

    async def attempt() -> None:
        came.clear()
        runs.start(batches, 1)  # type: ignore[arg-type]
        await came.wait()

    async with asyncio.timeout(20):
        await attempt()
        assert (runs.has(1), pauses.end_ms(1), begun) == (False, FIRST_PAUSE_MS, [1])
        runs.start(batches, 1)  # type: ignore[arg-type]
        assert not runs.has(first.number)
        assert not runs.has(second.number)
        now[0] = FIRST_PAUSE_MS
        await attempt()
        assert (pauses.end_ms(1), begun) == (3 * FIRST_PAUSE_MS, [1, 1])
        now[0] = 3 * FIRST_PAUSE_MS
        await attempt()
        assert runs.ready(1)
        with pytest.raises(ValueError, match="bad"):
            await runs.result(1)
    assert begun == [1, 1, 1]


@pytest.mark.asyncio
async def test_pauses_grow_to_a_limit_and_begin_anew_when_the_target_was_back() -> None:
    """A letter that cannot go on without the batch waits until the pause is over."""
    now = [0]
    pauses = TargetPauses(lambda: now[0])
    lengths = list[int]()
    for _ in range(8):
        lengths.append(pauses.begin(7) - now[0])
        now[0] += lengths[-1]
    assert lengths == [min(FIRST_PAUSE_MS * 2**n, LONGEST_PAUSE_MS) for n in range(8)]
    assert not pauses.lasts(7)
    pauses.forget(7)
    assert (pauses.end_ms(7), pauses.begin(7)) == (None, now[0] + FIRST_PAUSE_MS)
    pauses.keep([8])
    assert pauses.end_ms(7) is None
    real = TargetPauses(lambda: round(1000 * asyncio.get_running_loop().time()))
    real.begin(1)
    async with asyncio.timeout(20):
        await real.over(1)
    assert not real.lasts(1)
