"""The page for people, run by Node.js with a document of its own, where there is one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import Any

import pytest

from headgate.agents.web.service import page_text

NODE = shutil.which("node")
DOCUMENT = """
const elements = {};
globalThis.document = { getElementById: id => elements[id] ??= { style: {} } };
globalThis.setTimeout = () => {};
globalThis.fetch = () => Promise.reject(new Error("no worker"));
"""


def shown(*statuses: dict[str, Any]) -> dict[str, Any]:
    """The elements of the page after it has shown these answers of /api/status, one after the other."""
    assert NODE is not None
    script = re.findall(r"<script>(.*?)</script>", page_text(), re.DOTALL)
    told = f"for (const one of {json.dumps(statuses)}) show(one);\nconsole.log(JSON.stringify(elements));"
    ran = subprocess.run(
        [NODE, "-"], input=f"{DOCUMENT}{script[0]}\n{told}", capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def task(name: str, lag: int | None, **given: Any) -> dict[str, Any]:
    """A task of the job that belongs to the worker of the page."""
    facts = {"worker": "w1", "here": True, "state": "running", "said": "running", "for_s": 5.0, "watermark": None}
    return {"task": name, "lag": lag, "restore_left": None, "why": "", **facts, **given}


def status(*tasks: dict[str, Any]) -> dict[str, Any]:
    """An answer of /api/status."""
    worker = {"processor": "w1", "incarnation": "000001-a", "ready": True, "why": "", "up_s": 60, "version": "1"}
    worker |= {"leads": False, "commits": 3, "last_commit_s": 0.1, "tasks": [], "times": [], "windows": [], "joins": []}
    return {"job": "sales/1", "worker": worker, "run": None, "leader": None, "workers": [], "tasks": list(tasks)}


def lag_card(*statuses: dict[str, Any]) -> str:
    """The card of the lag, after these."""
    return (
        shown(*statuses)["cards"]["innerHTML"].partition('<div class="name">lag</div>')[2].partition('class="name"')[0]
    )


needs_node = pytest.mark.skipif(NODE is None, reason="there is no Node.js")


@needs_node
def test_an_unknown_lag_is_a_gap_in_its_line_and_not_a_zero() -> None:
    """While the broker was away the line fell to 0, as if everything had been processed."""
    known, unknown = status(task("a", 10), task("b", 0)), status(task("a", 10), task("b", None))
    card = lag_card(known, known, unknown, known)
    assert re.findall(r'<polyline points="(.*?)"', card) == ["56,1 57,1", "59,1 59,1"]
    assert "unknown for 1 of 2 tasks" not in card
    card = lag_card(known, known, unknown)
    assert re.findall(r'<polyline points="(.*?)"', card) == ["57,1 58,1"]
    assert "unknown for 1 of 2 tasks" in card


@needs_node
def test_a_task_that_has_failed_and_does_not_run_stands_in_the_table() -> None:
    """Tasks that a full disk had failed were missing: "none yet"."""
    failed = task("Partition 0", 700, state="failed", said="failed", for_s=None, why="the disk is full")
    table = shown(status(failed, task("Partition 1", None, here=False, worker="w2")))["tasks"]["innerHTML"]
    rows = [re.sub(r"<[^>]*>", "|", row) for row in table.split("</tr>")[1:-1]]
    assert rows == ["||Partition 0|w1||failed||–|700|–|–|the disk is full", "||Partition 1|w2||running||5 s|–|–|–|"]
