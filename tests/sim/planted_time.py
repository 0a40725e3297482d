"""Planted bugs of time that stands still where it should go on (see `planted` and `timely`)."""

from __future__ import annotations

from typing import Any

from .plant import Plant

Patches = list[tuple[Any, str, Any]]


def idleness_never_confirmed() -> Patches:
    from headgate.core.task.announcer import Announcer

    return [(Announcer, "confirms_s", property(lambda self: None))]


def results_wait_for_the_end() -> Patches:
    from headgate.agents.operators.windows.windowed import WindowOp
    from headgate.core.progress.frames import MAX_TIME

    original = WindowOp.on_watermark

    async def on_watermark(self: Any, watermark: int) -> bool:
        if watermark == MAX_TIME:
            return await original(self, watermark)
        self.watermark = watermark
        return False

    return [(WindowOp, "on_watermark", on_watermark), (WindowOp, "owed_ms", lambda self: None)]


STANDING: tuple[Plant, ...] = (
    Plant(
        "never-confirmed",
        "a task says once that it is idle, and never confirms it",
        idleness_never_confirmed,
        ("calm",),
    ),
    Plant(
        "results-wait",
        "time goes on, and the results of the windows that it closes wait for the end",
        results_wait_for_the_end,
        ("calm", "windows"),
    ),
)
