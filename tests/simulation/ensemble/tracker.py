"""The leader's sessions: when each expires, and through which server it may write.

As SessionTrackerImpl and ExpiryQueue of the real server: a session expires at the first whole tick after the moment at
which it was touched plus its timeout.  Each touch has a timeout of its own, and may come to an earlier tick than the
one before (ExpiryQueue.update).  Pure: it is given the time.
"""

from dataclasses import dataclass
from typing import Final

from zkwire.errors import SessionMovedError

_EXPIRED: Final = -112  # the code of SessionExpired in a reply


@dataclass(slots=True, eq=False)
class Tracked:
    """One session: the tick at which it expires, and its owner."""

    id: int
    tick: int = 0
    owner: object = None
    is_closing: bool = False


class SessionTracker:
    """All living sessions.  Arguments: `tick`, in seconds; `now`."""

    def __init__(self, tick: float, now: float) -> None:
        self.by_id: dict[int, Tracked] = {}
        self._tick = tick
        self._buckets: dict[int, dict[Tracked, None]] = {}
        self._next = int(now / tick) + 1

    @property
    def next_expiry(self) -> float:
        """The next moment at which `poll` must be called."""
        return self._next * self._tick

    def track(self, session_id: int, timeout_ms: int, now: float) -> None:
        """Begin to track a session, or touch it."""
        self.by_id.setdefault(session_id, Tracked(session_id))
        self.touch(session_id, timeout_ms, now)

    def touch(self, session_id: int, timeout_ms: int, now: float) -> bool:
        """Postpone the end of a session; return False when there is no such session, or it is closing."""
        session = self.by_id.get(session_id)
        if session is None or session.is_closing:
            return False
        tick = int((now + timeout_ms / 1000) / self._tick) + 1
        if tick != session.tick:
            self._leave(session)
            session.tick = tick
            self._buckets.setdefault(tick, {})[session] = None
        return True

    def poll(self, now: float) -> list[int] | None:
        """Return the sessions of the next tick that is over, None if none is (ExpiryQueue.poll).

        All of them are to be ended, one after the other.  Until `close` is called, a session can still be touched, in
        vain, and write (SessionTrackerImpl.run, touchSession, setSessionClosing).
        """
        if self._next * self._tick > now:
            return None
        self._next += 1
        return [session.id for session in self._buckets.pop(self._next - 1, ())]

    def close(self, session_id: int) -> None:
        """Record that the session is closing: it can do nothing more."""
        session = self.by_id.get(session_id)
        if session is not None:
            session.is_closing = True

    def remove(self, session_id: int) -> None:
        """Forget a session whose end is committed."""
        session = self.by_id.pop(session_id, None)
        if session is not None:
            self._leave(session)

    def set_owner(self, session_id: int, owner: object) -> None:
        """Let the session write through `owner` only."""
        session = self.by_id.get(session_id)
        if session is not None and not session.is_closing:
            session.owner = owner

    def refusal(self, session_id: int, owner: object) -> int:
        """Return the error code for a request of the session that came through `owner`, 0 if it may be carried out."""
        session = self.by_id.get(session_id)
        if session is None or session.is_closing:
            return _EXPIRED
        if session.owner is None:
            session.owner = owner
        return 0 if session.owner is owner else SessionMovedError.code

    def _leave(self, session: Tracked) -> None:
        bucket = self._buckets.get(session.tick)
        if bucket is not None:
            bucket.pop(session, None)
