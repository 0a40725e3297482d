"""What `headgate doctor` asks of the schema registry of a job: whether it answers, lets the job in, has what outputs need, and knows the
schemas of the newest records of inputs, which are read as the job would read them.

What it decides: nothing; each failure is the registry's or the serde's, with its remedy. Nothing is registered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Any

from ....core.errors import HeadgateError
from ...job.steps.sources import InputStep
from ...kafka.scan import scan_topic
from ...kafka.settings import ClientSettings
from ...learning import MustLearn, NotYet
from ...registry.asked import NoSchema, SchemaRegistry
from ...registry.serde import RegistrySerde, no_guids, serdes_of

ANY_ID = 1
ReadNewest = Callable[[str], Awaitable[Sequence[Any]]]
"""The newest record of each partition of a topic."""
LookedAt = tuple[str, bool, str, str]
"""What was looked at, whether it is right, how it is, and what helps."""


async def registry_said(registry: SchemaRegistry, steps: Iterable[object]) -> list[LookedAt]:
    """The registry, then the subjects of outputs, and whether their schemas can be named in headers, if they are to be."""
    try:
        await registry.by_id(ANY_ID)
    except NoSchema:
        pass  # that is an answer
    except NotYet as error:
        return [("registry", False, error.what, error.remedy)]
    found = [("registry", True, f"{registry.said} answers", "")]
    outputs = [one for one in serdes_of(steps) if one.topic]
    found += await _guids_said(registry, [one for one in outputs if one.in_header])
    subjects = {one.subject: one.registers for one in outputs}
    for subject, registers in sorted(subjects.items()):
        try:
            standing = await registry.version(subject, None)
        except NoSchema as error:
            said = f"{error.what}; the job puts it there" if registers else error.what
            found.append(
                (f"subject {subject}", registers, said, "register it there, or let the job do it: register=True")
            )
        except HeadgateError as error:
            found.append((f"subject {subject}", False, error.what, error.remedy))
        else:
            found.append((f"subject {subject}", True, f"version {standing.version}, id {standing.number}", ""))
    return found


async def _guids_said(registry: SchemaRegistry, serdes: Sequence[RegistrySerde[Any]]) -> list[LookedAt]:
    """Which of these serdes cannot name their schemas in a header, as the registry has no GUIDs."""
    try:
        if not serdes or await registry.has_guids():
            return []
    except NotYet as error:
        return [("registry", False, error.what, error.remedy)]
    errors = [no_guids(registry, one) for one in sorted(serdes, key=lambda one: one.subject)]
    return [("schemas in headers", False, error.what, error.remedy) for error in errors]


async def newest(client: ClientSettings, topic: str) -> list[Any]:
    """The newest record of each partition of a topic. The reader is closed, whatever happens."""
    scan: Any = scan_topic(client, topic, last=1)
    async with aclosing(scan) as records:
        return [record async for record in records]


async def inputs_said(registry: SchemaRegistry, steps: Iterable[object], read: ReadNewest) -> list[LookedAt]:
    """Whether the newest records of inputs with a serde of the registry can be read: their schema is known there, and is resolved to what
    the job declares."""
    found: list[LookedAt] = []
    for step in steps:
        parts: dict[str, Any] = {}
        if isinstance(step, InputStep):
            parts = {"value": step.serde, "key": step.key_serde}
        serdes = {part: serde for part, serde in parts.items() if isinstance(serde, RegistrySerde)}
        if not isinstance(step, InputStep) or not serdes:
            continue
        try:
            records = await read(step.topic)
            for part, serde in serdes.items():
                found.append(await _part_said(registry, step.topic, part, serde, records))
        except HeadgateError as error:
            found.append((f"input {step.topic}", False, error.what, error.remedy))
    return found


async def _part_said(
    registry: SchemaRegistry, topic: str, part: str, serde: RegistrySerde[Any], records: Sequence[Any]
) -> LookedAt:
    title = f"{part}s of {topic}"
    data = serde.with_headers([getattr(one, part) for one in records], [one.headers for one in records], part)
    there = [(record, one) for record, one in zip(records, data, strict=True) if one is not None]
    if not there:
        return title, True, f"no {part} to look at yet", ""
    own = serde.at(topic, part)
    own.connect(registry)
    while True:
        try:
            read = own.loads_many([one for _, one in there])
            break
        except MustLearn as unknown:
            await unknown.learn(_NO_TARGETS)  # raises if there is no answer; what does not exist is known afterwards
    if not read.bad:
        return title, True, f"the newest of {len(there)} partitions can be read", ""
    index, error = read.bad[0]
    record = there[index][0]
    said = f"the newest in partition {record.partition}, offset {record.offset}: {error.what}"
    return title, False, said, f"{error.remedy}; headgate tail {topic} -p {record.partition} shows it"


_NO_TARGETS: Any = None
"""Schemas are learned without the topics that a job writes to."""
