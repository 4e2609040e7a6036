"""The contestant `asyncio`: zkwire's waiting line on a bare protocol, to show what asyncio itself costs.

It sends the same requests in the same writes as recipes.Lock, and looks ahead in the same way, with hand-packed frames.
It waits for one batch of requests at a time, and has no lease, no cancellation, and no handling of a lost session or of
a contender that dies.  The difference between the floor and this is what any asyncio client pays on the machine; the
difference between this and ``zkwire`` is what our client adds.
"""

import asyncio
import time
from typing import cast

from bench import frames
from bench.ourline import readable
from bench.racing import Starter
from bench.turns import Order, Turn

_READ_SIZE = 1 << 16


def race(order: Order, starter: Starter) -> list[Turn]:
    """Run one worker's turns of ``asyncio``: report when connected, wait for the start, return the records."""
    return asyncio.run(_race(order, starter))


async def _race(order: Order, starter: Starter) -> list[Turn]:
    turns = []
    _, wire = await asyncio.get_running_loop().create_connection(_Wire, order.host, order.port)
    await wire.greeted
    starter.send("ready")
    await readable(starter.fileno())
    starter.recv()
    line = _Line(wire, order.lock)
    for _ in range(order.turns):
        acquire_called = time.monotonic_ns()
        await line.acquire()
        acquired = time.monotonic_ns()
        if order.hold:
            await asyncio.sleep(order.hold)
        release_called = time.monotonic_ns()
        await line.release()
        turns.append(Turn(acquire_called, acquired, release_called, time.monotonic_ns(), line.token))
    await wire.close()
    return turns


class _Wire(asyncio.BufferedProtocol):
    """One connection that waits for replies in batches and collects the paths of deleted nodes."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.departed: set[bytes] = set()
        self.greeted: asyncio.Future[None] = loop.create_future()
        self._replies: list[tuple[int, int, bytes]] = []
        self._wanted = 0
        self._waiter: asyncio.Future[None] = loop.create_future()
        self._buffer = bytearray(_READ_SIZE)
        self._view = memoryview(self._buffer)
        self._rest = b""

    async def call(self, *requests: bytes) -> list[tuple[int, int, bytes]]:
        """Send the frames in one write and return each one's zxid, error code and body."""
        self._wanted = len(requests)
        self._transport.write(b"".join(requests))
        while len(self._replies) < self._wanted:
            await self._next_arrival()
        self._wanted = 0
        replies = self._replies
        self._replies = []
        return replies

    async def departure(self) -> None:
        """Wait for the next event."""
        await self._next_arrival()

    async def close(self) -> None:
        """End the session."""
        await self.call(frames.CLOSE)
        self._transport.close()

    async def _next_arrival(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(frames.HELLO)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = self._rest + bytes(self._view[:nbytes])
        at = 0
        events = False
        while len(data) - at >= 4:
            end = at + 4 + frames.INT.unpack_from(data, at)[0]
            if end > len(data):
                break
            if not self.greeted.done():
                self.greeted.set_result(None)
            else:
                _, xid, zxid, code = frames.REPLY.unpack_from(data, at)
                body = data[at + frames.REPLY.size : end]
                if xid == frames.EVENT_XID:
                    self.departed.add(frames.departed(body))
                    events = True
                else:
                    self._replies.append((zxid, code, body))
            at = end
        self._rest = data[at:]
        awaited = len(self._replies) >= self._wanted if self._wanted else events
        if awaited and not self._waiter.done():
            self._waiter.set_result(None)


class _Line:
    """One worker's ticket in the line, created and deleted in each turn."""

    def __init__(self, wire: _Wire, lock: str) -> None:
        self._wire = wire
        self._parent = lock.encode() + b"/"
        self._create = frames.create(lock + "/n-", frames.EPHEMERAL_SEQUENTIAL)
        self._list = frames.children(lock)
        self._path = b""
        self.token = 0

    async def acquire(self) -> None:
        """Create a ticket and wait until it is the first."""
        gone = self._wire.departed
        gone.clear()
        (self.token, _, created), (_, _, listed) = await self._wire.call(self._create, self._list)
        self._path = created[4:]
        # Sequence numbers have a fixed width and one prefix, so text order is line order.
        before = sorted(self._parent + name for name in frames.names(listed) if self._parent + name < self._path)
        if not before:
            return
        watched = [self._path, *before[-2:]]
        replies = await self._wire.call(*map(frames.watch, watched))
        gone.update(path for path, (_, code, _) in zip(watched, replies, strict=True) if code == frames.NO_NODE)
        if len(before) > 2 and before[-1] not in gone:
            while not gone:
                await self._wire.departure()
            if before[-1] not in gone:
                await self._wire.call(self._list)  # a real client would learn from it that no other ticket is left
        while before[-1] not in gone:
            await self._wire.departure()

    async def release(self) -> None:
        """Delete the ticket; the server has done so when this returns."""
        await self._wire.call(frames.delete(self._path))
