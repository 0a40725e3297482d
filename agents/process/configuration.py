"""Resolves settings: flag, environment, file, app, default; and the broker with its client settings.

    flag  >  HEADGATE_*  >  override in the coordinator stream  >  headgate.toml  >  App(settings=)  >  default

Flags and variables belong to one worker, the file to a deployment, an override to the job. The source closest to the worker takes
precedence, and `headgate config get --origin` shows which one did.

Promises:

- An unknown name in a flag, in the app or in the file is an error that suggests the nearest known one. An unknown `HEADGATE_` variable only
  gets a remark, because container platforms set variables of that form.
- `headgate.toml` is searched from the current directory upward, or named with `--config`.
- Passwords may come from `HEADGATE_CLIENT_…` or the `[client]` table. Only the clients receive them.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from ...core.errors import SettingError
from ...core.settings import SETTINGS, Resolved, conflict, did_you_mean, find, parse, resolve
from ..kafka.settings import KNOWN, ClientSettings

FILE = "headgate.toml"
PREFIX = "HEADGATE_"
CLIENT_PREFIX = PREFIX + "CLIENT_"
FLAG, ENVIRONMENT, OVERRIDE, APP = "flag", "environment", "override", "app"
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
    """What a command line contains: `-b`, `-X`, `--config`, `--set` and the flags that stand for settings."""

    bootstrap: str = ""
    pairs: tuple[str, ...] = ()
    config: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=lambda: _NONE)


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
    variables, client_env, remarks = _environment(environ)
    sources = ((FLAG, dict(said.settings)), (ENVIRONMENT, variables), (str(path or FILE), file), (APP, dict(app)))
    for _, values in sources:
        for name, value in values.items():
            parse(name, value)
    given = {name: value for _, values in reversed(sources) for name, value in values.items()}
    if why := conflict(given):
        raise SettingError(why, remedy="change one of the two")
    bootstrap, origin = _broker(said, environ, variables, file, client_file, path, need_broker)
    if origin.startswith("the embedded"):
        remarks.append(f"no broker was given; using {origin} at {bootstrap}")
    pairs = [f"{name}={value}" for name, value in {**client_file, **client_env}.items()]
    client = ClientSettings.parse(bootstrap, [*pairs, *said.pairs])
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


def _broker(
    said: CommandLine,
    environ: Mapping[str, str],
    variables: Mapping[str, str],
    file: Mapping[str, Any],
    client_file: Mapping[str, str],
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
        return running, "the embedded broker of `headgate kafka up`"
    if need and (secure := running_brokers()):
        one = secure[0]
        raise SettingError(
            f"no broker is given, and the embedded one at {one.bootstrap} is secure: it requires authentication",
            remedy=f"use -b {one.bootstrap}, and the settings in {one.secrets}/app.properties, with -X or in [client] of headgate.toml",
        )
    if need:
        raise SettingError(
            "no broker is given, and no embedded broker is running",
            remedy="-b HOST:PORT, HEADGATE_BOOTSTRAP, or start one: headgate kafka up",
        )
    return "localhost:9092", NO_BROKER
