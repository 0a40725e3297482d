"""The first hour with headgate, from an empty directory: new, dev, a change, its test, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

import psutil
import pytest

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
    """Somebody who types commands in a directory."""

    def __init__(self, home: Path, environment: dict[str, str]) -> None:
        self.home, self.environment = home, environment

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

    def latest(self, topic: str) -> Any:
        """The next record that comes into a topic."""
        following = self.starts("headgate", "tail", topic, "--all", "--follow")
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

    @staticmethod
    def _words(words: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", *(("headgate.agents.cli", *words[1:]) if words[0] == "headgate" else words)]


def test_a_fresh_hour(tmp_path: Path, guarded: Path) -> None:
    """Each step is what somebody types who has read the quickstart, and each answers as it says there."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("HEADGATE_") or name == "HEADGATE_CACHE"
    }
    environment = {
        **kept, "HEADGATE_HOME": str(guarded / f"hour-{uuid.uuid4().hex[:8]}"), "XDG_STATE_HOME": str(tmp_path / "state"),
        "NO_COLOR": "1", "COLUMNS": "300", "PYTHONUNBUFFERED": "1",
    }  # fmt: skip
    Newcomer(tmp_path, environment).types("headgate", "new", "web-sales")
    ann = Newcomer(tmp_path / "web-sales", environment)

    working = ann.starts("headgate", "dev", "web_sales:app")
    try:
        working.until("topics created: orders, totals")
        working.until("web-sales/1: http://127.0.0.1:")
        working.until("ready=True")
        ann.types("headgate", "send", "orders", '{"customer": "ann", "amount": 3}')
        assert ann.latest("totals") == {"orders": 1, "total": 3}

        ann.edits("web_sales.py", "(\n    app", "((\n    app")
        working.until("cannot be imported")
        working.until("waiting for a change; the worker goes on with the code before")
        ann.edits("web_sales.py", "((\n    app", "(\n    app")
        ann.edits("web_sales.py", '"totals"', '"sums"')  # other code: the run is drained, and the next one begins
        working.until("topics created: sums")
        working.until("ready=True")
        ann.types("headgate", "send", "orders", '{"customer": "ann", "amount": 4}')
        assert ann.latest("sums") == {"orders": 2, "total": 7}, "the table is the one of the run before"

        (worker,) = [one for one in psutil.Process(working.process.pid).children() if "--held" in one.cmdline()]
        worker.kill()
        working.until("the worker ended by SIGKILL; waiting for a change")
        ann.edits("web_sales.py", '"sums"', '"more"')  # nobody is there who could drain the run
        working.until("is not closed, and this code differs from what it runs")
        working.until("waiting for a change")
        ann.edits("web_sales.py", '"more"', '"sums"')
        working.until("ready=True")
        ann.edits("test_web_sales.py", '"totals"', '"sums"')
        assert "1 passed" in ann.types("pytest", "-q")

        working.process.send_signal(signal.SIGINT)
        assert working.ended() == 0, "".join(working.lines)
    finally:
        working.process.kill()
    assert "Kafka is down" in working.lines[-1]
    ann.types("headgate", "kafka", "status", code=4)
