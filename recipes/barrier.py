"""A barrier that holds tasks back until it is removed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from recipes.common.arguments import checked_within
from recipes.common.notices import Notices
from recipes.common.own_acl import own_acl, was_refused
from recipes.common.parent_acl import warn_if_wider
from recipes.common.shared_nodes import create_shared
from recipes.common.waiting import bounded, raise_unless_renewed
from zkwire import (
    ACL,
    OPEN_ACL,
    Client,
    ConnectionLostError,
    InvalidACLError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    validate_path,
)

_log = logging.getLogger(__name__)


class Barrier:
    """A barrier that holds back the tasks that wait at it, as long as its node exists.

        barrier = Barrier(zk, "/jobs/paused")
        await barrier.create()
        await barrier.wait(within=60.0)       # elsewhere: returns when the barrier is removed
        await barrier.remove()

    Arguments: `path`, the barrier's node, which is persistent and so outlives the client that has created it; `acl`, of
    every node that this object creates, None: all clients may use the parents, and read the barrier's node, into which
    only this client may write if it has an identity.
    """

    def __init__(self, zk: Client, path: str, *, acl: Sequence[ACL] | None = None) -> None:
        self._zk = zk
        self.path = validate_path(path)
        self._acl = acl
        self._notices = Notices(_log, "a barrier")

    async def create(self) -> None:
        """Create the barrier, or return if it exists already.

        Raises: NodeExistsError when the node is ephemeral: it would end with the session of the client that made it;
        SessionExpiredError, only if the client does not renew its session.
        Requests: multi, and the creates of missing parents; exists, if the barrier exists already.
        Cancellation: the barrier may have been created.
        """
        while not await self._try(self._create):
            pass

    async def _create(self) -> bool:
        """Return whether the barrier is there now."""
        acl = own_acl(self._zk, self.path) if self._acl is None else self._acl
        parents_acl = OPEN_ACL if self._acl is None else self._acl
        try:
            await create_shared(self._zk, self.path, acl=acl, make_parents=True, parents_acl=parents_acl)
        except InvalidACLError:
            if not was_refused(self._zk, acl):
                raise
            return False
        except NodeExistsError as error:
            stat = await self._zk.exists(self.path)
            if stat is None:
                return False
            if stat.ephemeral_owner:
                error.hint = "it is ephemeral, and so it is not a barrier: delete it, or use another path"
                raise
            if self._acl is not None:
                await warn_if_wider(self._zk, self.path, self._acl)
        return True

    async def remove(self) -> None:
        """Remove the barrier, so that all waiting tasks go on; return if there is no barrier (request: delete).

        Nodes that other clients have created below it are removed with it, and a warning is logged.
        Raises: SessionExpiredError, only if the client does not renew its session.
        Cancellation: the barrier may have been removed.
        """
        while not await self._try(self._remove):
            pass

    async def _remove(self) -> bool:
        """Return whether the barrier is removed now."""
        try:
            await self._zk.delete(self.path)
        except NoNodeError:
            pass
        except NotEmptyError:
            self._notices.report(self.path, "has nodes below it, which are removed with it")
            await self._zk.delete_tree(self.path)
            return False  # the next delete shows what is left
        return True

    async def _try(self, change: Callable[[], Awaitable[bool]]) -> bool:
        """Make a change; return False if it has to be made again, as after a lost answer."""
        try:
            return await change()
        except ConnectionLostError:
            return False
        except SessionExpiredError:
            raise_unless_renewed(self._zk)
            return False

    async def wait(self, *, within: float | None = None) -> None:
        """Return when the barrier is removed, at once if there is none (request: getData).

        A task that waits while the barrier is removed goes on, even if the barrier has been created again since.
        Arguments: `within`, the longest wait in seconds; None waits without limit, 0 only looks.
        Raises: TimeoutError; SessionExpiredError, only if the client does not renew its session.
        Cancellation: leaves nothing behind.
        """
        checked_within(within)
        async with bounded(within, f"the barrier {self.path} was not removed") as bound:
            seen = None
            while True:
                try:
                    node, watch = await self._zk.get_and_watch(self.path)
                    try:
                        # The watch was silent while we were disconnected. A node with another czxid shows that the
                        # barrier was removed in the meantime, and created again.
                        if seen not in (None, node.stat.czxid):
                            return
                        seen = node.stat.czxid
                        bound.must_wait()
                        await watch
                    finally:
                        watch.cancel()
                except NoNodeError:
                    return
                except SessionExpiredError:
                    raise_unless_renewed(self._zk)
