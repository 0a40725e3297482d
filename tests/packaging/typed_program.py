"""A program against the public names, as a user's type checker sees it. It is checked by pyright, never run."""

from __future__ import annotations

from typing import assert_type

import headgate as hg

assert_type(hg.__version__, str)
