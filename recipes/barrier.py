"""Barriers: one that holds back whoever comes until it is removed, and one at which a number of members meet, to begin
and to end together.

The upper half is pure: what a member of a round has to do, given who is there.
"""

from __future__ import annotations

from collections.abc import Sequence

from recipes.common.arguments import checked_within
from recipes.common.shared_nodes import create_shared
from recipes.common.waiting import bounded, raise_unless_renewed
from zkwire import (
    ACL,
    OPEN_ACL,
    Client,
    ConnectionLostError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    validate_path,
)


class Barrier:
    """A barrier: while its node stands, whoever waits is held back.

        barrier = Barrier(zk, "/jobs/paused")
        await barrier.create()
        await barrier.wait(within=60.0)       # elsewhere: returns when it is removed, or was never there
        await barrier.remove()

    Arguments: `path`, its node, persistent, so that it outlives who has created it; `acl`, of every node that is made.
    """

    def __init__(self, zk: Client, path: str, *, acl: Sequence[ACL] = OPEN_ACL) -> None:
        self._zk = zk
        self.path = validate_path(path)
        self._acl = acl

    async def create(self) -> None:
        """Have the barrier stand; it may stand already (request: multi, and the creates of missing parents).

        Cancellation: it may stand.
        """
        while True:
            try:
                await create_shared(self._zk, self.path, acl=self._acl, make_parents=True)
            except NodeExistsError:
                return
            except ConnectionLostError:
                continue
            return

    async def remove(self) -> None:
        """Remove the barrier, so that all who wait go on; it need not stand (request: delete).

        Cancellation: it may be gone.
        """
        while True:
            try:
                await self._zk.delete(self.path)
            except NoNodeError:
                return
            except ConnectionLostError:
                continue
            return

    async def wait(self, *, within: float | None = None) -> None:
        """Return when the barrier is removed, at once if there is none (request: getData).

        Who waits while it is removed goes on, though it may stand again by then.
        Arguments: `within`, how many seconds to wait at the most; None: without bound.
        Raises: TimeoutError; SessionExpiredError only if the client renews no session.
        Cancellation: harmless.
        """
        checked_within(within)
        async with bounded(within, f"the barrier {self.path} was not removed"):
            seen = None
            while True:
                try:
                    node, watch = await self._zk.get_and_watch(self.path)
                except NoNodeError:
                    return
                except SessionExpiredError:
                    raise_unless_renewed(self._zk)
                    continue
                try:
                    if seen not in (None, node.stat.czxid):
                        return  # it was removed, and another stands there
                    seen = node.stat.czxid
                    await watch
                except SessionExpiredError:
                    raise_unless_renewed(self._zk)
                finally:
                    watch.cancel()
