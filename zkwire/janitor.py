"""Removes nodes that nobody wants any more, again and again until they are known to be gone or their session is.

Two kinds come here: nodes whose path is known, and nodes that a create may have left whose caller was cancelled and
whose answer was then lost with the connection.  The janitor belongs to one session and is emptied when that ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from zkwire import paths
from zkwire.connection import Call
from zkwire.errors import ConnectionLostError, NoNodeError, SessionError, ThrottledError, ZooKeeperError
from zkwire.requests import (
    Create2Request,
    CreateContainerRequest,
    CreateFlags,
    CreateRequest,
    CreateTTLRequest,
    DeleteRequest,
    GetChildrenRequest,
    GetDataReply,
    GetDataRequest,
    Request,
    SyncRequest,
)

_log = logging.getLogger(__name__)

_THROTTLED_PAUSE: Final = 0.1

Creation = CreateRequest | Create2Request | CreateContainerRequest | CreateTTLRequest


class Janitor:
    """The clean-up owner of one session.

    Arguments: `send_at_once`, which puts a call into the session's line and writes that; `submit`, which sends a
    request and gives the future of its reply; `session_id`, which tells the id of the session that these speak for now.

    `removals` are those under way, by path.
    """

    def __init__(
        self,
        send_at_once: Callable[[Call], None],
        submit: Callable[[Request[Any]], asyncio.Future[Any]],
        session_id: Callable[[], int],
    ) -> None:
        self._send_at_once = send_at_once
        self._submit = submit
        self._session_id = session_id
        self.removals: dict[str, Removal] = {}
        self._searches: set[asyncio.Task[None]] = set()

    def removal(self, path: str, newest_zxid: int | None = None) -> Removal:
        """Return a Removal of the node at `path`, ready to be started.

        Arguments: `newest_zxid`, the latest transaction that can have created it, None for whatever stands there: when
        the answer to a delete is lost, somebody else's node may have taken its place.
        """
        return Removal(self, path, newest_zxid)

    def search(self, creation: Creation, session_id: int, after_zxid: int) -> None:
        """Find and delete what `creation` has left behind, if anything.

        Only an ephemeral node can be told from everybody else's: it belongs to `session_id`, and it is newer than
        `after_zxid`, the newest zxid that replies had shown when the connection was lost.  Whatever is both, and has
        the name, was made by a create whose answer never came.
        """
        # The flags of TTL nodes are numbers, no bits: 5 is not ephemeral.
        if isinstance(creation, CreateTTLRequest) or not creation.flags & CreateFlags.EPHEMERAL:
            _log.warning("a cancelled create of %s lost its answer: the node may be there", creation.path)
            return
        parent, _ = paths.split(creation.path)
        is_sequential = creation.flags & CreateFlags.SEQUENTIAL
        try:
            # The server that we reach now may not have seen yet what the former one carried out: sync first.
            self._submit(SyncRequest(parent)).add_done_callback(_retrieve)
            first = self._submit(
                GetChildrenRequest(parent, False) if is_sequential else GetDataRequest(creation.path, False)
            )
        except SessionError:
            return
        first.add_done_callback(_retrieve)
        task = asyncio.get_running_loop().create_task(self._search(creation, first, session_id, after_zxid))
        self._searches.add(task)
        task.add_done_callback(self._searches.discard)

    def dismiss(self) -> None:
        """Forget everything: the session is over, and its ephemeral nodes go with it."""
        for task in self._searches:
            task.cancel()
        for path in list(self.removals):
            self.gone(path)

    async def finish(self) -> None:
        """Wait for the ends of dismissed searches."""
        while self._searches:
            await asyncio.wait(self._searches)

    def delete(self, path: str) -> None:
        """Send the delete once more."""
        removal = self.removals.get(path)
        if removal is not None:
            self.send(path, Call(DeleteRequest(path, -1), removal))

    def look(self, path: str) -> None:
        """Ask who stands there now; a server that is behind the times must not show what was deleted: sync first."""
        removal = self.removals.get(path)
        if removal is None:
            return
        try:
            self._submit(SyncRequest(paths.split(path)[0])).add_done_callback(_retrieve)
        except SessionError:
            self.gone(path)
        else:
            self.send(path, Call(GetDataRequest(path, False), removal))

    def send(self, path: str, call: Call) -> None:
        """Send `call`, the next of the removal of `path`, without waiting for the end of the loop's turn."""
        try:
            self._send_at_once(call)
        except SessionError:
            self.gone(path)

    def gone(self, path: str) -> None:
        """Take note that nothing more is to be done for `path`."""
        removal = self.removals.pop(path, None)
        if removal is not None:
            for waiter in removal.awaited_by:
                if not waiter.done():
                    waiter.set_result(None)

    async def _search(
        self, creation: Creation, first: asyncio.Future[Any], session_id: int, after_zxid: int
    ) -> None:
        try:
            for path, asked in await self._candidates(creation, first):
                try:
                    node = await asked
                except NoNodeError:
                    continue
                ours = node.stat.ephemeral_owner == session_id == self._session_id()
                if ours and node.stat.czxid > after_zxid:
                    self.removal(path, node.stat.czxid).start()
        except SessionError:
            pass  # the node is gone with its session
        except ZooKeeperError as error:
            _log.warning("cannot look for what a cancelled create of %s left: %s", creation.path, error)

    async def _candidates(
        self, creation: Creation, first: asyncio.Future[Any]
    ) -> list[tuple[str, asyncio.Future[Any]]]:
        """Return the paths that the node may have, each with the answer to a getData."""
        if not creation.flags & CreateFlags.SEQUENTIAL:
            return [(creation.path, first)]
        parent, prefix = paths.split(creation.path)
        try:
            names = (await first).children
        except NoNodeError:
            return []
        found = []
        for name in names:
            number = name.removeprefix(prefix)
            if name.startswith(prefix) and number.lstrip("-").isdigit() and paths.sequence(name) is not None:
                path = paths.join(parent, name)
                asked = self._submit(GetDataRequest(path, False))
                asked.add_done_callback(_retrieve)
                found.append((path, asked))
        return found


class Removal:
    """The removal of one node: deletes it again and again until it is known to be gone, or the session is.

    Made by `Client.removal`.  It waits for the answers to its deletes, and draws the conclusion in the step in which
    they are decoded.
    """

    __slots__ = ("_first", "_gone", "_janitor", "_path", "awaited_by", "newest_zxid")

    def __init__(self, janitor: Janitor, path: str, newest_zxid: int | None) -> None:
        self._janitor = janitor
        self._path = path
        self.newest_zxid = newest_zxid
        # Whoever starts it is in a hurry, and whoever makes it need not be.
        self._first: Call | None = Call(DeleteRequest(path, -1), self)
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.awaited_by = [self._gone]

    def start(self) -> asyncio.Future[None]:
        """Begin, once, and return a future that is done when the node is known to be gone.

        The first request is written, with all that waits before it, before this returns: somebody may be waiting for
        the node to go, and a turn of the loop is a good part of what he waits.
        The future need not be awaited, and never fails: a node that cannot be deleted is logged.
        """
        first, self._first = self._first, None
        if first is None:
            return self._gone
        janitor = self._janitor
        going = janitor.removals.setdefault(self._path, self)
        if going is self:
            janitor.send(self._path, first)
        else:
            going.awaited_by += self.awaited_by
            if self.newest_zxid is None or going.newest_zxid is None:
                going.newest_zxid = None
            else:
                going.newest_zxid = max(going.newest_zxid, self.newest_zxid)
        return self._gone

    def done(self) -> bool:
        """It is never given up."""
        return False

    def set_result(self, result: object) -> None:
        """It was deleted, or this stands there."""
        if isinstance(result, GetDataReply) and (self.newest_zxid is None or result.stat.czxid <= self.newest_zxid):
            self._janitor.delete(self._path)
        else:
            self._janitor.gone(self._path)

    def set_exception(self, error: BaseException) -> None:
        """It may be there still."""
        if isinstance(error, ConnectionLostError):
            if self.newest_zxid is None:
                self._janitor.delete(self._path)
            else:
                self._janitor.look(self._path)
        elif isinstance(error, ThrottledError):
            asyncio.get_running_loop().call_later(_THROTTLED_PAUSE, self._janitor.delete, self._path)
        else:
            if not isinstance(error, NoNodeError | SessionError):
                _log.warning("a node that should go stays: %s", error)
            self._janitor.gone(self._path)


def _retrieve(future: asyncio.Future[Any]) -> None:
    """A future whose error nobody looks at would complain."""
    if not future.cancelled():
        future.exception()
