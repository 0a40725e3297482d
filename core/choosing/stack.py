"""The chooser of a task, built from its settings: bootstrap, drift, tiers, batching, and the rule.

It decides that the job's own streams form a tier above all inputs, so that what is between two stages is finished before more is read;
`max_starve` still lets inputs through. A user's own chooser replaces batching and rule; if it is a class, each tier has its own instance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ..errors import SettingError
from ..settings import find, parse
from .checked import CheckedChooser
from .chooser import Choice, Chooser, Head, Rule, Wait
from .drift import Drift
from .layers import Batching, Bootstrap, Tiers
from .rules import RoundRobin, StartingAlignment, TimeAligned

OWN_STREAMS = 2**31
"""The priority of intermediate streams; inputs stay below it."""

PRIORITY = ("streams.", ".priority")
RULES = ("round-robin", "time-aligned", "starting-alignment")


@dataclass(frozen=True, slots=True)
class ChooserSettings:
    """The settings of a chooser. Raises `SettingError` for an invalid value.

    >>> ChooserSettings(rule="time-aligned", batch_size=500).rule
    'time-aligned'
    """

    rule: str = "round-robin"
    batch_size: int = 0
    """Records from one partition before the rule is asked again; 0: no batches."""
    align_wait: float = 0.5
    """Seconds that a time-aligned task waits for an empty partition."""
    max_starve: float | None = 10.0
    """Seconds after which a lower tier gets a chunk; None: never."""
    priorities: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """By input stream; 0 for streams that are not named."""
    max_drift: int = 10_000
    """By how many ms streams that meet in a join may be apart; 0: by any."""

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise SettingError(f"chooser.rule is '{self.rule}'", remedy=f"use one of {', '.join(RULES)}")
        for name, value in (
            ("batch-size", self.batch_size),
            ("align-wait", self.align_wait),
            ("max-starve", self.max_starve),
            ("max-drift", self.max_drift),
        ):
            if value is not None and value < 0:
                raise SettingError(f"chooser.{name} is {value}", remedy="use zero or more")
        for stream, priority in self.priorities.items():
            if not -OWN_STREAMS < priority < OWN_STREAMS:
                raise SettingError(
                    f"streams.{stream}.priority is {priority}",
                    remedy=f"stay between -{OWN_STREAMS - 1} and {OWN_STREAMS - 1}",
                )


def settings_of(values: Mapping[str, Any], declared: Mapping[str, int] = MappingProxyType({})) -> ChooserSettings:
    """The chooser's settings among those of a job, as given in files and in the coordinator stream; others are ignored.

    `declared`: the declared priorities; a setting `streams.<name>.priority` overrides them. A `chooser` that is not one of `RULES` is the
    import path of a user's own, which the caller loads and passes to `Stack`.

    >>> settings_of({"chooser": "time-aligned", "streams.orders.priority": "2"}, {"orders": 1, "rates": 1}).priorities["orders"]
    2
    """

    def value(name: str) -> Any:
        return parse(name, values.get(name, find(name).default))

    priorities = dict(declared)
    for name in values:
        if name.startswith(PRIORITY[0]) and name.endswith(PRIORITY[1]):
            priorities[name.removeprefix(PRIORITY[0]).removesuffix(PRIORITY[1])] = parse(name, values[name])
    rule = value("chooser")
    return ChooserSettings(
        rule=rule if rule in RULES else RULES[0],
        batch_size=value("chooser.batch-size"),
        align_wait=value("chooser.align-wait") / 1000,
        max_starve=value("chooser.max-starve") / 1000,
        max_drift=value("chooser.max-drift"),
        priorities=MappingProxyType({stream: int(priorities[stream]) for stream in sorted(priorities)}),
    )


class Stack:
    """The whole chooser of one task.

    >>> stack = Stack(ChooserSettings(priorities={"urgent": 1}))
    >>> heads = [Head(StreamPartition("slow", 0), ready=9), Head(StreamPartition("urgent", 0), ready=3)]
    >>> stack.choose(heads, now=0.0)
    Choice(at=StreamPartition(stream='urgent', partition=0), max_records=3, up_to_timestamp=None, up_to_offset=None)
    """

    def __init__(
        self,
        settings: ChooserSettings | None = None,
        *,
        intermediates: Iterable[str] = (),
        meeting: Sequence[frozenset[str]] = (),
        own: object = None,
        own_name: str = "",
    ) -> None:
        """`meeting`: groups of streams that meet in a join."""
        self.intermediates = frozenset(intermediates)
        self._meeting = meeting
        self._own = own
        self._own_name = own_name
        self.needs: frozenset[str] = CheckedChooser(own, own_name).needs if own is not None else frozenset()
        self.apply(settings or ChooserSettings())

    def apply(self, settings: ChooserSettings) -> None:
        """Apply new settings from the next choice on. Whose turn it is, is kept only if nothing but priorities and `max_starve` changes."""
        new = Tiers(
            self._inner, {**settings.priorities, **dict.fromkeys(self.intermediates, OWN_STREAMS)}, settings.max_starve
        )
        before: ChooserSettings | None = getattr(self, "settings", None)
        self.settings = settings
        if before is not None and _inner_part(before) == _inner_part(settings):
            self._tiers.priorities, self._tiers.max_starve = new.priorities, new.max_starve
            self._drift.max_drift = settings.max_drift
            return
        self._tiers = new
        self._drift = Drift(new, self._meeting, settings.max_drift, settings.align_wait)
        self._top = Bootstrap(self._drift if self._meeting else new)

    def _inner(self) -> Chooser:
        if self._own is not None:
            return CheckedChooser(self._own, self._own_name)
        rule = self._rule()
        return Batching(rule, self.settings.batch_size) if self.settings.batch_size else rule

    def _rule(self) -> Rule:
        match self.settings.rule:
            case "time-aligned":
                return TimeAligned(self.settings.align_wait)
            case "starting-alignment":
                return StartingAlignment()
            case _:
                return RoundRobin()

    def choose(self, heads: Sequence[Head], now: float) -> Choice | Wait:
        """The next partition, or how long to wait for one. Without heads there is nothing to choose."""
        return self._top.choose(heads, now) or Wait() if heads else Wait()

    def taken(self, choice: Choice, records: int) -> None:
        self._top.taken(choice, records)

    def describe(self) -> Mapping[str, object]:
        return self._top.describe()


def _inner_part(settings: ChooserSettings) -> tuple[str, int, float]:
    return settings.rule, settings.batch_size, settings.align_wait
