"""No secret is on a command line; that a JVM has it all the same: `tests/spark_bridge/test_exposed.py`."""

from __future__ import annotations

import doctest
import stat
from pathlib import Path

import pytest

from headgate.spark_bridge.base.errors import SparkPlanError
from headgate.spark_bridge.process import submit
from headgate.spark_bridge.process.submit import java_arguments, options, property_line

GIVEN = {
    "spark.hadoop.fs.s3a.secret.key": "hunter2",
    "spark.hadoop.x.uri": "https://ann:hunter2@host/",
    "spark.driver.extraJavaOptions": "-Dx.password='hunter2 \"\\ ü' -Dy=1",
    "spark.sql.shuffle.partitions": "3",
}


def test_the_examples_hold() -> None:
    assert doctest.testmod(submit).failed == 0


def test_what_is_secret_is_in_files_that_no_one_else_reads(tmp_path: Path) -> None:
    found = options(GIVEN, tmp_path)
    assert "hunter2" not in " ".join(found)
    assert found == [
        "--conf", f"spark.driver.extraJavaOptions=@{tmp_path}/spark.driver.extraJavaOptions",
        "--conf", "spark.sql.shuffle.partitions=3",
        "--load-spark-defaults", "--properties-file", f"{tmp_path}/held.properties",
    ]  # fmt: skip
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    assert options({"spark.app.name": "x"}, tmp_path) == ["--conf", "spark.app.name=x"]


def test_values_keep_what_the_forms_of_the_files_give_a_meaning() -> None:
    assert property_line("spark.a b", " x\\y\n\U0001f600") == "spark.a\\ b=\\ x\\\\y\\n\\ud83d\\ude00"
    assert java_arguments("n", "'a\"b\\c'") == ['"a\\"b\\\\c"']
    with pytest.raises(SparkPlanError, match="cannot be read") as error:
        java_arguments("spark.driver.extraJavaOptions", "-Dx.password='hunter2")
    assert "hunter2" not in str(error.value)
