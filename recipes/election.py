"""Election: one of many candidates leads, and the next one follows when it stops leading.

The candidates queue in a waiting line, and the first of them is the leader.  This module adds what a plain lock does
not have: data that the leader may change while it leads, one term after another, and observers, each of which watches
one node only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import ClassVar, Final, Self, TypeVar

from recipes.common.checks import checked_data, same_loop
from recipes.common.numbers import in_order, next_number
from recipes.common.retrying import read, result, until_answered
from recipes.common.streams import RecipeStream
from recipes.line.contenders import Contender, look
from recipes.line.known import line_of
from recipes.line.lease import Lease, LockLostError
from recipes.line.line import Line
from recipes.line.locking import Hold, LineLock
from recipes.line.ticket import ASKED, Ticket, VersionedWriter, checked_content, is_ticket
from zkwire import (
    ACL,
    Client,
    GetData,
    NoNodeError,
    ServerError,
    Stat,
    WatchEvent,
    WatchEventType,
    join_path,
    validate_path,
)

_log = logging.getLogger(__name__)

T = TypeVar("T")

LATCH_PREFIX: Final = "latch-"  # Curator's LeaderLatch has it, and can take part in the same election


class Term(Lease):
    """A term of leadership: a lease whose `token` is greater than those of all leaders before.

    ::

        async with term: ...       # cancelled when the leadership is lost; resigns at the end

    It has all that Lease has.  Entering a term that is over raises LockLostError or, if it was resigned, RuntimeError.
    """

    _noun: ClassVar = "leadership"

    __slots__ = ("_data", "_hold", "_is_entered", "_is_repeated", "_writer")

    def __init__(self, zk: Client, ticket: Ticket, data: bytes, *, is_repeated: bool = False) -> None:
        super().__init__(zk, ticket)
        self._data = data
        self._writer = VersionedWriter(zk, ticket)
        self._hold = Hold(self._checked)
        self._is_entered = False
        self._is_repeated = is_repeated  # by `Election.terms`: a loss is no error, because the caller gets another term
        _log.info("leads: %s, token %d", self.path, self.token)
        if ticket.is_asked:  # while it was a candidate
            self._on_asked()

    async def resign(self) -> None:
        """Let the next candidate lead; the same as `release`: a body that another task runs is stopped first."""
        await self.release()

    async def set(self, data: bytes) -> None:
        """Replace the data that observers and `candidates` see, for this term only (one setData).

        Raises:
            LockLostError: after the term, and when another client has written into the term's node.
            RuntimeError: if the term was resigned, also while the data was being written.
            ValueError: if the data is too large, or b"__REVOKE__", see `Contender.ask`.
            ServerError: if a server refuses the data for good.

        After one of the first two, the data may have been replaced or not.

        Cancellation:
            The data may have been replaced or not.

        Order:
            The data is written in the order of the calls.
        """
        self.check()
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"the data of a term must be bytes, not {data!r}")
        content, before = checked_content(bytes(data)), self._data
        expected: int | None = None

        def data_of(version: int) -> bytes | None:
            nonlocal expected
            expected, self._data = expected or version, content
            # A later version: the answer was lost, and our data is there, unless a request to give way took its place.
            return content if version == expected or self._ticket.is_asked else None

        try:
            await self._write(self._writer, data_of)
        except (ServerError, ValueError):  # ValueError: too large
            self._data = before
            raise
        self.check()

    def _on_asked(self) -> None:
        # The event loop has a strong reference to this task through the answer that it waits for.
        self._loop.create_task(self._write_again(self._writer, lambda _: self._data))

    def _on_end(self) -> None:
        if self._loss is None:
            _log.info("has resigned: %s", self.path)

    def _abandon(self) -> None:
        """Start to resign, unless the body is entered and resigns at its end; called when the caller dropped Terms."""
        if not self._is_entered:
            # The event loop has a strong reference to this task through the answer that it waits for.
            asyncio.get_running_loop().create_task(self.release())

    async def _checked(self) -> Term:
        self.check()
        return self

    async def __aenter__(self) -> Self:
        await self._hold.__aenter__()
        self._is_entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            await self._hold.__aexit__(kind, error, trace)
        except LockLostError:
            if not self._is_repeated:
                raise
            return True
        # The body itself may have raised the loss of this term, by `check`; the loss of another lock goes through.
        return self._is_repeated and _is_loss_of(self.path, error)


class Election(LineLock[Term]):
    """An election: one candidate leads in the whole cluster, and the one that has waited longest follows it.

    ::

        async with Election(zk, "/election", data=b"host-1").lead() as term:   # waits until it leads
            ...                                   # cancelled, and LockLostError raised, when the leadership is lost
        async for term in election.terms():       # leads again and again, until you leave the loop
            async with term: ...
        result = await election.run(work)         # work(term), again after each loss, until it has ended by itself
        async for data in election.observe(): ... # the data of the leader, None if there is none
        print(await election.leader(), await election.candidates())

    A leader that cannot be certain any more to lead is cancelled before another one begins; docs/waiting-line.md has
    the argument and its assumptions.  `term.token` protects a store even from a leader that does not notice.

    Args:
        path: The election's node, created as a container if it is missing, with persistent parents.
        data: Shown to observers while this candidate leads.
        acl: The same as in Lock.

    Order:
        By tickets, in the order in which creates reach the leader of the ensemble.  Every call of `lead` is a candidate
        of its own, also when tasks share this object, and queues after the present candidates.

    Requests:
        Those of Lock.
    """

    _noun = "leadership of"

    def __init__(self, zk: Client, path: str, data: bytes = b"", *, acl: Sequence[ACL] | None = None) -> None:
        super().__init__(zk, Line(zk, validate_path(path), prefix=LATCH_PREFIX, data=checked_data(data), acl=acl))

    def lead(self, *, within: float | None = None) -> Hold[Term]:
        """Return a context manager that becomes a candidate, waits until it leads, and resigns at the end.

        When the leadership is lost, or another task resigns, the body is cancelled, and LockLostError is raised in
        place of the cancellation.  A term that another task resigns lasts until the body has ended.
        Without a body, use `acquire`, or `try_acquire` to lead at once or not at all.  Errors and cancellation are
        those of `acquire`.

        Args:
            within: How many seconds to wait at most until it leads; None: without limit.
        """
        return self.hold(within=within)

    def terms(self) -> Terms:
        """Return one term after another: a candidate that queues again after each term.

        ::

            async for term in election.terms():
                async with term:
                    await lead_until_cancelled(term)

        The loss of a term is no error here: the body is cancelled, and the loop queues again, in a new session if the
        old one has expired.  Only a term that is lost before its body begins, because the process was stopped for that
        long between the two lines, raises LockLostError from `async with`.  A body that ends by itself resigns, and the
        loop queues again after the others.  All other errors of the body leave the loop.  To stop, leave the loop by
        `break` or `return`: a term that is not entered is then resigned.
        """
        return Terms(self._zk, self._line)

    async def run(self, work: Callable[[Term], Awaitable[T]]) -> T:
        """Lead, await `work(term)`, resign when it has ended, and return its result.

        When the leadership is lost, or another task resigns, the work is cancelled, and this is a candidate again: the
        work begins from its start in the next term, in a new session if the old one has expired.  So its result comes
        from one term, which lasted to the end of the work.

        Args:
            work: An async function; it is called once in each term.

        Raises:
            TypeError: if `work` cannot be called, such as a coroutine.
            Exception: whatever the work raises, but the loss of its own term; and the errors of `acquire`.

        Cancellation:
            Of the work, which may clean up; the leadership is resigned when it has ended.

        Order:
            After a loss it queues after the present candidates.

        Requests:
            Those of `lead`, for each term.
        """
        if not callable(work):
            raise TypeError(f"run calls a function with each term, for example an async def; this is none: {work!r}")
        while True:
            try:
                async with self.lead() as term:
                    return await work(term)
            except (LockLostError, ExceptionGroup) as error:
                if not _is_loss_of(term.path, error):
                    raise

    def observe(self) -> LeaderStream:
        """Return a stream of the leader's data, now and after each change: `async for data in election.observe()`.

        It gives bytes, or None while there is no leader.  It may skip some of several quick changes, but never the last
        one.  It shows neither reconnects nor new sessions.  Two successive leaders with equal data are given one after
        the other.  A request to give way, see `Contender.ask`, is left out; a leader that has not been shown counts as
        none until it has written its data again.  It watches only the node of the leader, so that other candidates
        never wake an observer; without candidates it watches the election's node.

        Raises:
            SessionExpiredError: from the iteration, only with `renew=False`.
            SessionClosedError: from the iteration, if the client is closed.
            NoAuthError: from the iteration, if a node must not be read.

        Cancellation:
            A cancelled wait removes its watch from the server; the iteration may be continued.  A loop may be left by
            `break`; a stream that is kept in a variable should be closed, by `close()` or `async with`.

        Order:
            The data comes in the order of the changes.

        Requests:
            getChildren2 and getData for each leader, getData for each change of its data.
        """
        return LeaderStream(self._zk, self.path)

    async def leader(self) -> Contender | None:
        """Return the first candidate, which leads, or None if there is none.

        This is one look: the leadership may have passed on when the result is read, so decide nothing by it.  Nodes
        that are not ephemeral are no candidates.  Errors are those of `acquire`, without TimeoutError.

        Cancellation:
            Harmless.

        Requests:
            getChildren2 and getData; if the first candidate leaves meanwhile, or is not ephemeral, those of
            `contenders`.
        """
        for most in (1, None):
            found = await until_answered(self._zk, partial(look, self._zk, self.path, most=most))
            if found:
                return found[0]
        return None

    async def candidates(self) -> list[bytes]:
        """Return the data of all candidates, in their order: the first one leads.

        Candidates that leave during the call are omitted, and so are nodes that are not ephemeral.

        Raises:
            NoAuthError: if the data of one of them must not be read.

        Requests:
            getChildren2, and in one write a getData for each candidate.
        """
        try:
            children, stat = await until_answered(self._zk, lambda: self._zk.get_children_and_stat(self.path))
        except NoNodeError:
            return []
        names = in_order(children, next_number(stat))
        found = await read(self._zk, *(GetData(join_path(self.path, name)) for name in names))
        return [node.data for node in map(result, found) if node is not None and is_ticket(node.stat)]

    def _lease(self, ticket: Ticket) -> Term:
        return Term(self._zk, ticket, self._line.data)


class Terms:
    """The terms of one candidate, one after another; made by `Election.terms`.

    Asking for the next term resigns the previous one, if it still lasts, and queues after the other candidates.  A
    loop may be left by `break`: a term that was not entered is resigned.  An iterator that is kept in a variable should
    be closed, by `aclose()` or `async with`.  The iteration raises what `Election.acquire` raises.

    Cancellation:
        A cancelled wait for the next term leaves no node.
    """

    def __init__(self, zk: Client, line: Line) -> None:
        self._zk = zk
        self._line = line
        self._loop = asyncio.get_running_loop()
        self._term: Term | None = None
        self._wait: asyncio.Timeout | None = None  # by which another task ends the wait for the next term
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the iteration, resign the present term if there is one, and return as its `release` does.

        Another task's wait for the next term ends as well.

        Cancellation:
            The term is resigned anyway.
        """
        self._is_closed = True
        wait, self._wait = self._wait, None
        if wait is not None:
            wait.reschedule(self._loop.time())
        term, self._term = self._term, None
        if term is not None:
            await term.resign()

    def __del__(self) -> None:
        # The loop was left by `break`.  The garbage collector may run in any thread; the term must be resigned in the
        # event loop's.
        if self._term is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._term._abandon)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Term:
        same_loop(self._loop, f"the election {self._line.path}")
        previous, self._term = self._term, None
        if previous is not None:
            await previous.resign()
        if self._is_closed:
            raise StopAsyncIteration
        try:
            async with asyncio.timeout(None) as self._wait:
                ticket = await self._line.acquire()
                self._term = Term(self._zk, ticket, self._line.data, is_repeated=True)
        except TimeoutError:  # by `aclose`
            raise StopAsyncIteration from None
        finally:
            self._wait = None
        if self._is_closed:  # by another task, in the moment in which the wait has ended
            await self.aclose()
            raise StopAsyncIteration
        return self._term


class LeaderStream(RecipeStream[bytes | None]):
    """A stream of the leader's data, now and after each change, None without a leader; made by `Election.observe`.

    It needs to watch the leader's node only: sequence numbers only grow, so the first candidate of the line stays the
    first until its node is deleted.
    """

    _noun = "leader"

    def __init__(self, zk: Client, path: str) -> None:
        super().__init__(zk, path)
        self._leader: str | None = None
        self._known = line_of(zk, path)

    def _heard(self, event: WatchEvent) -> None:
        if event.type is WatchEventType.DELETED:
            self._leader = None

    async def _look(self) -> tuple[object, bytes | None]:
        """Return the leader's data, and leave one watch that fires when it changes."""
        foreign: set[str] = set()
        while not self._is_closed:
            if self._leader is not None:
                node = await self._found(self._zk.get_and_watch(join_path(self.path, self._leader), into=self._watches))
                if node is not None and not is_ticket(node[0].stat):
                    self._known.found_foreign(self._leader)
                    foreign.add(self._leader)
                    self._disarm()
                elif node is not None and node[0].data == ASKED:
                    # Not the leader's data: it writes its own again.  Nor does the data of the leader before it count.
                    is_shown = isinstance(self._last_key, tuple) and self._last_key[0] == self._leader
                    return self._last_key if is_shown else None, None
                elif node is not None:
                    # The data cannot tell two states apart: the leader may write the same data again, and the next
                    # leader may have the same data.
                    return (self._leader, node[0].stat.mzxid), node[0].data
            listed = await self._found(self._zk.get_children_and_stat(self.path))
            candidates = _candidates(*listed, foreign) if listed is not None else []
            if foreign:
                found = await self._known.foreign_among(self._zk, candidates)
                foreign.update(found)
                del candidates[: len(found)]
            self._leader = next(iter(candidates), None)
            if self._leader is None and await self._has_no_candidate(foreign):
                break
        return None, None

    async def _has_no_candidate(self, foreign: set[str]) -> bool:
        """Leave a watch for the first candidate and return True; return False, without a watch, if there is one now."""
        found = await self._found(self._zk.get_children_stat_and_watch(self.path, into=self._watches))
        if found is not None:
            self._leader = next(iter(_candidates(found[0], found[1], foreign)), None)
            is_empty = self._leader is None
        else:
            is_empty = await self._is_missing()
        if not is_empty:
            self._disarm()
        return is_empty


def _candidates(names: Iterable[str], parent: Stat, foreign: set[str]) -> list[str]:
    return [name for name in in_order(names, next_number(parent)) if name not in foreign]


def _is_loss_of(path: str, error: BaseException | None) -> bool:
    """Return whether `error`, or each error that a TaskGroup has collected, is the loss of the lease of `path`."""
    if isinstance(error, ExceptionGroup):
        return all(_is_loss_of(path, each) for each in error.exceptions)
    return isinstance(error, LockLostError) and error.path == path  # the body may hold other locks
