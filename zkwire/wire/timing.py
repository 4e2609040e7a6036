"""What follows from the negotiated session timeout: when to ping, when a link is dead, how long a lock is certain.

Pure functions of `timeout`, in seconds, and of moments on one monotonic clock, in seconds.  The server expires a
session between one timeout and one timeout plus a tick after the last request that it received.
"""

from __future__ import annotations

from typing import Final

_PING: Final = 1 / 4
_DEAD: Final = 1 / 2
_CERTAIN: Final = 3 / 4
_GIVE_UP: Final = 4 / 3
_FIRST_QUESTION: Final = 0.1


def ping_after(timeout: float) -> float:
    """How long after the last sending the next ping is due.

    A quarter: certainty lasts three quarters, so that with the dead-link rule below a break is noticed at half
    the timeout and a quarter of it is left to reach another server before a lock must be given up.  Counted from
    the last sending, never from the last receipt: a server that talks all the time must still hear from us.
    """
    return timeout * _PING


def dead_after(timeout: float) -> float:
    """How long a link may stay silent before it is dropped for another one.

    Half: on an idle link a ping went out at a quarter, and had another quarter to be answered in.
    """
    return timeout * _DEAD


def connect_within(timeout: float, hosts: int) -> float:
    """How long one attempt to connect, handshake included, may take.

    A fair share of the timeout among the hosts, so that each can be tried before the session is gone; not less than
    a twentieth of it with a long list, and not more than the time after which an open link counts as dead.
    """
    return min(max(timeout / hosts, timeout / 20), dead_after(timeout))


def certain_until(sent: float, timeout: float) -> float:
    """Until when the session cannot have expired, given that a request sent at `sent` was answered.

    Three quarters, from the sending: the server cannot have started the session's clock anew before that.  A follower
    reports the sessions that it heard from every half tick, and the timeout is at least two ticks, so that the
    leader's clock for a session may be up to a quarter of the timeout behind what the follower answered.
    """
    return sent + timeout * _CERTAIN


def give_up_after(timeout: float) -> float:
    """How long after the last sign of life from any server the client takes the session for expired by itself.

    Four thirds, as the Java client since 3.9.3.  A living ensemble has ended the session by then unless its tick is
    longer than a third of the timeout, and one that was down for so long must not keep a client in doubt for ever.
    Nothing unsafe hangs on it: locks were given up long before, when certainty ended.
    """
    return timeout * _GIVE_UP


def ask_again_after(rounds: int, timeout: float) -> float:
    """How long to wait, at most, before the other servers are asked once more whether one of them can write.

    A tenth of a second at first, for a quorum is often regained at once, then twice as long each time; never longer
    than the session timeout, after which nobody would have waited for a lost server either.
    """
    return min(_FIRST_QUESTION * 2.0 ** min(rounds, 20), timeout)
