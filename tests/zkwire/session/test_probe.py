"""The search for a server that can write, among servers that answer, refuse, or stay silent."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tests.support.recipes import no_task_stays
from zkwire.session.hosts import Address, Hosts
from zkwire.session.opening import open_link
from zkwire.session.probe import can_write, find_writable

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


async def test_a_silent_server_and_one_that_cannot_be_reached_cannot_write() -> None:
    async with Servers().serving(None) as (silent,):
        assert not await can_write(open_link, silent, 0.05)
    assert not await can_write(open_link, Address("127.0.0.1", 1), 10.0)


def hosts_of(addresses: list[Address]) -> Hosts:
    class InOrder(random.Random):
        def shuffle(self, x: object) -> None: ...

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


async def test_a_link_that_is_lost_ends_the_wait_for_an_answer() -> None:
    servers = Servers()
    async with servers.serving(b"rw", None, b"rw") as addresses:
        hosts = hosts_of(addresses)
        lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        finding = asyncio.create_task(find_writable(open_link, hosts, addresses[0], 600.0, lost))
        lost.set_result(ConnectionResetError())  # in the pause before the first question
        assert await finding is False
        assert servers.asked == []

        lost = asyncio.get_running_loop().create_future()
        finding = asyncio.create_task(find_writable(open_link, hosts, addresses[0], 10.0, lost))
        while not servers.asked:
            await asyncio.sleep(0.005)
        lost.set_result(ConnectionResetError())
        assert await finding is False
        assert [number for number, _ in servers.asked] == [1]


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
