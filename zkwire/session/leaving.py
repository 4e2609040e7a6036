"""Leave a server without failing a request: drop the link when everything in flight on it is answered."""

from __future__ import annotations

from collections.abc import Callable

from zkwire.session.transport import Link
from zkwire.wire.connection import Call
from zkwire.wire.requests import PingRequest


class Leaving:
    """One departure from a server; it is itself the waiter of the last ping on the link.

    Dropping the link at once would fail every write in flight.  Instead a ping is sent; its answer comes behind all
    others and drops the link.  Meanwhile the link counts as blocked, so that new calls wait for the next server.

    Arguments: `link`; `why`, the reason to drop it with; `is_current`, whether `link` is still the session's link.
    """

    def __init__(self, link: Link, why: str, is_current: Callable[[], bool]) -> None:
        self._link = link
        self._why = why
        self._is_current = is_current
        self._stays = False

    def begin(self, now: float) -> None:
        """Send the ping.

        It does not go through the request queue: calls that wait there would come first, and with `max_in_flight`
        calls unanswered it would wait as well.
        """
        self._link.connection.send(Call(PingRequest(), self), now)
        self._link.flush()
        self._link.leave()

    def stay(self) -> None:
        """Do not leave after all."""
        self._stays = True
        self._link.stay()

    def done(self) -> bool:
        """Whether the answer is of no interest: the link was lost before, or is to stay."""
        return self._stays or not self._is_current()

    def set_result(self, result: object) -> None:
        """Drop the link: everything on it is answered."""
        self._link.abort(ConnectionAbortedError(self._why))

    def set_exception(self, error: BaseException) -> None:
        """Drop the link: the server refuses the ping, but has answered all that came before it."""
        self._link.abort(ConnectionAbortedError(self._why))
