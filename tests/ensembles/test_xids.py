"""A request on a session's second connection never gets the answer to a request on its first one."""

import asyncio

import zkwire
from tests.support.client import InOrder, eventually, states_until
from tests.support.proxy import Proxy
from zkwire import SessionState
from zkwire.testing import EnsembleServer, RealEnsemble


async def until_outstanding(server: EnsembleServer, count: int) -> None:
    """Wait until `server` has so many requests to answer, or more: clients send syncs of their own."""

    async def has_them() -> bool:
        metrics = await zkwire.four_letter_word(server.hosts, "mntr")
        assert isinstance(metrics, dict)
        outstanding = metrics["zk_outstanding_requests"]
        assert isinstance(outstanding, int)
        return outstanding >= count

    await eventually(has_them)


async def test_writes_of_a_lost_connection_answer_no_request_on_the_next_one_pitfall_84() -> None:
    """They are committed when the session is on an observer, which gets their commits by session and xid alone."""
    async with RealEnsemble(2, observers=1, fsync=False) as ensemble:
        leader = await ensemble.leader()
        [follower] = await ensemble.followers()
        [observer] = [server for server in ensemble.servers if server.is_observer]
        async with (
            Proxy(leader.hosts) as to_leader,
            Proxy(observer.hosts) as to_observer,
            zkwire.connect(observer.hosts) as bystander,
            zkwire.connect(f"{to_leader.hosts},{to_observer.hosts}", rng=InOrder()) as zk,
        ):
            states = zk.states()
            for left, joined in ((to_leader, to_observer), (to_observer, to_leader)):  # each is asked what it grants
                left.drop()
                await states_until(states, SessionState.SUSPENDED)
                await states_until(states, SessionState.CONNECTED)
                assert zk.server == joined.hosts
            follower.pause()  # so that nothing is committed
            lost = [asyncio.create_task(zk.create(path)) for path in ("/lost", "/lost too")]
            await until_outstanding(leader, 2)
            to_leader.drop()
            await asyncio.wait(lost)
            assert [type(each.exception()) for each in lost] == [zkwire.ConnectionLostError] * 2
            creating, syncing = asyncio.create_task(zk.create("/new")), asyncio.create_task(zk.sync("/"))
            await until_outstanding(observer, 3)  # with the client's proof that no lost write comes later
            assert zk.server == to_observer.hosts
            follower.resume()
            assert await creating == "/new"
            await syncing
            # An observer that took a commit for the sync ends at the next transaction.
            await bystander.create("/other")
            assert sorted(await bystander.get_children("/")) == ["lost", "lost too", "new", "other", "zookeeper"]
