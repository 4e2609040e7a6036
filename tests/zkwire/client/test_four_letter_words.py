"""Four-letter words answered by a server that misbehaves: the answer is bounded, and errors are documented ones."""

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest

import zkwire
from tests.support.client import memory_below
from tests.support.rogue import Peer, Rogue
from zkwire.session.opening import Opener

MiB = 1 << 20


@asynccontextmanager
async def answering(answer: bytes, times: int = 1, *, resets: bool = False) -> AsyncIterator[str]:
    """Serve one connection at the address that is given: it gets `answer`, so many times, and its end or a reset."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.readexactly(4)
            for _ in range(times):
                writer.write(answer)
                await writer.drain()
        if resets:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()
        ended.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await ended.wait()


@pytest.mark.limit(30)
@pytest.mark.parametrize(("word", "limit"), [("mntr", 16), ("conf", 1), ("envi", 1), ("ruok", 64)])
async def test_an_answer_without_an_end_is_refused(word: str, limit: int) -> None:
    async with answering(b"a\tb\n" * (MiB // 4), times=100_000) as hosts:
        refused = pytest.raises(zkwire.ProtocolError, match=rf"{word}: {hosts} sent more than {limit * MiB} bytes")
        with memory_below((2 * limit + 8) * MiB), refused:
            await zkwire.four_letter_word(hosts, word, within=24 * 3600)
        for bad in (-0.5, 24 * 3600 + 1):
            with pytest.raises(ValueError, match="within must be a number of seconds from 0 to a day"):
                await zkwire.four_letter_word(hosts, word, within=bad)


async def test_numbers_of_any_length_are_read() -> None:
    """Python refuses to read a number of more than 4,300 digits, and a real server sends none of more than 19."""
    numbers = {b"long": b"9" * 5000, b"max": b"9223372036854775807", b"less": b"-12", b"float": b"1." + b"5" * 5000}
    answer = b"".join(b"zk_%s\t%s\n" % each for each in numbers.items())
    async with answering(answer) as hosts:
        metrics = await zkwire.four_letter_word(hosts, "mntr")
    assert metrics == {"zk_long": "9" * 5000, "zk_max": 2**63 - 1, "zk_less": -12, "zk_float": "1." + "5" * 5000}
    async with answering(b"a=" + b"1" * (MiB - 2)) as hosts:
        assert await zkwire.four_letter_word(hosts, "conf") == {"a": "1" * (MiB - 2)}  # as long as it may be
    async with answering(b"zk_a\t12\nzk_b\t1.5\nzk_c\t1.0E-4\nzk_d\n") as hosts:
        assert await zkwire.four_letter_word(hosts, "mntr") == {"zk_a": 12, "zk_b": 1.5, "zk_c": 1e-4}


NOT_SERVING = b"This ZooKeeper instance is not currently serving requests"
NOT_LISTED = b"conf is not executed because it is not in the whitelist.\n"
CLOSED = "it closed the connection without an answer: its version has no such word"


@pytest.mark.parametrize(
    ("word", "answer", "error", "message"),
    [
        ("mntr", NOT_SERVING + b"\n", zkwire.ZooKeeperError, "mntr: .* runs but does not serve now: .* has no quorum"),
        ("srvr", NOT_SERVING, zkwire.ZooKeeperError, "srvr: .* runs but does not serve now: .* has no quorum"),
        ("isro", b"null", zkwire.ZooKeeperError, "isro: .* runs but does not serve now: .* has no quorum"),
        ("conf", b"", zkwire.UnimplementedError, CLOSED),
        (
            "conf",
            NOT_LISTED,
            zkwire.UnimplementedError,
            "add the word to 4lw.commands.whitelist in the server's",
        ),
    ],
)
async def test_a_server_that_refuses_says_why(word: str, answer: bytes, error: type[Exception], message: str) -> None:
    async with answering(answer) as hosts:
        with pytest.raises(error, match=message) as refused:
            await zkwire.four_letter_word(hosts, word)
    assert type(refused.value) is error
    assert hosts in str(refused.value)


@pytest.mark.parametrize(("word", "answer"), [("isro", "ro"), ("dump", "null"), ("hash", ""), ("srvr", f"a\n{CLOSED}")])
async def test_other_texts_are_returned_as_they_are(word: str, answer: str) -> None:
    async with answering(answer.encode()) as hosts:
        assert await zkwire.four_letter_word(hosts, word) == answer
    async with answering(b"envi\na=\xff=1\nb\n") as hosts:
        assert await zkwire.four_letter_word(hosts, "envi") == {"a": "\ufffd=1"}


async def test_a_silent_server_is_given_up_in_time_with_a_hint_at_tls() -> None:
    async def silent(peer: Peer) -> None:
        await peer.ignore()

    hint = "; a server that waits for TLS is silent too: see ssl="
    async with Rogue(silent) as rogue:
        with pytest.raises(TimeoutError, match=f"^ruok: no answer from {rogue.hosts} within 0.1 s{hint}$"):
            await zkwire.four_letter_word(rogue.hosts, "ruok", within=0.1)
        await rogue.disconnected(1)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        with pytest.raises(TimeoutError, match=f"^ruok: no answer from {rogue.hosts} within 0.1 s$"):
            await zkwire.four_letter_word(rogue.hosts, "ruok", within=0.1, ssl=tls)
        await rogue.disconnected(2)


async def test_a_timeout_of_the_network_is_raised_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def open_link(*_: object) -> None:
        raise TimeoutError("the network timed out")

    monkeypatch.setattr(Opener, "__call__", open_link)
    with pytest.raises(TimeoutError, match=r"^the network timed out$"):
        await zkwire.four_letter_word("zk1:2181", "ruok", within=60.0)


async def test_a_name_is_resolved_although_jobs_of_the_program_occupy_the_threads_of_the_loop() -> None:
    loop, ends = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    job = loop.run_in_executor(None, ends.wait)
    try:
        async with answering(b"imok") as hosts:
            named = hosts.replace("127.0.0.1", "localhost")
            assert await zkwire.four_letter_word(named, "ruok", within=20.0) == "imok"
    finally:
        ends.set()
        await job


async def test_a_connection_that_is_reset_inside_the_answer_is_an_error_and_not_half_of_an_answer() -> None:
    async with answering(b"Zookeeper version: 3.9", resets=True) as hosts:
        with pytest.raises(ConnectionResetError):
            await zkwire.four_letter_word(hosts, "srvr")
