"""Deletes keys that are answered, superseded or fenced, and no others.

- A task state below the current grant is superseded.
- What a holder has said of its letters is superseded when it has withdrawn it, or when the holder of a later grant has said it again.
- The record of a fenced incarnation is superseded when no grant refers to it any more.
- A request is deleted when it has its final answer. The answer is deleted after `answers.keep`, once the request is gone.
- An unreadable request or answer is deleted: no one can answer it, and no one waits for it.
- All records of a processor are deleted some time after all its incarnations are fenced or have left, and no grant and no model names it.
  Generated names never return, so this limits the size of the stream to the processors in use.

What a zombie writes afterwards is below the fence or alongside the current grant: it is ignored, and deleted again. If the fence is
deleted, too, the zombie is a worker like any other: it finds its record deleted and begins a new incarnation. Until it has read that far,
it holds no grant, and Kafka rejects its writes; a successor with its name counts on from all deleted incarnations (`FORGOTTEN`), so the
zombie is the older one. Grants, task log partitions, the run and the model are never deleted, because their numbers must not start again.
"""

from __future__ import annotations

from typing import cast

from ..messages import FORGOTTEN, ProcessorState, SetAnswer, SetFence, SetLetters, SetRequest
from ..state import FINAL, order
from .draft import Draft

MOST = 200
"""The most deletions in one round, so that clean-up does not make the transaction large."""


def cleanup(draft: Draft) -> None:
    """Delete what is due."""
    due = [
        *_task_states(draft),
        *_letters(draft),
        *_incarnations(draft),
        *_requests(draft),
        *_answers(draft),
        *_unread(draft),
    ]
    due += _gone(draft, MOST - len(due))
    for key in due[:MOST]:
        draft.delete(key)


def _task_states(draft: Draft) -> list[tuple[str, tuple[str | int, ...]]]:
    state = draft.state
    found: list[tuple[str, tuple[str | int, ...]]] = []
    for grant in state.grants():
        said = state.task_states(grant.task)
        if len(said) > 1 or (said and grant.grant not in said):
            found += [("set-task-state", (grant.task, number)) for number in said if number < grant.grant]
    return found


def _letters(draft: Draft) -> list[tuple[str, tuple[str | int, ...]]]:
    state = draft.state
    found: list[tuple[str, tuple[str | int, ...]]] = []
    for key, message in state.messages["set-letters"].items():
        said, grant = cast("SetLetters", message), state.grant(str(key[0]))
        if grant is None or said.grant >= grant.grant:
            continue
        if not said.marks or ("set-letters", (said.task, grant.grant)) in state.at:
            found.append(("set-letters", key))
    return found


def _incarnations(draft: Draft) -> list[tuple[str, tuple[str | int, ...]]]:
    state = draft.state
    found: list[tuple[str, tuple[str | int, ...]]] = []
    asked = {(grant.processor, grant.incarnation) for grant in state.grants()}
    for processor in state.processors():
        for incarnation in state.recorded(processor):
            if state.fenced(processor, incarnation) and (processor, incarnation) not in asked:
                found.append(("set-processor", (processor, incarnation)))
    return found


def _gone(draft: Draft, most: int) -> list[tuple[str, tuple[str | int, ...]]]:
    """All keys of processors that are gone and not referred to. Remembers their highest incarnation."""
    state, model = draft.state, draft.state.model
    spoken_of = {grant.processor for grant in state.grants()} | {FORGOTTEN}
    if model is not None:
        spoken_of |= {*model.processors, *model.wanted.values()}
    named = {str(key[0]) for kind in ("set-processor", "set-member", "set-fence") for key in state.messages[kind]}
    found: list[tuple[str, tuple[str | int, ...]]] = []
    highest, oldest = state.fence(FORGOTTEN), draft.now.wall - draft.timing.gone_kept_ms
    for processor in sorted(named - spoken_of):
        workers = state.recorded(processor)
        if any(
            worker.state != ProcessorState.LEFT and not state.fenced(processor, one) for one, worker in workers.items()
        ):
            continue
        keys: list[tuple[str, tuple[str | int, ...]]] = [("set-processor", (processor, one)) for one in workers]
        keys += [(kind, (processor,)) for kind in ("set-member", "set-fence") if (processor,) in state.messages[kind]]
        if max(state.at[key][1] for key in keys) > oldest:
            continue
        if len(found) + len(keys) > most:
            break
        found += keys
        highest = max(
            (one for one in (*workers, _named(draft, processor), state.fence(processor), highest) if one is not None),
            key=order,
        )
    if highest is not None and highest != state.fence(FORGOTTEN):
        draft.put(SetFence(FORGOTTEN, highest))
    return found


def _named(draft: Draft, processor: str) -> str | None:
    member = draft.state.member(processor)
    return None if member is None else member.incarnation


def _requests(draft: Draft) -> list[tuple[str, tuple[str | int, ...]]]:
    state = draft.state
    return [
        ("set-request", key)
        for key, request in state.messages["set-request"].items()
        if (answer := state.answer(cast("SetRequest", request).uuid)) is not None and answer.state in FINAL
    ]


def _answers(draft: Draft) -> list[tuple[str, tuple[str | int, ...]]]:
    state, oldest = draft.state, draft.now.wall - draft.timing.answer_kept_ms
    return [
        ("set-answer", key)
        for key, answer in state.messages["set-answer"].items()
        if cast("SetAnswer", answer).state in FINAL
        and state.at["set-answer", key][1] < oldest
        and key not in state.messages["set-request"]
    ]


def _unread(draft: Draft) -> list[tuple[str, tuple[str | int, ...]]]:
    state = draft.state
    return [at for at in state.damaged if at[0] in ("set-request", "set-answer") and at[1] not in state.messages[at[0]]]
