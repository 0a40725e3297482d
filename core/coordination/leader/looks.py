"""The request `grow`: the leader counts the partitions of the inputs now, and says what follows for each input that has got some.

- The answer rests on a count that began after the request had been accepted, by whichever leader answers it.
- What the inputs had is that of the model when it was accepted. So a look that was due just before is a part of what the model has, and the
  answer is that there is nothing new.
- It is done when each task that owns something new has been granted since, and runs; it has failed if such a task has. What waits for the
  next run does not hold it up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ...graph.model import JobModel
from ...orders import TaskState
from ..messages import CLOSED, AnswerState, SetAnswer, SetRequest, SetRun
from ..requests import GROW, grown_line, may_follow
from ..state import FINAL
from .answers import Answer, no_live_run, other_run
from .assignment import counted
from .draft import Draft
from .growing import growth
from .protocol import CountInputs

NOTHING = "no input has new partitions"
MOST_NAMED = 100
"""The most inputs that an answer names, because it is one message."""


def grow(draft: Draft, request: SetRequest) -> Answer | None:
    """Order the count, and remember what the inputs have so far."""
    run, model, before = draft.run, draft.state.model, draft.state.answer(request.uuid)
    accepted = "" if before is None else str(before.progress.get("run", ""))
    if run is None or run.state in CLOSED:
        closed = (
            "" if run is None else f"run {run.run_id} is {run.state}; what its inputs have got is read when it goes on"
        )
        return Answer(AnswerState.FAILED, closed) if accepted else no_live_run()
    if (wanted := accepted or request.run_id) and wanted != run.run_id:
        return other_run(f"the live run is {run.run_id}")
    if model is None or not model.is_of(run.run_id, run.deployment):
        return None
    if request.uuid not in draft.memory.looks:
        draft.memory.look += 1
        draft.memory.looks[request.uuid] = draft.memory.look
        draft.instructions.append(CountInputs(draft.memory.look))
    if accepted:
        return None
    was = {stream: model.streams[stream] for stream in draft.plan.inputs if stream in model.streams}
    return Answer(AnswerState.RUNNING, "", {"run": run.run_id, "since": draft.state.position, "was": was})


def answer_grow(draft: Draft) -> None:
    """Answer the requests whose count has returned, once the tasks run with what was taken up."""
    open_ones = {request.uuid for request in draft.state.open_requests() if request.verb == GROW}
    memory = draft.memory
    memory.looks = {uuid: number for uuid, number in memory.looks.items() if uuid in open_ones}
    run, model = draft.run, draft.state.model
    if run is None or run.state in CLOSED or model is None or not model.is_of(run.run_id, run.deployment):
        return
    for uuid, number in memory.looks.items():
        before = draft.state.answer(uuid)
        if before is None or before.state in FINAL or number > memory.looked:
            continue
        if (found := _found(draft, run, model, before.progress)) is not None:
            answer = SetAnswer(uuid, found.state, found.why, found.progress or {})
            if may_follow(before, answer):
                draft.put(answer)


def _found(draft: Draft, run: SetRun, model: JobModel, progress: Mapping[str, Any]) -> Answer | None:
    was: Mapping[str, int] = progress["was"]
    said = {one["input"]: one for one in (*_taken(draft, model, was), *_refused(draft, run, model))}
    inputs = [said[name] for name in sorted(said)][:MOST_NAMED]
    new = [task for task, owned in model.tasks.items() if _more(draft, owned, was)]
    state, since = draft.state, int(progress["since"])
    if failed := [f"{task}: {why:.500}" for task in new if (why := state.failed().get(task))]:
        return Answer(AnswerState.FAILED, "; ".join(failed[:MOST_NAMED]), {**progress, "inputs": inputs})
    for task in new:
        held = state.held(task)
        if held is None or state.at["set-grant", (task,)][0] < since or state.says(task) not in _WORKS:
            left = {**progress, "inputs": inputs}
            return Answer(AnswerState.RUNNING, "", left)
    why = "; ".join(map(grown_line, inputs)) or NOTHING
    return Answer(AnswerState.DONE, why, {"run": run.run_id, "inputs": inputs})


_WORKS = (TaskState.RUNNING, TaskState.DRAINED, TaskState.ENDED)


def _more(draft: Draft, owned: Any, was: Mapping[str, int]) -> bool:
    inputs = draft.plan.graph.input
    return any(at.stream in inputs and at.partition >= was.get(at.stream, 0) for at in owned)


def _taken(draft: Draft, model: JobModel, was: Mapping[str, int]) -> list[dict[str, Any]]:
    """The inputs of which tasks have got partitions."""
    found: list[dict[str, Any]] = []
    for stream in draft.plan.inputs:
        had, now = was.get(stream, 0), model.streams.get(stream, 0)
        if now > had:
            more = Counter(
                task
                for task, owned in model.tasks.items()
                for at in owned
                if at.stream == stream and at.partition >= had
            )
            new = [task for task in more if not any(at.partition < was.get(at.stream, 0) for at in model.tasks[task])]
            old = [more[task] for task in more if task not in new]
            then: list[str] = []
            if old and len(set(old)) == 1:
                then.append(f"{_tasks(len(old))} {'one' if old[0] == 1 else old[0]} more")
            elif old:
                then.append(f"{len(old)} tasks read {sum(old)} more")
            if new:
                then.append(f"{len(new)} new task{'s' if len(new) > 1 else ''}")
            found.append({"input": stream, "was": had, "now": now, "read": True, "then": ", ".join(then)})
    return found


def _tasks(number: int) -> str:
    return f"each of {number} tasks reads" if number > 1 else "1 task reads"


def _refused(draft: Draft, run: SetRun, model: JobModel) -> list[dict[str, Any]]:
    """The inputs that have got partitions which this run does not read, and the topics that it does not."""
    counts, more = draft.memory.counts, draft.memory.more
    waits = growth(draft, run, model, counted(draft, run)).refused if counts else dict[str, str]()
    found = {stream: (model.streams.get(stream, 0), why) for stream, why in waits.items()}
    found |= {topic: (0, why) for topic, why in run.unjoined.items()}
    return [
        {"input": one, "was": had, "now": counts.get(one) or more.get(one, had), "read": False, "then": why}
        for one, (had, why) in found.items()
    ]
