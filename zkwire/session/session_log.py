"""What a session says: its log (docs/production.md lists the messages), and the error of a start that has failed.

Knows how often a message may be repeated.  An ensemble that is down fails every attempt to connect, for hours.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from zkwire.errors import ProtocolError, ZooKeeperError, explained
from zkwire.session.hosts import Address
from zkwire.session.opening import UnfitError, unfit
from zkwire.wire.records import printed

_log = logging.getLogger(__name__)

_FIRST_INTERVAL: Final = 10.0  # seconds from a message to its first repetition; each further interval is twice as long
_LONGEST_INTERVAL: Final = 600.0
_LASTED: Final = 10.0  # seconds after which a connection counts as one that works: what fails then is news
_ADVICE: Final = (
    "check that the servers run and have a quorum (the command `zkwire srvr`), and that this machine reaches their"
    " ports; give zkwire.connect a longer `within`, or None to wait for ever"
)

Failures = Sequence[tuple[Address, Exception | None]]  # of each server, None if it has not been tried to the end


class Repetitions:
    """Decides which of many messages of one kind are logged: the first one, then one at growing intervals."""

    def __init__(self) -> None:
        # Of each kind: when a message was logged last, the interval to the next one, how many were left out since.
        self._kinds: dict[object, tuple[float, float, int]] = {}

    def note(self, kind: object, now: float) -> str | None:
        """Record a message at the time `now`; return what to add to it, None if it is to be left out."""
        if kind not in self._kinds:
            self._kinds[kind] = now, _FIRST_INTERVAL, 0
            return ""
        logged_at, interval, left_out = self._kinds[kind]
        if now - logged_at < interval:
            self._kinds[kind] = logged_at, interval, left_out + 1
            return None
        self._kinds[kind] = now, min(interval * 2, _LONGEST_INTERVAL), 0
        return f" ({f'{left_out + 1} times' if left_out else 'once'} in the last {now - logged_at:.0f} s)"

    def forget(self) -> None:
        """Log the next message of each kind, whatever was logged before."""
        self._kinds.clear()


class SessionLog:
    """The log of one client's sessions."""

    def __init__(self, session_id: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._repetitions = Repetitions()
        self._session_id = session_id
        self._is_lost = False  # whether the last message of all says that there is no connection or session

    def connected(self, server: str, session_id: int, timeout: float, *, is_read_only: bool) -> None:
        """A server has accepted the session."""
        is_resumed, self._session_id = session_id == self._session_id, session_id
        self._connected_at = self._loop.time()
        # A new session is always news; a server that drops each connection has the same one resumed again and again.
        added = self._repetitions.note((server, "resumed"), self._connected_at) if is_resumed else ""
        if added is not None or self._is_lost:
            _log.log(
                logging.WARNING if self._is_lost else logging.INFO,  # who has seen a warning also sees that it is over
                "connected to %s%s: %s session %s, with a timeout of %.3g s%s",
                server,
                ", which is read-only" if is_read_only else "",
                "resumed" if is_resumed else "new",
                printed(session_id),
                timeout,
                added or "",
            )
            self._is_lost = False

    def lost(self, server: str, reason: Exception) -> None:
        """The connection was lost."""
        if self._loop.time() - self._connected_at >= _LASTED:
            self._repetitions.forget()
        self._write(logging.WARNING, (server, "lost", type(reason)), "lost the connection to %s: %s%s", server, reason)

    def dropped(self, server: str, reason: ProtocolError) -> None:
        """The connection was lost because of bad bytes."""
        self._write(logging.ERROR, (server, "dropped"), "dropped %s: %s: %s%s", server, type(reason).__name__, reason)

    def failed(self, server: str, error: OSError | ProtocolError) -> None:
        """An attempt to connect has failed."""
        name = type(error).__name__
        why = unfit(error) or explained(error)
        self._write(logging.WARNING, (server, "failed", type(error)), "no session with %s: %s: %s%s", server, name, why)

    def _write(self, level: int, kind: object, message: str, *values: object) -> None:
        added = self._repetitions.note(kind, self._loop.time())
        if added is not None:
            self._is_lost = True
            _log.log(level, message, *values, added)

    def ended(self, error: ZooKeeperError) -> None:
        """The session has expired, or the server refuses a credential."""
        self._is_lost = True
        _log.error("%s", error)

    def closed(self, session_id: int, timeout: float, *, is_confirmed: bool) -> None:
        """The client was closed; a server has said that the session has ended, or none has."""
        if is_confirmed:
            _log.info("closed session %s", printed(session_id))
        else:
            _log.warning(
                "closed, but no server has answered: session %s and its ephemeral nodes may live on until it expires,"
                " %.3g s after the last server has heard of it",
                printed(session_id),
                timeout,
            )


def given_up(failures: Failures, *, is_one_round: bool) -> OSError | None:
    """Return the error of a client that gives up, None if it goes on.

    It gives up when it can use none of the servers, however often it tries, or after one round if that is wanted.
    """
    final = [(address, failure) for address, failure in failures if isinstance(failure, UnfitError)]
    if len(final) == len(failures):
        error = UnfitError(f"no session with {'; '.join(f'{address}: {failure}' for address, failure in final)}")
        error.__cause__ = final[-1][1].__cause__
        return error
    return not_in_time(failures, 0, None) if is_one_round and all(failure for _, failure in failures) else None


def not_in_time(failures: Failures, within: float, present: Address | None) -> TimeoutError:
    """Return the error of a client that got no session in time, or (0) in one round; `present` is being tried."""
    limit = f"within {within:g} s" if within else "in one round"
    causes = "; ".join(f"{address}: {_cause(address, failure, present)}" for address, failure in failures)
    return TimeoutError(f"no session {limit}: {causes}; {_ADVICE}")


def _cause(address: Address, failure: Exception | None, present: Address | None) -> str:
    if failure is not None:
        return explained(failure)
    return "no answer yet" if address == present else "not tried yet"
