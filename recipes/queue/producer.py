"""Putting items into a queue: so that a lost answer neither loses nor doubles them, and within a bound.

A put is one transaction that creates, beside the items, an ephemeral node of its own, its trace.  An item may be taken
before its producer hears that it was made, so that the items themselves say nothing afterwards; the trace does.  It is
deleted by a later put's transaction, or after a while.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final, NamedTuple

import zkwire
from recipes.common.shared_nodes import create_shared
from recipes.common.waiting import raise_unless_renewed
from recipes.line.line import Line
from recipes.line.ticket import Ticket
from recipes.queue.nodes import Nodes
from recipes.queue.order import prefix
from zkwire import GetChildren, GetData, Node, Stat, WatchSet

# The traces of puts that are answered are deleted by later puts, so many by each, or after so many seconds.
_TRACES_PER_PUT: Final = 32
_TRACES_KEPT: Final = 0.25

# Who has lost so often to other producers stands in their line instead.
_PATIENCE: Final = 3


class _Room(NamedTuple):
    """How many items there are at the most, as long as the version of the queue's `room` is this."""

    version: int
    filled: int


class Puts:
    """The puts of one producer.

    Arguments: `nodes`, the queue's; `maxsize`, how many items it may have, None for any number.
    """

    def __init__(self, nodes: Nodes, maxsize: int | None) -> None:
        self._nodes = nodes
        self._zk = nodes.zk
        self._maxsize = maxsize
        self._line = Line(nodes.zk, nodes.producers, prefix="put-", acl=nodes.acl)
        self._turn = asyncio.Lock()  # of this producer's tasks, in a bounded queue: one tries, or stands in the line
        self._room: _Room | None = None
        self._traces: list[tuple[int, str]] = []
        self._sweeper: asyncio.TimerHandle | None = None

    async def put(self, items: Sequence[tuple[int, bytes]], within: float | None) -> None:
        """Put all `items`, each a priority and the data, or none.

        Arguments: `within`, how many seconds to wait for room, None: without bound.
        Raises: TimeoutError.
        """
        if self._maxsize is None:
            await self._send(items, None)
            return
        try:
            async with asyncio.timeout(within) as limit, self._turn:
                await self._put_bounded(items, limit, self._maxsize)
        except TimeoutError:
            raise TimeoutError(
                f"the queue {self._nodes.path} had no room for {len(items)} more within {within} s"
            ) from None

    # -- within a bound ---------------------------------------------------------------------------------------------

    async def _put_bounded(self, items: Sequence[tuple[int, bytes]], limit: asyncio.Timeout, maxsize: int) -> None:
        """Put when there is room.

        Each put sets the node `room` on the condition that nobody has since its version was read.  The items were
        counted behind that, and others only take: so they cannot be more than were counted.
        """
        ticket: Ticket | None = None
        failures = 0
        try:
            while True:
                room, self._room = self._room, None
                if room is None or room.filled + len(items) > maxsize or failures:
                    try:
                        if ticket is None and failures < _PATIENCE:
                            room = await self._find_room(maxsize - len(items))
                        else:
                            room = None
                        if room is None:
                            ticket = ticket or await self._line.acquire()
                            room = await self._wait_for_room(maxsize - len(items))
                    except zkwire.SessionExpiredError:
                        raise_unless_renewed(self._zk)
                        ticket = None  # it went with its session
                        continue
                if await self._send_in_time(items, room.version, limit):
                    if ticket is None:  # else others may stand behind us, and the next put is to look for them
                        self._room = _Room(room.version + 1, room.filled + len(items))
                    return
                failures += 1
        finally:
            if ticket is not None:
                self._line.leave(ticket)

    async def _send_in_time(self, items: Sequence[tuple[int, bytes]], version: int, limit: asyncio.Timeout) -> bool:
        """Send, with the limit of time set aside: a put that is under way is not given up."""
        until = limit.when()
        limit.reschedule(None)
        has_put = await self._send(items, version)
        if not has_put:
            limit.reschedule(until)
        return has_put

    async def _find_room(self, most: int) -> _Room | None:
        """Return the room if there are `most` items or fewer and nobody waits for it, else None."""
        while True:
            room, entries, waiting = await self._zk.pipeline(
                [GetData(self._nodes.room), GetData(self._nodes.entries), GetChildren(self._nodes.producers)]
            )
            if isinstance(room, zkwire.NoNodeError):
                await self._make_room()
                continue
            stat = _found(room)
            assert stat is not None
            count = 0 if (parent := _found(entries)) is None else parent.num_children
            if not isinstance(waiting, zkwire.NoNodeError):
                if isinstance(waiting, BaseException):
                    raise waiting
                if waiting:
                    return None
            return _Room(stat.version, count) if count <= most else None

    async def _wait_for_room(self, most: int) -> _Room:
        """Return the room when there are `most` items or fewer; to be called by the first in the line.

        Who has put before goes on by what it knows of the room, as long as nobody sets it: so it is set, once, for them
        to look who waits.
        """
        has_told = False
        while True:
            with WatchSet() as watches:
                room, entries = await self._zk.pipeline(
                    [GetData(self._nodes.room), GetChildren(self._nodes.entries, into=watches)]
                )
                if isinstance(room, zkwire.NoNodeError):
                    await self._make_room()
                    continue
                stat = _found(room)
                assert stat is not None
                if isinstance(entries, zkwire.NoNodeError):
                    entries = []
                if isinstance(entries, BaseException):
                    raise entries
                if len(entries) <= most:
                    return _Room(stat.version, len(entries))
                if has_told:
                    await watches.next()
                    continue
            # Whatever comes of it is seen by the next look.
            with contextlib.suppress(zkwire.NoNodeError, zkwire.ConnectionLostError):
                await self._zk.set(self._nodes.room, b"")
                has_told = True

    async def _make_room(self) -> None:
        """Make the node whose version counts the puts; persistent, for a version that began anew would be trusted."""
        await self._nodes.make()
        # Whoever needs it looks again.
        with contextlib.suppress(zkwire.NodeExistsError, zkwire.NoNodeError, zkwire.ConnectionLostError):
            await create_shared(self._zk, self._nodes.room, acl=self._nodes.acl)

    # -- sending ----------------------------------------------------------------------------------------------------

    async def _send(self, items: Sequence[tuple[int, bytes]], version: int | None) -> bool:
        """Put all `items` in one transaction; return whether they were put.

        Arguments: `version`, of the queue's room, for which alone they are; None for any.
        Cancellation: they may be put all the same.
        """
        trace = self._nodes.trace()
        has_put: bool | None = None
        try:
            while has_put is None:
                has_put = await self._try(items, version, trace)
        except ValueError:
            raise  # too large, and nothing was sent
        except BaseException:
            self._zk.discard(trace)
            raise
        if has_put:
            self._leave_trace(trace)
        return has_put

    async def _try(self, items: Sequence[tuple[int, bytes]], version: int | None, trace: str) -> bool | None:
        """Send the transaction once; return whether the items were put, None if it is worth another try."""
        former = self._former_traces()
        transaction = self._zk.transaction()
        if version is not None:
            transaction.set(self._nodes.room, b"", version)
        for priority, data in items:
            path = self._nodes.entry(prefix(priority))
            transaction.create(path, data, sequential=True, acl=self._nodes.acl)
        transaction.create(trace, ephemeral=True, acl=self._nodes.acl)
        for path in former:
            transaction.delete(path)
        first = 0 if version is None else 1
        try:
            await transaction.commit()
        except zkwire.TransactionError as refused:
            if refused.index > first + len(items):
                self._discard(former)  # somebody has deleted one by hand
                return None
            self._keep(former)
            if refused.index < first and isinstance(refused.cause, zkwire.BadVersionError | zkwire.NoNodeError):
                return False
            if isinstance(refused.cause, zkwire.NoNodeError):
                await self._nodes.make()
                return None
            if isinstance(refused.cause, zkwire.NodeExistsError):
                refused.cause.hint = "the numbers below this parent are used up: it must be emptied and deleted"
            raise refused.cause from None
        except ValueError:
            self._keep(former)
            raise
        except zkwire.ConnectionLostError as lost:
            self._discard(former)
            return await self._was_made(trace, lost) or None
        except BaseException:
            self._discard(former)
            raise
        return True

    async def _was_made(self, trace: str, lost: zkwire.ConnectionLostError) -> bool:
        """Find out whether a put whose answer was lost was carried out.

        Raises: `lost` when its session has ended, and the trace with it.
        """
        session_id = self._zk.session_id
        try:
            now, (found,) = await self._nodes.look_after_loss(trace)
        except zkwire.SessionExpiredError:
            raise lost from None
        if now != session_id:
            raise lost
        return found is not None

    # -- traces -----------------------------------------------------------------------------------------------------

    def _former_traces(self) -> list[str]:
        """Return the traces that the next put is to delete; those of former sessions went with them."""
        now = self._zk.session_id
        mine = [path for session_id, path in self._traces if session_id == now]
        self._traces = [(now, path) for path in mine[_TRACES_PER_PUT:]]
        return mine[:_TRACES_PER_PUT]

    def _leave_trace(self, trace: str) -> None:
        self._keep([trace])
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(_TRACES_KEPT, self._sweep)

    def _keep(self, traces: list[str]) -> None:
        self._traces += [(self._zk.session_id, path) for path in traces]

    def _discard(self, traces: list[str]) -> None:
        for path in traces:
            self._zk.discard(path)

    def _sweep(self) -> None:
        self._sweeper = None
        traces, self._traces = self._traces, []
        for session_id, path in traces:
            self._nodes.drop(path, session_id)


def _found(answer: object) -> Stat | None:
    """The Stat of a node, None if it is missing."""
    if isinstance(answer, Node):
        return answer.stat
    if isinstance(answer, BaseException) and not isinstance(answer, zkwire.NoNodeError):
        raise answer
    return None
