"""Rows of a letter without a chunk: results of windows and of Spark, rows whose wait for a partner is over, what actors forward at timers.

Decides: what becomes of such a row if a function behind it fails on it. A chunk is tried again without the record that failed; here there
is no chunk, so the row alone is left out, if `on_error` of the step that failed (else of the app) says so.

Promises: a row that is left out is counted, and logged or made a dead letter. The rows beside it arrive in their order, each once. Where a
failed call may have left something behind (a table of the app), no row is left out and the task fails.
"""

from __future__ import annotations

from typing import Any

from ...logger import Logger
from ...records.columns.records import Records
from ..base.stateless import Operator, UserCodeError
from .failures import answer_for_result, failure_headers
from .letters import bury, row_bytes

log = Logger("headgate.task")


def push_result(child: Operator, rows: Records) -> None:
    """Push rows to this operator, and leave out those on which its own function fails, as its policy says."""
    policy = policy_of_results(child)
    if policy == "fail":
        child.push(rows)
        return
    if child.step.at_once:
        try:
            child.push(rows)
        except UserCodeError as error:
            if error.step is not child.step:
                raise
        else:
            return
    for place in range(len(rows)):
        row = rows.at([place])
        try:
            child.push(row)
        except UserCodeError as error:
            if error.step is not child.step:
                raise
            leave_out(child, row, error)


def policy_of_results(operator: Operator) -> Any:
    """The policy for a single row on which this operator fails."""
    step, app = operator.step, operator.env.app
    return (step.on_error or app.on_error) if step.alone and not app.tables else "fail"


def leave_out(operator: Operator, row: Records, error: UserCodeError, policy: Any = None) -> None:
    """Leave out a row as the operator's policy says (or this one); raise `error` if the policy is to fail."""
    env: Any = operator.env
    cause = error.__cause__ or error
    answer = answer_for_result(policy or policy_of_results(operator), next(iter(row.records())), cause)
    if answer == "fail":
        raise error
    env.failed(operator.step, cause)
    if answer == "skip":
        env.count("records_skipped")
        log.warning(
            "a result is left out", task=env.task, step=operator.step.name or operator.step.verb, error=str(error)
        )
        return
    env.count("dead_letters")
    headers = [
        *(row.headers[0] if row.headers else ()),
        ("hg-topic", ",".join(sorted(env.reads.get(id(operator), ()))).encode()),
        ("hg-timestamp", str(row.timestamps[0]).encode()),
        *failure_headers(env.task, operator.step, cause, ("hg-result", b"")),
    ]
    bury(env, _key(env, row), row_bytes(row.values[0]), headers)


def _key(env: Any, row: Records) -> bytes | None:
    if row.keys is None or row.key_serde is not None:
        return None if row.keys is None else row.keys[0]
    encoded = env.app.output_key_serde.dumps_many(row.keys)
    return None if encoded.bad else encoded.values[0]
