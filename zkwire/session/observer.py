"""What an operator can see: every request with its latency and outcome, every event, every change of state.

Who does not ask for it pays nothing: an observed session is a class of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from zkwire.session.session import Session
from zkwire.session.states import SessionState
from zkwire.wire.connection import Call, Notification
from zkwire.wire.multi import ErrorResult, MultiReply, MultiRequest
from zkwire.wire.watch_table import WatchEventType

_NOT_REACHED: Final = -2  # what the operations behind the refused one of a transaction get
_EVENT_TYPES: Final = {kind.value for kind in WatchEventType}


class Observer:
    """Told what a client does; derive from it, override what you want to know, and pass it as `connect(observer=...)`.

    The methods are called by the event loop, in the order of what happens and before those who waited for it go on:
    they must be quick and cannot wait.  What they raise goes to the loop's exception handler and has no other effect.
    Paths are the server's, with the chroot in front.
    """

    def state_changed(self, state: SessionState, server: str) -> None:
        """The session is now in `state`; `server` is the one connected to, or last tried, as "host:port"."""

    def request_done(self, operation: str, path: str | None, seconds: float, error: Exception | None) -> None:
        """A request has come to its end.

        Arguments: `operation`, its name in ZooKeeper's own terms, such as "getData", the client's own "ping" and
        "setWatches" among them; `path`, None where it is not about one node; `seconds`, from the writing, the last one
        if it had to be repeated, to the answer, 0 for what was never written; `error`, None for success, else what its
        waiter is given: a ServerError, ConnectionLostError or SessionError.  A transaction fails by the error of the
        operation that was refused.
        """

    def event_arrived(self, type: WatchEventType, path: str, zxid: int | None) -> None:
        """A watch event has come; `zxid` is None where the server sends none."""


class ObservedSession(Session):
    """A session with an observer.

    Arguments: `observer`; the rest as Session's.
    """

    def __init__(self, observer: Observer, **options: Any) -> None:
        self._observer = observer
        super().__init__(**options)
        self.states.listen(self._state_changed)

    def _state_changed(self, state: SessionState) -> None:
        self._tell(self._observer.state_changed, state, self.server)

    def _answered(self, call: Call) -> None:
        code = call.code
        if isinstance(call.reply, MultiReply) and call.request.opcode == MultiRequest.opcode:
            codes = [result.err for result in call.reply.results if isinstance(result, ErrorResult)]
            code = next((each for each in codes if each not in (0, _NOT_REACHED)), 0)
        error = None
        if code:
            error = call.request.refusal(code, self.server)
        self._done(call, error)
        super()._answered(call)

    def _fail(self, call: Call, error: Exception) -> None:
        if call.waiter is not None and not call.waiter.done():
            self._done(call, error)
        super()._fail(call, error)

    def _notified(self, event: Notification) -> None:
        if event.type in _EVENT_TYPES:
            zxid = event.zxid if event.zxid > 0 else None
            self._tell(self._observer.event_arrived, WatchEventType(event.type), event.path, zxid)
        super()._notified(event)

    def _done(self, call: Call, error: Exception | None) -> None:
        seconds = self._loop.time() - call.sent_at if call.xid else 0.0
        self._tell(self._observer.request_done, call.request.operation, call.request.subject, seconds, error)

    def _tell(self, method: Callable[..., None], *news: object) -> None:
        self._loop.call_soon(method, *news)  # where an error is told to the loop, and does no harm here
