"""The result of a user's function, in the schema that its step declares; what cannot fit is said before a job runs."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ..core.settings import did_you_mean
from .errors import SparkPlanError, first_lines, said


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
    try:
        return result.to(schema)
    except AnalysisException as error:
        is_now = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in has.fields)
        raise SparkPlanError(
            f"the result of {named}() does not match the schema {schema.simpleString()}; it is {is_now}: {first_lines(said(error))}",
            remedy="cast() the column in the function, or fix the schema= of .spark()",
        ) from error


@lru_cache(256)
def _parsed(ddl: str) -> Any:
    """The schema of a DDL text, which Spark is asked once."""
    from pyspark.sql.types import StructType

    return StructType.fromDDL(ddl)


def _are(has: Any, wanted: Any) -> bool:
    """Whether a result has these columns already, so that nothing is to be converted."""
    return len(has.fields) == len(wanted.fields) and all(
        mine.name == one.name and mine.dataType == one.dataType and mine.nullable <= one.nullable
        for mine, one in zip(has.fields, wanted.fields, strict=True)
    )


def _kind(result: Any) -> str:
    return "None" if result is None else f"a {type(result).__module__.partition('.')[0]} {type(result).__name__}"
