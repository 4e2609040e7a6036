"""Who is told when a session does not live for certain any more, and when it is over for good.

Knows the moment until which it is certain, which every answer moves, and nothing of why: one timer for all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from zkwire.errors import SessionError


class OnUncertain:
    """Who is to be told, once, as soon as a session does not live for certain any more; `Client.doubts`.

        zk.on_uncertain.add(callback); ...; zk.on_uncertain.discard(callback)

    That is at `Client.certain_until`, which answers put off and a shorter timeout brings forward, and when the session
    ends.

    Arguments: `certain_until`, gives the moment on the loop's clock at which certainty ends if no answer comes.
    """

    def __init__(self, certain_until: Callable[[], float]) -> None:
        self._loop = asyncio.get_running_loop()
        self._certain_until = certain_until
        self._callbacks: dict[Callable[[], None], None] = {}
        self._timer: asyncio.Handle | None = None

    def add(self, callback: Callable[[], None]) -> None:
        """Have `callback` called once, when certainty has ended."""
        self._callbacks[callback] = None
        if self._timer is None:
            self._timer = self._loop.call_at(max(self._certain_until(), self._loop.time()), self._look)

    def discard(self, callback: Callable[[], None]) -> None:
        """Undo `add`.  The timer goes on: another one is often added at once."""
        self._callbacks.pop(callback, None)

    def look_soon(self) -> None:
        """Take note that certainty ends sooner than it would have, or has ended with the session."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._loop.call_soon(self._look) if self._callbacks else None

    def _look(self) -> None:
        self._timer = None
        if not self._callbacks:
            return
        certain_until = self._certain_until()
        if certain_until > self._loop.time():
            self._timer = self._loop.call_at(certain_until, self._look)
            return
        for callback in self._callbacks:
            self._loop.call_soon(self._tell, callback)  # each by itself: one may fail

    def _tell(self, callback: Callable[[], None]) -> None:
        if callback in self._callbacks:
            del self._callbacks[callback]
            callback()


class OnClosed:
    """Who is to be told, once, when the session is over for good and none will follow; `Client.ending`.

        zk.on_closed.add(callback); ...; zk.on_closed.discard(callback)

    That is when the client was closed, when the server has refused its credentials, or when its session has expired
    and it renews none.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._error: SessionError | None = None
        self._callbacks: dict[Callable[[], None], None] = {}

    @property
    def error(self) -> SessionError | None:
        """What every verb raises from now on, None while the session may go on."""
        return None if self._error is None else type(self._error)(*self._error.args)

    def add(self, callback: Callable[[], None]) -> None:
        """Have `callback` called once, a turn of the loop after the end, or from now if that has come."""
        self._callbacks[callback] = None
        if self._error is not None:
            self._tell()

    def discard(self, callback: Callable[[], None]) -> None:
        """Undo `add`."""
        self._callbacks.pop(callback, None)

    def come(self, error: SessionError) -> None:
        """Take note of the end; called by the session."""
        self._error = error
        self._tell()

    def _tell(self) -> None:
        for callback in self._callbacks:
            self._loop.call_soon(self._call, callback)  # each by itself: one may fail

    def _call(self, callback: Callable[[], None]) -> None:
        if callback in self._callbacks:
            del self._callbacks[callback]
            callback()
