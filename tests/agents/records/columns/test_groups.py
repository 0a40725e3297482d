"""Aggregates by key in columns: the compiled part and Python hold the same states, bit for bit."""

from __future__ import annotations

import random
import struct
import threading
from array import array

import pytest

from headgate.agents.records.columns.groups import KeyTable, StateColumns, null_among, numbers_in
from headgate.agents.records.layout import longs
from headgate.agents.records.memory.record_spans import RecordSpans, packed
from headgate.agents.records.memory.vectors import Vector
from headgate.agents.records.native import chosen
from headgate.agents.records.values import keys

from ..memory_kept import keeps_nothing
from ..mutations import spans

needs_compiler = pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")
CELLS = ["rows", "values", "sum", "sum", "sum", "min", "max", "min", "max", "total", "total"]
KINDS = ["int64", "int64", "int64", "float64", "number", "int64", "float64", "number", "number", "float64", "number"]
"""The types of the columns that are added to these cells."""
MOST = 2**63 - 1


@pytest.fixture(params=[pytest.param(True, marks=needs_compiler), False], ids=["compiled", "plain"])
def way(request, monkeypatch):
    """Each test runs with both."""
    if not request.param:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)


def plainly(make):
    """What `make` makes without the compiled part."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chosen, "part", chosen.PLAIN)
        return make()


def q(*numbers):
    return array("q", numbers)


def listed(buffer):
    return longs(buffer).tolist()


def shown(value):
    """A state, with every bit of a float."""
    return struct.pack("<d", value) if isinstance(value, float) else value


def states_of(table, numbers):
    vectors, times = table.take(numbers)
    assert all(one.nulls == one.values().count(None) for one in vectors)
    return [list(map(shown, one.values())) for one in vectors], listed(times)


def bytes_of(found):
    buffer = bytes(found.buffer)
    return [buffer[at : at + size] for at, size in zip(listed(found.offsets), listed(found.lengths), strict=True)]


WHOLE = [
    0,
    1,
    -1,
    255,
    256,
    -255,
    -256,
    2**40,
    -(2**40),
    2**63 - 1,
    -(2**63),
    *(1 << n for n in range(63)),
    *(-(1 << n) - 1 for n in range(62)),
]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("text", ["", "a", "Zürich", "x" * 40, "12345678", "123456789", None, "a"]),
        ("int64", [*WHOLE, None]),
        ("bool", [True, False, None, True]),
    ],
)
def test_keys_have_the_bytes_that_they_have_elsewhere(kind, values):
    """So state, log, partition and frame agree with row pipelines; numbers come in the order of the keys."""
    table = KeyTable()
    numbers = listed(table.numbers(Vector.of(kind, values)))
    order = list(dict.fromkeys(value for value in values if value is not None))
    assert numbers == [-1 if value is None else order.index(value) for value in values]
    assert bytes_of(table.keys(q(*range(len(table))))[0]) == [keys.encode(value) for value in order]
    encoded = spans([None if value is None else keys.encode(value) for value in values])
    assert listed(table.numbers_of(RecordSpans(*encoded))) == numbers
    assert len(table) == len(order)


@pytest.mark.usefixtures("way")
def test_many_keys_keep_their_numbers():
    """While the table grows; rows may be chosen; the rest is forgotten when only some are retained."""
    table, texts = KeyTable(), [f"user-{n}" for n in range(20_000)]
    vector = Vector.of("text", texts)
    assert listed(table.numbers(vector)) == list(range(20_000))
    assert listed(table.numbers(vector, q(7, 19_999, 7))) == [7, 19_999, 7]
    few = q(19_000, 3, 7)
    table.retain(few)
    assert (len(table), bytes_of(table.keys(q(0, 1, 2))[0])) == (3, [b"user-19000", b"user-3", b"user-7"])
    assert listed(table.numbers(Vector.of("text", ["user-7", "user-4", "user-3"]))) == [2, 3, 1]
    assert table.memory() > 0


@pytest.mark.usefixtures("way")
def test_what_does_not_fit_is_refused():
    """Before anything is added."""
    table, sums, one = KeyTable(), StateColumns(["sum"]), Vector.of("int64", [5])
    table.numbers(one)
    for refused in (
        lambda: table.numbers(Vector.of("float64", [1.0])),
        lambda: table.numbers(one, q(1)),
        lambda: table.numbers_of(RecordSpans(b"abc", q(2), q(2))),
        lambda: table.numbers_of(RecordSpans(b"abc", q(0), q(-2))),
        lambda: table.numbers_of(RecordSpans(b"abc", q(0), q(1, 1))),
        lambda: table.keys(q(1)),
        lambda: table.keys(q(-1)),
        lambda: table.retain(q(0, 0)),
        lambda: table.retain(q(5)),
        lambda: sums.add(1, q(1), [one]),
        lambda: sums.add(1, q(-1), [one]),
        lambda: sums.add(1, q(0, 0), [one]),
        lambda: sums.add(1, q(0), [one], rows=q(1)),
        lambda: sums.add(1, q(0), [one], times=q()),
        lambda: sums.add(1, q(0), [Vector.of("text", ["a"])]),
        lambda: StateColumns(["rows"]).merge(1, q(0), [Vector.of("float64", [1.0])]),
        lambda: sums.add(1, q(0), []),
        lambda: sums.take(q(0)),
        lambda: StateColumns(["text"]),
    ):
        with pytest.raises(ValueError):
            refused()
    with pytest.raises(TypeError):
        sums.add(1, q(0), [None])
    assert (len(table), listed(sums.dirty())) == (1, [])


@pytest.mark.usefixtures("way")
def test_a_whole_number_never_wraps():
    """The row that would take it beyond 64 bits is named, and left out of every cell; the others are added."""
    sums = StateColumns(["rows", "sum"])
    vector = Vector.of("int64", [MOST, 1, -1, 1, 1, None, -(2**63)])
    numbers = q(0, 0, 0, 0, 0, 0, 1)
    wanted = [1, 4]
    assert sums.overflows(2, numbers, [None, vector]) == wanted
    assert listed(sums.dirty()) == []
    assert sums.add(2, numbers, [None, vector]) == wanted
    assert states_of(sums, q(0, 1))[0] == [[4, 1], [MOST, -(2**63)]]
    assert sums.add(2, q(1), [None, Vector.of("int64", [-1])]) == [0]
    assert sums.merge_overflows(2, q(0, 1), [Vector.of("int64", [MOST, 1])] * 2) == [0]
    assert sums.merge(2, q(0, 1), [Vector.of("int64", [MOST, 1])] * 2) == [0]
    assert states_of(sums, q(0, 1))[0] == [[4, 2], [MOST, 1 - 2**63]]


@pytest.mark.usefixtures("way")
def test_nulls_and_signs_are_kept():
    """A sum of nothing is null, a mean counts values alone, and a negative zero stays one."""
    sums = StateColumns(CELLS[:4])
    whole = Vector.of("int64", [None, None, 0, None])
    sums.add(2, q(0, 0, 1, 1), [None, whole, whole, Vector.of("float64", [None, None, -0.0, None])])
    assert states_of(sums, q(0, 1))[0] == [[2, 2], [0, 1], [None, 0], [None, struct.pack("<d", -0.0)]]
    assert list(map(shown, numbers_in([1, -0.0]).values())) == [1, struct.pack("<d", -0.0)]


@pytest.mark.usefixtures("way")
def test_a_count_never_wraps():
    """Nor does one that partial states have brought to the limit; the row is left out of the other cells, too."""
    sums, full = StateColumns(["rows", "values"]), Vector.of("int64", [MOST - 1])
    sums.merge(2, q(0), [full, full])
    columns_ = [None, Vector.of("text", ["a", None, "b", "c"])]
    assert sums.overflows(2, q(0, 0, 0, 1), columns_) == [1, 2]
    assert sums.add(2, q(0, 0, 0, 1), columns_) == [1, 2]
    assert states_of(sums, q(0, 1))[0] == [[MOST, 1], [MOST, 1]]


@pytest.mark.usefixtures("way")
def test_a_call_that_is_refused_adds_no_key():
    """However late among its keys it finds out."""
    table, parts = KeyTable(), packed([b"%d" % n for n in range(99)] + [b"12345"])
    table.numbers_listed(["first"])
    short = RecordSpans(bytes(parts.buffer)[:-1], parts.offsets, parts.lengths)
    with pytest.raises(ValueError, match="outside"):
        table.numbers_of(short)
    with pytest.raises((TypeError, UnicodeEncodeError)):
        table.numbers_listed([*"abcdefghijklmnopqrstuvwxyz0123456789", "\ud800"])
    assert (len(table), listed(table.numbers_listed(["b", "first"]))) == (1, [1, 0])


@pytest.mark.usefixtures("way")
def test_a_commit_takes_what_has_changed():
    """In the order in which it changed, with the greatest time since the last commit; what is put is not changed."""
    sums = StateColumns(["rows"])
    sums.put(3, q(2), [Vector.of("int64", [9])])
    assert listed(sums.dirty()) == []
    sums.add(3, q(2, 0, 2), [None], times=q(5, -7, 3))
    assert (listed(sums.dirty()), states_of(sums, sums.dirty())) == ([2, 0], ([[11, 1]], [5, -7]))
    sums.settle()
    sums.add(3, q(2), [None], rows=q(1), times=q(9, 1))
    assert (listed(sums.dirty()), states_of(sums, q(2))) == ([2], ([[12]], [1]))
    sums.retain(q(1, 2))
    assert (listed(sums.dirty()), states_of(sums, q(0, 1))) == ([1], ([[0, 12]], [0, 1]))
    assert sums.memory() > 0


@pytest.mark.usefixtures("way")
def test_a_state_is_durable_when_its_write_does_not_wait():
    """One that was loaded is as old as what was stored then; one without a stored row never is; a key that is not known has no number."""
    keys, sums = KeyTable(), StateColumns(["rows"])
    numbers = keys.numbers_listed([b"a", b"b", b"c"])
    assert listed(keys.found([b"c", b"x", b"a"])) == [2, -1, 0]
    sums.add(3, q(0, 1), [None], times=q(1, 1))

    def durable(newest, waiting):
        return [listed(one) for one in sums.durable(keys.found([b"x", b"c", b"b", b"a"]), newest, waiting)]

    sums.add(3, q(), [None])
    assert durable(9, 1) == [[], []]
    sums.settle(7)
    assert (durable(7, 1), durable(8, 2), durable(8, 1)) == ([[], []], [[], []], [[2, 3], [1, 0]])
    sums.add(3, q(1), [None], times=q(1))
    sums.loaded(q(2), 0)
    assert durable(8, 1) == [[1, 3], [2, 0]]
    sums.retain(q(2, 0))
    assert listed(sums.durable(q(0, 1, 5, -1), 8, 2)[0]) == [0]
    with pytest.raises(ValueError, match="no such key"):
        sums.loaded(q(2), 0)
    assert len(listed(numbers)) == 3


@pytest.mark.usefixtures("way")
def test_a_state_is_a_whole_number_until_a_float_comes():
    """As Python adds and compares them: the result has the type and every bit of its."""
    border = [
        2**53 + 1,
        float(2**53),
        2**63 - 1,
        2.0**63,
        -(2**63),
        -(2.0**63),
        0,
        -0.0,
        0.5,
        -0.5,
        1,
        1.0,
        3,
        2.5,
        -3,
        -2.5,
    ]
    pairs = [(a, b) for a in border for b in border if type(a) is not type(b)]
    for first, second in pairs:
        found = StateColumns(["sum", "min", "max"])
        for one in (first, second):
            found.add(1, q(0), [numbers_in([one])] * 3)
        wanted = [first + second, second if second < first else first, second if second > first else first]
        assert [one.values() for one in found.take(q(0))[0]] == [[one] for one in wanted]
        assert [type(one.values()[0]) for one in found.take(q(0))[0]] == list(map(type, wanted)), (first, second)


@pytest.mark.usefixtures("way")
def test_numbers_in_a_list():
    """Ints of 64 bits, floats and nulls; anything else is no column of numbers."""
    for values in ([], [1, None], [1.5, -0.0], [2**63 - 1, 0.5, None, -(2**63)], [None]):
        found = numbers_in(values)
        assert [shown(one) for one in found.values()] == [shown(one) for one in values]
        assert found.nulls == values.count(None)
        assert null_among(found, None) == (values.index(None) if None in values else None)
        assert null_among(found, q(0)) == (0 if values == [None] else None) if values else True
    for values in ([True], ["1"], [2**63], [-(2**63) - 1], [b""]):
        assert numbers_in(values) is None


@pytest.mark.usefixtures("way")
def test_keys_in_a_list_and_behind_a_prefix():
    """The same keys as in a column; log and store share their bytes."""
    table = KeyTable()
    table.numbers(Vector.of("text", ["b", "ü"]))
    assert listed(table.numbers_listed(["ü", b"b", None, "c"])) == [1, 0, -1, 2]
    plain, prefixed = table.keys(q(1, 2), b"\x02t")
    assert bytes_of(plain) == ["ü".encode(), b"c"]
    assert bytes_of(prefixed) == [b"\x02t" + "ü".encode(), b"\x02tc"]
    with pytest.raises(TypeError):
        table.numbers_listed([7])
    assert listed(table.numbers_of(RecordSpans(b"abc", q(0, 1, 2), q(1, -1, 1)), q(2, 1))) == [2, -1]
    with pytest.raises(UnicodeEncodeError):
        table.numbers_listed(["\ud800"])


@pytest.mark.usefixtures("way")
def test_states_that_are_put_with_their_times_are_changed():
    """As if rows had made them so."""
    sums = StateColumns(["sum"])
    sums.put(2, q(1, 0), [numbers_in([7, 2.5])], times=q(3, 9))
    sums.put(2, q(1), [numbers_in([8])], times=q(1))
    assert (listed(sums.dirty()), states_of(sums, q(0, 1))) == ([1, 0], ([[shown(2.5), 8]], [9, 3]))


def column(chance, kind, count):
    """A column as it may come: few nulls or none, sometimes numbers at the border."""
    nulls = chance.choice((0, 0, 0.2))
    if kind == "number":
        wide = chance.choice((10, 2**62))
        values = [
            chance.choice((chance.randrange(-wide, wide), chance.uniform(-10, 10), 2.0 ** chance.randrange(70), -0.0))
            for _ in range(count)
        ]
    elif kind == "float64":
        values = [
            chance.choice((chance.uniform(-1e6, 1e6), chance.uniform(-1, 1) * 10 ** chance.randrange(-300, 300)))
            for _ in range(count)
        ]
    else:
        wide = chance.choice((10, 1000, 2**62))
        values = [chance.randrange(-wide, wide) for _ in range(count)]
    return Vector.of(kind, [None if chance.random() < nulls else one for one in values])


@needs_compiler
@pytest.mark.parametrize("seed", range(8))
def test_both_hold_the_same(seed):
    """Through everything that may happen to a task's states, in any order."""
    chance = random.Random(seed)
    tables, sums = (KeyTable(), plainly(KeyTable)), (StateColumns(CELLS), plainly(lambda: StateColumns(CELLS)))
    for write in range(120):
        count, act = chance.randrange(40), chance.randrange(12)
        texts = Vector.of("text", [f"k{chance.randrange(60)}" for _ in range(count)])
        rows = (
            q(*(chance.randrange(count) for _ in range(chance.randrange(9))))
            if count and chance.random() < 0.4
            else None
        )
        first, second = (listed(table.numbers(texts, rows)) for table in tables)
        assert (first, len(tables[0])) == (second, len(tables[1]))
        size, numbers = len(tables[0]), q(*first)
        vectors = [column(chance, kind, count) for kind in KINDS]
        times = q(*(chance.randrange(-5, 1000) for _ in range(count)))
        if act < 8:
            args = (size, numbers, [None, *vectors[1:]])
            found = [(one.overflows(*args, rows=rows), one.add(*args, rows=rows, times=times)) for one in sums]
            assert found[0] == found[1]
            assert found[0][0] == found[0][1]
        elif act == 8 and rows is None:
            states = [
                Vector.of(k, [abs(one or 0) for one in v.values()]) if n < 2 else v
                for n, (k, v) in enumerate(zip(KINDS, vectors, strict=True))
            ]
            found = [
                (one.merge_overflows(size, numbers, states), one.merge(size, numbers, states, times=times))
                for one in sums
            ]
            assert found[0] == found[1]
        elif act == 9 and rows is None:
            for one in sums:
                one.put(size, numbers, vectors)
                one.loaded(numbers, max(0, write - 3))
        elif act == 10:
            assert sorted(listed(sums[0].dirty())) == sorted(listed(sums[1].dirty()))
            for one in sums:
                one.settle(write)
        else:
            for one in sums:
                one.add(size, q(), [None] + [Vector.of(kind, []) for kind in KINDS[1:]])
            kept = q(*chance.sample(range(size), chance.randrange(size + 1)))
            for one in (*tables, *sums):
                one.retain(kept)
        for one in sums:
            one.add(len(tables[0]), q(), [None] + [Vector.of(kind, []) for kind in KINDS[1:]])
        every = q(*range(len(tables[0])))
        assert states_of(sums[0], every) == states_of(sums[1], every)
        assert bytes_of(tables[0].keys(every)[0]) == bytes_of(tables[1].keys(every)[0])
        assert sorted(listed(sums[0].dirty())) == sorted(listed(sums[1].dirty()))
        some = [b"k%d" % chance.randrange(90) for _ in range(chance.randrange(9))]
        known, waiting = [one.found(some) for one in tables], chance.randrange(9)
        assert listed(known[0]) == listed(known[1])
        durable = [one.durable(known[0], write, waiting) for one in sums]
        assert [listed(one) for one in durable[0]] == [listed(one) for one in durable[1]]


@needs_compiler
def test_a_key_takes_little_memory():
    """A count and a sum of 300,000 keys."""
    table, sums, count = KeyTable(), StateColumns(["rows", "sum"]), 300_000
    for first in range(0, count, 10_000):
        numbers = table.numbers(Vector.of("text", [f"u{n:06d}" for n in range(first, first + 10_000)]))
        sums.add(len(table), numbers, [None, Vector.of("float64", [1.0] * 10_000)])
    assert (table.memory() + sums.memory()) / count <= 80


@needs_compiler
def test_two_threads_cannot_use_one_table():
    """The second one is told, and nothing is damaged."""
    table, told, vector = KeyTable(), [], Vector.of("text", [f"u{n}" for n in range(50_000)])

    def work():
        for _ in range(30):
            try:
                table.numbers(vector)
            except RuntimeError as error:
                told.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(told) <= {"another thread is using this table"}
    assert listed(table.numbers(vector)) == list(range(50_000))


@needs_compiler
def test_tables_keep_no_memory():
    """Thousands of calls, also refused ones."""
    texts, numbers = Vector.of("text", [f"u{n % 50}" for n in range(100)]), q(*(n % 50 for n in range(100)))
    vectors = [None, *(Vector.of(kind, [MOST // 60 if kind == "int64" else 1.5] * 100) for kind in KINDS[1:])]

    def work():
        for _ in range(300):
            table, sums = KeyTable(), StateColumns(CELLS)
            table.numbers(texts)
            for _ in range(3):
                sums.add(50, numbers, vectors)
                sums.overflows(50, numbers, vectors)
                sums.take(sums.dirty())
            with pytest.raises(ValueError):
                sums.add(49, numbers, vectors)
            with pytest.raises(ValueError):
                table.numbers(texts, q(100))
            for one in (table, sums):
                one.retain(q(4, 2))
            table.keys(q(0, 1))

    keeps_nothing(work)
