"""The first hour with headgate, from a wheel and an empty directory: new, dev, changes, a test, a secure broker, and a deployment."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from headgate.agents.broker.ports import is_free

from .conftest import Environment, beside

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
LIMIT_S = 240


class Shown:
    """A command that keeps running, and what it has shown so far."""

    def __init__(self, words: list[str], home: Path, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            words, cwd=home, env=environment, stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self.lines: list[str] = []
        self._seen = 0
        self._more = threading.Condition()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._more:
                self.lines.append(line)
                self._more.notify_all()
        with self._more:
            self._seen = -1
            self._more.notify_all()

    def until(self, text: str) -> None:
        """Wait for the next line with this text; what stood before it counts no more."""
        with self._more:

            def there() -> bool:
                return self._seen < 0 or any(text in line for line in self.lines[self._seen :])

            self._more.wait_for(there, LIMIT_S)
            found = [n for n, line in enumerate(self.lines[self._seen :]) if text in line] if self._seen >= 0 else []
            assert found, f"no {text!r} in:\n{''.join(self.lines)}"
            self._seen += found[0] + 1

    def ended(self) -> int:
        """Its exit code."""
        code = self.process.wait(LIMIT_S)
        self._reading.join(LIMIT_S)
        return code


class Newcomer:
    """Somebody who types commands in a directory, with headgate from a wheel."""

    def __init__(self, installed: Environment, home: Path, environment: dict[str, str]) -> None:
        self.installed, self.home, self.environment = installed, home, environment

    def types(self, *words: str, code: int = 0) -> str:
        """What a command prints."""
        done = subprocess.run(
            self._words(words), cwd=self.home, env=self.environment, capture_output=True, text=True, timeout=LIMIT_S,
            check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def starts(self, *words: str) -> Shown:
        """A command that keeps running."""
        return Shown(self._words(words), self.home, self.environment)

    def latest(self, topic: str, *options: str) -> Any:
        """The next record that comes into a topic."""
        following = self.starts("headgate", "tail", topic, "--all", "--follow", *options)
        following.until('"value"')
        following.process.terminate()
        following.ended()
        return json.loads(next(line for line in following.lines if '"value"' in line))["value"]

    def edits(self, file: str, before: str, after: str) -> None:
        """Replace a text in a file, as an editor does: at once."""
        path = self.home / file
        text = path.read_text()
        assert before in text
        (draft := path.with_suffix(".draft")).write_text(text.replace(before, after))
        draft.replace(path)

    def left(self) -> list[str]:
        """Processes that were started by these commands, and files outside of the directory."""
        mark = self.environment["HEADGATE_HOME"]
        places = [Path(self.environment[name]) for name in ("HEADGATE_HOME", "XDG_STATE_HOME", "TMPDIR")]
        return [*_with(mark), *(str(path) for place in places for path in place.rglob("*") if not path.is_dir())]

    def _words(self, words: tuple[str, ...]) -> list[str]:
        program, *others = words
        return [str(self.installed.home / "bin" / program), *others]


def _with(mark: str) -> Iterator[str]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # others' processes, and those that have ended
            if process.environ().get("HEADGATE_HOME") == mark:
                yield " ".join(process.cmdline())


@pytest.fixture
def ann(wheel: Path, guarded: Path, tmp_path: Path) -> Newcomer:
    """Nothing but a wheel and an empty directory."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HEADGATE_", "PYTHON"))}
    if "HEADGATE_CACHE" in os.environ:
        kept["HEADGATE_CACHE"] = os.environ["HEADGATE_CACHE"]
    places = {name: tmp_path / name.lower() for name in ("XDG_STATE_HOME", "TMPDIR")}
    places["HEADGATE_HOME"] = guarded / f"hour-{uuid.uuid4().hex[:8]}"
    for place in (*places.values(), tmp_path / "work"):
        place.mkdir()
    plain = {"NO_COLOR": "1", "COLUMNS": "300", "PYTHONUNBUFFERED": "1"}
    environment = {**kept, **plain, **{name: str(place) for name, place in places.items()}}
    return Newcomer(beside(tmp_path / "env", wheel), tmp_path / "work", environment)


def test_a_fresh_hour(ann: Newcomer, guarded: Path) -> None:
    """Each step is what somebody types who has read the quickstart, and each answers as it says there."""
    ann.types("headgate", "new", "web-sales")
    ann.home /= "web-sales"

    working = ann.starts("headgate", "dev", "web_sales:app")
    try:
        working.until("topics created: orders, totals")
        working.until("web-sales/1: http://127.0.0.1:")
        working.until("ready=True")
        ann.types("headgate", "send", "orders", '{"customer": "ann", "amount": 3}')
        assert ann.latest("totals") == {"orders": 1, "total": 3}

        ann.edits("web_sales.py", "(\n    app", "((\n    app")
        working.until("'web_sales' cannot be imported: SyntaxError: '(' was never closed")
        working.until("waiting for a change; the worker continues with the previous code")
        ann.edits("web_sales.py", "((\n    app", "(\n    app")
        working.until("SIGTERM: committing and leaving")  # the same steps: the new worker continues the run
        working.until("ready=True")
        ann.edits("web_sales.py", '"totals"', '"sums"')  # other steps: the run is drained, and the next one begins
        working.until("topics created: sums")
        working.until("ready=True")
        ann.types("headgate", "send", "orders", '{"customer": "ann", "amount": 4}')
        assert ann.latest("sums") == {"orders": 2, "total": 7}, "the table is the one of the run before"
        ann.edits("test_web_sales.py", '"totals"', '"sums"')
        working.until("test_web_sales.py changed")  # the same steps: the worker is replaced
        working.until("ready=True")
        assert "1 passed" in ann.types("python", "-m", "pytest", "-q")
        (worker,) = [one for one in psutil.Process(working.process.pid).children() if "--held" in one.cmdline()]
        worker.kill()
        working.until("the worker ended by SIGKILL; waiting for a change")
        ann.edits("web_sales.py", '"sums"', '"more"')  # nobody is there who could drain the run
        working.until("is not closed, and this code differs from what it runs")
        working.until("waiting for a change")
        ann.edits("web_sales.py", '"more"', '"sums"')
        working.until("ready=True")
        working.process.send_signal(signal.SIGINT)
        assert working.ended() == 0, "".join(working.lines)
    finally:
        working.process.kill()
    said = "".join(working.lines)
    assert "Kafka is down; its topics and tables are gone" in working.lines[-1], said
    ports = {int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", said)}
    assert (ann.left(), [port for port in ports if not is_free(port)]) == ([], [])

    # where it will run, other people give rights
    data = str(guarded / f"secure-{uuid.uuid4().hex[:8]}")
    ann.types("headgate", "kafka", "up", "--secure", "--data", data)
    try:
        as_app = ("--config-file", f"{data}/secrets/app.properties")
        rights = ann.types("headgate", "topics", "plan", "web_sales:app", "--acls", *as_app)
        assert "--allow-principal User:app --operation Read --operation DescribeConfigs --topic orders" in rights
        ann.types("headgate", "topics", "create", "orders", "sums", *as_app)
        missing = ann.types("headgate", "topics", "plan", "web_sales:app", *as_app)
        assert "--create --topic web-sales-1-" in missing
        assert "--topic sums" not in missing
        ann.types("headgate", "send", "orders", '{"customer": "ann", "amount": 5}', *as_app)
        working = ann.starts("headgate", "dev", "web_sales:app", *as_app)
        try:
            working.until("ready=True")
            assert ann.latest("sums", *as_app) == {"orders": 1, "total": 5}
            working.process.send_signal(signal.SIGINT)
            assert working.ended() == 0, "".join(working.lines)
        finally:
            working.process.kill()
        assert "drained" in ann.types("headgate", "status", "web-sales", *as_app), "other code may begin the next run"
    finally:
        ann.types("headgate", "kafka", "down", "--data", data)
