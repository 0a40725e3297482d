"""How a task reports its failures: as notes, as log lines, and as events for the machine; and that they are over."""

from __future__ import annotations

from ....core.task import protocol as t
from ...cancellation import said
from ...operators.base.bad_records import BadRecord
from ...operators.failures.failures import readable, store_failed, traceback_of
from ...operators.pipeline.trouble import Failed, may_pass, only, reason_of
from .notes import FAILED, FAILURE, RETRY
from .site import Site


class Failures:
    """The failures of one task."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.trouble: BaseException | None = None
        """The last exception, from user code or elsewhere, as its user reads it."""
        self.place = ""
        """Where it was, if it was a record that could not be read."""

    def broken(self, error: BaseException) -> None:
        """An error that the machine does not expect. The task fails with it; the worker goes on."""
        self.trouble, self.place = readable(only(error)), ""
        self._site.feed(t.Broken(reason_of(error), passing=may_pass(error)))

    def stopped(self, error: BaseException | None) -> None:
        """The actor has stopped: it failed with `error`, or its agent was stopped."""
        if error is None:
            self._site.feed(t.Broken("its agent was stopped"))
        else:
            self.broken(error)

    def letter_failed(self, failed: Failed) -> None:
        """A letter failed. Logs the traceback from the user's first frame; a retry that fails in the same way is logged without it."""
        site, why, error = self._site, failed.why, failed.error
        self.trouble, self.place = readable(error), failed.place
        if store_failed(error):
            site.log.error("the store cannot be read", why=why)
            site.feed(t.Broken(why, passing=True))
            return
        before = site.notes.open(FAILURE)
        shown = {} if before is not None and before.detail == why else {"traceback": traceback_of(error, failed.source)}
        site.log.error("data cannot be read" if isinstance(error, BadRecord) else "user code failed", why=why, **shown)
        site.notes.say(FAILURE, why, **shown)
        site.count("failures")
        if site.pipeline is not None:
            site.count(site.pipeline.counter_of(error, failed.source))
        site.feed(t.WorkFailed(why, final=failed.final))

    def half_completed(self, error: BaseException) -> str:
        """Completing a letter failed. Returns why its transaction must not commit."""
        why = f"completing a letter failed: {said(error)}"
        self._site.log.error("a letter was only half completed; its transaction is aborted", why=why, exc_info=error)
        self._site.notes.say(FAILURE, why)
        self._site.count("failures")
        return why

    def over(self) -> None:
        """A letter has ended well, or is called off: what failed is over, unless the task has failed with it."""
        if self._site.notes.open(FAILED) is None:
            self._site.notes.over(FAILURE, RETRY)

    def held_back(self, error: BaseException) -> str:
        """Emitting what operators had held back failed. Returns why the transaction must not commit."""
        why = str(error)
        self._site.log.error(
            "a commit failed on what this task had buffered; from now on it emits after every chunk", why=why
        )
        self._site.count("failures")
        return why

    def note(self, order: t.TaskNote) -> None:
        """Log a note of the machine, and show it in the status."""
        self._site.notes.say(order.what, order.detail)
        self._site.count(f"note_{order.what}")
        getattr(self._site.log, order.level)(order.what, detail=order.detail)
