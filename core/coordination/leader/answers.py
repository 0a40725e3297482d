"""The leader's answers to requests, before they become messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..messages import AnswerState, Reason


class Answer(NamedTuple):
    """One answer. Without `progress`, that of the previous answer stays."""

    state: AnswerState
    why: str = ""
    progress: Mapping[str, Any] | None = None
    reason: Reason | None = None
    remedy: str = ""


def other_run(why: str) -> Answer:
    """The request names a run that is not the live one."""
    return Answer(AnswerState.REFUSED, f"{Reason.OTHER_RUN}: {why}", reason=Reason.OTHER_RUN)


def no_live_run() -> Answer:
    """The request needs a live run, and there is none."""
    return Answer(AnswerState.REFUSED, Reason.NO_LIVE_RUN.value, reason=Reason.NO_LIVE_RUN)
