"""Where a setting comes from, and what is refused: the nearest to the worker wins, and nobody's typo passes in silence."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from headgate.agents.broker import registry
from headgate.agents.process.configuration import CommandLine, configure, find_file, read_file, variable
from headgate.core.errors import SettingError

B = "broker:9092"


def made(tmp_path: Path, said: CommandLine | None = None, **more):
    return configure(said or CommandLine(B), environ=more.pop("environ", {}), directory=tmp_path, **more)


def written(directory: Path, text: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "headgate.toml"
    path.write_text(text)
    return path


def test_the_nearest_to_the_worker_wins_and_every_loser_is_named(tmp_path: Path) -> None:
    """Flag before environment before override before file before app before default."""
    path = written(tmp_path, '[commit]\ninterval = "4s"\n')
    found = made(
        tmp_path,
        CommandLine(B, settings={"commit.interval": "1s"}),
        environ={"HEADGATE_COMMIT_INTERVAL": "2s"},
        app={"commit.interval": "5s"},
    )
    one = found.resolved({"commit.interval": "3s"})["commit.interval"]
    assert (one.value, one.origin, one.masked) == (1000, "flag", ("environment", "override", str(path), "app"))


@pytest.mark.parametrize(
    ("flag", "environ", "override", "file", "app", "origin"),
    [
        (0, 1, 1, 1, 1, "environment"),
        (0, 0, 1, 1, 1, "override"),
        (0, 0, 0, 1, 1, "file"),
        (0, 0, 0, 0, 1, "app"),
        (0, 0, 0, 0, 0, "default"),
        (1, 0, 1, 0, 0, "flag"),
    ],
)
def test_each_source_wins_when_no_nearer_one_speaks(tmp_path, flag, environ, override, file, app, origin) -> None:
    """The order holds wherever it begins."""
    path = written(tmp_path, 'commit.interval = "4s"\n') if file else None
    found = made(
        tmp_path,
        CommandLine(B, settings={"commit.interval": "1s"} if flag else {}),
        environ={"HEADGATE_COMMIT_INTERVAL": "2s"} if environ else {},
        app={"commit.interval": "5s"} if app else {},
    )
    one = found.resolved({"commit.interval": "3s"} if override else {})["commit.interval"]
    assert one.origin == (str(path) if origin == "file" else origin)


def test_the_file_is_found_from_here_upward(tmp_path: Path) -> None:
    """A deployment's file stands at its root, and people are somewhere below."""
    path = written(tmp_path, "")
    below = tmp_path / "jobs" / "sales"
    below.mkdir(parents=True)
    assert find_file(below) == path


def test_tables_and_dotted_keys_of_a_file_are_the_same(tmp_path: Path) -> None:
    """TOML has two ways to say it; streams have names of their own."""
    path = written(
        tmp_path,
        'bootstrap = "b:1"\n[placement]\nrejoin-grace = "0s"\n[streams.orders]\npriority = 5\n'
        '[client]\n"security.protocol" = "SSL"\n"check.crcs" = false\n',
    )
    assert read_file(path) == (
        {"bootstrap": "b:1", "placement.rejoin-grace": "0s", "streams.orders.priority": 5},
        {"security.protocol": "SSL", "check.crcs": "false"},
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[comit]\ninterval = "1s"\n', "did you mean 'commit.interval'"),
        ('commit.interval = "soon"\n', "not a duration"),
        ("commit = [", "is not TOML"),
        ('client = "x"\n', "must be a table"),
        ('[client]\n"sasl.pasword" = "x"\n', "did you mean 'sasl.password'"),
    ],
)
def test_what_no_one_can_have_meant_in_a_file_is_refused(tmp_path: Path, text: str, says: str) -> None:
    """With the nearest name, or with what is wrong."""
    written(tmp_path, text)
    with pytest.raises(SettingError, match=says):
        made(tmp_path)


def test_an_unknown_flag_or_setting_of_the_app_is_refused(tmp_path: Path) -> None:
    """The same for every source that a person writes."""
    for more in ({"said": CommandLine(B, settings={"comit.interval": "1s"})}, {"app": {"comit.interval": "1s"}}):
        with pytest.raises(SettingError, match=r"commit\.interval"):
            made(tmp_path, **more)


def test_a_variable_that_means_nothing_is_said_and_not_refused(tmp_path: Path) -> None:
    """Whoever runs containers sets HEADGATE_SERVICE_HOST for a service of our name; that must not stop a worker."""
    found = made(tmp_path, environ={"HEADGATE_SERVICE_HOST": "10.0.0.1"})
    assert [remark.split(";")[0] for remark in found.remarks] == [
        "the variable HEADGATE_SERVICE_HOST has no effect here"
    ]


def test_passwords_come_through_the_environment_and_are_never_shown(tmp_path: Path) -> None:
    """They reach the client, and nothing that is printed."""
    found = made(
        tmp_path,
        CommandLine(B, ("security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", "sasl.username=ann")),
        environ={"HEADGATE_CLIENT_SASL_PASSWORD": "hunter2"},
    )
    assert found.client.given["sasl.password"] == "hunter2"
    assert "hunter2" not in repr(found)
    assert "hunter2" not in str(found.client.shown())


def test_the_broker_comes_from_flag_variable_file_or_a_running_embedded_one(tmp_path: Path, monkeypatch) -> None:
    """In this order; a found one is said."""
    monkeypatch.setattr(registry, "running_broker", lambda: "127.0.0.1:5")
    written(tmp_path, 'bootstrap = "file:1"\n')
    env = {variable("bootstrap"): "env:1"}
    assert made(tmp_path, CommandLine("flag:1"), environ=env).client.bootstrap == "flag:1"
    assert made(tmp_path, CommandLine(), environ=env).client.bootstrap == "env:1"
    assert made(tmp_path, CommandLine()).client.bootstrap == "file:1"
    elsewhere = tmp_path / "empty"
    elsewhere.mkdir()
    (tmp_path / "headgate.toml").unlink()
    found = made(elsewhere, CommandLine())
    assert found.client.bootstrap == "127.0.0.1:5"
    assert "using the embedded broker" in found.remarks[0]
    monkeypatch.setattr(registry, "running_brokers", list)
    monkeypatch.setattr(registry, "running_broker", lambda: None)
    with pytest.raises(SettingError, match="no broker is given"):
        made(elsewhere, CommandLine())


def test_outputs_are_created_on_an_embedded_broker_if_nothing_else_is_said(tmp_path: Path, monkeypatch) -> None:
    """Found or named: nobody else needs it. On any other broker a name may be mistyped."""
    embedded = SimpleNamespace(bootstrap="127.0.0.1:7", secrets=None, identity=SimpleNamespace(secure=False))
    monkeypatch.setattr(registry, "running_brokers", lambda: [embedded])
    name = "topic.create-outputs"
    for said in (CommandLine(), CommandLine("127.0.0.1:7"), CommandLine("localhost:7")):
        found = made(tmp_path, said).resolved()[name]
        assert (found.value, found.origin) == (True, "embedded broker")
    assert not made(tmp_path, CommandLine("127.0.0.1:7", settings={name: "false"})).value(name)
    for other in ("127.0.0.1:8", "kafka:7"):
        assert not made(tmp_path, CommandLine(other)).value(name)


def test_what_belongs_to_one_worker_wins_over_overrides_and_is_told_apart(tmp_path: Path) -> None:
    """`own` is what masks an override; `given` is everything that was said."""
    written(tmp_path, 'stall.timeout = "1m"\n')
    found = made(tmp_path, environ={"HEADGATE_COMMIT_INTERVAL": "2s"})
    assert found.own == {"commit.interval": "2s"}
    assert found.given == {"commit.interval": "2s", "stall.timeout": "1m"}


def test_a_secure_embedded_broker_is_named_and_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its address alone lets nobody in; that one runs is no secret, either."""
    one = SimpleNamespace(bootstrap="127.0.0.1:7", secrets=tmp_path, identity=SimpleNamespace(secure=True))
    monkeypatch.setattr(registry, "running_brokers", lambda: [one])
    with pytest.raises(SettingError, match="and the embedded one at") as wrong:
        configure(CommandLine(), environ={}, directory=tmp_path)
    assert f"{tmp_path}/app.properties" in wrong.value.remedy


def test_a_file_as_java_clients_have_it_stands_for_the_client_table(tmp_path: Path) -> None:
    """One file says where the brokers are and who logs in; nothing of another user is mixed in. `-b` and `-X` come first."""
    written(tmp_path, 'bootstrap = "toml:1"\n[client]\n"sasl.username" = "other"\n"client.id" = "other"\n')
    file = tmp_path / "ann.properties"
    file.write_text(
        "bootstrap.servers=java:1\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=ann\n"
        "acks=all\nssl.truststore.password=x\nssl.trustore.location=ca.pem\n"
    )
    password = {"HEADGATE_CLIENT_SASL_PASSWORD": "hunter2", "HEADGATE_BOOTSTRAP": "env:1"}
    found = made(tmp_path, CommandLine(properties=file), environ=password)
    assert (found.client.bootstrap, found.broker_origin) == ("java:1", str(file))
    assert (found.client.user, found.client.given["sasl.password"]) == ("ann", "hunter2")
    assert "client.id" not in found.client.given
    meant = "ssl.trustore.location (did you mean 'ssl.truststore.location'?)"
    assert found.remarks == (f"{file}: no effect here:  acks, {meant}, ssl.truststore.password",)
    flags = CommandLine("flag:1", ("client.id=flag",), properties=file)
    assert made(tmp_path, flags, environ=password).client.bootstrap == "flag:1"
    assert made(tmp_path, flags, environ=password).client.given["client.id"] == "flag"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("config.providers=vault", "config.providers would be Java code"),
        ("sasl.mechanism=OAUTHBEARER", "sasl.mechanism is 'OAUTHBEARER'"),
        ("security.protocol=SSL\nssl.keystore.location=/k.jks", "'/k.jks', a store that is not in PEM"),
        ("a=\\u12", "line 1"),
    ],
)
def test_what_such_a_file_asks_for_in_vain_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """A client without it would be another user, or nobody."""
    (tmp_path / "ann.properties").write_text(text)
    with pytest.raises(SettingError, match=said) as wrong:
        made(tmp_path, CommandLine(B, properties=tmp_path / "ann.properties"))
    assert wrong.value.remedy
    with pytest.raises(SettingError, match="--config-file"):
        made(tmp_path, CommandLine(B, properties=tmp_path / "nowhere"))
