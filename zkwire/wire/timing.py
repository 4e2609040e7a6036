"""Times that follow from the negotiated session timeout: when to ping, when a link is dead, when to give a session up.

All of it is pure.  `timeout` is in seconds; moments are in seconds on one monotonic clock.  The server expires a
session between one timeout and one timeout plus a tick after the last request that it received.
"""

from typing import Final

LONGEST: Final = 3600.0  # seconds: servers grant 40 by default; a larger number means milliseconds, or no real server
_FIRST_PAUSE: Final = 0.1
_LEAST_GRANTED: Final = 0.05
_GROWTH: Final = 4096  # bytes by which a frame must grow within a session timeout


def ping_after(timeout: float) -> float:
    """Return how many seconds after the last sending the next ping is due: a quarter of the timeout.

    The time counts from the last sending, never from the last receipt: a server that sends all the time must still
    hear from this client.
    """
    return timeout / 4


def dead_after(timeout: float, *, keeps_certain: bool = False) -> float:
    """Return how many seconds a link may be silent before the client drops it: half of the timeout.

    A third of the timeout while the session must be certain: 0.7 of it was certain at the last reply, so that as much
    again is left to reach another server before a lock must be given up.
    """
    return timeout / (3 if keeps_certain else 2)


def unanswered_after(timeout: float, *, keeps_certain: bool = False) -> float:
    """Return how many seconds a request may at least wait for its answer before silence counts: a fifth of the timeout.

    Requests at rest are up to 0.45 of the timeout apart (see certainty.py), so that a dead link is dropped after 0.65.
    A sixth of the timeout while the session must be certain.
    """
    return timeout / (6 if keeps_certain else 5)


def late_after(timeout: float) -> float:
    """Return how many seconds a timer may be late before the event loop counts as blocked: an eighth of the timeout.

    With a quarter for the ping, and a quarter for its answer, that much is left until the session may have expired.
    """
    return timeout / 8


def connect_within(timeout: float, hosts: int) -> float:
    """Return how many seconds one attempt to connect may take, the handshake included.

    Each host gets an equal share of the timeout, so that all can be tried before the session expires.  The share is at
    least a twentieth of the timeout, for long lists, and at most the time after which a silent link counts as dead.
    """
    return min(max(timeout / hosts, timeout / 20), dead_after(timeout))


def refused_within(timeout: float) -> float:
    """Return how many seconds a server that does not serve takes at most to close the connection on a handshake.

    A fiftieth of the timeout: it does so as soon as it has read the request.  One that serves may have passed the
    handshake on to its leader when it closes the connection later.
    """
    return timeout / 50


def give_up_after(timeout: float) -> float:
    """Return after how many seconds without any server's reply the client itself declares the session expired.

    It is four thirds of the timeout, as in the Java client since 3.9.3.  An ensemble that runs has ended the session
    by then, unless its tick is longer than a third of the timeout; and a client should not wait for ever for an
    ensemble that is down.  No lock depends on it: locks were given up when certainty ended, long before.
    """
    return timeout * 4 / 3


def least_granted(wanted: float) -> float:
    """Return the shortest session timeout to accept from a server, in seconds, where `wanted` was asked for.

    With a timeout of a few milliseconds the client would send thousands of pings a second, and lose the session
    anyway.  No real server grants so little unless it is asked for: two ticks are its minimum.
    """
    return min(wanted, _LEAST_GRANTED)


def ask_again_after(rounds: int, timeout: float) -> float:
    """Return how many seconds to wait, at most, before asking the other servers again whether one accepts writes.

    The first pause is a tenth of a second, because a quorum is often back at once.  Each pause is twice as long as the
    one before, up to the session timeout.
    """
    return min(_FIRST_PAUSE * 2.0 ** min(rounds, 20), timeout)


class Progress:
    """Finds out whether the oldest request makes progress, although other bytes arrive.

    This is the case of a server that sends events all the time and never answers.

    The time that is allowed leaves room for many events before the reply.  It begins again while a frame is growing:
    it may be the reply, and a large reply on a slow link takes its time.  A few bytes now and then are no growth.  The
    count starts at the first tick that finds the call to be the oldest, not when it becomes so, which keeps the
    receiving of replies free of bookkeeping.
    """

    def __init__(self) -> None:
        self._oldest: object | None = self  # no call: the first look begins to count
        self._held: int  # the size of the unfinished frame at `_since`

    def restart(self, now: float) -> None:
        """Count from `now`: a large reply is being decoded."""
        self._since = now

    def is_stuck(self, oldest: object | None, held: int, now: float, timeout: float) -> bool:
        """Return whether `oldest`, the oldest unanswered call, has made no progress for `timeout` seconds.

        Args:
            oldest: The oldest unanswered call, None if all are answered.
            held: The size of the unfinished frame, in bytes.
            now: The time, in seconds.
            timeout: The session timeout, in seconds.
        """
        if oldest is not self._oldest or held >= self._held + _GROWTH:
            self._oldest, self._since, self._held = oldest, now, held
        else:
            self._held = min(self._held, held)  # less is another frame
        return oldest is not None and now >= self._since + timeout
