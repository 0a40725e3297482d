"""The time of a step over several streams: derived once, told with the letter, known after a restart."""

from __future__ import annotations

import pytest

from headgate.core.progress.frames import MAX_TIME, NO_TIME
from headgate.core.progress.producers import StreamPhase
from headgate.core.task.rows import pack_rows, unpack_rows
from headgate.core.task.time import Heard, Through, time_through

from ..task_rig import BY, BY0, ORDERS0, eos, merged, rows_of, run_view, wm

BOTH = ["a", "b"]


@pytest.mark.parametrize(
    ("heard", "idle", "found"),
    [
        ({}, "", Through(NO_TIME, False)),
        ({"a": Heard(5)}, "", Through(NO_TIME, False)),
        ({"a": Heard(5), "b": Heard(9)}, "", Through(5, False)),
        ({"a": Heard(5), "b": Heard(9)}, "a", Through(9, False)),
        ({"a": Heard(5), "b": Heard(9)}, "ab", Through(5, True)),
        ({"a": Heard(5, StreamPhase.ENDED), "b": Heard(9)}, "", Through(9, False)),
        ({"a": Heard(5, StreamPhase.ENDED), "b": Heard(9)}, "b", Through(9, True)),
        ({"a": Heard(MAX_TIME, StreamPhase.DRAINED), "b": Heard(9)}, "", Through(9, False)),
        ({"a": Heard(5, StreamPhase.ENDED), "b": Heard(9, StreamPhase.DRAINED)}, "", None),
    ],
)
def test_the_least_of_those_that_go_on(heard, idle, found):
    """What has ended, drained or fallen silent holds nobody up; if nothing moves, nothing is said to move."""
    assert time_through({"a", "b"}, BOTH, heard, lambda stream: stream in idle) == found


def test_what_does_not_lead_there_does_not_count():
    assert time_through({"a"}, BOTH, {"a": Heard(5)}, lambda stream: False) == Through(5, False)
    assert time_through({"c"}, BOTH, {"a": Heard(5)}, lambda stream: False) is None


def test_when_one_stream_has_ended_the_time_goes_on():
    """An actor over two inputs heard no watermark any more, though one of them went on: its timers never fired."""
    rig = merged()
    rig.hear(BY0, eos("a"))
    assert rig.letters(last=True) == [("end", BY, None), ("watermark", None, None)]
    assert rig.times() == {"both": 200, "one": 200}
    rig.chunk(ORDERS0, 9, 300)
    rig.wait(1.0)
    assert rig.times() == {"both": 300, "one": 300}


def test_when_one_stream_is_idle_the_time_goes_on_and_never_back():
    """The same where a stream only says nothing; what it says later does not take anything back."""
    rig = merged()
    rig.hear(BY0, wm("a", 60, idle=True))
    rig.wait(1.0)
    assert rig.times()["both"] == 200
    rig.hear(BY0, wm("a", 70))
    rig.wait(1.0)
    assert rig.times()["both"] == 200


def test_after_a_restart_the_time_is_known_before_the_first_letter():
    """It was unknown until every stream had moved: one that had ended never did."""
    rig = merged()
    rig.hear(BY0, eos("a"))
    rig.commit()
    assert rows_of(rig)[":time", "both"][1:] == (200,)
    stored = [(key, value) for key, value in pack_rows(rows_of(rig)).items() if value is not None]
    assert dict(unpack_rows(stored)) == rows_of(rig)  # what is stored can be read by whoever restores it
    again = rig.again(run_view("a"))
    assert again.task.step_times == {"both": 200, "one": 200}
    again.chunk(ORDERS0, 9, 300)
    again.wait(1.0)
    assert again.times() == {"both": 300, "one": 300}
