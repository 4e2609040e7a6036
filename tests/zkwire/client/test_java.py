"""Our verbs and streams send the same bytes as Apache's Java client for the same calls, as recorded by a proxy."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import zkwire
from tests.captures.java.record import RECONNECTS, load
from tests.support.proxy import Proxy
from zkwire import Client, GetChildren, GetData
from zkwire.testing import Server
from zkwire.wire import multi, requests
from zkwire.wire.records import ACL, ConnectRequest
from zkwire.wire.requests import Request, SetWatches2Request, SetWatchesRequest

BY_OPCODE = {
    kind.opcode: kind
    for module in (requests, multi)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Request) and kind is not Request and not kind.is_recovered
}

JAVA = load()
ACCESS = [ACL(3, "digest", "bob:cq6eTOxUOJwfRYn8EPGDQQAZVzE="), ACL(31, "world", "anyone")]
MEMBER = "server.9=127.0.0.1:1:2;127.0.0.1:3"
SET_WATCHES = (SetWatchesRequest.opcode, SetWatches2Request.opcode)


def without_session(frame: bytes, *, first: bool) -> bytes:
    """Return the frame of a client with zeros in place of what differs from session to session.

    This includes xids that count requests, and the xid of SetWatches: the Java client names it -8 but counts it.
    """
    if first:  # the newest zxid; the session's id and password
        return frame[:4] + bytes(8) + frame[12:16] + bytes(8) + frame[24:28] + bytes(16) + frame[44:]
    xid, opcode = (int.from_bytes(frame[at : at + 4], "big", signed=True) for at in (0, 4))
    if opcode in SET_WATCHES:  # the newest zxid
        return bytes(4) + frame[4:8] + bytes(8) + frame[16:]
    return (bytes(4) if xid > 0 else frame[:4]) + frame[4:]


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

# The last calls before the connection is cut: SetWatches sets their watches again on the next one.
WATCHES: dict[str, Callable[[Client], Awaitable[tuple[Any, zkwire.Watch]]]] = {
    "exists and watch": lambda zk: zk.exists_and_watch("/java/absent"),
    "get and watch": lambda zk: zk.get_and_watch("/java"),
    "get children and watch": lambda zk: zk.get_children_and_watch("/java"),
}

PLAYED = ["connect", *CALLS, *WATCHES, "reconnect", "close"]


class Recording:
    """The frames that go through a proxy, by the name of the call that has sent them."""

    def __init__(self, proxy: Proxy) -> None:
        self.sent: dict[str, list[bytes]] = {}
        self._proxy = proxy
        self.mark = proxy.mark()

    def keep(self, name: str) -> None:
        frames = self._proxy.log[self.mark :]
        self.sent[name] = [f.payload for f in frames if f.direction == "request" and f.opcode != "ping"]
        self.mark = self._proxy.mark()


@pytest.fixture(scope="module")
def ours() -> dict[str, list[bytes]]:
    """The frames that each of our calls sends, by its name."""
    return asyncio.run(_play_calls())


async def _play_calls() -> dict[str, list[bytes]]:
    async with Server() as server, Proxy(server.hosts) as proxy:
        recording = Recording(proxy)
        zk = await zkwire.connect(proxy.hosts, session_timeout=10.0)
        recording.keep("connect")
        for name, call in CALLS.items():
            with contextlib.suppress(zkwire.ServerError):  # only the request matters here
                await call(zk)
            recording.keep(name)
        watches = []
        for name, watch in WATCHES.items():
            watches.append((await watch(zk))[1])
            recording.keep(name)
        proxy.drop()
        await proxy.seen(RECONNECTS["reconnect"], recording.mark)
        recording.keep("reconnect")
        for each in watches:
            each.cancel()
        await zk.ping()  # requests that remove the watches do not belong to the close
        recording.mark = proxy.mark()
        await zk.close()
        recording.keep("close")
    return recording.sent


def test_each_call_of_the_java_program_is_played_or_has_no_verb_here() -> None:
    of_streams = {name for name in JAVA if "for good" in name or name.startswith("remove") or "persistent" in name}
    assert set(PLAYED) == set(JAVA) - of_streams - {"ping"}


@pytest.mark.parametrize("call", PLAYED)
def test_a_call_sends_what_the_java_client_sends(ours: dict[str, list[bytes]], call: str) -> None:
    first = call in ("connect", "reconnect")
    mine, theirs = (
        [without_session(frame, first=first and at == 0) for at, frame in enumerate(frames)]
        for frames in (ours[call], JAVA[call])
    )
    assert mine == theirs


@pytest.mark.parametrize("call", JAVA)
def test_a_request_of_the_java_client_is_decoded_and_encoded_to_the_same_bytes(call: str) -> None:
    for number, frame in enumerate(JAVA[call]):
        is_handshake = number == 0 and (call == "connect" or call.startswith("reconnect"))
        kind: Any = ConnectRequest if is_handshake else BY_OPCODE[int.from_bytes(frame[4:8], "big", signed=True)]
        start = 0 if is_handshake else 8
        read, end = kind.decode(frame, start)
        assert end == len(frame)
        assert read.encode() == frame[start:]
