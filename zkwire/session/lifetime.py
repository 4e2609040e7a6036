"""Until when the session is certain to live; callbacks for the end of that certainty and for the session's end.

The session reports to `Lifetime` which handshakes were answered, and to `OnClosed` that it is over.  Nothing here knows
about connections, requests or watches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from zkwire.errors import SessionError
from zkwire.session import suspension
from zkwire.session.event_loop import check_loop
from zkwire.wire.certainty import Certainty

_NEVER: Final = float("-inf")
# Seconds.  `suspended` reads two clocks, one after the other: a difference that is no greater is no suspension.
_A_MOMENT: Final = 0.001
# Seconds between two looks at the clock: the event loop's timers do not run while the machine is suspended.
_LOOK_EVERY: Final = 1.0


class _Callbacks:
    """Callbacks without arguments that are each called at most once, in the order in which they were added."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._callbacks: dict[Callable[[], None], None] = {}

    def add(self, callback: Callable[[], None]) -> None:
        """Add a callback.  Raises: RuntimeError in another event loop or thread, where it would be called too late."""
        check_loop(self._loop)
        self._callbacks[callback] = None

    def discard(self, callback: Callable[[], None]) -> None:
        """Undo `add`; a callback that was called, or never added, is ignored."""
        self._callbacks.pop(callback, None)

    def _call_all_soon(self) -> None:
        # One handle for each callback: the event loop reports one that raises, and still calls the others.
        for callback in self._callbacks:
            self._loop.call_soon(self._call, callback)

    def _call(self, callback: Callable[[], None]) -> None:
        if callback in self._callbacks:  # a callback that ran before it may have discarded it
            del self._callbacks[callback]
            callback()


class OnUncertain(_Callbacks):
    """Callbacks for the moment at which the session may have expired; `Client.on_uncertain`.

        zk.on_uncertain.add(callback); ...; zk.on_uncertain.discard(callback)

    That moment is `Client.certain_until`.  Each answer from the ensemble postpones it, a server that grants a shorter
    session timeout brings it forward, and the end of the session makes it now.

    Arguments: `certain_until`, a function that returns the moment, on the event loop's clock.
    """

    def __init__(self, certain_until: Callable[[], float]) -> None:
        super().__init__()
        self._certain_until = certain_until
        self._timer: asyncio.Handle | None = None

    def add(self, callback: Callable[[], None]) -> None:
        """Have `callback` called once, when the session may have expired.

        Raises: RuntimeError in another event loop or thread than the client's.
        """
        super().add(callback)
        # A timer may be left from callbacks that were discarded: `discard` keeps it, since the next callback is often
        # added a moment later.
        if self._timer is None:
            self._timer = self._loop.call_at(self._next_look(), self._check)

    def check_soon(self) -> None:
        """Look at the clock in the next turn of the event loop; to be called when certainty now ends earlier."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._loop.call_soon(self._check) if self._callbacks else None

    def _check(self) -> None:
        self._timer = None
        if not self._callbacks:
            return
        certain_until = self._certain_until()
        # Answers postpone the moment without touching the timer, which would cost more than one early check.
        if certain_until > self._loop.time():
            self._timer = self._loop.call_at(self._next_look(), self._check)
            return
        self._call_all_soon()

    def _next_look(self) -> float:
        now = self._loop.time()
        return min(max(self._certain_until(), now), now + _LOOK_EVERY)


class Lifetime:
    """Until when the session cannot have ended on the ensemble.

    Arguments: `least`, the least timeout that a session to be resumed was ever granted, in seconds; infinite for a new
    session; None if it is not known: then nothing is ever certain in that session.

    `until` is that moment on the event loop's clock, minus infinity while nothing is known.  `on_uncertain` holds the
    callbacks for the moment at which it comes.  `certainty` is what answers have proven, None where nothing can be.

    The session calls `renewed`, `resuming`, `granted`, `look`, `doubt` and `end`.
    """

    def __init__(self, least: float | None) -> None:
        self.certainty = None if least is None else Certainty(least)
        self._is_over = False
        self._seen = (_NEVER, _NEVER)  # `certainty.proven` at the last look
        self._suspended = suspension.suspended()
        self.on_uncertain = OnUncertain(lambda: self.until)

    @property
    def until(self) -> float:
        """The moment, brought forward by the time that the machine was suspended since it was proven."""
        if self.certainty is None or self._is_over:
            return _NEVER
        missed = suspension.suspended() - self._suspended
        return self.certainty.until - missed if missed > _A_MOMENT else self.certainty.until

    def renewed(self) -> None:
        """Begin with a new session, which is yet to be made."""
        self.certainty = Certainty()
        self._is_over, self._seen = False, (_NEVER, _NEVER)
        self._suspended = suspension.suspended()

    @property
    def may_be_certain(self) -> bool:
        """Whether anything can be certain in this session, now or later."""
        return self.certainty is not None and not self._is_over

    def resuming(self, now: float, timeout: float) -> None:
        """Record that a handshake is sent to a server that grants `timeout` seconds; see Certainty.granted."""
        if self.certainty is not None:
            self.certainty.granted(now, timeout)
            self.on_uncertain.check_soon()  # a shorter timeout than the one before brings the moment forward

    def granted(self, sent: float, now: float, timeout: float, phase: float, *, is_new: bool) -> None:
        """Record the answer to a handshake; see Certainty.begun and Certainty.resumed."""
        if self.certainty is None:
            return
        sent -= self._count_suspension(now)
        if is_new:
            self.certainty.begun(sent, now, timeout, phase)
        else:
            self.certainty.resumed(sent, timeout, phase)
            self.on_uncertain.check_soon()
        self._seen = self.certainty.proven

    def look(self, now: float) -> None:
        """Look whether the machine was suspended, if anything was proven since the last look."""
        if self.certainty is not None and self.certainty.proven != self._seen:
            self._count_suspension(now)
            self._seen = self.certainty.proven

    def _count_suspension(self, now: float) -> float:
        """Return for how many seconds the machine was suspended since the last call, and bring all forward by that."""
        missed = suspension.suspended() - self._suspended
        if missed <= _A_MOMENT or self.certainty is None:
            return 0.0
        self._suspended += missed
        self.certainty.missed(missed, now, self._seen)
        return missed

    def doubt(self) -> None:
        """Record that a server has said that it is ending the session; the next handshake shows whether it is."""
        if self.certainty is not None:
            self.certainty.until = _NEVER
        self.on_uncertain.check_soon()

    def end(self) -> None:
        """Record that the session is over, or that the client is ending it."""
        self._is_over = True
        self.on_uncertain.check_soon()


class OnClosed(_Callbacks):
    """Callbacks for the end of the session, after which no other session follows; `Client.on_closed`.

        zk.on_closed.add(callback); ...; zk.on_closed.discard(callback)

    The end comes when the client is closed, when the server refuses its credentials, and when the session expires and
    the client was connected with `renew=False`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._error: SessionError | None = None

    @property
    def error(self) -> SessionError | None:
        """A fresh copy of the error that every verb raises from now on, None while the session may go on."""
        return None if self._error is None else self._error.again()

    def add(self, callback: Callable[[], None]) -> None:
        """Have `callback` called once, in the turn of the event loop after the end; in the next turn if it is over.

        Raises: RuntimeError in another event loop or thread than the client's.
        """
        super().add(callback)
        if self._error is not None:
            self._call_all_soon()

    def closed(self, error: SessionError) -> None:
        """Take note of the end and its cause; called by the session."""
        self._error = error
        self._call_all_soon()
