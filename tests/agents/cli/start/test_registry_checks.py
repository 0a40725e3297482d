"""What `headgate doctor` says of the schema registry of a job."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

import headgate as hg
from headgate.agents.cli.group import main
from headgate.agents.cli.start.registry_checks import inputs_said, registry_said
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.learning import NotYet
from headgate.agents.registry.asked import NoSchema
from headgate.agents.registry.memory import MemoryRegistry


class Away:
    """A registry that does not answer."""

    async def by_id(self, schema: Any) -> Any:
        raise NotYet("http://r does not answer: 401", remedy="correct what it needs to log in")


class There(MemoryRegistry):
    """A registry that says of a subject that it does not exist, as a real one does."""

    async def version(self, subject: str, version: int | None) -> Any:
        if subject not in self._latest:
            raise NoSchema(f"no subject '{subject}'")
        return await super().version(subject, version)


def job() -> Declared:
    app = hg.App("shop")
    app.input("a", serde=hg.avro()).to("b", serde=hg.avro(schema="string"))
    app.input("c", serde=hg.avro()).to("d", serde=hg.avro(schema="string", register=True))
    return Declared(app)


def test_a_registry_that_is_away_is_named_with_what_helps() -> None:
    away: Any = Away()
    said = asyncio.run(registry_said(away, job().steps))
    assert said == [("registry", False, "http://r does not answer: 401", "correct what it needs to log in")]


def test_a_subject_that_an_output_needs_must_stand_there_unless_the_job_registers_it() -> None:
    found = {what: right for what, right, *_ in asyncio.run(registry_said(There({}), job().steps))}
    there = {what: right for what, right, *_ in asyncio.run(registry_said(There({"b-value": "string"}), job().steps))}
    assert found == {"registry": True, "subject b-value": False, "subject d-value": True}
    assert there["subject b-value"]


def test_schemas_in_headers_need_a_registry_with_guids() -> None:
    """Each output that is to have them is named, with what helps."""

    class Without(There):
        async def has_guids(self) -> bool:
            return False

    app = hg.App("shop")
    given = {"schema": '"string"', "register": True}
    app.input("a").to("b", serde=hg.avro(**given, schema_id="header"), key_serde=hg.avro(**given))
    app.input("c", serde=hg.avro(schema_id="header")).to("d", key_serde=hg.avro(**given, schema_id="header"))
    steps = Declared(app).steps
    assert all(right for _, right, *_ in asyncio.run(registry_said(There({}), steps)))
    wrong = [one for one in asyncio.run(registry_said(Without({}), steps)) if not one[1]]
    assert [(what, said.partition(", so ")[2]) for what, _, said, _ in wrong] == [
        ("schemas in headers", "the schema of 'b-value' cannot be named in a header"),
        ("schemas in headers", "the schema of 'd-key' cannot be named in a header"),
    ]
    assert "of the keys of d" in wrong[1][3]


ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


class NewestRecord(NamedTuple):
    """The newest record of a partition."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int = 0
    offset: int = 41


def looked_at(schema: Any, *records: NewestRecord, registry: Any = None) -> Any:
    """What is said of an input whose newest records are these."""
    app = hg.App("shop")
    app.input("a", serde=hg.avro(schema=schema), key_serde=hg.text()).to("b", serde=hg.json())
    app.input("rows").to("c")

    async def read(topic: str) -> tuple[NewestRecord, ...]:
        assert topic == "a"
        return records

    there = MemoryRegistry({7: ORDER, 8: '"string"'}) if registry is None else registry
    return asyncio.run(inputs_said(there, Declared(app).steps, read))


def test_the_newest_records_of_inputs_are_read_as_the_job_would_read_them() -> None:
    """By ids in front of values and in headers; a record without a value says nothing."""
    more = {**ORDER, "fields": [*ORDER["fields"], {"name": "n", "type": "int", "default": 1}]}
    in_header = NewestRecord(b"\2", headers=(("__value_schema_id", b"\0\0\0\0\7"),), partition=1)
    said = looked_at(more, NewestRecord(b"\0\0\0\0\7\2"), in_header, NewestRecord(None, partition=2))
    assert said == [("values of a", True, "the newest of 2 partitions can be read", "")]


def test_an_empty_topic_says_so() -> None:
    assert looked_at(ORDER) == [("values of a", True, "no value to look at yet", "")]


def test_a_newest_record_that_cannot_be_read_is_named_with_what_helps() -> None:
    """Its id is not known, its schema is not resolved to that of the job, or it names none."""
    more = {**ORDER, "fields": [*ORDER["fields"], {"name": "n", "type": "int"}]}
    for schema, value, why in (
        (ORDER, b"\0\0\0\0\x09\2", "9"),
        (more, b"\0\0\0\0\7\2", "n"),
        (ORDER, b"\0\0\0\0\x08\2a", "string"),
        (ORDER, b"{}", "name no schema"),
    ):
        [(what, right, said, todo)] = looked_at(schema, NewestRecord(value, partition=3))
        assert (what, right) == ("values of a", False)
        assert said.startswith("the newest in partition 3, offset 41: ")
        assert why in said
        assert todo.endswith("headgate tail a -p 3 shows it")


def test_a_topic_that_cannot_be_read_is_named() -> None:
    class Gone(Away):
        said = "the registry"

    assert looked_at(ORDER, NewestRecord(b"\0\0\0\0\7\2"), registry=Gone()) == [
        ("input a", False, "http://r does not answer: 401", "correct what it needs to log in")
    ]


def test_a_job_without_an_address_of_its_registry_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADGATE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HEADGATE_BOOTSTRAP", raising=False)
    (tmp_path / "a_registrys_job.py").write_text(
        "import headgate as hg\napp = hg.App('shop')\napp.input('a', serde=hg.avro()).map(str).to('b')\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    done = CliRunner().invoke(main, ["doctor", "a_registrys_job:app", "-o", "json"])
    found = {one["what"]: one for one in json.loads(done.stdout)["findings"]}
    assert found["registry"]["state"] == "wrong"
    assert "registry.url" in found["registry"]["said"] + found["registry"]["todo"]
