"""An in-memory ZooKeeper server for tests: asyncio around a Machine, and the faults that a test injects.

    async with Server() as server, zkwire.connect(server.hosts) as zk: ...

A test double, never a store: it is one server and writes nothing to disk. This module knows sockets, timers, and which
socket belongs to which connection; the Machine carries out the requests.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Final, Self

from zkwire.testing.memory import four_letter_words
from zkwire.testing.memory.clock import Clock, LoopClock, Timer
from zkwire.testing.memory.faults import CONNECTION, HEADER_BYTES, OUTPUT, REQUEST, Fault, Faults, RequestBytes, signed
from zkwire.testing.memory.link import ServerLink
from zkwire.testing.memory.machine import Machine, ServerConnection, Settings
from zkwire.testing.settings import check_number, check_text

_BACKLOG: Final = 1024
GARBAGE: Final = b"\xde\xad\xbe\xef" * 16  # as the length of a frame, a negative one


class Server(Faults):
    """A standalone ZooKeeper 3.9 in memory, listening on a port.

        async with Server() as server:
            async with zkwire.connect(server.hosts) as zk: ...

    The server runs in the event loop in which it was started, without a thread or a task. Any ZooKeeper client may
    connect.

    Args:
        tick_time: The length of a tick in seconds; sessions end only at ticks.
        min_session_timeout: The shortest session timeout that is granted, in seconds; 2 ticks when None.
        max_session_timeout: The longest one; 20 ticks when None.
        max_buffer: The largest frame that is accepted from a client, in bytes.
        ttl_nodes: Whether nodes can have a time to live.
        super_digest: "super:<hash>" of the user that is not subject to ACLs.
        container_interval: How often empty containers and TTL nodes are cleaned up, in seconds.
        clock: A VirtualClock, or None for the event loop's time.
        host: The address to listen on.
        port: The port, 0 for a free one.

    Raises:
        ValueError: if no server can have these settings.
        TypeError: if one of them has the wrong type.
    """

    def __init__(
        self,
        *,
        tick_time: float = 2.0,
        min_session_timeout: float | None = None,
        max_session_timeout: float | None = None,
        max_buffer: int = 1_048_575,
        ttl_nodes: bool = True,
        super_digest: str | None = None,
        container_interval: float = 60.0,
        clock: Clock | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        super().__init__()
        self._settings = Settings(
            tick_time, min_session_timeout, max_session_timeout, max_buffer, ttl_nodes, super_digest, container_interval
        )
        check_number("port", port, 0, 65535)
        check_text("host", host)
        self.is_running: bool = False  # whether it listens; a paused server does
        self.is_paused: bool = False
        self.clock: Clock
        self._given_clock = clock
        self._host = host
        self._wanted_port = port
        self._machine = Machine(self._settings)
        self._socket: socket.socket | None = None  # keeps the port bound while the server is down
        self._listener: asyncio.Server | None = None
        self._links: set[ServerLink] = set()
        self._by_connection: dict[ServerConnection, ServerLink] = {}
        self._timer: Timer | None = None

    # -- up and down --------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    @property
    def port(self) -> int:
        """The port, the same after `restart`.

        Raises:
            RuntimeError: before `start` and after `close`.
        """
        if self._socket is None:
            raise RuntimeError("the server has no port before it is started")
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def hosts(self) -> str:
        """The connect string, such as "127.0.0.1:20181".

        Raises:
            RuntimeError: before `start` and after `close`.
        """
        return f"[{self._host}]:{self.port}" if ":" in self._host else f"{self._host}:{self.port}"

    @property
    def sessions(self) -> list[int]:
        """The ids of the live sessions, the oldest first."""
        return list(self._machine.sessions.by_id)

    async def start(self) -> None:
        """Start to listen; a stopped server gets its port and data back, and each session its full timeout.

        Raises:
            OSError: if the port is taken.
            RuntimeError: if the server is running already.
        """
        if self._listener is not None:
            raise RuntimeError(f"the server on {self.hosts} is running already")
        if self._socket is None:
            self._socket = _bind(self._host, self._wanted_port)
        self.clock = self._given_clock or LoopClock()
        self._machine.restart(self.clock.time(), self.clock.wall(), self.port)
        self.is_running = True
        try:
            create_server = asyncio.get_running_loop().create_server
            self._listener = await create_server(self._make_link, sock=self._socket, backlog=_BACKLOG)
        except BaseException:
            self.is_running = False
            self._stop_listening(keep_port=False)
            raise
        self._flush()

    async def stop(self) -> None:
        """Stop: drop all connections and refuse new ones. The data, the sessions and the port are kept."""
        await self._go_down(keep_port=True)

    async def restart(self, *, lose_data: bool = False) -> None:
        """Stop and start again on the same port, with the data and the sessions, or as an empty server."""
        async with self.stopped(lose_data=lose_data):
            pass

    @contextlib.asynccontextmanager
    async def stopped(self, *, lose_data: bool = False) -> AsyncIterator[None]:
        """Be stopped within an `async with` block, and start again after it."""
        await self.stop()
        try:
            yield
        finally:
            if lose_data:
                self._machine.lose_data()
            await self.start()

    async def close(self) -> None:
        """Stop and release everything: the port, the data and the sessions.

        Nothing happens when the server is closed already. It may be started again, as a new server.
        """
        try:
            await self._go_down(keep_port=False)
        finally:
            self._machine = Machine(self._settings)

    async def _go_down(self, *, keep_port: bool) -> None:
        """Drop every connection and accept no more, then stop listening and wait until all sockets are closed."""
        self.is_running = False
        self.is_paused = False
        for link in list(self._links):
            link.drop()
        self._on_timer()  # which sets no other
        if self._listener is not None and self._socket is not None:
            with contextlib.suppress(NotImplementedError):  # the loop does not accept by add_reader
                asyncio.get_running_loop().remove_reader(self._socket.fileno())
        try:
            # asyncio makes the Links of accepted sockets in the next turn, and fails once the listener is closed.
            await asyncio.sleep(0)
        finally:
            self._stop_listening(keep_port)
        for link in list(self._links):
            link.drop()
        if self._links:
            await asyncio.wait([link.closed for link in self._links])

    def _stop_listening(self, keep_port: bool) -> None:
        if self._socket is None:
            return
        port = self.port
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._socket.close()
        # A port that is bound but not listened on refuses connections, and the system gives it to no other process.
        self._socket = _bind(self._host, port) if keep_port else None

    def _make_link(self) -> ServerLink:
        link = ServerLink(self, self._settings.max_buffer)
        self._links.add(link)
        link.closed.add_done_callback(lambda _: self._links.discard(link))
        return link

    # -- faults (those that hit requests are in Faults) ---------------------------------------------------

    def pause(self) -> None:
        """Freeze, as a stopped process does: connections stay open, but nothing is read, answered or expired."""
        self.is_paused = True
        for link in self._links:
            link.go_on()

    def resume(self) -> None:
        """Continue after `pause`; sessions whose timeout has passed meanwhile are expired first."""
        self.is_paused = False
        self._on_timer()
        for link in list(self._links):
            link.let_out()
            link.go_on()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Be paused within a `with` block."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def end_faults(self) -> None:
        """End every active fault, and a pause."""
        for fault in list(self._faults):
            fault.end()
        self.resume()

    def expire(self, session_id: int) -> None:
        """Expire a session now, as if its timeout had passed.

        Raises:
            LookupError: if there is no such session.
        """
        session_id = signed(session_id)
        if session_id not in self.sessions:
            raise LookupError(f"no session {session_id % 2**64:#x}; there are {self._named_sessions()}")
        self._machine.expire(session_id)
        self._flush()

    def drop(self, session_id: int | None = None) -> int:
        """Drop the connection of a session, or every connection, now; return how many. The sessions stay alive."""
        links = list(self._links) if session_id is None else self._links_of(session_id)
        for link in links:
            link.drop()
        return len(links)

    def send_garbage(self, session_id: int, data: bytes = GARBAGE) -> None:
        """Send bytes that make no valid frame to the client of a session.

        Raises:
            LookupError: if the session has no connection.
        """
        links = self._links_of(session_id)
        if not links:
            raise LookupError(f"session {session_id % 2**64:#x} has no connection; there are {self._named_sessions()}")
        for link in links:
            link.send([data], self._striking(OUTPUT, signed(session_id)), closing=False)

    def _fault_ended(self, fault: Fault) -> None:
        super()._fault_ended(fault)
        for link in list(self._links):
            link.let_out()

    # -- for the links ------------------------------------------------------------------------------------

    def _link_opened(self, link: ServerLink, peer: str, port: int) -> None:
        """Accept a new connection, or close it."""
        if not self.is_running or self._striking(CONNECTION):
            link.drop()
            return
        link.connection = self._machine.open(peer, port, self.clock.time())
        self._by_connection[link.connection] = link

    def _link_received(self, link: ServerLink, payload: bytes) -> None:
        """Carry out the request in a frame, with the faults that it meets."""
        connection = link.connection
        assert connection is not None
        hit: list[Fault] = []
        # Faults strike after the handshake only, and a frame without a header is not a request.
        if self._faults and connection.session is not None and len(payload) >= HEADER_BYTES:
            hit = self._striking(REQUEST, connection.session.id, RequestBytes(payload))
        if hit:
            self._flush()  # the replies to earlier requests are sent first: the faults do not concern them
        names = [fault.name for fault in hit]
        if "drop_before" in names:
            link.drop()
            return
        if "answering" in names:
            code = hit[names.index("answering")].code
            self._machine.reply(connection, RequestBytes(payload).xid, self._machine.last_zxid, code)
        else:
            self._machine.receive(connection, payload, self.clock.time())
        if "drop_after" in names:
            link.drop()
        elif hit:
            self._send(link, [fault for fault in hit if fault.name != "answering"])

    def _link_lost(self, link: ServerLink) -> None:
        """Forget a connection that is gone."""
        if link.connection is not None and self._by_connection.pop(link.connection, None) is not None:
            self._machine.lost(link.connection, self.clock.time())

    def _link_began(self, link: ServerLink, word: bytes) -> bytes | None:
        """Return the answer to a four-letter word, the first bytes of a connection; None when they are no such word."""
        assert link.connection is not None
        self._machine.now = self.clock.time()
        return four_letter_words.answer(self._machine, link.connection, word)

    def _flush(self) -> None:
        """Write the machine's output, in one write for each connection, and set the timer for its next deadline."""
        for connection in self._machine.take_dirty():
            if connection in self._by_connection:
                self._send(self._by_connection[connection], [])
        if self._timer is None:
            self._timer = self.clock.call_at(self._machine.next_deadline(), self._on_timer)

    def _send(self, link: ServerLink, faults: list[Fault]) -> None:
        connection = link.connection
        if connection is None or not (connection.outgoing or connection.closing):
            return  # an earlier flush has sent it
        if self._faults and connection.session is not None:
            faults = [*faults, *self._striking(OUTPUT, connection.session.id)]
        frames, connection.outgoing = connection.outgoing, []
        link.send(frames, faults, closing=connection.closing)

    def _on_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.is_running and not self.is_paused:
            self._machine.advance(self.clock.time())
            self._flush()

    def _links_of(self, session_id: int) -> list[ServerLink]:
        session = self._machine.sessions.by_id.get(signed(session_id))
        connection = None if session is None else session.connection
        return [] if connection is None else [self._by_connection[connection]]

    def _named_sessions(self) -> str:
        return ", ".join(f"{session_id % 2**64:#x}" for session_id in self.sessions) or "none"


def _bind(host: str, port: int) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    # asyncio sets TCP_NODELAY only on a socket with TCP named as its protocol.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # on Windows it would let two servers share one port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound
