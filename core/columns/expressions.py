"""Expressions over columns: `hg.col("amount") * 1.2 >= 10`, as frozen data.

    + - * /  // %  -x      numbers; // and % take whole numbers alone
    == != < <= > >=        two numbers, two texts, or (== and !=) two booleans
    & | ~                  booleans
    .is_null()  .is_in([…])  .cast(int | float | bool | str)
    .starts_with("…")  .contains("…")                      of text
    .lower()  .upper()  .strip()  .length()  .slice(0, 3)  .split("/", 1)  .replace("a", "b")  .matches("^a+$")  concat(…, …)
    .abs()  .round(2)  least(…, …)  greatest(…, …)         of numbers; the last two also of texts
    .hash()                                                of anything
    .floor("1m")  .year()  .month()  .day()  .hour()  .minute()  .second()  .weekday()  .strftime("%Y-%m-%d")
                                                           of a time in milliseconds, which .strptime("%Y-%m-%d") makes of text
    when(…).then(…).otherwise(…)  coalesce(…, …)           which value

An expression is a tree of three kinds of nodes (`ColumnRef`, `Constant`, `Operation`), which compare and print as data. It evaluates
nothing: `typing` says of which type it is, `evaluate` computes it. Whoever writes an expression that cannot be meant (`==` with None, `and`
instead of `&`) gets a `DeclarationError` at that line. The size of a tree is bounded, so that whatever walks it may be recursive.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from math import isfinite
from operator import index
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import DeclarationError, SettingError, UnknownName
from ..settings import duration_ms, offer
from ..words import EXPRESSION, brought
from .calendar import DIRECTIVES, pieces
from .logical import DATE
from .schema import BOOL, FLOAT, INT, LEAST, MOST, TEXT, ColumnKind, Scalar, is_text

ADD, SUBTRACT, MULTIPLY, DIVIDE, FLOOR_DIVIDE, MODULO = "+", "-", "*", "/", "//", "%"
EQUAL, UNEQUAL, LESS, AT_MOST, MORE, AT_LEAST = "==", "!=", "<", "<=", ">", ">="
AND, OR, NOT, NEGATIVE = "&", "|", "~", "negative"
IS_NULL, IS_IN, CAST, STARTS_WITH, CONTAINS, FLOOR = "is_null", "is_in", "cast", "starts_with", "contains", "floor"
LOWER, UPPER, STRIP, LENGTH, SLICE, SPLIT = "lower", "upper", "strip", "length", "slice", "split"
REPLACE, MATCHES, CONCAT = "replace", "matches", "concat"
ABS, ROUND, LEAST_OF, GREATEST_OF, HASH = "abs", "round", "least", "greatest", "hash"
STRPTIME, STRFTIME = "strptime", "strftime"
WHEN, COALESCE = "when", "coalesce"
INFIX = frozenset(
    (ADD, SUBTRACT, MULTIPLY, DIVIDE, FLOOR_DIVIDE, MODULO, EQUAL, UNEQUAL, LESS, AT_MOST, MORE, AT_LEAST, AND, OR)
)

Comparable = Scalar | date | Decimal
"""A constant: a value that a column is stored as, or a date, a datetime or a Decimal."""
TYPES: dict[Any, ColumnKind] = {int: INT, float: FLOAT, bool: BOOL, str: TEXT}
"""The Python type of a constant, or of a cast → the type of the column."""

WHITE = "".join(
    map(chr, (*range(9, 14), *range(28, 33), 133, 160, 5760, *range(8192, 8203), 8232, 8233, 8239, 8287, 12288))
)
"""What `.strip()` takes away: the characters that Python counts as white space."""

LONGEST_FORM = 100
"""How many bytes the form of a time may have."""
MOST_DIGITS = 15
"""To how many digits a number may be rounded."""
DEEPEST, MOST_PARTS = 200, 10_000
"""How deep an expression may be nested, and how many parts it may have."""


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column of the record."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that is the same for all records."""

    value: Any
    """A `Comparable`; in an expression over stored columns, a `Scalar`."""

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation on other nodes. `options`: what the operation itself needs, such as the type of a cast."""

    name: str
    of: tuple[Node, ...]
    options: tuple[Any, ...] = ()
    depth: int = field(init=False, repr=False, compare=False)
    parts: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        inner = [(one.depth, one.parts) for one in self.of if isinstance(one, Operation)]
        depth, parts = 1 + max((d for d, _ in inner), default=0), 1 + sum(n for _, n in inner)
        if depth > DEEPEST or parts > MOST_PARTS:
            what = f"is nested more than {DEEPEST} deep" if depth > DEEPEST else f"has more than {MOST_PARTS:,} parts"
            raise DeclarationError(
                f"an expression with {self.name} {what}",
                remedy="one of many values: .is_in([…]); all of many conditions: several .filter(…); else with_columns(part=…) first",
            )
        object.__setattr__(self, "depth", depth)
        object.__setattr__(self, "parts", parts)

    def __str__(self) -> str:
        if self.name in (NOT, NEGATIVE):
            return f"{'~' if self.name == NOT else '-'}({self.of[0]})"
        if self.name in INFIX:
            return f"({self.of[0]} {self.name} {self.of[1]})"
        if self.name == WHEN:
            return _cases(self)
        if self.name in FUNCTIONS:
            return f"{self.name}({', '.join(map(str, self.of))})"
        options = list(self.options) if self.name == IS_IN else ", ".join(map(repr, self.options))
        return f"{self.of[0]}.{self.name}({options})"


Node = ColumnRef | Constant | Operation
FUNCTIONS = frozenset((COALESCE, CONCAT, LEAST_OF, GREATEST_OF))
"""The operations that are written as functions of their parts."""


def _cases(node: Operation) -> str:
    """An operation WHEN as it was written: of a condition, what holds then and, if there is any, what holds otherwise."""
    text = f"when({node.of[0]}).then({node.of[1]})"
    for rest in node.of[2:]:
        nested = isinstance(rest, Operation) and rest.name == WHEN
        return f"{text}.{rest}" if nested else f"{text}.otherwise({rest})"
    return text


def columns_in(node: Node) -> Iterator[str]:
    """The names of the columns that an expression reads."""
    if isinstance(node, ColumnRef):
        yield node.name
    elif isinstance(node, Operation):
        for one in node.of:
            yield from columns_in(one)


def substituted(node: Node, made: Mapping[str, Node]) -> Node:
    """The expression with the columns that other expressions have made replaced by these.

    >>> str(substituted((col("b") + 1).node, {"b": (col("a") * 2).node}))
    '((a * 2) + 1)'
    """
    if isinstance(node, ColumnRef):
        return made.get(node.name, node)
    if isinstance(node, Operation):
        return replace(node, of=tuple(substituted(one, made) for one in node.of))
    return node


def constant(value: object, where: str) -> Constant:
    """A value as a constant; a `DeclarationError` if it is none that a column can hold.

    Members of an `IntEnum` or `StrEnum` and numbers of numpy are the plain values that they stand for.
    """
    if value is None:
        raise DeclarationError(f"{where} None, which is null for every record", remedy="ask with .is_null()")
    plain = _plain(value)
    if type(plain) is int and not LEAST <= plain <= MOST:
        raise DeclarationError(f"{where} {plain}, which has more than 64 bits", remedy="use a float")
    if type(plain) is float and not isfinite(plain):
        raise DeclarationError(f"{where} {plain}, which a column cannot hold", remedy="use a finite number")
    if type(plain) is str and not is_text(plain):
        raise DeclarationError(
            f"{where} {plain!r:.60}, which is not valid text: it has a lone surrogate", remedy="use text"
        )
    if isinstance(plain, bool | int | float | str | date | Decimal):
        return Constant(plain)
    raise DeclarationError(
        f"{where} {value!r:.60}, which is neither an expression nor a value of a column",
        remedy="hg.col(…), or an int, a float, a bool, a str, a date, a datetime or a Decimal",
    )


def _plain(value: object) -> object:
    """The value of a column that stands for this one; the value itself if there is none."""
    if type(value) in TYPES or isinstance(value, date | Decimal):
        return value
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    return index(value) if hasattr(type(value), "__index__") else value  # pyright: ignore[reportArgumentType] - just asked


def _listed(values: Any, node: Node) -> Iterable[object]:
    """What `.is_in` was given, if it may be a list of values."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        shown = repr(values) if isinstance(values, int | float | str | bytes) else "…"
        raise DeclarationError(f"{node}.is_in({values!r:.60})", remedy=f"a list of values: .is_in([{shown}])")
    return values  # pyright: ignore[reportUnknownVariableType] - each is checked


def node_of(value: object, where: str = "") -> Node:
    """The node of an expression or of a plain value."""
    return value.node if isinstance(value, Expression) else constant(value, where)


class Expression:
    """An expression over the columns of a record: data, which is computed for all records of a chunk at once.

    >>> (col("amount") * 1.2 >= 10) & ~col("country").is_in(["DE", "FR"])
    <Expression (((amount * 1.2) >= 10) & ~(country.is_in(['DE', 'FR'])))>
    """

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node

    def __repr__(self) -> str:
        return f"<Expression {self.node}>"

    def __bool__(self) -> NoReturn:
        raise DeclarationError(
            f"{self.node} has no truth value of its own: each record has one",
            remedy="use & for and, | for or, ~ for not, with parentheses around comparisons; a < b < c is (a < b) & (b < c)",
        )

    __hash__ = None  # pyright: ignore[reportAssignmentType] - equality of expressions is another expression

    if not TYPE_CHECKING:  # hidden from type checkers, so that they report it, too

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            known = [one for one in vars(Expression) if not one.startswith("_") and one != "node"]
            raise brought(name, EXPRESSION) or UnknownName(
                f"{self.node}.{name}: an expression has no '{name}'",
                remedy=f"{offer(name, known)}; for what expressions cannot do, use a function of frames: .frame(…)",
            )

        def __contains__(self, value: object) -> NoReturn:
            raise DeclarationError(
                f"{value!r:.60} in {self.node} has no answer: each record has one",
                remedy='.contains("…"), or .is_in([…])',
            )

    def _with(self, name: str, other: object, *, swapped: bool = False) -> Expression:
        own, given = self.node, node_of(other, f"{self.node} {name}")
        return Expression(Operation(name, (given, own) if swapped else (own, given)))

    # ------------------------------------------------------------------------------------------------------- arithmetic

    def __add__(self, other: Expression | float | Decimal) -> Expression:
        return self._with(ADD, other)

    def __radd__(self, other: float | Decimal) -> Expression:
        return self._with(ADD, other, swapped=True)

    def __sub__(self, other: Expression | float | Decimal) -> Expression:
        return self._with(SUBTRACT, other)

    def __rsub__(self, other: float | Decimal) -> Expression:
        return self._with(SUBTRACT, other, swapped=True)

    def __mul__(self, other: Expression | float | Decimal) -> Expression:
        return self._with(MULTIPLY, other)

    def __rmul__(self, other: float | Decimal) -> Expression:
        return self._with(MULTIPLY, other, swapped=True)

    def __truediv__(self, other: Expression | float) -> Expression:
        return self._with(DIVIDE, other)

    def __rtruediv__(self, other: float) -> Expression:
        return self._with(DIVIDE, other, swapped=True)

    def __floordiv__(self, other: Expression | int) -> Expression:
        return self._with(FLOOR_DIVIDE, other)

    def __rfloordiv__(self, other: int) -> Expression:
        return self._with(FLOOR_DIVIDE, other, swapped=True)

    def __mod__(self, other: Expression | int) -> Expression:
        return self._with(MODULO, other)

    def __rmod__(self, other: int) -> Expression:
        return self._with(MODULO, other, swapped=True)

    def __neg__(self) -> Expression:
        return Expression(Operation(NEGATIVE, (self.node,)))

    # ------------------------------------------------------------------------------------------------------- comparison

    def __eq__(self, other: Expression | Comparable) -> Expression:  # type: ignore[override]
        return self._with(EQUAL, other)

    def __ne__(self, other: Expression | Comparable) -> Expression:  # type: ignore[override]
        return self._with(UNEQUAL, other)

    def __lt__(self, other: Expression | float | str | date | Decimal) -> Expression:
        return self._with(LESS, other)

    def __le__(self, other: Expression | float | str | date | Decimal) -> Expression:
        return self._with(AT_MOST, other)

    def __gt__(self, other: Expression | float | str | date | Decimal) -> Expression:
        return self._with(MORE, other)

    def __ge__(self, other: Expression | float | str | date | Decimal) -> Expression:
        return self._with(AT_LEAST, other)

    # ------------------------------------------------------------------------------------------------------------ logic

    def __and__(self, other: Expression | bool) -> Expression:
        return self._with(AND, other)

    def __rand__(self, other: bool) -> Expression:
        return self._with(AND, other, swapped=True)

    def __or__(self, other: Expression | bool) -> Expression:
        return self._with(OR, other)

    def __ror__(self, other: bool) -> Expression:
        return self._with(OR, other, swapped=True)

    def __invert__(self) -> Expression:
        return Expression(Operation(NOT, (self.node,)))

    # ------------------------------------------------------------------------------------------------------------ verbs

    def is_null(self) -> Expression:
        """Whether the value is null, or its field was missing. Never null itself."""
        return Expression(Operation(IS_NULL, (self.node,)))

    def is_in(self, values: Iterable[Comparable]) -> Expression:
        """Whether the value is one of these; null for null."""
        listed = [constant(value, f"{self.node}.is_in([…]) has").value for value in _listed(values, self.node)]
        if not listed:
            raise DeclarationError(f"{self.node}.is_in([]) is never true", remedy="give it values")
        if isinstance(values, set | frozenset):  # its order differs between processes, and an expression may make a key
            listed.sort(key=lambda one: (type(one).__name__, one))
        return Expression(Operation(IS_IN, (self.node,), tuple(listed)))

    def cast(self, kind: type[int] | type[float] | type[bool] | type[str] | type[date]) -> Expression:
        """The value as another type. A fraction is cut off towards zero; text must be a number in JSON, or `true` or `false`. A time as
        `int` is in milliseconds since 1970, and as `datetime.date` its day.

        A value that has no counterpart (the text "abc" as a number, 1e300 as a whole number) is an error of its record.
        """
        if kind is date:
            return Expression(Operation(CAST, (self.node,), (DATE,)))
        if not isinstance(kind, type) or kind not in TYPES:  # pyright: ignore[reportUnnecessaryIsInstance] - as in `_of_text`
            raise DeclarationError(f"{self.node}.cast({kind!r})", remedy="int, float, bool, str or datetime.date")
        return Expression(Operation(CAST, (self.node,), (TYPES[kind],)))

    def starts_with(self, text: str) -> Expression:
        """Whether the text begins with this text."""
        return self._of_text(STARTS_WITH, text)

    def contains(self, text: str) -> Expression:
        """Whether the text contains this text, as it is: not a pattern."""
        return self._of_text(CONTAINS, text)

    def _of_text(self, name: str, text: str) -> Expression:
        return Expression(Operation(name, (self.node,), (self._text(name, text),)))

    def _text(self, name: str, text: str) -> Scalar:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - whoever does not check types gets this error, too
            raise DeclarationError(f"{self.node}.{name}({text!r:.60})", remedy="give it text")
        return constant(text, f"{self.node}.{name}() of").value

    def abs(self) -> Expression:
        """The number without its sign."""
        return Expression(Operation(ABS, (self.node,)))

    def round(self, digits: int = 0) -> Expression:
        """The number rounded to so many digits behind the point, as Python's `round` does: half goes to the even digit. A whole number
        stays as it is, and a float stays a float."""
        if not 0 <= self._place(ROUND, digits) <= MOST_DIGITS:
            raise DeclarationError(f"{self.node}.round({digits})", remedy=f"0 to {MOST_DIGITS} digits")
        return Expression(Operation(ROUND, (self.node,), (self._place(ROUND, digits),)))

    def hash(self) -> Expression:
        """A whole number of 64 bits, the same for equal values of one type, in each process and each version: xxHash64 with seed 0 of the
        text in UTF-8, of a number's eight bytes with the lowest first, or of a boolean's one byte, as a signed number."""
        return Expression(Operation(HASH, (self.node,)))

    def year(self) -> Expression:
        """The year of a time in milliseconds since 1970, in UTC."""
        return Expression(Operation("year", (self.node,)))

    def month(self) -> Expression:
        """The month of a time in milliseconds since 1970, in UTC: 1 to 12."""
        return Expression(Operation("month", (self.node,)))

    def day(self) -> Expression:
        """The day of the month of a time in milliseconds since 1970, in UTC: 1 to 31."""
        return Expression(Operation("day", (self.node,)))

    def hour(self) -> Expression:
        """The hour of a time in milliseconds since 1970, in UTC: 0 to 23."""
        return Expression(Operation("hour", (self.node,)))

    def minute(self) -> Expression:
        """The minute of a time in milliseconds since 1970, in UTC: 0 to 59."""
        return Expression(Operation("minute", (self.node,)))

    def second(self) -> Expression:
        """The second of a time in milliseconds since 1970, in UTC: 0 to 59."""
        return Expression(Operation("second", (self.node,)))

    def weekday(self) -> Expression:
        """The day of the week of a time in milliseconds since 1970, in UTC: 0 is Monday, 6 is Sunday."""
        return Expression(Operation("weekday", (self.node,)))

    def strptime(self, form: str) -> Expression:
        """The time that the text is, in milliseconds since 1970, in UTC. A text that is no time of this form is an error of its record.

        >>> col("at").strptime("%Y-%m-%dT%H:%M:%S%z")
        <Expression at.strptime('%Y-%m-%dT%H:%M:%S%z')>
        """
        return Expression(Operation(STRPTIME, (self.node,), (self._form(STRPTIME, form),)))

    def strftime(self, form: str) -> Expression:
        """The time, in milliseconds since 1970, as text of this form, in UTC. A time before the year 1 or after 9999 is an error of its
        record."""
        return Expression(Operation(STRFTIME, (self.node,), (self._form(STRFTIME, form),)))

    def _form(self, name: str, form: str) -> Scalar:
        found = self._some_text(name, form)
        text = f"{self.node}.{name}({form!r:.60})"
        parts = list(pieces(form))
        named = [directive for directive, letter in parts if not letter]
        unknown = next((one for one in named if one not in DIRECTIVES), None)
        if unknown is not None or "" in named:
            known = " ".join(f"%{one}" for one in DIRECTIVES)
            raise DeclarationError(
                f"{text}: %{unknown or ''} is not supported in a format", remedy=f"there are {known}"
            )
        if len(form.encode()) > LONGEST_FORM:
            raise DeclarationError(f"{text} is longer than {LONGEST_FORM} bytes", remedy="use a shorter format")
        if name == STRPTIME and not {"Y", "m", "d"} <= set(named):
            raise DeclarationError(f"{text} does not make a complete date", remedy="it needs %Y, %m and %d")
        if name == STRPTIME and len(set(named)) < len(named):
            raise DeclarationError(f"{text} has a part twice", remedy="name each part once")
        return found

    def lower(self) -> Expression:
        """The text in small letters, as `str.lower` has it."""
        return Expression(Operation(LOWER, (self.node,)))

    def upper(self) -> Expression:
        """The text in capital letters, as `str.upper` has it."""
        return Expression(Operation(UPPER, (self.node,)))

    def strip(self, characters: str | None = None) -> Expression:
        """The text without these characters at its beginning and its end, as `str.strip` has it; by default without white space."""
        if characters is None:
            return Expression(Operation(STRIP, (self.node,)))
        return Expression(Operation(STRIP, (self.node,), (self._some_text(STRIP, characters),)))

    def length(self) -> Expression:
        """How many characters (code points) the text has."""
        return Expression(Operation(LENGTH, (self.node,)))

    def slice(self, start: int, stop: int | None = None) -> Expression:
        """The characters from `start` to before `stop`, as `text[start:stop]`: counted from 0, or from the end if negative.

        >>> col("country").slice(0, 2)
        <Expression country.slice(0, 2)>
        """
        places = (start,) if stop is None else (start, stop)
        return Expression(Operation(SLICE, (self.node,), tuple(self._place(SLICE, one) for one in places)))

    def split(self, separator: str, part: int) -> Expression:
        """The part with this number between separators, counted from 0, or from the end if negative; null if there are not so many.

        >>> col("url").split("/", 3)
        <Expression url.split('/', 3)>
        """
        return Expression(Operation(SPLIT, (self.node,), (self._some_text(SPLIT, separator), self._place(SPLIT, part))))

    def replace(self, old: str, new: str) -> Expression:
        """The text with each `old` in it, as it is and no pattern, replaced by `new`."""
        return Expression(Operation(REPLACE, (self.node,), (self._some_text(REPLACE, old), self._text(REPLACE, new))))

    def matches(self, pattern: str) -> Expression:
        r"""Whether the pattern, a regular expression of Python, is found in the text. `^` and `$` bind it to the beginning and the end.

        Classes such as `\d` and `\w`, and `(?i)`, are about ASCII alone.
        """
        found = self._of_text(MATCHES, pattern)
        try:
            re.compile(pattern, re.ASCII)
        except (re.error, ValueError, OverflowError, RecursionError) as error:
            raise DeclarationError(
                f"{self.node}.matches({pattern!r:.60}): {error}",
                remedy="a regular expression as Python's re has it, without (?u)",
            ) from None
        return found

    def _some_text(self, name: str, text: str) -> Scalar:
        if text == "":
            raise DeclarationError(
                f"{self.node}.{name}('') needs a non-empty text", remedy="give it at least one character"
            )
        return self._text(name, text)

    def _place(self, name: str, place: int) -> int:
        found = _plain(place)
        if type(found) is not int or not LEAST <= found <= MOST:
            raise DeclarationError(f"{self.node}.{name}() at {place!r:.60}", remedy="give it a whole number")
        return found

    def floor(self, every: str | float) -> Expression:
        """The beginning of the interval of this length that the time (milliseconds since 1970) falls into.

        >>> col("ts").floor("1m")
        <Expression ts.floor(60000)>
        """
        try:
            ms = duration_ms(every)
        except SettingError as error:
            raise DeclarationError(f"{self.node}.floor(): {error.what}", remedy=error.remedy) from None
        if ms < 1:
            raise DeclarationError(f"{self.node}.floor({every!r}) is less than a millisecond", remedy="at least 1ms")
        return Expression(Operation(FLOOR, (self.node,), (ms,)))


class CaseArm:
    """A condition that waits for its `.then(…)`."""

    __slots__ = ("_before", "_condition")

    def __init__(self, condition: Expression | bool, before: tuple[tuple[Node, Node], ...] = ()) -> None:
        self._condition = node_of(condition, "when() of")
        self._before = before

    def __repr__(self) -> str:
        return f"<when({self._condition}), which lacks its .then(…)>"

    def then(self, value: Expression | Comparable) -> Case:
        """What it is for records for which the condition is true."""
        return Case((*self._before, (self._condition, _chosen(value, "then"))))


class Case(Expression):
    """An expression of conditions, which may have more of them: null where none is true."""

    __slots__ = ("_arms",)

    def __init__(self, arms: tuple[tuple[Node, Node], ...]) -> None:
        super().__init__(_nested(arms, ()))
        self._arms = arms

    def when(self, condition: Expression | bool) -> CaseArm:
        """A further condition, for records for which none before it is true."""
        return CaseArm(condition, self._arms)

    def otherwise(self, value: Expression | Comparable) -> Expression:
        """What it is for all other records: those for which no condition is true, be it false or null."""
        return Expression(_nested(self._arms, (_chosen(value, "otherwise"),)))


def _chosen(value: object, where: str) -> Node:
    if value is None:
        remedy = (
            "leave .otherwise(…) out"
            if where == "otherwise"
            else "ask for the other records, and leave .otherwise(…) out"
        )
        raise DeclarationError(f".{where}(None): null has no type", remedy=remedy)
    return node_of(value, f".{where}() of")


def _nested(arms: tuple[tuple[Node, Node], ...], rest: tuple[Node, ...]) -> Node:
    for condition, value in reversed(arms):
        rest = (Operation(WHEN, (condition, value, *rest)),)
    return rest[0]


def when(condition: Expression | bool) -> CaseArm:
    """A value by conditions, as `CASE WHEN` of SQL: of the first condition that is true. Null if none is and there is no `.otherwise(…)`.

    A value is computed only for the records that take it, so that a condition can keep what cannot be computed away from it.

    >>> when(col("n") > 0).then(col("total") / col("n")).otherwise(0.0)
    <Expression when((n > 0)).then((total / n)).otherwise(0.0)>
    """
    return CaseArm(condition)


def coalesce(first: Expression, *others: Expression | Comparable) -> Expression:
    """The first of these values that is not null; null if all are. The others are computed only for the records that need them.

    >>> coalesce(col("nickname"), col("name"), "guest")
    <Expression coalesce(nickname, name, 'no one')>
    """
    return _of_several(COALESCE, (first, *others))


def concat(first: Expression | str, *others: Expression | str) -> Expression:
    """Texts one behind the other; null if one of them is, as `||` of SQL.

    >>> concat(col("first"), " ", col("last"))
    <Expression concat(first, ' ', last)>
    """
    return _of_several(CONCAT, (first, *others))


def least(first: Expression | Comparable, *others: Expression | Comparable) -> Expression:
    """The least of these numbers or texts; null if one of them is.

    >>> least(col("price"), col("offer") * 0.9)
    <Expression least(price, (offer * 0.9))>
    """
    return _of_several(LEAST_OF, (first, *others))


def greatest(first: Expression | Comparable, *others: Expression | Comparable) -> Expression:
    """The greatest of these numbers or texts; null if one of them is.

    >>> greatest(col("amount"), 0)
    <Expression greatest(amount, 0)>
    """
    return _of_several(GREATEST_OF, (first, *others))


def _of_several(name: str, values: tuple[object, ...]) -> Expression:
    if len(values) < 2:
        raise DeclarationError(f"hg.{name}() of one value is that value", remedy=f'hg.{name}(hg.col("a"), hg.col("b"))')
    return Expression(Operation(name, tuple(node_of(one, f"hg.{name}() of") for one in values)))


def col(name: str) -> Expression:
    """A column of the record, by its name.

    >>> col("amount") >= 10
    <Expression (amount >= 10)>
    """
    if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance] - as in `_of_text`
        raise DeclarationError(f"hg.col({name!r}) does not name a column", remedy='hg.col("amount")')
    return Expression(ColumnRef(name))
