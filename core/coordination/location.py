"""Where a worker is: the answers that `location.provider` may have, and which of them are usable ids.

    default               the id that is stored in the state directory
    host                  the host name
    kubernetes-node       the variable NODE_NAME, which a pod gets of the downward API
    kubernetes-pod        the variable POD_NAME, likewise
    kubernetes-ordinal    the number at the end of POD_NAME, which a StatefulSet gives to each pod
    env:NAME              the variable NAME
    package.module:name   a function of one's own

A location promises that all its workers read the same disks. Nothing can check that. So nothing depends on it but speed: a store is found
and locked on the disk, never assumed, and a task whose store is missing restores.

Promises: a provider without a usable answer raises a `SettingError` that says what is wrong, where it was looked for, and what helps. The
environment and the host name are arguments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..errors import SettingError

DEFAULT, HOST = "default", "host"
VARIABLE = "env:"
MAX_LOCATION = 200
_NODE, _POD = "NODE_NAME", "POD_NAME"
_KUBERNETES: Mapping[str, tuple[str, str]] = {
    "kubernetes-node": (_NODE, "spec.nodeName"),
    "kubernetes-pod": (_POD, "metadata.name"),
    "kubernetes-ordinal": (_POD, "metadata.name"),
}
"""For each provider the variable that it reads, and the field of the pod that the manifest puts there."""
PROVIDERS = (DEFAULT, HOST, *_KUBERNETES, f"{VARIABLE}NAME")
"""All but functions of one's own."""
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ORDINAL = re.compile(r".*-([0-9]+)")


def built_in(provider: str) -> bool:
    """Whether `provided` answers for this provider. The default is stored, and all others are import paths.

    >>> built_in("host"), built_in("env:RACK"), built_in("default"), built_in("racks:mine")
    (True, True, False, False)
    """
    return provider == HOST or provider in _KUBERNETES or provider.startswith(VARIABLE)


def provided(provider: str, host: str, environment: Mapping[str, str]) -> str:
    """The answer of a built-in provider.

    >>> provided("env:RACK", "node7", {"RACK": "rack-3"}), provided("kubernetes-ordinal", "", {"POD_NAME": "shop-2"})
    ('rack-3', 'ordinal-2')
    """
    if provider == HOST:
        return checked(provider, host, "this machine's host name", f"set one, or use {VARIABLE}NAME")
    if provider.startswith(VARIABLE):
        name = provider.removeprefix(VARIABLE)
        if not _VARIABLE_NAME.fullmatch(name):
            raise SettingError(
                f"location.provider '{provider}' does not name a variable", remedy="write it like env:RACK"
            )
        return _read(provider, name, environment, f"set {name} for this worker, for example {name}=rack-1")
    name, field = _KUBERNETES[provider]
    remedy = f"add to the container's env: {{name: {name}, valueFrom: {{fieldRef: {{fieldPath: {field}}}}}}}"
    found = _read(provider, name, environment, remedy)
    if provider != "kubernetes-ordinal":
        return found
    match = _ORDINAL.fullmatch(found)
    if match is None:
        raise SettingError(
            f"location.provider '{provider}' reads a number at the end of {name}, and it is '{found}'",
            remedy="only pods of a StatefulSet have a number; elsewhere use kubernetes-node or kubernetes-pod",
        )
    return f"ordinal-{match[1]}"


def _read(provider: str, name: str, environment: Mapping[str, str], remedy: str) -> str:
    found = environment.get(name)
    if found is None:
        raise SettingError(
            f"location.provider '{provider}' reads the environment variable {name}, which is not set", remedy=remedy
        )
    return checked(provider, found, f"the environment variable {name}", remedy)


def checked(provider: str, found: object, where: str, remedy: str) -> str:
    """What a provider has found, if it can be an id: a text of 1 to 200 visible characters, without spaces.

    >>> checked("host", "node7", "this machine's host name", "set one")
    'node7'
    """
    if not isinstance(found, str):
        wrong = f"{found!r}, not a text"
    elif not found:
        wrong = "empty"
    elif len(found) > MAX_LOCATION:
        wrong = f"of {len(found)} characters, and {MAX_LOCATION} are allowed: {found[:40]!r}…"
    elif not found.isprintable() or any(character.isspace() for character in found):
        wrong = f"{found!r}: an id has no spaces and no control characters"
    else:
        return found
    raise SettingError(f"location.provider '{provider}': {where} is {wrong}", remedy=remedy)
