"""Works A, B, C, J, K, M, U and W on headgate, as a user would write them; S is B on another input. `headgate run headgate_work:app`.

Each in three forms: rows (functions of dicts), typed rows (functions of structs), columns (expressions).
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import pyarrow
import pyarrow.compute

import headgate as hg

WORK, SOURCE, TARGET = os.environ["BENCH_WORK"], os.environ["BENCH_SOURCE"], os.environ["BENCH_TARGET"]
FORM = os.environ["BENCH_FORM"]
NESTED = os.environ["BENCH_SHAPE"] == "nested"
AVRO = os.environ["BENCH_SHAPE"] == "avro"
WORKER = os.environ.get("BENCH_WORKER") or str(os.getpid())
USED = ("user", "amount", "p", "i")
"""The fields of a nested record that are used, and that A writes."""
seen = total = 0


def add_up(batch: hg.Batch[Any, Any]) -> None:
    """Work C: adds up a batch."""
    progress(sum([value["amount"] for value in batch.values]), len(batch.values))


def add_up_typed(batch: hg.Batch[Any, Any]) -> None:
    """Work C of typed rows."""
    progress(sum([value.amount for value in batch.values]), len(batch.values))


def add_up_columns(batch: hg.ColumnBatch) -> None:
    """Work C of columns."""
    progress(pyarrow.compute.sum(pyarrow.array(batch["amount"])).as_py(), len(batch))


def slow(order: Any) -> Any:
    """Work U: computes for a millisecond."""
    until = time.perf_counter() + 0.001
    while time.perf_counter() < until:
        pass
    return order


def progress(more: int, records: int) -> None:
    """Print how far C is."""
    global seen, total
    total += more
    seen += records
    print(f"MARK {time.time()} {seen} {total}", file=sys.stdout, flush=True)


app = hg.App(os.environ["BENCH_JOB"])


def joined(orders: Any, payments: Any, into: Any, target: dict[str, Any]) -> None:
    """Work J."""
    ours, theirs = (
        app.input(name, key="id", timestamp="ts", **form)
        for name, form in ((SOURCE, orders), (f"{SOURCE}-payments", payments))
    )
    ours.join(theirs, within="10s", grace=os.environ["BENCH_GRACE_MS"] + "ms", into=into).to(TARGET, **target)


def reading(kind: Any = None) -> Any:
    """The serde of the input."""
    if AVRO:
        return hg.avro(kind)
    return hg.json() if kind is None else hg.json(kind)


def writing(kind: Any) -> dict[str, Any]:
    """The serde of an output in Avro."""
    return {"serde": hg.avro(kind, register=True)} if AVRO else {}


def rows() -> None:
    """Functions of dicts."""
    if WORK == "J":
        return joined({}, {}, lambda o, p: {"id": o["id"], "amount": o["amount"], "paid": p["paid"]}, {})
    from record_types import Counts, Total

    events = app.input(
        SOURCE, serde=reading(), key="user" if WORK == "K" else None, timestamp="ts" if WORK == "W" else None
    )
    match WORK:
        case "M":
            events.map(lambda o: {"p": o["p"], "n": o["i"], "w": WORKER}).to(TARGET)
        case "K":
            events.agg(n=hg.count(), p=hg.max("p")).map(lambda v: {**v, "w": WORKER}).to(TARGET)
        case "A" if NESTED:
            picked = events.filter(lambda o: o["amount"] >= 10)
            picked.map(lambda o: {**{name: o[name] for name in USED}, "total": o["amount"] * 2}).to(TARGET)
        case "A":
            events.filter(lambda o: o["amount"] >= 10).map(lambda o: {**o, "total": o["amount"] * 2}).to(
                TARGET, **writing(Total)
            )
        case "B" | "S":
            events.repartition("user").agg(n=hg.count(), total=hg.sum("amount")).to(TARGET, **writing(Counts))
        case "W":
            windows = events.repartition("user").window(hg.tumbling("10s", grace=os.environ["BENCH_GRACE_MS"] + "ms"))
            windows.agg(n=hg.count(), total=hg.sum("amount")).to(TARGET)
        case "U":
            events.map(slow).to(TARGET)
        case _:
            events.sink(add_up)


def typed() -> None:
    """Functions of structs."""
    from record_types import Counts, Order, Paid, Payment, doubled, type_of

    if WORK == "J":
        forms = [{"serde": hg.json(kind)} for kind in (Order, Payment, Paid)]
        return joined(forms[0], forms[1], lambda o, p: Paid(o.id, o.amount, p.paid), forms[2])
    events = app.input(SOURCE, serde=reading(type_of(WORK, NESTED)))
    match WORK:
        case "A":
            kind, make = doubled(NESTED)
            events.filter(lambda o: o.amount >= 10).map(make).to(TARGET, **(writing(kind) or {"serde": hg.json(kind)}))
        case "B":
            events.repartition("user").agg(n=hg.count(), total=hg.sum("amount")).to(TARGET, **writing(Counts))
        case _:
            events.sink(add_up_typed)


def columns() -> None:
    """Expressions, and functions of frames."""
    from record_types import Counts, Order, Payment, Total, type_of

    if WORK == "J":
        given: dict[str, Any] = {"key": "id", "timestamp": "ts"}
        orders = app.input(SOURCE, serde=hg.json(Order), **given).columns().select("id", "amount")
        payments = app.input(f"{SOURCE}-payments", serde=hg.json(Payment), **given).columns()
        orders.join(payments, within="10s", grace=os.environ["BENCH_GRACE_MS"] + "ms", take=["paid"]).to(TARGET)
        return
    source = app.input(SOURCE, serde=reading(type_of(WORK, NESTED)), timestamp="ts" if WORK == "W" else None)
    events = source.columns()
    match WORK:
        case "A":
            events.filter(hg.col("amount") >= 10).with_columns(total=hg.col("amount") * 2).to(TARGET, **writing(Total))
        case "B" | "S":
            events.repartition("user").agg(n=hg.count(), total=hg.sum("amount")).to(TARGET, **writing(Counts))
        case "W":
            windows = events.repartition("user").window(hg.tumbling("10s", grace=os.environ["BENCH_GRACE_MS"] + "ms"))
            windows.agg(n=hg.count(), total=hg.sum("amount")).to(TARGET)
        case _:
            events.sink(add_up_columns)


{"rows": rows, "typed": typed, "columns": columns}[FORM]()
