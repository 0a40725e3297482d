"""What verbs print for people, as far as it can be seen without a broker."""

from __future__ import annotations

import subprocess
import sys

import pytest
from aiokafka.errors import TopicAuthorizationFailedError
from click.testing import CliRunner

from headgate.agents.cli.group import LazyGroup, Mistyped, show_error
from headgate.agents.cli.output import show_table
from headgate.agents.cli.sections import section_of
from headgate.agents.cli.see import model
from headgate.agents.cli.start.run import last_words
from headgate.agents.cli.steer.coordinator import INSTEAD, TYPES, request_of
from headgate.agents.status.documents import whole_model
from headgate.core.coordination.member.admission import refusal
from headgate.core.coordination.member.plan import MemberConfig
from headgate.core.coordination.messages import SetRun
from headgate.core.coordination.state import JobState

PARTS = {"stage:a": "1"}


def test_a_job_without_a_model_says_when_it_gets_one(capsys: pytest.CaptureFixture[str]) -> None:
    """A worker was started, and no run has begun: there is no version None."""
    model.show({"job": "sales/1", **whole_model(JobState())})
    said = capsys.readouterr()
    assert said.out == "job    sales/1\nmodel  none yet: the leader creates it when the first run begins\n"
    assert "headgate plan" in said.err


@pytest.mark.parametrize(
    ("state", "run_id", "parts", "helps"),
    [
        ("running", "", {"stage:a": "2"}, "run the code that the run began with"),
        ("running", "r3", PARTS, "omit --run-id"),
        ("stopped", "r3", PARTS, "headgate start sales"),
        ("stopped", "", {}, "run the code of that run"),
        ("ended", "", {"setting:g": "1"}, "headgate reset sales"),
    ],
)
def test_a_worker_that_must_not_run_says_what_helps(
    state: str, run_id: str, parts: dict[str, str], helps: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """For each reason that a worker refuses itself with."""
    run = SetRun("r2", "d1", state, "u", fingerprint=PARTS)
    why = refusal(run, MemberConfig("p1", "x", "x", run_id=run_id, fingerprint=parts, bounded=True))
    show_error(last_words(why, "sales"))
    error, to_do, more = capsys.readouterr().err.splitlines()
    assert error == f"Error: {why}"
    assert to_do.startswith("To do: ")
    assert helps in to_do
    assert more == "More: headgate docs troubleshooting#a-worker-is-refused"


def test_a_worker_whose_name_is_taken_is_told_to_take_another() -> None:
    """Both ways to notice it."""
    for why in ("another process is 'w1': http://x", "another process has become 'w1': http://x"):
        assert "--processor-id" in last_words(why, "sales").remedy
        assert section_of(last_words(why, "sales")).endswith("#a-worker-is-fenced-again-and-again")
    assert "see the log" in last_words("something else", "sales").remedy


def test_what_kafka_refuses_is_an_error_and_no_traceback() -> None:
    """A permission that is not there, met by a verb that did not expect it; a mistake of our own keeps its traceback."""
    group = LazyGroup()

    @group.command()
    def forbidden() -> None:
        raise TopicAuthorizationFailedError("orders")

    @group.command()
    def broken() -> None:
        raise ZeroDivisionError

    done = CliRunner().invoke(group, ["forbidden"])
    assert done.exit_code == 1
    assert "Error: Kafka refused: " in done.output
    assert "orders" in done.output
    assert isinstance(CliRunner().invoke(group, ["broken"]).exception, ZeroDivisionError)


def test_what_is_written_by_hand_into_the_coordinator_stream_is_a_request_or_nothing() -> None:
    """A message by another hand than its writer's is believed by every worker: a grant that two hold, a run without its fields."""
    assert {*INSTEAD, "set-request", "set-config"} == set(TYPES)
    for kind in INSTEAD:
        with pytest.raises(Mistyped, match="cannot be written by hand"):
            request_of(kind, "{}")
    pause = request_of("set-request", '{"verb": "drain", "run_id": "r7"}')
    assert (pause.verb, pause.run_id) == ("drain", "r7")
    one = request_of("set-config", '{"setting": "stall.timeout", "value": "1m"}')
    assert (one.verb, one.arguments) == ("set-config", {"setting": "stall.timeout", "value": "1m"})
    assert request_of("set-config", '{"setting": "stall.timeout"}', delete=True).verb == "unset-config"
    for kind, text, why in [
        ("set-request", "[]", "a map of fields"),
        ("set-request", "{", "Expecting"),
        ("set-request", "{}", "without 'verb'"),
        ("set-request", '{"verb": 5}', "is not a string"),
        ("set-request", '{"verb": "dance"}', "unknown request"),
        ("set-request", '{"verb": "pause", "arguments": 5}', "not a set-request"),
        ("set-request", '{"verb": "pause", "uuid": "u"}', "no field 'uuid'"),
        ("set-request", '{"verb": "seek", "arguments": {"stream": "s", "to": 1e999}}', "not a set-request"),
        ("set-config", '{"setting": "stall.timeout", "value": [1]}', "'value' of set-config"),
    ]:
        with pytest.raises(Mistyped, match=why):
            request_of(kind, text)
    with pytest.raises(Mistyped, match="requests withdraw"):
        request_of("set-request", '{"verb": "pause"}', delete=True)


@pytest.mark.parametrize("verb", ["status", "watch", "batches", "model"])
def test_what_reads_a_job_brings_neither_a_web_client_nor_a_runtime(verb: str) -> None:
    """More than half of a command's second was the import of operators, which it got with one number of the worker's."""
    heavy = {
        *("aiohttp", "faust", "rocksdict", "pyarrow", "headgate.agents.operators", "headgate.agents.runtime.task.task"),
        *("headgate.core.task.task", "headgate.agents.job.derive.declaration", "headgate.agents.worker.participant"),
    }
    script = f"import sys, headgate.agents.cli.see.{verb}; print(sorted({heavy!r} & {{*sys.modules}}))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_what_is_said_in_several_lines_stands_in_one_line_of_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Spark's messages have several lines, and whoever processes a table takes each line for a row."""
    show_table(["TASK", "WHY"], [["Partition 0", "An error occurred.\n: it is no directory"], ["Partition 1", "-"]])
    assert capsys.readouterr().out == (
        "TASK         WHY\nPartition 0  An error occurred. : it is no directory\nPartition 1  -\n"
    )
