"""A real Prometheus, where it is installed, scrapes a real worker: with its token, under the names that the dashboard asks for. In a job
that works no alert fires."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

import headgate as hg
from headgate.agents.process.configuration import CommandLine, configure
from headgate.agents.web.door import PageDoor
from headgate.agents.web.service import Page

from ..docs import house
from ..docs.dashboard import dashboard
from ..docs.pages import ROOT

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
PROGRAM = shutil.which("prometheus")
PATIENCE_S = 120.0
TOKEN = "for-prometheus"


@contextlib.asynccontextmanager
async def scraping(directory: Path, target: str) -> AsyncIterator[str]:
    """A Prometheus that scrapes a worker every four seconds, with the rules of docs. Gives its address."""
    assert PROGRAM is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    scraped = {"job_name": "headgate", "honor_labels": True, "static_configs": [{"targets": [target]}]}
    scraped["authorization"] = {"credentials": TOKEN}
    file = directory / "prometheus.yaml"
    times = {"scrape_interval": "4s", "scrape_timeout": "4s", "evaluation_interval": "1s"}
    rules = str(ROOT / "docker/prometheus/rules.yaml")
    file.write_text(yaml.safe_dump({"global": times, "rule_files": [rules], "scrape_configs": [scraped]}))
    words = [
        f"--config.file={file}",
        f"--storage.tsdb.path={directory / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (directory / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            PROGRAM, *words, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


async def asked(url: str, query: str) -> list[dict[str, Any]]:
    """What Prometheus answers; nothing while it starts."""
    with contextlib.suppress(aiohttp.ClientConnectionError):
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{url}/api/v1/query", params={"query": query}) as answer:
                found = await answer.json(content_type=None) if answer.status != 503 else {"data": {"result": []}}
        assert found.get("status", "success") == "success", (query, found)
        return found["data"]["result"]
    return []


@pytest.mark.skipif(PROGRAM is None, reason="Prometheus is not installed here")
async def test_it_scrapes_a_worker_and_no_alert_fires(job, topic, tmp_path):
    inp, out = topic("in", 2), topic("out")
    app = hg.App(job.name)
    app.input(inp).repartition("user").agg(orders=hg.count(), name="spent").to(out)
    page = Page(door=PageDoor("127.0.0.1", TOKEN))
    await page.bind()
    running = await job.start(app, "w1", url=page.url)
    await page.start(running.worker, configure(CommandLine(bootstrap=job.bootstrap)))
    try:
        await running.until_running(2)
        async with scraping(tmp_path, page.url.removeprefix("http://")) as url, asyncio.timeout(PATIENCE_S):
            for n in range(10_000):
                await job.write(inp, [{"user": f"u{n % 7}", "n": n}])
                found = await asked(
                    url, f'rate(headgate_records_read_total{{job="{job.name}/1", stream="{inp}"}}[30s])'
                )
                if found and float(found[0]["value"][1]) > 0:
                    break
            assert [one["value"][1] for one in await asked(url, 'max_over_time(up{job="headgate"}[1m])')] == ["1"]
            names = {one["metric"]["__name__"] for one in await asked(url, f'{{job="{job.name}/1", worker="w1"}}')}
            always = [
                one.name
                for one in house.metrics()
                if not one.labels and one.kind != "histogram" and "spark" not in one.name
            ]
            assert set(always) <= names
            assert {"headgate_commit_seconds_bucket", "headgate_step_seconds_total", "headgate_tasks"} <= names
            for panel in dashboard(house.metrics())["panels"]:
                for target in panel.get("targets", ()):
                    query = target["expr"].replace("$__rate_interval", "30s").replace("$__range", "1m")
                    await asked(url, query.replace("$job", f"{job.name}/1").replace("$worker", ".*"))
            assert await asked(url, 'ALERTS{alertstate="firing"}') == []
    finally:
        await page.stop()
