"""Whether a write whose answer was lost can still be carried out after the session has moved to another server.

Callers look what became of such a write, and repeat it if it was not carried out.  So no look may come too early.  The
leader carries out a write only if it comes through the server at which the session was resumed last, its *owner*
(SessionTrackerImpl.checkSession).  Once another server has answered a handshake, all that the former server has still
to pass on is refused.

A handshake that the client gave up breaks this.  A server that is slow, or whose link to the leader is, may pass it on
much later: Leader.revalidateSession then makes that server the owner again, and the writes that came with it, or just
ahead of it, are carried out.  So each server is remembered that may have such a write, and whether a handshake was
given up there since.  When that server answers a handshake, nothing of it is late any more: requests and handshakes of
one server reach the leader in one order, and a server that resumes a session ends its earlier connection.

Pure: knows addresses, and neither connections nor requests.
"""

from __future__ import annotations

from zkwire.session.hosts import Address


class LateWrites:
    """The servers through which a write of the present session may come late.

    `doubtful` is one through which a write may come although another server has resumed the session; None: what reads
    show from now on, they show behind all writes that were lost.
    """

    def __init__(self) -> None:
        self.doubtful: Address | None = None
        self._has_handshake: dict[Address, bool] = {}  # by server: whether a handshake was given up there since
        self._asked_again: set[Address] = set()

    def __bool__(self) -> bool:
        """Whether any write was lost since its server last answered a handshake."""
        return bool(self._has_handshake)

    def lost(self, server: Address) -> None:
        """Record that the connection to `server` broke with a write unanswered."""
        self._has_handshake.setdefault(server, False)

    def given_up(self, server: Address) -> None:
        """Record that a handshake was sent to `server`, and given up before the answer."""
        if server in self._has_handshake:
            self._has_handshake[server] = True

    def resumed(self, server: Address, *, is_read_only: bool) -> None:
        """Record that `server` has answered a handshake; by itself, without the leader, if it is read-only."""
        self.doubtful = None
        if is_read_only:
            return
        self._has_handshake.pop(server, None)
        self._asked_again.discard(server)
        doubtful = (other for other, has_handshake in self._has_handshake.items() if has_handshake)
        self.doubtful = next(doubtful, None)

    def ask_again(self, server: Address) -> bool:
        """Return whether to try `server` once more, before the session is ended for its sake."""
        is_first = server not in self._asked_again
        self._asked_again.add(server)
        return is_first
