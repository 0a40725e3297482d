"""What the task logs come to for whoever empties tables: what is counted, what is deleted, what stays, and what is said of it."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, cast

import pytest

from headgate.agents.cli.data.tables_clear import ClearPlan, outcome, plan_of, text
from headgate.agents.cli.options import Target
from headgate.agents.port.errors import Fenced, OutcomeUnknown
from headgate.agents.process.clearing import Census, Kept, LogContents, Part, failure_text, put_together
from headgate.core.coordination.messages import Entry, SetRun, key_of
from headgate.core.coordination.state import JobState
from headgate.core.errors import HeadgateError, NotFound
from headgate.core.graph.schema import SCHEMA_TABLE, Schema, adopt, pack_history
from headgate.core.names import JobName, StreamPartition, Topics
from headgate.core.task.stored.checkpoint import CONTROL_TABLE, Checkpoint, encode_checkpoint, log_value

ORDERS = StreamPartition("orders", 0)
JOB = JobName("shop")
TO = Target(JOB, Topics(JOB), cast("Any", None))


def schema(table: str, kind: str) -> bytes:
    return log_value(pack_history(adopt(table, None, Schema(kind, "text", "states")).history))


def log(kind: str = "aggregate", names: frozenset[str] | None = None) -> Census:
    """What a replay of a task's log gives: a table of two rows and one that is gone, another one, and headgate's own."""
    census = Census(names)
    checkpoint = encode_checkpoint(Checkpoint("shop/1", "u", "r1", positions={ORDERS: 7}))
    own = {CONTROL_TABLE: {b"k": b"\x00v"}, SCHEMA_TABLE: {b"n": schema("n", kind)}}
    census.write(
        {"n": {b"a": b"\x0012", b"b": b"\x003", b"c": None}, "other": {b"x": b"\x00"}, **own}, checkpoint=checkpoint
    )
    return census


def test_what_a_log_holds() -> None:
    """Rows are counted without being kept; nothing of headgate's own is a table that somebody may clear."""
    found = put_together({"Partition 0": log(), "Partition 1": Census()})
    assert dict(found.tables) == {
        "n": Kept("n", "aggregate", (Part("Partition 0", 2, 7, True),)),
        "other": Kept("other", "table", (Part("Partition 0", 1, 2, False),)),
    }
    assert found.positions == {ORDERS: 7}


def test_only_what_is_asked_for_is_counted() -> None:
    """The keys of a large table that stays need no memory."""
    found = put_together({"Partition 0": log(names=frozenset(["other"]))})
    assert (found.tables["n"].keys, found.tables["other"].keys) == (0, 1)


def test_what_is_deleted() -> None:
    """Every key that is there, and the schema; of the table that is meant, and of no other."""
    assert log().deletions(["n"]) == {"n": {b"a": None, b"b": None}, SCHEMA_TABLE: {b"n": None}}
    assert log().deletions(["other"]) == {"other": {b"x": None}}
    cleared = log()
    cleared.write(cleared.deletions(["n"]))
    assert cleared.deletions(["n"]) == {}
    assert put_together({"t": cleared}).tables["n"].parts == ()


def test_what_is_known_when_the_write_has_failed() -> None:
    """Whoever reads it must know whether he may go on."""
    assert failure_text(Fenced("x")).startswith("nothing was changed")
    assert "it is unknown whether" in failure_text(OutcomeUnknown("x"))


def planned(
    *names: str, kinds: dict[str, str] = MappingProxyType({"n": "aggregate"}), state: str = "ended"
) -> ClearPlan:  # type: ignore[assignment]
    tables = {name: Kept(name, kind, (Part("Partition 0", 2, 7, True),)) for name, kind in kinds.items()}
    run = SetRun("r1", "d", state, "u")
    found = LogContents(tables, {StreamPartition("orders", n): 5 for n in range(9)})
    return plan_of(names, found, JobState().fold([Entry(0, key_of(run), run)]), TO)


KINDS = {"n": "aggregate", "kept": "table", "alarm.timers": "timers", "daily": "batch step"}


@pytest.mark.parametrize(
    ("names", "cleared"),
    [((), ["n", "kept"]), (("daily",), ["daily"]), (("kept", "kept"), ["kept"])],
)
def test_timers_and_rows_that_wait_are_cleared_only_by_name(names: tuple[str, ...], cleared: list[str]) -> None:
    """Somebody who empties his counts would have lost rows that were read and stand in no batch yet."""
    plan = planned(*names, kinds=KINDS)
    assert [one.name for one in plan.cleared] == cleared
    assert sorted([*cleared, *plan.others]) == sorted(KINDS)
    assert ("will not be in any batch" in text(TO, plan)) == ("daily" in cleared)


def test_what_is_no_table_of_the_job() -> None:
    """The nearest name, and all that there are; headgate's own are not anybody's."""
    with pytest.raises(NotFound) as error:
        planned("dayly", kinds=KINDS)
    assert error.value.remedy == "did you mean 'daily'? There are 'n', 'kept', 'alarm.timers', 'daily'"
    with pytest.raises(NotFound):
        planned("n", kinds={})
    for own in (CONTROL_TABLE, SCHEMA_TABLE, "hg.closed", "__checkpoint"):
        with pytest.raises(HeadgateError, match="belongs to headgate"):
            planned(own)


def test_what_the_plan_says() -> None:
    """Many partitions are counted, few are named; and what has nothing to do says so."""
    said = text(TO, planned())
    assert "(run r1 is ended)" in said
    assert "n (aggregate): 2 keys, 7 bytes in Partition 0" in said
    assert "9 partitions of orders" in said
    assert "headgate seek shop orders --to oldest" in said
    assert outcome(TO, planned()) == "'n' of shop: 2 keys deleted."
    nothing = planned(kinds={})
    assert nothing.empty
    assert outcome(TO, nothing) == "Nothing to do: shop has no tables."
