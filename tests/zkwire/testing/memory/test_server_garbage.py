"""A client that sends garbage never stops the in-memory server.

The invariant: whatever bytes come, the server goes on to serve others, and nothing reaches the loop's exception handler
(the harness fails a test in which something does).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from collections.abc import Callable

import pytest

import zkwire
from tests.support.examples import some_in_quick
from zkwire.testing import Server
from zkwire.wire.records import ConnectRequest

CONNECTIONS = 150
OPCODES = [*range(-12, 25), *range(99, 109), 2**31 - 1]


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


HANDSHAKE = framed(ConnectRequest(0, 0, 10_000, 0, bytes(16), False).encode())


def noise(rng: random.Random) -> bytes:
    """Bytes of no meaning."""
    return rng.randbytes(rng.randrange(200))


def nonsense(rng: random.Random) -> bytes:
    """A session, then frames of any request with a body of no meaning."""
    requests = [
        struct.pack(">ii", rng.randrange(-9, 9), rng.choice(OPCODES)) + rng.randbytes(rng.randrange(40))
        for _ in range(20)
    ]
    return HANDSHAKE + b"".join(framed(request) for request in requests)


@pytest.mark.parametrize("make", [noise, nonsense])
@pytest.mark.parametrize("seed", some_in_quick(range(4), 1))
async def test_garbage_takes_nothing_down(make: Callable[[random.Random], bytes], seed: int) -> None:
    rng = random.Random(f"{make.__name__} {seed}")
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        session = zk.session_id
        await zk.create("/witness", b"here", ephemeral=True)
        for _ in range(CONNECTIONS):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            with contextlib.suppress(OSError):
                stream = make(rng)
                cut = rng.randrange(len(stream) + 1)
                writer.write(stream[:cut])
                await asyncio.sleep(0)
                writer.write(stream[cut:])
                writer.write_eof()
                await reader.read()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        assert zk.session_id == session
        assert (await zk.get("/witness")).data == b"here"
        async with zkwire.connect(server.hosts) as other:
            assert await other.exists("/witness") is not None
