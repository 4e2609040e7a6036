"""What an observer sees: the end of every request, every event, every state; and the effect of its own failures."""

import asyncio
from typing import NamedTuple

import pytest

import zkwire
from zkwire import Observer, SessionState, WatchEventType
from zkwire.testing import Server

CONNECTING, CONNECTED, READ_ONLY, SUSPENDED, EXPIRED, AUTH_FAILED, CLOSED = SessionState


class Done(NamedTuple):
    operation: str
    path: str | None
    error: str


class Records(Observer):
    """Records everything but pings."""

    def __init__(self) -> None:
        self.requests: list[Done] = []
        self.seconds: list[float] = []
        self.events: list[tuple[WatchEventType, str, int | None]] = []
        self.states: list[tuple[SessionState, str]] = []

    def state_changed(self, state: SessionState, server: str) -> None:
        self.states.append((state, server))

    def request_done(self, operation: str, path: str | None, seconds: float, error: Exception | None) -> None:
        if operation != "ping":
            self.requests.append(Done(operation, path, type(error).__name__ if error else ""))
            self.seconds.append(seconds)

    def event_arrived(self, type: WatchEventType, path: str, zxid: int | None) -> None:
        self.events.append((type, path, zxid))


async def test_an_observer_sees_requests_events_and_states() -> None:
    """A transaction is one request, with the error of the operation that was refused."""
    seen = Records()
    async with Server() as server:
        async with zkwire.connect(f"{server.hosts}/app", observer=seen) as zk:
            await zk.ensure_path("/")
            await zk.create("/a", b"1")
            _, watch = await zk.get_and_watch("/a")
            stat = await zk.set("/a", b"2")
            await watch
            with pytest.raises(zkwire.BadVersionError):
                await zk.set("/a", b"3", version=0)
            for path in ("/a", "/b"):
                tx = zk.transaction()
                tx.create("/a" if path == "/a" else "/c")
                tx.create(path)
                tx.check("/", version=-1)
                if path == "/a":
                    with pytest.raises(zkwire.TransactionError):
                        await tx.commit()
                else:
                    await tx.commit()
            _, missing = await zk.get_many([zkwire.GetData("/b"), zkwire.GetData("/none")])
            assert isinstance(missing, zkwire.NoNodeError)  # of one read; the request itself succeeds
            tx = zk.transaction()
            tx.create("/d")
            with server.answering("multi", zkwire.ThrottledError), pytest.raises(zkwire.ThrottledError):
                await tx.commit()
            await zk.add_auth("digest", b"bob:secret")
        hosts = server.hosts
    assert seen.requests == [
        Done("exists", "/app", ""),
        Done("create", "/app", ""),
        Done("create", "/app/a", ""),
        Done("getData", "/app/a", ""),
        Done("setData", "/app/a", ""),
        Done("setData", "/app/a", "BadVersionError"),
        Done("multi", None, "NodeExistsError"),
        Done("multi", None, ""),
        Done("multiRead", None, ""),
        Done("multi", None, "ThrottledError"),
        Done("auth", None, ""),
        Done("closeSession", None, ""),
    ]
    assert all(0 < seconds < 15 for seconds in seen.seconds)
    assert seen.events == [(WatchEventType.CHANGED, "/app/a", stat.mzxid)]
    assert seen.states == [(CONNECTED, hosts), (CLOSED, hosts)]


async def test_an_observer_that_raises_has_no_other_effect() -> None:
    class Fails(Observer):
        def request_done(self, operation: str, path: str | None, seconds: float, error: Exception | None) -> None:
            raise LookupError(operation)

    complaints: list[BaseException] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context["exception"]))
    async with Server() as server, zkwire.connect(server.hosts, observer=Fails()) as zk:
        await zk.create("/a")
        assert (await zk.get("/a")).data == b""
    assert [str(error) for error in complaints] == ["create", "getData", "closeSession"]
