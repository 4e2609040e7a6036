"""What only several real servers show: elections, moved sessions, reconfiguration."""

import asyncio
import itertools

import pytest

import zkwire
from recipes import Election, Lock
from tests.support.client import InOrder, states_until
from tests.support.proxy import Proxy
from tests.support.recipes import no_task_stays, until, until_line
from zkwire import SessionState
from zkwire.testing import EnsembleServer, RealEnsemble

CONNECTED, SUSPENDED = SessionState.CONNECTED, SessionState.SUSPENDED


def hosts(*servers: EnsembleServer) -> str:
    """Return a connect string whose servers are tried in this order if the client uses InOrder."""
    return ",".join(server.hosts for server in servers)


async def led_first(ensemble: RealEnsemble) -> list[EnsembleServer]:
    """Return the servers of the ensemble, the leader first."""
    leader = await ensemble.leader()
    return [leader, *(server for server in ensemble.servers if server is not leader)]


# Elections


@pytest.mark.parametrize("place", ["leader", "follower"])
async def test_a_lock_is_kept_while_the_leader_is_killed(ensemble: RealEnsemble, path: str, place: str) -> None:
    """The holder's session survives the election, and so does the order of the waiting tickets."""
    leader, *followers = await led_first(ensemble)
    holders = [leader, *followers] if place == "leader" else [*followers, leader]
    waiters = [*reversed(followers), leader]
    async with (
        no_task_stays(),
        zkwire.connect(hosts(*holders), rng=InOrder()) as holding,
        zkwire.connect(hosts(*waiters), rng=InOrder()) as waiting,
    ):
        assert holding.server == holders[0].hosts
        async with Election(holding, path).lead() as lease:
            waiter = asyncio.create_task(Lock(waiting, path).acquire())
            await until_line(holding, path, 2)
            session = holding.session_id
            states = holding.states()
            await states_until(states, CONNECTED)
            leader.kill()
            assert await states_until(states, CONNECTED) == [SUSPENDED, CONNECTED]
            states.close()
            await lease.set(b"still mine")
            assert lease.is_certain()
            assert holding.session_id == session
            assert not waiter.done()
            assert len(await until_line(waiting, path, 2)) == 2
        next_lease = await waiter
        assert next_lease.token > lease.token
        await next_lease.release()


async def test_a_lock_whose_session_dies_with_the_leader_goes_to_the_next(ensemble: RealEnsemble, path: str) -> None:
    """The new leader expires the sessions whose clients do not come back."""
    leader, *followers = await led_first(ensemble)
    gone = await zkwire.connect(leader.hosts, session_timeout=2.0)
    await Lock(gone, path).acquire()
    async with zkwire.connect(hosts(*followers)) as waiting:
        waiter = asyncio.create_task(Lock(waiting, path).acquire(within=30.0))
        await until_line(waiting, path, 2)
        await gone.close(keep_session=True)
        leader.kill()
        lease = await waiter
        assert await until_line(waiting, path, 1) == [lease.path.rpartition("/")[2]]
        await lease.release()


async def test_nothing_that_was_written_is_lost_in_elections(ensemble: RealEnsemble, path: str) -> None:
    """Each write is answered or raises ConnectionLostError; every answered write is there at the end, in its order."""
    async with zkwire.connect(ensemble.hosts) as zk:
        await zk.create(path)
        answered: list[str] = []
        doubtful: list[bool] = []

        is_over = False

        async def write() -> None:
            for number in itertools.count():
                if is_over:
                    return
                try:
                    answered.append(await zk.create(f"{path}/{number}"))
                except zkwire.ConnectionLostError as error:
                    doubtful.append(error.maybe_applied)

        async def so_many_more(count: int) -> None:
            enough = len(answered) + count
            await until(lambda: len(answered) >= enough)

        writer = asyncio.create_task(write())
        for _ in range(2):
            await so_many_more(10)
            leader = await ensemble.leader()
            leader.kill()
            await leader.start()
        await so_many_more(10)
        is_over = True
        await writer
        await zk.sync(path)
        names = await zk.get_children(path)
    assert {name.rpartition("/")[2] for name in answered} <= set(names)
    assert len(names) <= len(answered) + len(doubtful)
    assert len(doubtful) <= 2  # one write was under way when a leader was killed
    assert all(doubtful)


# Sessions that move


async def test_a_write_on_a_former_connection_of_a_moved_session_is_refused(ensemble: RealEnsemble, path: str) -> None:
    """The server refuses the write by closing the connection: the answer is lost, and the write has not happened."""
    _, first, second = await led_first(ensemble)
    async with Proxy(first.hosts) as proxy:
        stale = await zkwire.connect(proxy.hosts, renew=False)
        moved = await zkwire.connect(second.hosts, session_id=stale.session_id, session_password=stale.session_password)
        refusal = proxy.refuse_connections()
        with pytest.raises(zkwire.ConnectionLostError):
            await stale.create(path)
        assert await moved.exists(path) is None
        await moved.close()
        refusal.end()
        with pytest.raises(zkwire.SessionExpiredError):
            await stale.get("/")
        await stale.close()


# Reconfiguration


async def test_an_ensemble_without_reconfig_enabled_refuses_it(ensemble: RealEnsemble) -> None:
    async with zkwire.connect(ensemble.hosts) as zk:
        with pytest.raises(zkwire.ReconfigDisabledError, match="reconfigEnabled=true"):
            await zk.reconfig(leaving=1)
