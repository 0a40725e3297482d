"""What a process records: every step of its machines, with secrets masked, off the loop; a disk that refuses stops the story alone."""

from __future__ import annotations

import gc
import resource
import signal

import pytest
import structlog

import headgate as hg
from headgate.agents.kafka.port import WallClock
from headgate.agents.stories import recorder as module
from headgate.agents.stories.files import MAGIC, files_in
from headgate.agents.stories.reading import StoryReader
from headgate.agents.stories.texts import wanted
from headgate.core.coordination import messages as c
from headgate.core.progress.frames import UserFrame
from headgate.core.task import protocol as t

from .machines import AT, Clock, chunk, feed, recorder, released, started


def events(folder, of=""):
    lines, more = StoryReader(folder).lines(wanted(of, everything=True))
    assert more == 0
    return [one.event for one in lines]


def test_every_step_is_written_once_and_in_order(tmp_path):
    clock = Clock()
    keeper = recorder(tmp_path, clock)
    task = started(keeper, clock)
    keeper.turn()
    feed(task, clock, *chunk(10), *chunk(20))
    keeper.turn()
    keeper.turn()
    assert events(tmp_path) == [
        "Start", "StoreOpened", "LogEnds", "Restored", "OffsetsResolved", "CommitBegins", "CommitDone",
        "ChunkTaken", "ChunkDone", "ChunkTaken", "ChunkDone",
    ]  # fmt: skip
    assert (keeper.written, keeper.lost) == (11, 0)
    lines, _ = StoryReader(tmp_path).lines(wanted(everything=True))
    assert [one.line().event for one in lines][-1] == t.ChunkDone(AT, 20)
    assert [one.at_ms for one in lines] == sorted(one.at_ms for one in lines)
    assert {one.who.worker for one in lines} == {"w1"}


def test_an_event_that_a_machine_refuses_is_in_its_story(tmp_path):
    """The event after which nothing went on is the one that is looked for."""
    clock = Clock()
    keeper = recorder(tmp_path, clock)
    task = started(keeper, clock)
    with pytest.raises(Exception, match="cannot take"):
        feed(task, clock, t.StoreClosed())
    keeper.turn()
    (*_, last), _ = StoryReader(tmp_path).lines(wanted())
    assert (last.event, last.decided) == ("StoreClosed", ["Raised"])
    assert "IllegalEvent: Task in state 'working' cannot take StoreClosed()" in str(last.line().instructions)


def test_machines_that_are_gone_are_forgotten_once_all_is_written(tmp_path):
    clock = Clock()
    keeper = recorder(tmp_path, clock)
    task = started(keeper, clock)
    released(task, clock)
    del task
    gc.collect()
    keeper.turn()
    assert events(tmp_path)[-1] == "StoreClosed"
    assert keeper._followed == []


def test_secrets_are_masked_wherever_they_stand(tmp_path):
    """In reasons and in settings, by value and by name, as in logs; the decision that repeats one has it masked as well."""
    clock = Clock()
    keeper = recorder(tmp_path, clock, secrets=["hunter2!", "abc"])
    task = started(keeper, clock)
    feed(
        task, clock, *chunk(10)[:1], t.WorkFailed("no login with hunter2! at postgres://me:open-secret@db", final=True)
    )
    packed = keeper._packer.value([c.SetConfig("registry.password", "deep-secret"), c.SetRequest("u", "set-config", arguments={
        "setting": "registry.password", "value": "other-secret", "note": "sc://h/;token=third-secret"})])  # fmt: skip
    keeper.turn()
    (*_, failed), _ = StoryReader(tmp_path).lines(wanted())
    why = "no login with *** at postgres://me:***@db"
    assert failed.line().event == t.WorkFailed(why, final=True)
    assert t.TaskNote("failed", why, "error") in failed.line().instructions
    assert not hg.testing.replay(tmp_path).differs
    assert not any(word in packed for word in (b"deep-secret", b"other-secret", b"third-secret"))


def test_records_of_users_do_not_get_in(tmp_path):
    """Frames hold rows. Should a machine ever be given one, its class is named and nothing else of it."""
    packed = recorder(tmp_path, Clock())._packer.value([t.ControlAtHead(AT, 1, UserFrame(b"a customer"))])
    assert b"customer" not in packed
    assert b"UserFrame" in packed


def test_a_full_disk_stops_the_story_and_says_so_once(tmp_path):
    """The system refuses to write more: the machine goes on, what is lost is counted, and the story goes on once there is room, with a line
    that says how much is missing."""
    clock = Clock()
    keeper = recorder(tmp_path, clock)
    task = started(keeper, clock)
    keeper.turn()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with structlog.testing.capture_logs() as said:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(MAGIC), before[1]))
        try:
            feed(task, clock, *chunk(10))
            keeper.turn()
            feed(task, clock, *chunk(20))
            keeper.turn()
            clock.mono += module.AGAIN_S
            feed(task, clock, *chunk(30))
            keeper.turn()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, ignored)
    assert [(one["event"], one["log_level"]) for one in said] == [
        ("the story of this worker is not written", "warning")
    ]
    assert "make room on the disk" in said[0]["to_do"]
    assert keeper.lost == 6
    feed(task, clock, *chunk(40))
    clock.mono += module.AGAIN_S
    keeper.turn()
    lines, _ = StoryReader(tmp_path).lines(wanted(everything=True))
    assert [one.line().event for one in lines][-2:] == list(chunk(40))
    assert lines[-1].part.lost == 6
    assert len(files_in(tmp_path)) == 2  # a file that got nothing is removed
    assert task.position(AT) == 40


def test_what_waits_for_a_disk_that_does_not_answer_is_bounded(tmp_path, monkeypatch):
    """The thread hangs in a write: the loop drops what has gathered, and counts it."""
    monkeypatch.setattr(module, "MOST_WAITING", 10)
    clock = Clock()
    monkeypatch.setattr(clock, "call_later", lambda *_: None)
    keeper = recorder(tmp_path, clock)
    task = started(keeper, clock)
    keeper._look()
    assert keeper.lost == 0
    feed(task, clock, *chunk(10), *chunk(20))
    keeper._look()
    assert keeper.lost == 11
    assert all(not one.tape for one in keeper._followed)


@pytest.mark.asyncio
async def test_the_end_of_a_process_writes_the_last_lines(tmp_path):
    """Long before the next turn is due."""
    clock = WallClock()
    keeper = recorder(tmp_path, clock)
    keeper._every_s = 3600.0
    keeper.start()
    ticking = Clock()
    task = started(keeper, ticking)
    feed(task, ticking, *chunk(10))
    await keeper.stop()
    assert events(tmp_path)[-1] == "ChunkDone"
