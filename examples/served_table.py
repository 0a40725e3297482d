"""A web service that answers from the table of a stream: both are one program, and no other database is needed.

    headgate kafka up
    python examples/served_table.py                               # http://localhost:8000/totals/ann

It reads the topic `orders`, keeps what each customer has spent in a table, and answers with it. The rows are those of the newest commit.
Run it once: of several such programs, each has the customers of its own partitions, and says so of the others. With FastAPI, the block
stands in the function `lifespan` and the handler is a route; the rest is the same.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

import headgate as hg

WORKER: web.AppKey[hg.HostedWorker] = web.AppKey("worker", hg.HostedWorker)


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


async def total_of(request: web.Request) -> web.Response:
    """What a customer has spent."""
    customer = request.match_info["customer"]
    try:
        found = request.app[WORKER].get("totals", customer)
    except hg.EnvironmentFault as error:  # the task of this customer is not restored yet, or another program has it
        return web.json_response({"error": str(error)}, status=503)
    if found is None:
        return web.json_response({"error": f"{customer} has bought nothing"}, status=404)
    return web.json_response({"customer": customer, "total": found})


async def serve(worker: hg.HostedWorker, port: int) -> web.AppRunner:
    """A web server that answers from the tables of this worker."""
    app = web.Application()
    app[WORKER] = worker
    app.router.add_get("/totals/{customer}", total_of)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "localhost", port).start()
    return runner


async def main() -> None:
    """Until Ctrl-C, or until the run of the job ends."""
    async with hg.running(job()) as worker:
        runner = await serve(worker, 8000)
        try:
            await worker.ended()
        finally:
            await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
