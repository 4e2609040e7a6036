"""How connections are opened: the addresses of a name, a resolver that is slow or fails, TLS contexts."""

import asyncio
import contextlib
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import Mock, patch

import pytest

import zkwire
from tests.support.client import drop, turns
from tests.support.recipes import until
from tests.support.virtual_time import a_client, in_virtual_time
from zkwire.session.opening import Opener, _first_connected
from zkwire.testing import Server

NAME = "zk.example"
NO_THREAD = RuntimeError("there are too many")


class Resolver:
    """Answers for the name zk.example, in place of the system's resolver; all other questions go there."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.asked = 0
        self.delay = 0.0
        self.failure: BaseException | None = None
        self.ends = threading.Event()
        self._real = socket.getaddrinfo

    def __call__(self, host: str, port: Any, *args: Any, **options: Any) -> Any:
        is_numeric = options.get("flags", 0) & socket.AI_NUMERICHOST
        if host == NAME and is_numeric and isinstance(self.failure, UnicodeError):
            raise self.failure
        if host != NAME or is_numeric:
            return self._real(host, port, *args, **options)
        self.asked += 1
        self.ends.wait(self.delay)
        if self.failure is not None:
            raise self.failure
        return [info for address in self.addresses for info in self._real(address, port, *args, **options)]


@contextmanager
def resolver(*addresses: str) -> Iterator[Resolver]:
    answers = Resolver(*addresses)
    with patch("socket.getaddrinfo", answers):
        yield answers
        answers.ends.set()


@contextmanager
def black_hole(address: str, port: int) -> Iterator[None]:
    """Let `address`:`port` answer to no attempt to connect: its queue of connections is full."""
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        full.bind((address, port))
        full.listen(0)
        for each in (first, second):
            each.setblocking(False)
            each.connect_ex((address, port))
        yield


@pytest.mark.limit(20)
async def test_an_address_of_a_name_that_never_answers_is_passed_by_pitfall_82() -> None:
    async with Server() as server:
        with (
            resolver("127.0.0.2", "127.0.0.3", "127.0.0.1"),
            black_hole("127.0.0.2", server.port),
            black_hole("127.0.0.3", server.port),
        ):
            start = time.monotonic()
            async with zkwire.connect(f"{NAME}:{server.port}", 10.0) as zk:
                assert time.monotonic() - start < 4
                await zk.ping()


async def test_a_refused_address_of_a_name_is_passed_by_at_once() -> None:
    async with Server() as server:
        with resolver("127.0.0.2", "127.0.0.3", "127.0.0.1"), patch("zkwire.session.opening._NEXT_ADDRESS_AFTER", 60):
            async with zkwire.connect(f"{NAME}:{server.port}") as zk:
                await zk.ping()


async def test_a_slow_address_is_waited_for_when_all_others_have_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, ends = asyncio.get_running_loop(), asyncio.Event()

    async def connect(sock: socket.socket, address: Any) -> None:
        if address[0] == "127.0.0.2":
            loop.call_later(0, ends.set)
            raise ConnectionRefusedError
        await ends.wait()

    monkeypatch.setattr(loop, "sock_connect", connect)
    with resolver("127.0.0.1", "127.0.0.2"), patch("zkwire.session.opening._NEXT_ADDRESS_AFTER", 0):
        (await _first_connected(await Opener()._addresses(NAME, 1))).close()


async def test_each_attempt_begins_with_another_address_and_asks_the_resolver_again_pitfall_55() -> None:
    """An address may be connected to and never answer, so that only the next attempt gets past it."""
    opener, seen = Opener(), []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(writer.get_extra_info("sockname")[0])
        writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as first:
        port = first.sockets[0].getsockname()[1]
        async with await asyncio.start_server(accept, "127.0.0.2", port):
            with resolver("127.0.0.1", "127.0.0.2") as names:
                for count in range(5):
                    await opener(asyncio.Protocol, NAME, port)  # type: ignore[arg-type]
                    await until(lambda: len(seen) > count)  # noqa: B023
                    if count == 3:
                        names.addresses = ["127.0.0.2"]  # the server has moved
    assert seen == [*["127.0.0.1", "127.0.0.2"] * 2, "127.0.0.2"]


@pytest.mark.limit(20)
async def test_a_resolver_slower_than_an_attempt_is_waited_for_by_the_next_ones_pitfall_82() -> None:
    async with Server() as server:
        with resolver("127.0.0.1") as names:
            names.delay = 0.75
            async with zkwire.connect(f"{NAME}:{server.port}", 1.0) as zk:  # half a second for an attempt
                await zk.ping()
                assert names.asked == 1
                names.delay = 20.0
                await drop(server, zk)  # with the address from before
                await drop(server, zk)
                assert names.asked == 2


async def test_a_question_that_hangs_is_asked_again_after_twice_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    opener, before, now = Opener(), {*threading.enumerate()}, 0.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)

    async def questions(at: float) -> int:
        nonlocal now
        now = at
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                await opener._addresses(NAME, 1)
        return len({*threading.enumerate()} - before)

    with resolver("127.0.0.1") as names:
        names.delay = 20.0
        assert [await questions(at) for at in (0, 29, 30, 89, 90)] == [1, 1, 2, 2, 3]
        assert all(thread.daemon for thread in {*threading.enumerate()} - before), "the program could not end"
        now, names.delay = 210, 0.0
        assert await opener._addresses(NAME, 1)
        while len({*threading.enumerate()} - before) > 3:
            await asyncio.sleep(0)
        names.delay = 20.0
        assert [await questions(at) for at in (210, 449, 450)] == [4, 4, 5], "those that hang still count"


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (socket.gaierror(socket.EAI_AGAIN, "try again"), "try again"),
        (UnicodeError("label too long"), rf"^the resolver fails for '{NAME}': UnicodeError\('label too long'\)$"),
        (SystemExit(1), rf"^the resolver fails for '{NAME}': SystemExit\(1\)$"),
        (None, f"^the resolver has no address for '{NAME}'$"),
        (NO_THREAD, f"^no thread can be started to resolve '{NAME}': there are too many$"),
    ],
)
async def test_a_resolver_that_fails_in_any_way_leaves_the_addresses_known_before_and_is_asked_again(
    failure: BaseException | None, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`failure`: None for an empty answer."""
    start = threading.Thread.start

    def starting(thread: threading.Thread) -> None:
        if names.failure is NO_THREAD:
            raise NO_THREAD
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", starting)
    async with Server() as server:
        with resolver() as names:
            names.failure = failure
            opener = Opener()
            with pytest.raises(OSError, match=text):
                await opener(asyncio.Protocol, NAME, server.port)  # type: ignore[arg-type]
            names.failure, names.addresses = None, ["127.0.0.1"]
            async with zkwire.connect(f"{NAME}:{server.port}", open_link=opener) as zk:
                names.failure, names.addresses = failure, []
                for asked in (3, 4):
                    await drop(server, zk)
                    assert names.asked == (1 if failure is NO_THREAD else asked)


@pytest.mark.parametrize("after", [*range(12), *range(100, 108)])
async def test_an_attempt_cancelled_at_any_turn_leaves_no_socket(after: int) -> None:
    """A socket that is left would be reported as a ResourceWarning.  From 100 on: turns after the moment."""
    async with Server() as server:
        with resolver("127.0.0.2", "127.0.0.1"), contextlib.ExitStack() as stack:
            if after >= 100:
                stack.enter_context(black_hole("127.0.0.2", server.port))
            before = len(asyncio.all_tasks())
            opening = asyncio.ensure_future(Opener()(asyncio.Protocol, NAME, server.port))  # type: ignore[arg-type]
            while after >= 100 and len(asyncio.all_tasks()) < before + 3:  # opening, and an attempt for each address
                await asyncio.sleep(0)
            await turns(after % 100)
            opening.cancel()
            await asyncio.wait({opening})
            assert opening.cancelled() or opening.exception() is None


async def test_the_error_names_the_failure_of_each_address() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.2", 0))  # nothing listens there
        port = closed.getsockname()[1]
        with resolver("127.0.0.2", "127.0.0.3"), pytest.raises(OSError, match=r"'127\.0\.0\.2'.*; .*'127\.0\.0\.3'"):
            await Opener()(asyncio.Protocol, NAME, port)  # type: ignore[arg-type]


async def test_what_an_address_has_behind_its_port_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """An IPv6 address has a flow, and a scope without which a link-local one cannot be reached."""
    tried = []

    def resolve(host: str, *_: object, flags: int = 0, **__: object) -> list[object]:
        if flags & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "this is a name")
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("fe80::1", 0, 5, 7))]

    async def sock_connect(sock: socket.socket, address: object) -> None:
        tried.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", sock_connect)
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(ConnectionRefusedError):
        await Opener()(asyncio.Protocol, NAME, 2181)  # type: ignore[arg-type]
    assert tried == [("fe80::1", 2181, 5, 7)]


# -- an event loop that is not asyncio's ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ends", "losses"), [("before the protocol is made", 0), ("before it is returned", 1), ("as it is returned", 0)]
)
async def test_a_connection_that_another_event_loop_loses_while_opening_it_is_closed_once_and_reported(
    ends: str, losses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then uvloop closes the descriptor, but neither the socket object nor a protocol not yet returned learns of it."""
    socks: list[socket.socket] = []

    async def create_connection(make: Callable[[], Any], *, sock: socket.socket) -> tuple[Any, Any]:
        socks.append(sock)
        link = None if ends == "before the protocol is made" else make()
        os.close(sock.fileno())
        if ends == "as it is returned":
            return Mock(asyncio.Transport), link  # is_closing() is true
        raise ConnectionResetError(ends)

    async with Server() as server:
        monkeypatch.setattr(asyncio, "BaseEventLoop", Mock)
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", create_connection)
        link = Mock()
        with contextlib.nullcontext() if ends == "as it is returned" else pytest.raises(ConnectionResetError):
            await Opener()(lambda: link, "127.0.0.1", server.port)
        assert socks[0].fileno() == -1, "the number may soon be another file's, and must not be closed once more"
        assert link.connection_lost.call_count == losses


@pytest.mark.parametrize(
    ("ssl", "error", "text"),
    [
        ("yes", TypeError, "^ssl must be an SSLContext, or True for the default one, not str$"),
        (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ValueError, "create_default_context"),
    ],
)
async def test_a_context_that_cannot_be_used_is_refused_at_once(ssl: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        zkwire.connect("127.0.0.1:1", ssl=ssl)
    with pytest.raises(error, match=text):
        await zkwire.four_letter_word("127.0.0.1:1", "ruok", ssl=ssl)


@in_virtual_time
async def test_a_warning_of_an_attempt_without_an_answer_names_the_time(caplog: pytest.LogCaptureFixture) -> None:
    async with a_client("a", 4.0) as (server, zk):
        server.is_silent = True
        server.drop()
        await asyncio.sleep(2.1)
        server.is_silent = False
        await zk.ping()
    assert "no session with a:2181: TimeoutError: no answer within 2 s" in caplog.text
