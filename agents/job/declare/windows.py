"""Windows as users declare them, before a verb says what is made of their rows.

Promises: a declaration is checked at its own line. A window's name is made from its own arguments (`tumbling-10s`). After its fields have
changed it therefore finds its state again; after its size has changed it does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....core.errors import DeclarationError
from ....core.windows.results import RESERVED
from ..derive.result_fields import check_aggregated
from ..steps.ends import ActorStep
from ..steps.keyed import WindowStep
from ..types.aggregates import Aggregate, AggregatePlan, check_are_aggregates, collect, plan
from ..types.arguments import called_from
from ..types.windows import Window, length_of
from .actors import Actor, check_actor
from .checks import check_migrate, check_policy, check_topic, name_of
from .columns import schema_of_conditions
from .declaring import Declaring, added, serde_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ....core.columns.schema import ColumnSchema
    from ...records.values.serdes import Serde
    from ..steps.step import Policy

ROWS = plan({"rows": collect(lambda row: row)})
"""What a session keeps of its rows for an actor."""


def checked_window(window: Any, late: str | None, at_end: str | None) -> Window:
    """The window, if these arguments of `.window(…)` make sense."""
    if not isinstance(window, Window):
        raise DeclarationError(
            f"window() takes a window, not {window!r}", remedy='for example .window(hg.tumbling("10s", grace="2s"))'
        )
    if late is not None:
        check_topic(late, "window(late=…)")
    if at_end not in (None, "close", "keep"):
        raise DeclarationError(f"window(at_end={at_end!r})", remedy="'close' or 'keep'")
    if window.by_clock and late is not None:
        raise DeclarationError(
            f"window(late={late!r}): no row comes late by the clock", remedy='omit late=, or time="processing"'
        )
    return window


def _early(window: Window, emit: Any) -> tuple[int | None, int | None]:
    """When early results are emitted: after how many ms, or after how many rows."""
    if emit == "final":
        return None, None
    if window.spans is None:
        what = "sliding window" if window.sliding else "session"
        raise DeclarationError(f"window(emit={emit!r}): a {what} gives its final result only", remedy="omit emit=")
    if isinstance(emit, str) and emit[:1].isdigit():
        return length_of(emit, "window(emit)"), None
    if type(emit) is not int or emit < 1:
        raise DeclarationError(
            f"window(emit={emit!r})",
            remedy="'final', how often early results come ('10s'), or after how many rows (1000)",
        )
    return None, emit


class DeclaredWindow:
    """A window behind a stream, and what has been made of it."""

    def __init__(
        self,
        of: Declaring,
        window: Any,
        emit: Any,
        late: str | None,
        at_end: str | None,
        name: str | None,
        schema: ColumnSchema | None = None,
    ) -> None:
        self.of = of
        self.window = checked_window(window, late, at_end)
        self.late, self.at_end, self.schema = late, at_end, schema
        self.early_ms, self.early_rows = _early(window, emit)
        self.name = name_of("window", None, name or str(window))
        self.where = called_from()
        self.used = False
        of.app.windows.append(self)

    def __repr__(self) -> str:
        return f"<window {self.name} of {self.of.app.name}>"

    def agg(self, aggregates: Mapping[str, Aggregate], migrate: Any, on_error: Policy) -> WindowStep:
        """Aggregates of its rows."""
        if isinstance(aggregates.get("name"), str):
            name: object = aggregates["name"]
            raise DeclarationError(
                f"agg(name={name!r}) behind a window: the window has the name",
                remedy=f".window(…, name={name!r}).agg(…)",
            )
        if reserved := sorted(RESERVED & aggregates.keys()):
            raise DeclarationError(
                f"agg({reserved[0]}=…): every result of a window has a field of this name", remedy="take another name"
            )
        check_are_aggregates(aggregates)
        made = plan(aggregates, self.schema or schema_of_conditions(self.of, aggregates))
        check_aggregated(self.of.step, made)
        if self.window.spans is None and None in made.joins:
            why = (
                "what is in a sliding window is put together from parts"
                if self.window.sliding
                else "sessions become one when a row comes between them"
            )
            raise DeclarationError(
                f"agg({made.names[made.joins.index(None)]}=hg.aggregate(…)): {why}",
                remedy="tell how two states become one: hg.aggregate(init, add, merge)",
            )
        policy = check_policy(on_error, "agg")
        early = {"early_ms": self.early_ms, "early_rows": self.early_rows}
        return self._step(made, **early, migrate=check_migrate(migrate, "agg"), on_error=policy)

    def process(
        self, actor: type[Actor], name: str | None, serde: Serde[Any] | None, on_error: Policy, args: Mapping[str, Any]
    ) -> ActorStep:
        """An actor that gets its rows."""
        if self.window.sliding:
            raise DeclarationError(
                f"window({self.window}).process(…): each row has a window of its own, so an actor would get each row many times",
                remedy=".window(hg.sliding(…)).agg(rows=hg.collect(…)) has the values of each window; or .process(…) without .window(…)",
            )
        check_actor(actor, "process", args)
        self.check_final("process", "an actor gets")
        rows = serde_for(self.of, serde, "process(serde")
        after = name_of("actor", None, name or actor.__name__)
        policy = check_policy(on_error, "process")
        kept = self._step(ROWS, rows=rows, on_error=policy)
        return added(self.of, ActorStep, parents=(kept,), name=after, cls=actor, args=args, on_error=policy)

    def check_final(self, verb: str, gets: str) -> None:
        """Refuse early results for what gets the rows themselves."""
        if (self.early_ms, self.early_rows) != (None, None):
            raise DeclarationError(
                f"window(emit=…).{verb}(…): {gets} the rows of a window when it is closed", remedy="omit emit="
            )

    def _step(self, made: AggregatePlan, **more: Any) -> WindowStep:
        app = self.of.app
        self.used = True
        return added(
            self.of,
            WindowStep,
            name=self.name,
            window=self.window,
            plan=made,
            key_serde=app.key_serde,
            late=self.late,
            late_serde=app.serde,
            keeps_open=self.at_end == "keep",
            end_said=self.at_end is not None,
            schema=self.schema,
            **more,
        )

    def check_used(self) -> None:
        """Refuse a window of which nothing is made."""
        if not self.used:
            raise DeclarationError(
                f"nothing is made of window '{self.name}' ({self.where})",
                remedy=".agg(…) makes a result of its rows, .process(…) gives them to an actor, .spark(…) to Spark; else remove it",
            )
