"""The Python reference: a page for each part of the public API, from signatures, docstrings and examples that run.

What is public is the list here; a test compares it with the package. The examples are the functions in `examples/reference`: the first line
of a function's docstring names what it shows, and its body stands on the page.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import headgate as hg

from .pages import ROOT

EXAMPLES = ROOT / "examples" / "reference"
PLACE = "docs/reference/api"


@dataclass(frozen=True, slots=True)
class Part:
    """One page: its name, its title, what stands above its names, and the names."""

    name: str
    title: str
    about: str
    names: tuple[str, ...]


def _members(of: str, names: str) -> tuple[str, ...]:
    return tuple(f"{of}.{name}" for name in names.split())


PARTS = (
    Part("app", "Jobs", "A job is declared on an `hg.App`. See [Concepts](../../concepts.md).", (
        "App", *_members("App", "input table agent actor timer"), "Choice",
    )),
    Part("stream", "Streams of rows", "What is said of one record at a time, of keys, of state, and where results go. See "
        "[How it works](../../how-it-works.md), [Keys](../../keys.md) and [Joins of two streams](../../joins.md).", (
        "Stream",
        *_members("Stream", "map flat_map filter branch peek columns map_async lookup merge dedupe as_events rekey repartition broadcast"),
        *_members("Stream", "agg window table join to share sink process"),
        "park", "Record", "Record.with_value", "Batch", "Batch.values",
    )),
    Part("columns", "Streams of columns", "Expressions instead of functions. See [Columns](../../columns.md).", (
        "ColumnStream", *_members("ColumnStream", "filter merge dedupe branch with_columns key_as select explode join repartition agg"),
        *_members("ColumnStream", "window frame rows to share sink"),
        "ColumnBatch", "col", "Expression", *_members("Expression", "is_null is_in cast starts_with contains matches lower upper strip"),
        *_members("Expression", "length slice split replace abs round floor hash"),
        *_members("Expression", "year month day hour minute second weekday strptime strftime"),
        "when", "coalesce", "concat", "least", "greatest", "Digits",
    )),
    Part("windows", "Windows and aggregates", "See [Windows](../../windows.md).", (
        "tumbling", "hopping", "session", "sliding", "Window", "window_key", "WindowedStream", *_members("WindowedStream", "agg process"),
        *("count", "sum", "min", "max", "mean", "first", "last", "arg_max", "arg_min", "top"),
        *("count_distinct", "quantile", "collect", "reduce"),
        *("aggregate", "Aggregate"),
    )),
    Part("actors", "Actors and agents", "Code of your own with hooks, tables and timers, in the task's transaction.", (
        "Actor", *_members("Actor", "on_start on_batch on_watermark on_end_of_stream on_drain on_timer on_stop"),
        "Context", *_members("Context", "task watermark now_ms table emit forward timer cancel commit stop"),
        "Batches", "Batches.table", "Tick", *_members("Tick", "number at missed task now_ms table emit commit"),
    )),
    Part("tables", "Tables", "State by key: stored in the task's store and in its log, and committed with the results.", (
        "Table", *_members("Table", "get get_many update range"), "TableView", "TableView.name",
    )),
    Part("serdes", "Serdes and times", "How keys and values become bytes. See [Keys](../../keys.md), "
        "[Typed rows](../../rows.md) and [Schemas with a registry](../../registry.md).", (
        "Serde", *_members("Serde", "loads dumps loads_many dumps_many"),
        *("json", "msgpack", "text", "raw", "bytes", "key", "arrow", "custom", "avro", "protobuf", "json_schema", "field"),
    )),
    Part("spark", "Spark", "Bounded batches, and what PySpark makes of them. See [Batches for Spark](../../spark.md) and "
        "[Results in files](../../files.md). In the examples, `spark` is a Spark session.", (
        "Stream.batch", "Stream.gather", "ColumnStream.batch", "ColumnStream.gather", "BatchedStream", "BatchedStream.spark",
        "WindowedStream.spark", "SparkStream", "SparkStream.write", "published",
    )),
    Part("sinks", "Databases, files and sinks of your own", "Bounded batches without Spark. See [Sinks](../../sinks.md).", (
        *_members("Stream", "to_sql to_files to_sink"), *_members("ColumnStream", "to_sql to_files to_sink"),
        "Sink", *_members("Sink", "open begin write commit rollback close"), "RowsRefused", "TargetDown",
    )),
    Part("controlling", "Controlling a job", "What the command line does, from a program. See [Operations](../../operations.md). In the "
        "examples, `bootstrap` is the address of a broker.", (
        "metadata", "pause", "resume", "scale", "grow", "drain", "drains", "start", "stop", "withdraw", "output_schema",
        "run", "running", "HostedWorker", *_members("HostedWorker", "processor tasks get ended"),
        "query", "QueriedTable", *_members("QueriedTable", "get get_many scan"), "CommittedValue", "CommittedValue.found",
    )),
    Part("testing", "Testing", "See [Testing](../../testing.md).", (
        "testing", "testing.Driver",
        *_members("testing.Driver", "send send_all read table dead_letters advance wall_ms end drain restart recreate follow"),
        *_members("testing.Driver", "counters states tasks watermarks metadata close"),
        "testing.kafka", "testing.Kafka", *_members("testing.Kafka", "headgate variables"),
    )),
    Part("frames", "Frames", "What one record of a stream between two stages holds, or of one that a job shares, for programs that read it "
        "without headgate's help. See [Frames](../../frames.md).", (
            "frames", *_members("frames", "decode encode UserFrame BatchFrame ArrowFrame Watermark EndOfStream Drain FrameError"),
        )),
    Part("errors", "Errors", "Every error says what is wrong and what to do (`remedy`).", (
        "HeadgateError", "DeclarationError", "SettingError", "DataError", "UserCodeError", "EnvironmentFault",
    )),
)  # fmt: skip
NOT_FOR_USERS = {
    "Aggregate.celled": "what keeps its states asks",
    "App.add": "steps add themselves",
    "App.finish": "the process that runs the job calls it",
    "App.graph": "the process that runs the job calls it",
    "Serde.column_reader": "inputs of columns ask",
    "Serde.column_writer": "outputs of columns ask",
    "Serde.know": "pipelines ask before what is written at a commit",
    "Serde.lacking": "outputs of columns ask",
    "Serde.at": "outputs ask, with their topic",
    "Serde.with_headers": "inputs ask",
    "Serde.header": "outputs ask",
    "Serde.header_name": "outputs ask",
    "Serde.within": "streams and tables of the job ask",
    "Window.holds_ms": "what a window is made of",
    "Window.of_sessions": "what a window is made of",
    "Window.size_ms": "what a window is made of",
    "Window.sliding": "what a window is made of",
}
"""Public names that no user needs, with the reason."""


@dataclass(frozen=True, slots=True)
class Example:
    """A function of a file of examples."""

    part: str
    run: Callable[..., None]
    shows: tuple[str, ...]

    @property
    def wants(self) -> tuple[str, ...]:
        """What it is given: nothing, `spark` or `bootstrap`."""
        return tuple(inspect.signature(self.run).parameters)

    @property
    def body(self) -> str:
        """Its code as a reader types it."""
        return body_of(self.run)


def body_of(function: Callable[..., Any]) -> str:
    """The code of a function without its head and its docstring."""
    source = textwrap.dedent(inspect.getsource(function))
    (node,) = ast.parse(source).body
    assert isinstance(node, ast.FunctionDef)
    assert node.body[1:], f"{function.__name__} has no code"
    begin = node.body[0].end_lineno or 0
    return textwrap.dedent("\n".join(source.splitlines()[begin:])).strip("\n")


@cache
def module_of(part: str) -> ModuleType:
    """A file of examples."""
    name = f"headgate_examples_{part}"
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{part}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def examples_of(part: str) -> list[Example]:
    """The examples of a page, in the order of its file. A function whose docstring is a sentence is a helper of the others."""
    module, found = module_of(part), list[Example]()
    for function in vars(module).values():
        if inspect.isfunction(function) and function.__module__ == module.__name__ and function.__doc__:
            first = function.__doc__.strip().splitlines()[0]
            if re.fullmatch(r"[\w.]+(, [\w.]+)*", first):
                found.append(Example(part, function, tuple(first.split(", "))))
    return found


def helpers_of(part: str) -> list[str]:
    """What several examples of a page use: classes and functions of its file, as code."""
    module, shown = module_of(part), {example.run for example in examples_of(part)}
    return [
        inspect.getsource(thing).strip()
        for thing in vars(module).values()
        if (inspect.isclass(thing) or inspect.isfunction(thing))
        and thing.__module__ == module.__name__
        and thing not in shown
    ]


def found_at(name: str) -> Any:
    """The thing that has this public name."""
    thing: Any = hg
    for word in name.split("."):
        thing = inspect.getattr_static(thing, word) if inspect.isclass(thing) else getattr(thing, word)
    return thing


def signature(name: str) -> str:
    """How it is called, without types; empty for what is not called."""
    thing = found_at(name)
    if inspect.isclass(thing):
        if name.split(".")[-1] not in CONSTRUCTED:
            return ""
        thing = thing.__init__
    if not inspect.isfunction(thing):
        return ""
    given: list[str] = []
    star = False
    for parameter in list(inspect.signature(thing).parameters.values()):
        if parameter.name == "self":
            continue
        if parameter.kind == parameter.KEYWORD_ONLY and not star:
            given, star = [*given, "*"], True
        mark = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        star = star or bool(mark)
        value = "" if parameter.default is parameter.empty else f"={shown(parameter.default)}"
        given.append(f"{mark}{parameter.name}{value}")
    return f"{name.split('.')[-1]}({', '.join(given)})"


CONSTRUCTED = {"App", "Driver", "Record"}
"""Classes that users make; the others are returned to them."""


def shown(default: Any) -> str:
    """A default as it is written."""
    return "…" if callable(default) else repr(default).replace("'", '"')


def listed() -> set[str]:
    """Every name that has its place on a page."""
    return {name for part in PARTS for name in part.names}


def public() -> set[str]:
    """What the package shows: its names, and the methods and properties of its classes."""
    found = {
        *hg.__all__,
        "testing.Driver",
        "testing.kafka",
        "testing.Kafka",
        *_members("frames", " ".join(hg.frames.__all__)),
    }
    for name in [*found]:
        thing = found_at(name)
        if not inspect.isclass(thing) or name in ("SparkStream",) or issubclass(thing, Exception):
            continue
        for base in thing.__mro__:
            if base.__module__.startswith("headgate"):
                own = vars(base).items()
                found |= {f"{name}.{word}" for word, what in own if not word.startswith("_") and is_shown(what)}
    return found | {"SparkStream.write"}


def is_shown(thing: Any) -> bool:
    """Methods and properties; fields are told by the class."""
    return inspect.isfunction(thing) or isinstance(thing, property | classmethod | staticmethod)


def described(name: str) -> str:
    """What its docstring says."""
    thing = found_at(name)
    return inspect.getdoc(thing) or ""


def page_of(part: Part, notice: str, paragraphs: Callable[[str], str]) -> str:
    """The page."""
    examples = examples_of(part.name)
    out = [notice, f"# {part.title}\n", f"{part.about}\n"]
    if helpers := helpers_of(part.name):
        out.append("The examples use:\n\n```python\n" + "\n\n\n".join(["import headgate as hg", *helpers]) + "\n```\n")
    for name in part.names:
        level = "###" if "." in name and name.rpartition(".")[0] in part.names else "##"
        out.append(f"{level} `hg.{name}`\n")
        if call := signature(name):
            out.append(f"```python\n{call}\n```\n")
        out.append(paragraphs(described(name)) + "\n")
        out += [f"```python\n{one.body}\n```\n" for one in examples if one.shows[0] == name]
        for one in examples:
            if name in one.shows[1:]:
                out.append(f"The example of `hg.{one.shows[0]}` shows it.\n")
    return "\n".join(out)


def index(notice: str) -> str:
    """The list of the pages."""
    lines = [
        notice,
        "# Python\n",
        "Everything that jobs use of the package, under the name `hg`. Each example runs with every change.\n",
    ]
    for part in PARTS:
        names = ", ".join(f"`{name.split('.')[-1]}`" for name in part.names)
        lines.append(f"- [{part.title}](api/{part.name}.md): {names}")
    return "\n".join(lines) + "\n"


def pages(notice: str, paragraphs: Callable[[str], str]) -> dict[str, str]:
    """Every page: its path and its text."""
    made = {f"{PLACE}/{part.name}.md": page_of(part, notice, paragraphs) for part in PARTS}
    return {"docs/reference/python.md": index(notice), **made}


def files() -> list[Path]:
    """The files of examples."""
    return sorted(EXAMPLES.glob("*.py"))
