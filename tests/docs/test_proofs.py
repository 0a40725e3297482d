"""Every test that a page names as a proof is there."""

from __future__ import annotations

import re

import pytest

from .pages import ROOT


@pytest.mark.parametrize(("page", "at_least"), [("stopping", 20), ("choosing", 7)])
def test_every_proof_exists(page: str, at_least: int) -> None:
    """`path::test`, or `::test` for another one of the same file."""
    path, named, missing = "", 0, list[str]()
    for file, test in re.findall(r"`([\w/.]*)::(\w+)`", (ROOT / f"docs/{page}.md").read_text()):
        path, named = file or path, named + 1
        if f"def {test}(" not in (ROOT / path).read_text():
            missing.append(f"{path}::{test}")
    assert missing == []
    assert named > at_least
