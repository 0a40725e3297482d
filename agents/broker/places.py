"""The directories of the embedded broker: jars in the user's cache, data and the list of running brokers in the user's data directory.

Promises: an environment variable can move each directory (`HEADGATE_CACHE`, `HEADGATE_HOME`). The XDG variables are honoured. These
functions create nothing.
"""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """The directory for files that can be fetched again: `HEADGATE_CACHE`, else `$XDG_CACHE_HOME/headgate`, else `~/.cache/headgate`."""
    if own := os.environ.get("HEADGATE_CACHE"):
        return Path(own).expanduser().absolute()
    return _xdg("XDG_CACHE_HOME", ".cache")


def home_dir() -> Path:
    """The directory for files to keep: `HEADGATE_HOME`, else `$XDG_DATA_HOME/headgate`, else `~/.local/share/headgate`."""
    if own := os.environ.get("HEADGATE_HOME"):
        return Path(own).expanduser().absolute()
    return _xdg("XDG_DATA_HOME", ".local/share")


def default_data_dir() -> Path:
    """The data directory of `headgate kafka up` without `--data`."""
    return home_dir() / "kafka"


def _xdg(variable: str, under_home: str) -> Path:
    base = os.environ.get(variable)
    return (Path(base) if base and os.path.isabs(base) else Path.home() / under_home) / "headgate"
