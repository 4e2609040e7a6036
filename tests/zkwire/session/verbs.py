"""Verbs of a client, by what a lost connection or a cancelled caller means for them.

Each is called with a `path` that exists and has the child "child".
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from zkwire import Client

Verb = Callable[[Client, str], Coroutine[Any, Any, object]]
Verbs = dict[str, Verb]

WATCHES: Final[Verbs] = {
    "exists_and_watch": lambda zk, path: zk.exists_and_watch(path),
    "exists_and_watch of nothing": lambda zk, path: zk.exists_and_watch(f"{path}/none"),
    "get_and_watch": lambda zk, path: zk.get_and_watch(path),
    "get_and_watch of nothing": lambda zk, path: zk.get_and_watch(f"{path}/none"),
    "get_children_and_watch": lambda zk, path: zk.get_children_and_watch(path),
}
EPHEMERAL: Final[Verbs] = {
    "create": lambda zk, path: zk.create(f"{path}/new", ephemeral=True),
    "create sequential": lambda zk, path: zk.create(f"{path}/n-", sequential=True, ephemeral=True),
    "create_and_stat sequential": lambda zk, path: zk.create_and_stat(f"{path}/n-", sequential=True, ephemeral=True),
}
WRITES: Final[Verbs] = {
    "create": lambda zk, path: zk.create(f"{path}/new"),
    "setData": lambda zk, path: zk.set(path, b"x"),
    "delete": lambda zk, path: zk.delete(f"{path}/child"),
    "multi": lambda zk, path: in_transaction(zk, path),
}


async def in_transaction(zk: Client, path: str) -> None:
    async with zk.transaction() as tx:
        tx.set(path, b"x")


def every_call(zk: Client, path: str) -> "list[asyncio.Task[Any]]":
    """A call of every kind, each as a task."""
    tx = zk.transaction()
    tx.create(f"{path}/tx")
    calls: list[Awaitable[Any]] = [
        zk.create(path),
        zk.create(path, make_parents=True),
        zk.create_and_stat(path),
        zk.ensure_path(f"{path}/a"),
        zk.exists(path),
        zk.exists_and_watch(path),
        zk.get(path),
        zk.get_and_watch(path),
        zk.get_children(path),
        zk.get_children_and_stat(path),
        zk.get_children_and_watch(path),
        zk.set(path, b""),
        zk.delete(path),
        zk.sync(path),
        zk.ping(),
        tx.commit(),
    ]
    return [asyncio.ensure_future(call) for call in calls]
