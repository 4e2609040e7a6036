"""Helpers for the tests of the queue."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import zkwire
from recipes import Queue
from recipes.queue.order import in_order
from tests.support.everywhere import Scene, below
from tests.support.recipes import until
from zkwire import Client, GetData, WatchEventType
from zkwire.testing import Server

PATH = "/queue"

# The nodes of a queue that may exist at the end of a play; `contents` looks into them.
STAYS = ("entries*", "taken*", "consumers*", "producers*", "room*", "attempts*", "failed*", "delayed*")


@asynccontextmanager
async def clients(count: int = 2, **options: Any) -> AsyncIterator[tuple[Server, list[Client]]]:
    """An in-memory server and clients of it."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(Server())
        yield server, [await stack.enter_async_context(zkwire.connect(server.hosts, **options)) for _ in range(count)]


class Counting(zkwire.Observer):
    """Records the events of a client, and its requests by name."""

    def __init__(self) -> None:
        self.events: list[tuple[WatchEventType, str]] = []
        self.requests: list[str] = []

    def event_arrived(self, type: WatchEventType, path: str, zxid: int | None) -> None:
        self.events.append((type, path))

    def request_done(self, operation: str, path: str | None, seconds: float, error: Exception | None) -> None:
        self.requests.append(operation)


def numbers(*bounds: int) -> list[bytes]:
    """The numbers of a range, as the data of items."""
    return [b"%d" % number for number in range(*bounds)]


async def hold(queue: Queue) -> bytes:
    """Claim an item until the task is cancelled."""
    async with queue.claim():
        return await asyncio.Event().wait() and b""


async def drain(queue: Queue) -> list[bytes]:
    """Take all items out of the queue."""
    found = []
    while await queue.size():
        found.append(await queue.get())
    return found


async def take_by_get(queue: Queue) -> bytes:
    """Take an item that is there by `get`."""
    return await queue.get(within=0)


async def take_by_claim(queue: Queue) -> bytes:
    """Take an item that is there by `claim`."""
    async with queue.claim(within=0) as item:
        return item.data


async def is_empty(zk: Client, path: str) -> bool:
    """Whether the node at `path` has no children."""
    return not await zk.get_children(path)


async def three_are_there(stage: Scene) -> None:
    await Queue(stage.other, stage.path).put_many(numbers(3))


async def settled(zk: Client, path: str) -> None:
    """Wait until no item is taken and no ephemeral node is left: no claim, write receipt or ticket.

    Servers before 3.6 cannot list a session's ephemeral nodes, so each node is looked at.
    """
    left: list[str] = []

    async def is_free() -> bool:
        nonlocal left
        await zk.sync(path)
        stats = {node: await zk.exists(node) for node in await below(zk, path)}
        left = [
            node
            for node, stat in stats.items()
            if stat is not None and (stat.ephemeral_owner or node.startswith(f"{path}/taken/"))
        ]
        return not left

    await until(is_free, what=lambda: f"ephemeral nodes stay: {left}")


async def contents(stage: Scene) -> list[bytes]:
    """Wait until nothing is held, then empty the queue with the undisturbed client; return its items in order."""
    await settled(stage.other, stage.path)
    try:
        names = in_order(await stage.other.get_children(f"{stage.path}/entries"), base=0)
    except zkwire.NoNodeError:
        return []
    nodes = await stage.other.get_many([GetData(f"{stage.path}/entries/{name}") for name in names])
    for name in names:
        await stage.other.delete(f"{stage.path}/entries/{name}")
    assert not [node for node in nodes if isinstance(node, zkwire.ServerError)]
    return [node.data for node in nodes if isinstance(node, zkwire.Node)]
