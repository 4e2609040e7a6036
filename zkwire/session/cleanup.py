"""Delete the nodes that cancelled calls left behind, again and again until they or their session are known to be gone.

A create cannot be recalled once it was written.  When its caller is cancelled, three cases are possible:

- The answer arrives: it names the node.  A `Removal` looks whether it is still that node, and deletes it.
- The connection is lost before the answer: perhaps there is a node, and for a sequential create its name is unknown.
  A search on the next connection looks for it, and starts a `Removal` for what it finds.
- The session ends: the server deletes its ephemeral nodes.  Nothing is left to do.

Other callers of the same client, and other clients, may create nodes at the same paths meanwhile.  Those must stay, and
the code below is mostly about telling them apart.  Only ephemeral nodes can be told apart, by their owner and the
transaction that created them.  So a node of another kind stays: another client may have written into it by now.

This module sends requests through the request queue and gets answers from it.  It knows nothing of connections, states
or watches.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from zkwire import paths
from zkwire.errors import ConnectionLostError, NoNodeError, ServerError, SessionError, ZooKeeperError
from zkwire.wire.certainty import Reach
from zkwire.wire.connection import Call
from zkwire.wire.jute import Record
from zkwire.wire.multi import MultiReply, MultiRequest
from zkwire.wire.records import Stat
from zkwire.wire.requests import (
    AnyCreate,
    CheckVersionRequest,
    Create2Reply,
    CreateFlags,
    CreateReply,
    CreateTTLRequest,
    DeleteRequest,
    ExistsRequest,
    GetChildrenRequest,
    Request,
    StatReply,
    SyncRequest,
)

_log = logging.getLogger(__name__)

_PAUSE: Final = 0.1  # seconds, before a request that the server refused for the moment is sent again
# Seconds.  If no removal ends for so long, callers wait for them no more: an ensemble that is down must not keep a
# program from ending.  The removals go on.
_STUCK: Final = 1.0
_NO_LIMIT: Final = 1 << 63  # later than any zxid
_NUMBER_LENGTHS: Final = (10, 11)  # of the numbers in names; 11 of those below -999999999

R = TypeVar("R", bound=Record)


class Requests(Protocol):
    """The part of the request queue that the clean-up needs; see RequestQueue."""

    loop: asyncio.AbstractEventLoop
    session_id: int

    def submit(self, request: Request[R], /) -> asyncio.Future[R]: ...

    def send(self, call: Call, /) -> None: ...

    def send_at_once(self, call: Call, /) -> None: ...


def ephemeral_creates(request: Request[Any]) -> list[AnyCreate]:
    """Return the creates of ephemeral nodes in `request`: the request itself, or operations of a transaction."""
    return [operation for operation in _operations(request) if _makes_ephemeral(operation)]


def is_write(request: Request[Any]) -> bool:
    """Return whether `request` may change something; a transaction of checks, which is a proof, does not."""
    return any(
        each.reach is Reach.QUORUM and not isinstance(each, CheckVersionRequest) for each in _operations(request)
    )


def _operations(request: Request[Any]) -> Sequence[Any]:
    return request.operations if isinstance(request, MultiRequest) else [request]


def _makes_ephemeral(operation: object) -> bool:
    # The flags of a create with a TTL are an enumeration and not a set of bits: 5 has the bit 1, and means
    # "persistent, with a TTL".
    if not isinstance(operation, AnyCreate) or isinstance(operation, CreateTTLRequest):
        return False
    return bool(operation.flags & CreateFlags.EPHEMERAL)


class LostCreate(NamedTuple):
    """The create of an ephemeral node, with a cancelled caller and an answer that was lost with the connection.

    `session_id` is the session that sent it; `after_zxid` is the newest zxid that answers had shown by then, so that a
    node that it created is newer.
    """

    request: AnyCreate
    session_id: int
    after_zxid: int

    @property
    def is_sequential(self) -> bool:
        """Whether the server has added a number to the name."""
        return bool(self.request.flags & CreateFlags.SEQUENTIAL)


class Cleanup:
    """The removals and searches that are under way in one session.

    Arguments: `requests`, the session's request queue.

    `searches` are those that are under way, by their tasks.
    """

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._loop = asyncio.get_running_loop()
        self._removals: set[Removal] = set()
        self.searches: dict[asyncio.Task[None], _Search] = {}
        # The last search that lists the children of a node, and the last one that looks for a node, by that node.
        self._listing: dict[str, _Search] = {}
        self._looking: dict[str, _Search] = {}
        # One timer for all removals, and none for each: a release is on the way of a lock to its next owner.
        self._timer: asyncio.TimerHandle | None = None
        self._has_progress = False  # a removal has ended since the timer was set
        self._is_stuck = False

    def removal(self, path: str, newest_zxid: int | None = None) -> Removal:
        """Return a Removal of the node at `path`, ready to be started.

        Arguments: `newest_zxid`, the latest transaction that can have created the node, None to delete any node at
        `path`.  It protects a node that another client has created there after the first delete was carried out and
        its answer lost.
        """
        return Removal(self, self._requests, path, newest_zxid)

    def remove_created(self, request: Request[Any], reply: object, newest_zxid: int) -> None:
        """Delete the ephemeral nodes that `reply`, the answer to `request`, says to have been created.

        Arguments: `newest_zxid`, the latest transaction that can have created them.
        """
        operations = _operations(request)
        results = reply.results if isinstance(reply, MultiReply) else [reply]
        for operation, result in zip(operations, results, strict=False):
            if _makes_ephemeral(operation) and isinstance(result, CreateReply | Create2Reply):
                Removal(self, self._requests, result.path, newest_zxid, owner=self._requests.session_id).start()

    def search(self, lost: LostCreate) -> None:
        """Find and delete the node that `lost` has created, if any.

        The node is recognised by its owner, which is the session, and by its age: it is newer than `lost.after_zxid`.
        A node of that name with both properties was made by a create that got no answer.

        Order: the first request is submitted before this returns, or was submitted for another create and is not
        written yet.  Nodes of creates that are sent later are spared, see `answered`.
        """
        if lost.is_sequential:
            at, searches = paths.split(lost.request.path)[0], self._listing
        else:
            at, searches = lost.request.path, self._looking
        search = searches.get(at)
        if search is not None and not search.is_sent:
            search.add(lost)
            return
        try:
            search = searches[at] = _Search(self, self._requests, lost)
        except SessionError:
            return
        task = asyncio.get_running_loop().create_task(search.run())
        self.searches[task] = search
        task.add_done_callback(self.searches.pop)
        task.add_done_callback(lambda _: searches.pop(at, None) if searches.get(at) is search else None)

    def answered(self, request: Request[Any], zxid: int) -> None:
        """Take note that a caller has the answer to `request`, which the transaction `zxid` has carried out."""
        if ephemeral_creates(request):
            for search in self.searches.values():
                search.spare_from(zxid)

    def dismiss(self) -> None:
        """Stop everything: the session is over, and its ephemeral nodes go with it."""
        for task in self.searches:
            task.cancel()
        for removal in list(self._removals):
            self.finished(removal)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def wait_dismissed(self) -> None:
        """Wait until the tasks of dismissed searches have ended."""
        while self.searches:
            await asyncio.wait(self.searches)

    # -- called by removals -----------------------------------------------------------------------------------------

    def begin(self, removal: Removal, call: Call) -> None:
        """Write `call`, the first request of `removal`; if the others are stuck, no caller is to wait for this one."""
        self.send(removal, call)
        if self._is_stuck:
            removal.end_wait()
        elif self._timer is None and removal in self._removals:
            self._has_progress = False
            self._timer = self._loop.call_later(_STUCK, self._look_for_progress)

    def _look_for_progress(self) -> None:
        self._timer = None
        if not self._removals:
            return
        if self._has_progress:
            self._has_progress = False
            self._timer = self._loop.call_later(_STUCK, self._look_for_progress)
            return
        self._is_stuck = True
        for removal in self._removals:
            removal.end_wait()

    def send(self, removal: Removal, call: Call) -> None:
        """Write `call`, the next request of `removal`, before this returns; see RequestQueue.send_at_once."""
        self._removals.add(removal)
        try:
            self._requests.send_at_once(call)
        except SessionError:
            self.finished(removal)

    @property
    def is_busy(self) -> bool:
        """Whether a search or a removal is under way."""
        return bool(self._removals or self.searches)

    def is_under_way(self, removal: Removal) -> bool:
        """Whether `removal` was started and has not finished."""
        return removal in self._removals

    def finished(self, removal: Removal) -> None:
        """Take note that nothing more is to be done for `removal`."""
        self._removals.discard(removal)
        self._has_progress = True
        self._is_stuck = False
        removal.end_wait()


class _Search:
    """The search for the node of a lost create, or for those of several sequential ones below the same node.

    Very many tasks may enter a line and be cancelled with the connection: a list of all names for each would take the
    server longer than the session lives.
    Sends the first request when it is made.  Raises: SessionError.
    """

    def __init__(self, cleanup: Cleanup, requests: Requests, lost: LostCreate) -> None:
        self._cleanup = cleanup
        self._requests = requests
        # By the path without a number: of several creates the one that was lost first, which has the least zxid.
        self._lost = {lost.request.path: lost}
        self._before_zxid = _NO_LIMIT
        self._is_sequential = lost.is_sequential
        self._path = paths.split(lost.request.path)[0] if lost.is_sequential else lost.request.path
        self._call, self._synced, self._first = self._ask()

    @property
    def is_sent(self) -> bool:
        """Whether the first request was written.  If not, its answer shows what former connections have carried out."""
        return self._call.xid != 0

    def add(self, lost: LostCreate) -> None:
        """Look for the node of `lost`, too; only while `is_sent` is False."""
        self._lost.setdefault(lost.request.path, lost)

    def spare_from(self, zxid: int) -> None:
        """Spare the node that `zxid` has created, and all that are newer: its create was sent behind the lost ones.

        A search that is refused for the moment asks again behind creates that were submitted meanwhile.
        """
        self._before_zxid = min(self._before_zxid, zxid)

    async def run(self) -> None:
        """Find the nodes and start their removals."""
        try:
            await self._run()
        except SessionError:
            pass  # the nodes are gone with their session
        except ZooKeeperError as error:
            _warn(next(iter(self._lost)), error)

    def _ask(self) -> tuple[Call, asyncio.Future[Any], asyncio.Future[Any]]:
        """Ask for the node, or for all names that sequential creates may have got.

        Returns the call, the answer to the sync ahead of it, and its own answer.  Raises: SessionError.
        """
        # The new server may not have seen yet what the former server carried out: sync first.
        at = self._path if self._is_sequential else paths.split(self._path)[0]
        synced = _ignored(self._requests.submit(SyncRequest(at)))
        request = GetChildrenRequest(at, False) if self._is_sequential else ExistsRequest(self._path, False)
        answer: asyncio.Future[Any] = self._requests.loop.create_future()
        call = Call(request, _ignored(answer))
        self._requests.send(call)
        return call, synced, answer

    async def _run(self) -> None:
        synced, first = self._synced, self._first
        while True:
            try:
                await synced  # refused, it says that the answer behind it may be out of date
                answer = await first
            except NoNodeError:
                return
            except ServerError as refusal:
                if not refusal.is_transient:
                    raise
                await asyncio.sleep(_PAUSE)
                _, synced, first = self._ask()
            else:
                break
        if self._is_sequential:
            # All at once: one round trip for all candidates.
            found = list(self._candidates(answer.children))
            asked = [(path, lost, self._stat(path)) for path, lost in found]
        else:
            asked = [(self._path, self._lost[self._path], first)]
        for path, (create, session_id, after_zxid), future in asked:
            try:
                stat = await self._answer(path, future)
            except ServerError as refusal:  # another client's, whose ACL forbids to look: ours may come after it
                _warn(create.path, refusal)
                continue
            if stat is None:
                continue
            is_ours = stat.ephemeral_owner == session_id == self._requests.session_id
            if is_ours and after_zxid < stat.czxid < self._before_zxid:
                self._cleanup.removal(path, stat.czxid).start()

    def _candidates(self, names: Iterable[str]) -> Iterator[tuple[str, LostCreate]]:
        """Yield the paths of those of `names` that one of the creates may have got, with that create."""
        for name in names:
            path = paths.join(self._path, name)
            for length in _NUMBER_LENGTHS:
                lost = self._lost.get(path[:-length])
                if lost is not None and _is_number(path[-length:]):
                    yield path, lost

    def _stat(self, path: str) -> asyncio.Future[Any]:
        return _ignored(self._requests.submit(ExistsRequest(path, False)))

    async def _answer(self, path: str, asked: asyncio.Future[Any]) -> Stat | None:
        """Return the Stat of `path`, None for no node; `asked`, an exists, is repeated if its refusal is transient."""
        while True:
            try:
                stat: Stat = (await asked).stat
            except NoNodeError:
                return None
            except ServerError as refusal:
                if not refusal.is_transient:
                    raise
                await asyncio.sleep(_PAUSE)
                asked = self._stat(path)
            else:
                return stat


def _warn(path: str, error: ZooKeeperError) -> None:
    _log.warning("cannot look for the node that a cancelled create of %s left: %s", path, error)


class Removal:
    """The removal of one node: deletes it again and again until it or the session is known to be gone.

    Made by `Client.removal`.  It is itself the waiter of its requests, so that an answer is acted upon in the step in
    which it is decoded.

    Arguments: `newest_zxid`, as for `Cleanup.removal`; `owner`, the session whose ephemeral node it is: then the first
    request is no delete, but a look whether it still is; 0 to delete at once.
    """

    __slots__ = ("_cleanup", "_first", "_newest_zxid", "_owner", "_path", "_requests", "_synced", "_waited_for")

    def __init__(
        self, cleanup: Cleanup, requests: Requests, path: str, newest_zxid: int | None, *, owner: int = 0
    ) -> None:
        self._cleanup = cleanup
        self._requests = requests
        self._path = path
        self._newest_zxid = newest_zxid
        self._owner = owner
        self._synced: asyncio.Future[Any] | None = None  # the answer to the sync ahead of a look
        # Encoded here and not in `start`: a lock makes its removal while it has time, and starts it when another
        # client waits for the node to go.
        self._first: Call | None = Call(ExistsRequest(path, False) if owner else DeleteRequest(path, -1), self)
        self._waited_for: asyncio.Future[None] = requests.loop.create_future()

    def start(self) -> asyncio.Future[None]:
        """Begin, once, and return a future that is done when the node is known to be gone, or its session is.

        While no server carries removals out, it is done after one or two seconds, or at once if it was so before: the
        removal goes on without a caller that waits for it.
        The first request is written before this returns, behind all requests that wait in the queue: another client
        may be waiting for the node to go, and a turn of the event loop is a good part of that wait.
        The future need not be awaited, and never fails: a node that cannot be deleted is logged.
        """
        first, self._first = self._first, None
        if first is not None:
            self._cleanup.begin(self, first)
        return self._waited_for

    def end_wait(self) -> None:
        """Complete the future; called by the Cleanup, at the end or while the removal goes on."""
        if not self._waited_for.done():
            self._waited_for.set_result(None)

    # -- the waiter of its requests ---------------------------------------------------------------------------------

    def done(self) -> bool:
        """False: the answer to a removal is always of interest."""
        return False

    def set_result(self, result: object) -> None:
        """Take the answer to a delete (the node is gone), or to an exists (there is a node at the path)."""
        if (refusal := self._refusal_of_sync()) is not None:
            self.set_exception(refusal)
        elif isinstance(result, StatReply) and self._is_the_node(result.stat):
            self._delete()
        else:  # deleted, or the node there is a newer one, of another client
            self._cleanup.finished(self)

    def _is_the_node(self, stat: Stat) -> bool:
        is_new = self._newest_zxid is not None and stat.czxid > self._newest_zxid
        return not is_new and self._owner in (0, stat.ephemeral_owner)

    def set_exception(self, error: BaseException) -> None:
        """Take an error: go on if the node may still exist."""
        if isinstance(error, NoNodeError):
            error = self._refusal_of_sync() or error
        if isinstance(error, ConnectionLostError):
            self._continue()
        elif isinstance(error, ServerError) and error.is_transient:
            asyncio.get_running_loop().call_later(_PAUSE, self._continue)
        else:
            if not isinstance(error, NoNodeError | SessionError):
                _log.warning("a node that should be deleted remains: %s", error)
            self._cleanup.finished(self)

    def _continue(self) -> None:
        if not self._cleanup.is_under_way(self):  # the session ended during the pause
            return
        if self._newest_zxid is None:
            self._delete()
        else:
            self._look()

    def _look(self) -> None:
        """Ask whether the node is still there.

        The delete may have been carried out, and another client may have created a node at the same path: a second
        delete would hit that one.  A server that lags behind must not show the deleted node: sync first.
        """
        try:
            self._synced = _ignored(self._requests.submit(SyncRequest(paths.split(self._path)[0])))
        except SessionError:
            self._cleanup.finished(self)
        else:
            self._cleanup.send(self, Call(ExistsRequest(self._path, False), self))

    def _refusal_of_sync(self) -> BaseException | None:
        """Return why the sync ahead of a look was refused: then what the look has shown may be out of date."""
        return None if self._synced is None else self._synced.exception()

    def _delete(self) -> None:
        self._synced = None
        self._cleanup.send(self, Call(DeleteRequest(self._path, -1), self))


def _is_number(text: str) -> bool:
    """Return whether `text` is a sequence number as the server writes it: see paths.sequence."""
    number = paths.sequence(f"-{text}")
    return number is not None and text == f"{number:010d}"


def _ignored(future: asyncio.Future[R]) -> asyncio.Future[R]:
    """Return `future`, whose error asyncio will not log if no task retrieves it."""
    future.add_done_callback(_retrieve)
    return future


def _retrieve(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
