"""A local mirror of a node, of its children, or of a whole tree, which answers from memory.

This module keeps one persistent watch, sends the reads, many at a time, and has everything read again when events may
have been missed.  What to read, and what has changed, is decided in mirror.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import partial
from typing import Final, Self
from weakref import WeakSet

import zkwire
from recipes.cache.mirror import Answer, CacheChange, Mirror, Question, differs
from recipes.common.checks import check_number, checked_client, checked_function, checked_within
from recipes.common.retrying import until_answered
from recipes.common.waiting import Bound, bounded
from zkwire import Client, GetChildren, GetData, Node, SessionState, ZooKeeperError, validate_path

# The answer to one request may have 64 MiB, and a node, with the server's default setting, a little less than one.
_NODES_PER_REQUEST: Final = 60
# Enough requests at a time that a large tree takes few round trips, and few enough that other requests of the client
# do not wait until all of it is read.
_REQUESTS_AT_A_TIME: Final = 32
_STATS_AT_A_TIME: Final = 256  # a multiRead reads data and names only, so each Stat is a request of its own

_CONNECTED: Final = (SessionState.CONNECTED, SessionState.READ_ONLY)


class ChangeStream:
    """The changes of a cache since this stream was made; made by `Cache.changes`.

    Iterate it in one task.  A loop may be left with `break` at any time.  If you keep the stream in a variable, call
    `close` when you are done.
    """

    def __init__(self, cache: Cache, initial: Iterable[str]) -> None:
        self._cache = cache
        # Each node that differs from what the reader has seen, with the state that the reader has seen (None: missing).
        # Several changes of a node become one, so there are at most as many entries as nodes that were seen or exist.
        self._pending: OrderedDict[str, Node | None] = OrderedDict.fromkeys(initial)
        self._waiter: asyncio.Future[None] | None = None
        self._is_closed = False
        self._error: BaseException | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> CacheChange:
        await asyncio.sleep(0)  # a reader that has many changes to read must not block the event loop
        if self._waiter is not None:
            raise RuntimeError(f"another task waits for these changes of {self._cache.path} already")
        while not self._pending:
            if self._error is not None:
                # Each reader would add its traceback to one object; but what `where` raised may refuse to be copied.
                raise copy(self._error) if isinstance(self._error, ZooKeeperError) else self._error
            if self._is_closed:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        path, seen = self._pending.popitem(last=False)
        return CacheChange(path, seen, self._cache.get(path))

    def close(self) -> None:
        """End the iteration at once; pending changes are dropped."""
        self._pending.clear()
        self._end(None)

    def _deliver(self, changes: Sequence[CacheChange]) -> None:
        """Add changes to the pending ones; called by the cache."""
        if self._is_closed:
            return
        for change in changes:
            path, after = change.path, change.after
            seen = self._pending.get(path, change.before)
            if after is None:
                # A deletion moves to the end, after the deletions of the nodes below, which come first in `changes`.
                self._pending.pop(path, None)
            if differs(seen, after):
                self._pending[path] = seen
            else:
                self._pending.pop(path, None)  # the node is again as the reader has seen it
        self._wake()

    def _end(self, error: BaseException | None) -> None:
        """End the iteration after the pending changes, with `error` if it is not None; called by the cache."""
        self._is_closed = True
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Cache:
    """A mirror of a part of the tree, kept up to date by one persistent watch; `async with` waits until it is complete.

    ::

        async with Cache(zk, "/config") as cache:                  # everything below /config
            node = cache.get("/config/limits")                     # Node(data, stat) or None, without waiting
            names = cache.children("/config")
            async for change in cache.changes(): ...               # change.type, .path, .before, .after

    After a reconnect, and in a new session, the cache reads everything again and reports what was missed as changes.
    Until then it answers with what it knows, and `is_current` is false.  Nodes that this client may not read are not
    shown.  `stat.aversion` is of the last read, because no event reports the change of an ACL.

    Args:
        path: The uppermost node, which need not exist.
        recursive: Whether everything below it belongs to the mirror, or only its children.
        depth: Instead of that, how many levels below it do: 0 for the node alone.
        where: Which nodes below `path` belong to it, None for all: a function that is given a path, as `get` takes it,
            and returns whether the node is kept.  One that is left out is not read, and nothing below it is asked for.
            The answer for a path must never change.  An error that it raises ends the cache: entering, `changes` and
            the end of the block raise it, or a RuntimeError from a ZooKeeperError or CancelledError.
        data: Whether the nodes' data is read.  If not, each `node.data` is b"", `stat.data_length` shows how much there
            is, and a change of the data is reported by the Stat alone.  Servers before 3.8.4 and 3.9.2 give the Stat
            also of nodes that may not be read.
        within: How many seconds entering may take, None for any time; 0 reads the nodes once, however long that takes,
            and not again when the connection is lost meanwhile.

    Raises:
        TimeoutError: on entering, if the cache was not complete in time.
        UnimplementedError: on entering, by servers before 3.6, where `zk.data` and `zk.children` follow a single node.
        NoAuthError: on entering, if `path` may not be read.
        SessionError: on entering, if the session is over.
        ValueError: at once, as TypeError, for an argument that cannot be right.

    Cancellation:
        Of entering, and leaving: no task and no watch stays.

    Order:
        The states of each node come in the order of its changes, and never an older one after a newer one.  A node is
        shown only if its parent is.  Between nodes there is no order: the changes of one transaction may be shown one
        after the other.
    """

    def __init__(
        self,
        zk: Client,
        path: str,
        recursive: bool = True,
        *,
        depth: int | None = None,
        where: Callable[[str], bool] | None = None,
        data: bool = True,
        within: float | None = None,
    ) -> None:
        if not isinstance(data, bool):
            raise TypeError(f"data says whether the nodes' data is read, True or False, not {data!r}")
        if depth is not None:
            check_number("depth is a number of levels from 0, or None", depth, 0)
        if not recursive and depth is not None and depth > 1:
            raise ValueError(f"a cache that is not recursive has at most 1 level below its node, not {depth}")
        self.path: str = validate_path(path)
        self._zk = checked_client(zk)
        depth = depth if recursive or depth is not None else 1
        self._mirror = Mirror(self.path, depth, checked_function("where", where))
        self._has_data = data
        self._within = checked_within(within)
        self._streams: WeakSet[ChangeStream] = WeakSet()
        self._nodes_per_request = _NODES_PER_REQUEST if data else 1
        self._requests_at_a_time: int = _REQUESTS_AT_A_TIME if data else _STATS_AT_A_TIME
        self._awaits_resync = False  # from the loss of the connection until the watch is set again
        self._session_id: int  # in which the watch was set last
        self._work = asyncio.Event()  # there may be something to read
        self._completed = asyncio.Event()  # the mirror was complete
        self._is_entered = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._task is not None:
            raise RuntimeError(f"the cache of {self.path} has been entered already: make another one")
        try:
            async with bounded(self._zk, self._within, f"the cache of {self.path} was not complete") as bound:
                self._task = asyncio.create_task(self._run(bound), name=f"cache of {self.path}")
                self._task.add_done_callback(self._task_done)
                await self._completed.wait()
            if self._task.done():
                await self._task
        except BaseException:
            await self._stop()
            raise
        self._is_entered = True
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, *trace: object) -> None:
        failure = await self._stop()
        if error is None and failure is not None and not isinstance(failure, zkwire.ZooKeeperError):
            raise failure  # a bug in the cache or in `where`, which must not stay unseen

    # -- asking -------------------------------------------------------------------------------------------------------

    @property
    def is_current(self) -> bool:
        """Whether the mirror follows the server, so that only changes on their way here can be missing.

        False while there is no connection, until everything is read again, and after the cache was left or the session
        has ended.
        """
        is_read = self._mirror.is_complete and not self._awaits_resync
        is_followed = self._task is not None and not self._task.done()
        return is_read and is_followed and self._zk.state in _CONNECTED

    def get(self, path: str) -> Node | None:
        """Return the node's data and Stat, None if it is not in the mirror: it does not exist, or lies too deep.

        Raises:
            ValueError: if `path` is neither the cache's node nor below it.
        """
        return self._mirror.nodes.get(self._checked(path))

    def children(self, path: str) -> list[str] | None:
        """Return the names of the node's children, sorted; None if the node or its children are not in the mirror.

        Raises:
            ValueError: if `path` is neither the cache's node nor below it.
        """
        names = self._mirror.children(self._checked(path))
        return None if names is None else sorted(names)

    def changes(self, *, initial: bool = False) -> ChangeStream:
        """Return a stream of the changes from now on: `async for change in cache.changes()`.

        The first change of a node starts from the state that `get` shows at the moment of this call.  A slow reader
        gets several changes of a node as one, always with the last state, and no change if the node is again as the
        reader has seen it.  So a stream never keeps more than a second mirror would.

        Args:
            initial: Whether the nodes that exist now are reported first, as created.

        Raises:
            SessionExpiredError: from the iteration, after the last change, if the client does not renew its session.
            SessionClosedError: from the iteration, after the last change, if the client is closed.

        The iteration ends when the cache is left.

        Cancellation:
            Of the wait for the next change: loses none.

        Order:
            By the first pending change of each node; a node is created before, and deleted after, those below it.
        """
        self._check_entered()
        stream = ChangeStream(self, self._mirror.nodes if initial else ())
        self._streams.add(stream)
        if self._task is not None and self._task.done():
            stream._end(_failure(self._task))
        return stream

    # -- following the server -----------------------------------------------------------------------------------------

    async def _run(self, bound: Bound) -> None:
        """Keep the mirror up to date until cancelled, or until an error that does not pass."""
        recursive = self._mirror.depth != 0
        entered = await until_answered(self._zk, lambda: self._zk.events(self.path, recursive=recursive).__aenter__())
        with contextlib.closing(entered) as events:
            self._session_id = self._zk.session_id
            try:
                async with asyncio.TaskGroup() as tasks:
                    for work in (self._follow_events(events), self._follow_states(bound), self._read()):
                        tasks.create_task(work)
            except BaseExceptionGroup as errors:
                first = errors.exceptions[0]
                raise first from first.__cause__

    async def _follow_events(self, events: zkwire.EventStream) -> None:
        while True:
            # A refusal is one of the watch, in a new session: the next attempt sets it again.
            event = await until_answered(self._zk, lambda: anext(events))
            if isinstance(event, zkwire.Resync):
                self._awaits_resync = False
                former, self._session_id = self._session_id, self._zk.session_id
                self._mirror.resync(is_new_session=self._session_id != former)
            else:
                self._deliver(self._mirror.handle_event(event))
            self._work.set()

    async def _follow_states(self, bound: Bound) -> None:
        # After each loss of the connection a Resync comes, some turns of the event loop after the reconnect.  In
        # between the state is CONNECTED again, but the mirror is not current yet.
        async with contextlib.aclosing(self._zk.states()) as states:
            async for state in states:
                if state not in _CONNECTED:
                    self._awaits_resync = True
                    if not self._completed.is_set():
                        bound.must_wait()

    async def _read(self) -> None:
        while True:
            if self._mirror.is_complete and not self._awaits_resync:
                self._completed.set()
            if self._awaits_resync or not self._mirror.has_questions:
                self._work.clear()
                await self._work.wait()
            else:
                await self._read_once()

    async def _read_once(self) -> None:
        """Send what is to be read, in several requests at a time, and give the mirror the answers in their order."""
        size = self._nodes_per_request
        questions = self._mirror.next_questions(size * self._requests_at_a_time)
        batches = [questions[at : at + size] for at in range(0, len(questions), size)]
        asks = [until_answered(self._zk, partial(self._ask, batch), renews=False) for batch in batches]
        outcomes = await asyncio.gather(*asks, return_exceptions=True)
        for batch, outcome in zip(batches, outcomes, strict=True):
            if not isinstance(outcome, BaseException):
                for question, answer in zip(batch, outcome, strict=True):
                    self._deliver(self._mirror.handle_answer(question, answer))
                continue
            self._mirror.give_up(batch)
            if isinstance(outcome, zkwire.ProtocolError) and size > 1:
                # The answer was too large: these nodes are larger than a server accepts by default.
                self._nodes_per_request = size // 2
            # After the end of a session the next read waits for the Resync, see _follow_states; without renewal the
            # events end instead.
            elif not isinstance(outcome, zkwire.SessionExpiredError):
                if isinstance(outcome, zkwire.ProtocolError):
                    [(outcome.path, _)] = batch  # the only one
                raise outcome

    async def _ask(self, batch: Sequence[Question]) -> list[Answer]:
        answers = await self._read_many(batch) if self._has_data else [await self._read_stat(*each) for each in batch]
        # A node that is missing, or that this client may not read, is not part of the mirror.  A cache that may not
        # even read its own node is probably a mistake: say so when it is entered.
        for question, (node, _) in zip(batch, answers, strict=True):
            if isinstance(node, zkwire.NoAuthError) and question.path == self.path and not self._completed.is_set():
                raise node
            if not isinstance(node, Node | zkwire.NoNodeError | zkwire.NoAuthError):
                raise node
        return answers

    async def _read_many(self, batch: Sequence[Question]) -> list[Answer]:
        reads: list[GetData | GetChildren] = []
        for path, lists in batch:
            reads += [GetData(path), GetChildren(path)] if lists else [GetData(path)]
        results = iter(await self._zk.get_many(reads))
        return [Answer(next(results), next(results) if question.lists else ()) for question in batch]

    async def _read_stat(self, path: str, lists: bool) -> Answer:
        try:
            if lists:
                names, stat = await self._zk.get_children_and_stat(path)
                return Answer(Node(b"", stat), names)
            found = await self._zk.exists(path)
            if found is None:
                raise zkwire.NoNodeError(zkwire.NoNodeError.code, path)
            return Answer(Node(b"", found))
        except (zkwire.NoNodeError, zkwire.NoAuthError) as error:
            return Answer(error)

    def _deliver(self, changes: list[CacheChange]) -> None:
        if changes:
            for stream in list(self._streams):
                stream._deliver(changes)

    # -- the end ------------------------------------------------------------------------------------------------------

    async def _stop(self) -> BaseException | None:
        """End the task; return its error, so that asyncio does not log it: the caller has it, or does not need it."""
        task = self._task
        assert task is not None
        task.cancel()
        await asyncio.wait({task})
        return _failure(task)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._completed.set()  # so that entering does not wait any longer
        for stream in list(self._streams):
            stream._end(_failure(task))

    def _check_entered(self) -> None:
        if not self._is_entered:
            raise RuntimeError(f"enter the cache of {self.path} first: async with Cache(...) as cache")

    def _checked(self, path: str) -> str:
        self._check_entered()
        path = validate_path(path)
        if path != self.path and not path.startswith("/" if self.path == "/" else f"{self.path}/"):
            raise ValueError(f"{path} is not in the cache of {self.path}")
        return path


def _failure(task: asyncio.Task[None]) -> BaseException | None:
    """Return the error with which `task` has ended; None if it was cancelled."""
    return None if task.cancelled() else task.exception()
