"""The rule of certainty: until when can the ensemble not have ended the session?

Pure: it is given the moments at which requests were sent and answered, and how far each answer reaches.  It must not
know sockets, clocks or what the certainty is used for.  docs/waiting-line.md proves the rule, names the server's source
for each fact and lists what is assumed.  In short:

- The server that we are connected to answers pings and reads by itself.  The leader hears of a session only when it
  pings that server, each half tick.  So a request (the *touch*) has reached the leader once two further requests were
  answered through the leader, one after the other: x, sent `_GAP` after the touch was answered, and y, sent after x was
  answered.  A handshake has reached the leader when it is answered.
- A touch that reaches the leader keeps the session for the least timeout that it was ever granted, unless the leader
  had already begun to end it.  The leader ends the sessions that are due one by one, and accepts touches and writes of
  each until its turn.  So touches make a *chain*: each counts only if it had reached the leader before the touch before
  it ran out.  The first one is the handshake that began the session.
- A leader may have been replaced without knowing it.  A new one gives each session the least timeout at its own start.
  So nothing is certain for longer than that from the sending of a write that a quorum has committed.

Where the chain is broken, a *witness* mends it: another session, begun after a touch has reached the leader, and ended
by the leader because it was silent.  By then the leader has ended all sessions that were due before.  A write of ours
that is committed after that shows that ours was not among them.
"""

import enum
from collections import deque
from typing import Final, NamedTuple

_NEVER: Final = float("-inf")
_FOREVER: Final = float("inf")
# Fractions of the least timeout.
_GAP: Final = 0.3  # half a tick, which is 1/4 at most, and what the leader's loop takes
_RESOLUTION: Final = 1 / 64  # touches closer together than this are taken for one, so that there are few of them
_STALE: Final = 0.6  # a write that certifies less than this is repeated with the next proof
_LATE: Final = 0.35  # and at once when it certifies less than this
_PAUSE: Final = 1 / 40  # after a refused proof
_MOMENT: Final = 1 / 10_000  # clocks move in steps, and numbers are rounded: so much more is waited
_SPARE: Final = 0.08  # left of READY when proofs are spread evenly
_SOON: Final = 0.05
_LONGEST: Final = 0.45  # between two requests of an idle client
_SPREAD: Final = 0.05  # over which clients spread their proofs that come to need certainty together
_SLACK: Final = 1 / 200  # x is sent so much later if it covers a newer touch then
_EPOCH_BITS: Final = 32  # of a zxid, below those that count the leaders
_ANY: Final = -1  # in place of an epoch


class AckLevel(enum.IntEnum):
    """What has acknowledged a request when its answer comes: the acknowledgement level."""

    SERVER = 0  # the server that we are connected to answers by itself
    LEADER = 1  # a sync: the answer has come through the leader
    QUORUM = 2  # a quorum has committed it


class Upkeep(enum.Enum):
    """How much of the least timeout the keepalives leave, as long as servers answer: the value is that fraction."""

    NONE = 0.0  # the keepalives are pings, and prove nothing
    READY = 0.13  # the chain is kept, so that a lock can be certain at once
    CERTAIN = 0.4  # a lock depends on it: writes are kept fresh as well


class _Touch(NamedTuple):
    sent: float
    answered: float


class Certainty:
    """What the answers to one session's requests prove, on all of its connections.

    All moments are in seconds on one monotonic clock.

    Args:
        least: The least timeout that the session was granted before, in seconds; infinite for a session that is yet to
            be made.

    Attributes:
        until: The moment before which the ensemble cannot have ended the session, -inf while nothing is proven.
        is_linked: Whether the chain of touches is unbroken.
        based: A witness that mends a broken chain must be begun after this.
        resolution: How many seconds apart touches must be sent to be distinguished.
    """

    def __init__(self, least: float = _FOREVER) -> None:
        self.least: float = least
        self.resolution: float
        self.until: float = _NEVER
        self.is_linked: bool = False
        self.based: float = _FOREVER
        # The newest touch in the chain, and the newest committed write: when each was sent.
        self._touched = self._written = _NEVER
        self._start(_NEVER, 0.0)

    def _start(self, now: float, phase: float) -> None:
        """Forget what belongs to one connection."""
        # Touches that are too recent for an x; then the newest touch that an answered x covers, with that moment.
        self._touches: deque[_Touch] = deque()
        self._waiting: deque[tuple[float, float]] = deque()
        self._sync: tuple[float, int] | None = None  # when the newest sync was sent, and the zxid in its answer
        self._news = _NEVER  # a write of any client was proposed after a sync of ours that was sent then
        self._is_learner = False
        self._epoch: int | None = None  # of the newest zxid
        # The epoch, `until` and the end of the chain on the former connection, until the handshake has arrived.
        self._former: tuple[int | None, float, float] | None = None
        self._candidate: int | None = None  # the epoch in which the next write links the chain
        self._witness_ended = _FOREVER
        self._asked = _NEVER  # when the proof was sent that is in flight
        self._not_before = _NEVER  # no proof is sent earlier
        self._since = now  # answers to requests sent before prove nothing
        self._phase = phase
        self._spread_writes()

    def _spread_writes(self) -> None:
        """Have every second client write one pair earlier, once.

        Locks that are acquired together, or resumed together, have written together, and each next write comes with
        the second pair after the last one. Without this there were times without any write, in which the clients on
        learners had to write as well.
        """
        self._is_early = self._phase * 64 % 1 < 0.5  # whatever `_phase` says about the first pair

    # -- connections --------------------------------------------------------------------------------------------------

    def begun(self, sent: float, now: float, timeout: float, phase: float = 0.0) -> None:
        """Record the handshake that has made the session: sent at `sent`, answered at `now`, granted `timeout` seconds.

        Clients that begin together spread their requests by `phase`, between 0 and 1, at random.
        """
        self._start(sent, phase)
        self.granted(sent, timeout)
        self._touched = self._written = sent
        self.based = now
        self.is_linked = now < sent + timeout
        self._certify()

    def granted(self, sent: float, timeout: float) -> None:
        """Record that the leader counts the session with `timeout` seconds from when it takes a handshake.

        The handshake was sent at `sent`, or is being sent.  Its answer may be lost, and the leader may take it at any
        time.
        """
        self.least = min(self.least, timeout)
        self.resolution = self.least * _RESOLUTION
        self.until = min(self.until, sent + timeout)

    def resumed(self, sent: float, timeout: float, phase: float = 0.0) -> None:
        """Record a handshake that has resumed the session; arguments as of `begun`.

        The handshake continues the chain if it had reached the leader before all that is certain ran out.  It also does
        if the last touch had not run out and the leader is still the same.  Either counts once a write was committed on
        this connection: before that its server may follow a leader that was replaced long ago.
        The answer to the handshake does not show when it had reached the leader: a learner may have given the leader's
        answer to one that was left unanswered before.  The first answer through the leader shows it.
        """
        former = self._epoch, self.until, self._touched + self.least if self.is_linked else _NEVER
        self._start(sent, phase)
        self.granted(sent, timeout)
        self.is_linked = False
        self._touched, self._written = sent, _NEVER
        self._former = former
        self.based = _FOREVER

    def _arrived(self, now: float) -> None:
        """Record that the handshake had reached the leader by `now`."""
        assert self._former is not None
        epoch, until, ends = self._former
        self._candidate = _ANY if now < until else epoch if now < ends else None
        self._former = None
        self.based = now

    def follows(self) -> None:
        """Record that this connection's server was a learner, not the leader, after the last answer so far.

        A server that changes its role closes the connections of its clients, so this holds for the whole connection.
        A learner answers a sync after it has applied all that the leader had proposed until then.  So a greater zxid
        in a later answer shows a write, of any client, that a quorum has committed and that was proposed after the sync
        was sent.
        """
        self._is_learner = True
        self._take_news()

    # -- answers ------------------------------------------------------------------------------------------------------

    def answered(self, sent: float, now: float, ack_level: AckLevel, zxid: int = 0) -> None:
        """Record that a request sent at `sent` was answered without an error at `now`.

        `zxid` is in the answer's header; only the one of an answer through the leader is of use.
        Order: to be called in the order of the answers; of several answers by the server alone that came together it is
        enough to record the one that was sent last.
        """
        if sent < self._since:
            return
        touches = self._touches
        old = sent - self.least * _GAP  # a touch that was answered by then is covered, if this is an x
        if ack_level:
            if sent >= self._asked:
                self._asked = _NEVER
            if self._former is not None:
                self._arrived(now)
            self._take_zxid(sent, ack_level, zxid)
            if ack_level is AckLevel.QUORUM:
                self._written = max(self._written, sent)
                if not self.is_linked:
                    self._link(sent, zxid)
            # The request is a y for each chain whose x was answered before it was sent.  Not "<=": a clock that moves
            # in steps of milliseconds gives one reading to an x that was answered and to a y that was sent before that.
            waiting = self._waiting
            while waiting and waiting[0][0] < sent:
                self._reached(waiting.popleft()[1], now)
            self._certify()
            covered = None
            while touches and touches[0].answered <= old:
                covered = touches.popleft().sent
            if covered is not None:
                waiting.append((now, covered))
        if not touches or sent >= touches[-1].sent + self.resolution:
            # Every later x covers touches[1] as well, so the one before is of no use any more.  A client that only
            # reads sends no x, and would keep a touch for each `resolution` of its life.
            while len(touches) > 1 and touches[1].answered <= old:
                touches.popleft()
            touches.append(_Touch(sent, now))

    def _take_zxid(self, sent: float, ack_level: AckLevel, zxid: int) -> None:
        if zxid <= 0:
            return
        self._epoch = zxid >> _EPOCH_BITS
        if self._sync is not None and zxid > self._sync[1]:
            self._news = self._sync[0]
            if self._is_learner:
                self._take_news()
        if ack_level is AckLevel.LEADER:
            self._sync = (sent, zxid)

    def _take_news(self) -> None:
        self._written = max(self._written, self._news)
        self._certify()

    def _reached(self, touch: float, now: float) -> None:
        """Record that `touch` had reached the leader by `now`."""
        if now >= self._touched + self.least:
            # The leader may have begun to end the session before: the touch begins a chain that nothing proves.
            self.is_linked = False
            self._candidate, self._witness_ended = None, _FOREVER
            self.based = now
        self._touched = max(self._touched, touch)

    def _link(self, sent: float, zxid: int) -> None:
        """Link the chain if the committed write that was sent at `sent` does so."""
        epoch, self._candidate = self._candidate, None
        self.is_linked = epoch == _ANY or epoch == zxid >> _EPOCH_BITS or sent > self._witness_ended

    def _certify(self) -> None:
        if self.is_linked:
            self.until = max(self.until, min(self._touched, self._written) + self.least)

    def refused(self, sent: float, now: float) -> None:
        """Record that a request that was to be answered through the leader was refused, or failed."""
        if sent == self._asked:
            self._not_before = now + self.least * _PAUSE
        if sent >= self._asked:
            self._asked = _NEVER

    # -- the broken chain ---------------------------------------------------------------------------------------------

    @property
    def is_broken(self) -> bool:
        """Whether only a witness can make the session certain again."""
        is_open = self._candidate is not None or self._former is not None
        return not self.is_linked and not is_open and self._witness_ended == _FOREVER

    def has_run_out(self, now: float) -> bool:
        """Return whether nothing can be certain before a witness has ended, or soon will be so, as far as is known."""
        return self.based < _FOREVER and (self.is_broken or now >= self._touched + self.least * (1 - _SOON))

    def witnessed(self, begun: float, ended: float) -> None:
        """Record that the leader had ended, by `ended`, a silent session that was made after `begun`."""
        if begun > self.based:
            self._witness_ended = ended

    @property
    def proven(self) -> tuple[float, float]:
        """`until`, and a number that changes with whatever else is proven."""
        return self.until, self._touched

    def missed(self, seconds: float, now: float, seen: tuple[float, float]) -> None:
        """Record that the clock has left out `seconds` before `now`, while the machine was suspended.

        `seen` is what `proven` was when the clock was last known to be right: if something was proven since, the chain
        may have run out unnoticed.
        """
        if self.proven != seen:
            self.is_linked = False
            self._candidate, self._former, self._witness_ended, self.based = None, None, _FOREVER, now
        self.until = min(self.until, seen[0]) - seconds
        self._touched -= seconds
        self._written -= seconds
        self._touches.clear()
        self._waiting.clear()
        self._sync, self._news = None, _NEVER
        self._asked, self._since = _NEVER, now

    # -- what to send -------------------------------------------------------------------------------------------------

    def asked(self, sent: float) -> None:
        """Record that a proof was sent at `sent`."""
        self._asked = sent
        if self._waiting:
            self._is_early = False

    def needed(self, now: float) -> None:
        """Record that more certainty is needed from now on."""
        self._not_before = max(self._not_before, now + self.least * _SPREAD * self._phase)
        self._spread_writes()

    def due(self, upkeep: Upkeep) -> float:
        """Return when the next proof is to be sent: a request whose answer comes through the leader.

        At rest, READY takes a proof each 0.3 of the least timeout: y of one touch, and x of the next one.  CERTAIN
        takes a pair, x and y, each 0.3.
        """
        if self._asked > _NEVER:
            return _FOREVER  # one at a time
        if self._former is not None:
            return max(self._since + self.least * _SPREAD * self._phase, self._not_before)
        least, touches = self.least, self._touches
        trip = touches[-1].answered - touches[-1].sent if touches else 0.0
        ends = self._touched + least - 2 * trip
        latest = ends - least * upkeep.value
        # When a proof can be the x of the newest touch; in time, if it can also be the y of the touch before.
        as_x = touches[-1].answered + least * (_GAP + _MOMENT) if touches else _FOREVER
        is_y = bool(self._waiting)
        is_in_time = upkeep is Upkeep.READY and as_x + (0 if is_y else least * _GAP) <= ends - least * _SPARE
        if is_y:
            due = self._waiting[-1][0] + least * _MOMENT
            latest = as_x if is_in_time else due
        elif touches and touches[-1].sent > self._touched:
            # When x can cover each of the touches: the newest for which it need not be late, or else the oldest.
            for touch in reversed(touches):
                if touch.sent <= self._touched:
                    break
                due = touch.answered + least * (_GAP + _MOMENT)
                if due <= latest + least * _SLACK:
                    break
            latest = as_x if is_in_time else min(latest, touches[-1].sent + least * _LONGEST)
        else:
            due = latest = min(latest - least * _GAP * (1 + self._phase), self._touched + least * _LONGEST)
        if self._touched > self._since:  # the first pair after a handshake is sent early, to spread what follows
            due = max(due, latest)
        if upkeep is Upkeep.CERTAIN and self.is_linked:
            due = min(due, self._written + least * (1 - _LATE))
        return max(due, self._not_before)

    def wants_write(self, now: float, upkeep: Upkeep) -> bool:
        """Return whether the proof that is sent at `now` should be a write that a quorum commits, and no sync."""
        if not self.is_linked:
            return self._candidate is not None or self._former is not None or self._witness_ended < now
        left = self._written + self.least - now
        # With x, look whether another client has written; with y, write if not.
        least = _LATE if not self._waiting else _STALE + _GAP * self._is_early
        return upkeep is Upkeep.CERTAIN and left < self.least * least
