"""A local mirror of a node, of its children, or of a whole tree, that answers from memory.

Knows how a mirror is kept: one lasting watch, reads of what has changed, many at a time, and everything read again
when events may be missing.  What to read, and what has changed by it, is for mirror.py to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from copy import copy
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakSet

from recipes.cache.mirror import Answer, CacheChange, Mirror, Question, is_other
from recipes.common.arguments import checked_within
from zkwire import (
    Client,
    EventStream,
    GetChildren,
    GetData,
    NoAuthError,
    Node,
    NoNodeError,
    ProtocolError,
    Resync,
    ServerError,
    SessionExpiredError,
    SessionState,
    ZooKeeperError,
    validate_path,
)

# An answer to one request may have 64 MiB, and a node, unless the server is told otherwise, a little less than one.
_NODES_AT_A_TIME: Final = 60
# So many requests at a time that a large tree takes few round trips, and so few that other requests of the client
# do not wait for the whole of it.
_REQUESTS_AT_A_TIME: Final = 32

_CONNECTED: Final = (SessionState.CONNECTED, SessionState.READ_ONLY)


class ChangeStream:
    """The changes of a cache from the making of this on; made by `Cache.changes`.

    Iterate it in one task.  Leave by `break` as you like; who keeps it in a variable and has had enough calls `close`.
    """

    def __init__(self, cache: Cache, nodes: Iterable[str]) -> None:
        self._cache = cache
        # What the reader has seen of those nodes that are others by now: not more than it has seen, and there are.
        self._before: dict[str, Node | None] = dict.fromkeys(nodes)
        self._waiter: asyncio.Future[None] | None = None
        self._is_closed = False
        self._error: BaseException | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> CacheChange:
        if self._waiter is not None:
            raise RuntimeError(f"somebody waits for these changes of {self._cache.path} already")
        while not self._before:
            if self._error is not None:
                raise copy(self._error)
            if self._is_closed:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        path = next(iter(self._before))
        return CacheChange(path, self._before.pop(path), self._cache.get(path))

    def close(self) -> None:
        """End the iteration, at once."""
        self._before.clear()
        self.end(None)

    def deliver(self, changes: Sequence[CacheChange]) -> None:
        """Take note of changes; called by the cache."""
        if self._is_closed:
            return
        for change in changes:
            path, after = change.path, change.after
            seen = self._before.get(path, change.before)
            if after is None:
                self._before.pop(path, None)  # to the end: those below it go before
            if is_other(seen, after):
                self._before[path] = seen
            else:
                self._before.pop(path, None)
        self._wake()

    def end(self, error: BaseException | None) -> None:
        """Take note that no more changes will come; called by the cache."""
        self._is_closed = True
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Cache:
    """A mirror of a part of the tree, kept by one lasting watch; entered with `async with` once it is complete.

        async with Cache(zk, "/config") as cache:                  # all below /config
            node = cache.get("/config/limits")                     # Node(data, stat) or None, without waiting
            names = cache.children("/config")
            async for change in cache.changes(): ...               # change.type, .path, .before, .after

    Arguments: `path`, the uppermost node, which need not exist; `recursive`, whether all that is below it belongs to
    the mirror, or else its children only; `depth`, how many levels below it, instead: 0 for the node alone; `within`,
    how many seconds entering may take.
    Raises, at once: ValueError, TypeError.  When it is entered: TimeoutError; UnimplementedError by servers before 3.6,
    where `zk.data` and `zk.children` follow one node; NoAuthError when `path` may not be read; SessionError.
    Cancellation: of entering, and leaving: no task and no watch stays.
    Order: each node's states in the order of its changes, none older than one that was shown.  A node is shown only
    below one that is.  Between nodes no order is promised: of one transaction a part may be shown before the rest.

    It heals: after a reconnect, and in a new session, everything is read again and what was missed is told as changes.
    Until then what is known stays readable, and `is_current` is false.  Nodes that this client may not read are not in
    it.  `stat.aversion` is that of the last read, as a change of an ACL is told to nobody.
    """

    def __init__(
        self,
        zk: Client,
        path: str,
        recursive: bool = True,
        *,
        depth: int | None = None,
        within: float | None = None,
    ) -> None:
        if depth is not None and (isinstance(depth, bool) or not isinstance(depth, int)):
            raise TypeError(f"depth is a number of levels or None, not {depth!r}")
        if depth is not None and depth < 0:
            raise ValueError(f"depth is a number of levels from 0, not {depth!r}")
        if not recursive and depth is not None and depth > 1:
            raise ValueError(f"a cache that is not recursive has 1 level below its node at the most, not {depth}")
        self.path = validate_path(path)
        self._zk = zk
        self._mirror = Mirror(self.path, depth if recursive or depth is not None else 1)
        self._within = checked_within(within)
        self._streams: WeakSet[ChangeStream] = WeakSet()
        self._nodes_at_a_time = _NODES_AT_A_TIME
        self._is_in_doubt = False  # since the connection was lost, until the watch stands again
        self._session_id = 0  # in which the watch stood last
        self._ready: asyncio.Future[None] | None = None
        self._complete: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._task is not None:
            raise RuntimeError(f"the cache of {self.path} has been entered already: make another one")
        loop = asyncio.get_running_loop()
        self._complete = loop.create_future()
        self._task = loop.create_task(self._keep(), name=f"cache of {self.path}")
        try:
            async with asyncio.timeout(self._within):
                await asyncio.wait({self._complete, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if self._task.done():
                await self._task
        except TimeoutError:
            await self._stop()
            raise TimeoutError(f"the cache of {self.path} was not complete within {self._within} s") from None
        except BaseException:
            await self._stop()
            raise
        self._task.add_done_callback(self._kept)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()
        failure = None if self._task is None or self._task.cancelled() else self._task.exception()
        if error is None and failure is not None and not isinstance(failure, ZooKeeperError):
            raise failure  # a mistake of ours, which must not stay unseen

    # -- asking -------------------------------------------------------------------------------------------------------

    @property
    def is_current(self) -> bool:
        """Whether the mirror follows the server: what is missing is only what it has not yet had the time to tell.

        False while there is no connection, until all is read again, and once the cache is left or the session over.
        """
        is_read = self._mirror.is_complete and not self._is_in_doubt
        return is_read and not self._is_over and self._zk.state in _CONNECTED

    def get(self, path: str) -> Node | None:
        """Return the node's data and Stat, None if it is not in the mirror: it does not exist, or lies too deep.

        Raises: ValueError if it is neither the cache's node nor below it; TypeError.
        """
        return self._mirror.nodes.get(self._checked(path))

    def children(self, path: str) -> list[str] | None:
        """Return the names of the node's children, sorted; None if it is not in the mirror, or they are not.

        Raises: as `get`.
        """
        names = self._mirror.children(self._checked(path))
        return None if names is None else sorted(names)

    def changes(self, *, initial: bool = False) -> ChangeStream:
        """Return the changes from now on, to be iterated: `async for change in cache.changes()`.

        What `get` shows at the moment of this call is what the first change of a node leads away from.  Who reads
        slowly gets several changes of a node as one, the last state always, and those that lead back to where it was
        not at all; so no more is kept for it than a second mirror.
        Arguments: `initial`, whether to tell first the nodes that are there, as created.
        Raises, from the iteration: SessionExpiredError (only with `renew=False`) and SessionClosedError when the
        session is over, behind the last change.  It ends when the cache is left.
        Cancellation: of the wait for the next change loses none.
        Order: of the first change of each node; those above are created before, and deleted behind, those below.
        """
        self._check_entered()
        stream = ChangeStream(self, self._mirror.nodes if initial else ())
        self._streams.add(stream)
        if self._is_over:
            self._end(stream)
        return stream

    # -- keeping ------------------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Keep the mirror until cancelled, or until something is wrong for good."""
        async with self._zk.events(self.path, recursive=self._mirror.depth != 0) as events:
            self._session_id = self._zk.session_id
            await _first_of(self._listen(events), self._follow_states(), self._read())

    async def _listen(self, events: EventStream) -> None:
        async for event in events:
            if isinstance(event, Resync):
                self._is_in_doubt = False
                former, self._session_id = self._session_id, self._zk.session_id
                self._mirror.resync(is_new_session=self._session_id != former)
            else:
                self._tell(self._mirror.heard(event))
            self._wake()

    async def _follow_states(self) -> None:
        # A loss of the connection is always followed by a Resync, some turns of the loop later.
        states = self._zk.states()
        try:
            async for state in states:
                if state not in _CONNECTED:
                    self._is_in_doubt = True
        finally:
            states.close()

    async def _read(self) -> None:
        while True:
            if self._mirror.is_complete and not self._is_in_doubt:
                self._completed()
            if self._is_in_doubt or not self._mirror.is_wanting:
                self._ready = asyncio.get_running_loop().create_future()
                await self._ready
            else:
                await self._read_once()

    async def _read_once(self) -> None:
        """Ask for what is wanted, in several requests at a time, and take the answers in their order."""
        size = self._nodes_at_a_time
        asked = self._mirror.ask(size * _REQUESTS_AT_A_TIME)
        batches = [asked[at : at + size] for at in range(0, len(asked), size)]
        answers = await asyncio.gather(*map(self._ask, batches), return_exceptions=True)
        for batch, given in zip(batches, answers, strict=True):
            if not isinstance(given, BaseException):
                for question, answer in zip(batch, given, strict=True):
                    self._tell(self._mirror.answered(question, answer))
                continue
            self._mirror.give_up(batch)
            if isinstance(given, ProtocolError) and size > 1:
                self._nodes_at_a_time = max(1, size // 2)  # these nodes are larger than a server takes by default
            elif isinstance(given, SessionExpiredError):
                self._is_in_doubt = True  # either there will be a new session, and a Resync in it, or no more events
            else:
                raise given

    async def _ask(self, batch: Sequence[Question]) -> list[Answer]:
        reads: list[GetData | GetChildren] = []
        for path, lists in batch:
            reads += [GetData(path), GetChildren(path)] if lists else [GetData(path)]
        given = iter(await self._zk.get_many(reads))
        answers = [Answer(next(given), next(given) if question.lists else ()) for question in batch]
        for question, answer in zip(batch, answers, strict=True):
            if isinstance(answer.node, ServerError):
                self._check(question.path, answer.node)
        return answers

    def _check(self, path: str, error: ServerError) -> None:
        """Have the cache end by `error`, unless it only says that there is nothing for us at `path`."""
        if isinstance(error, NoNodeError):
            return
        is_complete = self._complete is not None and self._complete.done()
        if isinstance(error, NoAuthError) and (is_complete or path != self.path):
            return  # to have no right to anything at all, though, is a mistake to be told at once
        raise error

    def _completed(self) -> None:
        if self._complete is not None and not self._complete.done():
            self._complete.set_result(None)

    def _tell(self, changes: list[CacheChange]) -> None:
        if changes:
            for stream in list(self._streams):
                stream.deliver(changes)

    def _wake(self) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    # -- ends ---------------------------------------------------------------------------------------------------------

    @property
    def _is_over(self) -> bool:
        return self._task is None or self._task.done()

    async def _stop(self) -> None:
        task = self._task
        assert task is not None
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # it has been told, or nobody wants to know

    def _kept(self, task: asyncio.Task[None]) -> None:
        for stream in list(self._streams):
            self._end(stream)

    def _end(self, stream: ChangeStream) -> None:
        task = self._task
        assert task is not None
        error = None if task.cancelled() else task.exception()
        stream.end(error)

    def _check_entered(self) -> None:
        if self._complete is None or not self._complete.done():
            raise RuntimeError(f"enter the cache of {self.path} first: async with Cache(...) as cache")

    def _checked(self, path: str) -> str:
        self._check_entered()
        path = validate_path(path)
        if path != self.path and not path.startswith("/" if self.path == "/" else f"{self.path}/"):
            raise ValueError(f"{path} is not in the cache of {self.path}")
        return path


async def _first_of(*bodies: Coroutine[Any, Any, None]) -> None:
    """Run all until one fails, and raise that; the others are cancelled, and gone when this returns."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(body) for body in bodies]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for error in [task.exception() for task in tasks if not task.cancelled()]:
        if error is not None:
            raise error
