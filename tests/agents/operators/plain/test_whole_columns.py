"""`.columns()` of text and bytes: one column, `value`, with the values that rows have; and records of one column."""

from __future__ import annotations

import os
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headgate as hg
from headgate.agents.records.memory.octets import octets_of, octets_of_texts
from headgate.agents.records.memory.record_spans import pieces
from headgate.agents.records.memory.taking import join, spans_of, take
from headgate.agents.records.memory.vectors import Octets, Vector
from headgate.agents.records.native import chosen
from headgate.agents.testing.driver import Driver

needs_compiler = pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")
RAW = [b"\xff\x00abc", b"", b"a", b"ab", os.urandom(1000), b"YWJj"]


class Part(TypedDict):
    title: str
    data: bytes


class MaybePart(TypedDict):
    data: bytes | None


@pytest.fixture(params=[pytest.param(True, marks=needs_compiler), False], ids=["compiled", "plain"], autouse=True)
def way(request, monkeypatch):
    """Each test runs with both."""
    if not request.param:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)


def written(app: hg.App, topic: str, records: list[Any], out: str = "out") -> list[Any]:
    with Driver(app) as d:
        for one in records:
            d.send(topic, one)
        return [one.value for one in d.read(out)]


def test_lines_of_text():
    app = hg.App("shop")
    lines = app.input("lines", serde=hg.text()).columns()
    found = lines.filter(hg.col("value").matches("^a")).with_columns(size=hg.col("value").length())
    found.to("out", serde=hg.json())
    assert written(app, "lines", ["aü", "b", None, "a"]) == [{"value": "aü", "size": 2}, {"value": "a", "size": 1}]


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16"])
def test_text_of_each_encoding_is_read_and_written(encoding: str):
    app = hg.App("shop")
    serde = hg.text(encoding)
    lines = app.input("lines", serde=serde).columns()
    lines.select(value=hg.concat(hg.col("value"), "!")).to("out", serde=serde)
    lines.rows().to("rows", serde=serde)
    with Driver(app) as d:
        for one in ("äb", "", "c"):
            d.send("lines", one.encode(encoding))
        assert [one.value for one in d.read("out")] == ["äb!", "!", "c!"]
        assert [one.value for one in d.read("rows")] == ["äb", "", "c"]


@pytest.mark.parametrize(
    ("encoding", "data", "said"),
    [
        ("utf-8", b"\xff", "invalid start byte"),
        ("ascii", b"\xff", "ordinal not in range"),
        ("utf-7", b"+2AA-", "surrogate"),
    ],
)
def test_what_is_no_text_is_bad_data(encoding: str, data: bytes, said: str):
    app = hg.App("shop", on_bad_data="dead_letter")
    app.input("lines", serde=hg.text(encoding)).columns().to("out", serde=hg.json())
    with Driver(app) as d:
        d.send_all("lines", [hg.Record(None, one, 0) for one in (b"a", data, None, b"b")])
        assert [one.value["value"] for one in d.read("out")] == ["a", "b"]
        (letter,) = d.dead_letters()
        assert letter.offset == 1
        assert said in letter.exception


def test_what_an_encoding_does_not_have_is_an_error_of_its_record():
    app = hg.App("shop", on_error="dead_letter")
    lines = app.input("lines", serde=hg.text()).columns()
    lines.to("out", serde=hg.text("ascii"))
    with Driver(app) as d:
        d.send_all("lines", [hg.Record(None, one.encode(), 0) for one in ("a", "ü", "b")])
        assert [one.value for one in d.read("out")] == ["a", "b"]
        (letter,) = d.dead_letters()
        assert letter.offset == 1


def test_bytes_go_to_frames_as_they_are_and_come_back():
    def named(frame: pa.Table) -> Any:
        assert frame.schema.field("value").type == pa.binary()
        kept: Any = frame.filter(pc.greater(pc.binary_length(frame["value"]), 0))
        heads = [one.hex() for one in pc.binary_slice(kept["value"], 0, 1).to_pylist()]
        return pa.table({"title": heads, "data": kept["value"], "__row": kept["__row"]})

    app = hg.App("shop")
    parts = app.input("parts", serde=hg.raw()).columns().frame(named, like="pyarrow", schema=Part)
    parts.repartition("title").rows().map(lambda row: row["data"]).to("out", serde=hg.raw())
    assert sorted(written(app, "parts", [*RAW, None])) == sorted(one for one in RAW if one)


def test_nulls_of_a_frame():
    def cut(frame: pa.Table) -> pa.Table:
        data = [one if one else None for one in frame["value"].to_pylist()]
        return pa.table({"data": pa.array(data, pa.binary()), "__row": frame["__row"]})

    app = hg.App("shop")
    made = app.input("parts", serde=hg.raw()).columns().frame(cut, like="pyarrow", schema=MaybePart)
    made.select(value=hg.col("data")).to("out", serde=hg.raw())
    assert written(app, "parts", RAW) == [one or None for one in RAW]


def test_bytes_in_all_other_steps_are_what_they_are_of_json():
    """Base64 where they are written as JSON; bytes where they are shown."""
    app = hg.App("shop")
    parts = app.input("parts", serde=hg.raw()).columns()
    parts.to("out")
    parts.to("same", serde=hg.raw())
    parts.rows().map(lambda data: data.hex()).to("hex")
    parts.with_columns(h=hg.col("value").is_null()).filter(~hg.col("h")).rows().map(lambda row: len(row["value"])).to(
        "sizes"
    )
    with Driver(app) as d:
        d.send_all("parts", [hg.Record(None, one, 0) for one in RAW])
        assert [one.value for one in d.read("same")] == RAW
        assert [one.value for one in d.read("hex")] == [one.hex() for one in RAW]
        assert [one.value for one in d.read("sizes")] == [len(one) for one in RAW]
        assert d.read("out")[0].value == {"value": "/wBhYmM="}


def test_what_the_declaration_refuses():
    app = hg.App("shop")
    with pytest.raises(hg.DeclarationError, match="have one column, 'value'"):
        app.input("a", serde=hg.text()).columns(Part)
    with pytest.raises(hg.DeclarationError, match="frames of other jobs"):
        app.input("b", serde=hg.text(), producers=["other"]).columns()
    with pytest.raises(hg.DeclarationError, match="function of a value"):
        app.input("c", serde=hg.text(), timestamp=lambda value: int(value)).columns()
    lines = app.input("d", serde=hg.text()).columns()
    with pytest.raises(hg.DeclarationError, match="is one column, and these are value: text, n: int64"):
        lines.with_columns(n=hg.col("value").length()).to("out", serde=hg.text())
    with pytest.raises(hg.DeclarationError, match="is one column, and these are value: text"):
        lines.to("out", serde=hg.raw())


def test_a_column_of_bytes_is_in_base64_only_for_who_asks(monkeypatch):
    plain = Vector.of("text", [b"abc", None, b"\xff"])
    column = Octets(plain)
    asked: list[int] = []
    encode = chosen.part.to_base64
    monkeypatch.setattr(chosen.part, "to_base64", lambda *spans: asked.append(1) or encode(*spans))
    taken = take(column, memoryview(bytes(8) + bytes([2] + [0] * 7)).cast("q"))
    assert pieces(spans_of(octets_of(taken))) == [b"abc", b"\xff"]
    assert not asked
    assert column.values() == ["YWJj", None, "/w=="]
    assert (column.at(0), column.at(1), len(column), column.nulls) == ("YWJj", None, 3, 1)
    assert column.only(b"\x01").values() == ["YWJj", None, None]
    assert join([column, Vector.of("text", ["YQ=="])]).values() == ["YWJj", None, "/w==", "YQ=="]
    assert len(asked) == 1
    assert octets_of_texts(["YWJj", None]) == [b"abc", None]
