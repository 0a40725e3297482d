"""Planted bugs of policies, timers and tables that are joined (see `planted` and `branches`)."""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any

from .plant import Plant

Patches = list[tuple[Any, str, Any]]


def every_second_letter() -> Patches:
    from headgate.agents.operators.pipeline import trouble

    original, numbers = trouble.bury, count()

    def bury(*said: Any) -> None:
        if next(numbers) % 2:
            original(*said)

    return [(trouble, "bury", bury)]


def timers_fired_by_a_failed_letter_are_gone() -> Patches:
    from headgate.agents.operators.actors.timers import Timers

    return [(Timers, "drop", Timers.complete)]


def first_time_of_a_timer_stays() -> Patches:
    from headgate.agents.operators.actors.timers import Timers

    original = Timers.set

    def set_(self: Any, name: str, kind: str, at: int) -> None:
        if self.get(name) is None:
            original(self, name, kind, at)

    return [(Timers, "set", set_)]


def rows_of_a_table_that_come_twice_are_removed() -> Patches:
    from headgate.agents.operators.plain.keyed import TableOp

    original = TableOp.push

    def push(self: Any, rows: Any) -> None:
        original(self, rows)
        twice = [key for key, n in Counter(rows.keys).items() if n > 1 and key is not None]
        self.table.remove(twice)

    return [(TableOp, "push", push)]


def a_key_that_waits_is_forgotten() -> Patches:
    from headgate.agents.operators.failures.parked import Parked

    original = Parked.keep_back

    def keep_back(self: Any, chunk: Any) -> Any:
        keys, self._keys = self._keys, {}
        try:
            return original(self, chunk)
        finally:
            self._keys = keys

    return [(Parked, "keep_back", keep_back)]


def parked_rows_that_ran_stay_in_the_table() -> Patches:
    from headgate.agents.operators.failures.parked import Parked

    original = Parked._try

    def try_(self: Any, chunk: Any) -> Any:
        kept = original(self, chunk)
        self._table.update(
            {number: row.packed(0, 1, row.most or 99, "") for number, row in zip(chunk.ids, chunk.rows, strict=True)}
        )
        return kept

    return [(Parked, "_try", try_)]


def the_last_row_of_a_released_key_is_the_first() -> Patches:
    from headgate.agents.operators.failures.parked import Parked

    original = Parked._release

    def release(self: Any, queues: Any) -> None:
        queues = list(queues)
        original(self, queues)
        for one in queues:
            self._queues[one].ids.reverse()

    return [(Parked, "_release", release)]


def a_release_is_not_remembered() -> Patches:
    from headgate.core.task.seeks import Seeks

    original = Seeks.unparked

    def unparked(self: Any, key: str, refused: str) -> Any:
        before = list(self.applied)
        said = original(self, key, refused)
        self.applied[:] = before
        return said

    return [(Seeks, "unparked", unparked)]


def what_was_not_seen_is_left_out_too() -> Patches:
    from headgate.agents.operators.failures.parked import Parked

    original = Parked._leave_out

    def leave_out(self: Any, queues: Any, upto: Any) -> None:
        original(self, queues, None)

    return [(Parked, "_leave_out", leave_out)]


def what_is_left_out_stays_in_the_table() -> Patches:
    from headgate.agents.operators.failures.parked import Parked

    original = Parked._leave_out

    def leave_out(self: Any, queues: Any, upto: Any) -> None:
        table = self._table
        self._table = type("Kept", (), {"__getitem__": table.__getitem__, "delete_many": lambda *_: None})()
        try:
            original(self, queues, upto)
        finally:
            self._table = table

    return [(Parked, "_leave_out", leave_out)]


def ticks_counted_by_their_process() -> Patches:
    from headgate.agents.operators.actors import ticking

    original = ticking.next_tick
    newest: dict[str, Any] = {}

    def next_tick(period_ms: int, last: Any, since: int, now: int) -> Any:
        return original(period_ms, newest.get("tick"), since, now)

    class Remembers(ticking.RunningTick):
        def __init__(self, op: Any, due: Any) -> None:
            super().__init__(op, due)
            newest["tick"] = ticking.LastTick(due.number, due.at)

    return [(ticking, "next_tick", next_tick), (ticking, "RunningTick", Remembers)]


BRANCHES: tuple[Plant, ...] = (
    Plant(
        "parked-overtaken",
        "a later record of a key that waits is not kept back",
        a_key_that_waits_is_forgotten,
        ("parks",),
    ),
    Plant(
        "parked-twice",
        "a parked record that has gone on stays in the table",
        parked_rows_that_ran_stay_in_the_table,
        ("parks",),
    ),
    Plant(
        "released-from-behind",
        "the rows of a key that is released are tried from the last one on",
        the_last_row_of_a_released_key_is_the_first,
        ("parks", "release"),
    ),
    Plant(
        "release-forgotten",
        "a release is answered, and no checkpoint remembers it",
        a_release_is_not_remembered,
        ("parks", "release"),
    ),
    Plant(
        "unseen-left-out",
        "an operator has parked rows left out, and those go, too, that are parked later",
        what_was_not_seen_is_left_out_too,
        ("parks", "leave-out"),
    ),
    Plant(
        "left-out-stays",
        "parked rows that an operator has left out are forgotten in memory alone",
        what_is_left_out_stays_in_the_table,
        ("parks", "leave-out"),
    ),
    Plant(
        "ticks-in-memory",
        "a tick counts before it is committed, so that it is lost with its transaction",
        ticks_counted_by_their_process,
        ("ticking", "kill"),
    ),
    Plant(
        "letters-left-out",
        "every second record that a policy makes a dead letter is dropped in silence",
        every_second_letter,
        ("dead_letter",),
    ),
    Plant(
        "timers-gone",
        "a timer that fired in a letter that failed is gone when the letter is tried again",
        timers_fired_by_a_failed_letter_are_gone,
        ("timers", "user-error"),
    ),
    Plant(
        "timers-stay",
        "a timer that is set again keeps its time",
        first_time_of_a_timer_stays,
        ("timers of event",),
    ),
    Plant(
        "rows-of-a-table-removed",
        "a row of a table is removed when its key comes twice in one chunk",
        rows_of_a_table_that_come_twice_are_removed,
        ("enriched",),
    ),
)
