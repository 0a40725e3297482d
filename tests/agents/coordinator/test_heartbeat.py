"""Which heartbeats count: a process's own ones are the clock by which it judges all others."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from headgate.agents.coordinator.heartbeat import LOAD_S, LOAD_SHARE, TURN_S, Heartbeats, HeartbeatSource
from headgate.agents.testing.clock import VirtualClock
from headgate.agents.testing.logs import Logs
from headgate.agents.testing.port import MemoryPort
from headgate.core.coordination.events import Beat, Heartbeat
from headgate.core.coordination.liveness import Liveness, encode_beat
from headgate.core.names import StreamPartition

AT = StreamPartition("beats", 0)
FORGED = [1e299, 100.25, 99.0, -5.0]


async def heard_of(port: MemoryPort, beats: Heartbeats, heard: list[Beat], least: int) -> None:
    async with asyncio.timeout(60):
        while len(heard) < least:
            port.clock.move(port.clock.now().mono + 1.0)
            port.clock.ring()
            await asyncio.sleep(0)


@pytest.mark.asyncio
@pytest.mark.parametrize("sent_s", FORGED)
async def test_only_what_this_process_has_sent_moves_its_clock(sent_s: float) -> None:
    """One record with a time of 1e299 under the leader's id stopped its clock, and with it the detection of deaths, until it restarted."""
    clock = VirtualClock(0)
    clock.move(100.0)
    port = MemoryPort(Logs({"beats": 1}), clock)
    own = Heartbeat("p1", "me", "000001-aa", sent_s=0.0)
    heard: list[Beat] = []
    unread: list[Any] = []
    beats = Heartbeats(
        port,
        "beats",
        say=lambda: replace(own, sent_s=clock.now().mono),
        heard=heard.append,
        unread=lambda *said: unread.append(said),
    )
    beats.start()
    await heard_of(port, beats, heard, 2)
    forged = replace(own, sent_s=sent_s)
    port.logs.write(AT, [None], [encode_beat(forged)], [0], None, None)
    port.logs.write(AT, [None], [encode_beat(replace(forged, gone=True))], [0], None, None)
    await heard_of(port, beats, heard, 8)
    await beats.stop()
    assert [said[0] for said in unread] == ["beats", "beats"]
    assert all("did not send it" in said[3] for said in unread)
    assert [one.heartbeat.gone for one in heard].count(True) == 0
    live = Liveness("me", beat_s=1.0)
    live.silence("other")
    for one in heard:
        live.heard(one.heartbeat)
    sent = [one.heartbeat.sent_s for one in heard]
    assert live.silence("other") == sent[-1] - sent[0] > 0


@pytest.mark.asyncio
@pytest.mark.parametrize(("takes_s", "after_s"), [(0.05, 0.05 / LOAD_SHARE), (1.0, LOAD_S)])
async def test_a_load_that_takes_long_is_found_seldom(takes_s: float, after_s: float) -> None:
    """That of 64 tasks took a twentieth of the loop's time."""
    port = MemoryPort(Logs({}), VirtualClock(0))
    found: list[float] = []

    def load() -> dict[str, float]:
        found.append(port.clock.now().mono)
        port.clock.move(found[-1] + takes_s)
        return {}

    heartbeat = HeartbeatSource(port, load, dict)
    turning = asyncio.get_running_loop().create_task(heartbeat.turn())
    while len(found) < 2:
        for _ in range(5):
            await asyncio.sleep(0)
        port.clock.move(port.clock.now().mono + TURN_S)
        port.clock.ring()
    turning.cancel()
    assert after_s <= found[1] - found[0] <= after_s + 2 * TURN_S
    assert heartbeat.turned_s == found[1]
