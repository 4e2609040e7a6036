"""The server's sessions: ids, passwords, timeouts, and the ticks at which they end.

Stores the connection of each session for others and does not use it.  Times are seconds of the server's clock.
"""

from dataclasses import dataclass
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


@dataclass(eq=False, slots=True)
class ServerSession(Generic[C]):
    """One session; `ends_ms` is the time of the tick at which it ends unless it is touched."""

    id: int
    timeout_ms: int = 0
    ends_ms: int = 0
    connection: C | None = None


class Sessions(Generic[C]):
    """All living sessions by id; `restart` comes first.

    Args:
        tick_time: Seconds: sessions end only at its multiples.
    """

    def __init__(self, tick_time: float) -> None:
        self.by_id: dict[int, ServerSession[C]] = {}
        self._tick = max(round(tick_time * 1000), 1)
        self._next_id = 0

    def create(self) -> ServerSession[C]:
        """Begin a session with an id that no other session has had; its first `touch` gives it its end."""
        session: ServerSession[C] = ServerSession(self._next_id)
        self._next_id += 1
        self.by_id[session.id] = session
        return session

    def touch(self, session: ServerSession[C], now: float) -> None:
        """Postpone the end of a session to the first tick after `now` plus its timeout."""
        session.ends_ms = ((round(now * 1000) + session.timeout_ms) // self._tick + 1) * self._tick

    def due(self, now: float) -> list[ServerSession[C]]:
        """Return the sessions with a timeout that has passed, the earliest first."""
        over = [session for session in self.by_id.values() if session.ends_ms <= round(now * 1000)]
        return sorted(over, key=lambda session: session.ends_ms)

    def next_tick(self, now: float) -> float:
        """Return when a session may expire next."""
        return (round(now * 1000) // self._tick + 1) * self._tick / 1000

    def restart(self, now: float) -> None:
        """Start at the time `now`: give every session its full timeout again; none has a connection."""
        for session in self.by_id.values():
            self.touch(session, now)
        # The server's number, then the low 40 bits of the clock in ms, then 16 bits to count with.  When the clock
        # shows no later millisecond than at the last start, the numbers go on: no id is used twice.
        first = _SERVER_ID << 56 | (round(now * 1000) & (1 << 40) - 1) << 16
        self._next_id = max(self._next_id, first)
