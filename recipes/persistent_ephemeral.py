"""An ephemeral node that outlives its session: it is put back in the next session, and when it was deleted.

The work is done by a `PersistentNode`, as for the members of a group.
"""

from collections.abc import Coroutine, Sequence
from typing import Any

from recipes.common.background import BackgroundBlock
from recipes.common.checks import checked_client, checked_within
from recipes.common.persistent_node import PersistentNode
from zkwire import ACL, Client, validate_path


class PersistentEphemeral(BackgroundBlock):
    """An ephemeral node that exists as long as the `async with` block lasts, whatever happens to the session.

    ::

        async with PersistentEphemeral(zk, "/services/web/host-1", b"10.0.0.7:80") as node:
            await node.set(b"10.0.0.7:8080")

    The node is put back in a new session, and when another client deletes it.  If it cannot be put back for good, the
    block is cancelled, and raises the error.  One object is for one event loop, the first in which it is entered; in
    another one its methods raise RuntimeError.

    Args:
        path: The node, whose parent is created as a container when it is missing.
        data: The data at first.
        acl: The ACL of every node that is created.  None: all clients may use the parent, and read the node, into which
            only this client may write if it has an identity.
        within: How many seconds to wait, on entering, for the node of another session to go, such as that from before a
            restart of this process; None waits without limit, 0 looks once.

    Raises:
        NodeExistsError: on entering, if the node of another session exists and `within` is 0, or one that this client
            has made in another way; later, if another session has taken the path.
        TimeoutError: on entering, if it still exists after `within` seconds.
        SessionExpiredError: if the client does not renew its session.
        ServerError: if the node cannot be created, such as NoAuthError.

    Cancellation:
        No node stays.

    Requests:
        create; then getChildren, with a watch, and getData, in one write; removeWatches and delete at the end.
    """

    def __init__(
        self, zk: Client, path: str, data: bytes = b"", *, acl: Sequence[ACL] | None = None, within: float | None = 0.0
    ) -> None:
        super().__init__(f"the PersistentEphemeral of {path}")
        self._zk = checked_client(zk)
        self.path: str = validate_path(path)
        if path == "/":
            raise ValueError("path is the root, which cannot be an ephemeral node: use a path below it")
        self._acl = acl
        self._within = checked_within(within)
        self._own_sessions: set[int] = set()
        self._node = self._new_node(data)

    def _new_node(self, data: bytes) -> PersistentNode:
        return PersistentNode(self._zk, self.path, data, acl=self._acl, own_sessions=self._own_sessions)

    async def _begin(self) -> Coroutine[Any, Any, None]:
        # Each block has a node of its own: tasks that still wait in the block before get its RuntimeError.
        self._node = self._new_node(self._node.data)
        await self._node.acquire(within=self._within)
        return self._node.keep()

    async def _end(self) -> None:
        gone = self._node.discard()
        if gone is not None:
            await gone

    @property
    def exists(self) -> bool:
        """Whether the node exists, as far as this client has heard: False from the expiry of the session until the
        node is put back."""
        return self._node.exists

    async def created(self) -> None:
        """Wait until the node exists.

        Raises:
            ServerError: if it prevents the node for good.
            RuntimeError: if the block is left before the node exists.

        Cancellation:
            Leaves no node.
        """
        self._check_entered()
        await self._node.created()

    async def set(self, data: bytes) -> None:
        """Replace the node's data; return when the node holds it.

        The node is put back with the data that the server has accepted last.  So data that it refuses is not kept.

        Raises:
            ServerError: if the server refuses the data, or prevents the node for good.
            RuntimeError: if the block is left before the node holds the data.

        Cancellation:
            The node may hold the data until it is put back.

        Requests:
            setData.
        """
        self._check_entered()
        await self._node.set(data)

    def _check_entered(self) -> None:
        self._check_loop()
        if self._background is None:
            raise RuntimeError(f"the node {self.path} is kept inside an `async with` block only")
