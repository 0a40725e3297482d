"""Planted bugs of lookups (see `planted` and `lookups`)."""

from __future__ import annotations

from typing import Any

from .lookups import ONE, SEVERAL
from .plant import Plant

Patches = list[tuple[Any, str, Any]]


def answers_outlive_their_life() -> Patches:
    from headgate.agents.operators.lookups.answers import Answers
    from headgate.agents.operators.lookups.lookup import LookupOp

    original, shared = LookupOp.__init__, Answers(100, 2000)

    def init(self: Any, *arguments: Any) -> None:
        original(self, *arguments)
        self.cache = shared

    return [(LookupOp, "__init__", init)]


def rows_go_on_as_their_answers_come() -> Patches:
    from headgate.agents.operators.base.stateless import Operator
    from headgate.agents.operators.lookups.lookup import LookupOp

    def forward(self: Any, rows: Any) -> None:
        Operator.forward(self, rows.with_values(sorted(rows.values, key=lambda row: row["answer"]["came"])))

    return [(LookupOp, "forward", forward)]


def answers_are_taken_from_behind() -> Patches:
    from headgate.agents.operators.lookups.lookup import LookupOp

    original = LookupOp._take

    def take(self: Any, group: Any, found: Any, asking: Any) -> None:
        original(self, group, found[::-1], asking)

    return [(LookupOp, "_take", take)]


def an_open_circuit_is_an_error_of_the_rows() -> Patches:
    from headgate.agents.learning import MustLearn
    from headgate.agents.operators.lookups.lookup import LookupOp

    original = LookupOp._ask_all

    async def ask_all(self: Any, asking: Any) -> None:
        try:
            await original(self, asking)
        except MustLearn as error:
            asking.failed.update(dict.fromkeys(asking.left(), ValueError(str(error))))

    return [(LookupOp, "_ask_all", ask_all)]


LOOKUPS: tuple[Plant, ...] = (
    Plant(
        "answers-outlive",
        "a task takes answers that were asked for under an older grant",
        answers_outlive_their_life,
        (ONE,),
    ),
    Plant(
        "answers-overtake",
        "rows go on in the order in which their answers come",
        rows_go_on_as_their_answers_come,
        (SEVERAL,),
    ),
    Plant(
        "answers-swapped",
        "the answers to several questions are taken from the last one on",
        answers_are_taken_from_behind,
        (SEVERAL,),
    ),
    Plant(
        "away-is-bad",
        "rows whose service is away are judged as if it had refused them",
        an_open_circuit_is_an_error_of_the_rows,
        (SEVERAL,),
    ),
)
