"""`headgate doctor [MODULE:app]`: what is there and what is missing on this machine and at the brokers, each with what helps.

Exit codes: 0 if everything that is needed is there, else 1. Nothing is changed. Without a job no broker is needed, so that a new machine
can be looked at first.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from ....core.errors import HeadgateError, NotFound
from ....core.graph.rights import rights
from ...broker.java import find_java
from ...broker.schema_server import registry_url_of
from ...job.derive.declaration import Declared
from ...kafka.allowed import lacking
from ...kafka.topics import TopicsAdmin
from ...live_settings import Settings
from ...process.configuration import NO_BROKER, CommandLine, Configuration
from ...process.launch import load_app
from ...process.patterns import find_topics
from ...records.native import chosen
from ...registry.client import HttpRegistry, RegistryAccess
from ...registry.serde import serdes_of
from ...worker.job_topics import JobTopics
from ..options import app_dir_option, broker_options, configured, run_async
from ..output import output_option, show_table, show_text, shown_as_json
from .acls import command, principal_of
from .registry_checks import inputs_said, newest, registry_said

OK, WARNING, WRONG = "ok", "warning", "wrong"
LEAST_FREE = 1 << 30
BROKER_S = 5.0
"""How long it waits for a broker."""
LIBRARIES = ("headgate", "aiokafka", "faust-streaming", "rocksdict", "pyspark", "pyarrow")


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, how it is, and what helps."""

    what: str
    state: str
    said: str
    todo: str = ""


@click.command()
@click.argument("app_at", metavar="[MODULE:app]", default="")
@app_dir_option
@broker_options
@output_option
def doctor(app_at: str, app_dir: Path | None, said: CommandLine, output: str) -> None:
    """Look at brokers, versions, Java, Spark, disk and clock; with MODULE:app also at the inputs and rights of this job."""
    app = load_app(app_at, app_dir) if app_at else None
    configuration = configured(said, app={} if app is None else app.settings, need_broker=False)
    if app is not None and configuration.broker_origin != NO_BROKER:
        run_async(find_topics(app, configuration))
    declared = None if app is None else Declared(app)
    spark = declared is not None and any(step.in_spark for step in declared.steps)
    found = [*versions(), *of_java(needed=spark), *of_spark(needed=spark), of_disk(configuration), of_clock()]
    if configuration.broker_origin == NO_BROKER:
        found.append(no_broker(needed=declared is not None))
    else:
        found += run_async(at_brokers(configuration, declared))
    if declared is not None and any(serdes_of(declared.steps)):
        found += run_async(at_registry(configuration, declared))
    if not shown_as_json(
        output, {"findings": [{"what": f.what, "state": f.state, "said": f.said, "todo": f.todo} for f in found]}
    ):
        show_table(["CHECK", "STATE", "FOUND"], ((one.what, one.state, one.said) for one in found))
        for one in found:
            if one.todo and one.state != OK:
                show_text(f"\n{one.what}: {one.todo}")
    if any(one.state == WRONG for one in found):
        raise SystemExit(1)


def versions() -> Iterable[Finding]:
    """Python, and the libraries that a worker stands on."""
    yield Finding("python", OK, f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    for name in LIBRARIES:
        try:
            yield Finding(name, OK, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Finding(name, WRONG, "is not installed", "pip install headgate")
    slow = (
        ""
        if chosen.part.FAST
        else "columns take several times as long; a wheel, or an install with a C compiler, has it"
    )
    yield Finding("compiled part", WARNING if slow else OK, "is missing" if slow else "is there", slow)


def of_java(*, needed: bool) -> Iterable[Finding]:
    """The Java for Spark and the embedded broker."""
    try:
        java = find_java()
    except HeadgateError as error:
        yield Finding("java", WRONG if needed else WARNING, error.what, error.remedy)
    else:
        yield Finding("java", OK, f"{java.version}, {java.path} ({java.source})")


def of_spark(*, needed: bool) -> Iterable[Finding]:
    """What batches at Spark need of this environment."""
    missing = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]
    if needed and not missing:
        yield Finding("spark", OK, "the job has Spark steps, and PySpark is there")
    elif missing:
        said = f"without {', '.join(missing)}"
        yield Finding("spark", WRONG if needed else WARNING, said, f"pip install {' '.join(missing)}")


def of_disk(configuration: Configuration) -> Finding:
    """The disk of `state.dir`."""
    directory = Path(str(configuration.value("state.dir"))).expanduser()
    there = next(path for path in (directory, *directory.parents) if path.exists())
    try:
        free = shutil.disk_usage(there).free
    except OSError as error:
        return Finding("disk", WRONG, f"{there}: {error.strerror}", "choose another state.dir")
    said = f"{free / 1e9:.1f} GB free at {directory}"
    return (
        Finding("disk", WARNING, said, "free some space, or choose another state.dir")
        if free < LEAST_FREE
        else Finding("disk", OK, said)
    )


def of_clock() -> Finding:
    """Whether the clock is kept by NTP, as far as the kernel says."""
    import ctypes

    buffer = ctypes.create_string_buffer(512)
    try:
        state = ctypes.CDLL(None).ntp_adjtime(buffer)
    except (OSError, AttributeError):
        return Finding("clock", OK, "this system does not say whether its clock is kept by NTP")
    if state == 5:
        todo = "let NTP set it; a worker compares it with the broker's, see headgate_worker_clock_ahead_seconds"
        return Finding("clock", WARNING, "the kernel says that it is not kept by NTP", todo)
    return Finding("clock", OK, "kept by NTP, as the kernel says")


def no_broker(*, needed: bool) -> Finding:
    """No broker is given: the machine is looked at all the same."""
    todo = "-b HOST:PORT, HEADGATE_BOOTSTRAP, --config-file, or start one: headgate kafka up"
    return Finding(
        "broker", WRONG if needed else WARNING, "none is given, and no embedded one can be used as it is", todo
    )


async def at_brokers(configuration: Configuration, declared: Declared | None) -> list[Finding]:
    """Whether a broker answers, and what the job lacks there."""
    client = configuration.client
    admin = TopicsAdmin(client)
    try:
        await admin.start(deadline_s=BROKER_S)
        names = await admin.names()
    except HeadgateError as error:
        return [Finding("broker", WRONG, error.what, error.remedy)]
    finally:
        await admin.stop()
    found = [Finding("broker", OK, f"{client.bootstrap} answers; {len(names)} topics are visible")]
    if declared is None:
        return found
    creates = bool(configuration.value("topic.create-outputs"))
    wanted = rights(declared.graph, declared.topics, outputs=creates)
    whom = principal_of(client)
    lacks = await lacking(client, wanted)
    for right in lacks:
        said = f"no {', '.join(right.operations)} on the {right.resource} {right.names[0]}"
        found.append(Finding("right", WRONG, said, command(right, whom, client)))
    if not lacks:
        found.append(Finding("rights", OK, "all that the job needs on what exists"))
    topics = JobTopics(client, declared, create_outputs=creates)
    hidden = {name for right in lacks for name in right.names}
    if not hidden & declared.graph.input.keys():
        found.append(await _checked("inputs", topics, topics.input_counts))
        if found[-1].state == OK and not hidden & declared.graph.outputs:
            found.append(await _checked("outputs", topics, topics.output_counts))
    return found


async def at_registry(configuration: Configuration, declared: Declared) -> list[Finding]:
    """Whether the schema registry answers, what the job's outputs lack there, and whether the newest records of inputs can be read."""
    embedded = "" if configuration.broker_origin == NO_BROKER else registry_url_of(configuration.client.bootstrap)
    try:
        registry = HttpRegistry(RegistryAccess.of(Settings(configuration.given), embedded))
    except HeadgateError as error:
        return [Finding("registry", WRONG, error.what, error.remedy)]
    found = await registry_said(registry, declared.steps)
    if found[0][1] and configuration.broker_origin != NO_BROKER:
        found += await inputs_said(registry, declared.steps, partial(newest, configuration.client))
    return [Finding(what, OK if right else WRONG, said, "" if right else todo) for what, right, said, todo in found]


async def _checked(what: str, topics: JobTopics, ask: Callable[[], Awaitable[Any]]) -> Finding:
    await topics.start()
    try:
        answer = await ask()
    except (HeadgateError, NotFound) as error:
        return Finding(what, WRONG, error.what, error.remedy)
    finally:
        await topics.stop()
    return Finding(what, OK, ", ".join(f"{name} ({count} partitions)" for name, count in sorted(answer.items())))
