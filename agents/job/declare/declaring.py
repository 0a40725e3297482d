"""What verbs are chained to: an app, and the step behind which the next one stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from ...records.values.serdes import Serde
from ..derive.declaration import DeclaredApp
from ..derive.named_fields import serde_behind
from ..steps.step import Step
from ..types.arguments import called_from
from .checks import check_serde
from .refused_verbs import RefusesVerbs

S = TypeVar("S", bound=Step)


class DeclaringApp(DeclaredApp, Protocol):
    """What verbs need of the app that they declare something on."""

    @property
    def windows(self) -> list[Any]: ...

    def add(self, step: Any) -> Any:
        """Add a step; refuse it if the job could not work with it."""
        ...


class Declaring(RefusesVerbs):
    """Base class of streams, tables and batches. A verb never changes what it is called on, so all of them can be used several times."""

    def __init__(self, app: DeclaringApp, step: Any) -> None:
        self.app = app
        self.step = step


def added(of: Declaring, make: Callable[..., S], /, **given: Any) -> S:
    """A step, declared behind this one unless it is given other parents."""
    return of.app.add(make(**{"parents": (of.step,), "where": called_from(), **given}))


def serde_for(of: Declaring, given: Serde[Any] | None, where: str, default: Serde[Any] | None = None) -> Serde[Any]:
    """The serde that is given, else the default, else that of the values that come in."""
    if given is None:
        return default if default is not None else serde_behind(of.step, of.app.serde)
    check_serde(given, where)
    return given
