"""What expressions of columns cost in our own C, beside the kernels of pyarrow and polars in the same run: nanoseconds of CPU time a row.

    python -m bench.expressions [ROUNDS]      prints a table and writes bench/out/expressions.json; polars is left out if it is missing

The three compute the same over the same vectors, and are compared with each other before they are measured. They take turns; each figure is
the median of the rounds, and the ratio is the median of the ratios within a round. `polars` has one thread.

    six operations      (amount * 1.2 + fee > 50) & (n + 3 != 10), which rows are true
    one row in ten      the same, of rows that an earlier filter has selected; a kernel of a library needs them taken out first
    named               n + m, where one row in a hundred leaves 64 bits: which rows do, and the values of the others. pyarrow's checked
                        kernel names none, so a mask is computed beside it; polars wraps around in silence, so it gets the same mask

    functions           one function of each kind, of all rows: what our C computes, and what it leaves to a kernel of pyarrow (replace,
                        matches, concat, lower), in which case the difference is the way there and back; polars is not asked

In *named* ours also says of each such row why it has no value, for its dead letter; the others give only the numbers of the rows.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import pyarrow as pa
import pyarrow.compute as pc

import headgate as hg
from headgate.agents.records.columns.expressions import Computation
from headgate.agents.records.columns.records import Records
from headgate.agents.records.layout import longs
from headgate.agents.records.memory.vectors import Vector
from headgate.agents.records.native import chosen
from headgate.core.columns.evaluate import NotComputable
from headgate.core.columns.schema import ColumnKind, ColumnSchema, ColumnSpec

try:
    import polars as pl
except ImportError:
    pl = None

ROUNDS = 15
LEAST_S = 0.02
SIZES = (200, 2_000, 16_000)
COLUMNS: list[tuple[str, ColumnKind]] = [
    ("real", "float64"),
    ("other", "float64"),
    ("ms", "int64"),
    ("url", "text"),
    ("word", "text"),
    ("at", "text"),
]
SCHEMA = ColumnSchema(
    (
        ColumnSpec("amount", "float64"),
        ColumnSpec("fee", "float64"),
        ColumnSpec("n", "int64"),
        ColumnSpec("m", "int64"),
    )
)
Call = Callable[[], Any]
Ways = dict[str, Call]


def drawn(size: int) -> dict[str, list[Any]]:
    """The columns. One row in a hundred of `n + m` leaves 64 bits."""
    chance = random.Random(5)
    return {
        "amount": [chance.uniform(0, 100) for _ in range(size)],
        "fee": [chance.uniform(0, 5) for _ in range(size)],
        "n": [chance.randrange(20) for _ in range(size)],
        "m": [2**63 - 1 if row % 100 == 50 else chance.randrange(1, 1000) for row in range(size)],
    }


def works(size: int) -> dict[str, Ways]:
    """By work and way."""
    values = drawn(size)
    values["n"] = [one or 1 for one in values["n"]]
    vectors = {one.name: Vector.of(one.type, values[one.name]) for one in SCHEMA.columns}
    every = Records.of_vectors(vectors, array("q", range(size)))
    some = array("q", range(0, size, 10))
    tenth = every.kept(some)
    keep = Computation(((hg.col("amount") * 1.2 + hg.col("fee") > 50) & (hg.col("n") + 3 != 10)).node, SCHEMA)
    total = Computation((hg.col("n") + hg.col("m")).node, SCHEMA)
    table = pa.table(values)
    amount, fee, n, m = (table[name].combine_chunks() for name in ("amount", "fee", "n", "m"))
    chosen = pa.array(some, pa.int64())

    def named() -> list[int]:
        try:
            total.vector(every)
        except NotComputable as error:
            return list(error.all)
        return []

    def arrow(*of: Any) -> Any:
        one, two, three = of
        above = pc.greater(pc.add(pc.multiply(one, 1.2), two), 50)
        return pc.indices_nonzero(pc.and_(above, pc.not_equal(pc.add_checked(three, 3), 10)))

    def arrow_named() -> list[int]:
        found = pc.add(n, m)
        beyond = pc.less(pc.bit_wise_and(pc.bit_wise_xor(n, found), pc.bit_wise_xor(m, found)), 0)
        return pc.indices_nonzero(beyond).to_pylist()

    found = {
        "six operations": {"own": lambda: keep.picked(every), "pyarrow": lambda: arrow(amount, fee, n)},
        "one row in ten": {
            "own": lambda: keep.picked(tenth),
            "pyarrow": lambda: chosen.take(arrow(amount.take(chosen), fee.take(chosen), n.take(chosen))),
        },
        "named": {"own": named, "pyarrow": arrow_named},
    }
    if pl is not None:
        frame, rows = pl.from_arrow(table), pl.Series("rows", some.tolist())
        condition = ((pl.col("amount") * 1.2 + pl.col("fee") > 50) & (pl.col("n") + 3 != 10)).arg_true()
        summed = pl.col("n") + pl.col("m")
        beyond = (((pl.col("n") ^ summed) & (pl.col("m") ^ summed)) < 0).arg_true()
        taken = pl.col("amount", "fee", "n").gather(rows)
        found["six operations"]["polars"] = lambda: frame.select(condition).to_series()
        found["one row in ten"]["polars"] = lambda: rows.gather(frame.select(taken).select(condition).to_series())
        found["named"]["polars"] = lambda: frame.select(beyond).to_series().to_list()
    return found


def functions(size: int) -> dict[str, Ways]:
    """By function and way."""
    chance = random.Random(5)
    stamps = [chance.randrange(1_600_000_000, 1_800_000_000) for _ in range(size)]
    values: dict[str, list[Any]] = {
        "real": [chance.uniform(-1e4, 1e4) for _ in range(size)],
        "other": [chance.uniform(-1e4, 1e4) for _ in range(size)],
        "ms": [one * 1000 for one in stamps],
        "url": [f"https://www.Shop{n % 99}.com/cat/item?x={n % 9}&channel_id={n % 9999}" for n in stamps],
        "word": [chance.choice([" DE", "fr ", "Italy", "united kingdom"]) for _ in range(size)],
        "at": [time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(one)) for one in stamps],
    }
    schema = ColumnSchema(tuple(ColumnSpec(name, kind) for name, kind in COLUMNS))
    vectors = {name: Vector.of(kind, values[name]) for name, kind in COLUMNS}
    chunk = Records.of_vectors(vectors, array("q", range(size)))
    real, other, ms, url, word, at = (hg.col(name) for name, _ in COLUMNS)
    a = {name: pa.array(one) for name, one in vectors.items()}
    times = a["ms"].cast(pa.timestamp("ms"))
    form = "%Y-%m-%dT%H:%M:%S"
    pairs: dict[str, tuple[hg.Expression, Call]] = {
        "when": (hg.when(real > 0).then(real * 1.5).otherwise(other),
                 lambda: pc.if_else(pc.greater(a["real"], 0), pc.multiply(a["real"], 1.5), a["other"])),
        "round": (real.round(0), lambda: pc.round(a["real"], 0)),
        "least": (hg.least(real, other), lambda: pc.min_element_wise(a["real"], a["other"], skip_nulls=False)),
        "lower": (url.lower(), lambda: pc.ascii_lower(a["url"])),
        "replace": (url.replace("cat", "dog"), lambda: pc.replace_substring(a["url"], pattern="cat", replacement="dog")),
        "matches": (url.matches("id=[0-9]+"), lambda: pc.match_substring_regex(a["url"], pattern="id=[0-9]+")),
        "concat": (hg.concat(url, word), lambda: pc.binary_join_element_wise(a["url"], a["word"], "")),
        "strip": (word.strip(), lambda: pc.utf8_trim_whitespace(a["word"])),
        "length": (url.length(), lambda: pc.utf8_length(a["url"])),
        "slice": (url.slice(8, 12), lambda: pc.utf8_slice_codeunits(a["url"], start=8, stop=12)),
        "split": (url.split("/", 2), lambda: pc.list_element(pc.split_pattern(a["url"], pattern="/"), 2)),
        "year": (ms.year(), lambda: pc.year(times)),
        "hour": (ms.hour(), lambda: pc.hour(times)),
        "strptime": (at.strptime(form), lambda: pc.strptime(a["at"], format=form, unit="ms", error_is_null=True).cast(pa.int64())),
        "strftime": (ms.strftime("%Y-%m-%d"), lambda: pc.strftime(times, format="%Y-%m-%d")),
    }  # fmt: skip
    made: dict[str, Ways] = {}
    for name, (expression, kernel) in pairs.items():
        computation = Computation(expression.node, schema)
        made[name] = {"own": lambda computation=computation: computation.vector(chunk), "pyarrow": kernel}
    return made


def alike(ways: Ways) -> None:
    """Raise if the ways do not find the same rows."""
    rows = {name: _listed(call()) for name, call in ways.items()}
    if len(set(map(tuple, rows.values()))) != 1:
        raise AssertionError({name: (len(one), one[:5]) for name, one in rows.items()})


def _listed(found: Any) -> list[Any]:
    if isinstance(found, Vector):
        return found.values()
    if isinstance(found, list):
        return found
    if isinstance(found, pa.Array):
        return found.to_pylist()
    return found.to_list() if hasattr(found, "to_list") else longs(found).tolist()


def ns_a_row(call: Call, size: int) -> float:
    """Nanoseconds of CPU time of the process for each row of the chunk."""
    start, done = time.process_time(), 0
    while (taken := time.process_time() - start) < LEAST_S:
        call()
        done += size
    return taken / done * 1e9


def main(rounds: int = ROUNDS) -> int:
    """Print the table."""
    if chosen.COMPILED is None:
        print("the compiled part is not built here")
        return 1
    libraries = f"pyarrow {pa.__version__}" + ("" if pl is None else f", polars {pl.__version__}")
    print(f"nanoseconds of CPU time a row, median of {rounds} rounds; in parentheses times ours ({libraries})")
    kept: list[dict[str, Any]] = []
    for size in SIZES:
        for work, ways in {**works(size), **functions(size)}.items():
            alike(ways)
            taken: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(rounds):
                for name, call in ways.items():
                    taken[name].append(ns_a_row(call, size))
            ratios = {
                name: statistics.median(one / own for one, own in zip(each, taken["own"], strict=True))
                for name, each in taken.items()
            }
            shown = [
                f"{name} {statistics.median(each):7.2f}" + ("" if name == "own" else f" ({ratios[name]:.2f}x)")
                for name, each in taken.items()
            ]
            print(f"{size:>6} rows  {work:16} {'   '.join(shown)}", flush=True)
            kept.append({"rows": size, "work": work, "ns": taken, "ratios": ratios})
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "expressions.json").write_text(json.dumps({"libraries": libraries, "works": kept}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS))
