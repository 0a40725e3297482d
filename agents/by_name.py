"""Imports a user-defined rule, such as a grouper or a chooser, that a setting names by its import path.

Promises: a path that cannot be imported raises a `SettingError` that gives the path, the reason, and the allowed values.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

from ..core.errors import SettingError


def imported(what: str, path: str, built_in: Iterable[str]) -> Any:
    """Import the object at `package.module:name` (or `package.module.name`).

    >>> imported("grouper", "headgate.core.graph.grouping:all_in_one", ["partition"]).__name__
    'all_in_one'
    """
    remedy = f"one of {', '.join(built_in)}, or package.module:name"
    module, _, attribute = path.replace(":", ".").rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        why = str(error) if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: {error}"
        raise SettingError(f"the {what} '{path}' cannot be imported: {why}", remedy=remedy) from error
    if not callable(found) and not callable(getattr(found, "choose", None)):
        raise SettingError(f"the {what} '{path}' is not a function: {found!r}", remedy=remedy)
    return found
