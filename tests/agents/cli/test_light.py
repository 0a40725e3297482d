"""A command answers at once: it imports what it needs, and most of the time that it takes is imports."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from headgate.agents.cli.group import VERBS

LOGGING = {"structlog", "rich", "pygments", "attr"}
WORKING = {"faust", "mode", "aiohttp", "prometheus_client", "rocksdict", "numpy", "importlib.metadata"}
SPARK = {"pyspark", "pyarrow", "py4j", "pandas"}
STEERING = "status watch drain stop start pause resume move requests seek config model batches coordinator"
"""They know a job by its topics alone, and need nothing that declares or runs one."""


@pytest.mark.parametrize(
    ("verbs", "without"),
    [
        ("kafka", LOGGING | WORKING | SPARK | {"aiokafka", "urllib.request", "xml.etree.ElementTree"}),
        (STEERING, LOGGING | WORKING | SPARK | {"headgate.agents.job.declare.app", "urllib.request", "msgspec"}),
        (" ".join(sorted(VERBS.keys() - {"run", "dev", "doctor"})), LOGGING | WORKING | SPARK),
        ("run dev", SPARK | {"faust", "aiohttp", "rocksdict", "urllib.request"}),
    ],
    ids=["kafka", "steering", "all", "run"],
)
def test_a_verb_imports_only_what_it_needs(verbs: str, without: set[str]) -> None:
    """`headgate run` imports the rest after it has looked at what was typed."""
    code = f"""
import json, sys
import headgate.agents.cli.group as group
for verb in {verbs.split()!r}:
    group.main.get_command(None, verb)
print(json.dumps(sorted(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert sorted(without & set(json.loads(done.stdout))) == []


def test_a_worker_without_batches_imports_no_spark() -> None:
    """Its start is mostly imports, too."""
    code = "import json, sys, headgate.agents.worker.worker, headgate.agents.web.service; print(json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert sorted(SPARK & set(json.loads(done.stdout))) == []
