"""Election: of many candidates one leads, and when it goes the next one does.

Candidates stand in a waiting line; its first is the leader.  Knows what a candidate and an observer see of that.
What is theirs alone: a leader may change its data while it leads, and whoever observes watches one node only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

import zkwire
from recipes.lease import Lease, LockLostError
from recipes.line import Line
from recipes.locking import Hold, Locking
from zkwire import (
    ACL,
    OPEN_ACL,
    Client,
    GetData,
    NoNodeError,
    SessionExpiredError,
    SessionState,
    WatchEventType,
    WatchSet,
    validate_path,
)

T = TypeVar("T")

_NOTHING_YET: Final = object()

LATCH_PREFIX: Final = "latch-"  # of Curator's LeaderLatch, which can stand in the same election


class Term(Lease):
    """One term of leadership: a Lease, whose `token` is greater than that of every leader before.

    `async with term` cancels its body when the leadership is lost, and resigns at the end; entering a term that is over
    raises LockLostError or, when it was resigned, RuntimeError.
    """

    __slots__ = ("_hold", "_is_one_of_many")

    _hold: Hold[Term]
    _is_one_of_many: bool

    async def resign(self) -> None:
        """Let the next candidate lead; the same as `release`."""
        await self.release()

    async def set(self, data: bytes) -> None:
        """Replace the data that observers and `candidates` see, for this term (request: setData).

        Raises: LockLostError, RuntimeError after the term; NoNodeError when it is lost at that moment.
        Cancellation: it may have been replaced.
        """
        self.check()
        await self._zk.set(self.path, data)

    def begin(self, *, one_of_many: bool) -> Self:
        """Make `async with` ready; called by the election.  Its loss is no error to who has `one_of_many`."""
        self._hold = Hold(self._itself)
        self._is_one_of_many = one_of_many
        return self

    async def _itself(self) -> Term:
        self.check()
        return self

    async def __aenter__(self) -> Self:
        await self._hold.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            await self._hold.__aexit__(kind, error, trace)
        except LockLostError:
            if not self._is_one_of_many:
                raise
            return True
        return self._is_one_of_many and isinstance(error, LockLostError) and error.path == self.path


class Election(Locking[Term]):
    """An election: one leader in the whole cluster, followed by the candidate that has stood the longest.

        async with Election(zk, "/election", data=b"host-1").lead() as term:   # waits until it leads
            ...                                        # cancelled, and LockLostError raised, when it leads no more
        async for term in election.terms():            # again and again, until the loop is left
            async with term: ...
        async for data in election.observe(): ...      # who leads; None: nobody
        print(await election.candidates())

    Arguments: `path`, the election's node, made as a container when it is missing, with persistent parents; `data`,
    which tells observers who we are; `acl`, of every node that is made.
    Order: by tickets, given in the order in which creates reach the leader of the ensemble.  Every `lead` is a
    candidate of its own, also when tasks share this object, and stands behind those that were there before.

    What is promised: docs/waiting-line.md.  In short: who cannot be certain to lead any more is cancelled before
    another one begins; `term.token` guards a store even from a leader that does not notice.
    """

    _noun = "leadership of"

    def __init__(self, zk: Client, path: str, data: bytes = b"", *, acl: Sequence[ACL] = OPEN_ACL) -> None:
        super().__init__(zk, validate_path(path))
        if not isinstance(data, bytes):
            raise TypeError(f"the data of a candidate are bytes, not {data!r}")
        self._line = Line(zk, self.path, prefix=LATCH_PREFIX, data=data, acl=acl)

    def lead(self, *, within: float | None = None) -> Hold[Term]:
        """Return what `async with` enters: it stands as a candidate, waits until it leads, and resigns at the end.

        When the leadership is lost the body is cancelled and LockLostError raised in place of the cancellation.
        Without a body to cancel: `acquire`, or `try_acquire` to lead at once or not at all.
        Arguments: `within`, how many seconds to wait at the most until it leads; None: without bound.
        Raises, Cancellation: as `acquire`.
        """
        return self.hold(within=within)

    def terms(self) -> Terms:
        """Return one term after the other: a candidate that stands again whenever it has led.

            async for term in election.terms():
                async with term:
                    await lead_until_cancelled(term)

        The end of a term is no error here: when the leadership is lost the body is cancelled, and the loop stands
        again, in a new session if the old one has expired.  A body that comes to its end resigns, and stands again
        behind the others; leave the loop by `break` or `return` to stand no more.  What else the body raises goes
        through.
        """
        return Terms(self._zk, self._line)

    def observe(self) -> LeaderStream:
        """Return the data of whoever leads, now and after each change: `async for data in election.observe()`.

        Gives bytes, None while nobody leads.  Of changes in quick succession some may be left out, the last one never;
        a reconnect, or a new session after an expiry, is not noticed.  Two leaders running that have the same data are
        given one after the other.
        What is watched: the node of the leader alone, so that candidates that come and go wake no observer; the
        election's node only while there is no candidate.
        Raises, from the iteration: SessionExpiredError (only with `renew=False`), SessionClosedError; NoAuthError.
        Cancellation: of the wait for the next state removes the watch from the server; the iteration may be taken up
        again.  Leave a loop by `break` as you like; who keeps it in a variable closes it, by `close()` or `async with`.
        Order: of the changes.  Requests: getChildren and getData for each leader, getData for each change of its data.
        """
        return LeaderStream(self._zk, self.path)

    async def candidates(self) -> list[bytes]:
        """Return the data of all who stand, in their order: the first leads.

        Those that go while they are read are left out.  Requests: getChildren, and in one write a getData for each.
        """
        try:
            names = in_order(await self._zk.get_children(self.path))
        except NoNodeError:
            return []
        found = []
        for answer in await self._zk.pipeline([GetData(_child(self.path, name)) for name in names]):
            if isinstance(answer, NoNodeError):
                continue
            if isinstance(answer, BaseException):
                raise answer
            found.append(answer.data)
        return found

    async def _acquire(self) -> Term:
        return Term(self._zk, await self._line.stand()).begin(one_of_many=False)

    async def _try_acquire(self) -> Term | None:
        standing = await self._line.try_stand()
        return None if standing is None else Term(self._zk, standing).begin(one_of_many=False)


class Terms:
    """The terms of one candidate, one after the other; made by `Election.terms`.

    Asking for the next term resigns the one before, if that still lasts, and stands behind the others.
    Raises, from the iteration: as `Election.acquire`.  Cancellation: of the wait: no node stays.
    """

    def __init__(self, zk: Client, line: Line) -> None:
        self._zk = zk
        self._line = line
        self._term: Term | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Term:
        before, self._term = self._term, None
        if before is not None:
            await before.resign()
        if self._zk.state is SessionState.CLOSED:
            raise zkwire.SessionClosedError("the client is closed: make a new one with zkwire.connect")
        self._term = Term(self._zk, await self._line.stand()).begin(one_of_many=True)
        return self._term


class LeaderStream:
    """The data of the leader, now and after each change, None while there is none; made by `Election.observe`.

    Sequence numbers only grow, so that whoever is the first of the line stays that until it goes: its node tells all.
    """

    _is_armed = False

    def __init__(self, zk: Client, path: str) -> None:
        self.path = path
        self._zk = zk
        self._loop = asyncio.get_running_loop()
        self._watches = WatchSet()  # of one watch at most: the one whose firing makes the last state an old one
        self._leader: str | None = None
        self._last: object = _NOTHING_YET
        self._arrival: asyncio.Future[None] | None = None
        self._is_closed = False
        self._is_iterated = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def aclose(self) -> None:
        """Do as `close`, for contextlib.aclosing."""
        self.close()

    def close(self) -> None:
        """Give the watch up, here and on the server, and end the iteration; nothing waits for an answer."""
        self._is_closed = True
        self._disarm()
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def __del__(self) -> None:
        # Left by `break`.  Whatever thread collects us, the watch is given up in the loop's own.
        if self._is_armed and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._watches.cancel)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes | None:
        if self._is_iterated:
            raise RuntimeError(f"somebody waits for the next leader of {self.path} already")
        self._is_iterated = True
        try:
            while not self._is_closed:
                try:
                    mark, data = await self._next()
                except SessionExpiredError:
                    if self._zk.state is SessionState.EXPIRED:
                        raise  # there will be no other session
                    continue  # others' nodes are the same in the session that follows
                if not self._is_closed and mark != self._last:
                    self._last = mark
                    return data
            raise StopAsyncIteration
        finally:
            self._is_iterated = False
            if self._is_closed:
                self._disarm()

    async def _next(self) -> tuple[object, bytes | None]:
        """Wait until somebody else may lead, or something else be told; return that and what tells it from others."""
        try:
            if self._is_armed:
                self._arrival = self._watches.arrival()
                await self._arrival
                if any(event.type is WatchEventType.DELETED for event in self._watches.take()):
                    self._leader = None
            return await self._look()
        except BaseException:
            self._disarm()
            raise

    async def _look(self) -> tuple[object, bytes | None]:
        """Return who leads now, and leave a watch for the change of that."""
        self._disarm()
        while not self._is_closed:
            if self._leader is not None:
                node = await self._asked(self._zk.get_and_watch(_child(self.path, self._leader), into=self._watches))
                if node is not None:
                    self._is_armed = True
                    return (self._leader, node[0].stat.mzxid), node[0].data
            self._leader = _first(await self._asked(self._zk.get_children(self.path)) or ())
            if self._leader is None and await self._is_nobody():
                self._is_armed = True
                break
        return None, None

    async def _is_nobody(self) -> bool:
        """Leave a watch for the first candidate and return True, unless there is one by now."""
        found = await self._asked(self._zk.get_children_and_watch(self.path, into=self._watches))
        if found is not None:
            self._leader = _first(found[0])
            is_nobody = self._leader is None
        else:
            is_nobody = (await self._zk.exists_and_watch(self.path, into=self._watches))[0] is None
        if not is_nobody:
            self._disarm()
        return is_nobody

    async def _asked(self, question: Awaitable[T]) -> T | None:
        """Return the answer, None if the node is absent."""
        try:
            return await question
        except NoNodeError as error:
            error.__traceback__ = None  # it holds us, in a circle, which would keep the watch of a stream left by break
            return None

    def _disarm(self) -> None:
        self._is_armed = False
        self._watches.cancel()
        self._watches = WatchSet()


def in_order(names: Iterable[str]) -> list[str]:
    """Return those of `names` that are candidates, in their order; numbers are compared across their overflow."""
    numbered = [(number, name) for name in names if (number := zkwire.sequence(name)) is not None]
    if not numbered:
        return []
    any_of_them = numbered[0][0]
    return [name for _, name in sorted((zkwire.sequence_distance(n, any_of_them), name) for n, name in numbered)]


def _first(names: Iterable[str]) -> str | None:
    return next(iter(in_order(names)), None)


def _child(path: str, name: str) -> str:
    return f"/{name}" if path == "/" else f"{path}/{name}"
