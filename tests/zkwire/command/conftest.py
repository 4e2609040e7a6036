"""A server in this process, and a client of it, for commands that run in this process too."""

from collections.abc import Iterator

import pytest

import zkwire
from zkwire.blocking import Portal
from zkwire.testing import Server


@pytest.fixture(scope="module")
def portal() -> Iterator[Portal]:
    """The event loop of the server and of the client, in a thread of its own."""
    with Portal() as made:
        yield made


@pytest.fixture
def server(portal: Portal, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server in memory, which the command finds in its environment."""
    with portal.enter(Server()) as made:
        monkeypatch.setenv("ZKWIRE_HOSTS", made.hosts)
        monkeypatch.delenv("ZKWIRE_AUTH", raising=False)
        yield made


@pytest.fixture
def zk(portal: Portal, server: Server) -> Iterator[zkwire.Client]:
    """A client of that server; its verbs are called by way of `portal`."""
    with portal.enter(zkwire.connect(server.hosts)) as made:
        yield made
