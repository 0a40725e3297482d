"""Bytes of the coordinator stream: golden for ever, total when read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.coordination import messages as c
from headgate.core.coordination.wire import encode, encode_key, read
from headgate.core.errors import DataError
from headgate.core.graph.model import JobModel
from headgate.core.names import StreamPartition
from headgate.core.orders import NO_POSITION, ProducerSet

MODEL = JobModel(
    2, 1, "r1", "d1", {"Partition 0": (StreamPartition("orders", 0),)}, {"Partition 0": "p1"}, ("p1",),
    {"by-country": ProducerSet("by-country", 1, frozenset({"Partition 0"}))}, {"priced": 3},
)  # fmt: skip
EXAMPLES: list[c.Message] = [
    c.SetConfig("commit.interval", "1s", (c.Change("1s", "ana", 5),)),
    c.SetChangelog("Partition 0", 0),
    c.SetRun(
        "r1", "d1", "draining", "u", "q1", True, False, frozenset({"b", "a"}),
        (c.SeekRequest("q:0", "q", "orders", 0, ("time", 5)), c.SeekRequest("q:1", "q", "orders", 1, 7, 9)),
        {"orders": (0, 1)}, {"orders": (9, 9)}, {"x": 1}, {"stage:a": "h"}, ("r0",), ("d1",),
    ),
    c.SetProcessor("p1", "000007-3f", "proc", "rack", "joined", "d1", "", "http://x", 12, "0.1.0", {"stage:a": "h"}),
    c.SetMember("p1", "000007-3f", "rack", ""),
    c.SetLeader(3, "p1", "proc", "my_sales/1"),
    c.SetJobModel(MODEL),
    c.SetGrant("Partition 0", 4, "p1", "000007-3f", "rack"),
    c.SetFence("p1", "000006-aa"),
    c.SetTaskState("Partition 0", 4, "failed", "no such field", ("q:0",)),
    c.SetLetters("Partition 0", 4, (("in", 0, 5, 6, 0, 2, "", "tid"), ("", 0, 0, 0, -1, 1, "drain", ""))),
    c.SetLetters("Partition 0", 4, (("in", 0, 5, 6, 8, 1, "", "", 4),)),
    c.SetRequest("q1", "drain", "r1", {"a": [1, "b"]}, 99, "ana"),
    c.SetAnswer("q1", "running", "", {"run": "r1"}),
]  # fmt: skip
GOLDEN = {
    "set-config": (
        "9301aa7365742d636f6e666967af636f6d6d69742e696e74657276616c",
        "85a4686f7374a168a8757365726e616d65a175a6736f75726365a173a974696d657374616d7009a676616c75657382a57661"
        "6c7565a23173a76368616e6765739193a23173a3616e6105",
    ),
    "set-changelog": (
        "9301ad7365742d6368616e67656c6f67ab506172746974696f6e2030",
        "85a4686f7374a168a8757365726e616d65a175a6736f75726365a173a974696d657374616d7009a676616c75657381a97061"
        "72746974696f6e00",
    ),
    "set-run": (
        "9301a77365742d72756ea372756e",
        "85a4686f7374a168a8757365726e616d65a175a6736f75726365a173a974696d657374616d7009a676616c7565738fa67275"
        "6e5f6964a27231aa6465706c6f796d656e74a26431a57374617465a8647261696e696e67a86a6f625f75756964a175a56472"
        "61696ea27131a7636c6f73696e67c3aa7061757365645f6a6f62c2ae7061757365645f73747265616d7392a161a162a57365"
        "656b739296a3713a30a171a66f72646572730092a474696d6505c096a3713a31a171a66f7264657273010709a673746172747381"
        "a66f7264657273920001a6756e74696c7381a66f7264657273920909a873657474696e677381a17801ab66696e6765727072"
        "696e7481a773746167653a61a168a9706173745f72756e7391a27230b0706173745f6465706c6f796d656e747391a26431",
    ),
    "set-processor": (
        "9301ad7365742d70726f636573736f7292a27031a93030303030372d3366",
        "85a4686f7374a168a8757365726e616d65a175a6736f75726365a173a974696d657374616d7009a676616c75657389a77072"
        "6f63657373a470726f63a86c6f636174696f6ea47261636ba57374617465a66a6f696e6564aa6465706c6f796d656e74a264"
        "31a672756e5f6964a0a375726ca8687474703a2f2f78a37069640ca776657273696f6ea5302e312e30ab66696e6765727072"
        "696e7481a773746167653a61a168",
    ),
    "set-member": (
        "9301aa7365742d6d656d626572a27031",
        "85a4686f7374a168a8757365726e616d65a175a6736f75726365a173a974696d657374616d7009a676616c75657383ab696e"
        "6361726e6174696f6ea93030303030372d3366a86c6f636174696f6ea47261636ba96469736d6973736564a0",
    ),
    "set-leader": (
        "9301aa7365742d6c6561646572a66c6561646572",
        "85a4686f7374a168a8757365726e616d65a175a6736f75726365a173a974696d657374616d7009a676616c75657384a47465"
        "726d03a970726f636573736f72a27031a770726f63657373a470726f63a36a6f62aa6d795f73616c65732f31",
    ),
    "set-job-model": (
        "9301ad7365742d6a6f622d6d6f64656ca56d6f64656c",
        "85a4686f7374a168a8757365726e616d65a175a6736f75726365a173a974696d657374616d7009a676616c7565738aa474"
        "65726d02a776657273696f6e01a672756e5f6964a27231aa6465706c6f796d656e74a26431a773747265616d7391a66f72"
        "64657273a57461736b7381ab506172746974696f6e203091920000a677616e74656481ab506172746974696f6e2030a270"
        "31aa70726f636573736f727391a27031a970726f64756365727381aa62792d636f756e747279920191ab50617274697469"
        "6f6e2030a673686172656481a670726963656403",
    ),
    "set-grant": (
        "9301a97365742d6772616e74ab506172746974696f6e2030",
        "85a4686f7374a168a8757365726e616d65a175a6736f75726365a173a974696d657374616d7009a676616c75657384a56772"
        "616e7404a970726f636573736f72a27031ab696e6361726e6174696f6ea93030303030372d3366ad6c6173745f6c6f636174"
        "696f6ea47261636b",
    ),
    "set-fence": (
        "9301a97365742d66656e6365a27031",
        "85a4686f7374a168a8757365726e616d65a175a6736f75726365a173a974696d657374616d7009a676616c75657381ab696e"
        "6361726e6174696f6ea93030303030362d6161",
    ),
    "set-task-state": (
        "9301ae7365742d7461736b2d737461746592ab506172746974696f6e203004",
        "85a4686f7374a168a8757365726e616d65a175a6736f75726365a173a974696d657374616d7009a676616c75657383a57374"
        "617465a66661696c6564a3776879ad6e6f2073756368206669656c64a76170706c69656491a3713a30",
    ),
    "set-letters": (
        "9301ab7365742d6c65747465727392ab506172746974696f6e203004",
        "85a4686f7374a168a8757365726e616d65a175a6736f75726365a173a974696d657374616d7009a676616c75657381a56d61"
        "726b739298a2696e0005060002a0a374696498a0000000ff01a5647261696ea0",
    ),
    "set-request": (
        "9301ab7365742d72657175657374a27131",
        "85a4686f7374a168a8757365726e616d65a175a6736f75726365a173a974696d657374616d7009a676616c75657385a47665"
        "7262a5647261696ea672756e5f6964a27231a9617267756d656e747381a1619201a162a96e6f745f616674657263ac726571"
        "7565737465645f6279a3616e61",
    ),
    "set-answer": (
        "9301aa7365742d616e73776572a27131",
        "85a4686f7374a168a8757365726e616d65a175a6736f75726365a173a974696d657374616d7009a676616c75657383a57374"
        "617465a772756e6e696e67a3776879a0a870726f677265737381a372756ea27231",
    ),
}
STAMP = c.Stamp("h", "u", "s", 9)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: type(m).__name__)
def test_a_message_comes_back_as_it_was(message: c.Message):
    """Key and value, with the stamp."""
    entry = read(5, *encode(message, STAMP), 77)
    assert entry == c.Entry(5, c.key_of(message), message, 77, "", STAMP)
    assert encode_key(c.key_of(message)) == encode(message)[0]


def test_every_type_has_an_example():
    assert {type(message) for message in EXAMPLES} == set(c.KEYS)
    assert set(GOLDEN) == {kind for kind, _ in c.KEYS.values()}


@pytest.mark.parametrize("kind", sorted(GOLDEN))
def test_golden_bytes(kind: str):
    """These bytes stand in topics of running jobs: they are written so, and read so, for ever."""
    message = next(m for m in EXAMPLES if c.KEYS[type(m)][0] == kind)
    key, value = (bytes.fromhex(one) for one in GOLDEN[kind])
    assert encode(message, STAMP) == (key, value)
    assert read(0, key, value).message == message


def test_a_tombstone_deletes_its_key():
    key = c.key_of(c.SetRequest("q1", "drain"))
    assert read(3, encode_key(key), None) == c.Entry(3, key, None)


def _value(**values: Any) -> bytes:
    return msgpack.packb({"host": "", "username": "", "source": "", "timestamp": 0, "values": values})


GRANT = encode_key(("set-grant", ("t",)))
MODEL_VALUES = msgpack.unpackb(encode(c.SetJobModel(MODEL))[1])["values"]


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (None, b"", "no key"),
        (b"x" * 2000, b"", "oversized key"),
        (b"\xc1", b"", "corrupt key"),
        (msgpack.packb([1, "set-grant"]), b"", "corrupt key"),
        (msgpack.packb({"a": 1}), b"", "corrupt key"),
        (msgpack.packb([-1, "set-grant", "t"]), b"", "corrupt key"),
        (msgpack.packb([1, "set-grant", 5]), b"", "corrupt key"),
        (msgpack.packb([1, "set-processor", ["p1", "no incarnation"]]), b"", "corrupt key"),
        (msgpack.packb([1, "set-processor", ["p1"]]), b"", "corrupt key"),
        (msgpack.packb([1, "set-run", "other"]), b"", "canonical"),
        (bytes.fromhex("9301d9097365742d6772616e74a174"), b"", "canonical"),
        (msgpack.packb([2, "set-grant", "t"]), b"", "newer headgate"),
        (msgpack.packb([1, "set-thing", "t"]), b"", "unknown type"),
        (GRANT, b"x" * 1_000_001, "oversized value"),
        (GRANT, b"", "corrupt value"),
        (GRANT, b"\x80", "corrupt value"),
        (GRANT, _value(grant=1, processor="p1"), "corrupt value"),
        (GRANT, _value(grant="1", processor="p1", incarnation="000001-a"), "corrupt value"),
        (GRANT, _value(grant=True, processor="p1", incarnation="000001-a"), "corrupt value"),
        (GRANT, _value(grant=-1, processor="p1", incarnation="000001-a"), "corrupt value"),
        (encode_key(("set-run", ())), _value(run_id="r", deployment="d", state="running", job_uuid="u", closing=1), "corrupt"),
        (encode_key(("set-run", ())), _value(run_id="r", deployment="d", state="running", job_uuid="u", seeks=5), "corrupt"),
        (encode_key(("set-run", ())), _value(run_id="r", deployment="d", state="running", job_uuid="u", starts=5), "corrupt"),
        (encode_key(("set-run", ())), _value(run_id="r", deployment="d", state="running", job_uuid="u", closing=True), "closing"),
        (encode_key(("set-run", ())), _value(run_id="r", deployment="d", state="resting", job_uuid="u"), "is none of"),
        (encode_key(("set-run", ())), _value(run_id="r", deployment="d", state="draining", job_uuid="u"), "names the request"),
        (encode_key(("set-run", ())), _value(run_id="r", deployment="d", state="running", job_uuid="u", drain="q"), "not drain"),
        (encode_key(("set-run", ())), _value(run_id="r", deployment="d", state="running", job_uuid="u", settings={"x": b"y"}), "plain"),
        (encode_key(("set-config", ("x",))), _value(value=[1]), "not a value of a setting"),
        (encode_key(("set-config", ("x",))), _value(value="x" * 1001), "not a value of a setting"),
        (encode_key(("set-config", ("x",))), _value(value=float("nan")), "not a number"),
        (encode_key(("set-request", ("u",))), _value(verb="seek", arguments={"a": [{"b": float("inf")}]}), "not a number"),
        (GRANT, _value(grant=2**53, processor="p1", incarnation="000001-a"), "negative or too large"),
        (GRANT, _value(grant=1, processor="p1", incarnation="9007199254740992-a"), "negative or too large"),
        (encode_key(("set-job-model", ())), _value(term=1), "corrupt value"),
        (encode_key(("set-job-model", ())), _value(**(MODEL_VALUES | {"wanted": {}})), "places each of its tasks"),
        (encode_key(("set-job-model", ())), _value(**(MODEL_VALUES | {"processors": []})), "places each of its tasks"),
        (encode_key(("set-job-model", ())), _value(**(MODEL_VALUES | {"version": 2**60})), "negative or too large"),
        (GRANT, b"\x93" * 900_000, "corrupt value"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_a_problem_and_never_an_exception(key: bytes | None, value: bytes, why: str):
    entry = read(7, key, value)
    assert entry.message is None
    assert why in entry.problem
    assert entry.offset == 7


def test_a_problem_in_the_value_still_names_its_key():
    """For the last message of a key wins, also when it says nothing that can be read."""
    assert read(1, GRANT, b"?").key == ("set-grant", ("t",))


def test_unknown_fields_are_ignored_and_missing_ones_take_their_default():
    entry = read(0, GRANT, _value(grant=1, processor="p1", incarnation="000001-a", colour="red"))
    assert entry.message == c.SetGrant("t", 1, "p1", "000001-a")


def test_seeks_go_to_names_offsets_and_times():
    for to in ("oldest", 5, ("time", 9)):
        run = c.SetRun("r", "d", "running", "u", seeks=(c.SeekRequest("q:0", "q", "s", 0, to),))
        assert read(0, *encode(run)).message == run


@pytest.mark.parametrize("expected", [None, 0, NO_POSITION, -2])
def test_a_seek_expects_an_offset_or_that_there_is_none_yet(expected):
    run = c.SetRun("r", "d", "running", "u", seeks=(c.SeekRequest("q:0", "q", "s", 0, 5, expected),))
    assert read(0, *encode(run)).message == (None if expected == -2 else run)


def test_what_is_too_large_or_unsayable_is_refused_when_written():
    with pytest.raises(DataError, match="bytes of key"):
        encode(c.SetGrant("t" * 2000, 1, "p1", "000001-a"))
    with pytest.raises(DataError, match="cannot be written"):
        encode(c.SetRequest("u", "drain", arguments={"x": object()}))


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=60), st.one_of(st.none(), st.binary(max_size=60)))
def test_any_bytes_are_an_entry(key: bytes, value: bytes | None):
    assert read(0, key, value).offset == 0


_plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(sorted(c.KEYS.values())), _plain, _plain, st.data())
def test_any_plain_values_are_an_entry(kind: tuple[str, tuple[str, ...]], a: Any, b: Any, data: st.DataObject):
    """Well-formed msgpack of the wrong shape, under every type."""
    form = data.draw(st.dictionaries(st.sampled_from(["state", "term", "grant", "seeks", "values", "tasks"]), _plain))
    message = next(m for m in EXAMPLES if c.KEYS[type(m)] == kind)
    key = encode_key(c.key_of(message))
    assert (
        read(0, key, msgpack.packb({"values": form, "host": a if isinstance(a, str) else ""}, default=str)).offset == 0
    )
    assert read(0, msgpack.packb([1, kind[0], b], default=str), None).offset == 0


def test_a_run_behind_other_jobs_comes_back_as_it_was():
    """Fields that came later are written only where they say something, so older messages keep their bytes."""
    run = c.SetRun(
        "r2",
        "d1",
        "draining",
        "u",
        "q1",
        drain_upto={"clean": (7, 9)},
        reads={"clean": ("up/1",)},
        goes_on=True,
        reopens=True,
        overrides={"buffer.bytes": "1MiB"},
        unparks=(c.UnparkRequest("q:t:0", "q", "t", "skip", 7, 9), c.UnparkRequest("q:t:1", "q", "t", "release")),
    )
    assert read(0, *encode(run, STAMP)).message == run
    assert b"goes_on" not in encode(c.SetRun("r2", "d1", "running", "u"), STAMP)[1]
    assert b"unparks" not in encode(c.SetRun("r2", "d1", "running", "u"), STAMP)[1]
    other = replace(run, unparks=(c.UnparkRequest("q:t:0", "q", "t", "burn"),))
    assert "none of release, skip" in read(0, *encode(other, STAMP)).problem


def test_a_run_that_topics_have_joined_names_them_and_any_other_is_written_as_before():
    run = c.SetRun("r2", "d1", "running", "u", joined=("orders-it", "orders-be"), unjoined={"orders-wide": "too wide"})
    assert read(0, *encode(run, STAMP)).message == run
    run = c.SetRun("r2", "d1", "running", "u", ungrown={"orders": "no multiple"})
    assert read(0, *encode(run, STAMP)).message == run
    assert b"joined" not in encode(c.SetRun("r2", "d1", "running", "u"), STAMP)[1]


def test_a_task_that_releases_although_it_is_wanted_there_can_be_read():
    """The worker says so in the task's place. It could not be read, so the leader never saw it, and the worker wrote it again and again."""
    said = c.SetTaskState("Partition 0", 3, "releasing", "moved")
    assert read(0, *encode(said, STAMP)).message == said
