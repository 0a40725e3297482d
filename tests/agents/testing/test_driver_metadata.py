"""What is asked of a test driver's job takes effect as it does on a worker: settings, pauses, drains, by the rules of the leader."""

from __future__ import annotations

import subprocess
import sys

import pytest

import headgate as hg


def copies(**settings: object) -> hg.App:
    app = hg.App("sales", settings=settings)
    app.input("orders").to("copies")
    return app


def values(d: hg.testing.Driver) -> list[int]:
    return [one.value for one in d.read("copies")]


def test_a_setting_that_changes_between_runs_waits_for_the_next() -> None:
    """As on a worker: it stands at once, and the run that is there does not have it."""
    with hg.testing.Driver(copies(**{"buffer.bytes": "1MiB"})) as d:
        d.metadata.put("config", "buffer.bytes", "64KiB")
        assert d.metadata.all("config") == {"buffer.bytes": "64KiB"}
        assert d._runtime.settings.text("buffer.bytes") == 1 << 20
        d.drain()
        d.restart()
        assert d._runtime.settings.text("buffer.bytes") == 64 << 10
        d.metadata.remove("config", "buffer.bytes")
        d.drain()
        d.restart()
        assert d._runtime.settings.text("buffer.bytes") == 1 << 20


def test_a_paused_job_reads_nothing_until_it_is_resumed() -> None:
    """Also over a restart: the pause is the run's."""
    with hg.testing.Driver(copies()) as d:
        d.metadata.put("requests", "p", {"verb": "pause", "arguments": {"stream": "orders"}})
        d.send("orders", 1)
        d.restart()
        d.send("orders", 2)
        assert values(d) == []
        d.metadata.put("requests", "r", {"verb": "resume"})
        assert values(d) == [1, 2]


def test_a_drain_that_is_asked_for_is_the_drivers_own() -> None:
    with hg.testing.Driver(copies()) as d:
        d.metadata.put("requests", "over", {"verb": "drain"})
        assert d.metadata.get("requests", "over")["state"] == "done"
        assert d.metadata.get("assignments", "Partition 0")["said"] == "drained"
        d.drain()
        with pytest.raises(hg.testing.DriverError, match="pause was refused: no live run"):
            d.metadata.put("requests", "late", {"verb": "pause"})
        d.restart()
        d.send("orders", 1)
        assert values(d) == [1]


def test_a_restart_is_another_grant_and_what_was_set_stands() -> None:
    with hg.testing.Driver(copies()) as d:
        d.metadata.put("config", "chunk.max-records", 3)
        d.restart()
        assert d.metadata.get("assignments", "Partition 0")["grant"] == 2
        assert [one.reading.intake.chooser.limit for one in d.tasks.values() if one.reading.intake is not None] == [3]


def test_what_needs_other_workers_is_refused() -> None:
    with (
        hg.testing.Driver(copies()) as d,
        pytest.raises(hg.testing.DriverError, match="a test driver has no move"),
    ):
        d.metadata.put("requests", "m", {"verb": "move", "arguments": {"task": "Partition 0", "to": "w2"}})


def test_one_id_asks_for_one_thing() -> None:
    """A request that waits for the next run is there until it is withdrawn."""
    with hg.testing.Driver(copies()) as d:
        d.drain()
        later = {"verb": "drain", "run": "run-9"}
        d.metadata.put("requests", "later", later)
        d.metadata.put("requests", "later", later)
        assert d.metadata.get("requests", "later")["state"] == "written"
        with pytest.raises(hg.testing.DriverError, match="'later' already exists"):
            d.metadata.put("requests", "later", {"verb": "pause"})
        d.metadata.remove("requests", "later")
        assert d.metadata.get("requests", "later")["state"] == "refused"


def test_its_examples_are_true() -> None:
    """In a process of their own: a worker that ran in this one has configured the log, and the driver shows it."""
    script = (
        "import doctest, headgate; from headgate.core.coordination import metadata\n"
        "assert doctest.testmod(metadata, extraglobs={'hg': headgate}).failed == 0"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
