"""What expressions give: the column evaluator agrees with the reference, record by record."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.columns.evaluate import NotComputable, compiled, kept
from headgate.core.columns.expressions import (
    Expression,
    Node,
    Operation,
    coalesce,
    col,
    columns_in,
    constant,
    greatest,
    least,
    when,
)
from headgate.core.columns.schema import BOOL, FLOAT, INT, PYTHON, TEXT, ColumnSchema, ColumnSpec
from headgate.core.columns.typing import kind_of

from . import drawn
from .reference import FAILS, value_of

SCHEMA = ColumnSchema(
    tuple(ColumnSpec(f"{type_[0]}{i}", type_, optional=i == 1) for type_ in (INT, FLOAT, BOOL, TEXT) for i in (0, 1))
)
EDGES = [0, 1, -1, 2**53 + 1, 2**63 - 1, -(2**63), 60_000]
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
VALUES: dict[str, Any] = {
    INT: st.sampled_from(EDGES) | st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5),
    FLOAT: st.sampled_from([0.0, -0.0, 1.5, 1e300, -1e300, 5e-324, 2.675, 0.125, -2.5]) | FLOATS,
    BOOL: st.booleans(),
    TEXT: st.sampled_from(["", "a", "ab", "true", "12", "-0", "1.5", "1e400", "9223372036854775808", "ä"]) | st.text(),
}


def rows() -> Any:
    return st.lists(
        st.fixed_dictionaries(
            {c.name: st.none() | VALUES[c.type] if c.optional else VALUES[c.type] for c in SCHEMA.columns}
        ),
        max_size=6,
    )


ARITHMETIC = {INT: ["+", "-", "*", "//", "%"], FLOAT: ["+", "-", "*", "/"]}


@st.composite
def nodes(draw: Any, type_: str, depth: int = 3) -> Node:
    """Trees of this type, of any shape."""

    def of(*types: str) -> Node:
        return draw(nodes(draw(st.sampled_from(types)), depth - 1))

    def alike() -> Node:
        return of(INT, FLOAT) if type_ == FLOAT else of(type_)

    leaf = draw(st.sampled_from(["column", "column", "constant"]))
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        if leaf == "constant":
            return constant(draw(VALUES[type_]), "")
        return col(draw(st.sampled_from([c.name for c in SCHEMA.columns if c.type == type_]))).node
    if draw(st.integers(0, 3)) == 0:
        several = tuple(alike() for _ in range(draw(st.integers(1, 3))))
        return Operation("coalesce", several) if draw(st.booleans()) else Operation("when", (of(BOOL), *several[:2]))
    if type_ == INT and draw(st.integers(0, 5)) == 0:
        return Expression(of(*PYTHON)).hash().node
    if type_ == INT and draw(st.integers(0, 4)) == 0:
        return drawn.of_time(draw(st.randoms(use_true_random=False)), lambda: of(INT))
    if type_ == TEXT and draw(st.integers(0, 5)) == 0:
        return Expression(of(INT)).strftime(draw(st.sampled_from(drawn.FORMS))).node
    if type_ in (INT, FLOAT) and draw(st.integers(0, 3)) == 0:
        return drawn.of_number(draw(st.randoms(use_true_random=False)), lambda: of(type_))
    if type_ == TEXT and draw(st.booleans()):
        return drawn.of_text(draw(st.randoms(use_true_random=False)), lambda: of(TEXT))
    if draw(st.integers(0, 5)) == 0 or type_ == TEXT:
        was = draw(st.sampled_from([one for one in PYTHON if (one, type_) not in ((INT, BOOL), (FLOAT, BOOL))]))
        return Expression(of(was)).cast(PYTHON[type_]).node
    if type_ != BOOL:
        name = draw(st.sampled_from([*ARITHMETIC[type_], "negative", "floor"]))
        if name == "negative":
            return Operation(name, (of(type_),))
        if name == "floor":
            return Expression(of(INT)).floor(draw(st.sampled_from(["1ms", "1s", "1h"]))).node
        other = (INT,) if type_ == INT else (INT, FLOAT)
        return Operation(name, (of(type_), of(*other)) if draw(st.booleans()) else (of(*other), of(type_)))
    name = draw(
        st.sampled_from(["compare", "equal", "&", "|", "~", "is_null", "is_in", "starts_with", "contains", "matches"])
    )
    match name:
        case "compare" | "equal":
            alike = draw(st.sampled_from([(INT, FLOAT), (TEXT,), *([(BOOL,)] if name == "equal" else [])]))
            signs = ["==", "!="] if name == "equal" else ["<", "<=", ">", ">="]
            return Operation(draw(st.sampled_from(signs)), (of(*alike), of(*alike)))
        case "&" | "|":
            return Operation(name, (of(BOOL), of(BOOL)))
        case "~":
            return Operation(name, (of(BOOL),))
        case "is_null":
            return Operation(name, (of(*PYTHON),))
        case "is_in":
            alike = draw(st.sampled_from([(INT, FLOAT), (TEXT,), (BOOL,)]))
            values = st.one_of(*(VALUES[one] for one in alike))
            return Expression(of(*alike)).is_in(draw(st.lists(values, min_size=1, max_size=3))).node
    if name == "matches":
        return Expression(of(TEXT)).matches(draw(st.sampled_from(drawn.PATTERNS))).node
    return getattr(Expression(of(TEXT)), name)(draw(VALUES[TEXT])).node


@settings(max_examples=120)
@given(st.sampled_from(sorted(PYTHON)).flatmap(nodes), rows())
def test_columns_agree_with_the_rules_record_by_record(node: Node, records: list[dict[str, Any]]) -> None:
    """The same values of the type that was inferred; and the error belongs to the first record that has none."""
    kind = kind_of(node, SCHEMA)
    columns = {name: [record[name] for record in records] for name in SCHEMA.names}
    wanted = [value_of(node, record, SCHEMA) for record in records]
    compute = compiled(node, SCHEMA)
    bad: list[int] = []
    left = list(range(len(records)))
    while True:
        try:
            found = compute({name: [column[i] for i in left] for name, column in columns.items()}, len(left))
        except NotComputable as error:
            bad.append(left.pop(error.index))
        else:
            break
    assert sorted(bad) == [i for i, one in enumerate(wanted) if one is FAILS]
    assert list(map(repr, found)) == [repr(wanted[i]) for i in left]
    assert {type(one) for one in found if one is not None} <= {PYTHON[kind.type]}
    assert kind.optional or None not in found


@pytest.mark.parametrize(
    ("expression", "given_", "wanted"),
    [
        (col("t0").cast(int), ["12", "-0", "-9223372036854775808"], [12, 0, -(2**63)]),
        (col("t0").cast(float), ["12", "1.5e3", "-0.0"], [12.0, 1500.0, -0.0]),
        (col("t1").cast(bool), ["true", None, "false"], [True, None, False]),
        (col("f0").cast(int), [1.9, -1.9], [1, -1]),
        (col("f0").cast(str), [1e16, 0.1], ["1e+16", "0.1"]),
        (col("b0").cast(str), [True, False], ["true", "false"]),
        (col("i1").is_in([1, 2.5]), [1, None, 2], [True, None, False]),
        (col("i1") / 2, [1, None], [0.5, None]),
        (col("t0").starts_with("a"), ["ab", "b"], [True, False]),
        (col("t0").contains("b"), ["ab", "a"], [True, False]),
        (col("i0").floor("1m"), [119_999, -1], [60_000, -60_000]),
        (col("i0") // -2, [3, -3], [-2, 1]),
        (col("i0") % -2, [3, -4], [-1, 0]),
        (col("b1") & False, [None, True], [False, False]),
        (col("b1") | True, [None, False], [True, True]),
        (~col("b1"), [None, True], [None, False]),
        (col("b0") & col("b0") | False, [True, False], [True, False]),
        (when(col("i1") > 1).then(10 // (col("i1") - 1)).otherwise(0), [None, 1, 3], [0, 0, 5]),
        (when(col("i1") > 1).then(1), [None, 1, 3], [None, None, 1]),
        (coalesce(col("i1"), 7), [None, 1], [7, 1]),
        (col("t0").strptime("%Y-%m-%dT%H:%M:%S%z"), ["2024-02-29T12:00:00+01:30"], [1709202600000]),
        (col("t0").strptime("%Y-%m-%d %f"), ["1970-01-01 123456789", "1969-12-31 1"], [123, -86_399_900]),
        (col("i0").strftime("%d.%m.%Y %H:%M:%S.%f%z 100%%"), [-1], ["31.12.1969 23:59:59.999000+0000 100%"]),
        (col("i0").weekday(), [0, -86_400_001], [3, 1]),
        (col("i0").year(), [2**63 - 1, -(2**63)], [292_278_994, -292_275_055]),
        (col("f0").round(2), [2.675, 0.125, -0.001], [2.67, 0.12, -0.0]),
        (greatest(col("i1"), 0), [None, -1, 3], [None, 0, 3]),
        (least(col("f0"), 1), [0.5, 2.0], [0.5, 1.0]),
        (col("t0").hash(), ["", "a"], [-1205034819632174695, -3292477735350538661]),
        (col("t0").hash(), ["0123456789" * 4], [-3859646398582380239]),
        (col("i0").hash(), [7], [609900476111905877]),
        (col("t0").hash(), ["abcde", "ä", "x" * 100], [568411279426701291, -5943206336561110183, -7858536869340659564]),
        (col("f0").hash(), [0.5], [5245389620263901762]),
        (col("b0").hash(), [True], [-8484456787529832656]),
    ],
)
def test_what_an_expression_gives(expression: Expression, given_: list[Any], wanted: list[Any]) -> None:
    """As the documentation says it."""
    name = next(columns_in(expression.node))
    assert compiled(expression.node, SCHEMA)({name: given_}, len(given_)) == wanted


@pytest.mark.parametrize("text", ["", " 1", "1_0", "01", "+1", "9223372036854775808", "1.0", "٣"])
def test_text_that_is_no_whole_number(text: str) -> None:
    """JSON has no other way to write one."""
    with pytest.raises(NotComputable):
        compiled(col("t0").cast(int).node, SCHEMA)({"t0": [text]}, 1)


@pytest.mark.parametrize("text", ["", "1e400", "nan", ".5", "1.", "True"])
def test_text_that_is_no_number(text: str) -> None:
    """What JSON has not is not taken, and neither is what is not a finite number."""
    with pytest.raises(NotComputable):
        compiled(col("t0").cast(float).node, SCHEMA)({"t0": [text]}, 1)


@pytest.mark.parametrize(
    "text",
    ["2024-02-29", "2024-02-29T", "0000-01-01Z", "2023-02-29Z", "2024-01-01+2400", "2024-01-01+0160", "٢٠٢٤-01-01Z"],
)
def test_text_that_is_no_time(text: str) -> None:
    """All of its digits are there, and such a time exists."""
    with pytest.raises(NotComputable):
        compiled(col("t0").strptime("%Y-%m-%d%z").node, SCHEMA)({"t0": [text]}, 1)


def test_a_float_beyond_64_bits_is_no_whole_number() -> None:
    """It would wrap elsewhere."""
    with pytest.raises(NotComputable):
        compiled(col("f0").cast(int).node, SCHEMA)({"f0": [1e19]}, 1)


@pytest.mark.parametrize(
    ("expression", "record", "told"),
    [
        (col("i0") * 2, {"i0": 2**62}, r"\(i0 \* 2\) has more than 64 bits: 9223372036854775808. Remedy: use floats"),
        (col("f0") * 10, {"f0": 1e308}, "is not a finite number"),
        (col("f0") / col("i0"), {"f0": 1.5, "i0": 0}, "1.5 is divided by zero. Remedy: filter"),
        (col("t0").cast(int), {"t0": "x"}, "'x' is no int64"),
        (col("t0").strptime("%Y%m%d"), {"t0": "20230229"}, "'20230229' is not a time in this format. Remedy: filter"),
        (col("i0").strftime("%Y"), {"i0": 2**60}, "1152921504606846976 is before the year 1 or after 9999"),
    ],
)
def test_an_error_says_what_and_why(expression: Expression, record: dict[str, Any], told: str) -> None:
    """It stands in a log and in a dead letter."""
    compute = compiled(expression.node, SCHEMA)
    good = {"i0": 1, "f0": 1.0, "t0": "20240101"}
    with pytest.raises(NotComputable, match=told) as found:
        compute({name: [good[name], value] for name, value in record.items()}, 2)
    assert found.value.index == 1


def test_finite_floats_whose_sum_is_not_are_fine() -> None:
    """The check of a whole column looks at its sum first."""
    assert compiled((col("f0") * 1).node, SCHEMA)({"f0": [1e308, 1e308]}, 2) == [1e308, 1e308]


def test_a_filter_keeps_what_is_true() -> None:
    """Null is not true."""
    keep = compiled((col("i1") > 1).node, SCHEMA)({"i1": [1, None, 2]}, 3)
    assert kept(["a", "b", "c"], keep) == ["c"]
