"""The result of a user's function, in the schema that its step declares; what cannot fit is said before a job runs."""

from __future__ import annotations

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
        from pyspark.sql.types import StructType

        schema = StructType.fromDDL(schema)
    missing = [name for name in schema.names if name not in result.columns]
    if missing:
        raise SparkPlanError(
            f"the result of {named}() has no column {', '.join(map(repr, missing))}; it has {', '.join(map(repr, result.columns))}",
            remedy=f"{did_you_mean(missing[0], result.columns)}; fix the function or the schema= of .spark()".lstrip(
                "; "
            ),
        )
    try:
        return result.to(schema)
    except AnalysisException as error:
        has = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in result.schema.fields)
        raise SparkPlanError(
            f"the result of {named}() does not match the schema {schema.simpleString()}; it is {has}: {first_lines(said(error))}",
            remedy="cast() the column in the function, or fix the schema= of .spark()",
        ) from error


def _kind(result: Any) -> str:
    return "None" if result is None else f"a {type(result).__module__.partition('.')[0]} {type(result).__name__}"
