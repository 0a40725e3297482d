"""The page of endpoints, formats and exit codes has what the code has."""

from __future__ import annotations

import re

from headgate.agents.web.service import VIEWS
from headgate.core.progress.came_from import ROWS_HEADER
from headgate.core.progress.frames import FROM_HEADER, HEADER

from .pages import ROOT

PAGE = (ROOT / "docs/reference/interfaces.md").read_text(encoding="utf-8")


def test_every_endpoint_stands_on_the_page() -> None:
    """And none that no worker serves."""
    served = sorted(path.replace(":.*", "") for path in VIEWS)
    assert sorted(re.findall(r"^\| `(/[^`]*)` \|", PAGE, re.MULTILINE)) == served


def test_the_headers_of_frames_stand_on_the_page() -> None:
    assert [name for name in (HEADER, FROM_HEADER, ROWS_HEADER) if f"`{name}`" not in PAGE] == []
