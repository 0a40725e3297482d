"""The account: what the input holds is recounted, and every stage is held against it.

Stages, in the order in which a record passes them: the intermediate stream, the updates on the output, the last value of each
key, the task log. So the first stage with a difference says where a record was lost or doubled.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import msgpack
import orjson

from headgate.core.progress.frames import BatchFrame, UserFrame, decode
from headgate.core.task.stored.checkpoint import CHECKPOINT_KEY, parse_log_key

from .reader import read_all
from .windows import KINDS, Record


@dataclass
class Truth:
    """What the input holds."""

    amounts: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By key, in their order."""
    groups: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    """By group: number and sum."""
    timed: list[Record] = field(default_factory=list[Record])
    """All records, with their times."""

    @property
    def records(self) -> int:
        """How many."""
        return sum(map(len, self.amounts.values()))


def recount(bootstrap: str, topic: str) -> Truth:
    """Count the input again, and see that the load itself is in order."""
    truth = Truth()
    for message in read_all(bootstrap, topic):
        value = orjson.loads(message.value())
        known = truth.amounts[value["key"]]
        assert value["seq"] == len(known), f"the load is not in order: {value} after {len(known)} records"
        known.append(value["amount"])
        group = truth.groups[value["group"]]
        group[0] += 1
        group[1] += value["amount"]
        truth.timed.append((value["key"], message.timestamp()[1], value["seq"], value["amount"]))
    return truth


def differences(bootstrap: str, *, job: str, source: str, counts: str, groups: str) -> tuple[Truth, list[str]]:
    """Everything that is wrong, stage by stage; nothing, if every record counts once everywhere."""
    truth = recount(bootstrap, source)
    wrong = [
        *shuffled(bootstrap, f"{job}-1-by-key", truth),
        *updates(bootstrap, counts, truth),
        *totals(bootstrap, groups, truth),
        *logged(bootstrap, f"__headgate_log_{job}_1", truth),
    ]
    return truth, wrong


def shuffled(bootstrap: str, topic: str, truth: Truth) -> list[str]:
    """The intermediate stream holds every record once, in the order of its key."""
    seen: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for message in read_all(bootstrap, topic):
        frame = decode(message.value() or b"")
        rows = frame.values if isinstance(frame, BatchFrame) else [frame.body] if isinstance(frame, UserFrame) else []
        for row in rows:
            value = orjson.loads(row) if isinstance(row, bytes) else row
            seen[value["key"]].append((value["seq"], message.partition() or 0, message.offset() or 0))
    wrong: list[str] = []
    for key, amounts in truth.amounts.items():
        found = seen.pop(key, [])
        if [seq for seq, _, _ in found] != list(range(len(amounts))):
            wrong.append(f"shuffle: {key}: {_explain(found, len(amounts))}")
    wrong += [f"shuffle: {key} was never in the input" for key in seen]
    return wrong


def _explain(found: list[tuple[int, int, int]], wanted: int) -> str:
    """What is lost, doubled or out of order, and at which offset."""
    first: dict[int, tuple[int, int]] = {}
    doubled: list[str] = []
    overtaken: list[str] = []
    before = -1
    for seq, partition, offset in found:
        if seq in first:
            doubled.append(f"{seq} at {partition}:{offset}, first at {first[seq][0]}:{first[seq][1]}")
        elif seq < before:
            overtaken.append(f"{seq} behind {before} at {partition}:{offset}")
        first.setdefault(seq, (partition, offset))
        before = max(before, seq)
    lost = sorted(set(range(wanted)) - set(first))
    said = f"of {wanted} records, {len(lost)} lost {lost[:3]}, {len(doubled)} doubled {doubled[:3]}"
    return f"{said}, {len(overtaken)} out of order {overtaken[:3]}"


def updates(bootstrap: str, topic: str, truth: Truth) -> list[str]:
    """Each update of a key speaks for more of its records than the one before, and its sum is the sum of just these."""
    sums = {key: list(accumulate(amounts)) for key, amounts in truth.amounts.items()}
    last: dict[str, int] = {}
    wrong: list[str] = []
    for message in read_all(bootstrap, topic):
        key, value = (message.key() or b"").decode(), orjson.loads(message.value() or b"null")
        where = f"output: {key} at {message.partition()}:{message.offset()}: {value}"
        n, known = value["n"], sums.get(key, [])
        if not 0 < n <= len(known):
            wrong.append(f"{where} speaks for {n} of {len(known)} records")
        elif value["total"] != known[n - 1]:
            wrong.append(f"{where} has a sum other than {known[n - 1]}: a record is lost and another doubled")
        elif n <= last.get(key, 0):
            wrong.append(f"{where} came after an update of {last[key]} records")
        elif value["order"] != [n - 1, 0]:
            wrong.append(f"{where} saw records out of order")
        last[key] = n
    wrong += [
        f"output: {key} ends with {last.get(key, 0)} of {len(amounts)} records"
        for key, amounts in truth.amounts.items()
        if last.get(key, 0) != len(amounts)
    ]
    return wrong


def totals(bootstrap: str, topic: str, truth: Truth) -> list[str]:
    """The combined counts: they only grow, and end with the recount."""
    last: dict[str, list[int]] = {}
    wrong: list[str] = []
    for message in read_all(bootstrap, topic):
        group, value = (message.key() or b"").decode(), orjson.loads(message.value() or b"null")
        if value["n"] <= last.get(group, [0])[0]:
            wrong.append(
                f"combined: {group} at {message.partition()}:{message.offset()} goes from {last[group]} to {value}"
            )
        last[group] = [value["n"], value["total"]]
    wrong += [
        f"combined: {group} ends with {last.get(group)}, and the input has {wanted}"
        for group, wanted in truth.groups.items()
        if last.get(group) != wanted
    ]
    return wrong


def logged(bootstrap: str, topic: str, truth: Truth) -> list[str]:
    """The task log, folded, holds the recount; each key in one partition."""
    rows: dict[tuple[str, str], tuple[int, Any]] = {}
    wrong: list[str] = []
    for message in read_all(bootstrap, topic):
        raw = message.key() or b""
        if raw == CHECKPOINT_KEY:
            continue
        name, key = parse_log_key(raw)
        if name is None or name in KINDS or name.startswith(("__", "hg.")) or name.endswith("-batches"):
            continue
        at, partition = (name, key.decode()), message.partition() or 0
        before = rows.get(at)
        if before is not None and before[0] != partition:
            wrong.append(f"task log: {at} stands in partition {before[0]} and {partition}")
        value = message.value()
        rows[at] = (partition, None if value is None else msgpack.unpackb(value[1:]))
    states = {key: state for (_, key), (_, state) in rows.items() if state is not None}
    for key, amounts in truth.amounts.items():
        state = states.get(key)
        if state is None or list(state[:2]) != [len(amounts), sum(amounts)]:
            wrong.append(f"task log: {key} folds to {state}, and the input has {[len(amounts), sum(amounts)]}")
    for group, wanted in truth.groups.items():
        if states.get(group) is None or list(states[group]) != wanted:
            wrong.append(f"task log: {group} folds to {states.get(group)}, and the input has {wanted}")
    return wrong
