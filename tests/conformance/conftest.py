"""The servers on which the conformance suite runs, and the clients of its tests."""

import functools
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest

import zkwire
from tests.support.client import Server
from tests.support.proxy import Proxy

CLIENTS = ("zk", "other", "app")
ENTERED = {"proxy", *CLIENTS}


@pytest.fixture(params=["zookeeper", pytest.param("memory", marks=pytest.mark.memory)])
def server(request: pytest.FixtureRequest) -> Server:
    """One of the servers; tests use its `hosts` only, and nodes below their own `path`."""
    chosen: Server = request.getfixturevalue(request.param)
    return chosen


@pytest.fixture
def proxy(server: Server) -> str:
    """A proxy before the server; `zk` is connected through it."""
    return server.hosts


@pytest.fixture
def zk(server: Server) -> str:
    """A client of the server, which is connected for the test and closed after it."""
    return server.hosts


@pytest.fixture
def other(server: Server) -> str:
    """Another client of the server."""
    return server.hosts


@pytest.fixture
def app(server: Server, path: str) -> str:
    """A client with the test's own path as its chroot."""
    return server.hosts + path


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    if ENTERED & set(pyfuncitem.fixturenames):
        pyfuncitem.obj = _with_clients(pyfuncitem.obj)


def _with_clients(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Coroutine[Any, Any, None]]:
    """Return the test as it runs in its event loop: there is no client before."""

    @functools.wraps(test)
    async def run(**given: Any) -> None:
        async with AsyncExitStack() as stack:
            if "proxy" in given:
                given["proxy"] = await stack.enter_async_context(Proxy(given["proxy"]))
                given["zk"] = given["proxy"].hosts
            for name in CLIENTS:
                if name in given:
                    given[name] = await stack.enter_async_context(zkwire.connect(given[name]))
            await test(**given)

    return run
