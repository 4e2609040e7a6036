"""Until when the session is certain to live; callbacks for the end of that certainty and for the session's end.

The session reports to `Certainty` which requests were answered, and to `OnClosed` that it is over.  Nothing here knows
about connections, requests or watches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from zkwire.errors import SessionError
from zkwire.session import suspension
from zkwire.session.event_loop import check_loop
from zkwire.wire.certainty import Certainty as ConnectionCertainty

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


class Certainty:
    """Until when the session cannot have expired on the ensemble.

    `until` is that moment on the event loop's clock, minus infinity while nothing is known.  `on_uncertain` holds the
    callbacks for the moment at which certainty ends.

    The session calls `limit`, `take_in` and `end`.
     What an answer proves is decided in zkwire/wire/certainty.py.
    """

    def __init__(self) -> None:
        self._until = _NEVER
        self._suspended = suspension.suspended()
        self.on_uncertain = OnUncertain(lambda: self.until)

    @property
    def until(self) -> float:
        """The moment, brought forward by the time that the machine was suspended since it was proven."""
        missed = suspension.suspended() - self._suspended
        return self._until - missed if missed > _A_MOMENT else self._until

    def limit(self, until: float) -> None:
        """Take note that the session may end at `until`: a server has granted a shorter timeout than the one before."""
        if until < self.until:
            # The time of a suspension is left to be counted: it may have come between the handshake and its answer.
            self._until = until
            self.on_uncertain.check_soon()

    def proven(self, until: float) -> None:
        """Take note that the ensemble keeps the session until `until`; what was proven before stays true."""
        if until > self._until:
            self._until = until

    def take_in(self, connection: ConnectionCertainty) -> None:
        """Take in what a connection has proven by now.

        A proof that was begun before the machine was suspended is worth nothing.
        """
        if connection.until <= self._until:
            return  # nothing new; this is the usual case, and reads no further clock
        if self.has_missed_time():
            connection.forget()
        else:
            self.proven(connection.until)

    def has_missed_time(self) -> bool:
        """Return whether the machine was suspended since the last call, and count that time."""
        missed = suspension.suspended() - self._suspended
        if missed <= _A_MOMENT:
            return False
        self._until -= missed
        self._suspended += missed
        return True

    def end(self) -> None:
        """Take note that the session is over, or that the server is about to end it."""
        self._until = _NEVER
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
