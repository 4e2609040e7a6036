"""Our verbs send what Apache's Java client sends for the same calls, seen from the wire by a proxy in between."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import zkwire
from tests.captures.java.record import RECONNECTS, load
from tests.support.proxy import Proxy
from tests.zkwire.wire.test_java_frames import ACCESS, MEMBER, without_session
from zkwire import Client, GetChildren, GetData
from zkwire.testing import Server

JAVA = load()


async def _transaction(zk: Client) -> None:
    async with zk.transaction() as tx:
        tx.check("/java", 0)
        tx.create("/java/t", b"data", ephemeral=True)
        tx.create("/java/tc", b"data", container=True)
        tx.create("/java/tt", b"data", ttl=60.0)
        tx.set("/java", b"data")
        tx.delete("/java/t", 0)


CALLS: dict[str, Callable[[Client], Awaitable[Any]]] = {
    "create": lambda zk: zk.create("/java", b"data"),
    "create ephemeral": lambda zk: zk.create("/java/ephemeral", b"data", ephemeral=True),
    "create sequential": lambda zk: zk.create("/java/s-", b"data", sequential=True),
    "create ephemeral sequential": lambda zk: zk.create("/java/es-", b"data", ephemeral=True, sequential=True),
    "create empty": lambda zk: zk.create("/java/empty"),
    "create container": lambda zk: zk.create("/java/container", b"data", container=True),
    "create with ttl": lambda zk: zk.create("/java/ttl", b"data", ttl=60.0),
    "create sequential with ttl": lambda zk: zk.create("/java/sttl-", b"data", sequential=True, ttl=60.0),
    "create and stat": lambda zk: zk.create_and_stat("/java/stat", b"data"),
    "create with acl": lambda zk: zk.create("/java/acl", b"data", acl=ACCESS),
    "exists": lambda zk: zk.exists("/java"),
    "get": lambda zk: zk.get("/java"),
    "get children": lambda zk: zk.get_children("/java"),
    "get children and stat": lambda zk: zk.get_children_and_stat("/java"),
    "set": lambda zk: zk.set("/java/stat", b"new"),
    "set a version": lambda zk: zk.set("/java/stat", b"data", version=1),
    "get acl": lambda zk: zk.get_acl("/java"),
    "set acl": lambda zk: zk.set_acl("/java/acl", ACCESS, version=0),
    "delete": lambda zk: zk.delete("/java/empty"),
    "delete a version": lambda zk: zk.delete("/java/stat", version=7),
    "sync": lambda zk: zk.sync("/java"),
    "count descendants": lambda zk: zk.count_descendants("/java"),
    "get ephemerals": lambda zk: zk.get_ephemerals(),
    "get ephemerals below": lambda zk: zk.get_ephemerals("/java"),
    "whoami": lambda zk: zk.whoami(),
    "transaction": _transaction,
    "get many": lambda zk: zk.get_many([GetData("/java"), GetChildren("/java/absent")]),
    "get config": lambda zk: zk.get_config(),
    "reconfigure a member": lambda zk: zk.reconfig(joining=[MEMBER], leaving=[8, 7]),
    "reconfigure the whole": lambda zk: zk.reconfig(
        members=["server.1=127.0.0.1:1:2;127.0.0.1:3"], from_config=0x100000000
    ),
    "add auth": lambda zk: zk.add_auth("digest", b"bob:secret"),
}

# They are the last calls before the connection is cut, and their watches go with it to the next one.
WATCHES: dict[str, Callable[[Client], Awaitable[tuple[Any, zkwire.Watch]]]] = {
    "exists and watch": lambda zk: zk.exists_and_watch("/java/absent"),
    "get and watch": lambda zk: zk.get_and_watch("/java"),
    "get children and watch": lambda zk: zk.get_children_and_watch("/java"),
}

PLAYED = ["connect", *CALLS, *WATCHES, "reconnect", "close"]


@pytest.fixture(scope="module")
def ours() -> dict[str, list[bytes]]:
    """The frames that each call of ours sends, under its name."""
    return asyncio.run(_play())


async def _play() -> dict[str, list[bytes]]:
    sent: dict[str, list[bytes]] = {}
    async with Server() as server, Proxy(server.hosts) as proxy:
        mark = 0

        def keep(name: str) -> None:
            nonlocal mark
            frames = [frame for frame in proxy.log[mark:] if frame.direction == "request" and frame.opcode != "ping"]
            sent[name] = [frame.payload for frame in frames]
            mark = proxy.mark()

        zk = await zkwire.connect(proxy.hosts, session_timeout=10.0)
        keep("connect")
        for name, call in CALLS.items():
            with contextlib.suppress(zkwire.ServerError):  # what the server thinks of it is not the question
                await call(zk)
            keep(name)
        watches = []
        for name, watch in WATCHES.items():
            watches.append((await watch(zk))[1])
            keep(name)
        proxy.cut()
        await proxy.seen(RECONNECTS["reconnect"], mark)
        keep("reconnect")
        for each in watches:
            each.cancel()
        await zk.ping()  # what giving them up may send is not of the closing
        mark = proxy.mark()
        await zk.close()
        keep("close")
    return sent


def test_each_call_of_the_java_program_is_played_or_has_no_verb_here() -> None:
    streams = {name for name in JAVA if "for good" in name or name.startswith("remove") or "persistent" in name}
    assert set(PLAYED) == set(JAVA) - streams - {"ping"}


@pytest.mark.parametrize("call", PLAYED)
def test_a_call_sends_what_the_java_client_sends(ours: dict[str, list[bytes]], call: str) -> None:
    first = call in ("connect", "reconnect")
    mine, theirs = (
        [without_session(frame, first=first and at == 0) for at, frame in enumerate(frames)]
        for frames in (ours[call], JAVA[call])
    )
    assert mine == theirs
