"""Connections to the databases that `to_sql` writes to, and what their errors mean.

What decides which library speaks to a database is a measurement, of 10,000 rows of four columns in a batch, in thousand rows a second:

    PostgreSQL   psycopg: COPY 340, COPY and INSERT … ON CONFLICT 170, executemany 25 and 40; SQLAlchemy core, upsert 50; ADBC, append 460
    SQLite       sqlite3: executemany, upsert 420
    DuckDB       duckdb: an Arrow table, upsert 540, append 680

ADBC cannot upsert and needs a library of its own, so PostgreSQL has one way for both: COPY.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from urllib.parse import unquote, urlsplit

from ...core.errors import DeclarationError
from ...core.secrets import masked
from .sql import Database

ONE_WRITER = ("sqlite", "duckdb")
"""Databases in a file, which have one writer at a time."""
LIBRARIES = {"postgresql": "psycopg", "sqlite": "sqlite3", "duckdb": "duckdb"}


def database_of(url: object) -> str:
    """Which database a URL names. Raises `DeclarationError`.

    >>> database_of("postgresql://me@db/sales"), database_of("sqlite:////data/sales.db")
    ('postgresql', 'sqlite')
    """
    if not isinstance(url, str):
        raise DeclarationError(f"to_sql({url!r:.80}): this is no URL", remedy="to_sql('postgresql://me@db/sales', …)")
    scheme = {"postgres": "postgresql"}.get(found := urlsplit(url).scheme, found)
    if scheme not in LIBRARIES:
        raise DeclarationError(
            f"to_sql('{masked(url)}'): there is no sink for '{scheme}'",
            remedy=f"one of {', '.join(sorted(LIBRARIES))}; for others write a sink of your own: .to_sink(…)",
        )
    if scheme in ONE_WRITER and not file_of(url).startswith("/"):
        raise DeclarationError(
            f"to_sql('{url}'): the path of the file is not absolute, and workers may run in different directories",
            remedy=f"four slashes: {scheme}:////data/sales.db",
        )
    if importlib.util.find_spec(LIBRARIES[scheme]) is None:
        raise DeclarationError(
            f"to_sql('{masked(url)}') needs {LIBRARIES[scheme]}, which is not installed",
            remedy="pip install 'headgate[sql]'",
        )
    return scheme


def file_of(url: str) -> str:
    """The file of a URL with three slashes, or four if its path is absolute.

    >>> file_of("sqlite:////data/a%20b.db"), file_of("sqlite:///a.db")
    ('/data/a b.db', 'a.db')
    """
    return unquote(urlsplit(url).path).removeprefix("/")


def connecting(database: str) -> Callable[[str], Database]:
    """What connects to a database. Its library is imported when a worker connects."""

    def connect(url: str) -> Database:
        if database == "postgresql":
            from .postgres import Postgres

            return Postgres(url)
        if database == "sqlite":
            from .sqlite import Sqlite

            return Sqlite(file_of(url))
        from .duck import Duck

        return Duck(file_of(url))

    return connect
