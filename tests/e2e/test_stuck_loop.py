"""A main loop that does not turn: it is seen within seconds, and SIGTERM ends the process all the same."""

from __future__ import annotations

import asyncio
import re
import signal
import time
import urllib.error
import urllib.request

import pytest
from click.testing import CliRunner

from headgate.agents.cli.see.status import status

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]

HANGS = """
import time
import headgate as hg

def hanging(value):
    while value["n"] == 1:
        time.sleep(0.01)
    return value

app = hg.App("JOB")
app.input("IN").map(hanging).to("OUT")
"""


def answer(url):
    """Status and body."""
    try:
        with urllib.request.urlopen(url, timeout=120) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def page(one):
    """Where its page is."""
    return await said(one, r"http://[\d.]+:\d+(?=\D)")


async def said(one, pattern):
    """What it writes, once it does."""
    give_up = time.monotonic() + 240
    while True:
        if (found := re.search(pattern, one.text())) is not None:
            return found[0]
        assert time.monotonic() < give_up, one.text()
        await asyncio.sleep(0.05)


async def stands(url, words):
    """What `/livez` answers, once the loop has stood for long enough at this."""
    give_up = time.monotonic() + 240
    while True:
        code, body = await asyncio.to_thread(answer, url + "/livez")
        if code == 503 and words in body:
            return body
        assert time.monotonic() < give_up, body
        await asyncio.sleep(0.1)


async def started_with_sigint_ignored(job, source, *words):
    """As a shell's background job or `nohup` starts it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return await job.process(source, "w1", *words)
    finally:
        signal.signal(signal.SIGINT, before)


async def test_a_loop_that_stands_is_seen_and_sigterm_ends_it(job, topic):
    """User code never comes back: `/livez` was dead, status green, and SIGTERM did nothing."""
    inp, out = topic("in"), topic("out")
    one = await job.process(HANGS.replace("IN", inp).replace("OUT", out), "w1", "--set", "stop.timeout=2s")
    url = await page(one)
    await job.write(inp, [{"n": 0}])
    await job.records(out, 1)
    assert await asyncio.to_thread(answer, url + "/livez") == (200, "ok\n")
    await job.write(inp, [{"n": 1}])
    await said(one, "the main loop is blocked")
    body = await stands(url, "in hanging")  # it may have stood for a moment when it started, too
    assert "the main loop has been blocked for" in body
    code, body = await asyncio.to_thread(answer, url + "/api/status")
    assert code == 503
    assert '"stuck_s"' in body
    warns = r"warning +the main loop of w1 has been blocked for \d+ s; " + re.escape(f"{url}/livez shows where")
    await shown_by_status(job, warns, r"^w1 +joined +no ")
    one.process.send_signal(signal.SIGTERM)
    assert await one.ended() == 3
    assert "did not stop within stop.timeout after SIGTERM" in one.text()
    assert "in hanging" in one.text().rpartition("thread was here")[2]


async def test_ctrl_c_is_heard_however_the_process_was_started(job, topic):
    """A background job is started with SIGINT ignored; the first Ctrl-C commits and leaves."""
    inp, out = topic("in"), topic("out")
    one = await started_with_sigint_ignored(job, HANGS.replace("IN", inp).replace("OUT", out))
    await job.write(inp, [{"n": 0}])
    await job.records(out, 1)
    one.process.send_signal(signal.SIGINT)
    assert await one.ended() == 0
    assert "SIGINT: committing and leaving" in one.text()


NEVER = """
import asyncio
import headgate as hg

async def lookup(value):
    if value["n"] == 1:
        await asyncio.Event().wait()
    return value

app = hg.App("JOB")
app.input("IN").map_async(lookup).to("OUT")
"""


async def shown_by_status(job, *patterns):
    """Wait until `headgate status` shows all of these, as heartbeats tell it."""
    give_up = time.monotonic() + 240
    while True:
        done = await asyncio.to_thread(CliRunner().invoke, status, [job.name, "-b", job.bootstrap])
        assert done.exit_code == 0, done.output
        if all(re.search(pattern, done.output, re.MULTILINE) for pattern in patterns):
            return
        assert time.monotonic() < give_up, done.output


async def test_a_function_that_never_returns_is_named_and_what_waits_behind_it_is_counted(job, topic):
    """The loop turns, nothing fails, and no limit is set: for 110 s all was green, and `status` said that one record waits."""
    inp, out = topic("in"), topic("out")
    one = await job.process(NEVER.replace("IN", inp).replace("OUT", out), "w1", "--set", "letter.warn-after=1s")
    url = await page(one)
    await job.write(inp, [{"n": 0}])
    await job.records(out, 1)
    await job.write(inp, [{"n": 1}])
    # the one before may have taken long, too, and this one is at another place for a moment
    await said(one, r"(?m)^(?=.*a letter takes long).*offset 1, awaiting lookup\b.* in map-async")
    await job.write(inp, [{"n": n} for n in range(2, 52)])
    code, body = await asyncio.to_thread(answer, url + "/readyz")
    assert (code, "awaiting lookup" in body) == (503, True)
    await shown_by_status(job, r"^Partition 0 +running .* 51 .* working on .*awaiting lookup", r"^lag +51 records")
    _, metrics = await asyncio.to_thread(answer, url + "/metrics")
    assert re.search(r"headgate_input_lag_records\{.*\} 51\.0", metrics)
    assert re.search(r"headgate_slow_letters_total\{.*\} [12]\.0", metrics)  # the first may have taken a second
    one.process.send_signal(signal.SIGTERM)
    await one.ended()
