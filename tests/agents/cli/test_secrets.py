"""What commands write into the coordinator stream holds no secret."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from headgate.agents.cli.steer import steering
from headgate.agents.cli.steer.config import config
from headgate.agents.cli.steer.coordinator import coordinator
from headgate.agents.process.requests import Request
from headgate.core.coordination import messages as c
from headgate.core.coordination.wire import encode
from headgate.core.errors import SettingError


def test_a_secret_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """`config set` and `coordinator write` wrote it into the stream, where it stays, before the leader refused it."""
    sent: list[bytes] = []

    def asked(to: object, request: Request, *_: object) -> None:
        sent.extend(encode(c.SetRequest("u", request.verb, arguments=request.arguments)))

    monkeypatch.setattr(steering, "asked", asked)
    given = json.dumps({"setting": "spark.remote", "value": "sc://h/;token=hunter2"})
    nested = json.dumps({"verb": "set-config", "arguments": json.loads(given)})
    for command, words in (
        (config, ["set", "sales", "spark.remote", "sc://h/;token=hunter2"]),
        (coordinator, ["write", "sales", "set-config", given, "--yes"]),
        (coordinator, ["write", "sales", "set-request", nested, "--yes"]),
    ):
        done = CliRunner().invoke(command, [*words, "-b", "127.0.0.1:1"])
        assert isinstance(done.exception, SettingError), done.output
        assert "never written to a topic" in str(done.exception)
        assert "hunter2" not in done.output + str(done.exception)
    done = CliRunner().invoke(config, ["set", "sales", "commit.interval", "1s", "--no-wait", "-b", "127.0.0.1:1"])
    assert (done.exit_code, b"commit.interval" in b"".join(sent), b"hunter2" in b"".join(sent)) == (0, True, False)
