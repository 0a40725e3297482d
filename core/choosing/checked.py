"""Wraps a user's own chooser: checks what it returns, and names it in errors.

A user's chooser is a class or object with `choose(heads, now)`, or just such a function. It replaces the rule, so bootstrap and tiers still
apply. `taken` and `describe` are optional. With `needs = {"value"}` it sees decoded records.

Promises to the caller, whatever the user's code does: a choice names a partition that the chooser was shown and that is takeable, asks for
1 to `ready` records, and its bounds admit the first record. If the user's code returns None or `Wait()` although something could be taken,
it is asked again a little later, even if nothing changes. So it cannot stall a task for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, cast

from ..errors import HeadgateError
from ..names import StreamPartition
from ..user_rule import called, whole
from .chooser import Choice, Head, Wait

NEEDS = frozenset({"value"})
ASK_AGAIN = 0.1
"""Seconds until a chooser is asked again that waits although something could be taken."""
SOON = 0.001
"""The shortest wait. A wait that is already over would only make the loop spin."""


class ChooserError(HeadgateError):
    """A user's own chooser has failed, or has returned something invalid."""


class CheckedChooser:
    """The user's chooser `own`; messages call it by `name`, its import path.

    >>> CheckedChooser(lambda heads, now: None, "shop.choose").choose([Head(StreamPartition("a", 0))], 0.0)
    Wait(until=None, why='')
    """

    def __init__(self, own: object, name: str) -> None:
        self.name = name
        made: Any = own
        if isinstance(own, type):
            made = self._called(cast("Callable[[], object]", own))
        choose: object = getattr(made, "choose", made)
        if not callable(choose):
            raise self._broken("cannot choose", "give it a method choose(heads, now), or name a function")
        self._choose = cast("Callable[[Sequence[Head], float], object]", choose)
        self._taken = cast("Callable[[Choice, int], object] | None", getattr(made, "taken", None))
        self._describe = cast("Callable[[], Mapping[str, object]] | None", getattr(made, "describe", None))
        needs: object = getattr(made, "needs", ())
        self.needs = frozenset({needs} if isinstance(needs, str) else cast("Iterable[str]", needs))
        if unknown := sorted(self.needs - NEEDS):
            raise self._broken(f"needs '{unknown[0]}', which does not exist", f"it may need {sorted(NEEDS)}")

    def _broken(self, what: str, remedy: str) -> ChooserError:
        return ChooserError(f"the chooser '{self.name}' {what}", remedy=remedy)

    def _called(self, function: Callable[..., object], *arguments: object) -> Any:
        remedy = "fix it, or omit App(chooser=…) to use the built-in one"
        return called("chooser", self.name, function, *arguments, remedy=remedy, error=ChooserError)

    def choose(self, heads: Sequence[Head], now: float) -> Choice | Wait:
        answer = self._called(self._choose, heads, now)
        if answer is None:
            answer = Wait()
        if isinstance(answer, Wait):
            return self._patient(answer, heads, now)
        if not isinstance(answer, Choice):
            raise self._broken(f"returned {answer!r}", "answer a Choice, a Wait or None")
        self._types(answer)
        self._check(answer, next((head for head in heads if head.at == answer.at), None))
        return answer._replace(at=StreamPartition(*answer.at))

    def _patient(self, wait: Wait, heads: Sequence[Head], now: float) -> Wait:
        """A wait that ends: the chooser is asked again if something could be taken, and never without a pause."""
        until: object = wait.until
        if until is None:
            return wait._replace(until=now + ASK_AGAIN) if any(head.takeable for head in heads) else wait
        if not (whole(until) or isinstance(until, float)) or not isfinite(until):
            raise self._broken(
                f"returned a wait until {until!r}", "return seconds on the clock that choose() receives, or None"
            )
        return wait._replace(until=max(float(until), now + SOON))

    def _types(self, choice: Choice) -> None:
        at = cast("object", choice.at)
        pair = cast("tuple[object, ...]", at)
        if not (isinstance(at, tuple) and len(pair) == 2 and isinstance(pair[0], str) and whole(pair[1])):
            raise self._broken(
                f"chose {at!r}, which is not a (stream, partition)", "return the `at` of one of the heads"
            )
        for name, value in zip(choice._fields[1:], choice[1:], strict=True):
            if not whole(value) and (value is not None or name == "max_records"):
                raise self._broken(f"returned {name}={value!r}", "bounds are whole numbers, or None")

    def _check(self, choice: Choice, head: Head | None) -> None:
        what = str(StreamPartition(*choice.at))
        if head is None:
            raise self._broken(f"chose {what}, which is not among the heads", "return the `at` of one of the heads")
        for wrong, why in ((head.paused, "is paused"), (head.ended, "has ended"), (head.ready < 1, "is empty")):
            if wrong:
                raise self._broken(f"chose {what}, which {why}", "choose among the heads that are `takeable`")
        if not 1 <= choice.max_records <= head.ready:
            raise self._broken(
                f"wants {choice.max_records} records of {what}, of which {head.ready} are ready",
                "ask for at least 1 and at most head.ready records",
            )
        if choice.up_to_offset is not None and choice.up_to_offset <= head.offset:
            raise self._broken(
                f"limits {what} to offsets below {choice.up_to_offset}, but its head is at {head.offset}",
                "let the head record through: up_to_offset > head.offset",
            )
        if choice.up_to_timestamp is not None and choice.up_to_timestamp < head.timestamp:
            raise self._broken(
                f"limits {what} to times up to {choice.up_to_timestamp}, but its head is at {head.timestamp}",
                "let the head record through: up_to_timestamp >= head.timestamp",
            )

    def taken(self, choice: Choice, records: int) -> None:
        if self._taken is not None:
            self._called(self._taken, choice, records)

    def describe(self) -> Mapping[str, object]:
        said: object = self._called(self._describe) if self._describe is not None else {}
        if not isinstance(said, Mapping):
            raise self._broken(f"described itself as {said!r}", "describe() must return a mapping of plain values")
        return {"chooser": self.name, **cast("Mapping[str, object]", said)}
