"""The rule of certainty: until when can the ensemble not have expired the session?

Pure: it is given the moments at which requests were sent and answered on one connection, and how far each answer
reaches.  It must not know sockets, clocks or what the certainty is used for.

Why an answered ping certifies nothing: the server that we are connected to answers pings and reads by itself.  When it
is cut off from the leader it goes on answering for up to syncLimit ticks, and meanwhile the leader, which hears nothing
of the session, expires it.  So certainty is taken from what passed through the leader:

- A server notes each request of a session (a *touch*) and sends its notes to the leader in the answer to the leader's
  ping, which comes every half tick.  The leader then keeps the session for one timeout from the arrival of the notes.
- Requests that the leader answers (sync and writes) travel on the same two ordered streams as the pings and the notes.

Let x be a request that the leader answered, sent at least half a tick after the answer to an earlier request, the
touch.  The leader had put a ping into its stream within the half tick before it handled x, so our server saw the ping
after the touch and before the answer to x, and sent its notes.  Let y be a further request that the leader answered,
sent after the answer to x.  Our server forwarded y behind its notes, so the leader had the notes before it handled y.
Hence, once y is answered: the session lives until the sending of the touch + timeout at least.

That leader may have lost its quorum without knowing it, and its followers may have a new one.  A sync proves nothing
against that, but a committed write does: a quorum has it, so a leader that follows is elected after it was sent, and
a new leader gives every session a whole timeout from its own start.  So nothing is certain for longer than one timeout
from the sending of the last committed write, however long a leader goes on without its followers.

The tick is not known to clients.  The shortest session timeout that a server grants is two ticks, unless it was
configured otherwise: half a tick is at most a quarter of the timeout.

docs/waiting-line.md has the whole argument, with its assumptions.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import Final, NamedTuple

_HALF_TICK: Final = 1 / 4  # of the timeout, at most
_NEVER: Final = float("-inf")
_GRAIN: Final = 1 / 64  # touches closer together than this are not told apart, so that there are few of them


class Reach(enum.IntEnum):
    """How far the answer to a request reaches."""

    SERVER = 0  # the server that we are connected to answers by itself
    LEADER = 1  # the answer has come through the leader
    QUORUM = 2  # a quorum has committed it


class _Touch(NamedTuple):
    sent: float
    answered: float


class Certainty:
    """What the answers on one connection prove about the session.

    Arguments: `timeout`, the session timeout that this connection's server granted, in seconds; `sent`, when the
    handshake was sent; `is_new`, whether it made a new session, which takes a committed write.  All moments are in
    seconds on one monotonic clock.

    `grain` is how many seconds apart touches must be sent to be told apart.  `written` is when the last write was sent
    that a quorum has committed on this connection, -inf while there is none.  `until` is the moment before which the
    ensemble cannot have expired the session, as far as this connection has proven; -inf while it has proven nothing.
    """

    __slots__ = ("_greeted", "_timeout", "_touched", "_touches", "_waiting", "grain", "until", "written")

    def __init__(self, timeout: float, sent: float, *, is_new: bool) -> None:
        self._timeout = timeout
        self._greeted = sent
        self.grain = timeout * _GRAIN
        # When the last touch was sent that has reached the leader, as far as is proven.
        self._touched = self.written = sent if is_new else _NEVER
        self.until = self.written + timeout
        # Touches that are too recent for an x; then the touches that an answered x covers, with the answer's moment.
        self._touches: deque[_Touch] = deque()
        self._waiting: deque[tuple[float, float]] = deque()

    def answered(self, sent: float, now: float, reach: Reach) -> None:
        """Take in that a request sent at `sent` was answered at `now`.

        Order: to be called in the order of the answers; of several answers that came together it is enough to take in
        the one that was sent last.
        """
        touches = self._touches
        old = sent - self._timeout * _HALF_TICK  # a touch that was answered by then is covered, if this is an x
        if reach:
            if reach is Reach.QUORUM:
                self.written = sent
                # The leader touched the session for the handshake, which came before.
                self._touched = max(self._touched, self._greeted)
            # The request is a y for each chain whose x was answered before it was sent.  Not "<=": a clock that moves
            # in steps of milliseconds gives one reading to an x that was answered and to a y that was sent before that.
            waiting = self._waiting
            while waiting and waiting[0][0] < sent:
                self._touched = max(self._touched, waiting.popleft()[1])
            self.until = min(self._touched, self.written) + self._timeout
            covered = None
            while touches and touches[0].answered <= old:
                covered = touches.popleft().sent
            if covered is not None:
                waiting.append((now, covered))
        if not touches or sent >= touches[-1].sent + self.grain:
            # Every later x covers touches[1] as well, so the one before is of no use any more.  A client that only
            # reads sends no x, and would keep a touch for each `grain` of its life.
            while len(touches) > 1 and touches[1].answered <= old:
                touches.popleft()
            touches.append(_Touch(sent, now))

    def forget(self) -> None:
        """Drop all that the connection has proven, and all chains that were begun.

        The case for it: the machine was suspended, so that the clock of the moments has left out some time.
        """
        self._touches.clear()
        self._waiting.clear()
        self._greeted = self._touched = self.written = self.until = _NEVER
