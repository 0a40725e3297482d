"""Keys of every type through the steps that work by key, in the test driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

import headgate as hg
from headgate.agents.testing.driver import Driver

ID = UUID("12345678-1234-5678-1234-567812345678")
KEYS = ["1", 1, True, b"1", ID, ("DE", 1), (("DE", True), b"1")]
"""Python finds 1 and True equal; they are two keys."""


def field() -> Callable[[dict[str, int]], Any]:
    """The key of a value: JSON has no UUIDs, so values hold the place of their key in KEYS."""
    return lambda value: KEYS[value["n"]]


def in_order(found: Any) -> list[tuple[str, Any]]:
    """Rows of a table; a dict would merge them."""
    return sorted((repr(key), found[key]) for key in found)


TWICE = sorted((repr(key), 2) for key in KEYS)


@pytest.fixture
def app() -> hg.App:
    return hg.App("job")


def driven(app: hg.App, values: int = len(KEYS)) -> Driver:
    """Each key twice, some in the same chunk, over several partitions."""
    driver = Driver(app, partitions={"in": 2})
    driver.send_all("in", [{"n": n} for n in range(values)], partition=0)
    driver.send_all("in", [{"n": n} for n in range(values)], partition=1)
    return driver


@pytest.mark.parametrize("combines", [True, False])
def test_every_type_of_key_is_grouped_by_its_bytes(app, combines):
    """Through a shuffle, with partial states and without: 1, True, "1" and b"1" are four keys."""
    more = {} if combines else {"seen": hg.collect("n")}
    app.input("in").repartition(field(), name="by-key").agg(name="counts", n=hg.count(), **more)
    with driven(app) as d:
        found = d.table("counts")
        assert [(key, row["n"]) for key, row in in_order(found)] == TWICE
        assert [found[key]["n"] for key in KEYS] == [2] * len(KEYS)


def test_outputs_have_keys_as_other_programs_write_them(app):
    """Text and bytes as they are, whole numbers and UUIDs as text; before and behind a shuffle."""
    some = ["1", 1, b"\xff", ID]
    stream = app.input("in")
    stream.to("direct", key=lambda value: some[value["n"]])
    stream.rekey(lambda value: some[value["n"]]).to("rekeyed")
    stream.repartition(lambda value: some[value["n"]], name="by-key").to("shuffled")
    with driven(app, 4) as d:
        for topic in ("direct", "rekeyed", "shuffled"):
            assert sorted(map(repr, {one.key for one in d.read(topic)})) == sorted(map(repr, ["1", b"\xff", str(ID)]))


@pytest.mark.parametrize("key", [True, ("DE", 1)])
@pytest.mark.parametrize("how", ["direct", "shuffled"])
def test_an_output_wants_to_be_told_how_booleans_and_tuples_look(app, key, how):
    """There is no one way that other programs would write them."""
    stream = app.input("in")
    if how == "shuffled":
        stream.repartition(lambda _: key, name="by-key").to("out")
    else:
        stream.to("out", key=lambda _: key)
    with pytest.raises(hg.UserCodeError, match=r"to \(.*the key is (bool|tuple).*key_serde=: hg.json\(\)"):
        driven(app, 1)


def test_key_serde_says_how_an_output_has_any_key(app):
    """As JSON, or as headgate's own topics have them."""
    stream = app.input("in").repartition(lambda value: (value["n"], "DE"), name="by-key")
    stream.to("json", key_serde=hg.json())
    stream.to("own", key_serde=hg.key())
    with driven(app, 1) as d:
        assert d.read("json")[0].key == [0, "DE"]
        assert d.read("own")[0].key == (0, "DE")


def test_user_code_sees_keys_as_they_were(app):
    """Of the same type, behind a shuffle and behind an aggregate."""
    found: list[Any] = []

    def see(record: hg.Record[Any, Any]) -> Any:
        found.append(record.key)
        return record.value

    shuffled = app.input("in").repartition(field(), name="by-key")
    shuffled.map(see, with_record=True).to("out", key=lambda _: "x")
    app.input("in-2").repartition(field(), name="by-other").agg(name="counts", n=hg.count()).map(
        see, with_record=True
    ).to("out-2", key=lambda _: "x")
    with Driver(app, partitions={"in": 2}) as d:
        d.send_all("in", [{"n": n} for n in range(len(KEYS))])
        assert sorted(map(repr, found)) == sorted(map(repr, KEYS))
        found.clear()
        d.send_all("in-2", [{"n": n} for n in range(len(KEYS))])
        assert sorted(map(repr, found)) == sorted(map(repr, KEYS))


@pytest.mark.parametrize("key", [None, 1.0, [1], {"a": 1}, 2**64, ("a", None)])
def test_what_is_no_key_is_bad_data_of_its_record(app, key):
    """The policy of the step decides; the other records of the chunk go on."""
    keys = ["a", key, "b"]
    app.input("in").repartition(lambda value: keys[value["n"]], name="by-key", on_error="dead_letter").agg(
        n=hg.count()
    ).to("out")
    with Driver(app) as d:
        d.send_all("in", [{"n": n} for n in range(3)])
        assert sorted(one.key for one in d.read("out")) == ["a", "b"]
        [letter] = d.dead_letters()
        assert (letter.offset, letter.step) == (1, "by-key")
        assert "the key" in letter.exception


def test_a_table_of_user_code_tells_keys_apart(app):
    """As a dict it would hold True under 1, and the store would have to guess which it was."""
    seen = app.table("seen")

    def count(value: dict[str, int]) -> None:
        key = KEYS[value["n"]]
        seen[key] = seen.get(key, 0) + 1

    app.input("in").map(count).to("out")
    with Driver(app) as d:
        d.send_all("in", [{"n": n} for n in range(len(KEYS))] * 2)
        assert in_order(d.table("seen")) == TWICE
        d.restart()
        d.send("in", {"n": 1})
        assert d.table("seen")[1] == 3
        assert d.table("seen")[True] == 2


def test_tables_of_streams_and_joins_tell_keys_apart(app):
    """A row of 1 is not the row of True, and a null deletes one of them."""
    key = field()
    rates = app.input("rates").repartition(key, name="by-n").table("rates")
    app.input("in").repartition(key, name="by-key").join(
        rates, into=lambda value, rate: {**value, "rate": rate["n"]}
    ).to("out", key=lambda _: "x")
    with Driver(app, partitions={"job-1-by-n": 3, "job-1-by-key": 3}) as d:
        d.send_all("rates", [{"n": n} for n in range(len(KEYS))])
        d.send_all("in", [{"n": n} for n in range(len(KEYS))])
        found = [one.value for one in d.read("out")]
        assert sorted((value["n"], value["rate"]) for value in found) == [(n, n) for n in range(len(KEYS))]


def test_ranges_of_a_table_are_in_the_order_of_its_keys(app):
    """Whole numbers by value, negative ones first."""
    seen = app.table("seen")
    app.input("in").map(lambda value: seen.update({value["n"]: 1})).to("out")
    with Driver(app) as d:
        d.send_all("in", [{"n": n} for n in (256, -1, 3, 70_000, -300)])
        assert list(d.table("seen")) == [-300, -1, 3, 256, 70_000]


def test_an_input_with_text_keys_and_a_shuffle_by_text_meet(app):
    """The key of an input is text on its topic and in ours: a join finds it in the same task."""
    rates = app.input("rates").table("rates")
    app.input("in").repartition("k", name="by-key").join(
        rates, into=lambda value, rate: {**value, "rate": rate["r"]}
    ).to("out")
    names = [f"k{n}" for n in range(20)]
    with Driver(app, partitions={"rates": 4, "job-1-by-key": 4}) as d:
        for n, name in enumerate(names):
            d.send("rates", {"r": n}, key=name)
        d.send_all("in", [{"k": name} for name in names])
        assert sorted((one.key, one.value["rate"]) for one in d.read("out")) == sorted(
            (name, n) for n, name in enumerate(names)
        )


def test_keys_that_nobody_reads_pass_as_they_are(app):
    """Bytes of another client are no fault of a job that only passes them on; where a step needs them they are."""
    alien = b"\xff\x80\x00"
    app.input("in").filter(bool).to("out")
    app.input("looks", on_bad_data="dead_letter").map(lambda record: record.value, with_record=True).to("out-2")
    app.input("counts", on_bad_data="dead_letter").agg(n=hg.count()).to("out-3")
    with Driver(app) as d:
        d.send("in", {"n": 1}, key=alien)
        assert [one.key for one in d.read("out")] == [alien]
        for topic in ("looks", "counts"):
            d.send(topic, {"n": 1}, key=alien)
            [letter] = d.dead_letters()
            assert (letter.topic, letter.key) == (topic, alien)
            assert "the key cannot be read (ff 80 00)" in letter.exception
            assert "key_serde=" in letter.exception
