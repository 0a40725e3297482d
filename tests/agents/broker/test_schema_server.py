"""The embedded schema registry: it starts, keeps its port and its schemas, and goes with its broker."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from headgate.agents.broker import schema_server
from headgate.agents.broker.ports import is_free
from headgate.agents.broker.schema_server import SchemaServer
from headgate.core.errors import EnvironmentFault

from ... import forked
from ...e2e.schemas import schema, wrong

pytestmark = pytest.mark.kafka


def ask(url: str, body: Any = None) -> Any:
    """A question in JSON."""
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return json.load(answer)


def test_what_it_has_answered_is_there_after_a_kill_at_the_same_address(private_registry: SchemaServer) -> None:
    """kill -9 right behind the answer."""
    url = private_registry.url
    number = ask(f"{url}/subjects/a-value/versions", {"schema": '"string"'})["id"]
    private_registry.daemon.send(signal.SIGKILL)
    assert private_registry.daemon.wait_gone(10.0)
    assert not private_registry.is_running
    private_registry.start()
    private_registry.start()  # it runs
    assert private_registry.url == url
    assert ask(f"{url}/schemas/ids/{number}")["schema"] == '"string"'


def test_a_start_that_fails_says_why_and_leaves_no_process(guarded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of its log stands in the error."""
    monkeypatch.setattr(schema_server, "unpacked", lambda *_: guarded / "nothing.jar")
    server = SchemaServer(guarded / "registry-broken")
    with pytest.raises(EnvironmentFault, match="exited during its start") as error:
        server.start()
    assert "nothing.jar" in error.value.what
    assert not server.is_running


def test_kafka_up_registry_starts_it_beside_the_broker_and_down_ends_both(guarded: Path, tmp_path: Path) -> None:
    """Also beside a broker that runs already; what is printed names it."""
    home = guarded / tmp_path.name
    environment = {**os.environ, "HEADGATE_HOME": str(home)}

    def headgate(*arguments: str) -> str:
        done = forked.run(["kafka", *arguments], timeout=240, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    headgate("up")
    assert "schema registry" not in headgate("status")
    url = json.loads(headgate("up", "--registry", "-o", "json"))["registry"]
    assert ask(f"{url}/subjects") == []
    found = json.loads(headgate("status", "-o", "json"))
    assert wrong(found, schema("kafka-status")) == []
    assert found["registry"] == url
    headgate("down")
    assert is_free(int(url.rpartition(":")[2].partition("/")[0]))
    headgate("reset", "--yes")
    assert not (home / "kafka" / "registry").exists()
