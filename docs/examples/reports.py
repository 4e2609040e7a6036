"""A web service with FastAPI whose workers all serve requests, and one of which has the scheduler, APScheduler's.

    pip install fastapi uvicorn apscheduler
    ZOOKEEPER=zk1:2181,zk2:2181,zk3:2181 uvicorn reports:app --workers 4
    curl http://localhost:8000/

A worker that loses its session stops its scheduler before another worker starts one; it goes on serving requests, and
waits for another turn.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

from apscheduler.schedulers.asyncio import AsyncIOScheduler  # type: ignore[import-untyped]
from fastapi import FastAPI, HTTPException, Request

import zkwire
from recipes import Term, only_one

INTERVAL = float(os.environ.get("INTERVAL", "60"))  # in seconds


async def report(token: int) -> None:
    """Do the work.  A store that remembers the greatest token refuses a worker that has been replaced."""
    print(f"report of the worker {os.getpid()} with token {token}", flush=True)


async def keep_schedule(term: Term) -> None:
    """Have the scheduler start the jobs until this is cancelled; at the end none of them runs any more."""
    running: set[asyncio.Task[Any]] = set()

    async def job() -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        task.add_done_callback(running.discard)
        await report(term.token)

    scheduler = AsyncIOScheduler(job_defaults={"coalesce": True})  # a job that is cancelled is not run once more
    scheduler.add_job(job, "interval", seconds=INTERVAL)
    scheduler.start()
    try:
        await asyncio.Event().wait()
    finally:
        scheduler.shutdown()
        await asyncio.sleep(0)  # it cancels the jobs that run in the next turn of the event loop, and does not wait
        while running:
            await asyncio.wait(running)


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One client for the worker, which serves at once: in a task of its own it waits for its turn, again and again."""
    async with zkwire.connect(os.environ["ZOOKEEPER"]) as zk:
        app.state.turns = only_one(zk, "/reports/scheduler")
        app.state.scheduling = asyncio.create_task(app.state.turns.run(keep_schedule))
        try:
            yield
        finally:
            app.state.scheduling.cancel()
            await asyncio.wait([app.state.scheduling])


app = FastAPI(lifespan=lifespan)


@app.get("/")
async def index(request: Request) -> dict[str, int | str | None]:
    """Which worker answers, and which one has the scheduler; 503 if this one cannot have it any more."""
    if request.app.state.scheduling.done():
        raise HTTPException(503, f"start this worker again: {request.app.state.scheduling}")
    leader = await request.app.state.turns.leader()
    return {"worker": os.getpid(), "scheduler": leader.data.decode() if leader else None}
