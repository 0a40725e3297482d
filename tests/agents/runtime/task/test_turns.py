"""The turns of the loop: letters one after the other, about 3 ms in all, and none while a commit has not had its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import wraps
from itertools import pairwise
from pathlib import Path

import pytest

from headgate.agents.measured import Clocks, Meter, clocks_of_thread, starved_s
from headgate.agents.runtime.task.turns import KEPT_TURNS, SHIFT_NS, SPARE, BetweenRows, LoopTurns, Share
from headgate.core.turns import EVERY, QUIET_NS, TURN_NS

MS = 1_000_000


def clocks(now_ns: Callable[[], int]) -> Clocks:
    """Both clocks are the same: no other process takes the processor."""
    return Clocks(now_ns, now_ns, lambda: 0)


def looped(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    """A test that runs in a loop of its own."""

    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


class Loop:
    """Counts the turns of the running loop, and a clock that only letters move."""

    def __init__(self) -> None:
        self.turn = 0
        self.ns = 0
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self.turn += 1
        asyncio.get_running_loop().call_soon(self._next)


async def letters(turns: LoopTurns, loop: Loop, task: str, costs: list[int], ran: list[tuple[int, str]]) -> None:
    """One task: its letters hold the loop for these times."""
    share = Share()
    for number, cost in enumerate(costs, 1):
        share.more = number < len(costs)
        began = await turns.enter(share, cost)
        ran.append((loop.turn, task))
        loop.ns += cost
        turns.used(share, began, cost, cost)
        turns.ended(share, cost)
        await asyncio.sleep(0)


async def together(costs: dict[str, list[int]], hurried: Callable[[], bool] = lambda: False) -> list[tuple[int, str]]:
    """The letters of these tasks, as they ran: in which turn, and whose."""
    loop, ran = Loop(), list[tuple[int, str]]()
    turns = LoopTurns(clocks(lambda: loop.ns), hurried)
    await asyncio.gather(*(letters(turns, loop, task, costs, ran) for task, costs in costs.items()))
    return ran


def by_turn(ran: list[tuple[int, str]]) -> list[str]:
    """Whose letters ran in each turn that had some."""
    return ["".join(task for turn, task in ran if turn == one) for one in dict.fromkeys(turn for turn, _ in ran)]


@looped
async def test_no_turn_takes_longer_than_its_time() -> None:
    """Letters of 64 tasks take 2 ms, under a commit: one runs in a turn."""
    names = [chr(ord("0") + n) for n in range(64)]

    ran = await together({name: [2 * MS] * 3 for name in names}, lambda: True)

    assert by_turn(ran) == [name for name in names for _ in range(3)]


@looped
async def test_a_task_with_a_backlog_has_shifts() -> None:
    """Three tasks, each with a backlog of 10 ms letters: each goes on until it has had `SHIFT_NS` more than the one that is most behind."""
    letter, shift = 10 * MS, SHIFT_NS // (10 * MS)

    ran = await together({name: [letter] * 2 * shift for name in "abc"})

    order = "".join(task for _, task in ran)
    assert order[: 3 * (shift + 1)] == "a" * (shift + 1) + "b" * (shift + 1) + "c" * (shift + 1)
    assert sorted(order) == sorted("abc" * 2 * shift)


@looped
async def test_a_task_that_had_nothing_to_do_comes_next() -> None:
    """Two tasks with backlogs, long at work, and a third one with its first letter: it runs after the letter that runs, and it is not owed
    what the others have had."""
    loop, ran = Loop(), list[tuple[int, str]]()
    turns = LoopTurns(clocks(lambda: loop.ns), lambda: False)
    make = asyncio.get_running_loop().create_task
    busy = [make(letters(turns, loop, name, [QUIET_NS] * 40, ran)) for name in "ab"]
    while len(ran) < 23:  # noqa: ASYNC110 - each turn of the loop counts
        await asyncio.sleep(0)
    new = make(letters(turns, loop, "c", [QUIET_NS] * 40, ran))
    await asyncio.gather(*busy, new)

    order = "".join(task for _, task in ran)
    first = order.index("c")
    assert first <= 25
    assert 0 < order[first:50].count("c") <= 2 * SHIFT_NS // QUIET_NS + (50 - first) // 3 + 1


@looped
async def test_the_shift_is_not_kept_for_a_letter_that_waits() -> None:
    """While the letter of a task awaits something, or the task has nothing to do, others run: after a few turns of the loop at most."""
    loop, ran = Loop(), list[tuple[int, str]]()
    turns = LoopTurns(clocks(lambda: loop.ns), lambda: False)
    share = Share()
    share.more = True
    turns.used(share, await turns.enter(share, MS), MS, MS)  # its letter awaits something
    await letters(turns, loop, "b", [MS], ran)
    assert loop.turn <= 2

    turns.used(share, await turns.enter(share, MS), MS, MS)
    turns.ended(share, MS)
    began = loop.turn
    await letters(turns, loop, "c", [MS], ran)
    assert KEPT_TURNS - 1 <= loop.turn - began <= KEPT_TURNS + 4


@looped
async def test_short_letters_share_a_turn() -> None:
    """Letters of six tasks: three of them fit into a turn while a commit is under way, and three that are longer while none is."""
    short, long = {name: [TURN_NS // 3] for name in "abcdef"}, {name: [QUIET_NS // 3] for name in "abcdef"}

    assert by_turn(await together(short, lambda: True)) == ["abc", "def"]
    assert by_turn(await together(long)) == ["abc", "def"]


@looped
async def test_a_letter_that_is_longer_than_a_turn_has_one_of_its_own() -> None:
    """One letter of a second, whose function is slow: it runs all the same, and others do not run in the same turn."""
    assert by_turn(await together({"a": [MS], "b": [1000 * MS], "c": [MS]})) == ["a", "b", "c"]


@looped
async def test_a_letter_that_took_longer_than_expected_leaves_less_of_its_turn() -> None:
    """Both are expected to take 1 ms; the first one takes a whole turn."""
    loop = Loop()
    turns = LoopTurns(clocks(lambda: 0), lambda: True)
    share = Share()
    turns.used(share, await turns.enter(share, MS), MS, TURN_NS)
    first = loop.turn
    await turns.enter(Share(), MS)

    assert loop.turn > first


@looped
async def test_a_commit_has_its_own_turns_between_those_of_letters() -> None:
    """Between two letters of 3 ms, a commit that is under way gets `SPARE` turns; when it is over, letters run in each turn."""
    under_way = True
    loop, ran = Loop(), list[tuple[int, str]]()
    turns = LoopTurns(clocks(lambda: loop.ns), lambda: under_way)
    make = asyncio.get_running_loop().create_task
    tasks = [make(letters(turns, loop, name, [TURN_NS] * 3, ran)) for name in "ab"]
    while len(ran) < 3:  # noqa: ASYNC110 - each turn of the loop counts
        await asyncio.sleep(0)
    under_way = False
    await asyncio.gather(*tasks)

    gaps = [late - early for (early, _), (late, _) in pairwise(ran)]
    assert all(gap >= SPARE for gap in gaps[:2])
    assert all(gap <= 2 for gap in gaps[3:])
    assert [task for _, task in ran] == list("aaabbb")


@looped
async def test_a_letter_that_awaits_gives_its_turn_away() -> None:
    """A letter that awaits holds the loop only with its own steps: its meter counts 1 ms and 2 ms, and nothing of the wait."""
    clock = 0

    async def work(gate: asyncio.Event) -> str:
        nonlocal clock
        clock += MS
        await gate.wait()
        clock += 2 * MS
        return "done"

    gate, meter, told = asyncio.Event(), Meter(clocks(lambda: clock)), list[int]()

    async def measured() -> str:
        return await meter.of(work(gate), lambda: told.append(meter.ns))

    letter = asyncio.get_running_loop().create_task(measured())
    await asyncio.sleep(0)
    clock += 1000 * MS
    gate.set()

    assert (await letter, meter.ns, told) == ("done", 3 * MS, [MS])


@looped
async def test_what_counts_of_a_letter_is_its_own_time() -> None:
    """A letter takes 2 ms on the processor, and 9 ms by the clock: those count if it has waited, and not if others had the processor."""
    wall = cpu = waits = 0

    async def work(own: int) -> None:
        nonlocal wall, cpu, waits
        wall, cpu, waits = wall + 9 * MS, cpu + 2 * MS, waits + own

    meter, found = Meter(Clocks(lambda: wall, lambda: cpu, lambda: waits)), list[int]()
    for own in (0, 1, 0):
        meter.begin()
        await meter.of(work(own))
        found.append(meter.ns)

    assert found == [2 * MS, 9 * MS, 2 * MS]


def test_a_thread_that_sleeps_has_waited() -> None:
    """By the clocks that a worker has."""
    found = clocks_of_thread()
    before = found.waits(), found.wall_ns(), found.cpu_ns()
    time.sleep(0.001)

    assert (found.waits() > before[0], found.wall_ns() - before[1] >= MS) == (True, True)
    assert found.cpu_ns() >= before[2]


def test_a_thread_learns_how_long_it_has_waited_for_a_processor(tmp_path: Path) -> None:
    """By the system, if it says so; a file that says less is no answer."""
    said = starved_s()
    assert said is None or said >= 0.0
    for text, found in (("12 3000000000 7\n", 3.0), ("12", None), ("", None)):
        (tmp_path / "schedstat").write_text(text)
        assert starved_s(tmp_path / "schedstat") == found
    assert starved_s(tmp_path / "none") is None


@looped
async def test_what_is_awaited_sees_its_cancellation_and_its_error() -> None:
    """A measured letter is cancelled, and fails, as it would without a meter."""
    meter, seen = Meter(clocks(lambda: 0)), list[str]()

    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def measured() -> None:
        await meter.of(work())

    letter = asyncio.get_running_loop().create_task(measured())
    await asyncio.sleep(0)
    letter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await letter

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        await meter.of(fails())
    assert seen == ["cancelled"]


@looped
async def test_a_task_that_ends_while_it_waits_holds_up_nobody() -> None:
    """The task is stopped while its letter waits for its turn, or when it has just been granted one: the others go on."""
    loop, ran = Loop(), list[tuple[int, str]]()
    turns = LoopTurns(clocks(lambda: loop.ns), lambda: False)
    make = asyncio.get_running_loop().create_task
    tasks = {name: make(letters(turns, loop, name, [TURN_NS], ran)) for name in "abcd"}
    await asyncio.sleep(0)
    tasks["b"].cancel()
    await asyncio.sleep(0)
    tasks["c"].cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)

    assert [task for _, task in ran if task not in "bc"] == ["a", "d"]


@looped
async def test_rows_that_run_one_by_one_give_the_loop_away_whenever_they_have_held_it_for_a_turn() -> None:
    """A letter under which a worker had died ran its thousands of rows in one turn of seconds."""
    loop = Loop()
    between, turns = BetweenRows(clocks(lambda: loop.ns)), list[int]()
    await between()
    for _ in range(7):
        loop.ns += TURN_NS // 3 + 1
        await between()
        turns.append(loop.turn)
    assert [later - one for one, later in pairwise(turns)] == [0, 1, 0, 0, 1, 0]
    loop.ns, before = 10 * TURN_NS, loop.turn
    await BetweenRows(None)()
    assert loop.turn == before


@looped
async def test_in_virtual_time_nothing_waits() -> None:
    """Without a clock, letters are as long as the settings permit, and begin at once."""
    turns = LoopTurns(None, lambda: True)

    assert turns.rows("in", 2000) == 2000
    assert [await turns.enter(Share(), 10 * TURN_NS) for _ in range(3)] == [0, 0, 0]


@looped
async def test_letters_are_longer_while_no_commit_is_under_way() -> None:
    """Rows of 1/8 ms: the settings are the upper bound, what is awaited at a time the lower one, and both hold from the first letter on."""
    under_way = False
    turns = LoopTurns(clocks(lambda: 0), lambda: under_way)

    assert [turns.rows("in", most, least) for most, least in ((2000, 1), (2000, 16), (5, 16))] == [1, 16, 5]

    for _ in range(EVERY * 3 + 1):
        rows = turns.rows("in", 2000)
        turns.learn("in", rows, rows * MS // 8)
    quiet = turns.rows("in", 2000)
    under_way = True

    assert (quiet, turns.rows("in", 2000)) == pytest.approx((QUIET_NS * 8 / MS, TURN_NS * 8 / MS), abs=1)
    assert turns.rows("in", 20) == 20
    assert turns.rows("other", 2000) == 1
