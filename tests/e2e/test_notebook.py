"""Cells of a notebook, in a real Jupyter kernel, whose event loop runs already: the test driver, and a worker inside of a cell."""

from __future__ import annotations

import nbclient
import nbformat
import pytest

from .conftest import QUICK

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]

DRIVEN = """
import headgate as hg

app = hg.App("<job>")
seen = app.table("seen", key=hg.text())


@app.agent(app.input("<in>"), sink="<out>")
async def count(batches):
    async for batch in batches:
        seen["n"] = seen.get("n", 0) + len(batch)
        yield {"n": seen["n"]}


@app.timer("10s")
def alive(tick):
    tick.emit("<out>", {"tick": tick.number})


d = hg.testing.Driver(app)
d.send_all("<in>", [1, 2])
"""
LATER = """
d.advance("10s")  # the driver of an earlier cell goes on
print([one.value for one in d.read("<out>")])
d.close()
"""
HOSTED = """
import asyncio


async def until(n):
    while worker.get("seen", "n") != n:
        await asyncio.sleep(0.02)


worker = hg.running(app, bootstrap="<bootstrap>", settings=<settings>, state_dir="<state>")
async with worker:
    while list(worker.tasks.values()) != ["running"]:
        await asyncio.sleep(0.02)
    await asyncio.wait_for(until(3), 200)
    print(worker.tasks, worker.get("seen", "n"))
print(worker.tasks)
"""


def printed(cell):
    return "".join(one.text for one in cell.outputs if one.output_type == "stream" and one.name == "stdout")


async def test_a_driver_and_a_worker_run_in_cells(job, topic):
    """A cell awaits; what one cell has begun goes on in the next; a cell can be run again."""
    inp, out = topic("in"), topic("out")
    await job.write(inp, [1, 2, 3])
    words = {"<job>": job.name, "<in>": inp, "<out>": out, "<bootstrap>": job.bootstrap}
    words |= {"<settings>": repr(QUICK), "<state>": str(job.directory / "state")}
    cells = []
    for source in (DRIVEN, LATER, HOSTED, HOSTED):
        for word, meant in words.items():
            source = source.replace(word, meant)
        cells.append(nbformat.v4.new_code_cell(source))
    notebook = nbformat.v4.new_notebook(cells=cells)
    await nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").async_execute()
    _, later, first, again = notebook.cells
    assert printed(later).strip() == "[{'n': 2}, {'tick': 1}]"
    for cell in (first, again):  # besides what the worker logs
        said = [line for line in printed(cell).splitlines() if line.startswith("{")]
        assert said == ["{'Partition 0': 'running'} 3", "{}"]
