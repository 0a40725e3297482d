"""What the tests of this room share."""

from __future__ import annotations

import pytest

from .forms import Form


@pytest.fixture(params=list(Form), ids=str, scope="session")
def form(request: pytest.FixtureRequest) -> Form:
    """The form in which a test declares its pipeline."""
    return request.param
