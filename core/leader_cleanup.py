"""What may be deleted: keys that are answered, superseded or fenced, and nothing else.

- a task state below the current grant is superseded;
- a fenced incarnation's record is superseded when nobody asks any more where it was;
- a request goes when its final answer stands; the answer goes after `answers.keep`, and after nobody can want the request any more;
- a request or an answer that nobody can read goes: nobody can answer it, and nobody waits for it.

What a zombie writes again afterwards stands below the fence or beside the current grant: it is ignored, and deleted again. Grants,
fences, task log partitions, the run and the model are never deleted: their numbers must not begin again.
"""

from __future__ import annotations

from typing import cast

from .coordinator import SetAnswer, SetMember, SetRequest
from .jobstate import FINAL
from .leader_draft import Draft

MOST = 200
"""Deletions in one round: a clean-up must not make the transaction that carries it large."""


def cleanup(draft: Draft) -> None:
    """Delete what is due."""
    due = [*_task_states(draft), *_incarnations(draft), *_requests(draft), *_answers(draft), *_unread(draft)]
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


def _incarnations(draft: Draft) -> list[tuple[str, tuple[str | int, ...]]]:
    state = draft.state
    found: list[tuple[str, tuple[str | int, ...]]] = []
    asked = {(grant.processor, grant.incarnation) for grant in state.grants()}
    for processor in state.processors():
        for incarnation in state.recorded(processor):
            if state.fenced(processor, incarnation) and (processor, incarnation) not in asked:
                found.append(("set-processor", (processor, incarnation)))
    owners = {processor for processor, _ in asked}
    for member in cast("list[SetMember]", list(state.messages["set-member"].values())):
        processor = member.processor
        if state.fenced(processor, member.incarnation) and not state.recorded(processor) and processor not in owners:
            model = state.model
            if model is None or processor not in model.processors:
                found.append(("set-member", (processor,)))
    return found


def _requests(draft: Draft) -> list[tuple[str, tuple[str | int, ...]]]:
    state = draft.state
    return [
        ("set-request", key)
        for key, wish in state.messages["set-request"].items()
        if (answer := state.answer(cast("SetRequest", wish).uuid)) is not None and answer.state in FINAL
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
