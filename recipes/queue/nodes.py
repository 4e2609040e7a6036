"""The nodes of a queue: where they are, how they are made, and what is done for them behind the caller's back.

    path/entries/entry-100-0000000001    an item: the data as it was put
    path/taken/entry-100-0000000001      ephemeral: somebody has this item, or has just taken it out
    path/taken/_c_<uuid>                 ephemeral: one claim, for its lease to watch
    path/put-<uuid>                      ephemeral: the trace of a put, for as long as its answer may be lost
    path/consumers/, path/producers/     the lines of those who wait for an item, for room
    path/room                            of bounded queues: its version counts the puts

`entries` and `taken` are those of kazoo's LockingQueue, which can share the path.  They are persistent, as kazoo makes
them: below a container that was reaped and made again the numbers would begin anew, and who comes back to take an item
that is long gone would take the one that has its name.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from typing import Any

import zkwire
from recipes.common import lost_answers
from zkwire import ACL, Client, GetData, Node, SessionState, join_path


class Nodes:
    """The nodes of the queue at `path`; arguments as Queue's."""

    def __init__(self, zk: Client, path: str, acl: Sequence[ACL]) -> None:
        self.zk = zk
        self.path = zkwire.validate_path(path)
        self.acl = acl
        self.entries = join_path(path, "entries")
        self.taken = join_path(path, "taken")
        self.consumers = join_path(path, "consumers")
        self.producers = join_path(path, "producers")
        self.room = join_path(path, "room")
        self._trace = join_path(path, "put-")
        self._tasks: set[asyncio.Task[Any]] = set()

    def entry(self, name: str) -> str:
        """The node of the item `name`."""
        return f"{self.entries}/{name}"

    def mark(self, name: str) -> str:
        """The node that says that the item `name` is somebody's."""
        return f"{self.taken}/{name}"

    def trace(self) -> str:
        """A node for the trace of one put."""
        return self._trace + self.zk.unique_id()

    async def make(self) -> None:
        """Make the nodes that are missing; where the connection is lost meanwhile, perhaps not all.

        Cancellation: what is made stays, for others may have put something there by then.
        """
        # Whoever needs them tries again.
        with contextlib.suppress(zkwire.ConnectionLostError, zkwire.NoNodeError):
            await self.zk.ensure_path(self.path, container=True, acl=self.acl)
            await self.zk.ensure_path(self.entries, acl=self.acl)
            await self.zk.ensure_path(self.taken, acl=self.acl)

    async def look_after_loss(self, *paths: str) -> tuple[int, list[Node | None]]:
        """Return the session, and what stands at `paths` now that a connection was lost, None for nothing.

        A late write of the old connection cannot come behind this.
        """
        answers = await lost_answers.read(self.zk, self.path, *(GetData(path) for path in paths))
        return self.zk.session_id, [lost_answers.result(answer) for answer in answers]

    def drop(self, path: str, session_id: int) -> asyncio.Future[None] | None:
        """Have the ephemeral node `path` of the session deleted for certain, unless it went with that session.

        In a later session a node of that name would be somebody else's.
        """
        return self.zk.discard(path) if session_id == self.zk.session_id else None

    async def while_connected(self, work: asyncio.Task[Any]) -> None:
        """Return when `work` is done, or cannot be done for want of a connection."""
        if self.zk.state is SessionState.CONNECTED:
            losing = self.in_background(self._connection_lost())
            try:
                await asyncio.wait([work, losing], return_when=asyncio.FIRST_COMPLETED)
            finally:
                losing.cancel()

    async def _connection_lost(self) -> None:
        """Return when there is no connection."""
        states = self.zk.states()
        try:
            async for state in states:
                if state is not SessionState.CONNECTED:
                    return
        finally:
            states.close()

    def in_background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Have `work` done whatever becomes of the caller; it must not fail."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
