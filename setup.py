"""The one thing that setup.cfg cannot say: a compiled part, which is left out where there is no compiler."""

from setuptools import Extension, setup

PARTS = [
    "avro_read.c",
    "avro_write.c",
    "base64.c",
    "columns.c",
    "decoded.c",
    "numbers.c",
    "json_read.c",
    "json_write.c",
    "groups.c",
    "heads.c",
    "longs.c",
    "matching.c",
    "proto_read.c",
    "session_runs.c",
    "spans.c",
    "spread.c",
    "take.c",
    "window_rows.c",
    "unpack.c",
    "expressions.c",
    "arrow_give.c",
    "arrow_take.c",
    "leaving.c",
    "lists.c",
    "latest.c",
    "memory.c",
]
HEADERS = [
    "arrow.h",
    "base64.h",
    "compiled.h",
    "decoded.h",
    "functions.h",
    "json.h",
    "msgpack.h",
    "numbers.h",
    "span_view.h",
    "texts.h",
    "varints.h",
    "vector_view.h",
]

setup(
    ext_modules=[
        Extension(
            "headgate.agents.records.native._columns",
            [f"agents/records/native/{part}" for part in PARTS],
            depends=[f"agents/records/native/{header}" for header in HEADERS],
            libraries=["m"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
    ]
)
