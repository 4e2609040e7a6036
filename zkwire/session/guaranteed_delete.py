"""Delete nodes again and again until they or their session are known to be gone."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from zkwire import paths
from zkwire.errors import ConnectionLostError, NoNodeError, SessionError, is_transient
from zkwire.wire.connection import Call
from zkwire.wire.records import Stat
from zkwire.wire.requests import DeleteRequest, ExistsRequest, StatReply, SyncRequest

_log = logging.getLogger(__name__)

PAUSE: Final = 0.1  # seconds, before a request that the server refused for the moment is sent again
# Seconds.  If no delete ends for so long, callers wait for them no more: an ensemble that is down must not keep a
# program from ending.  The deletes go on.
_STUCK: Final = 1.0


class Requests(Protocol):
    """The part of the request queue that deletes and searches need; see RequestQueue."""

    loop: asyncio.AbstractEventLoop
    session_id: int

    def send(self, call: Call, /) -> None: ...

    def send_at_once(self, call: Call, /) -> None: ...

    def sent_first(self) -> AbstractContextManager[None]: ...

    def recovered(self, call: Call, /) -> None: ...

    def fail_call(self, call: Call, error: Exception, /) -> None: ...


class GuaranteedDeletes:
    """The deletes that are under way in one session.

    Args:
        requests: The session's request queue.

    Attributes:
        under_way: Those that were started and have not finished.
        creates: For each path where one of them looks for its node, a mark that changes with each create there.
    """

    def __init__(self, requests: Requests) -> None:
        self.requests = requests
        self.under_way: set[GuaranteedDelete] = set()
        self.creates: dict[str, object] = {}
        # One timer for all deletes, and none for each: a release is on the way of a lock to its next owner.
        self._timer: asyncio.TimerHandle | None = None
        self._is_stuck = False

    def dismiss(self) -> list[str]:
        """Stop everything: the session is over, and its ephemeral nodes go with it; return the paths of the others."""
        lasting = [delete.path for delete in self.under_way if delete.owner is None]
        for delete in list(self.under_way):
            self.finished(delete)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return lasting

    # -- called by the deletes --------------------------------------------------------------------------------------

    def begin(self, delete: GuaranteedDelete, call: Call) -> None:
        """Write `call`, the first request of `delete`; if the others are stuck, no caller is to wait for this one."""
        self.send(delete, call)
        if self._is_stuck:
            delete._end_wait()
        elif self._timer is None and delete in self.under_way:  # else the client is closing
            self._has_progress = False  # whether a delete has ended since the timer was set
            self._timer = self.requests.loop.call_later(_STUCK, self._check_progress)

    def _check_progress(self) -> None:
        self._timer = None
        if self.under_way and self._has_progress:
            self._has_progress = False
            self._timer = self.requests.loop.call_later(_STUCK, self._check_progress)
        elif self.under_way:
            self._is_stuck = True
            for delete in self.under_way:
                delete._end_wait()

    def send(self, delete: GuaranteedDelete, call: Call) -> None:
        """Write `call`, the next request of `delete`, before this returns; see RequestQueue.send_at_once."""
        self.under_way.add(delete)
        try:
            self.requests.send_at_once(call)
        except SessionError:  # the client is closing: `dismiss` returns what outlives it
            if delete.owner is not None:
                self.finished(delete)

    def finished(self, delete: GuaranteedDelete) -> None:
        """Record that nothing more is to be done for `delete`."""
        self.under_way.discard(delete)
        self.creates.pop(delete.path, None)
        self._has_progress = True
        self._is_stuck = False
        delete._end_wait()


class GuaranteedDelete:
    """The delete of one node, again and again until it or the session is known to be gone.

    Made by `Client.guaranteed_delete`.  It is itself the waiter of its requests, so that an answer is acted upon in the
    step in which it is decoded.

    Args:
        deletes: The session's.
        newest_zxid: The latest transaction that can have created the node, None to delete any node at `path`.  It
            protects a node that another client has created there after the first delete was carried out and its answer
            lost.
        owner: The session whose ephemeral node it is: then the first request is not a delete, but asks whether it
            still is; 0 to delete at once; None likewise, for a node of a unique name that outlives the session.

    Attributes:
        session_id: The only session in which it may begin, None for any: the node has gone with that session.
    """

    __slots__ = ("_deletes", "_first", "_mark", "_newest_zxid", "_synced", "_waited_for", "owner", "path", "session_id")

    def __init__(
        self, deletes: GuaranteedDeletes, path: str, newest_zxid: int | None = None, *, owner: int | None = 0
    ) -> None:
        self._deletes = deletes
        self.path: str = path
        self._newest_zxid = newest_zxid
        self.owner: int | None = owner
        self.session_id: int | None = None
        self._synced: asyncio.Future[Any] | None = None  # the answer to the sync before an `_ask`
        self._mark = deletes.creates.setdefault(path, object()) if owner else None
        # Encoded here and not in `start`: a lock makes its delete while it has time, and starts it when another
        # client waits for the node to go.
        self._first: Call | None = Call(ExistsRequest(path, False) if owner else DeleteRequest(path, -1), self)
        self._waited_for: asyncio.Future[None] = deletes.requests.loop.create_future()

    def start(self) -> asyncio.Future[None]:
        """Begin, once, and return a future that is done when the node is known to be gone, or its session is.

        While no server carries deletes out, it is done after one or two seconds, or at once if it was so before: the
        delete goes on without a caller that waits for it.
        The first request is written before this returns, after all requests that wait in the queue: another client
        may be waiting for the node to go, and a turn of the event loop is a good part of that wait.
        The future need not be awaited, and never fails: a node that cannot be deleted is logged.
        """
        first, self._first = self._first, None
        if self.session_id not in (None, self._deletes.requests.session_id):
            self._end_wait()  # what the path names in a later session is the node of another client
        elif first is not None:
            self._deletes.begin(self, first)
        return self._waited_for

    def _end_wait(self) -> None:
        """Complete the future; called by GuaranteedDeletes, at the end or while the delete goes on."""
        if not self._waited_for.done():
            self._waited_for.set_result(None)

    # -- the waiter of its requests ---------------------------------------------------------------------------------

    def done(self) -> bool:
        """False: the answer to a delete is always of interest."""
        return False

    def set_result(self, result: object) -> None:
        """Take the answer to a delete (the node is gone), or to an exists (there is a node at the path)."""
        if (refusal := self._refusal_of_sync()) is not None:
            self.set_exception(refusal)
        elif isinstance(result, StatReply) and self._is_the_node(result.stat):
            # A delete and a create that the client has sent since are carried out before a delete of now.
            (self._delete if self._mark is self._deletes.creates.get(self.path) else self._ask)()
        else:  # deleted, or the node there is a newer one, of another client
            self._deletes.finished(self)

    def _is_the_node(self, stat: Stat) -> bool:
        is_new = self._newest_zxid is not None and stat.czxid > self._newest_zxid
        return not is_new and self.owner in (0, None, stat.ephemeral_owner)

    def set_exception(self, error: BaseException) -> None:
        """Take an error: go on if the node may still exist."""
        if isinstance(error, NoNodeError):
            error = self._refusal_of_sync() or error
        if isinstance(error, ConnectionLostError):
            self._continue()
        elif is_transient(error):
            asyncio.get_running_loop().call_later(PAUSE, self._continue)
        else:
            if not isinstance(error, NoNodeError | SessionError):
                _log.warning("a node that should be deleted remains: %s", error)
            self._deletes.finished(self)

    def _continue(self) -> None:
        if self not in self._deletes.under_way:  # the session ended during the pause
            return
        if self._newest_zxid is None:
            self._delete()
        else:
            self._ask()

    def _ask(self) -> None:
        """Ask whether the node is still there.

        The delete may have been carried out, and another client may have created a node at the same path: a second
        delete would hit that one.  A server that lags must not show the deleted node: sync first.
        """
        self._mark = self._deletes.creates.setdefault(self.path, object())
        self._synced = ignored(self._deletes.requests.loop.create_future())
        self._deletes.send(self, Call(SyncRequest(paths.split(self.path)[0]), self._synced))
        self._deletes.send(self, Call(ExistsRequest(self.path, False), self))

    def _refusal_of_sync(self) -> BaseException | None:
        """Return why the sync was refused: then the answer after it may be out of date."""
        return None if self._synced is None else self._synced.exception()

    def _delete(self) -> None:
        self._synced = None
        with self._deletes.requests.sent_first():  # a create that waits may follow a delete that waits
            self._deletes.send(self, Call(DeleteRequest(self.path, -1), self))


def ignored(future: asyncio.Future[Any]) -> asyncio.Future[Any]:
    """Return `future`, whose error asyncio will not log if no task retrieves it."""
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return future
