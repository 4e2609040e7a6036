"""The last request and the last waits of a session, the end of a link, and the move to another server."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from zkwire.errors import ProtocolError, SessionClosedError, SessionError
from zkwire.session.guaranteed_delete import ignored
from zkwire.session.request_queue import RequestQueue
from zkwire.session.transport import Link
from zkwire.wire.connection import Call
from zkwire.wire.jute import Record
from zkwire.wire.requests import CloseSessionRequest, PingRequest, Request

# Seconds in which `close` waits for a server that sends nothing, or looks for another.  A lost connection is usually
# replaced in less than one.  But an ensemble that is down must not keep a program from ending.
_SILENCE: Final = 2.0
# Seconds that remain of them at least when no server has been heard for long already.  A program may close several
# clients one after the other.
_LAST_TRY: Final = 0.5
# Seconds between two checks whether the clean-up has ended: none before the second one, then ever more.
_SHORTEST_PAUSE: Final = 0.001
_LONGEST_PAUSE: Final = 0.1

R = TypeVar("R", bound=Record)


def closed() -> SessionClosedError:
    """Return the error of every verb of a client that was closed."""
    return SessionClosedError("the client is closed: make a new one with zkwire.connect")


class OnClosing:
    """Callbacks for the moment at which `Client.close` begins; `Client.on_closing`.

        zk.on_closing.add(callback); ...; zk.on_closing.discard(callback)

    A callback stops what relies on the session, and returns a future that is done when it has ended, or None if there
    is nothing to wait for.  `close` ends the session when these futures are done, after half of its own time limit at
    the latest.  It may call a callback several times.  With `keep_session` it calls none.
    """

    def __init__(self) -> None:
        self._callbacks: dict[Callable[[], asyncio.Future[Any] | None], None] = {}
        self._has_begun = False

    def add(self, callback: Callable[[], "asyncio.Future[Any] | None"]) -> None:
        """Have `callback` called when the client begins to close, soon if it has begun."""
        self._callbacks[callback] = None
        if self._has_begun:
            asyncio.get_running_loop().call_soon(callback)

    def discard(self, callback: Callable[[], "asyncio.Future[Any] | None"]) -> None:
        """Undo `add`; a callback that was never added is ignored."""
        self._callbacks.pop(callback, None)

    async def _call(self, begin: Callable[[], None], within: float) -> None:
        """Call all, and wait for their futures, for `within` seconds at most; call `begin` if there is one to wait for.

        Until the end of that wait, verbs are carried out, and what is to end has its locks.
        """
        self._has_begun = True
        now = asyncio.get_running_loop().time
        until = now() + within
        while (left := until - now()) > 0 and (endings := self._stop_all()):
            begin()
            if not (await asyncio.wait(endings, timeout=left, return_when=asyncio.FIRST_COMPLETED))[0]:
                return

    def _stop_all(self) -> list[asyncio.Future[Any]]:
        """Call all, and return the futures that are not done; the event loop reports a callback that raises, once."""
        endings = []
        for stop in list(self._callbacks):
            try:
                ending = stop()
                if ending is not None and not ending.done():
                    endings.append(ending)
            except Exception as error:  # noqa: BLE001  # the others must be called
                self.discard(stop)
                asyncio.get_running_loop().call_exception_handler({"message": f"{stop!r} failed", "exception": error})
        return endings


class CloseWaiter:
    """The waiter of the last request on a link: it acts in the step in which the request is answered.

    A moment later the server closes the connection, and the session would look for another one.

    Args:
        end: Called at the answer, whatever it is, and when the request is lost for good.
        is_over: Returns whether the answer is of no interest any more.

    Attributes:
        is_answered: Whether a server has answered the request.
    """

    def __init__(self, end: Callable[[], None], is_over: Callable[[], bool] = lambda: False) -> None:
        self._end = end
        self.done = is_over
        self.is_answered: bool = False

    def set_result(self, result: object) -> None:
        """Take the answer."""
        self.is_answered = True
        self._end()

    def set_exception(self, error: BaseException) -> None:
        """Take an error; a SessionError says that the session has ended already."""
        if not isinstance(error, SessionError):
            self._end()


def drain(link: Link, why: str) -> None:
    """Drop `link`, for the reason `why`, when everything in flight on it is answered.

    Dropping it at once would fail every write in flight.  Instead a ping is sent, whose answer comes after all others.
    Meanwhile the link counts as blocked, so that new calls wait for the next server.  The ping does not go through the
    request queue: calls that wait there would come first.  ``link.stay()`` undoes this.
    """
    waiter = CloseWaiter(lambda: link.abort(ConnectionAbortedError(why)), lambda: not link.is_leaving)
    link.connection.send(Call(PingRequest(), waiter), asyncio.get_running_loop().time())
    link.flush()
    link.leave()


async def while_heard(
    ends: set[asyncio.Future[Any]], present: Callable[[], Link | None], until: float, lost_at: float
) -> None:
    """Return when one of `ends` is done, at `until`, or when no server was heard for two seconds.

    `present` returns the link, None while there is no connection.  Times are on the event loop's clock.
    """
    now = asyncio.get_running_loop().time()
    link = present()
    silent_since = lost_at if link is None else link.connection.silent_since(now)
    start = max(silent_since, now - _SILENCE + _LAST_TRY)
    while True:
        heard = 0.0 if link is None else link.connection.heard
        left = min(until, max(start, heard) + _SILENCE) - asyncio.get_running_loop().time()
        if left <= 0 or (await asyncio.wait(ends, timeout=left, return_when=asyncio.FIRST_COMPLETED))[0]:
            return
        link = present()


async def ask(link: Link, request: Request[R]) -> asyncio.Future[R]:
    """Send `request` on `link`, which no request queue uses, and return the future of its reply, which is done.

    Raises: the reason of the loss when the link is lost.
    """
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[R] = ignored(loop.create_future())
    link.connection.send(Call(request, answered), loop.time())
    link.flush()
    either: set[asyncio.Future[Any]] = {answered, link.closed}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not answered.done():
        raise link.closed.result()
    return answered


async def end_session(link: Link, within: float) -> None:
    """End the session of `link`, which no request queue uses: return at the answer, or after `within` seconds."""
    with contextlib.suppress(OSError, ProtocolError):  # TimeoutError is a subclass
        async with asyncio.timeout(within):
            await ask(link, CloseSessionRequest())


async def clean_up(requests: RequestQueue, link: Link, within: float) -> None:
    """Wait, for about `within` seconds at most, until no cancelled create has a node, or the link is lost or silent.

    They must not stay in a session that outlives this client.
    """
    loop = asyncio.get_running_loop()
    end, pause = loop.time() + within, 0.0
    while requests.is_cleaning_up and not link.is_lost:
        ping = ignored(requests.submit(PingRequest()))
        # When the ping is answered, so is all that was sent before; the deletes have then sent their next requests.
        ends: set[asyncio.Future[Any]] = {ping, link.closed}
        await while_heard(ends, lambda: link, end, loop.time())
        if not any(each.done() for each in ends):
            return
        if requests.is_cleaning_up:
            # A delete that the server refuses for the moment waits: pings as fast as answers come would only load it.
            await asyncio.sleep(pause)
            pause = min(2 * pause + _SHORTEST_PAUSE, _LONGEST_PAUSE)


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel `tasks`, except for the one that this runs in, and wait until they have ended."""
    others = {task for task in tasks if task is not asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others)


async def finish(link: Link) -> None:
    """Close `link`, if it is not closed yet, and wait until its socket is."""
    if not link.closed.done():
        link.abort(ConnectionAbortedError("the client has closed the connection"))
        await asyncio.wait({link.closed})
