"""A rule that a setting names: one that is built in, or somebody's own by import path.

Promises: what cannot be imported is an error that names the setting's value, why, and what may stand there instead.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

from ..core.errors import SettingError


def imported(what: str, path: str, built_in: Iterable[str]) -> Any:
    """What stands under `package.module:name` (or with a dot).

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
