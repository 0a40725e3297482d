"""Topics that match a pattern of the job and have come since its run began: which of them join the run, and what their tasks become.

- The decision is a part of the run (`SetRun.joined`), and is for good: the model follows in the same transaction, or as soon as it can.
  Members release each task whose partitions the model has changed, and are granted it again; it continues from its checkpoint, and reads
  the topic from its beginning.
- A topic joins only where that changes nothing else: each task keeps its partitions and its worker, and gets those of the topic, by the
  rules for a stream that is new to the job. A job without state may get tasks for it.
- Only an input without an end joins, in a run without ends, which neither drains nor closes and of which no task has ended. A table and an
  input that every task reads would have to be read first, so they wait for the next run.
- No topic joins while a worker of an older version is there, as in a rolling upgrade: it could not go on with its tasks. When a topic has
  joined, such a worker gets no tasks of this run.
- A topic that does not join is named in the run with the reason (`SetRun.unjoined`), and is looked at again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from ...errors import DeclarationError
from ...graph.graph import Input
from ...graph.grouping import Grouping
from ...graph.model import JobModel, producer_sets
from ...graph.resolve import resolve
from ...orders import TaskState
from ..messages import RunState, SetJobModel, SetRun
from .damage import unknown
from .draft import Draft
from .plan import Plan

MOST_NAMED = 100
"""How many topics are named that do not join: the run is one message."""


class Words(NamedTuple):
    """How a refusal speaks of what it refuses."""

    it: str
    later: str
    first: str
    next_run: str


JOINS = Words("it", "it joins", "a table, and what every task reads, is read", "it is read from the next run")


def join(draft: Draft) -> None:
    """Take up the topics that have come, and give their partitions to the tasks."""
    run, before = draft.run, draft.state.model
    if run is None or before is None or not _open(draft, run, before):
        return
    run = _decided(draft, run, before)
    _take_up(draft, run, before)


def _decided(draft: Draft, run: SetRun, before: JobModel) -> SetRun:
    """The run with those topics that join it now. It is judged anew only when something has come or gone."""
    about = (run.run_id, run.joined, frozenset(draft.memory.more.items()), older(draft))
    if draft.memory.considered == about:
        return run
    draft.memory.considered = about
    joined, refused = run.joined, dict[str, str]()
    for topic, width in sorted(draft.memory.more.items()):
        if topic in joined:
            continue
        plan = draft.config.plan.joined((*joined, topic))
        found = plan.graph.input.get(topic)
        if found is None:
            continue
        try:
            why = cannot(draft, run, found, JOINS)
            if not why:
                widened(plan, before, {**_widths(draft, joined, before), topic: width})
                joined = (*joined, topic)
                draft.note("a topic joins the run", topic=topic, partitions=width, run=run.run_id)
        except DeclarationError as error:
            why = f"{error.what}; {error.remedy}" if error.remedy else error.what
        if why and len(refused) < MOST_NAMED:
            refused[topic] = why
            draft.note_once(f"the topic '{topic}' matches a pattern and does not join the run: {why}", level="warning")
    if joined == run.joined and refused == run.unjoined:
        return run
    run = replace(run, joined=joined, unjoined=refused)
    draft.put(run)
    return run


def _open(draft: Draft, run: SetRun, before: JobModel) -> bool:
    """Whether the run may change now."""
    lost = unknown(draft, "set-run") or unknown(draft, "set-job-model")
    same = before.is_of(run.run_id, run.deployment)
    return (
        same and not lost and run.state == RunState.RUNNING and not run.closing and draft.config.plan.wider is not None
    )


def older(draft: Draft) -> tuple[str, ...]:
    """The workers whose version cannot go on with a task that gets more to read."""
    return tuple(name for name, worker in draft.workers().items() if not worker.widens)


def cannot(draft: Draft, run: SetRun, one: Input, words: Words) -> str:
    """Why a task of this run cannot be given more of this input, whatever its width; empty if it may."""
    if behind := older(draft):
        version = draft.workers()[behind[0]].version
        named = (
            f"worker '{behind[0]}' has version {version}" if version else f"worker '{behind[0]}' has an older version"
        )
        return f"{named}, which cannot take {words.it} up: {words.later} when all workers are upgraded"
    if run.untils or one.until is not None:
        return f"the run ends where its inputs ended when it began, so {words.next_run}"
    if one.bootstrap or one.broadcast or one.producers:
        return f"{words.first} before anything else, so {words.next_run}"
    model = draft.state.model
    if any(draft.state.says(task) == TaskState.ENDED for task in (() if model is None else model.tasks)):
        return f"a task of the run has ended, so {words.next_run}"
    return ""


def _widths(draft: Draft, joined: tuple[str, ...], before: JobModel) -> dict[str, int]:
    """The partition counts of the topics that have joined and that no task has yet, as far as they are known."""
    had = before.streams
    return {topic: draft.memory.more[topic] for topic in joined if topic in draft.memory.more and topic not in had}


def widened(plan: Plan, before: JobModel, more: Mapping[str, int]) -> Grouping:
    """The tasks with these widths of inputs, and those of the model for the others. Raises `DeclarationError` where a task would lose a
    partition, or anything else would change.
    """
    had = before.streams
    counts = {**{stream: had[stream] for stream in plan.inputs if stream in had}, **more}
    tasks = resolve(plan.graph, counts, grouper=plan.grouper, before=before.tasks, name=plan.grouper_name)
    for task, owned in before.tasks.items():
        kept = tuple(at for at in tasks.get(task, ()) if at.partition < had.get(at.stream, 0))
        if kept != owned:
            raise DeclarationError(f"the partitions of '{task}' would change", remedy=JOINS.next_run)
    return tasks


def with_tasks(draft: Draft, before: JobModel, tasks: Grouping) -> JobModel:
    """The model in which the same tasks own more, each where it is placed."""
    producers = producer_sets(draft.plan.graph.fed, tasks, before.producers)
    return replace(before, term=draft.term, version=before.version + 1, tasks=tasks, producers=producers)


def _take_up(draft: Draft, run: SetRun, before: JobModel) -> None:
    """Write the model in which the tasks own the partitions of what has joined."""
    plan = draft.plan
    missing = {topic for topic in run.joined if topic in plan.graph.input} - before.streams.keys()
    counts = _widths(draft, run.joined, before)
    if not missing or not missing <= counts.keys():
        return
    try:
        tasks = widened(plan, before, counts)
    except DeclarationError as error:  # it has another width by now
        draft.note_once(f"topics that have joined cannot be read: {error}", level="error")
        return
    if tasks.keys() != before.tasks.keys():
        return  # `assignment` makes and places the tasks that are new
    draft.put(SetJobModel(with_tasks(draft, before, tasks)))
