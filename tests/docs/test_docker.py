"""The image and the compose file name only what exists; what needs a Docker engine is not tried here, and docs say so.

`PLANNED` names what the files use before it is built. It shrinks by itself: the day something in it exists, its test fails until
the name is taken out, and from then on the name is checked like all others.
"""

from __future__ import annotations

import configparser
import importlib.util
import re
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from . import house
from .container_files import Instruction, compose, dockerfile
from .pages import ROOT
from .test_names import variables, verb_names

DOCKER = ROOT / "docker"
IMAGE = dockerfile((DOCKER / "Dockerfile").read_text(encoding="utf-8"))
COMPOSE: dict[str, Any] = compose((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
WORKERS = sorted(name for name in SERVICES if name.startswith("worker"))

PLANNED_VERBS = frozenset[str]()
PLANNED_VARIABLES = frozenset[str]()


def of(name: str, stage: int | None = None) -> list[Instruction]:
    """The instructions of a name, of one stage or of all."""
    return [one for one in IMAGE if one.name == name and stage in (None, one.stage)]


def last(name: str) -> Instruction:
    """The one of the final stage that counts."""
    return of(name, IMAGE[-1].stage)[-1]


def ignored(path: str) -> bool:
    """Whether the build context leaves a path out, by the last matching line of the ignore file."""
    out = False
    for line in (DOCKER / "Dockerfile.dockerignore").read_text(encoding="utf-8").split():
        pattern = line.removeprefix("!")
        if line != "#" and fnmatch(path, pattern):
            out = not line.startswith("!")
    return out


def setup() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def test_every_copied_path_exists_and_is_in_the_build_context() -> None:
    """A room that is renamed, or an ignore file that hides it, breaks the image; here it is noticed."""
    wrong: list[str] = []
    stages = {one.words[-1] for one in of("FROM") if "AS" in one.words}
    for one in of("COPY"):
        flags = [word for word in one.words if word.startswith("--")]
        if from_ := [flag.removeprefix("--from=") for flag in flags if flag.startswith("--from=")]:
            wrong += [f"docker/Dockerfile:{one.line}: no stage {stage}" for stage in from_ if stage not in stages]
            continue
        for source in [word for word in one.words if not word.startswith("--")][:-1]:
            if not (ROOT / source).exists():
                wrong.append(f"docker/Dockerfile:{one.line}: {source} does not exist")
            elif ignored(source):
                wrong.append(f"docker/Dockerfile:{one.line}: {source} is left out by the ignore file")
    assert wrong == []


def test_the_image_has_every_room_and_what_the_build_reads() -> None:
    """What setup.cfg maps is copied before pip builds."""
    copied = {word for one in of("COPY", 1) for word in one.words}
    pairs = (line.split("=") for line in setup()["options"]["package_dir"].strip().splitlines())
    assert {place.strip() for _, place in pairs} | {
        "setup.cfg",
        "setup.py",
        "pyproject.toml",
        "README.md",
        "LICENSE",
    } <= copied


def test_the_extras_and_the_python_of_the_image_are_known() -> None:
    """`pip install '.[x]'` names an extra, and the base image a Python that headgate runs on."""
    text = " ".join(one.text for one in of("RUN"))
    extras = {name for group in re.findall(r"\.\[([\w,]+)\]", text) for name in group.split(",")}
    assert extras <= set(setup()["options.extras_require"])
    (version,) = [one.text.partition("=")[2] for one in of("ARG") if one.text.startswith("PYTHON=")]
    assert tuple(map(int, version.split("."))) >= (3, 11)


def test_the_process_is_not_roots_and_gets_sigterm() -> None:
    """A number as user, exec forms, and tini from the distribution as process 1."""
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", last("USER").text)
    assert last("STOPSIGNAL").text == "SIGTERM"
    assert last("ENTRYPOINT").exec_form[:2] == ["/usr/bin/tini", "--"]
    assert any("install" in one.text and " tini" in one.text for one in of("RUN", IMAGE[-1].stage))
    assert last("CMD").exec_form


def test_the_entry_point_is_a_command_of_the_package() -> None:
    """The word after tini is what pip installs."""
    scripts = {
        line.partition("=")[0].strip()
        for line in setup()["options.entry_points"]["console_scripts"].strip().splitlines()
    }
    assert last("ENTRYPOINT").exec_form[2] in scripts


def named_variables() -> set[str]:
    """Every HEADGATE_ variable of image and compose file."""
    found = {word for one in of("ENV") for word in re.findall(r"\b(HEADGATE_[A-Z_]+)=", one.text)}
    for service in SERVICES.values():
        found |= {name for name in service.get("environment", {}) if name.startswith("HEADGATE_")}
    return found


def test_every_variable_is_known() -> None:
    """A setting that is renamed is renamed here, too."""
    assert sorted(named_variables() - variables() - PLANNED_VARIABLES) == []


def unknown_command(command: list[str]) -> list[str]:
    """What is wrong with a worker's command."""
    verbs = verb_names()
    path: tuple[str, ...] = ()
    for word in command:
        if (*path, word) not in verbs:
            break
        path = (*path, word)
    if not path:
        return [] if command[0] in PLANNED_VERBS else [f"no verb {command[0]}"]
    return [
        f"{' '.join(path)} has no option {word}"
        for word in command
        if word.startswith("--") and word not in verbs[path]
    ]


def test_every_command_exists() -> None:
    """Verb and options of each worker, and what the image does by itself."""
    found = {name: unknown_command(SERVICES[name]["command"]) for name in WORKERS}
    assert found == {name: [] for name in WORKERS}
    assert set(last("CMD").exec_form) <= verb_names()[()]


def test_what_was_planned_and_exists_is_no_longer_called_planned() -> None:
    """Take it out of the list above; then it is checked."""
    assert sorted(PLANNED_VERBS & {path[0] for path in verb_names() if path}) == []
    assert sorted(PLANNED_VARIABLES & variables()) == []


def test_the_example_declares_a_job_once_workers_exist() -> None:
    """The module that the workers run is there; when `run` exists, it is imported and holds the App."""
    for name in WORKERS:
        module, _, attribute = SERVICES[name]["command"][1].partition(":")
        path = DOCKER / "example" / f"{module}.py"
        assert path.exists()
        if ("run",) in verb_names():
            spec = importlib.util.spec_from_file_location(f"docker_example_{module}", path)
            assert spec is not None
            assert spec.loader is not None
            loaded = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = loaded
            spec.loader.exec_module(loaded)
            assert type(getattr(loaded, attribute)).__name__ == "App"
        else:
            compile(path.read_text(encoding="utf-8"), str(path), "exec")


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_stands_on_what_exists(name: str) -> None:
    """Its image or its Dockerfile, the services it waits for, its volumes and mounts; ports on loopback only."""
    service = SERVICES[name]
    assert "image" in service
    if build := service.get("build"):
        context = (DOCKER / build["context"]).resolve()
        assert context == ROOT
        assert (context / build["dockerfile"]).exists()
    assert set(service.get("depends_on", {})) <= set(SERVICES)
    for volume in service.get("volumes", []):
        source = volume.split(":")[0]
        assert (DOCKER / source).exists() if source.startswith(".") else source in COMPOSE["volumes"]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_kafka_runs_in_kraft_mode_and_creates_no_topics_by_itself() -> None:
    """One node that is broker and controller."""
    environment = SERVICES["kafka"]["environment"]
    assert environment["KAFKA_PROCESS_ROLES"] == "broker,controller"
    assert environment["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    names = {listener.partition(":")[0] for listener in environment["KAFKA_LISTENERS"].split(",")}
    protocols = {pair.partition(":")[0] for pair in environment["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(",")}
    assert names == protocols


def test_two_workers_have_names_and_disks_of_their_own_and_time_to_stop() -> None:
    """A worker that comes back finds its tables; one that is stopped may finish its commit."""
    assert len(WORKERS) == 2
    commands = [SERVICES[name]["command"] for name in WORKERS]
    assert [command[command.index("--processor-id") + 1] for command in commands] == WORKERS
    disks = [volume for name in WORKERS for volume in SERVICES[name]["volumes"] if not volume.startswith(".")]
    assert len({disk.split(":")[0] for disk in disks}) == len(WORKERS)
    assert all(int(SERVICES[name]["stop_grace_period"].removesuffix("s")) > 35 for name in WORKERS)


@pytest.mark.parametrize("text", ["a: |\n  x", "a: b # c", "a:\n\tb: c", "a: 1\na: 2", "a: *b", "- a: b"])
def test_the_compose_reader_refuses_what_it_does_not_know(text: str) -> None:
    """It never guesses."""
    with pytest.raises(ValueError, match=r"line [12]"):
        compose(text)


def test_the_readers_read() -> None:
    """Both on a small text."""
    assert compose('a:\n  - x\n  - "y"\nb: ["p", 1]\nc:\nd:\n  e: f\n') == {
        "a": ["x", "y"],
        "b": ["p", 1],
        "c": None,
        "d": {"e": "f"},
    }
    assert [
        (one.line, one.stage, one.name, one.text) for one in dockerfile("# c\nFROM x AS y\nRUN a \\\n  && b\n")
    ] == [
        (2, 1, "FROM", "x AS y"),
        (3, 1, "RUN", "a && b"),
    ]


def test_docs_say_what_was_not_tried() -> None:
    """No claim before it is true."""
    assert "no Docker engine" in (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert Path(ROOT / "docs" / "operations.md").exists()
    assert house.verbs()
