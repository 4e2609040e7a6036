"""A web service with FastAPI that places each order once; a leader among the processes; a health check.

    pip install fastapi uvicorn
    ZOOKEEPER=zk1:2181,zk2:2181,zk3:2181 uvicorn orders:app
    curl -X PUT http://localhost:8000/accounts/7/orders/a-1

SIGTERM ends it: uvicorn answers the requests that it has, then leaves `lifespan`, which resigns and closes the session.
A caller that gets no answer, or 503, repeats the request: the order's id shows that it was placed.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator

import store
from fastapi import FastAPI, HTTPException, Request

import zkwire
from recipes import Election, Lock, LockLostError


async def clean_up_while_leading(zk: zkwire.Client) -> None:
    """Run in every process, and work in one of them."""
    async for term in Election(zk, "/orders/cleaner").terms():
        async with term:  # cancelled when the leadership is lost; the loop then waits for the next term
            while True:
                await asyncio.sleep(60.0)  # the work: remove what is old


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One client for the process, from its start to its end."""
    async with zkwire.connect(os.environ["ZOOKEEPER"]) as zk:
        app.state.zk = zk
        cleaner = asyncio.create_task(clean_up_while_leading(zk))
        try:
            yield
        finally:
            cleaner.cancel()
            await asyncio.wait([cleaner])


app = FastAPI(lifespan=lifespan)


@app.put("/accounts/{account}/orders/{order}")
async def place_order(account: int, order: str, request: Request) -> dict[str, bool]:
    """Place an order, in one process at a time for each account; `placed` is False if it had been placed before."""
    lock = Lock(request.app.state.zk, f"/orders/accounts/{account}")
    try:
        async with lock.hold(within=2.0) as lease:  # cancelled when the lock is lost
            # A thread goes on after a cancellation, and a suspended process wakes up: the store looks at the token.
            return {"placed": await asyncio.to_thread(store.place, order, account, lease.token)}
    except (TimeoutError, LockLostError, zkwire.ZooKeeperError, store.StaleTokenError) as error:
        raise HTTPException(503, f"repeat the request, the order may not have been placed: {error}") from error


@app.get("/health")
async def health(request: Request) -> dict[str, str]:
    """For the load balancer: 503 while this process has no session, so that requests go to others."""
    zk: zkwire.Client = request.app.state.zk
    if zk.state is not zkwire.SessionState.CONNECTED:
        raise HTTPException(503, zk.state.name)
    return {"zookeeper": zk.state.name}
