"""Which tasks exist and which workers should run them: grouping, placement, debounce, rejoin grace, growth.

- Tasks are created again when the run or its deployment changes, and when an input has grown (`growing`); never during a drain. An input
  whose bounds were resolved for the run keeps its number of partitions: its readers may have received the end of all its producers.
- Tasks are placed again when a worker has come or gone and no other has for `debounce`. The first model does not wait. They are also placed
  again when the leader has another placement than the one that placed them, as when a stopped run goes on with other settings.
- Stateful tasks of a processor that left, but was not declared dead, wait for its return for `rejoin-grace`, even if leaders change
  meanwhile. A drain does not wait. With `auto` they do not wait either if all of them can move to their standbys, or to workers at the
  location of their state: what they replay there is short.
- A task whose owner is gone goes to its standby, as far as balance allows. So does one whose owner is about to leave, which works on
  while the others prepare (`handover`).
- While a run drains, only tasks whose worker is gone get a new owner; all other moves are suspended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from ...errors import DeclarationError
from ...graph.grouping import Grouping, counts
from ...graph.model import JobModel, producer_sets
from ...graph.resolve import resolve, shared_widths
from ..messages import ProcessorState, RunState, SetJobModel, SetRun
from ..state import JobState, order
from .damage import unknown
from .draft import Draft
from .growing import growth
from .handover import named, prepared_first
from .joining import with_tasks
from .plan import DEFAULT, Plan

FOR_GOOD = "for good"


def tasks_of(plan: Plan, found: Mapping[str, int], before: JobModel | None) -> Grouping | None:
    """The tasks, grown from the existing ones; None while partition counts are missing. Raises `DeclarationError` if they cannot be made.

    >>> list(tasks_of(Plan(graph=Graph((Input("orders"),))), {"orders": 2}, None))
    ['Partition 0', 'Partition 1']
    """
    if any(stream not in found for stream in plan.inputs):
        return None
    had = None if before is None else before.tasks
    return resolve(plan.graph, found, grouper=plan.grouper, before=had, name=plan.grouper_name)


def counted(draft: Draft, run: SetRun) -> Mapping[str, int]:
    """The partition counts for this run: an input whose ends were resolved for it does not grow during it, and a topic of a pattern that
    is gone is as wide as it was. Empty before the inputs were counted."""
    before, now, inputs = draft.state.model, draft.memory.counts, draft.plan.inputs
    if not now:
        return {}
    ends = {stream: len(offsets) for stream, offsets in run.untils.items() if stream in inputs}
    had = {} if before is None else {stream: width for stream, width in before.streams.items() if stream in inputs}
    more = {topic: width for topic, width in draft.memory.more.items() if topic in run.joined}
    return {**had, **now, **more, **ends}


def model(draft: Draft) -> None:
    """Write a new model if tasks or placement must change."""
    run = draft.run
    if (
        run is None
        or run.closing
        or run.state not in (RunState.RUNNING, RunState.DRAINING)
        or unknown(draft, "set-job-model")
    ):
        return
    before = draft.state.model
    same = before is not None and before.is_of(run.run_id, run.deployment)
    widths = counted(draft, run)
    if same and before is not None:
        before, tasks = _grown(draft, run, before, widths)
    else:
        tasks = _made(draft, widths, before)
    if tasks is None:
        draft.note_once("waiting for the partition counts of the inputs")
        return
    _place(draft, run, before, tasks, same)


def _made(draft: Draft, widths: Mapping[str, int], before: JobModel | None) -> Grouping | None:
    """The tasks of a run or a deployment that begins; None if they cannot be made yet."""
    try:
        return tasks_of(draft.plan, widths, before)
    except DeclarationError as error:
        draft.note_once(f"the tasks cannot be created: {error}", level="error")
        return None


def _grown(draft: Draft, run: SetRun, before: JobModel, widths: Mapping[str, int]) -> tuple[JobModel, Grouping]:
    """The model and the tasks of the run, with what its inputs have got. Tasks that are new are still to be placed; the others go on where
    they are.
    """
    if not draft.memory.counts:
        return before, before.tasks
    found = growth(draft, run, before, widths)
    for stream, why in found.refused.items():
        width = draft.memory.counts.get(stream) or widths[stream]
        draft.note_once(f"'{stream}' has grown to {width} partitions; {why}")
    if found.refused != run.ungrown and run.state == RunState.RUNNING and not unknown(draft, "set-run"):
        draft.put(replace(run, ungrown=found.refused))
    if found.tasks is None:
        return before, before.tasks
    had, now = before.streams, counts(found.tasks)
    for stream in draft.plan.inputs:
        if stream in had and now[stream] > had[stream]:
            draft.note("an input has grown", stream=stream, partitions=now[stream], before=had[stream], run=run.run_id)
    if found.tasks.keys() != before.tasks.keys():
        return before, found.tasks
    made = with_tasks(draft, before, found.tasks)
    draft.put(SetJobModel(made))
    return made, made.tasks


def _place(draft: Draft, run: SetRun, before: JobModel | None, tasks: Grouping, same: bool) -> None:
    there = {p: worker.location for p, worker in draft.workers().items()}
    if run.state == RunState.DRAINING and same and before is not None:  # who is about to leave does so at once
        known = _known(before, there)
        homeless = [task for task in tasks if known.get(task) not in there]
        if homeless and there:
            wanted = {**known, **_least_loaded(homeless, known, list(there)), **_followed(before, known, there)}
            _put(draft, run, before, tasks, wanted, tuple(there))
        return
    workers = {p: worker.location for p, worker in draft.staying().items()}
    known = _known(before, workers)
    if before is not None and same and run.state == RunState.RUNNING:
        asked_for = set(before.target.values())
        gone = {p: before_location(draft, p) for p in asked_for if p not in there and _awaited(draft, p)}
        if gone and not (workers and draft.timing.grace_auto and _near(draft, before, tasks, workers, known)):
            # who is about to leave keeps its tasks as long as others, who could take them, may come back
            workers = there | gone
            known = _known(before, workers)  # what is to be prepared by one that is awaited stays its own
    if not workers:
        return
    retiring = (
        () if before is None or not same else tuple(p for p in before.processors if p in there and p not in workers)
    )
    if same and before is not None and tasks is before.tasks and _stands(draft, before, workers, retiring):
        return
    homeless = any(known.get(task) not in workers for task in tasks)
    if (
        same
        and not homeless
        and not draft.waits.over(("place", tuple(sorted(workers)), len(tasks)), draft.timing.debounce_s)
    ):
        return
    if before is not None and same:  # whoever follows the log of a task that lost its owner is as good as its owner
        known = {**known, **_followed(before, known, workers)}
    placed = _placed(draft, tasks, workers, known)
    if placed is None:
        return
    wanted = {task: processor for processor, given in placed.items() for task in given}
    _put(draft, run, before, tasks, wanted, (*placed, *retiring))


def _stands(draft: Draft, before: JobModel, workers: Collection[str], retiring: Collection[str]) -> bool:
    """Whether the tasks were placed on these workers, and by the placement that would place them now."""
    if any(processor in retiring for processor in before.target.values()):
        return False
    return {*workers, *retiring} == set(before.processors) and before.placer == _own_placer(draft)


def _own_placer(draft: Draft) -> str:
    """The name of the user's own placement; empty if the tasks are placed by ours."""
    name = draft.plan.placer_name
    return "" if name == DEFAULT else name


def _known(before: JobModel | None, workers: Collection[str]) -> Mapping[str, str]:
    """Where the tasks are placed: where they are prepared, unless that worker is gone, else where they run."""
    if before is None:
        return {}
    ahead = {task: one.processor for task, one in before.preparing.items() if one.processor in workers}
    return {**before.wanted, **ahead}


def _placed(
    draft: Draft, tasks: Grouping, workers: Mapping[str, str], known: Mapping[str, str]
) -> Mapping[str, tuple[str, ...]] | None:
    """Where the tasks would run; None if the placement of the user's own fails."""
    try:
        return draft.plan.placed(draft.state, tasks, workers, known)
    except DeclarationError as error:
        draft.note_once(f"the tasks cannot be placed: {error}", level="error")
        return None


def _followed(before: JobModel, known: Mapping[str, str], workers: Collection[str]) -> dict[str, str]:
    """The tasks that have lost their owner and can go to their standby, without another task having to leave it for balance. `known`: the
    owners of all tasks.
    """
    floor, spare = divmod(len(known), max(1, len(workers)))
    load = Counter(owner for owner in known.values() if owner in workers)
    spare -= sum(number > floor for number in load.values())
    found: dict[str, str] = {}
    for task, owner in known.items():
        there = before.standby.get(task, "")
        if owner in workers or there not in workers or load[there] > floor or (load[there] == floor and spare <= 0):
            continue
        spare -= load[there] == floor
        load[there] += 1
        found[task] = there
    return found


def _near(
    draft: Draft, before: JobModel, tasks: Grouping, workers: Mapping[str, str], known: Mapping[str, str]
) -> bool:
    """Whether each task that would move to these workers replays only a difference there: it finds its state at the location of its new
    one, or that was its standby."""
    placed = _placed(draft, tasks, workers, {**known, **_followed(before, known, workers)}) or {}
    moved = [(task, p) for p, given in placed.items() for task in given if known.get(task) != p]
    return bool(placed) and all(
        before.standby.get(task) == p or (workers[p] and draft.state.location(task) == workers[p]) for task, p in moved
    )


def before_location(draft: Draft, processor: str) -> str:
    """The last known location of a processor."""
    member = draft.state.member(processor)
    return "" if member is None else member.location


def _awaited(draft: Draft, processor: str) -> bool:
    """Whether the tasks of an absent processor wait for it: they have state, and it may return soon."""
    member = draft.state.member(processor)
    if not draft.plan.stateful or member is None or member.dismissed == FOR_GOOD:
        return False
    if processor in draft.memory.condemned:
        return False
    return not draft.waits.over(("rejoin", processor), draft.timing.grace_s - _gone_before_s(draft.state, processor))


def _gone_before_s(state: JobState, processor: str) -> float:
    """How long this processor had been gone when this leader's term began, by the broker's clock, so that the grace period does not restart
    with each leader.
    """
    marks = [state.at.get(("set-fence", (processor,)))]
    worker = max(state.recorded(processor).values(), key=lambda one: order(one.incarnation), default=None)
    if worker is not None and worker.state != ProcessorState.JOINED:
        marks.append(state.at["set-processor", (processor, worker.incarnation)])
    went, began = max((mark[1] for mark in marks if mark is not None), default=None), state.at.get(("set-leader", ()))
    return 0.0 if went is None or began is None else max(0.0, (began[1] - went) / 1000)


def _least_loaded(tasks: list[str], known: Mapping[str, str], workers: list[str]) -> dict[str, str]:
    load = {p: sum(1 for owner in known.values() if owner == p) for p in workers}
    found: dict[str, str] = {}
    for task in tasks:
        found[task] = min(workers, key=lambda p: (load[p], p))
        load[found[task]] += 1
    return found


def _put(
    draft: Draft,
    run: SetRun,
    before: JobModel | None,
    tasks: Grouping,
    wanted: Mapping[str, str],
    processors: tuple[str, ...],
) -> None:
    """Write a new version of the model. Tasks with state that move are prepared first, where that helps."""
    stays, preparing = prepared_first(draft, before, wanted, processors)
    processors = named(draft, processors, stays)
    made = JobModel(
        term=draft.term,
        version=1 if before is None else before.version + 1,
        run_id=run.run_id,
        deployment=run.deployment,
        tasks=tasks,
        wanted={task: stays[task] for task in tasks},
        processors=processors,
        producers=producer_sets(draft.plan.graph.fed, tasks, before.producers if before is not None else {}),
        shared=shared_widths(draft.plan.graph, counts(tasks), before.shared if before is not None else {}),
        former=() if before is None else before.streams_before(draft.plan.graph.fed),
        preparing=preparing,
        standby=before.standby if before is not None and before.is_of(run.run_id, run.deployment) else {},
        placer=_own_placer(draft),
    )
    draft.put(SetJobModel(_within(made)))


def _within(made: JobModel) -> JobModel:
    """The model with those standbys that it still names."""
    kept = {t: p for t, p in made.standby.items() if t in made.tasks and p in made.processors}
    return replace(made, standby=kept)


def rewanted(draft: Draft, before: JobModel, wanted: Mapping[str, str]) -> JobModel:
    """The same tasks in another placement, for an operator's request. Tasks with state are prepared first."""
    stays, preparing = prepared_first(draft, before, wanted, before.processors)
    return replace(
        before,
        term=draft.term,
        version=before.version + 1,
        wanted={task: stays[task] for task in before.tasks},
        preparing=preparing,
    )
