"""What the tests of this room share."""

from __future__ import annotations

import pytest

from headgate.agents.records.native import chosen

from .forms import Form


@pytest.fixture(params=list(Form), ids=str, scope="session")
def form(request: pytest.FixtureRequest) -> Form:
    """The form in which a test declares its pipeline."""
    return request.param


@pytest.fixture(params=["compiled", "plain"])
def either_part(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the compiled part and without."""
    if request.param == "plain":
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)
    elif chosen.COMPILED is None:
        pytest.skip("the compiled part is not built here")
