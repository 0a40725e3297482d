"""Which incarnation of each processor is valid, who is dead, and who must be fenced.

- `set-member` names the newest incarnation that has joined and fits the run. Only a named one is granted tasks.
- A named incarnation that was never recorded does not count, whoever named it: the leader names the newest again.
- Every older incarnation is fenced, and so is one that is silent for too long, that its supervisor reports dead, or that has left without
  releasing its tasks. Only recorded incarnations are fenced: a worker records an incarnation after it has initialised its id, so the fence
  cannot come before that initialisation and be undone by it.
- `set-fence` is written after the fences of all recorded incarnations up to that one have returned. Only then can others get the tasks: a
  grant waits until `JobState.held` is None.
"""

from __future__ import annotations

from dataclasses import replace

from ..events import Fence
from ..liveness import REPORTED_DEAD
from ..messages import ProcessorState, SetFence, SetMember, SetProcessor
from ..run_choice import fits
from ..state import JobState, order
from .draft import Draft


def write_fences(draft: Draft) -> None:
    """Record the fences that have returned, each once all older incarnations of the same processor are fenced."""
    known = spoken_of(draft.state)
    for processor, incarnation in sorted(draft.memory.fenced, key=lambda f: (f[0], order(f[1]))):
        if draft.state.fenced(processor, incarnation) or (processor, incarnation) not in known:
            draft.memory.fenced.discard((processor, incarnation))
            continue
        lower = [worker.incarnation for worker in draft.state.incarnations(processor)]
        below = [one for one in lower if order(one) < order(incarnation)]
        if all((processor, one) in draft.memory.fenced for one in below):
            draft.put(SetFence(processor, incarnation))


def spoken_of(state: JobState) -> set[tuple[str, str]]:
    """Every incarnation that is recorded or named by a grant. A fence of any other does not matter any more."""
    workers = {
        (worker.processor, worker.incarnation) for p in state.processors() for worker in state.recorded(p).values()
    }
    return workers | {(grant.processor, grant.incarnation) for grant in state.grants()}


def fence(draft: Draft, processor: str, incarnation: str) -> None:
    """Fence this incarnation, so that it can write no more. The fence is requested again if no answer comes."""
    each = (processor, incarnation)
    if draft.state.fenced(processor, incarnation) or each in draft.memory.fenced:
        return
    retry = draft.memory.fencing.get(each)
    if retry is not None:  # an operator may have shortened the timeout since
        retry = draft.memory.fencing[each] = min(retry, draft.now.mono + draft.timing.fence_deadline_s)
    if retry is None or draft.now.mono >= retry:
        retry = draft.memory.fencing[each] = draft.now.mono + draft.timing.fence_deadline_s
        draft.instructions.append(Fence(processor, incarnation))
    draft.waits.wake = retry if draft.waits.wake is None else min(draft.waits.wake, retry)


def members(draft: Draft) -> None:
    """Fence what must be fenced, and name the valid incarnations."""
    for processor in draft.state.processors():
        workers = draft.state.incarnations(processor)
        for worker in workers[:-1]:
            fence(draft, processor, worker.incarnation)
        if workers:
            _newest(draft, workers[-1])


def _newest(draft: Draft, worker: SetProcessor) -> None:
    why = "left" if worker.state == ProcessorState.LEFT else draft.silent(worker)
    if why:
        if worker.state != ProcessorState.LEFT or _holds(draft, worker):
            if (
                worker.state != ProcessorState.LEFT
                and draft.memory.condemned.get(worker.processor) != worker.incarnation
            ):
                draft.note(
                    "worker is dead", level="error", processor=worker.processor, incarnation=worker.incarnation, why=why
                )
                if why != REPORTED_DEAD:
                    draft.memory.condemned[worker.processor] = worker.incarnation
            fence(draft, worker.processor, worker.incarnation)
        return
    condemned = draft.memory.condemned.get(worker.processor)
    if condemned is not None and order(condemned) < order(worker.incarnation):
        del draft.memory.condemned[worker.processor]
    if (
        draft.run is None
        or not draft.state.live
        or not fits(draft.run, worker)
        or worker.state == ProcessorState.LEAVING
    ):
        return
    member = draft.state.member(worker.processor)
    recorded = draft.state.recorded(worker.processor)
    if member is None or member.incarnation not in recorded or order(member.incarnation) < order(worker.incarnation):
        named = SetMember(worker.processor, worker.incarnation, worker.location)
        before = None if member is None else recorded.get(member.incarnation)
        if member is not None and member.dismissed and before is not None and before.process == worker.process:
            named = replace(named, dismissed=member.dismissed)
        draft.put(named)
    elif member.incarnation == worker.incarnation and member.location != worker.location:
        draft.put(replace(member, location=worker.location))


def _holds(draft: Draft, worker: SetProcessor) -> bool:
    held = (g for g in draft.state.grants() if (g.processor, g.incarnation) == (worker.processor, worker.incarnation))
    return any(draft.state.held(grant.task) is not None for grant in held)
