"""What `headgate batches` makes of the answers of workers, and prints."""

from __future__ import annotations

import doctest
from typing import Any

import pytest

from headgate.agents.cli.see import batches as verb
from headgate.agents.status import batches as documents
from headgate.agents.status import draining
from headgate.agents.status.batches import batch_documents, load_documents, spark_document
from headgate.agents.worker.load import batch_load
from headgate.core.batching.batch_progress import (
    BatchDone,
    BatchSeen,
    SparkMemory,
    SparkProgress,
    SparkState,
    StepBatches,
    Tally,
)

from ....e2e.schemas import schema, wrong

MINUTE = (1_769_860_800_000, 1_769_860_860_000)


def answer(worker: str, task: str) -> dict[str, Any]:
    """One worker's page."""
    seen = (
        BatchSeen(
            f"{task}/daily/3", task, "daily", 3, "running", 2_000, 250_000, "watermark", MINUTE, 5, 1, 2, 3_000, "sums", 2, "",
            "it\ndied", SparkProgress(1, 3, 1, 8, 4, 2, at_ms=9_000), retry_ms=4_200,
        ),
        BatchSeen(f"{task}/daily/4", task, "daily", 4, "open", 7, why="collects rows"),
    )  # fmt: skip
    done = BatchDone(
        f"{task}/daily/2",
        task,
        "daily",
        2,
        9,
        90,
        "rows",
        None,
        5,
        1_000,
        2_000,
        3_000,
        4_500,
        5_000,
        2,
        4,
        1,
        4_210,
        "the JVM\ndied",
    )
    step = StepBatches(
        task, "daily", seen, (done,), Tally(4, {"rows": 2, "watermark": 1}, 1, 9, 90, 4, 1, 1, 1_500, 4_210)
    )
    session = SparkState(
        "ready",
        "local[2]",
        1_000,
        "4.0.0",
        "http://here:4040",
        2,
        memory={"spark.driver.memory": "1g"},
        taken=(SparkMemory("jvm", 700 << 20),),
    )
    return {
        "worker": worker,
        "tasks": [task],
        "spark": spark_document(session, 10_000),
        **batch_documents([step], 10_000),
    }


def document(**more: Any) -> dict[str, Any]:
    found = verb.merged([answer("w1", "Partition 0"), answer("w2", "Partition 10"), answer("w3", "Partition 2")])
    return {"job": "sales/1", "run": "running", "unseen": [], **found, **more}


def test_the_answers_of_all_workers_are_one_document() -> None:
    """Steps are summed; tasks are in their natural order; a duration is that of the worker's own clock."""
    found = document()
    assert wrong(found, schema("batches")) == []
    (step,) = found["steps"]
    assert (step["tasks"], step["done"], step["closed"], step["spark_s"]) == (3, 3, {"rows": 6, "watermark": 3}, 4.5)
    assert step["retry_s"] == 12.63
    assert [one["task"] for one in found["batches"]] == [f"Partition {n}" for n in (0, 0, 2, 2, 10, 10)]
    first, second = found["batches"][:2]
    assert (first["for_s"], first["window"]["end"], first["progress"]["heard_s"]) == (
        7.0,
        "2026-01-31T12:01:00.000Z",
        1.0,
    )
    assert (second["for_s"], second["bytes"], second["progress"]) == (None, None, None)
    done = found["done"][0]
    assert (done["waited_s"], done["spark_s"], done["took_s"], done["ago_s"]) == (1.0, 1.5, 3.0, 5.0)
    assert (done["attempts"], done["retry_s"], done["error"]) == (2, 4.21, "the JVM\ndied")


def test_people_read_it_on_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    """Errors of Spark have many lines; a window has its day once."""
    verb.show(document(unseen=[{"task": "Partition 3", "worker": "w4", "why": "w4 cannot be reached"}]), "sales")
    out, err = capsys.readouterr()
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert (
        "Spark of w1 ready for 9.0s, local[2], Spark 4.0.0, session 2, spark.driver.memory 1g, jvm 700 MiB, http://here:4040"
        in lines
    )
    assert "not seen Partition 3: w4 cannot be reached" in lines
    assert "daily 3 0 3 0 3 27 12 3 3 rows 6, watermark 3" in lines
    assert (
        "Partition 0/daily/3 running 7.0s 2000 0.2 MB 2026-01-31 12:00:00 – 12:01:00 watermark 2 "
        "sums; stage 2 of 3, 4 of 8 tasks done, 2 running; last error: it died, retried after 4.2s" in lines
    )
    assert "Partition 0/daily/4 open - 7 - - - - collects rows" in lines
    assert "Partition 0/daily/2 5s 9 90 B - rows 1.0s 1.5s 3.0s 4 2 1 after 4.2s: the JVM died" in lines
    assert err == ""


@pytest.mark.parametrize(
    ("run", "unseen", "said"),
    [
        ("stopped", [{"task": "t"}], "No worker is running, because the run is stopped"),
        ("running", [{"task": "t"}], "headgate status sales says why"),
        (None, [], "sales has not begun"),
        ("running", [], "sales has no .batch()"),
    ],
)
def test_nothing_is_explained(run: str | None, unseen: list[Any], said: str) -> None:
    """Each reason has another remedy."""
    assert said in verb.remark({"steps": [], "run": run, "unseen": unseen}, "sales")


def test_the_examples_of_the_words_are_true() -> None:
    """They stand in the docstrings."""
    for module in (verb, draining, documents, batch_load):
        assert doctest.testmod(module).failed == 0


def test_a_step_of_a_heartbeat_is_shown_as_its_schema_says() -> None:
    """In `headgate status`."""
    found = load_documents([batch_load.BatchLoad("daily", 1, 2, oldest_ms=4_000)], 10_000)
    assert wrong(found, schema("status")["properties"]["batches"]) == []
    assert found[0]["oldest_s"] == 6.0
    assert spark_document(None, 5) is None
