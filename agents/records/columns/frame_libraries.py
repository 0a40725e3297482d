"""The libraries whose frames a function may ask for: `.frame(fn, like="polars")`.

None of them is needed by headgate, and each is imported only by a task of a job that asks for it. Promises: a frame has the types of its
columns whatever its values are, so nulls turn no whole number into a float, also in pandas; and the memory of its columns is not copied.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from ....core.errors import DeclarationError
from ....core.settings import offer
from ..memory.vectors import VectorBatch

Library = Literal["polars", "pyarrow", "pandas", "narwhals"]
FrameMaker = Callable[[VectorBatch], Any]


class _Needed(NamedTuple):
    """The libraries that a kind of frame needs, each with the least version."""

    versions: dict[str, tuple[int, ...]]
    make: Callable[[], FrameMaker]


def _polars() -> FrameMaker:
    return importlib.import_module("polars").DataFrame


def _pyarrow() -> FrameMaker:
    return importlib.import_module("pyarrow").table


def _pandas() -> FrameMaker:
    kind = importlib.import_module("pandas").ArrowDtype
    table = _pyarrow()
    return lambda batch: table(batch).to_pandas(types_mapper=kind)


def _narwhals() -> FrameMaker:
    wrapped, table = importlib.import_module("narwhals").from_native, _pyarrow()
    return lambda batch: wrapped(table(batch), eager_only=True)


_ARROW = {"pyarrow": (16,)}
LIBRARIES: dict[str, _Needed] = {
    "polars": _Needed({"polars": (1, 3)}, _polars),
    "pyarrow": _Needed(_ARROW, _pyarrow),
    "pandas": _Needed({"pandas": (2, 2), **_ARROW}, _pandas),
    "narwhals": _Needed({"narwhals": (1, 20), **_ARROW}, _narwhals),
}


def check_library(like: Any) -> None:
    """Refuse a library that is unknown, not installed or too old. None of them is imported for it."""
    if not isinstance(like, str) or like not in LIBRARIES:
        raise DeclarationError(
            f"frame(like={like!r:.60})",
            remedy=f"{offer(str(like), LIBRARIES)}; without like=, the function gets an object with __arrow_c_array__",
        )
    import importlib.metadata

    for name, least in LIBRARIES[like].versions.items():
        wanted = ".".join(map(str, least))
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            raise DeclarationError(
                f"frame(like='{like}') needs {name}, which is not installed", remedy=f"pip install '{name}>={wanted}'"
            ) from None
        if _numbers(found) < least:
            raise DeclarationError(
                f"frame(like='{like}') needs {name} {wanted} or newer, and {found} is installed",
                remedy=f"pip install '{name}>={wanted}'",
            )


def _numbers(version: str) -> tuple[int, ...]:
    """
    >>> _numbers("2.10rc1")
    (2, 10)
    """
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def frames_like(like: str | None) -> FrameMaker:
    """The function that makes a frame of this library; without one, a batch stays what it is."""
    return _itself if like is None else LIBRARIES[like].make()


def _itself(batch: VectorBatch) -> VectorBatch:
    return batch
