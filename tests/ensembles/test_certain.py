"""While a lease is certain no other client owns, however its session came to the timeout, and to the end, that it has.

test_partition.py is about links between servers.
"""

import asyncio
import contextlib
import random

import pytest

import zkwire
from recipes import Lease, Lock
from tests.support.client import PATIENCE, eventually
from tests.support.due import create_due, next_end, write_in
from tests.support.links import Links
from tests.support.partition import LOOK
from zkwire import Client
from zkwire.testing import EnsembleServer, RealEnsemble, RealServer
from zkwire.testing.real.server import QUICK_START

TICK = 2.0
TIMEOUT = 2 * TICK
CLIENTS = 12
PROBES = 12
SESSIONS = 1000
SLOW = (*QUICK_START, "-Xint")  # it takes a hundred times as long as a usual server to end these sessions
CREATIONS = (3, 6, 12, 24)  # seconds, tried until one serves; an idle machine needs one
CONNECTED = 2  # seconds for the clients to connect
# Seconds before and after the sessions are due.
AHEAD = 0.5
BACK = 0.02
AWAY = 1.0


CLIENT = "client"
# Seconds: what a session is granted when it is made, and later.
LEAST = 3.0
MORE = 8.0


class Eager(random.Random):
    """Randomness by which a client pauses for a tenth of a second at most before it tries to connect again."""

    def uniform(self, a: float, b: float) -> float:
        return min(a, 0.1)


@pytest.mark.limit(240)
@pytest.mark.moment
async def test_no_lease_is_certain_in_a_session_that_came_back_while_the_server_ended_it_with_many(path: str) -> None:
    """Pitfall 86: the session is accepted and its writes are committed until its turn comes."""
    for creation in CREATIONS:
        gone, overlaps = await come_back_while_many_end(f"{path}-{creation}", creation)
        assert [seen for seen in overlaps if isinstance(seen, float) and seen] == []
        if gone:
            return
    pytest.fail("no session was resumed, wrote, and was ended anyway: the machine is too busy")


async def come_back_while_many_end(path: str, creation: int) -> tuple[list[str], list[float | BaseException]]:
    """Have clients come back at the moment at which a server begins to end many sessions, and theirs among them.

    The many are as many as can be created in `creation` seconds, SESSIONS at most.  Returns the nodes that sessions of
    the many wrote after they were resumed and that are gone since, none if the moment was missed; and for how many
    seconds the lease of each client overlapped.
    """
    loop = asyncio.get_running_loop()
    links = Links()
    ends = [(number, "server") for number in range(CLIENTS)]
    async with RealServer(tick_time=TICK, fsync=False, jvm=SLOW) as server, contextlib.AsyncExitStack() as stack:
        created = loop.time() + creation
        due = next_end(TICK, created + CONNECTED + TIMEOUT)
        mass = await asyncio.to_thread(create_due, server.port, SESSIONS, due, TICK, created)
        other = await stack.enter_async_context(zkwire.connect(server.hosts, TIMEOUT))
        clients = []
        for end in ends:
            relay = await stack.enter_async_context(links.relay(*end, server.port))
            connecting = zkwire.connect(f"127.0.0.1:{relay.port}", TIMEOUT, rng=Eager())
            clients.append(await stack.enter_async_context(connecting))
        # Their last request comes one timeout before the moment at which the sessions are due, or a little earlier.
        await asyncio.sleep(due - TIMEOUT - 0.2 - loop.time())
        await asyncio.gather(*(zk.ping() for zk in clients))
        if loop.time() > due - TIMEOUT:
            return [], []
        with links.during("cut", ends):
            await asyncio.sleep(due - AHEAD - loop.time())
            server.pause()  # until the clients may come back, however late that is on a busy machine
            await asyncio.sleep(due + BACK - loop.time())
        server.resume()
        probing = asyncio.to_thread(write_in, server.port, mass[-PROBES:], TIMEOUT, f"{path}-probe-")

        async def hold(number: int) -> float:
            lease = await Lock(clients[number], f"{path}-{number}").acquire()
            links.begin("cut", [ends[number]])
            waiting = asyncio.create_task(Lock(other, f"{path}-{number}").acquire())
            try:
                return await overlap(lease, waiting, due + TIMEOUT + 1)
            finally:
                waiting.cancel()
                await asyncio.wait([waiting])

        holding = [asyncio.create_task(hold(number)) for number in range(CLIENTS)]
        written = await probing
        await asyncio.sleep(due + AWAY - loop.time())
        links.begin("cut", ends)
        gone = [node for node in written if await other.exists(node) is None]
        is_late = loop.time() > due + TIMEOUT
        await asyncio.wait(holding, timeout=due + TIMEOUT + 2 - loop.time())
        links.heal()
        for task in holding:
            task.cancel()
        return [] if is_late else gone, await asyncio.gather(*holding, return_exceptions=True)


async def test_a_new_leader_counts_with_the_timeout_the_session_was_made_with(
    ensemble: RealEnsemble, path: str
) -> None:
    """Pitfall 85: another server has a greater limit and grants more, and a new leader does not know it."""
    async with contextlib.AsyncExitStack() as stack:
        first, second = await ensemble.followers()
        usual = (first.folder / "zoo.cfg").read_text(encoding="utf-8")
        stack.push_async_callback(restart_with, first, usual)
        await restart_with(first, f"{usual}\nmaxSessionTimeout={LEAST * 1000:.0f}\n")
        links = Links()
        hosts = [await behind_relay(stack, links, server) for server in (first, second)]
        zk = await stack.enter_async_context(zkwire.connect(hosts[0], MORE))
        assert zk.session_timeout == LEAST
        kept = await Lock(zk, f"{path}-kept").acquire()
        zk.set_hosts(hosts[1])
        await eventually(lambda: is_granted(zk, MORE))
        kept.check()
        lease = await Lock(zk, path).acquire()
        assert await overlap_at_a_change_of_leader(ensemble, links, lease, path) == 0


@pytest.mark.parametrize("least", [None, LEAST], ids=["history unknown", "least timeout given"])
async def test_a_resumed_session_is_not_certain_for_longer_than_it_was_made_with(
    ensemble: RealEnsemble, path: str, least: float | None
) -> None:
    """Pitfall 85: resumed with a longer timeout, which a new leader does not know."""
    async with contextlib.AsyncExitStack() as stack:
        first, _ = await ensemble.followers()
        links = Links()
        hosts = await behind_relay(stack, links, first)
        made = await zkwire.connect(hosts, LEAST)
        await made.close(keep_session=True)
        resumed = zkwire.connect(
            hosts, MORE, session_id=made.session_id, session_password=made.session_password, least_timeout=least
        )
        zk = await stack.enter_async_context(resumed)
        assert zk.session_timeout == MORE
        try:
            lease = await Lock(zk, path).acquire()
        except ValueError:
            assert least is None  # nothing can be certain where the least timeout is not known
            return
        assert await overlap_at_a_change_of_leader(ensemble, links, lease, path) == 0


async def overlap_at_a_change_of_leader(ensemble: RealEnsemble, links: Links, lease: Lease, path: str) -> float:
    """Cut the holder off and kill the leader; return for how many seconds the lease is certain beside another one."""
    leader = await ensemble.leader()
    hosts = ",".join(server.hosts for server in ensemble.servers if server is not leader)
    async with zkwire.connect(hosts, LEAST) as other:
        assert lease.is_certain()
        links.begin("cut", [(CLIENT, server.number) for server in ensemble.servers])
        leader.kill()
        waiting = asyncio.create_task(Lock(other, path).acquire())
        seen = await overlap(lease, waiting, asyncio.get_running_loop().time() + 2 * MORE)
        async with asyncio.timeout(PATIENCE):
            await (await waiting).release()  # otherwise it has not been seen whether they overlap
    links.heal()
    return seen


async def behind_relay(stack: contextlib.AsyncExitStack, links: Links, server: EnsembleServer) -> str:
    """Return the address of a relay between the holder and a server."""
    relay = await stack.enter_async_context(links.relay(CLIENT, server.number, server.port))
    return f"127.0.0.1:{relay.port}"


async def restart_with(server: RealServer, configuration: str) -> None:
    """Restart a server with another configuration."""
    await server.stop()
    (server.folder / "zoo.cfg").write_text(configuration, encoding="utf-8")
    await server.start()


async def is_granted(zk: Client, timeout: float) -> bool:
    return zk.session_timeout == timeout


async def overlap(lease: Lease, waiting: "asyncio.Task[Lease]", end: float) -> float:
    """Return for how many seconds a lease is certain beside that of another client, seen at looks LOOK apart.

    It ends when the first lease is over, or at `end`.
    """
    seen = 0.0
    while lease.is_certain() and asyncio.get_running_loop().time() < end:
        if waiting.done() and waiting.result().is_certain():
            seen += LOOK
        await asyncio.sleep(LOOK)
    return seen
