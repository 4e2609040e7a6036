"""Times that follow from the negotiated session timeout: when to ping, when a link is dead, when to give a session up.

All functions are pure.  `timeout` is in seconds; moments are in seconds on one monotonic clock.  The server expires a
session between one timeout and one timeout plus a tick after the last request that it received.
"""

from __future__ import annotations

from typing import Final

_PING: Final = 1 / 4
_DEAD: Final = 1 / 2
_DEAD_CERTAIN: Final = 1 / 3
_UNANSWERED: Final = 1 / 5
_UNANSWERED_CERTAIN: Final = 1 / 6
_GIVE_UP: Final = 4 / 3
_REFUSED: Final = 1 / 50
_LATE: Final = 1 / 8
_FIRST_PAUSE: Final = 0.1
_LEAST_GRANTED: Final = 0.05


def ping_after(timeout: float) -> float:
    """Return how many seconds after the last sending the next ping is due: a quarter of the timeout.

    The time counts from the last sending, never from the last receipt: a server that sends all the time must still
    hear from this client.
    """
    return timeout * _PING


def dead_after(timeout: float, *, keeps_certain: bool = False) -> float:
    """Return how many seconds a link may be silent before the client drops it: half of the timeout.

    A third of the timeout while the session must be certain: 0.7 of it was certain at the last reply, so that as much
    again is left to reach another server before a lock must be given up.
    """
    return timeout * (_DEAD_CERTAIN if keeps_certain else _DEAD)


def unanswered_after(timeout: float, *, keeps_certain: bool = False) -> float:
    """Return how many seconds a request may at least wait for its answer before silence counts: a fifth of the timeout.

    Requests at rest are up to 0.45 of the timeout apart (see certainty.py), so that a dead link is dropped after 0.65.
    A sixth of the timeout while the session must be certain.
    """
    return timeout * (_UNANSWERED_CERTAIN if keeps_certain else _UNANSWERED)


def late_after(timeout: float) -> float:
    """Return how many seconds a timer may be late before the event loop counts as blocked: an eighth of the timeout.

    With a quarter for the ping, and a quarter for its answer, that much is left until the session may have expired.
    """
    return timeout * _LATE


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
    return timeout * _REFUSED


def give_up_after(timeout: float) -> float:
    """Return after how many seconds without any server's reply the client itself declares the session expired.

    It is four thirds of the timeout, as in the Java client since 3.9.3.  An ensemble that runs has ended the session
    by then, unless its tick is longer than a third of the timeout; and a client should not wait for ever for an
    ensemble that is down.  No lock depends on it: locks were given up when certainty ended, long before.
    """
    return timeout * _GIVE_UP


def least_granted(wanted: float) -> float:
    """Return the shortest session timeout to accept from a server, in seconds, where `wanted` was asked for.

    With a timeout of a few milliseconds the client would send thousands of pings a second, and lose the session all the
    same.  No real server grants so little unless it is asked for: two ticks are its minimum.
    """
    return min(wanted, _LEAST_GRANTED)


def ask_again_after(rounds: int, timeout: float) -> float:
    """Return how many seconds to wait, at most, before asking the other servers again whether one accepts writes.

    The first pause is a tenth of a second, because a quorum is often back at once.  Each pause is twice as long as the
    one before, up to the session timeout.
    """
    return min(_FIRST_PAUSE * 2.0 ** min(rounds, 20), timeout)
