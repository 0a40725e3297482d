"""What a soak says of its figures: the slope of the memory, what counts as a fault, and a plot for light and for dark pages."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any
from unittest.mock import Mock

import pytest

from bench import soak as s
from bench import soak_plot


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> s.Worker:
    monkeypatch.setattr(s, "Tree", Mock())
    return s.Worker("worker-1", Mock())


def test_the_slope_is_that_of_what_comes_behind_the_warm_up(worker: s.Worker) -> None:
    """It grows by 60 MB in the first minute, and then by half of one in each."""
    worker.samples = [(float(at), 100.0 + at, 90.0) for at in range(60)]
    worker.samples += [(float(at), 160.0 + (at - 60) / 120, 90.0) for at in range(60, 600)]
    assert worker.slope(60.0) == pytest.approx(0.5)
    assert worker.slope(60.0, 2) == pytest.approx(0.0)
    assert worker.slope(0.0) > s.LIMIT_MB


def test_an_incarnation_has_ended_when_another_one_has_begun(worker: s.Worker) -> None:
    """A leader names those of others in what it says; those are not counted here."""
    said = {"timestamp": "2026-11-29T22:00:00Z", "event": "readiness", "ready": False}
    for event in (
        {"incarnation": "000001-a"},
        {"incarnation": "000002-a"},
        {"incarnation": "000009-b", "event": "worker is dead"},
    ):
        worker._take({**said, **event})
    assert list(worker.incarnations) == ["000001-a", "000002-a"]


def found(**other: Any) -> dict[str, Any]:
    """The figures of a soak in which all went well."""
    worker = {
        "name": "worker-1", "slope_mb_per_min": 0.4, "pss_slope_mb_per_min": 0.4, "first_mb": 100.0, "last_mb": 130.0, "max_mb": 131.0,
        "incarnations": [-1.0, 700.0, 900.0], "samples": [(at, 100.0 + at / 60, 90.0) for at in range(1800)],
    }  # fmt: skip
    plain = {"minutes": 30.0, "warm_s": 600.0, "incarnations_ended": 50, "wrong": "", "workers": [worker]}
    return {**plain, "disturbances": [(700.0, "stop", ""), (800.0, "move", ""), (850.0, "broker", "")], **other}


def test_growth_too_few_incarnations_and_wrong_counts_are_faults() -> None:
    """In a quick run growth is none: two minutes are no time for a slope."""
    assert s.faults(found(), quick=False) == []
    assert s.faults(found(incarnations_ended=49), quick=False) == ["49 incarnations have ended, 50 were wanted"]
    assert s.faults(found(minutes=2.0, incarnations_ended=3), quick=True) == []
    assert s.faults(found(wrong="3 of 10 keys differ"), quick=True) == ["3 of 10 keys differ"]
    grows = found(workers=[{**found()["workers"][0], "slope_mb_per_min": 1.01}])
    assert s.faults(grows, quick=False) == ["worker-1 grows by 1.01 MB a minute, 1 is allowed"]
    assert s.faults(grows, quick=True) == []


def test_the_plot_shows_each_worker_and_when_it_was_disturbed() -> None:
    """The first incarnation of a worker is no disturbance."""
    drawings = soak_plot.drawn(found())
    assert list(drawings) == ["light", "dark"]
    for drawing in drawings.values():
        root = ET.fromstring(drawing)
        assert len([one for one in root if one.tag.endswith("polyline")]) == 1
        ticks = [one.attrib["d"].count("v11") for one in root if one.attrib.get("stroke-width") == "1.6"]
        assert ticks == [2, 1, 1]
        assert "worker-1: +0.40 MB a minute" in drawing
