"""A web service that answers from the table of a stream: both are one program, and no other database is needed.

    pip install fastapi uvicorn
    headgate kafka up
    python examples/served_table.py                               # http://localhost:8000/totals/ann

It reads the topic `orders`, keeps what each customer has spent in a table, and answers with it. The rows are those of the newest commit.
Run it once: of several such programs, each has the customers of its own partitions, and says so of the others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException

import headgate as hg


def job(name: str = "served-table", orders: str = "orders") -> hg.App:
    """What is read, and what is kept."""
    app = hg.App(name)
    totals = app.table("totals", key=hg.text())

    @app.agent(app.input(orders).repartition("customer"))
    async def total(batches: hg.Batches) -> None:
        async for batch in batches:
            for order in batch.values:
                totals[order["customer"]] = totals.get(order["customer"], 0) + order["amount"]

    return app


def service(running: AbstractAsyncContextManager[hg.HostedWorker]) -> FastAPI:
    """A service that answers from the tables of a worker, which runs as long as the service does."""

    @asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncIterator[None]:
        async with running as api.state.worker:
            yield

    api = FastAPI(lifespan=lifespan)

    @api.get("/totals/{customer}")
    async def total_of(customer: str) -> dict[str, Any]:
        worker: hg.HostedWorker = api.state.worker
        try:
            found = worker.get("totals", customer)
        except hg.EnvironmentFault as error:  # the task of this customer is not restored yet, or another program has it
            raise HTTPException(503, str(error)) from error
        if found is None:
            raise HTTPException(404, f"{customer} has bought nothing")
        return {"customer": customer, "total": found}

    return api


if __name__ == "__main__":
    uvicorn.run(service(hg.running(job())), port=8000)
