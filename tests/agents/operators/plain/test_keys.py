"""Keys of every type through the steps that work by key, in the test driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict
from uuid import UUID

import pytest

import headgate as hg
from headgate.agents.testing.driver import Driver

from ...forms import Form


class OfText(TypedDict):
    k: str


class OfNumber(TypedDict):
    k: int


class OfTruth(TypedDict):
    k: bool


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
    with Driver(app) as d:
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
    with Driver(app, partitions={"rates": 4}) as d:
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


LONG = hg.custom(
    lambda data: int.from_bytes(data, "big", signed=True), lambda n: n.to_bytes(8, "big", signed=True), name="java-long"
)
"""The keys of Java's LongSerializer."""


def test_a_join_of_keys_that_differ_in_their_bytes_is_refused_when_it_is_declared(app):
    """Equal keys would lie in different partitions, and no record would be wrong."""
    rates = app.input("rates", key_serde=LONG).table("rates")
    stream = app.input("in").repartition("id", name="by-id")
    with pytest.raises(hg.DeclarationError) as refused:
        stream.join(rates, into=lambda value, rate: (value, rate))
    assert "'job-1-by-id' (key) and 'rates' (java-long)" in refused.value.what
    assert "give repartition 'by-id' the key_serde= of 'rates'" in refused.value.remedy


def test_key_serde_of_a_repartition_says_the_bytes_that_another_client_has(app):
    """Then both lie in the same partition, and user code sees whole numbers on both sides."""
    rates = app.input("rates", key_serde=LONG).table("rates")
    app.input("in").repartition("id", name="by-id", key_serde=LONG).join(
        rates, into=lambda value, rate: {**value, "rate": rate["r"]}
    ).to("out")
    with Driver(app, partitions={"rates": 4}) as d:
        for n in range(20):
            d.send("rates", {"r": n * 10}, key=n)
        d.send_all("in", [{"id": n} for n in range(20)])
        assert sorted((int(one.key), one.value["rate"]) for one in d.read("out")) == [(n, n * 10) for n in range(20)]
        assert d.table("rates")[7] == {"r": 70}


def joined_by_its_field(app: hg.App, **of_input: Any) -> None:
    rates = app.input("rates", key="id", on_bad_data="dead_letter", **of_input).table("rates")
    stream = app.input("in").repartition("id", key_serde=of_input.get("key_serde"))
    stream.join(rates, into=lambda value, rate: {**value, "rate": rate["r"]}).to("out")


def test_a_key_of_another_client_that_is_no_text_must_be_declared_where_streams_meet(app):
    """Its producers may have written a text, or 8 bytes; each lies in another partition."""
    joined_by_its_field(app)
    with Driver(app) as d:
        d.send("rates", {"id": "DE", "r": 1})
        d.send("rates", {"id": 7, "r": 2})
        [letter] = d.dead_letters()
        assert "nothing says how the producers of 'rates' write their keys" in letter.exception
        assert "app.input('rates', key_serde=…)" in letter.exception
        d.send_all("in", [{"id": "DE"}, {"id": 7}])
        assert [one.value for one in d.read("out")] == [{"id": "DE", "rate": 1}]


def test_a_field_that_is_the_key_of_its_topic_meets_a_repartition_with_the_same_serde(app):
    """And a null value deletes the row of the key that the record has."""
    joined_by_its_field(app, key_serde=LONG)
    with Driver(app, partitions={"rates": 4}) as d:
        for n in range(20):
            d.send("rates", {"id": n, "r": n * 10})
        d.send("rates", None, key=3)
        d.send_all("in", [{"id": n} for n in range(20)])
        assert sorted(one.value["rate"] for one in d.read("out")) == [n * 10 for n in range(20) if n != 3]


@pytest.mark.parametrize("restart", [False, True])
def test_a_null_value_of_a_key_that_is_no_text_needs_the_serde_of_its_key(app, restart):
    """The row that it deletes would be another one, in silence. What the keys of the input are like is known after a restart, too."""
    app.input("rates", key="id", on_bad_data="dead_letter").table("rates")
    with Driver(app) as d:
        d.send("rates", {"id": 7, "r": 2})
        if restart:
            d.restart()
        d.send("rates", None, key=b"7")
        [letter] = d.dead_letters()
        assert "the key of a null value cannot be read" in letter.exception
        assert d.table("rates")[7] == {"id": 7, "r": 2}


def of_place(value: dict[str, Any]) -> tuple[str, int]:
    return value["k"], value["n"]


def is_even(value: dict[str, Any]) -> bool:
    return value["n"] % 2 == 0


@pytest.mark.parametrize(
    "declare",
    [
        lambda stream: stream.to("out", key=of_place),
        lambda stream: stream.to("out", key=is_even),
        lambda stream: stream.rekey(is_even).to("out"),
        lambda stream: stream.repartition(of_place, name="by-place").agg(n=hg.count()).to("out"),
        lambda stream: stream.repartition("k", key_serde=hg.key(bool)).map(str).to("out"),
        lambda stream: stream.app.input("in-2", key_serde=hg.key(tuple[str, int])).filter(bool).to("out"),
    ],
)
def test_an_output_of_booleans_or_tuples_is_refused_when_it_is_declared(app, declare):
    """Where a function or a serde says the type of the key."""
    with pytest.raises(hg.DeclarationError, match=r"to\('out'\): the key is (bool|tuple).*key_serde=: hg.json\(\)"):
        declare(app.input("in"))


def test_what_may_be_written_as_it_is_stays_allowed(app):
    """A key of another type in between, and an output that is told."""
    stream = app.input("in").repartition(of_place, name="by-place")
    stream.to("told", key_serde=hg.json())
    stream.rekey(lambda value: value["k"]).to("rekeyed")
    stream.map(lambda record: hg.Record("x", record.value), with_record=True).to("mapped")
    with Driver(app) as d:
        d.send("in", {"k": "DE", "n": 1})
        assert [d.read(topic)[0].key for topic in ("told", "rekeyed", "mapped")] == [["DE", 1], "DE", "x"]


def test_a_table_with_a_type_of_keys_takes_no_other(app):
    """`hg.key(int)`: a boolean is no number."""
    seen = app.table("seen", key=hg.key(int))
    keys = [1, True, "1"]

    def see(value: dict[str, int]) -> None:
        seen[keys[value["n"]]] = 1

    app.input("in", on_error="dead_letter").map(see).to("out")
    with Driver(app) as d:
        d.send_all("in", [{"n": n} for n in range(3)])
        assert list(d.table("seen")) == [1]
        assert [
            "is bool and not int" in d_.exception or "is str and not int" in d_.exception for d_ in d.dead_letters()
        ] == [
            True,
            True,
        ]


def test_windows_tell_keys_apart_and_give_results_in_the_order_of_their_bytes(app):
    """Text first, then numbers by value."""
    keys = ["b", 256, True, 1, "1", -1]
    app.input("in", timestamp="ts").repartition(lambda value: keys[value["n"]], name="by-key").window(
        hg.tumbling("10s")
    ).agg(n=hg.count()).to("out", key_serde=hg.key())
    with Driver(app) as d:
        d.send_all("in", [{"n": n, "ts": 1000} for n in range(len(keys))] * 2)
        d.end()
        found = [(one.key, one.value["n"]) for one in d.read("out")]
        assert list(map(repr, found)) == list(map(repr, [("1", 2), ("b", 2), (-1, 2), (1, 2), (256, 2), (True, 2)]))


@pytest.mark.parametrize("by", ["k", None])
@pytest.mark.parametrize("combines", [True, False])
def test_a_repartition_with_a_type_of_keys_takes_no_other(app, by, combines):
    """Whether the key is a field or the record's own."""
    stream = app.input("in", on_error="dead_letter").repartition(by, name="by-key", key_serde=hg.key(int))
    stream.agg(n=hg.count() if combines else hg.first("k")).to("out")
    with Driver(app) as d:
        d.send_all("in", [hg.Record("DE", {"k": "DE"}), hg.Record(7, {"k": 7})])
        assert [one.key for one in d.read("out")] == ["7"]
        assert "the key is str and not int" in d.dead_letters()[0].exception


FIELDS: dict[str, tuple[type, list[Any]]] = {
    "text": (OfText, ["", "1", "a", "a\x00", "b", "ü", "ÿ", "😀"]),
    "numbers": (OfNumber, [-(2**63), -300, -1, 0, 1, 255, 256, 70_000, 2**63 - 1]),
    "booleans": (OfTruth, [False, True]),
}
"""In the order of their bytes."""


@pytest.mark.parametrize("windowed", [True, False])
@pytest.mark.parametrize("combines", [True, False])
@pytest.mark.parametrize("name", FIELDS)
def test_fields_of_every_type_are_keys(app: hg.App, name: str, combines: bool, windowed: bool, form: Form) -> None:
    """In the same partition and with the same bytes whatever form asks; windows give results in the order of the bytes."""
    of, keys = FIELDS[name]
    more = {} if combines else {"last": hg.last("k")}
    shuffled = form.input(app, "in", of).repartition("k", name="by-key")
    kept = shuffled.window(hg.tumbling("10s"), name="counts") if windowed else shuffled
    kept.agg(n=hg.count(), **({} if windowed else {"name": "counts"}), **more).to("out", key_serde=hg.key())
    with Driver(app, partitions={"in": 2}) as d:
        for partition in (0, 1):
            d.send_all("in", [{"k": key} for key in keys[::-1]], partition=partition)
        homes = {task: sorted(map(repr, d.table("counts").task(task))) for task in d.tasks}
        d.drain()
        found = {repr(one.key): one.value["n"] for one in d.read("out")}
        assert found == {repr(key): 2 for key in keys}
    plain = hg.App("job")
    plain.input("in").repartition("k", name="by-key").agg(n=hg.count(), name="counts")
    with Driver(plain, partitions={"in": 2}) as d:
        d.send_all("in", [{"k": key} for key in keys])
        if not windowed:
            assert homes == {task: sorted(map(repr, d.table("counts").task(task))) for task in d.tasks}


@pytest.mark.parametrize("name", FIELDS)
def test_results_of_windows_are_in_the_order_of_their_keys(app: hg.App, name: str, form: Form) -> None:
    """By the bytes of the keys, which for numbers is by their value."""
    of, keys = FIELDS[name]
    windows = form.input(app, "in", of).repartition("k", name="by-key").window(hg.tumbling("10s"))
    windows.agg(n=hg.count()).to("out", key_serde=hg.key())
    with Driver(app) as d:
        d.send_all("in", [{"k": key} for key in keys[::-1]])
        d.drain()
        assert [one.key for one in d.read("out")] == keys


@pytest.mark.parametrize("combines", [True, False])
@pytest.mark.parametrize("name", FIELDS)
def test_a_field_of_another_type_than_the_keys(app: hg.App, name: str, combines: bool, form: Form) -> None:
    """`key_serde=hg.key(int)` takes no text and no booleans; each is bad data of its record, or refused when it is declared."""
    of, keys = FIELDS[name]
    stream = form.input(app, "in", of, on_error="dead_letter").repartition("k", name="by-key", key_serde=hg.key(int))
    stream.agg(n=hg.count() if combines else hg.last("k"), name="counts")
    with Driver(app) as d:
        d.send_all("in", [{"k": key} for key in keys])
        assert len(d.table("counts")) == (len(keys) if name == "numbers" else 0)
        assert len(d.dead_letters()) == (0 if name == "numbers" else len(keys))
