"""The server's sessions: ids, passwords, timeouts, and the ticks at which they end.

Stores the connection of each session for others and does not use it.  Times are seconds of the server's clock.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

_PASSWORD_SEED: Final = 0xB3415C00
_SERVER_ID: Final = 1

C = TypeVar("C")


def password_of(session_id: int) -> bytes:
    """Return the 16 bytes that every server derives from a session's id: four outputs of Java's Random."""
    state = (session_id ^ _PASSWORD_SEED ^ 0x5DEECE66D) % 2**48
    password = b""
    for _ in range(4):
        state = (state * 0x5DEECE66D + 0xB) % 2**48
        password += (state >> 16).to_bytes(4, "little")
    return password


class ServerSession(Generic[C]):
    """One session; `tick` is the number of the tick at which it ends unless it is touched."""

    __slots__ = ("connection", "id", "password", "tick", "timeout_ms")

    def __init__(self, session_id: int) -> None:
        self.id = session_id
        self.password = password_of(session_id)
        self.timeout_ms = 0
        self.tick = 0
        self.connection: C | None = None


class Sessions(Generic[C]):
    """All living sessions by id.

    Args:
        tick_time: Seconds: sessions end only at its multiples.
        now: The time from which the ids are numbered.
    """

    def __init__(self, tick_time: float, now: float) -> None:
        self.by_id: dict[int, ServerSession[C]] = {}
        self._tick = max(round(tick_time * 1000), 1)
        self._next_id = _first_id(now)

    def __len__(self) -> int:
        return len(self.by_id)

    def create(self) -> ServerSession[C]:
        """Begin a session with an id that no other session has had; `renew` gives it its end."""
        session: ServerSession[C] = ServerSession(self._next_id)
        self._next_id += 1
        self.by_id[session.id] = session
        return session

    def renew(self, session: ServerSession[C], timeout_ms: int, now: float) -> None:
        """Set the timeout that the session's new connection has negotiated."""
        session.timeout_ms = timeout_ms
        self.touch(session, now)

    def touch(self, session: ServerSession[C], now: float) -> None:
        """Postpone the end of a session to the first tick after `now` plus its timeout."""
        session.tick = (round(now * 1000) + session.timeout_ms) // self._tick + 1

    def end(self, session: ServerSession[C]) -> None:
        """Remove a session from the list."""
        del self.by_id[session.id]

    def due(self, now: float) -> list[ServerSession[C]]:
        """Return the sessions with a timeout that has passed, the earliest first."""
        over = [session for session in self.by_id.values() if session.tick * self._tick <= round(now * 1000)]
        return sorted(over, key=lambda session: session.tick)

    def next_tick(self, now: float) -> float:
        """Return when a session may expire next."""
        return (round(now * 1000) // self._tick + 1) * self._tick / 1000

    def clear(self) -> None:
        """Forget all sessions."""
        self.by_id.clear()

    def restart(self, now: float) -> None:
        """Give every session its full timeout again, as a restarted server does."""
        for session in self.by_id.values():
            session.connection = None
            self.touch(session, now)
        # When the clock shows no later millisecond than at the last start, the numbers go on: no id is used twice.
        self._next_id = max(self._next_id, _first_id(now))

    def deadline(self, session: ServerSession[C]) -> float:
        """Return when `session` expires unless its client sends something."""
        return session.tick * self._tick / 1000


def _first_id(now: float) -> int:
    """Return the first id: the server's number, then the low 40 bits of the clock in ms, then 16 bits to count with."""
    return _SERVER_ID << 56 | (round(now * 1000) & (1 << 40) - 1) << 16
