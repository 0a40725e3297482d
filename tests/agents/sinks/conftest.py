"""What the tests of sinks share: a real PostgreSQL, and a database of each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ...postgres import Server, running


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A server of this process."""
    with running() as server:
        yield server


class Target:
    """A database, and how a test reads it."""

    def __init__(self, url: str, connect: Callable[[], Any]) -> None:
        self.url = url
        self._connect = connect

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement."""
        link = self._connect()
        try:
            done = link.execute(statement)
            rows = [] if not done.description else done.fetchall()
            if hasattr(link, "commit"):
                link.commit()
            return rows
        finally:
            link.close()


@pytest.fixture(params=["sqlite", "duckdb", "postgresql"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """An empty database of each kind."""
    if request.param == "postgresql":
        import psycopg

        url = request.getfixturevalue("postgres").database()
        return Target(url, lambda: psycopg.connect(url))
    path = tmp_path / "target"
    if request.param == "sqlite":
        import sqlite3

        return Target(f"sqlite:///{path}", lambda: sqlite3.connect(path))
    import duckdb

    return Target(f"duckdb:///{path}", lambda: duckdb.connect(str(path)))
