"""The xids of a session: they go on over all its connections.

A server that follows matches commits to requests by session and xid alone: also the commit of a request that was sent
on a former connection.
"""

import zkwire
from tests.support.client import InOrder
from tests.support.virtual_time import Sent, Server, Wire, a_client, in_virtual_time


def xids(server: Server) -> list[int]:
    """Return the xids of the requests that have come, but for the handshakes and those with fixed xids."""
    return [sent.xid for sent in server.requests if sent.xid > 0]


def drop_the_next(server: Server, name: str) -> None:
    """Lose the connection when the next request of this name has come, and carry that one out no more."""

    def strike(wire: Wire, sent: Sent) -> bool | None:
        if sent.name != name:
            return None
        server.strike = lambda wire, sent: None
        wire.lose(None)
        return False

    server.strike = strike


@in_virtual_time
async def test_xids_go_on_from_one_connection_of_a_session_to_the_next_pitfall_84() -> None:
    async with a_client(auth=[("digest", b"a:b")]) as (server, zk):
        _, watch = await zk.exists_and_watch("/a")
        for _ in range(3):
            drop_the_next(server, "getChildren")  # it is sent again
            await zk.get_children("/")
        await zk.sync("/")
        names = [sent.name for sent in server.requests if sent.xid > 0]
        assert names == ["exists", *["getChildren", "setWatches", "getChildren"] * 3, "sync"]
        assert xids(server) == list(range(1, 12))
        watch.cancel()


class OneToken:
    """A mechanism that sends one token."""

    def start(self, host: str) -> bytes:
        return b"token"

    def step(self, token: bytes) -> None:
        return None


@in_virtual_time
async def test_xids_go_on_after_an_attempt_to_connect_that_has_failed_pitfall_84() -> None:
    async with a_client(sasl=OneToken()) as (server, zk):
        server.drop()
        drop_the_next(server, "sasl")
        await zk.sync("/")
        assert [sent.name for sent in server.requests] == ["connect", "sasl", "connect", "sasl", "sync"]
        assert xids(server) == [2, 3, 4]


@in_virtual_time
async def test_a_session_that_is_resumed_by_its_id_begins_at_a_random_xid_pitfall_84() -> None:
    async with a_client() as (server, zk):
        for seed in range(8):
            async with zkwire.connect(
                "a",
                open_link=server.open_link,
                session_id=zk.session_id,
                session_password=zk.session_password,
                rng=InOrder(seed),
            ) as resumed:
                await resumed.sync("/")
                await resumed.close(keep_session=True)
        firsts = xids(server)
        assert len(set(firsts)) == 8
        assert max(firsts) - min(firsts) > 2**28
