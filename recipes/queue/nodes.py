"""The nodes of a queue: their paths, how they are created, and how they are read and deleted in the background.

    path/entries/entry-100-0000000001    an item: the data as it was put
    path/taken/entry-100-0000000001      ephemeral: a consumer has claimed this item
    path/taken/_c_<uuid>                 ephemeral: one claim, which its lease watches
    path/put-<uuid>                      ephemeral: a write receipt of this client's puts, see recipes.common.receipts
    path/take-<uuid>                     ephemeral: a write receipt of this client's gets
    path/consumers/, path/producers/     the waiting lines for an item, and for room
    path/room                            of bounded queues: its version counts the puts, its data is `maxsize`
    path/attempts/, path/failed/         of queues with `max_attempts`, see recipes.queue.attempts
    path/delayed/                        items whose time has not come, see recipes.queue.delayed

`entries` and `taken` have the same form as in kazoo's LockingQueue, which can share the path.  Both are persistent, as
kazoo creates them, so that a number is not given to a second item.  The server counts the numbers in the parent node.
If `entries` were a container, the server could delete it while the queue is empty, and the numbers would begin again;
then a consumer that was cut off while it took item 1 and now tries again would take another item 1.

The numbers end at 2147483647 (servers before 3.6 go on with negative ones, which keep their order).  From then on the
server gives this last number again and again, and refuses a put while there is an item with it.  The put then creates
`entries` and `taken` again, in its own transaction, and the numbers begin again.  That succeeds only if both are empty;
otherwise the put raises a NodeExistsError that says so, and a later put of this producer tries it again.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from typing import Any, Final, TypeVar

import zkwire
from recipes.common.retrying import read, read_after_loss, result, until_answered
from recipes.common.waiting import LEAVES_WITHIN
from zkwire import ACL, OPEN_ACL, READ_ONLY_ACL, Client, GetData, join_path

T = TypeVar("T")

# The server's last number, which it gives again and again.
LAST_NUMBER: Final = 2**31 - 1
# The data of `entries` from the first delayed put on; empty before, as kazoo creates the node.
DELAYS: Final = b"delayed"


class Nodes:
    """The nodes of the queue at `path`; its arguments are those of Queue.

    Attributes: `acl` of the nodes that all clients use; `fixed_acl` of those into which no client has anything to
    write: the items and the nodes in `taken`; `asked_acl`, the one that was given; `max_attempts`, 0 for none.
    """

    def __init__(self, zk: Client, path: str, acl: Sequence[ACL] | None, max_attempts: int = 0) -> None:
        self.zk: Client = zk.unlimited
        self.path: str = zkwire.validate_path(path)
        self.asked_acl = acl
        self.max_attempts = max_attempts
        self.acl: Sequence[ACL] = OPEN_ACL if acl is None else acl
        self.fixed_acl: Sequence[ACL] = READ_ONLY_ACL if acl is None else acl
        self.entries: str = join_path(path, "entries")
        self.taken: str = join_path(path, "taken")
        self.consumers: str = join_path(path, "consumers")
        self.producers: str = join_path(path, "producers")
        self.room: str = join_path(path, "room")
        self.attempts: str = join_path(path, "attempts")
        self.failed: str = join_path(path, "failed")
        self.delayed: str = join_path(path, "delayed")
        self.put_prefix: str = join_path(path, "put-")
        self.take_prefix: str = join_path(path, "take-")
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closes_by = float("inf")  # on the loop's clock

    def entry(self, name: str) -> str:
        """Return the path of the item `name`."""
        return f"{self.entries}/{name}"

    def taken_node(self, name: str) -> str:
        """Return the path of the node whose existence says that a consumer has the item `name`."""
        return f"{self.taken}/{name}"

    def number(self, name: str) -> str:
        """Return the path of the node that counts the claims of the item `name`."""
        return f"{self.attempts}/{name}"

    async def make(self, *more: str) -> None:
        """Create the nodes that are missing, and `more`.

        Cancellation:
            The nodes that were created stay, because other clients may have begun to use them.
        """
        # A node that another client has deleted meanwhile: the callers try again what failed for want of these nodes.
        with contextlib.suppress(zkwire.NoNodeError):
            await until_answered(self.zk, lambda: self._make(*more), repeats=True)

    async def _make(self, *more: str) -> None:
        # If there are delayed items, `entries` was deleted by hand: it must be marked again.
        if not isinstance((await read(self.zk, GetData(self.delayed)))[0], zkwire.NoNodeError):
            with contextlib.suppress(zkwire.NodeExistsError):
                await self.zk.create(self.entries, DELAYS, acl=self.acl)
        counting = (self.attempts, self.failed) if self.max_attempts else ()
        for path in (self.entries, self.taken, *counting, *more):
            await self.zk.ensure_path(path, acl=self.acl)

    def discard(self, path: str, session_id: int) -> asyncio.Future[None] | None:
        """Delete the ephemeral node `path` of the session for certain; return None if the session has ended.

        In that case the server has deleted the node, and a node at the same path belongs to another consumer.
        The same holds for a node that is newer than this call: if the answer to the delete is lost, the delete may have
        been carried out, and another consumer may have taken the item, before the delete is repeated.
        """
        if session_id != self.zk.session_id:
            return None
        return self.zk.discard(path, newest_zxid=self.zk.last_zxid)

    async def free(self, name: str, *, claim: str, session_id: int) -> None:
        """Delete the taken node of the item `name` for certain, if the claim at the path `claim` has created it.

        A later claim of the item, or a session that has ended, keeps what it has.
        """
        if self.zk.session_id == session_id:
            taken = await read_after_loss(self.zk, self.taken_node(name))
            if taken is not None and taken.data == claim.encode():
                discarded = self.discard(self.taken_node(name), session_id)
                if discarded is not None:
                    await discarded

    def in_background(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `work` in a task of its own, which goes on when the caller is cancelled.

        `Client.close` waits for it, for LEAVES_WITHIN at most, before it ends the session: otherwise an item would keep
        the attempt of a claim whose body has not begun.
        """
        task = asyncio.get_running_loop().create_task(work)
        # The event loop keeps only a weak reference to a task.
        self._tasks.add(task)
        self.zk.on_closing.add(self._client_closes)
        task.add_done_callback(self._has_ended)
        return task

    def _has_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not self._tasks:
            self.zk.on_closing.discard(self._client_closes)
        # A caller that was cancelled does not retrieve the error, and asyncio would log it.  ValueError: a bad `acl`.
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, zkwire.ZooKeeperError | ValueError):
            task.get_loop().call_exception_handler({"message": "a defect", "exception": error, "task": task})

    def _client_closes(self) -> asyncio.Task[Any] | None:
        loop = asyncio.get_running_loop()
        self._closes_by = min(self._closes_by, loop.time() + LEAVES_WITHIN)
        left = self._closes_by - loop.time()
        return loop.create_task(asyncio.wait([*self._tasks], timeout=left)) if self._tasks and left > 0 else None

    async def wait_to_leave(self, work: asyncio.Task[Any]) -> None:
        """Return when `work` is done, or after LEAVES_WITHIN; then `work` goes on.

        Cancellation:
            Does not end the wait, and is not raised.  A caller that was cancelled already uses this to finish its work,
            and raises CancelledError afterwards.
        """
        leaving = self.in_background(asyncio.sleep(LEAVES_WITHIN))
        while not (work.done() or leaving.done()):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([work, leaving], return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()


def child_names(answer: object) -> list[str] | None:
    """Return the children in the answer to a GetChildren or a GetChildrenAndStat; otherwise the same as `result`."""
    children: Any = result(answer)
    names: list[str] | None = children[0] if isinstance(children, tuple) else children
    return names
