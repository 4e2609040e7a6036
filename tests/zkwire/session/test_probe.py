"""The search for a server that can write, among servers that answer, refuse, or stay silent."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise

import pytest

from tests.support.client import InOrder, cancelled
from tests.support.recipes import no_task_stays
from tests.support.virtual_time import in_virtual_time
from zkwire.session.hosts import Address, Hosts
from zkwire.session.opening import Opener
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
    ("answer", "can"), [(b"rw", True), (b"ro", False), (b"", False), (b"rw\n", False), (b"rw" + bytes(100_000), False)]
)
async def test_a_server_that_answers_rw_can_write(answer: bytes, can: bool) -> None:
    servers = Servers()
    async with servers.serving(answer) as (address,):
        assert await can_write(Opener(), address, 10.0) is can
        assert servers.asked == [(0, b"isro")]


def searched(addresses: list[Address]) -> tuple[Hosts, "asyncio.Future[Exception]"]:
    """Return the hosts of a client at `addresses`, and a future of the loss of its link."""
    return Hosts(addresses, 1.0, InOrder()), asyncio.get_running_loop().create_future()


async def test_the_first_server_that_can_write_is_preferred_and_the_present_one_is_not_asked() -> None:
    servers = Servers()
    async with servers.serving(b"rw", b"ro", b"rw", b"rw") as addresses:
        hosts, lost = searched(addresses)
        assert await find_writable(Opener(), hosts, addresses[0], 0.1, lost)
        assert hosts.next() == addresses[2]
        assert [number for number, _ in servers.asked] == [1, 2]


@in_virtual_time
async def test_the_pauses_between_two_rounds_double_up_to_the_session_timeout() -> None:
    asked: list[tuple[int, float]] = []

    async def refuse(make: object, host: str, port: int) -> Link:
        asked.append((port, asyncio.get_running_loop().time()))
        if len(asked) == 14:
            lost.set_result(ConnectionResetError())
        raise ConnectionRefusedError

    hosts, lost = searched([Address("zk", port) for port in range(3)])
    assert not await find_writable(refuse, hosts, Address("zk", 0), 2.0, lost)
    assert [port for port, _ in asked] == [1, 2] * 7
    rounds = [0.0, *(at for port, at in asked if port == 1)]
    with pytest.raises(TypeError):  # a mistake in the user's `open_link`
        await find_writable(print, hosts, Address("zk", 0), 2.0, asyncio.get_running_loop().create_future())  # type: ignore[arg-type]
    for longest, (former, at) in zip([0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0], pairwise(rounds), strict=True):
        assert longest / 2 <= at - former <= longest


@in_virtual_time
async def test_each_of_many_servers_has_a_share_of_the_session_timeout_to_answer_in() -> None:
    """With 60 servers and a timeout of 0.2 s that is 0.01 s, after which the next one is asked."""
    asked: list[float] = []

    async def silent(make: object, host: str, port: int) -> Link:
        asked.append(asyncio.get_running_loop().time())
        await asyncio.sleep(60.0)
        raise ConnectionRefusedError

    hosts, lost = searched([Address("zk", port) for port in range(60)])
    finding = asyncio.create_task(find_writable(silent, hosts, Address("zk", 0), 0.2, lost))
    await asyncio.sleep(0.5)
    lost.set_result(ConnectionResetError())
    assert not await finding
    assert asked[2] - asked[1] == pytest.approx(0.01)


async def test_a_cancelled_search_leaves_nothing() -> None:
    servers = Servers()
    async with servers.serving(b"rw", None) as addresses:
        hosts, lost = searched(addresses)
        finding = asyncio.create_task(find_writable(Opener(), hosts, addresses[0], 10.0, lost))
        while not servers.asked:
            await asyncio.sleep(0.005)
        await cancelled(finding)
