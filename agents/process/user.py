"""The user whose process this is, by name. A file of its own: a command that steers a job says who asked, and loads nothing else for it."""

from __future__ import annotations

import getpass
import os


def user_name() -> str:
    """The name of the user; in containers, users often have a number only."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
