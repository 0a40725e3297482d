"""The result of a user's function, in the schema that its step declares; what cannot fit is said before a job runs."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ...core.settings import did_you_mean
from ..base.errors import SparkPlanError, first_lines, said

REMEDY = "cast() the column in the function, or fix the schema= of .spark()"
REMEDIES = {
    "NULLABLE_COLUMN_OR_FIELD": "leave out NOT NULL in the schema= of .spark(): Spark takes most of what it computes for nullable",
    "AMBIGUOUS_COLUMN_OR_FIELD": "give each column once: select() or drop() them in the function",
}


def shaped(fn: Any, result: Any, schema: Any) -> Any:
    """The result in the declared schema (a DDL text or a StructType). Spark itself would fill a missing column with NULL."""
    from pyspark.errors import AnalysisException

    named = getattr(fn, "__qualname__", repr(fn))
    if not callable(getattr(result, "toArrow", None)):
        raise SparkPlanError(
            f"{named}() returned {_kind(result)}, not a DataFrame",
            remedy="return the result that the function computes from df"
            if result is None
            else "return a PySpark DataFrame",
        )
    if isinstance(schema, str):
        schema = _parsed(schema)
    has = result.schema
    missing = [name for name in schema.names if name not in has.names]
    if missing:
        raise SparkPlanError(
            f"the result of {named}() has no column {', '.join(map(repr, missing))}; it has {', '.join(map(repr, has.names))}",
            remedy=f"{did_you_mean(missing[0], has.names)}; fix the function or the schema= of .spark()".lstrip("; "),
        )
    if _are(has, schema):
        return result
    _keeps_fractions(named, has, schema)
    try:
        return result.to(schema)
    except AnalysisException as error:
        is_now = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in has.fields)
        raise SparkPlanError(
            f"the result of {named}() does not match the schema {schema.simpleString()}; it is {is_now}: {first_lines(said(error))}",
            remedy=next((remedy for sign, remedy in REMEDIES.items() if sign in said(error)), REMEDY),
        ) from error


def _keeps_fractions(named: str, has: Any, wanted: Any) -> None:
    """Refuse to cut fractions off in silence, as Spark does where numbers are wanted as whole ones."""
    from pyspark.sql.types import FractionalType, IntegralType

    for field in wanted.fields:
        found = [one.dataType for one in has.fields if one.name == field.name]
        kind = found[0] if len(found) == 1 else None
        if isinstance(field.dataType, IntegralType) and isinstance(kind, FractionalType) and getattr(kind, "scale", 1):
            raise SparkPlanError(
                f"the result of {named}() has fractions in '{field.name}', which is {kind.simpleString()}, and schema= wants "
                f"{field.dataType.simpleString()}",
                remedy="F.round(…).cast('long') or another cast in the function, or double in the schema= of .spark()",
            )


@lru_cache(256)
def _parsed(ddl: str) -> Any:
    """The schema of a DDL text, which Spark is asked once."""
    from pyspark.sql.types import StructType

    return StructType.fromDDL(ddl)


def _are(has: Any, wanted: Any) -> bool:
    """Whether a result has these columns already, so that nothing is to be converted."""
    return len(has.fields) == len(wanted.fields) and all(
        had.name == one.name and had.dataType == one.dataType and had.nullable <= one.nullable
        for had, one in zip(has.fields, wanted.fields, strict=True)
    )


def _kind(result: Any) -> str:
    return "None" if result is None else f"a {type(result).__module__.partition('.')[0]} {type(result).__name__}"
