"""Removes nodes that nobody wants any more, again and again until they are known to be gone or their session is.

Two kinds come here: nodes whose path is known, and nodes that a create may have left whose caller was cancelled and
whose answer was then lost with the connection.  The janitor belongs to one session and is emptied when that ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from zkwire import paths
from zkwire.errors import ConnectionLostError, NoNodeError, ServerError, SessionError, ZooKeeperError
from zkwire.wire.connection import Call
from zkwire.wire.records import Stat
from zkwire.wire.requests import (
    Create2Request,
    CreateContainerRequest,
    CreateFlags,
    CreateRequest,
    CreateTTLRequest,
    DeleteRequest,
    ExistsRequest,
    GetChildrenRequest,
    Request,
    StatReply,
    SyncRequest,
)

_log = logging.getLogger(__name__)

_PAUSE: Final = 0.1  # seconds, before what was refused for the time being is asked again
_NO_LIMIT: Final = 1 << 63  # later than any zxid

AnyCreate = CreateRequest | Create2Request | CreateContainerRequest | CreateTTLRequest


class Cleanup:
    """The clean-up owner of one session.

    Arguments: `send_at_once`, which puts a call into the session's line and writes that; `submit`, which sends a
    request and gives the future of its reply; `session_id`, which tells the id of the session that these speak for now;
    `last_zxid`, which tells the newest that replies have shown.
    """

    def __init__(
        self,
        send_at_once: Callable[[Call], None],
        submit: Callable[[Request[Any]], asyncio.Future[Any]],
        session_id: Callable[[], int],
        last_zxid: Callable[[], int],
    ) -> None:
        self._send_at_once = send_at_once
        self._submit = submit
        self._session_id = session_id
        self._last_zxid = last_zxid
        self._removals: set[Removal] = set()
        self._searches: set[asyncio.Task[None]] = set()

    def removal(self, path: str, newest_zxid: int | None = None) -> Removal:
        """Return a Removal of the node at `path`, ready to be started.

        Arguments: `newest_zxid`, the latest transaction that can have created it, None for whatever stands there: when
        the answer to a delete is lost, somebody else's node may have taken its place.
        """
        return Removal(self, path, newest_zxid)

    def search(self, creation: AnyCreate, session_id: int, after_zxid: int) -> None:
        """Find and delete what `creation` has left behind, if anything.

        Only an ephemeral node can be told from everybody else's: it belongs to `session_id`, and it is newer than
        `after_zxid`, the newest zxid that replies had shown when the connection was lost.  Whatever is both, and has
        the name, was made by a create whose answer never came.
        """
        # The flags of TTL nodes are numbers, no bits: 5 is not ephemeral.
        if isinstance(creation, CreateTTLRequest) or not creation.flags & CreateFlags.EPHEMERAL:
            _log.warning("a cancelled create of %s lost its answer: the node may be there", creation.path)
            return
        try:
            first = self._ask_for(creation)
        except SessionError:
            return
        task = asyncio.get_running_loop().create_task(self._search(creation, first, session_id, after_zxid))
        self._searches.add(task)
        task.add_done_callback(self._searches.discard)

    def dismiss(self) -> None:
        """Forget everything: the session is over, and its ephemeral nodes go with it."""
        for task in self._searches:
            task.cancel()
        for removal in list(self._removals):
            self.gone(removal)

    async def finish(self) -> None:
        """Wait for the ends of dismissed searches."""
        while self._searches:
            await asyncio.wait(self._searches)

    def send(self, removal: Removal, call: Call) -> None:
        """Send `call`, the next of `removal`, without waiting for the end of the loop's turn."""
        self._removals.add(removal)
        try:
            self._send_at_once(call)
        except SessionError:
            self.gone(removal)

    def look(self, removal: Removal, path: str) -> None:
        """Ask who stands there now; a server that is behind the times must not show what was deleted: sync first."""
        try:
            self._submit(SyncRequest(paths.split(path)[0])).add_done_callback(_retrieve)
        except SessionError:
            self.gone(removal)
        else:
            self.send(removal, Call(ExistsRequest(path, False), removal))

    def is_under_way(self, removal: Removal) -> bool:
        """Whether something is still to be done for `removal`."""
        return removal in self._removals

    def gone(self, removal: Removal) -> None:
        """Take note that nothing more is to be done for `removal`."""
        self._removals.discard(removal)
        removal.end()

    def _ask_for(self, creation: AnyCreate) -> asyncio.Future[Any]:
        """Ask for the node that `creation` names, or the names that it may have got.  Raises: SessionError."""
        parent, _ = paths.split(creation.path)
        # The server that we reach now may not have seen yet what the former one carried out: sync first.
        self._submit(SyncRequest(parent)).add_done_callback(_retrieve)
        is_sequential = creation.flags & CreateFlags.SEQUENTIAL
        return self._ask(GetChildrenRequest(parent, False) if is_sequential else ExistsRequest(creation.path, False))

    def _ask(self, request: Request[Any]) -> asyncio.Future[Any]:
        asked = self._submit(request)
        asked.add_done_callback(_retrieve)
        return asked

    async def _search(self, creation: AnyCreate, first: asyncio.Future[Any], session_id: int, after_zxid: int) -> None:
        """Remove what is newer than `after_zxid`.

        `first` was asked ahead of all that may be created in its place; when that is refused for the time being, what
        is newer than the refusal may be such.
        """
        until_zxid = _NO_LIMIT
        try:
            while True:
                try:
                    answer = await first
                except NoNodeError:
                    return
                except ServerError as refusal:
                    if not refusal.is_transient:
                        raise
                    until_zxid = min(until_zxid, self._last_zxid())
                    await asyncio.sleep(_PAUSE)
                    first = self._ask_for(creation)
                else:
                    break
            if creation.flags & CreateFlags.SEQUENTIAL:
                candidates = _candidates(creation.path, answer.children)
                asked = [(path, self._ask(ExistsRequest(path, False))) for path in candidates]
            else:
                asked = [(creation.path, first)]
            for path, future in asked:
                stat = await self._stat(path, future)
                ours = stat is not None and stat.ephemeral_owner == session_id == self._session_id()
                if stat is not None and ours and after_zxid < stat.czxid <= until_zxid:
                    self.removal(path, stat.czxid).start()
        except SessionError:
            pass  # the node is gone with its session
        except ZooKeeperError as error:
            _log.warning("cannot look for what a cancelled create of %s left: %s", creation.path, error)

    async def _stat(self, path: str, asked: asyncio.Future[Any]) -> Stat | None:
        """Return what `asked`, an exists for `path`, is answered in the end; None for no node."""
        while True:
            try:
                stat: Stat = (await asked).stat
            except NoNodeError:
                return None
            except ServerError as refusal:
                if not refusal.is_transient:
                    raise
                await asyncio.sleep(_PAUSE)
                asked = self._ask(ExistsRequest(path, False))
            else:
                return stat


class Removal:
    """The removal of one node: deletes it again and again until it is known to be gone, or the session is.

    Made by `Client.removal`.  It waits for the answers to its deletes, and draws the conclusion in the step in which
    they are decoded.
    """

    __slots__ = ("_cleanup", "_first", "_gone", "_newest_zxid", "_path")

    def __init__(self, janitor: Cleanup, path: str, newest_zxid: int | None) -> None:
        self._cleanup = janitor
        self._path = path
        self._newest_zxid = newest_zxid
        # Whoever starts it is in a hurry, and whoever makes it need not be.
        self._first: Call | None = Call(DeleteRequest(path, -1), self)
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self) -> asyncio.Future[None]:
        """Begin, once, and return a future that is done when the node is known to be gone.

        The first request is written, with all that waits before it, before this returns: somebody may be waiting for
        the node to go, and a turn of the loop is a good part of what he waits.
        The future need not be awaited, and never fails: a node that cannot be deleted is logged.
        """
        first, self._first = self._first, None
        if first is not None:
            self._cleanup.send(self, first)
        return self._gone

    def done(self) -> bool:
        """It is never given up."""
        return False

    def set_result(self, result: object) -> None:
        """It was deleted, or this stands there."""
        if isinstance(result, StatReply) and (self._newest_zxid is None or result.stat.czxid <= self._newest_zxid):
            self._delete()
        else:
            self._cleanup.gone(self)

    def set_exception(self, error: BaseException) -> None:
        """It may be there still."""
        if isinstance(error, ConnectionLostError):
            self._go_on()
        elif isinstance(error, ServerError) and error.is_transient:
            asyncio.get_running_loop().call_later(_PAUSE, self._go_on)
        else:
            if not isinstance(error, NoNodeError | SessionError):
                _log.warning("a node that should go stays: %s", error)
            self._cleanup.gone(self)

    def end(self) -> None:
        """Nothing more is to be done; called by the janitor."""
        if not self._gone.done():
            self._gone.set_result(None)

    def _go_on(self) -> None:
        if not self._cleanup.is_under_way(self):
            return
        if self._newest_zxid is None:
            self._delete()
        else:  # somebody else's node may stand there by now
            self._cleanup.look(self, self._path)

    def _delete(self) -> None:
        self._cleanup.send(self, Call(DeleteRequest(self._path, -1), self))


def _candidates(path: str, names: Sequence[str]) -> list[str]:
    """Return the paths of those of `names` that a sequential create of `path` may have got."""
    parent, prefix = paths.split(path)
    found = []
    for name in names:
        number = name.removeprefix(prefix)
        if name.startswith(prefix) and number.lstrip("-").isdigit() and paths.sequence(name) is not None:
            found.append(paths.join(parent, name))
    return found


def _retrieve(future: asyncio.Future[Any]) -> None:
    """A future whose error nobody looks at would complain."""
    if not future.cancelled():
        future.exception()
