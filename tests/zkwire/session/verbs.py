"""The verbs of a client, by what a lost connection or a cancelled caller means for them.

Each is given with the opcode that it sends; `path` exists and has the child "child".
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import zkwire
from zkwire import Client

Verb = Callable[[Client, str], Coroutine[Any, Any, object]]
Verbs = dict[str, tuple[str, Verb]]

READS: Verbs = {
    "exists": ("exists", lambda zk, path: zk.exists(path)),
    "get": ("getData", lambda zk, path: zk.get(path)),
    "get_children": ("getChildren", lambda zk, path: zk.get_children(path)),
    "get_children_and_stat": ("getChildren2", lambda zk, path: zk.get_children_and_stat(path)),
    "sync": ("sync", lambda zk, path: zk.sync(path)),
}
WATCHES: Verbs = {
    "exists_and_watch": ("exists", lambda zk, path: zk.exists_and_watch(path)),
    "exists_and_watch of nothing": ("exists", lambda zk, path: zk.exists_and_watch(f"{path}/none")),
    "get_and_watch": ("getData", lambda zk, path: zk.get_and_watch(path)),
    "get_and_watch of nothing": ("getData", lambda zk, path: zk.get_and_watch(f"{path}/none")),
    "get_children_and_watch": ("getChildren", lambda zk, path: zk.get_children_and_watch(path)),
}
CREATES: Verbs = {
    "create": ("create", lambda zk, path: zk.create(f"{path}/new")),
    "create ephemeral": ("create", lambda zk, path: zk.create(f"{path}/new", ephemeral=True)),
    "create sequential": ("create", lambda zk, path: zk.create(f"{path}/n-", sequential=True)),
    "create both": ("create", lambda zk, path: zk.create(f"{path}/n-", sequential=True, ephemeral=True)),
    "create container": ("createContainer", lambda zk, path: zk.create(f"{path}/new", container=True)),
    "create_and_stat": ("create2", lambda zk, path: zk.create_and_stat(f"{path}/new")),
    "create_and_stat both": (
        "create2",
        lambda zk, path: zk.create_and_stat(f"{path}/n-", sequential=True, ephemeral=True),
    ),
    "create make_parents": ("create", lambda zk, path: zk.create(f"{path}/new", make_parents=True)),
    "create ttl": ("createTTL", lambda zk, path: zk.create(f"{path}/new", ttl=60.0)),
}
WRITES: Verbs = {
    "set": ("setData", lambda zk, path: zk.set(path, b"x")),
    "delete": ("delete", lambda zk, path: zk.delete(f"{path}/child")),
    "transaction": ("multi", lambda zk, path: in_transaction(zk, path)),
    "set_acl": ("setACL", lambda zk, path: zk.set_acl(path, zkwire.OPEN_ACL)),
}
OF_SEVERAL_REQUESTS: Verbs = {
    "ensure_path": ("create", lambda zk, path: zk.ensure_path(f"{path}/new")),
    "delete_tree": ("getChildren2", lambda zk, path: zk.delete_tree(f"{path}/child")),
}
ALL = READS | WATCHES | CREATES | WRITES | OF_SEVERAL_REQUESTS


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
