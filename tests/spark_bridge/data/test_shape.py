"""Results in the schema of their stage, as far as types alone decide: no Spark is needed for that."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.spark_bridge.base.errors import SparkPlanError
from headgate.spark_bridge.data.shape import shaped

pytestmark = pytest.mark.spark


class Result:
    """A DataFrame with a column `n`."""

    def __init__(self, kind: Any) -> None:
        from pyspark.sql.types import StructType

        self.schema = StructType().add("n", kind)

    def toArrow(self) -> None:
        """What tells a DataFrame from other things."""

    def to(self, schema: Any) -> str:
        return f"to {schema.simpleString()}"


def total(df: Any, batch: Any) -> None:
    """The user's function."""


def test_fractions_are_not_cut_off() -> None:
    """Spark makes 1 of 1.5 where a whole number is wanted, and says nothing."""
    from pyspark.sql import types as t

    whole = t.StructType().add("n", t.LongType())
    for kind in (t.DoubleType(), t.FloatType(), t.DecimalType(10, 2)):
        with pytest.raises(SparkPlanError, match=r"total\(\) has fractions in 'n', which is .* wants bigint.*F\.round"):
            shaped(total, Result(kind), whole)
    for kind in (t.IntegerType(), t.DecimalType(18, 0), t.BooleanType()):
        assert shaped(total, Result(kind), whole) == "to struct<n:bigint>"
    assert shaped(total, Result(t.LongType()), t.StructType().add("n", t.DoubleType())) == "to struct<n:double>"
