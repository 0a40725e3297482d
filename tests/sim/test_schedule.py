"""The heap keeps its order, delays frozen processes, drops the events of dead ones, and does the same for the same seed."""

from __future__ import annotations

from tests.sim.schedule import Host, Schedule


def drain(schedule: Schedule) -> None:
    while schedule.step():
        pass


def test_things_happen_in_the_order_of_their_time_and_then_of_asking():
    """Two events at the same moment happen in the order in which they were scheduled."""
    schedule, seen = Schedule(1), []
    schedule.at(2.0, seen.append, "c")
    schedule.at(1.0, seen.append, "a")
    schedule.at(1.0, seen.append, "b")
    drain(schedule)
    assert seen == ["a", "b", "c"]
    assert schedule.moment == 2.0


def test_a_frozen_process_sees_everything_later_and_in_order():
    """SIGSTOP loses nothing: events are there when the process wakes, while others continued."""
    schedule, seen = Schedule(1), []
    frozen, other = Host(schedule, "w1"), Host(schedule, "w2")
    schedule.post(frozen, 1.0, seen.append, "first")
    schedule.post(frozen, 2.0, seen.append, "second")
    schedule.post(other, 3.0, seen.append, "other")
    schedule.post(frozen, 6.0, seen.append, "third")
    frozen.freeze(5.0)
    drain(schedule)
    assert seen == ["other", "first", "second", "third"]


def test_what_was_meant_for_a_life_that_has_ended_is_dropped():
    """An answer that comes after a kill reaches nobody."""
    schedule, seen = Schedule(1), []
    host = Host(schedule, "w1")
    schedule.post(host, 1.0, seen.append, "answer")
    host.kill()
    drain(schedule)
    assert seen == []


def test_clocks_of_two_processes_cannot_be_compared():
    """Monotonic clocks have origins of their own. Wall clocks agree until one jumps, which does not affect monotonic time."""
    schedule = Schedule(1)
    one, two = Host(schedule, "w1"), Host(schedule, "w2")
    before = one.now()
    two.wall_offset_ms = -3_600_000
    schedule.at(1.5, lambda: None)
    drain(schedule)
    assert round(one.now().mono - before.mono, 6) == 1.5
    assert one.now().wall - before.wall == 1500
    assert two.now().wall < before.wall
    assert abs(one.now().mono - two.now().mono) > 1.0


def test_a_trace_is_written_only_when_someone_wants_it():
    """Without a trace nothing is formatted; with one, each line has the step, the time, the process and the event."""
    schedule = Schedule(1)
    schedule.note("w1", "nothing")
    schedule.trace = []
    schedule.note("w1", "commit", "Partition 3", 17)
    assert schedule.trace == ["     0     0.000  w1             commit             Partition 3 17"]


def test_latency_is_drawn_from_the_seed():
    """The same seed gives the same delays, another seed others."""
    assert [Schedule(7).latency() for _ in range(3)] == [Schedule(7).latency() for _ in range(3)]
    assert Schedule(7).latency() != Schedule(8).latency()
