"""The search for a server that can write, among servers that answer, refuse, or stay silent."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tests.support.client import InOrder
from tests.support.recipes import no_task_stays
from zkwire.session.hosts import Address, Hosts
from zkwire.session.opening import open_link
from zkwire.session.probe import can_write, find_writable
from zkwire.session.transport import Link

pytestmark = pytest.mark.limit(20)

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Servers:
    """Servers of four-letter words; `asked` are the ones that were asked, by number, with their words."""

    def __init__(self) -> None:
        self.addresses: list[Address] = []
        self.asked: list[tuple[int, bytes]] = []

    @asynccontextmanager
    async def serving(self, *answers: bytes | None) -> AsyncIterator[list[Address]]:
        """Start a server for each answer; None stays silent."""
        async with AsyncExitStack() as stack, no_task_stays():
            for number, answer in enumerate(answers):
                server = await asyncio.start_server(self._answering(number, answer), "127.0.0.1")
                stack.push_async_callback(server.wait_closed)
                stack.callback(server.close)
                self.addresses.append(Address("127.0.0.1", server.sockets[0].getsockname()[1]))
            yield self.addresses

    def _answering(self, number: int, answer: bytes | None) -> Answer:
        async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            word = await reader.read(100)
            self.asked.append((number, word))
            if answer is None:
                await reader.read()
            else:
                writer.write(answer)
            writer.close()

        return play


@pytest.mark.parametrize(
    ("answer", "can"),
    [(b"rw", True), (b"ro", False), (b"", False), (b"rw\n", False), (b"rw" + bytes(100_000), False)],
)
async def test_a_server_that_answers_rw_can_write(answer: bytes, can: bool) -> None:
    servers = Servers()
    async with servers.serving(answer) as (address,):
        assert await can_write(open_link, address, 10.0) is can
        assert servers.asked == [(0, b"isro")]


def hosts_of(addresses: list[Address]) -> Hosts:
    return Hosts(addresses, 1.0, InOrder())


async def test_the_first_server_that_can_write_is_preferred_and_the_present_one_is_not_asked() -> None:
    servers = Servers()
    async with servers.serving(b"rw", b"ro", b"rw", b"rw") as addresses:
        hosts = hosts_of(addresses)
        lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        assert await find_writable(open_link, hosts, addresses[0], 0.1, lost)
        assert hosts.next() == addresses[2]
        assert [number for number, _ in servers.asked] == [1, 2]


async def test_the_servers_are_asked_again_and_again_until_the_link_is_lost() -> None:
    servers = Servers()
    async with servers.serving(b"rw", b"ro") as addresses:
        hosts = hosts_of(addresses)
        lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        finding = asyncio.create_task(find_writable(open_link, hosts, addresses[0], 0.02, lost))
        while len(servers.asked) < 3:
            assert not finding.done()
            await asyncio.sleep(0.005)
        lost.set_result(ConnectionResetError())
        assert await finding is False
        assert hosts.next() == addresses[0]


class Unreachable:
    """Opens no connection; `asked` has the ports that were asked for, and `lost` is done after a few of them."""

    def __init__(self, *, lost_after: int) -> None:
        self.asked: list[int] = []
        self.lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self._lost_after = lost_after

    async def __call__(self, make: object, host: str, port: int) -> Link:
        self.asked.append(port)
        if len(self.asked) == self._lost_after:
            self.lost.set_result(ConnectionResetError())
        raise ConnectionRefusedError


class WithoutPauses(Hosts):
    """Servers that are tried in order; `pauses` has the longest allowed length of each pause, which takes no time."""

    def __init__(self, count: int) -> None:
        super().__init__([Address("zk", port) for port in range(count)], 1.0, InOrder())
        self.pauses: list[float] = []

    def jittered(self, longest: float) -> float:
        self.pauses.append(longest)
        return 0.0


async def test_the_pauses_between_two_rounds_double_up_to_the_session_timeout() -> None:
    hosts, unreachable = WithoutPauses(3), Unreachable(lost_after=14)
    assert not await find_writable(unreachable, hosts, Address("zk", 0), 2.0, unreachable.lost)
    assert unreachable.asked == [1, 2] * 7
    assert hosts.pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0])


async def test_each_of_many_servers_has_a_share_of_the_session_timeout_to_answer_in() -> None:
    """With 60 servers and a timeout of 0.2 s that is 0.01 s, after which the next one is asked."""
    asked = 0

    async def silent_at_first(make: Callable[[], Link], host: str, port: int) -> Link:
        nonlocal asked
        asked += 1
        if asked <= 2:
            await asyncio.Event().wait()
        return await open_link(make, addresses[0].host, addresses[0].port)

    async with Servers().serving(b"rw") as addresses:
        hosts = WithoutPauses(60)
        lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        assert await find_writable(silent_at_first, hosts, Address("zk", 0), 0.2, lost)
        assert asked >= 3


async def test_a_cancelled_search_leaves_nothing() -> None:
    servers = Servers()
    async with servers.serving(b"rw", None) as addresses:
        lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        finding = asyncio.create_task(find_writable(open_link, hosts_of(addresses), addresses[0], 10.0, lost))
        while not servers.asked:
            await asyncio.sleep(0.005)
        finding.cancel()
        await asyncio.wait({finding})
        assert finding.cancelled()
