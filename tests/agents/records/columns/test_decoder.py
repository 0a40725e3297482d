"""JSON records as columns: both decoders find what orjson finds, and leave out bad records alone."""

from __future__ import annotations

import gc
import random
import threading
from array import array

import orjson
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.agents.records.columns.decoder import BadSpan, Decoder, RecordFlaw
from headgate.agents.records.layout import longs
from headgate.agents.records.native import chosen
from headgate.core.columns.schema import ColumnSpec

from ..memory_kept import keeps_nothing
from ..mutations import COLUMNS, outcome, some, spans

needs_compiler = pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")


@pytest.fixture(params=[pytest.param(True, marks=needs_compiler), False], ids=["compiled", "plain"])
def way(request, monkeypatch):
    """Each test runs with both decoders."""
    if not request.param:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)


def plainly(declared, **more):
    """A decoder without the compiled part."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chosen, "part", chosen.PLAIN)
        return Decoder(declared, **more)


def verdict(record, kind="int64", optional=False):
    """What becomes of the column "v" of one record: ("fine", value), or (flaw, column)."""
    found = Decoder([ColumnSpec("v", kind, optional)]).decode(*spans([record]))
    if found.bad:
        assert len(found.columns) == 0
        return found.bad[0][1:]
    return "fine", found.columns.rows()[0]["v"]


N, O, M, Z, W, R = RecordFlaw  # noqa: E741
VERDICTS = [
    (b'{"v":7}', "int64", ("fine", 7)),
    (b'{"v":-0}', "int64", ("fine", 0)),
    (b'{"v":9223372036854775807}', "int64", ("fine", 2**63 - 1)),
    (b'{"v":-9223372036854775808}', "int64", ("fine", -(2**63))),
    (b'{"v":9223372036854775808}', "int64", (R, "v")),
    (b'{"v":-9223372036854775809}', "int64", (R, "v")),
    (b'{"v":18446744073709551616}', "int64", (R, "v")),
    (b'{"v":1e300}', "int64", (R, "v")),
    (b'{"v":1.5}', "int64", (W, "v")),
    (b'{"v":1.0}', "int64", (W, "v")),
    (b'{"v":1e3}', "int64", (W, "v")),
    (b'{"v":"1"}', "int64", (W, "v")),
    (b'{"v":true}', "int64", (W, "v")),
    (b'{"v":[1]}', "int64", (W, "v")),
    (b'{"v":1}', "float64", ("fine", 1.0)),
    (b'{"v":18446744073709551616}', "float64", ("fine", 2.0**64)),
    (b'{"v":0.1000000000000000055511151231257827021181583404541015625}', "float64", ("fine", 0.1)),
    (b'{"v":2.2250738585072011e-308}', "float64", ("fine", 2.2250738585072011e-308)),
    (b'{"v":1e-400}', "float64", ("fine", 0.0)),
    (b'{"v":0.' + b"0" * 400 + b'1e401}', "float64", ("fine", 1.0)),
    (b'{"v":1' + b"0" * 400 + b'e-400}', "float64", ("fine", 1.0)),
    (b'{"v":9007199254740993.00000000000000000000000000000001}', "float64", ("fine", 9007199254740994.0)),
    (b'{"v":1e400}', "float64", (N, None)),
    (b'{"w":1e400,"v":1}', "float64", (N, None)),
    (b'{"w":[' + b"9" * 310 + b'],"v":1}', "float64", (N, None)),
    (b'{"v":"1"}', "float64", (W, "v")),
    (b'{"v":NaN}', "float64", (N, None)),
    (b'{"v":false}', "bool", ("fine", False)),
    (b'{"v":0}', "bool", (W, "v")),
    (b'{"v":tru}', "bool", (N, None)),
    (b'{"v":"a\\u00e9\\ud83d\\ude00\\n\\/"}', "text", ("fine", "aé😀\n/")),
    ('{"v":"Zürich 😀, and a text beyond 16 bytes"}'.encode(), "text", ("fine", "Zürich 😀, and a text beyond 16 bytes")),
    (b'{"v":"\\ud83d"}', "text", (N, None)),
    (b'{"w":"\\ude00","v":""}', "text", (N, None)),
    (b'{"v":"\xed\xa0\x80"}', "text", (N, None)),
    (b'{"v":"\xc0\x80"}', "text", (N, None)),
    (b'{"v":"a\nb"}', "text", (N, None)),
    (b'{"v":5}', "text", (W, "v")),
    (b'{"v":{"a":"b"}}', "text", (W, "v")),
    (b'{"w":1}', "int64", (M, "v")),
    (b"{}", "int64", (M, "v")),
    (b'{"v":null}', "int64", (Z, "v")),
    (b'{"v":1,"v":2}', "int64", ("fine", 2)),
    (b'{"v":"1","v":2}', "int64", ("fine", 2)),
    (b'{"v":2,"v":null}', "int64", (Z, "v")),
    (b'{"\\u0076":3}', "int64", ("fine", 3)),
    (b'{"v\\u0000":3}', "int64", (M, "v")),
    (b' \t\r\n{ "v" : 4 } ', "int64", ("fine", 4)),
    (b'{"v":4}{"v":4}', "int64", (N, None)),
    (b'{"v":4', "int64", (N, None)),
    (b'{"v":4,}', "int64", (N, None)),
    (b'{"v":04}', "int64", (N, None)),
    (b"", "int64", (N, None)),
    (b" ", "int64", (N, None)),
    (b"\xef\xbb\xbf{}", "int64", (N, None)),
    (b"[1,2]", "int64", (O, None)),
    (b"7", "int64", (O, None)),
    (b"7 7", "int64", (N, None)),
]  # fmt: skip


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("record", "kind", "wanted"), VERDICTS)
def test_one_record(record, kind, wanted):
    """What is fine has orjson's value; what is bad says why, and where."""
    assert repr(verdict(record, kind)) == repr(wanted)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("opens", "inner", "closes"), [(b"[", b"", b"]"), (b'{"a":', b"1", b"}"), (b'[{"a":', b"", b"}]")]
)
def test_nesting_ends_where_it_does_for_orjson(opens, inner, closes):
    """The record's own object counts."""
    seen = set()
    for depth in (*range(508, 514), *range(1020, 1027)):
        nested = b'{"v":1,"w":' + opens * depth + inner + closes * depth + b"}"
        try:
            orjson.loads(nested)
            fine = True
        except orjson.JSONDecodeError:
            fine = False
        seen.add(fine)
        assert (verdict(nested) == ("fine", 1)) == fine, depth
    assert inner == b"" or seen == {True, False}


@pytest.mark.usefixtures("way")
def test_only_bad_records_are_left_out():
    """The others are rows in order; a tombstone is no row; spans are those of the rows."""
    records = [b'{"v":1}', b"{", b'{"v":2,"x":3}', None, b'{"v":"x"}', b'{"v":4}']
    buffer, offsets, lengths = spans(records, between=b"....")
    found = Decoder([ColumnSpec("v", "int64")]).decode(buffer, offsets, lengths)
    assert found.columns.rows() == [{"v": 1}, {"v": 2}, {"v": 4}]
    assert found.bad == [BadSpan(1, N, None), BadSpan(4, W, "v")]
    assert (found.tombstones, longs(found.rows).tolist()) == ([3], [0, 2, 5])
    own = zip(longs(found.spans.offsets), longs(found.spans.lengths), strict=True)
    assert [buffer[at : at + size] for at, size in own] == [records[0], records[2], records[5]]


@pytest.mark.usefixtures("way")
def test_nulls_and_what_is_missing():
    """Of optional columns; a column without any has no validity."""
    declared = [ColumnSpec(kind, kind, True) for kind in ("int64", "float64", "bool", "text")]
    records = [
        b'{"int64":1,"float64":2,"bool":true,"text":"a"}',
        b'{"int64":null,"text":null}',
        b'{"text":"","bool":false}',
    ]
    rows = Decoder(declared).decode(*spans(records * 9)).columns
    assert (
        rows.rows()
        == [
            {"int64": 1, "float64": 2.0, "bool": True, "text": "a"},
            {"int64": None, "float64": None, "bool": None, "text": None},
            {"int64": None, "float64": None, "bool": False, "text": ""},
        ]
        * 9
    )
    assert [one.nulls for one in rows.vectors] == [18, 18, 9, 9]
    assert Decoder(declared).decode(*spans(records[:1])).columns["text"].validity is None


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 64])
def test_arrow_takes_columns_over(count):
    """Without a copy, and they live as long as somebody holds them; chunks of any length."""
    records = [b'{"user":"u%d","ts":%d,"ok":%s}' % (n, n, b"null" if n % 3 else b"true") for n in range(count)]
    found = Decoder(COLUMNS).decode(*spans(records)).columns
    rows = found.rows()
    batch = pyarrow.record_batch(found)
    batch.validate(full=True)
    assert (batch.to_pylist(), batch.schema.names) == (rows, [column.name for column in COLUMNS])
    assert pyarrow.array(found["user"]).to_pylist() == [row["user"] for row in rows]
    kept = batch.column(0)
    del batch, found
    gc.collect()
    assert kept.to_pylist() == [row["user"] for row in rows]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("buffer", "offsets", "lengths", "wanted"),
    [
        (b"{}", [0], [3], "record 0 lies outside"),
        (b"{}", [0, 2], [2, 1], "record 1 lies outside"),
        (b"{}", [-1], [1], "record 0 lies outside"),
        (b"{}", [0], [-2], "record 0 lies outside"),
        (b"{}", [2**63 - 1], [2**63 - 1], "record 0 lies outside"),
        (b"{}", [0], [2, 0], "1 offsets and 2 lengths"),
    ],
)
def test_spans_that_cannot_be(buffer, offsets, lengths, wanted):
    """They are refused before a byte outside of the buffer is read."""
    with pytest.raises(ValueError, match=wanted):
        Decoder([]).decode(buffer, array("q", offsets), array("q", lengths))


@pytest.mark.usefixtures("way")
def test_rows_are_marked_by_their_other_fields():
    """Known ones are no mark; a bad record leaves none."""
    decoder = Decoder([ColumnSpec("v", "int64")], known=["k"], watched=["w"])
    objects = [b"", b',"k":1', b',"x":1', b',"w":1', b',"x":{"w":1}', b',"w":1,"y":2', b',"w":01']
    assert decoder.decode(*spans([b'{"v":1%b}' % more for more in objects])).others == bytes([0, 0, 1, 2, 1, 3])
    assert decoder.decode(*spans([b'{"v":1,"k":0}'])).others is None


def test_columns_that_cannot_be():
    """Twice the same name."""
    with pytest.raises(ValueError, match="declared twice"):
        Decoder([ColumnSpec("a", "int64"), ColumnSpec("a", "text")])


@needs_compiler
def test_both_agree_on_mutated_records():
    """Verdict, value and place of 40,000 records; `make fuzz` tries millions."""
    more = {"known": ["known"], "watched": ["watched"]}
    chance, compiled, plain = random.Random(12), Decoder(COLUMNS, **more), plainly(COLUMNS, **more)
    for _ in range(20):
        records = some(chance, 2000)
        assert outcome(compiled, records) == outcome(plain, records)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@needs_compiler
@given(
    st.lists(
        st.dictionaries(st.sampled_from([one.name for one in COLUMNS]) | st.text(max_size=5), JSON, max_size=9),
        max_size=9,
    )
)
def test_both_agree_on_any_objects(objects):
    """Any JSON under the names of the columns and others, in any order."""
    records = [orjson.dumps(one) for one in objects if _writable(one)]
    assert outcome(Decoder(COLUMNS), records) == outcome(plainly(COLUMNS), records)


def _writable(value):
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:  # whole numbers of more than 64 bits
        return False
    return True


@needs_compiler
def test_decoding_keeps_no_memory():
    """Thousands of calls, of good and bad records, through all that can fail."""
    decoder, chance = Decoder(COLUMNS), random.Random(1)
    sets = [spans([*some(chance, 50), None]) for _ in range(20)]

    def work():
        for one in sets * 20:
            decoder.decode(*one)
            with pytest.raises(ValueError):
                decoder.decode(one[0][:-900], *one[1:])
            Decoder(COLUMNS)

    keeps_nothing(work)


@needs_compiler
def test_threads_share_a_decoder():
    """Each sees its own records: what one has learned about the order of fields does not disturb the other."""
    decoder, found = Decoder(COLUMNS), []
    one = [b'{"user":"a","ts":%d}' % n for n in range(3000)]
    other = [b'{"ts":%d,"x":[],"user":"b"}' % n for n in range(3000)]

    def work(records, user):
        for _ in range(20):
            rows = decoder.decode(*spans(records)).columns
            found.append(rows["user"].values() == [user] * 3000 and rows["ts"].values() == list(range(3000)))

    threads = [threading.Thread(target=work, args=args) for args in ((one, "a"), (other, "b"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 40
