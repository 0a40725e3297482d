"""What verbs print for people, as far as it can be seen without a broker."""

from __future__ import annotations

import pytest

from headgate.agents.cli import model
from headgate.agents.web.documents import model_document


def test_a_job_without_a_model_says_when_it_gets_one(capsys: pytest.CaptureFixture[str]) -> None:
    """A worker was started, and no run has begun: there is no version None."""
    model.show({"job": "sales/1", **model_document(None)})
    said = capsys.readouterr()
    assert said.out == "job    sales/1\nmodel  none yet: the leader makes it when the first run begins\n"
    assert "headgate plan" in said.err
