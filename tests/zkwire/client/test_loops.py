"""A client in a second event loop, or in another thread: RuntimeError, where it would wait for ever (Pitfall 78)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import zkwire
from tests.support.everywhere import Scene, scene
from zkwire import GetData, WatchSet
from zkwire.session.keepalive import OnClosed, OnUncertain


async def _next(stream: Any) -> None:
    await anext(stream)


async def _entered(stage: Scene) -> Callable[[], Awaitable[object]]:
    events = await stage.zk.events("/").__aenter__()
    return lambda: _next(events)


async def _watch(stage: Scene) -> Callable[[], Awaitable[object]]:
    _, watch = await stage.zk.get_and_watch("/")

    async def wait() -> None:
        await watch

    return wait


async def _watch_set(stage: Scene) -> Callable[[], Awaitable[object]]:
    watches = WatchSet()
    await stage.zk.get_and_watch("/", into=watches)
    return watches.next


def _iterated(begin: Callable[[zkwire.Client], Any]) -> Callable[[Scene], Awaitable[Any]]:
    async def prepare(stage: Scene) -> Callable[[], Awaitable[object]]:
        values = begin(stage.zk)
        await anext(values)
        return lambda: _next(values)

    return prepare


def _verb(verb: Callable[[zkwire.Client], Awaitable[object]]) -> Callable[[Scene], Awaitable[Any]]:
    async def prepare(stage: Scene) -> Callable[[], Awaitable[object]]:
        async def call() -> None:
            await verb(stage.zk)

        return call

    return prepare


async def _commit(zk: zkwire.Client) -> None:
    await zk.transaction().commit()


async def _add(callbacks: OnUncertain | OnClosed) -> None:
    callbacks.add(lambda: None)


USES: dict[str, Callable[[Scene], Awaitable[Callable[[], Awaitable[object]]]]] = {
    "get": _verb(lambda zk: zk.get("/")),
    "pipeline": _verb(lambda zk: zk.pipeline([GetData("/")])),
    "ensure_path": _verb(lambda zk: zk.ensure_path("/a")),
    "discard": _verb(lambda zk: zk.discard("/a")),
    "add_auth": _verb(lambda zk: zk.add_auth("digest", b"bob:secret")),
    "an empty pipeline": _verb(lambda zk: zk.pipeline([])),
    "an empty get_many": _verb(lambda zk: zk.get_many([])),
    "ensure_path of the root": _verb(lambda zk: zk.ensure_path("/")),
    "an empty transaction": _verb(_commit),
    "certify": _verb(lambda zk: zk.certify()),
    "on_uncertain.add": _verb(lambda zk: _add(zk.on_uncertain)),
    "on_closed.add": _verb(lambda zk: _add(zk.on_closed)),
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
