"""An ephemeral node that outlives its session: it is put back in the next one, and when somebody deletes it.

`Keeper` is what keeps one node ticket; members of a group are kept by it, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from recipes.common.arguments import checked_within
from recipes.common.background import BackgroundTask
from recipes.common.keeper import Keeper
from zkwire import (
    ACL,
    OPEN_ACL,
    Client,
    validate_path,
)


class PersistentEphemeral:
    """An ephemeral node that stands for as long as the block lasts, not only for as long as the session does.

        async with PersistentEphemeral(zk, "/services/web/host-1", b"10.0.0.7:80") as node:
            await node.set(b"10.0.0.7:8080")

    It is put back in a new session, and when somebody deletes it.
    Arguments: `path`, the node, whose parent is made as a container when it is missing; `data`, at first; `acl`, of
    every node that is made; `within`, for how many seconds to wait, on entering, for the node of another session to go,
    such as this process's own before a restart.
    Raises, on entering: NodeExistsError when another session's node is there, after a `within` TimeoutError.  While the
    block lasts, by cancelling it: NodeExistsError when another session has taken the path meanwhile;
    SessionExpiredError if the client renews no session; what else forbids the node.
    Cancellation: no node stays.
    Requests: create; then getData and getChildren, with a watch, in one write; removeWatches and delete at the
    end.
    """

    def __init__(
        self, zk: Client, path: str, data: bytes = b"", *, acl: Sequence[ACL] = OPEN_ACL, within: float = 0.0
    ) -> None:
        self._zk = zk
        self.path = validate_path(path)
        if path == "/":
            raise ValueError("the root is no ephemeral node: path names one below it")
        self._acl = acl
        self._within = checked_within(within) or 0.0
        self._former: set[int] = set()
        self._keeper = Keeper(zk, self.path, data, acl=acl, former=self._former)
        self._background: BackgroundTask | None = None

    async def __aenter__(self) -> Self:
        if self._background is not None:
            raise RuntimeError(f"the node {self.path} is kept already")
        # Another one for each block: who still waits for the one before is told that it is over.
        self._keeper = Keeper(self._zk, self.path, self._keeper.data, acl=self._acl, former=self._former)
        await self._keeper.acquire(within=self._within)
        self._background = BackgroundTask(self._keeper.keep())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        background, self._background = self._background, None
        if background is None:
            raise RuntimeError("left without having been entered")
        try:
            await background.leave(kind)
        finally:
            gone = self._keeper.discard()
            if gone is not None:
                await gone

    @property
    def stands(self) -> bool:
        """Whether the node stands, as far as this client has been told: False from the expiry of a session until it
        has been put back."""
        return self._keeper.stands

    async def created(self) -> None:
        """Return when the node stands, at once if it does.

        Raises: what has ended the keeping; RuntimeError when the block is left meanwhile.
        Cancellation: harmless.
        """
        self._check_entered()
        await self._keeper.created()

    async def set(self, data: bytes) -> None:
        """Have the node hold `data`, now and whenever it is put back; return when it does (request: setData).

        Raises: as `created`.
        Cancellation: it may hold it.
        """
        self._check_entered()
        await self._keeper.set(data)

    def _check_entered(self) -> None:
        if self._background is None:
            raise RuntimeError(f"the node {self.path} is kept by `async with` only")
