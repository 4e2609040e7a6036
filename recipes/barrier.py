"""A barrier that holds tasks back until it is removed."""

import contextlib
from collections.abc import Sequence

import zkwire
from recipes.common.checks import checked_client, checked_within
from recipes.common.own_acl import own_acl, was_refused
from recipes.common.parent_acl import warn_if_wider
from recipes.common.retrying import until_answered
from recipes.common.waiting import Bound, bounded
from zkwire import ACL, OPEN_ACL, Client, validate_path


class Barrier:
    """A barrier that holds back the tasks that wait at it, as long as its node exists.

    ::

        barrier = Barrier(zk, "/jobs/paused")
        await barrier.create()
        await barrier.wait(within=60.0)       # elsewhere: returns when the barrier is removed
        await barrier.remove()

    Args:
        path: The barrier's node, which is persistent and so outlives the client that has created it.
        acl: The ACL of every node that this object creates.  None: all clients may use the parents, and read the
            barrier's node, into which only this client may write if it has an identity.
    """

    def __init__(self, zk: Client, path: str, *, acl: Sequence[ACL] | None = None) -> None:
        self._zk = checked_client(zk)
        self.path: str = validate_path(path)
        self._acl = acl

    async def create(self) -> None:
        """Create the barrier, or return if it exists already.

        Raises:
            NodeExistsError: if the node is ephemeral: it would end with the session of the client that made it.
            SessionExpiredError: if the client does not renew its session.

        Cancellation:
            The barrier may have been created.

        Requests:
            create, and the creates of missing parents; exists, if the barrier exists already.
        """
        await until_answered(self._zk, self._create, repeats=True)

    async def _create(self) -> None:
        while True:
            acl = own_acl(self._zk, self.path) if self._acl is None else self._acl
            try:
                await self._zk.create(self.path, acl=acl)
                return
            except zkwire.NoNodeError:
                parent = self.path.rpartition("/")[0] or "/"
                await self._zk.ensure_path(parent, acl=OPEN_ACL if self._acl is None else self._acl)
            except zkwire.InvalidACLError:
                if not was_refused(self._zk, acl):
                    raise
            except zkwire.NodeExistsError as error:
                stat = await self._zk.exists(self.path)
                if stat is not None:
                    if stat.ephemeral_owner:
                        error.hint = "it is ephemeral, and so it is not a barrier: delete it, or use another path"
                        raise
                    await warn_if_wider(self._zk, self.path, self._acl)
                    return

    async def remove(self) -> None:
        """Remove the barrier, so that all waiting tasks go on; return if there is no barrier.

        Raises:
            NotEmptyError: if the node has others below it, so that it is hardly a barrier: nothing is removed.
            SessionExpiredError: if the client does not renew its session.

        Cancellation:
            The barrier may have been removed.

        Requests:
            delete.
        """
        await until_answered(self._zk, self._remove, repeats=True)

    async def _remove(self) -> None:
        with contextlib.suppress(zkwire.NoNodeError):
            try:
                await self._zk.delete(self.path)
            except zkwire.NotEmptyError as error:
                error.hint = "a barrier has no nodes below it: delete them, or use another path"
                raise

    async def wait(self, *, within: float | None = None) -> None:
        """Return when the barrier is removed, at once if there is none.

        A task that waits while the barrier is removed goes on, even if the barrier has been created again since.

        Args:
            within: The longest wait in seconds; None waits without limit, 0 only looks.

        Raises:
            TimeoutError: if the barrier was not removed in time.
            SessionExpiredError: if the client does not renew its session.

        Cancellation:
            Leaves no node and no watch.

        Requests:
            getData.
        """
        checked_within(within)
        async with bounded(self._zk, within, f"the barrier {self.path} was not removed") as bound:
            seen: set[int] = set()
            await until_answered(self._zk, lambda: self._wait(bound, seen))

    async def _wait(self, bound: Bound, seen: set[int]) -> None:
        """Return when the barrier is gone; `seen` keeps its czxid over the sessions of one wait."""
        with contextlib.suppress(zkwire.NoNodeError):
            while True:
                node, watch = await self._zk.get_and_watch(self.path)
                try:
                    seen.add(node.stat.czxid)
                    # The watch was silent while we were disconnected.  A node with another czxid shows that the barrier
                    # was removed meanwhile, and created again.
                    if len(seen) > 1:
                        return
                    bound.must_wait()
                    await watch
                finally:
                    watch.cancel()
