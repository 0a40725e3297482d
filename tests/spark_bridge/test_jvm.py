"""The session of a process: imported late, begun once, lent ones left alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headgate.spark_bridge.jvm import Sessions, code_paths


def test_spark_is_imported_only_when_a_session_begins() -> None:
    """A job without Spark pays nothing: neither pyspark nor pyarrow are loaded by the front door, nor by making a bridge."""
    code = (
        "import sys, headgate as hg, headgate.agents.worker\n"
        "assert 'pyspark' not in sys.modules and 'pyarrow' not in sys.modules\n"
        "from headgate.spark_bridge.session import Spark\n"
        "Spark()\n"
        "assert 'pyspark' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_lent_session_is_neither_replaced_nor_stopped() -> None:
    """It is somebody else's."""
    lent = object()
    sessions = Sessions("local[1]", {}, lent=lent)
    assert sessions.get() is lent
    sessions.stop()
    assert sessions.started == 0


def test_code_that_is_not_installed_is_found_by_python_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job's module may stand anywhere; functions that it sends to Spark are imported from there again."""
    monkeypatch.syspath_prepend(str(tmp_path))
    paths = code_paths()
    assert str(tmp_path) in paths
    assert not any("site-packages" in path for path in paths)
