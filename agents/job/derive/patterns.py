"""Inputs by pattern: `app.input(pattern="orders-.*")` stands for one input for each topic that matches, merged.

It decides which topics these are: their whole names match, and they are not headgate's, not the brokers', not written by the job, and not
declared as inputs of their own. So behind it all are inputs like any other: each has its partitions and its time, and tasks are made of
them as of any others. With `into=` each value is first told its topic.

Promise: the same topics make the same steps, in the order of their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ....core.errors import DeclarationError
from ....core.graph import patterned
from ....core.names import Topics
from ..steps.rows import MapStep, MergeStep
from ..steps.sources import InputStep, inputs_of
from ..steps.step import Step

NOT_LOOKED = "the topics of a pattern are known when a run begins"


def patterns_of(steps: Iterable[Step]) -> list[InputStep]:
    """The inputs that stand for the topics of a pattern."""
    return [step for step in steps if isinstance(step, InputStep) and step.pattern]


def matching(pattern: str, found: Iterable[str], steps: Sequence[Step], names: Topics) -> list[str]:
    """The topics among these that an input by this pattern reads."""
    own = {step.topic for step in steps if isinstance(step, InputStep) and not (step.pattern or step.matched)}
    own |= {topic for step in steps for topic in step.writes}
    return patterned.matching(pattern, found, own, names)


def expanded(steps: Sequence[Step], found: Iterable[str] | None, names: Topics) -> list[Step]:
    """The steps, with an input for each topic that a pattern matches. `found`: the topics that there are."""
    if not patterns_of(steps):
        return list(steps)
    if found is None:
        raise DeclarationError(
            NOT_LOOKED, remedy="`headgate plan MODULE:app` shows them; a test driver takes topics=[…]"
        )
    there = list(found)
    replaced: dict[int, Step] = {}
    result: list[Step] = []
    for step in steps:
        if isinstance(step, InputStep) and step.pattern:
            many = _inputs(step, matching(step.pattern, there, steps, names))
            result += many
            replaced[id(step)] = many[-1]
            continue
        linked = step.relinked(replaced)
        if linked is not step:
            replaced[id(step)] = linked
        result.append(linked)
    twice = [one.topic for one in result if isinstance(one, InputStep)]
    if len(twice) > len(inputs_of(result)):
        topic = next(one for one in twice if twice.count(one) > 1)
        raise DeclarationError(
            f"the topic '{topic}' matches two patterns of the job", remedy="patterns without overlap"
        )
    return result


def _inputs(step: InputStep, topics: list[str]) -> list[Step]:
    """What stands in place of a pattern, the merge last."""
    if not topics:
        raise DeclarationError(
            f"no topic matches {step.pattern!r} ({step.where})",
            remedy="create one, or correct the pattern; it is to match a whole name",
        )
    result: list[Step] = []
    ends: list[Step] = []
    for topic in topics:
        one: Step = replace(step, name=topic, topic=topic, pattern="", matched=step.pattern, into=None)
        result.append(one)
        if step.into is not None:
            one = MapStep(parents=(one,), fn=_with_topic(step.into, topic), name=f"{topic}-into", where=step.where)
            result.append(one)
        ends.append(one)
    return [*result, MergeStep(parents=tuple(ends), where=step.where)]


def _with_topic(into: Callable[[Any, str], Any], topic: str) -> Callable[[Any], Any]:
    def of_topic(value: Any) -> Any:
        return into(value, topic)

    return of_topic
