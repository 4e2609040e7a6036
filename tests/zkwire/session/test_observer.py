"""What an observer sees: the end of every request, every event, every state; and the effect of its own failures."""

import asyncio

import pytest

import zkwire
from tests.support.observer import Records
from tests.support.recipes import outcome
from zkwire import Observer, SessionState, WatchEventType
from zkwire.testing import Server

CONNECTING, CONNECTED, READ_ONLY, SUSPENDED, EXPIRED, AUTH_FAILED, CLOSED = SessionState


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
                tx.create(path)
                tx.check("/", version=-1)
                await outcome(tx.commit())
            _, missing = await zk.get_many([zkwire.GetData("/b"), zkwire.GetData("/none")])
            assert isinstance(missing, zkwire.NoNodeError)  # of one read; the request itself succeeds
            tx = zk.transaction()
            tx.create("/d")
            with server.answering("multi", zkwire.ThrottledError), pytest.raises(zkwire.ThrottledError):
                await tx.commit()
            await zk.add_auth("digest", b"bob:secret")
        hosts = server.hosts
    assert seen.requests == [
        ("exists", "/app", ""),
        ("create", "/app", ""),
        ("create", "/app/a", ""),
        ("getData", "/app/a", ""),
        ("setData", "/app/a", ""),
        ("setData", "/app/a", "BadVersionError"),
        ("multi", None, "NodeExistsError"),
        ("multi", None, ""),
        ("multiRead", None, ""),
        ("multi", None, "ThrottledError"),
        ("auth", None, ""),
        ("closeSession", None, ""),
    ]
    assert all(0 <= seconds < 15 for seconds in seen.seconds)
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
