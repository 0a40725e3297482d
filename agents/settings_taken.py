"""What operators change while a job runs, handed to the parts of a worker that live by it.

`core.settings.TAKEN_BY` says which part takes which setting. Each part that is told stands here with the one way of telling it; a change is
acknowledged when all of them have it. The leader is not told: it reads overrides where they stand, in the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..core.settings import TAKEN_BY
from .logs import set_level

if TYPE_CHECKING:
    from .worker import Worker


def _committer(worker: Worker) -> None:
    if worker.committing is not None:
        worker.committing.pace(worker.seconds("commit.interval"))


def _tasks(worker: Worker) -> None:
    for actor in list(worker.actors.values()):
        worker.runtime.granted.tell_settings(actor)


def _upkeep(worker: Worker) -> None:
    worker.upkeep.trim = worker.value("intermediate.trim")


def _worker(worker: Worker) -> None:
    worker.exits_on_failure = worker.text("failure.policy") == "exit"


def _log(worker: Worker) -> None:
    """Only an override changes it, and its end: what the process was started with is its own business."""
    if "log.level" in worker.overrides or worker.loud:
        worker.loud = "log.level" in worker.overrides
        set_level(worker.text("log.level"))


TELL: Mapping[str, Callable[[Worker], None]] = {
    "committer": _committer,
    "task": _tasks,
    "intake": _tasks,
    "chooser": _tasks,
    "spark": _tasks,
    "upkeep": _upkeep,
    "worker": _worker,
    "log": _log,
}
"""By part. Tasks take all of theirs at once."""


_TOLD = tuple(dict.fromkeys(TELL[part] for parts in TAKEN_BY.values() for part in parts if part != "leader"))


def take(worker: Worker) -> None:
    """Tell every part; when this returns, all of them have what they take."""
    for tell in _TOLD:
        tell(worker)
