"""Partitions that an input got while its run lives: which of them the run reads, and what its tasks become.

- The decision is the model in which tasks own the new partitions. It is for good: no later leader takes them away, and each takes up what
  the one before left. Without the model nothing was decided, and the next leader decides the same.
- A job with state keeps its tasks: from p to k·p partitions, partition n joins the task that owned n mod p. Members release each task whose
  partitions have changed, and are granted it again where it is; it continues from its checkpoint, and reads the new partitions from their
  beginning. A job without state may get new tasks; one of its tasks that gets more is treated as a task with state.
- A task gets more only under the conditions under which a topic of a pattern joins (`joining.cannot`). New tasks change none of the others,
  so they need less: a run that runs, and an input without an end that was resolved when the run began.
- Inputs that grow at the same time are taken up together, if they fit together; otherwise as many of them as fit.
- What is not taken up is named in the run with the reason (`SetRun.ungrown`), and is looked at again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...errors import DeclarationError
from ...graph.grouping import Grouping
from ...graph.model import JobModel
from ...orders import TaskState
from ..messages import RunState, SetRun
from .draft import Draft
from .joining import Words, cannot, older, widened

GROWS = Words("them", "they are read", "a table, and what every task reads, is read", "they are read from the next run")


@dataclass(frozen=True, slots=True)
class Growth:
    """What is decided about the inputs that have grown."""

    tasks: Grouping | None = None
    """The tasks with all that is taken up; None: nothing is."""
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    """By input, why its new partitions are not read."""


def growth(draft: Draft, run: SetRun, before: JobModel, widths: Mapping[str, int]) -> Growth:
    """What becomes of the inputs whose width differs from that of the model. It is judged anew only when something has changed."""
    plan, had = draft.plan, before.streams
    differ = {
        stream: widths[stream] for stream in plan.inputs if widths.get(stream, had.get(stream)) != had.get(stream)
    }
    behind = {s: n for s in run.untils if s in had and (n := draft.memory.counts.get(s, 0)) > had[s]}
    if not differ and not behind:
        return Growth()
    ended = any(draft.state.says(task) == TaskState.ENDED for task in before.tasks)
    about = (run.run_id, run.state, run.joined, before.term, before.version, older(draft), ended)
    about = (*about, frozenset(differ.items()), frozenset(behind))
    if draft.memory.grown is None or draft.memory.grown[0] != about:
        draft.memory.grown = (about, _decided(draft, run, before, differ, behind))
    return draft.memory.grown[1]


def _decided(
    draft: Draft, run: SetRun, before: JobModel, differ: Mapping[str, int], behind: Mapping[str, int]
) -> Growth:
    had, stateful = before.streams, draft.plan.stateful
    refused = dict.fromkeys(behind, f"its end was resolved when the run began, so {GROWS.next_run}")
    grown = {stream: width for stream, width in differ.items() if width > had.get(stream, width)}
    if run.state != RunState.RUNNING:
        return Growth(None, refused | dict.fromkeys(grown, f"the run drains, so {GROWS.next_run}"))
    # without state, what has joined the run may need new tasks, and an input that has shrunk is an error at once
    base = {} if stateful else {stream: width for stream, width in differ.items() if stream not in grown}
    taken, tasks, left = dict(base), None, dict(grown)
    if stateful:
        barred = {stream: why for stream in grown if (why := cannot(draft, run, draft.plan.graph.input[stream], GROWS))}
        refused |= barred
        left = {stream: width for stream, width in grown.items() if stream not in barred}
    tries = [left, *({stream: width} for stream, width in sorted(left.items()))] if len(left) != 1 else [left]
    while tries:
        some = tries.pop(0)
        if not some and not base:
            continue
        try:
            tasks = _with(draft, run, before, {**taken, **some})
        except DeclarationError as error:
            why = f"{error.what}; {error.remedy}" if error.remedy else error.what
            refused |= dict.fromkeys(some, why)
            if not some:
                draft.note_once(f"the tasks cannot be created: {why}", level="error")
            continue
        refused = {stream: why for stream, why in refused.items() if stream not in some}
        taken |= some
        # one that did not fit before may fit now
        tries = [{stream: left[stream]} for stream in sorted(left) if stream not in taken]
    return Growth(tasks, refused)


def _with(draft: Draft, run: SetRun, before: JobModel, more: Mapping[str, int]) -> Grouping:
    """The tasks with these inputs as wide as they are now. Raises `DeclarationError` if a task must not be given what it would get."""
    tasks, had = widened(draft.plan, before, more), before.streams
    if any(at.stream in had and at not in owned for task, owned in before.tasks.items() for at in tasks[task]):
        for stream in sorted(more.keys() & had.keys()):
            if why := cannot(draft, run, draft.plan.graph.input[stream], GROWS):
                raise DeclarationError(why)
    return tasks
