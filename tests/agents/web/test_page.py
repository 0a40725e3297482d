"""The page for people, run by Node.js with a document of its own, where there is one. `tests/e2e` looks at it in a real browser."""

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
globalThis.document = { getElementById: id => elements[id] ??= { style: {}, dataset: {} } };
globalThis.setTimeout = () => {};
globalThis.fetch = () => Promise.reject(new Error("no worker"));
"""


def shown(*documents: dict[str, Any], then: str = "") -> dict[str, Any]:
    """The elements of the page after it has shown these answers of /api/job, one after the other."""
    assert NODE is not None
    script = re.findall(r"<script>(.*?)</script>", page_text(), re.DOTALL)
    told = f"for (const one of {json.dumps(documents)}) show(one);\n{then}\nconsole.log(JSON.stringify(elements));"
    ran = subprocess.run(
        [NODE, "-"], input=f"{DOCUMENT}{script[0]}\n{told}", capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def task(name: str, lag: int | None, **given: Any) -> dict[str, Any]:
    """A task of the job."""
    facts = {"worker": "w1", "wanted": "w1", "state": "running", "for_s": 5.0, "watermark": None, "letter": None}
    facts |= {"preparing": None, "prepare_left": None, "standby": None, "standby_left": None, "parked": 0}
    return {"task": name, "lag": lag, "restore_left": None, "why": "", **facts, **given}


def document(*tasks: dict[str, Any], failed: Any = (), recent: Any = (), **more: Any) -> dict[str, Any]:
    """An answer of /api/job."""
    worker = {"processor": "w1", "ready": True, "why": "", "up_s": 60, "version": "1", "leads": False}
    lags = [one["lag"] for one in tasks if one["lag"] is not None]
    status = {"run": None, "leader": None, "workers": [], "workers_wanted": None, "tasks": list(tasks), "drain": None}
    status |= {"lag": sum(lags), **{name: [] for name in ("times", "windows", "joins", "batches", "waits", "errors")}}
    numbers = {"rows_s": [], "lag": list(recent), "lag_trend": None, "steps": {}, "streams": {}, "workers": {}}
    found = {"job": "sales/1", "worker": worker, "status": status, "standing": [], "history": [], "tracebacks": {}}
    found |= {"hurts": {"verdict": "nothing is slow", "failed": list(failed)}, "flow": {"nodes": [], "edges": []}}
    return {**found, "recent": numbers, "catches_up_s": None, **more}


def lag_card(found: dict[str, Any]) -> str:
    """The card of the lag."""
    return shown(found)["cards"]["innerHTML"].partition('<div class="name">lag</div>')[2].partition('class="name"')[0]


def rows_of(html: str) -> list[str]:
    return [re.sub(r"<[^>]*>", "|", row) for row in html.split("</tr>")[1:-1]]


needs_node = pytest.mark.skipif(NODE is None, reason="there is no Node.js")


@needs_node
def test_an_unknown_lag_is_a_gap_in_its_line_and_not_a_zero() -> None:
    """While the broker was away the line fell to 0, as if everything had been processed."""
    card = lag_card(document(task("a", 10), task("b", None), recent=[10, 10, None, 5]))
    assert re.findall(r'<polyline points="(.*?)"', card) == ["20,1.0 21,1.0", "23,10.0 23,10.0"]
    assert "unknown for 1 of 2 tasks" in card
    assert "unknown" not in lag_card(document(task("a", 10), recent=[10, 10]))


@needs_node
def test_whether_the_lag_grows_is_said() -> None:
    """20,000 records are nothing if they are gone in a minute."""
    grows = document(task("a", 10))
    grows["recent"]["lag_trend"] = 120.0
    assert '<span class="bad">grows by 120/s</span>' in lag_card(grows)
    assert "caught up in about 2 min" in lag_card({**grows, "catches_up_s": 118.0})


@needs_node
def test_tasks_that_have_failed_come_first_and_say_what_they_wait_for() -> None:
    """Tasks that a full disk had failed were missing: "none yet"."""
    busy = task("Partition 0", 900, worker="w2", preparing="w3", prepare_left=70, wanted="w3")
    failed = task("Partition 1", 7, state="failed", for_s=None, why="the disk is full")
    table = shown(document(busy, failed, task("Partition 2", None, state="restoring", restore_left=1200)))["tasks"]
    assert rows_of(table["innerHTML"]) == [
        "||Partition 1|w1||failed||–|7|–|the disk is full",
        "||Partition 2|w1||restoring||5 s|–|–|1,200 records to replay",
        "||Partition 0|w2||running||5 s|900|–|w3 prepares to run it: 70 records to replay · moves to w3",
    ]


@needs_node
def test_what_others_wrote_is_text() -> None:
    """Names and errors of users are no markup."""
    failed = {"task": "<i>t</i>", "worker": "w1", "why": "<script>alert(1)</script>", "todo": "headgate status"}
    found = shown(document(task("<i>t</i>", 1), failed=[failed]))
    for place in ("failed", "tasks"):
        assert "<i>t" not in found[place]["innerHTML"]
        assert "<script>" not in found[place]["innerHTML"]


@needs_node
def test_a_stage_shows_what_it_reads_its_steps_and_what_it_writes() -> None:
    """Pressure is on the edge through the topic."""

    def node(step: str, verb: str, stage: int, rows_s: int, share: float | None, *parents: str) -> dict[str, Any]:
        facts = {"step": step, "verb": verb, "stage": stage, "rank": stage, "parents": parents, "writes": []}
        return {**facts, "rows_s": rows_s, "busy": share, "share": share}

    nodes = [node("orders", "input", 0, 30, 0.1), node("map", "map", 0, 30, 0.9, "orders")]
    nodes.append(node("by-user", "repartition", 1, 9, None, "map"))
    edge = {"lag": 900, "work_s": 30.0, "pressure": "high", "watermark_delay_s": 7.0, "held_by": ["orders:1"]}
    calm = {"lag": 0, "work_s": 0.0, "pressure": "none", "watermark_delay_s": None, "held_by": []}
    edges = [
        {"from": None, "to": "orders", "through": "orders", **edge},
        {"from": "map", "to": "by-user", "through": "t", **calm},
    ]
    html = shown(document(task("a", 1), flow={"nodes": nodes, "edges": edges}))["flow"]["innerHTML"]
    first, second = html.split('<div class="rank">')[1:]
    assert re.sub(r"(<[^>]*>)+", "|", first).strip("|").split("|") == [
        "⇥ ", "orders", "high pressure", "lag 900 · 30 s of work · event time 7 s behind", "held by orders:1",
        "orders", "30/s", "10 %", "map", "30/s", "90 %", "↦ ", "t",
    ]  # fmt: skip
    assert 'class="step hot"' in first
    assert re.sub(r"(<[^>]*>)+", "|", second).strip("|").split("|")[3:5] == ["by-user ", "repartition"]


@needs_node
def test_the_page_of_a_worker_that_is_gone_leads_to_others() -> None:
    """It keeps what it has shown."""
    found = document(task("a", 1))
    worker = {
        "state": "joined",
        "tasks": [],
        "loop": None,
        "starved": None,
        "location": "",
        "heard_s": 1,
        "ready": True,
        "alive": True,
    }
    found["status"]["workers"] = [{**worker, "processor": n, "url": f"http://{n}:1"} for n in ("w1", "w2")]
    told = shown(found, then='lost("It is gone.");')["lost"]["innerHTML"]
    assert 'href="http://w2:1"' in told
    assert "http://w1" not in told
