"""What a verb raises that a stream, a window or a batch does not have: the line's mistake, and how to write it instead.

Without it, Python says that an attribute is missing, which explains nothing to who chains one verb too early.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from ...core.errors import DeclarationError
from ...core.settings import offer


class RefusesVerbs:
    """Base class of what verbs are chained to: a verb that it does not have raises what `_refused` says of it."""

    if not TYPE_CHECKING:  # hidden from type checkers, so that they report it, too

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            raise self._refused(name)

    def _refused(self, verb: str) -> DeclarationError:
        """Why this verb cannot follow, and what to write instead."""
        raise NotImplementedError


def no_verb(verb: str, of: type[Any], what: str, more: str = "") -> DeclarationError:
    """The error of a verb that nothing has: the verb that was probably meant, or those that there are."""
    verbs = [name for name in vars(of) if not name.startswith("_")]
    return DeclarationError(f"{what} has no .{verb}()", remedy=f"{offer(verb, verbs, most=len(verbs))}{more}")
