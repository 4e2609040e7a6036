"""A client in a second event loop, or in another thread: RuntimeError, where it would wait for ever (Pitfall 78)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import zkwire
from tests.support.everywhere import Scene, scene
from zkwire import GetData, WatchSet
from zkwire.client.requester import Requester
from zkwire.wire.requests import SyncRequest


async def _entered(stage: Scene) -> Callable[[], Awaitable[object]]:
    events = await stage.zk.events("/").__aenter__()
    return lambda: anext(events)


async def _watch(stage: Scene) -> Callable[[], Awaitable[object]]:
    _, watch = await stage.zk.get_and_watch("/")
    return lambda: watch


async def _watch_set(stage: Scene) -> Callable[[], Awaitable[object]]:
    watches = WatchSet()
    await stage.zk.get_and_watch("/", into=watches)
    return watches.next


def _iterated(begin: Callable[[zkwire.Client], Any]) -> Callable[[Scene], Awaitable[Any]]:
    async def prepare(stage: Scene) -> Callable[[], Awaitable[object]]:
        values = begin(stage.zk)
        await anext(values)
        return lambda: anext(values)

    return prepare


def _verb(verb: Callable[[zkwire.Client], Any]) -> Callable[[Scene], Awaitable[Any]]:
    async def prepare(stage: Scene) -> Callable[[], Awaitable[object]]:
        return lambda: verb(stage.zk)

    return prepare


USES: dict[str, Callable[[Scene], Awaitable[Callable[[], Awaitable[object]]]]] = {
    "get": _verb(lambda zk: zk.get("/")),
    "request_timeout": _verb(lambda zk: Requester(zk._session, "", zk._requester._rng, 1.0).ask(SyncRequest("/"))),
    "pipeline": _verb(lambda zk: zk.pipeline([GetData("/")])),
    "ensure_path": _verb(lambda zk: zk.ensure_path("/a")),
    "discard": _verb(lambda zk: zk.discard("/a")),
    "add_auth": _verb(lambda zk: zk.add_auth("digest", b"bob:secret")),
    "an empty pipeline": _verb(lambda zk: zk.pipeline([])),
    "an empty get_many": _verb(lambda zk: zk.get_many([])),
    "ensure_path of the root": _verb(lambda zk: zk.ensure_path("/")),
    "an empty transaction": _verb(lambda zk: zk.transaction().commit()),
    "certify": _verb(lambda zk: zk.certify()),
    "on_uncertain.add": _verb(lambda zk: zk.on_uncertain.add(lambda: None)),
    "on_closed.add": _verb(lambda zk: zk.on_closed.add(lambda: None)),
    "close": _verb(lambda zk: zk.close()),
    "events": _entered,
    "watch": _watch,
    "watch set": _watch_set,
    "data": _iterated(lambda zk: zk.data("/")),
    "states": _iterated(lambda zk: zk.states()),
}


@pytest.mark.parametrize("use", USES)
async def test_the_use_in_another_event_loop_raises(use: str) -> None:
    async with scene() as stage:
        call = await USES[use](stage)

        async def limited() -> None:
            async with asyncio.timeout(2):
                await call()

        with pytest.raises(RuntimeError, match="belongs to another event loop"):
            await asyncio.to_thread(asyncio.run, limited())
        assert stage.zk.state is zkwire.SessionState.CONNECTED
        assert (await stage.zk.get("/")).data == b""
