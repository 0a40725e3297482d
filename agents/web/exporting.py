"""The rows of one task's part of a table, as a stream: `GET /api/export/{table}?task=`, for `headgate state export`.

    {"table": "spent", "task": "Partition 0", "worker": "w1", "commit": 97, "age_ms": 12,
     "keys": "text", "fields": {"n": "int"}, "broadcast": false}        `fields`: as the table declares them, or null
    {"key": "ann", "value": {…}}                                    one line for each row
    {"rows": 1}                                                     nothing is missing

Promises: all rows are of the commit that the first line names, however long it takes, while the task goes on: one iterator of RocksDB,
which sees the store of the moment in which it was made. The worker holds one page of rows in memory, and goes on with its work between two
pages. A stream without its last line is not complete: the task has left this worker meanwhile, or the connection broke.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import islice
from typing import Any

from ...core.errors import HeadgateError
from ..queries.committed import written
from ..queries.json_keys import decoded
from .queries import Queries

ROWS = 200
"""How many rows are read in one turn of the worker's loop."""


async def export_lines(queries: Queries, table: str, task: str, meant: str) -> AsyncGenerator[bytes]:
    """The lines, some at a time. What cannot be exported raises with the first ones; what goes wrong later is an error in the last line."""
    asked, part, commit = queries.opened(table, task, meant)
    rows = part.rows(b"", None)
    page = list(islice(rows, ROWS))  # the iterator is made here, in the turn of `opened`
    head = {"keys": asked.key.name, "fields": asked.fields, "broadcast": asked.broadcast}
    yield written({"table": asked.name, **commit, **head}) + b"\n"
    count = 0
    try:
        while page:
            lines = [written({"key": decoded(asked.key, key), "value": value}) for key, value in page]
            count += len(lines)
            yield b"\n".join(lines) + b"\n"
            await asyncio.sleep(0)
            page = list(islice(rows, ROWS))
    except HeadgateError as error:
        yield written({"error": error.what, "remedy": error.remedy}) + b"\n"
        return
    yield written({"rows": count}) + b"\n"


async def streamed(request: Any, lines: AsyncGenerator[bytes]) -> Any:
    """The response that sends them as fast as they are read."""
    from aiohttp.web import StreamResponse

    async with aclosing(lines):
        first = await anext(lines)  # raises before anything is sent
        response = StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        await response.write(first)
        async for some in lines:
            await response.write(some)
        await response.write_eof()
        return response
