"""The part of the client that is about its session: what it is, how long it is certain to live, and how it ends.

`Client` inherits it.  Knows the session, and no request but those that the session sends itself.
"""

from __future__ import annotations

import asyncio
import warnings
from types import TracebackType
from typing import Self

from zkwire.client.streams import StateStream
from zkwire.session import keepalive
from zkwire.session.observer import SessionState
from zkwire.session.session import Session
from zkwire.session.transport import check_loop
from zkwire.wire.records import printed


class SessionView:
    """The properties of a Client that show its session, and `close`."""

    _session: Session
    _loop: asyncio.AbstractEventLoop

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        # It is not closed here: a stream or a lock of this client may still be in use.
        if self._session.on_closed.error is None:
            warnings.warn(
                f"the client of session {printed(self.session_id)} was dropped and not closed, so the session and its"
                " ephemeral nodes live on: call `await zk.close()`, or use `async with zkwire.connect(...) as zk`",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    @property
    def session_id(self) -> int:
        """The session's id, 0 while there is no session; print it as hexadecimal, as the server does."""
        return self._session.key.id

    @property
    def session_password(self) -> bytes:
        """The session's password, which `connect` needs beside the id to resume the session."""
        return self._session.key.password

    @property
    def session_timeout(self) -> float:
        """The session timeout that the server has granted, in seconds."""
        return self._session.timeout

    @property
    def least_timeout(self) -> float | None:
        """The least timeout that the session was ever granted, in seconds: `connect` needs it to resume the session.

        None in a session that was itself resumed without it, and before there is a session.
        """
        certainty = self._session.lifetime.certainty
        return None if certainty is None or certainty.least == float("inf") else certainty.least

    @property
    def state(self) -> SessionState:
        """The state of the session now."""
        return self._session.states.now

    @property
    def server(self) -> str:
        """The connected server, or the last one tried, as "host:port"."""
        return self._session.server

    @property
    def last_zxid(self) -> int:
        """The newest transaction id that a reply to this session has carried."""
        return self._session.requests.last_zxid

    @property
    def certain_until(self) -> float:
        """The time on the event loop's clock until which the session cannot expire; minus infinity once it has expired.

        It comes from answers that passed through the ensemble's leader; see docs/waiting-line.md, "Certainty".
        """
        return self._session.lifetime.until

    def need_certainty(self, *, later: bool = False) -> None:
        """Have 0.4 of the session's timeout kept certain from now on, until `release_certainty` was called as often.

        For recipes: a lock needs it for as long as it is held, and while it waits and may become the owner by an event
        alone.  Meanwhile the client sends 6.7 syncs and writes in each session timeout.
        Arguments: `later`, whether the lock only waits and is not the next one: then the session is kept so that it
        can be certain later, which costs what an idle client costs.
        """
        self._session.keepalive.need(later=later)

    def release_certainty(self, *, later: bool = False) -> None:
        """Undo one `need_certainty` with the same argument."""
        self._session.keepalive.release(later=later)

    async def certify(self) -> None:
        """Return once the session is certain to live for a tenth of its timeout, at once if it is.

        Raises: SessionError; NotReadOnlyError when connected to a server that has lost its quorum; ValueError in a
        session that was resumed without its `least_timeout`.
        Cancellation: harmless.
        Requests: none if it is certain; one or two in a session that was kept, see `locks` of zkwire.connect.  If it
        was not, or was cut off for long, it takes until the leader has ended another session: about three ticks.
        """
        check_loop(self._loop)
        await self._session.keepalive.certify()

    def is_certain(self, session_id: int) -> bool:
        """Return whether `session_id` is the present session, and certain for long enough to acquire a lock."""
        return self._session.lifetime.is_certain(session_id)

    def is_cut_off(self) -> bool:
        """Return whether `certify` has to wait until the leader has ended another session, or soon will.

        A lock calls it before it makes its node, which would keep others waiting.
        """
        certainty = self._session.lifetime.certainty
        return certainty is not None and certainty.has_run_out(self._loop.time())

    def certain_for(self, session_id: int) -> float:
        """Return how many seconds from now the session cannot expire; 0 if `session_id` is another session."""
        return self._session.lifetime.certain_for(session_id)

    def machine_suspended(self) -> float:
        """Return for how many seconds this machine was suspended so far; only the difference of two calls counts."""
        return keepalive.suspended()

    def states(self) -> StateStream:
        """Return a stream of the session's states, the present one first: `async for state in zk.states()`."""
        return StateStream(self._session.states, self._loop)

    async def close(self, *, keep_session: bool = False, within: float | None = None) -> None:
        """End the session, which deletes its ephemeral nodes at once, and close the connection.

        A second call waits for the first.  It ends within one session timeout, whatever the servers do, and when no
        server was heard for 2 seconds.  While none is connected, it waits as long for the next connection, and ends the
        session there; if there is none in time, the session is left to expire.  These 2 seconds begin earlier, up to
        half a second before their end, if no server was heard for some time before this call.
        Without this call, a client whose event loop ends (`asyncio.run` cancels all tasks) still ends its session.
        Arguments: `keep_session`, whether to keep the session alive on the server, to be resumed by its id and
        password; while no server is connected, this ends at once, and what was released meanwhile may stay in that
        session; `within`, a shorter bound, in seconds; 0 sends the request, if connected, and waits for no answer.
        Raises: ValueError if `within` is not 0 or more.
        Cancellation: the client closes all the same; the session may then live until it expires.
        Order: verbs called before `close` are answered first; verbs called after it raise SessionClosedError.
        """
        check_loop(self._loop)
        if within is not None and not within >= 0:
            raise ValueError(f"close: within must be 0 seconds or more, not {within!r}")
        await self._session.close(keep_session=keep_session, within=within)
