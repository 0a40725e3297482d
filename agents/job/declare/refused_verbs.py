"""What a name raises that a stream, a window, a table or an app does not have: the line's mistake, and how to write it instead.

Without it, Python says that an attribute is missing, which explains nothing to who chains one verb too early, or brings a word of Faust,
Kafka Streams or Spark. Words that others have come first (`core.words`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from ....core.errors import UnknownName
from ....core.settings import offer
from ....core.words import brought


class RefusesVerbs:
    """Base class of what verbs are chained to: a verb that it does not have raises what `_refused` says of it."""

    KIND: ClassVar[str] = ""
    """What it is in the table of words; empty: it has no words of its own."""

    if not TYPE_CHECKING:  # hidden from type checkers, so that they report it, too

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            raise brought(name, self.KIND) or self._refused(name)

        def __getitem__(self, item: object) -> NoReturn:
            raise brought("[…]", self.KIND) or TypeError(f"{type(self).__name__!r} object is not subscriptable")

        def __setitem__(self, item: object, value: object) -> NoReturn:
            self[item]

    def _refused(self, verb: str) -> UnknownName:
        """Why this verb cannot follow, and what to write instead."""
        return no_verb(verb, type(self), self.KIND)


def no_verb(verb: str, of: type[Any], what: str, more: str = "", without: tuple[str, ...] = ()) -> UnknownName:
    """The error of a verb that nothing has: the verb that was probably meant, or those that there are."""
    own = (name for one in of.__mro__ if issubclass(one, RefusesVerbs) for name in vars(one))
    verbs = [name for name in own if not name.startswith("_") and name not in ("KIND", *without)]
    return UnknownName(f"{what} has no .{verb}()", remedy=f"{offer(verb, verbs, most=len(verbs))}{more}")


def unbounded(verb: str) -> UnknownName | None:
    """The error of the verb of a batch on a stream, which has no end; None for any other verb."""
    if verb != "spark":
        return None
    return UnknownName(
        ".spark() needs a bounded batch, and a stream has no end",
        remedy='.window(hg.tumbling("1m")).spark(fn, schema=…), or .batch(max_rows=…).spark(…) (docs/spark.md#what-a-batch-is)',
    )
