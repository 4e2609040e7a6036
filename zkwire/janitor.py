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
    DeleteRequest,
    GetChildrenRequest,
    GetDataRequest,
    Request,
    SyncRequest,
)

_log = logging.getLogger(__name__)

_THROTTLED_PAUSE: Final = 0.1

Creation = CreateRequest | Create2Request | CreateContainerRequest


class Janitor:
    """The clean-up owner of one session.

    Arguments: `send`, which puts a call into the session's line; `flush`, which has the line written without waiting
    for the end of the loop's turn; `submit`, which sends a request and gives the future of its reply; `session_id`,
    which tells the id of the session that these speak for now.
    """

    def __init__(
        self,
        send: Callable[[Call], None],
        flush: Callable[[], None],
        submit: Callable[[Request[Any]], asyncio.Future[Any]],
        session_id: Callable[[], int],
    ) -> None:
        self._send = send
        self._flush = flush
        self._submit = submit
        self._session_id = session_id
        self._removals: dict[str, _Removal] = {}
        self._searches: set[asyncio.Task[None]] = set()

    def remove(self, path: str) -> asyncio.Future[None]:
        """Delete the node at `path` until it is known to be gone.

        The first request is written, with all that waits before it, before this returns: somebody may be waiting for
        the node to go, and a turn of the loop is a good part of what he waits.
        Returns a future that need not be awaited; it never fails: a node that cannot be deleted is logged.
        """
        gone = asyncio.get_running_loop().create_future()
        removal = self._removals.get(path)
        if removal is not None:
            removal.awaited_by.append(gone)
            return gone
        self._removals[path] = _Removal(self, path, gone)
        self.delete(path)
        self._flush()
        return gone

    def search(self, creation: Creation, session_id: int, after_zxid: int) -> None:
        """Find and delete what `creation` has left behind, if anything.

        Only an ephemeral node can be told from everybody else's: it belongs to `session_id`, and it is newer than
        `after_zxid`, the newest zxid that replies had shown when the connection was lost.  Whatever is both, and has
        the name, was made by a create whose answer never came.
        """
        if not creation.flags & CreateFlags.EPHEMERAL:
            _log.warning("a cancelled create of %s lost its answer: the node may be there", creation.path)
            return
        task = asyncio.get_running_loop().create_task(self._search(creation, session_id, after_zxid))
        self._searches.add(task)
        task.add_done_callback(self._searches.discard)

    def dismiss(self) -> None:
        """Forget everything: the session is over, and its ephemeral nodes go with it."""
        for task in self._searches:
            task.cancel()
        for path in list(self._removals):
            self.gone(path)

    async def finish(self) -> None:
        """Wait for the ends of dismissed searches."""
        while self._searches:
            await asyncio.wait(self._searches)

    def delete(self, path: str) -> None:
        """Send the delete, once more or for the first time."""
        removal = self._removals.get(path)
        if removal is None:
            return
        try:
            self._send(Call(DeleteRequest(path, -1), removal))
        except SessionError:
            self.gone(path)

    def gone(self, path: str) -> None:
        """Take note that nothing more is to be done for `path`."""
        removal = self._removals.pop(path, None)
        if removal is not None:
            for waiter in removal.awaited_by:
                if not waiter.done():
                    waiter.set_result(None)

    async def _search(self, creation: Creation, session_id: int, after_zxid: int) -> None:
        try:
            for path in await self._candidates(creation):
                try:
                    node = await self._submit(GetDataRequest(path, False))
                except NoNodeError:
                    continue
                ours = node.stat.ephemeral_owner == session_id == self._session_id()
                if ours and node.stat.czxid > after_zxid:
                    self.remove(path)
        except SessionError:
            pass  # the node is gone with its session
        except ZooKeeperError as error:
            _log.warning("cannot look for what a cancelled create of %s left: %s", creation.path, error)

    async def _candidates(self, creation: Creation) -> list[str]:
        parent, prefix = paths.split(creation.path)
        # The server that we reach now may not have seen yet what the former one carried out: sync first.
        self._submit(SyncRequest(parent)).add_done_callback(asyncio.Future.exception)
        if not creation.flags & CreateFlags.SEQUENTIAL:
            return [creation.path]
        try:
            names = (await self._submit(GetChildrenRequest(parent, False))).children
        except NoNodeError:
            return []
        return [
            paths.join(parent, name) for name in names if name.startswith(prefix) and paths.sequence(name) is not None
        ]


class _Removal:
    """Waits for the answers to a node's deletes, and draws the conclusion in the step in which they are decoded."""

    def __init__(self, janitor: Janitor, path: str, awaited_by: asyncio.Future[None]) -> None:
        self._janitor = janitor
        self._path = path
        self.awaited_by = [awaited_by]

    def done(self) -> bool:
        """It is never given up."""
        return False

    def set_result(self, result: object) -> None:
        """It was deleted."""
        self._janitor.gone(self._path)

    def set_exception(self, error: BaseException) -> None:
        """It may be there still."""
        if isinstance(error, ConnectionLostError):
            self._janitor.delete(self._path)
        elif isinstance(error, ThrottledError):
            asyncio.get_running_loop().call_later(_THROTTLED_PAUSE, self._janitor.delete, self._path)
        else:
            if not isinstance(error, NoNodeError | SessionError):
                _log.warning("a node that should go stays: %s", error)
            self._janitor.gone(self._path)
