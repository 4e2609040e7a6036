"""An ephemeral node that outlives its session: it is put back in the next session, and when it was deleted.

The work is done by a `Keeper`, which also keeps the members of a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from recipes.common.arguments import checked_within
from recipes.common.background import BackgroundTask
from recipes.common.event_loops import OneLoop
from recipes.common.keeper import Keeper
from zkwire import ACL, Client, validate_path


class PersistentEphemeral:
    """An ephemeral node that exists as long as the `async with` block lasts, whatever happens to the session.

        async with PersistentEphemeral(zk, "/services/web/host-1", b"10.0.0.7:80") as node:
            await node.set(b"10.0.0.7:8080")

    The node is put back in a new session, and when another client deletes it.
    Arguments: `path`, the node, whose parent is created as a container when it is missing; `data`, the data at first;
    `acl`, of every node that is created, None: all clients may use the parent, and read the node, into which only this
    client may write if it has an identity; `within`, how many seconds to wait, on entering, for the node of another
    session to go, such as that of this process before a restart; None waits without limit, 0 looks once.
    Raises, on entering: NodeExistsError when the node of another session exists and `within` is 0; TimeoutError when it
    still exists after `within` seconds. Later, by cancelling the block: NodeExistsError when another session has taken
    the path; SessionExpiredError if the client does not renew its session; another error that keeps the node from being
    created, such as NoAuthError.
    Cancellation: no node stays.
    One object is for one event loop, the first in which it is entered; in another one its methods raise RuntimeError.
    Requests: create; then getChildren, with a watch, and getData, in one write; removeWatches and delete at the end.
    """

    def __init__(
        self, zk: Client, path: str, data: bytes = b"", *, acl: Sequence[ACL] | None = None, within: float | None = 0.0
    ) -> None:
        self._zk = zk
        self.path = validate_path(path)
        if path == "/":
            raise ValueError("path is the root, which cannot be an ephemeral node: use a path below it")
        self._acl = acl
        self._within = checked_within(within)
        self._own_sessions: set[int] = set()
        self._keeper = Keeper(zk, self.path, data, acl=acl, own_sessions=self._own_sessions)
        self._background: BackgroundTask | None = None
        self._one_loop = OneLoop(f"the PersistentEphemeral of {self.path}")

    async def __aenter__(self) -> Self:
        self._one_loop.check()
        if self._background is not None:
            raise RuntimeError(f"the node {self.path} is kept already")
        # Each block has a keeper of its own: tasks that still wait in the block before get its RuntimeError.
        self._keeper = Keeper(self._zk, self.path, self._keeper.data, acl=self._acl, own_sessions=self._own_sessions)
        await self._keeper.acquire(within=self._within)
        self._background = BackgroundTask(self._keeper.keep())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._one_loop.check()
        background, self._background = self._background, None
        if background is None:
            raise RuntimeError(f"the block of {self.path} is left, but it was not entered")
        try:
            await background.leave(kind)
        finally:
            gone = self._keeper.discard()
            if gone is not None:
                await gone

    @property
    def stands(self) -> bool:
        """Whether the node exists, as far as this client has heard: False from the expiry of the session until the
        node is put back."""
        return self._keeper.exists

    async def created(self) -> None:
        """Wait until the node exists.

        Raises: the error that prevents the node for good; RuntimeError when the block is left before the node exists.
        Cancellation: leaves nothing behind.
        """
        self._check_entered()
        await self._keeper.created()

    async def set(self, data: bytes) -> None:
        """Replace the node's data; return when the node holds it (request: setData).

        The node is put back with the data that the server has accepted last. So data that it refuses is not kept.
        Raises: as `created`; the error with which the server refuses the data.
        Cancellation: the node may hold the data until it is put back.
        """
        self._check_entered()
        await self._keeper.set(data)

    def _check_entered(self) -> None:
        self._one_loop.check()
        if self._background is None:
            raise RuntimeError(f"the node {self.path} is kept inside an `async with` block only")
