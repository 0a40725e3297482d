"""Resolves settings: flag, environment, file, app, default; and the broker with its client settings.

    flag  >  HEADGATE_*  >  override in the coordinator stream  >  headgate.toml  >  App(settings=)  >  embedded broker  >  default

Flags and variables belong to one worker, the file to a deployment, an override to the job. The source closest to the worker takes
precedence, and `headgate config get --origin` shows which one did.

Promises:

- An unknown name in a flag, in the app or in the file is an error that suggests the nearest known one. An unknown `HEADGATE_` variable only
  gets a remark, because container platforms set variables of that form.
- On an embedded broker of this user a job creates missing outputs, unless a setting says otherwise.
- `headgate.toml` is searched from the current directory upward, or named with `--config`.
- A file of client settings as Java has them (`--config-file`) stands for the `[client]` table and says where the brokers are. What headgate
  sets itself, and names that it does not know, have no effect there, as with Kafka's tools, and one remark names them.
- Passwords may come from `HEADGATE_CLIENT_…` or the `[client]` table. Only the clients receive them.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from ...core import properties
from ...core.errors import SettingError
from ...core.settings import SETTINGS, Resolved, conflict, did_you_mean, find, parse, resolve
from ..kafka.settings import KNOWN, OURS, ClientSettings

FILE = "headgate.toml"
PREFIX = "HEADGATE_"
CLIENT_PREFIX = PREFIX + "CLIENT_"
FLAG, ENVIRONMENT, OVERRIDE, APP, EMBEDDED = "flag", "environment", "override", "app", "embedded broker"
ON_EMBEDDED: Mapping[str, Any] = MappingProxyType({"topic.create-outputs": True})
"""Defaults on a broker that only this user needs."""
ADDRESSES = frozenset({"bootstrap.servers", "metadata.broker.list"})
ELSEWHERE = frozenset({"config.providers", "ssl.engine.factory.class"})
FOUND = "the embedded broker of `headgate kafka up`"
NO_BROKER = "nowhere"
"""The origin of the broker's address if nothing names one."""
NO_SETTINGS = frozenset({"HEADGATE_CACHE", "HEADGATE_HOME", "HEADGATE_DEBUG"})
"""Variables that other parts read."""

_NONE: Mapping[str, Any] = MappingProxyType({})


def variable(setting: str) -> str:
    """The environment variable for a setting.

    >>> variable("placement.rejoin-grace")
    'HEADGATE_PLACEMENT_REJOIN_GRACE'
    """
    return PREFIX + _shout(setting)


def _shout(name: str) -> str:
    return name.replace(".", "_").replace("-", "_").upper()


_BY_VARIABLE = {variable(name): name for name in SETTINGS if "<" not in name}
_CLIENT_BY_VARIABLE = {CLIENT_PREFIX + _shout(name): name for name in KNOWN}


@dataclass(frozen=True, slots=True)
class Configuration:
    """The values of all sources, and the resolved settings."""

    client: ClientSettings
    broker_origin: str
    """The source of the broker's address, for people."""
    sources: tuple[tuple[str, Mapping[str, Any]], ...]
    """The sources without overrides, in order of precedence."""
    file: Path | None = None
    remarks: tuple[str, ...] = ()
    """Remarks for the user: which broker was found, which variables have no effect."""

    @property
    def own(self) -> dict[str, Any]:
        """The settings from flags and environment, which take precedence over overrides."""
        return self._merged({FLAG, ENVIRONMENT})

    @property
    def given(self) -> dict[str, Any]:
        """The settings from all sources."""
        return self._merged({origin for origin, _ in self.sources})

    def _merged(self, origins: set[str]) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for origin, values in reversed(self.sources):
            if origin in origins:
                merged.update(values)
        return merged

    def resolved(self, overrides: Mapping[str, Any] = _NONE) -> dict[str, Resolved]:
        """Every setting with its origin. `overrides` are those of the coordinator stream."""
        strong = [one for one in self.sources if one[0] in (FLAG, ENVIRONMENT)]
        weak = [one for one in self.sources if one[0] not in (FLAG, ENVIRONMENT)]
        return resolve([*strong, (OVERRIDE, overrides), *weak])

    def value(self, name: str) -> Any:
        """The parsed value of one setting."""
        return parse(name, self.given.get(name, find(name).default))


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What a command line contains: `-b`, `-X`, `--config`, `--config-file`, `--set` and the flags that stand for settings."""

    bootstrap: str = ""
    pairs: tuple[str, ...] = ()
    config: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    properties: Path | None = None
    """A file of client settings as Java has them."""


@dataclass(frozen=True, slots=True)
class Properties:
    """What a file of client settings says, as far as it has an effect."""

    bootstrap: str
    given: Mapping[str, str]
    without_effect: tuple[str, ...]
    """The other names, each with the one that was probably meant."""


def configure(
    said: CommandLine,
    *,
    app: Mapping[str, Any] = _NONE,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
    need_broker: bool = True,
) -> Configuration:
    """Combine all sources. Raises `SettingError` for an unknown name or a bad value."""
    environ = os.environ if environ is None else environ
    path = said.config if said.config is not None else find_file(directory or Path.cwd())
    file, client_file = read_file(path) if path is not None else ({}, {})
    java = None if said.properties is None else read_properties(said.properties)
    variables, client_env, remarks = _environment(environ)
    if java is not None and java.without_effect:
        remarks.append(f"{said.properties}: no effect here:  {', '.join(java.without_effect)}")
    sources = ((FLAG, dict(said.settings)), (ENVIRONMENT, variables), (str(path or FILE), file), (APP, dict(app)))
    for _, values in sources:
        for name, value in values.items():
            parse(name, value)
    given = {name: value for _, values in reversed(sources) for name, value in values.items()}
    if why := conflict(given):
        raise SettingError(why, remedy="change one of the two")
    if java is not None and java.bootstrap and not said.bootstrap:
        bootstrap, origin = java.bootstrap, str(said.properties)
    else:
        bootstrap, origin = _broker(said, variables, file, path, need_broker)
    if origin == FOUND:
        remarks.append(f"no broker was given; using {origin} at {bootstrap}")
    found = {**client_file, **client_env} if java is None else {**client_env, **java.given}
    pairs = [f"{name}={value}" for name, value in found.items()]
    client = ClientSettings.parse(bootstrap, [*pairs, *said.pairs])
    if _is_embedded(bootstrap, origin):
        sources = (*sources, (EMBEDDED, ON_EMBEDDED))
    return Configuration(client, origin, sources, path, tuple(remarks))


def find_file(start: Path) -> Path | None:
    """The nearest `headgate.toml`, from this directory upward."""
    here = start.absolute()
    return next((path for one in (here, *here.parents) if (path := one / FILE).is_file()), None)


def read_file(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings and client settings of a file. Tables and dotted keys mean the same: `[commit] interval = "1s"` is `commit.interval`."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(f"{path} cannot be read: {error.strerror}", remedy="choose another with --config") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"{path} is not TOML: {error}") from error
    client = document.pop("client", {})
    if not isinstance(client, dict):
        raise SettingError(f"{path}: 'client' must be a table", remedy='[client]\n"security.protocol" = "SSL"')
    settings = dict(_flat(document))
    for name in settings:
        try:
            find(name)
        except SettingError as error:
            raise SettingError(f"{path}: {error.what}", remedy=error.remedy) from None
    words = dict(_flat(cast("dict[str, Any]", client)))
    return settings, {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in words.items()}


def read_properties(path: Path) -> Properties:
    """The client settings of a `.properties` file. Raises `SettingError` for one whose values stand elsewhere."""
    try:
        found = properties.read(path.read_text(encoding=properties.ENCODING))
    except OSError as error:
        raise SettingError(
            f"{path} cannot be read: {error.strerror}", remedy="choose another with --config-file"
        ) from error
    except SettingError as error:
        raise SettingError(f"{path}: {error.what}", remedy=error.remedy) from None
    if elsewhere := sorted(name for name in found if name in ELSEWHERE):
        raise SettingError(
            f"{path}: {' and '.join(elsewhere)} would be Java code that finds values or certificates",
            remedy="write the values into the file, or give those that are secret as HEADGATE_CLIENT_… variables",
        )
    given = {name: value for name, value in found.items() if name in KNOWN}
    bootstrap = next((found[name] for name in ADDRESSES if name in found), "")
    return Properties(bootstrap, given, tuple(map(_with_near, sorted(found.keys() - given.keys() - ADDRESSES))))


def _with_near(name: str) -> str:
    """A name without effect, for people.

    >>> _with_near("ssl.trustore.location"), _with_near("ssl.truststore.password")
    ("ssl.trustore.location (did you mean 'ssl.truststore.location'?)", 'ssl.truststore.password')
    """
    # Java has names that differ from ours in a word, and mean something else: only one that differs in a letter or two is offered
    near = get_close_matches(name, KNOWN, n=1, cutoff=0.9)
    return f"{name} (did you mean '{near[0]}'?)" if near and name not in OURS else name


def _flat(table: Mapping[str, Any], front: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(cast("dict[str, Any]", value), f"{front}{name}.")
        else:
            yield f"{front}{name}", value


def _environment(environ: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str], list[str]]:
    settings: dict[str, str] = {}
    client: dict[str, str] = {}
    remarks: list[str] = []
    for name, value in sorted(environ.items()):
        if not name.startswith(PREFIX) or name in NO_SETTINGS:
            continue
        if name in _BY_VARIABLE:
            settings[_BY_VARIABLE[name]] = value
        elif name in _CLIENT_BY_VARIABLE:
            client[_CLIENT_BY_VARIABLE[name]] = value
        elif not name.startswith(PREFIX + "TEST_"):
            near = did_you_mean(name, [*_BY_VARIABLE, *_CLIENT_BY_VARIABLE])
            remarks.append(f"the variable {name} has no effect here" + (f"; {near}" if near else ""))
    return settings, client, remarks


def _is_embedded(bootstrap: str, origin: str) -> bool:
    """Whether it is a broker that `headgate kafka up` has started here, secure or not."""
    if origin == FOUND:
        return True
    if not bootstrap.startswith(("127.0.0.1:", "localhost:")):
        return False
    from ..broker.registry import running_brokers

    return bootstrap.replace("localhost", "127.0.0.1") in {one.bootstrap for one in running_brokers()}


def _broker(
    said: CommandLine,
    variables: Mapping[str, str],
    file: Mapping[str, Any],
    path: Path | None,
    need: bool,
) -> tuple[str, str]:
    if said.bootstrap:
        return said.bootstrap, "-b"
    if variables.get("bootstrap"):
        return variables["bootstrap"], variable("bootstrap")
    if file.get("bootstrap"):
        return str(file["bootstrap"]), str(path)
    from ..broker.registry import running_broker, running_brokers

    running = running_broker()
    if running is not None:
        return running, FOUND
    if need and (secure := running_brokers()):
        one = secure[0]
        raise SettingError(
            f"no broker is given, and the embedded one at {one.bootstrap} is secure: it requires authentication",
            remedy=f"use --config-file {one.secrets}/app.properties",
        )
    if need:
        raise SettingError(
            "no broker is given, and no embedded broker is running",
            remedy="-b HOST:PORT, HEADGATE_BOOTSTRAP, or start one: headgate kafka up",
        )
    return "localhost:9092", NO_BROKER
