"""The manifests are what Kubernetes takes and what headgate expects. No cluster is asked; docs say so.

Every field is compared with the types of Kubernetes' API (those of `lightkube`, generated from its OpenAPI document): a field that does not
exist, one that is missing, or one of another kind is named.
"""

from __future__ import annotations

import importlib
import tomllib
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from headgate.agents.kafka.settings import KNOWN, ClientSettings
from headgate.agents.process.configuration import CLIENT_PREFIX, read_file
from headgate.agents.web.door import OPEN
from headgate.core.settings import SETTINGS, duration_ms

from .container_files import dockerfile
from .pages import ROOT, read
from .test_docker import unknown_command
from .test_names import variables

HOME = ROOT / "docker" / "kubernetes"
MODULES = {"v1": "core_v1", "apps/v1": "apps_v1", "policy/v1": "policy_v1"}
PAGE = read("docs/kubernetes.md", (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8"))


def documents() -> list[dict[str, Any]]:
    """Every object of every manifest that kustomize would apply."""
    listed = yaml.safe_load((HOME / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    return [one for name in listed for one in yaml.safe_load_all((HOME / name).read_text(encoding="utf-8"))]


OBJECTS = {(one["kind"], one["metadata"]["name"]): one for one in documents()}
SET: dict[str, Any] = OBJECTS["StatefulSet", "shop"]
POD: dict[str, Any] = SET["spec"]["template"]["spec"]
(WORKER,) = POD["containers"]
ENVIRONMENT = {one["name"]: one for one in WORKER["env"]}


def kind_of(document: dict[str, Any]) -> Any:
    """The type of an object."""
    module = importlib.import_module(f"lightkube.models.{MODULES[document['apiVersion']]}")
    return getattr(module, document["kind"])


def misfits(value: Any, kind: Any, at: str) -> Iterator[str]:
    """Where a value is not what the API says."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        kinds = [one for one in typing.get_args(kind) if one is not type(None)]
        found = [list(misfits(value, one, at)) for one in kinds]
        yield from [] if [] in found else found[0]
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if not isinstance(value, dict):
            yield f"{at}: {value!r} has no fields"
            return
        known = {one.encode_name: one for one in msgspec.structs.fields(kind)}
        yield from (f"{at}: {name} is missing" for name, one in known.items() if one.required and name not in value)
        for name, inner in value.items():
            if name in known:
                yield from misfits(inner, known[name].type, f"{at}.{name}")
            else:
                yield f"{at}: no field {name}"
    elif origin is list:
        if not isinstance(value, list):
            yield f"{at}: {value!r} is no list"
            return
        for number, inner in enumerate(value):
            yield from misfits(inner, typing.get_args(kind)[0], f"{at}[{number}]")
    elif origin is dict or kind is dict:
        if not isinstance(value, dict):
            yield f"{at}: {value!r} is no map"
    elif kind in (str, int, bool, float) and not (isinstance(value, kind) and not (kind is int and value is True)):
        yield f"{at}: {value!r} is no {kind.__name__}"


@pytest.mark.parametrize("name", sorted(OBJECTS), ids=lambda name: "-".join(name))
def test_every_field_is_one_of_kubernetes(name: tuple[str, str]) -> None:
    """A field that is misspelt is silently dropped by some versions, and refused by others."""
    assert list(misfits(OBJECTS[name], kind_of(OBJECTS[name]), name[0])) == []


def test_every_file_is_applied() -> None:
    """A manifest that kustomize does not name is forgotten."""
    listed = set(yaml.safe_load((HOME / "kustomization.yaml").read_text(encoding="utf-8"))["resources"])
    assert {path.name for path in HOME.glob("*.yaml")} == listed | {"kustomization.yaml"}


def test_the_command_and_every_variable_exist() -> None:
    """Verb, options, settings, client settings; and the version that the image and the deployment name is one."""
    assert unknown_command([word.partition("=")[0] for word in WORKER["args"]]) == []
    client = {CLIENT_PREFIX + name.replace(".", "_").replace("-", "_").upper() for name in KNOWN}
    assert sorted(set(ENVIRONMENT) - variables() - client) == []
    assert f"--deployment={WORKER['image'].rpartition(':')[2]}" in WORKER["args"]


def test_the_settings_file_is_taken(tmp_path: Path) -> None:
    """The config map holds a `headgate.toml` with settings of headgate and of its clients, and no secret; the secret makes it whole."""
    file = tmp_path / "headgate.toml"
    file.write_text(OBJECTS["ConfigMap", "shop"]["data"]["headgate.toml"], encoding="utf-8")
    settings, client = read_file(file)
    assert set(settings) <= set(SETTINGS)
    assert "sasl.password" not in client
    assert ClientSettings(settings["bootstrap"], {**client, "sasl.password": "x"}).user == "shop"
    mounted = {one["mountPath"] for one in WORKER["volumeMounts"]}
    assert {str(Path(client["ssl.truststore.location"]).parent), "/etc/headgate"} <= mounted
    assert "--config=/etc/headgate/headgate.toml" in WORKER["args"]
    assert tomllib.loads(file.read_text(encoding="utf-8"))


def test_probes_ask_the_pages_that_answer_without_a_token() -> None:
    """At the port of the pages. The liveness probe is not faster than `stall.timeout`, and the stop is longer than `stop.timeout`."""
    probes = {name: WORKER[name] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {probe["httpGet"]["path"] for probe in probes.values()} == set(OPEN)
    assert probes["readinessProbe"]["httpGet"]["path"] == "/readyz"
    (port,) = WORKER["ports"]
    assert {probe["httpGet"]["port"] for probe in probes.values()} == {port["name"]}
    assert str(port["containerPort"]) == ENVIRONMENT["HEADGATE_WEB_PORT"]["value"]
    live = probes["livenessProbe"]
    assert live["periodSeconds"] * live["failureThreshold"] * 1000 > duration_ms(SETTINGS["stall.timeout"].default)
    needed = sum(duration_ms(SETTINGS[name].default) for name in ("stop.prepare", "stop.timeout"))
    assert POD["terminationGracePeriodSeconds"] * 1000 > needed


def test_whoever_selects_pods_finds_them() -> None:
    """Labels, names of services, ports, volumes, secrets and config maps lead somewhere."""
    labels = SET["spec"]["template"]["metadata"]["labels"]
    selectors = [
        SET["spec"]["selector"]["matchLabels"],
        OBJECTS["PodDisruptionBudget", "shop"]["spec"]["selector"]["matchLabels"],
    ]
    services = [one for (kind, _), one in OBJECTS.items() if kind == "Service"]
    selectors += [one["spec"]["selector"] for one in services]
    assert [one for one in selectors if not one.items() <= labels.items()] == []
    headless = OBJECTS["Service", SET["spec"]["serviceName"]]
    assert headless["spec"]["clusterIP"] == "None"
    assert {port["targetPort"] for one in services for port in one["spec"]["ports"]} == {WORKER["ports"][0]["name"]}
    volumes = {one["name"] for one in POD["volumes"]}
    volumes |= {one["metadata"]["name"] for one in SET["spec"]["volumeClaimTemplates"]}
    assert {one["name"] for one in WORKER["volumeMounts"]} == volumes
    assert [
        one for one in POD["volumes"] if ("ConfigMap", one.get("configMap", {}).get("name", "shop")) not in OBJECTS
    ] == []


def test_the_pod_is_the_user_of_the_image_and_keeps_its_data() -> None:
    """Its volume is where the image keeps state, and belongs to its group."""
    image = dockerfile((ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8"))
    user, group = next(one.text for one in reversed(image) if one.name == "USER").split(":")
    security = POD["securityContext"]
    assert (security["runAsUser"], security["runAsGroup"], security["fsGroup"]) == (int(user), int(group), int(group))
    kept = next(one for one in image if one.name == "VOLUME").exec_form
    assert kept[0] in {one["mountPath"] for one in WORKER["volumeMounts"] if one["name"] == "data"}


def test_the_page_makes_the_secret_that_the_pods_want() -> None:
    """`kubectl create secret` of the page has each key."""
    wanted = {
        one["valueFrom"]["secretKeyRef"]["key"] for one in WORKER["env"] if "secretKeyRef" in one.get("valueFrom", {})
    }
    wanted |= {item["key"] for one in POD["volumes"] for item in one.get("secret", {}).get("items", [])}
    text = "\n".join(block.text for block in PAGE.blocks)
    assert [key for key in sorted(wanted) if f"={key}=" not in text and f"--from-file={key}" not in text] == []


def test_the_page_says_what_was_not_tried() -> None:
    """No claim before it is true."""
    assert "No cluster" in "\n".join(PAGE.prose)


def test_what_is_wrong_is_named() -> None:
    """The check is tried on an object that is wrong."""
    wrong = {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"prot": 1}], "clusterIP": 7, "selector": []}}
    assert list(misfits(wrong, kind_of(wrong), "Service")) == [
        "Service.spec.ports[0]: port is missing",
        "Service.spec.ports[0]: no field prot",
        "Service.spec.clusterIP: 7 is no str",
        "Service.spec.selector: [] is no map",
    ]
