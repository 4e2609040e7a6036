"""What can be observed of a session: its states, and for an operator each request, watch event and change of state.

`Observer` is the public interface.  `ObserverTap` is between it and the request queue, which calls the tap only when
there is an observer; without one, a request costs one comparison more.
"""

import asyncio
import enum
from collections.abc import Callable
from typing import Final

from zkwire.errors import NoNodeError, NoWatcherError
from zkwire.wire.connection import Call
from zkwire.wire.multi import MultiReply, MultiRequest
from zkwire.wire.requests import ExistsRequest, RemoveWatchesRequest
from zkwire.wire.watch_table import Notification, WatchEventType

_OUTCOMES: Final = {(ExistsRequest.opcode, NoNodeError.code), (RemoveWatchesRequest.opcode, NoWatcherError.code)}


class SessionState(enum.Enum):
    """The state of a session."""

    CONNECTING = "no session yet, looking for a server"
    CONNECTED = "connected"
    READ_ONLY = "connected to a server that has no quorum"
    SUSPENDED = "the connection is lost, the session may still live"
    EXPIRED = "the session is gone, and its ephemeral nodes with it"
    AUTH_FAILED = "the server refused the credentials"
    CLOSED = "closed by its owner"


class States:
    """A session's present state, `now`, and the listeners to its changes."""

    def __init__(self) -> None:
        self.now: SessionState = SessionState.CONNECTING
        self._listeners: list[Callable[[SessionState], None]] = []

    def enter(self, state: SessionState) -> None:
        """Change to `state` and call every listener."""
        self.now = state
        for listener in list(self._listeners):  # a copy: a listener may remove itself
            listener(state)

    def listen(self, listener: Callable[[SessionState], None]) -> None:
        """Have `listener` called with the new state, in the step in which it changes."""
        self._listeners.append(listener)

    def unlisten(self, listener: Callable[[SessionState], None]) -> None:
        """Undo `listen`; a listener that was never added is ignored."""
        if listener in self._listeners:
            self._listeners.remove(listener)


class Observer:
    """Receives what a client does; derive from it, override the methods you need, pass it as `connect(observer=...)`.

    The event loop calls the methods in the order in which things happen, and before the callers that wait for them
    continue: the methods must be quick and cannot await.  An exception that they raise goes to the loop's exception
    handler and has no other effect.  Paths are the server's, with the chroot in front.
    """

    def state_changed(self, state: SessionState, server: str) -> None:
        """The session is now in `state`; `server` is the one connected to, or last tried, as "host:port"."""

    def request_done(self, operation: str, path: str | None, seconds: float, error: Exception | None) -> None:
        """A request has ended.

        Args:
            operation: Its name in ZooKeeper's own terms, such as "getData"; the client's own "ping" and "setWatches"
                are among them.
            path: The node, None for a request that does not concern one node.
            seconds: From the write of the request to its answer: from the last write if it was repeated, 0 if it was
                never written.
            error: None if the request has done what it is for: also for an exists of a missing node, and for the
                client's own removal of a watch that the server no longer has.  Else what the caller gets: a
                ServerError, ConnectionLostError, NoAnswerError (a late answer is no second end) or SessionError.  A
                transaction fails with the error of the operation that was refused.
        """

    def event_arrived(self, type: WatchEventType, path: str, zxid: int | None) -> None:
        """A watch event has arrived; `zxid` is None if the server sends none."""


class ObserverTap:
    """Translates what the request queue and the session do into calls of an Observer."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._loop = asyncio.get_running_loop()

    def state_changed(self, state: SessionState, server: str) -> None:
        """Report a change of state."""
        self._report(self._observer.state_changed, state, server)

    def answered(self, call: Call, server: str) -> None:
        """Report that `server` has answered `call`, unless its failure was reported when its time limit had passed."""
        waiter = call.waiter
        if isinstance(waiter, asyncio.Future) and waiter.done() and not waiter.cancelled():
            return
        code = call.code
        if isinstance(call.reply, MultiReply) and call.request.opcode == MultiRequest.opcode:
            code = call.reply.error  # the header of a refused transaction says "no error"
        if (call.request.opcode, code) in _OUTCOMES:
            code = 0
        self.done(call, call.request.refusal(code, server) if code else None)

    def done(self, call: Call, error: Exception | None) -> None:
        """Report the end of `call`, with or without an answer."""
        seconds = self._loop.time() - call.sent_at if call.xid else 0.0
        self._report(self._observer.request_done, call.request.operation, call.request.subject, seconds, error)

    def notified(self, kind: WatchEventType, event: Notification) -> None:
        """Report a watch event."""
        self._report(self._observer.event_arrived, kind, event.path, event.zxid if event.zxid > 0 else None)

    def _report(self, method: Callable[..., None], *news: object) -> None:
        self._loop.call_soon(method, *news)  # not called from here: an exception must not reach the session
