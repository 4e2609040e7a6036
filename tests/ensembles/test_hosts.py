"""The list of servers changes while the client runs: by set_hosts, and by the ensemble's configuration."""

import asyncio
import random
import socket
from collections.abc import Callable

import pytest

import zkwire
from tests.support.client import InOrder, states_until, turns
from tests.support.proxy import Proxy
from zkwire import SessionState, WatchEventType
from zkwire.session.opening import open_link
from zkwire.session.transport import Link
from zkwire.testing import EnsembleServer, RealEnsemble, RealServer

CONNECTING, CONNECTED, READ_ONLY, SUSPENDED, EXPIRED, AUTH_FAILED, CLOSED = SessionState


class Stays(InOrder):
    """Randomness by which a client never moves to another server."""

    def random(self) -> float:
        return 0.0


class Moves(InOrder):
    """Randomness by which a client moves whenever it may."""

    def random(self) -> float:
        return 0.999


async def test_a_server_that_is_no_longer_listed_is_left_without_losing_anything(
    zookeeper: RealServer, path: str
) -> None:
    """The old server answers requests under way, waiting ones go to the new server, and watches move too."""
    async with (
        Proxy(zookeeper.hosts) as old,
        Proxy(zookeeper.hosts) as new,
        zkwire.connect(old.hosts, max_in_flight=3) as zk,
    ):
        await zk.create(path, ephemeral=True)
        _, watch = await zk.get_and_watch(path)
        session_id, states = zk.session_id, zk.states()
        sets = [asyncio.create_task(zk.set(path, b"%d" % number)) for number in range(20)]
        await turns(2)
        zk.set_hosts(new.hosts)
        outcomes = await asyncio.gather(*sets, return_exceptions=True)
        assert [getattr(outcome, "version", outcome) for outcome in outcomes] == list(range(1, 21))
        assert await states_until(states, SUSPENDED) == [CONNECTED, SUSPENDED]
        assert await states_until(states, CONNECTED) == [CONNECTED]
        assert (zk.server, zk.session_id) == (new.hosts, session_id)
        assert (await watch).type is WatchEventType.CHANGED
        _, watch = await zk.get_and_watch(path)
        await zk.set(path, b"seen from here")
        assert (await watch).type is WatchEventType.CHANGED
        await old.until(lambda: old.open == 0)
        assert old.requests().count("setData") + new.requests().count("setData") == 21
        assert new.requests()[0] == "connect"


@pytest.mark.parametrize(("chance", "moves"), [(Stays, False), (Moves, True)])
async def test_new_servers_get_their_share_of_the_clients(
    zookeeper: RealServer, chance: type[random.Random], moves: bool
) -> None:
    async with (
        Proxy(zookeeper.hosts) as first,
        Proxy(zookeeper.hosts) as second,
        zkwire.connect(first.hosts, rng=chance()) as zk,
    ):
        states = zk.states()
        zk.set_hosts(f"{first.hosts},{second.hosts}")
        if moves:
            await states_until(states, SUSPENDED)
            await states_until(states, CONNECTED)
        await zk.ping()
        assert zk.server == (second if moves else first).hosts
        assert first.connections + second.connections == 1 + 2 * moves  # one of them asks what the server grants


async def test_the_chroot_stays(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(f"{zookeeper.hosts}{path}") as zk:
        zk.set_hosts(zookeeper.hosts)
        zk.set_hosts(f"{zookeeper.hosts}{path}")
        with pytest.raises(ValueError, match="chroot"):
            zk.set_hosts(f"{zookeeper.hosts}/elsewhere")
        with pytest.raises(ValueError, match="connect string"):
            zk.set_hosts("")
        with pytest.raises(TypeError):
            zk.set_hosts(None)  # type: ignore[arg-type]
        assert zk.chroot == path


@pytest.mark.limit(240)
async def test_a_client_follows_a_reconfigured_ensemble() -> None:
    """A client that knows one server learns of the others, and moves when its own server leaves the ensemble."""
    async with RealEnsemble(reconfig=True, fsync=False, properties={"skipACL": "yes"}) as ensemble:
        first, second, third = ensemble.servers
        async with (
            zkwire.connect(f"{first.hosts}/chroot", rng=Stays(), follow_config=True) as zk,
            zkwire.connect(ensemble.hosts) as admin,
        ):
            await admin.create("/chroot")
            await zk.create("/a", ephemeral=True)
            session_id, states = zk.session_id, zk.states()
            await admin.reconfig(leaving=[first.number])
            assert await states_until(states, SUSPENDED) == [CONNECTED, SUSPENDED]
            await states_until(states, CONNECTED)
            assert zk.server in (second.hosts, third.hosts)
            assert zk.session_id == session_id
            first.kill()
            assert (await zk.get("/a")).stat.ephemeral_owner == session_id
            fourth = await ensemble.add()
            await admin.reconfig(joining=[fourth.spec])
            assert await zk.exists("/a") is not None


class FromOutside:
    """Opens connections as a client does that cannot resolve the names of the ensemble's configuration.

    `known` are the "host:port" that it can resolve; `tried` are all that it was asked for.
    """

    def __init__(self, *known: str) -> None:
        self.known = set(known)
        self.tried: list[str] = []

    async def __call__(self, make: Callable[[], Link], host: str, port: int) -> Link:
        self.tried.append(f"{host}:{port}")
        if f"{host}:{port}" not in self.known:
            raise socket.gaierror(socket.EAI_NONAME, f"{host}:{port} is not known here")
        return await open_link(make, host, port)


@pytest.mark.limit(240)
async def test_a_client_that_cannot_reach_the_listed_servers_stays_with_those_it_was_given(
    reconfigurable: RealEnsemble,
) -> None:
    """As behind a load balancer, or outside of the network whose names the configuration has."""
    first, *rest = reconfigurable.servers
    leader = await reconfigurable.leader()
    leaves = next(server for server in rest if server is not leader)  # there is no election then
    async with Proxy(first.hosts) as balancer, zkwire.connect(leader.hosts) as admin:
        outside = FromOutside(balancer.hosts)
        async with zkwire.connect(balancer.hosts, 8.0, rng=InOrder(), follow_config=True, open_link=outside) as zk:
            states, session_id = zk.states(), zk.session_id
            await states_until(states, SUSPENDED)
            await states_until(states, CONNECTED)
            listed = {server.hosts for server in reconfigurable.servers}
            assert (zk.server, zk.session_id) == (balancer.hosts, session_id)
            assert listed <= set(outside.tried)
            mark = len(outside.tried)
            await zk.create("/a", ephemeral=True)
            await admin.reconfig(leaving=[leaves.number])  # the list is another one: it is tried, in vain again
            await states_until(states, SUSPENDED)
            await states_until(states, CONNECTED)
            listed.discard(leaves.hosts)
            assert (zk.server, zk.session_id) == (balancer.hosts, session_id)
            assert set(outside.tried[mark:]) == {*listed, balancer.hosts}
            outside.known |= listed
            balancer.drop()
            await states_until(states, SUSPENDED)
            await states_until(states, CONNECTED)
            assert zk.server in listed
            assert (await zk.get("/a")).stat.ephemeral_owner == session_id
        await admin.reconfig(joining=[leaves.spec])


async def test_a_client_behind_tls_does_not_follow_the_configuration(secure: EnsembleServer) -> None:
    """The list of a real server with both ports names the one without TLS."""
    with pytest.raises(ValueError, match="follow_config cannot be used with ssl"):
        zkwire.connect("zk1:2281", ssl=True, follow_config=True)
    async with zkwire.connect(secure.hosts) as zk:
        config = (await zk.get_config()).members
        assert str(config[secure.number]).endswith(f":{secure.port}")
