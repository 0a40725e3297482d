"""Every test that the page on stop, pause, drain and end names is there."""

from __future__ import annotations

import re

from .pages import ROOT


def test_every_proof_exists() -> None:
    """`path::test`, or `::test` for another one of the same file."""
    path, named, missing = "", 0, list[str]()
    for file, test in re.findall(r"`([\w/.]*)::(\w+)`", (ROOT / "docs/stopping.md").read_text()):
        path, named = file or path, named + 1
        if f"def {test}(" not in (ROOT / path).read_text():
            missing.append(f"{path}::{test}")
    assert missing == []
    assert named > 20
