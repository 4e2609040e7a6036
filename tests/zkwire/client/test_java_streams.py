"""Our event streams send what Apache's Java client sends for watches that stay, seen from the wire by a proxy."""

import asyncio
from contextlib import AsyncExitStack

import pytest

import zkwire
from tests.captures.java.record import RECONNECTS, load
from tests.support.proxy import Proxy
from tests.zkwire.wire.test_java_frames import without_session
from zkwire.testing import Server

JAVA = load()
CUT = "reconnect with persistent watches"
# Entered in the order in which the Java client's hash table has them after the cut.
STREAMS = {
    "watch another for good": ("/java/another", False),
    "watch for good": ("/java/one", False),
    "watch a tree for good": ("/java/tree", True),
}


@pytest.fixture(scope="module")
def ours() -> dict[str, list[bytes]]:
    """The frames that each call of ours sends, under its name."""
    return asyncio.run(_play())


async def _play() -> dict[str, list[bytes]]:
    sent: dict[str, list[bytes]] = {}
    async with (
        Server() as server,
        Proxy(server.hosts) as proxy,
        zkwire.connect(proxy.hosts) as zk,
        AsyncExitStack() as others,
    ):
        await zk.create("/java")
        await zk.exists_and_watch("/java/absent")
        await zk.get_and_watch("/java")
        await zk.get_children_and_watch("/java")
        one = zk.events("/java/one")
        mark = proxy.mark()

        def keep(name: str) -> None:
            nonlocal mark
            frames = [frame for frame in proxy.log[mark:] if frame.direction == "request" and frame.opcode != "ping"]
            sent[name] = [frame.payload for frame in frames]
            mark = proxy.mark()

        for name, (path, recursive) in STREAMS.items():
            if path == "/java/one":
                await one.__aenter__()
            else:
                await others.enter_async_context(zk.events(path, recursive=recursive))
            keep(name)
        proxy.cut()
        await proxy.seen(RECONNECTS[CUT], mark)
        keep(CUT)
        await one.__aexit__(None, None, None)
        await zk.ping()
        keep("remove all watches")
    return sent


@pytest.mark.parametrize("call", [*STREAMS, "remove all watches"])
def test_a_stream_sends_what_the_java_client_sends(ours: dict[str, list[bytes]], call: str) -> None:
    mine, theirs = ([without_session(frame, first=False) for frame in frames] for frames in (ours[call], JAVA[call]))
    assert mine == theirs


def test_what_is_watched_for_good_is_set_again_as_the_java_client_does_it(ours: dict[str, list[bytes]]) -> None:
    """The credentials that the Java client shows before are the affair of other tests."""
    mine, theirs = (without_session(frames[-1], first=False) for frames in (ours[CUT], JAVA[CUT]))
    assert mine == theirs
