"""The list of servers changes while the client runs: by set_hosts, and by the ensemble's configuration."""

import socket
from collections.abc import Callable

import pytest

import zkwire
from tests.support.client import InOrder, states_until
from tests.support.proxy import Proxy
from zkwire import SessionState
from zkwire.session.opening import Opener
from zkwire.session.transport import Link
from zkwire.testing import EnsembleServer, RealEnsemble

CONNECTING, CONNECTED, READ_ONLY, SUSPENDED, EXPIRED, AUTH_FAILED, CLOSED = SessionState


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
        return await Opener()(make, host, port)


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
