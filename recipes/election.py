"""Election: of many candidates one leads, and when it goes the next one does.

Candidates stand in a waiting line; its first is the leader.  Knows what a candidate and an observer see of that.
What is theirs alone: a leader may change its data while it leads, and whoever observes watches one node only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Final, Self

import zkwire
from recipes.line import ticket_data
from recipes.line.lease import Lease, LockLostError
from recipes.line.line import Line
from recipes.line.locking import Hold, Locking
from zkwire import (
    ACL,
    OPEN_ACL,
    Client,
    GetData,
    NoNodeError,
    SessionState,
    ValueStream,
    WatchEvent,
    WatchEventType,
    join_path,
    validate_path,
)

LATCH_PREFIX: Final = "latch-"  # of Curator's LeaderLatch, which can stand in the same election


class Term(Lease):
    """One term of leadership: a Lease, whose `token` is greater than that of every leader before.

    `async with term` cancels its body when the leadership is lost, and resigns at the end; entering a term that is over
    raises LockLostError or, when it was resigned, RuntimeError.
    """

    __slots__ = ("_hold", "_is_entered", "_is_one_of_many")

    _hold: Hold[Term]
    _is_entered: bool
    _is_one_of_many: bool

    async def resign(self) -> None:
        """Let the next candidate lead; the same as `release`."""
        await self.release()

    async def set(self, data: bytes) -> None:
        """Replace the data that observers and `candidates` see, for this term (request: setData).

        Raises: LockLostError, RuntimeError after the term; NoNodeError when it is lost at that moment; ValueError for
        data that begins with a line by which a TimedLock promises to be done, or a writer lets readers in.
        Cancellation: it may have been replaced.
        """
        ticket_data.checked_plain(data)
        self.check()
        await self._zk.set(self.path, data)

    def begin(self, *, one_of_many: bool) -> Self:
        """Make `async with` ready; called by the election.  Its loss is no error to who has `one_of_many`."""
        self._hold = Hold(self._itself)
        self._is_entered = False
        self._is_one_of_many = one_of_many
        return self

    def give_up(self) -> None:
        """Resign without a wait, unless it is entered, whose end resigns; called when nobody will ask for another."""
        if not self.is_over and not self._is_entered:
            # The loop knows the task by the removal of the node, which is what it waits for.
            asyncio.get_running_loop().create_task(self.release())

    async def _itself(self) -> Term:
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
        behind the others; leave the loop by `break` or `return` to stand no more: a term that is not entered then is
        resigned.  What else the body raises goes through.
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
        for answer in await self._zk.pipeline([GetData(join_path(self.path, name)) for name in names]):
            if isinstance(answer, NoNodeError):
                continue
            if isinstance(answer, BaseException):
                raise answer
            found.append(answer.data)
        return found

    async def _acquire(self) -> Term:
        return Term(self._zk, await self._line.acquire()).begin(one_of_many=False)

    async def _try_acquire(self) -> Term | None:
        ticket = await self._line.try_acquire()
        return None if ticket is None else Term(self._zk, ticket).begin(one_of_many=False)


class Terms:
    """The terms of one candidate, one after the other; made by `Election.terms`.

    Asking for the next term resigns the one before, if that still lasts, and stands behind the others.  Leave a loop by
    `break` as you like: a term that nobody has entered is resigned.  Who keeps this in a variable closes it, by
    `aclose()` or by `async with`.
    Raises, from the iteration: as `Election.acquire`.  Cancellation: of the wait: no node stays.
    """

    def __init__(self, zk: Client, line: Line) -> None:
        self._zk = zk
        self._line = line
        self._loop = asyncio.get_running_loop()
        self._term: Term | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the iteration and resign the term that lasts, if there is one; return when its node is gone.

        Cancellation: it is resigned all the same.
        """
        self._is_closed = True
        term, self._term = self._term, None
        if term is not None:
            await term.resign()

    def __del__(self) -> None:
        # Left by `break`.  Whatever thread collects us, the term is given up in the loop's own.
        if self._term is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._term.give_up)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Term:
        before, self._term = self._term, None
        if before is not None:
            await before.resign()
        if self._is_closed:
            raise StopAsyncIteration
        if self._zk.state is SessionState.CLOSED:
            raise zkwire.SessionClosedError("the client is closed: make a new one with zkwire.connect")
        self._term = Term(self._zk, await self._line.acquire()).begin(one_of_many=True)
        if self._is_closed:  # meanwhile
            await self.aclose()
            raise StopAsyncIteration
        return self._term


class LeaderStream(ValueStream[bytes | None]):
    """The data of the leader, now and after each change, None while there is none; made by `Election.observe`.

    Sequence numbers only grow, so that whoever is the first of the line stays that until it goes: its node tells all.
    """

    _noun = "leader"

    def __init__(self, zk: Client, path: str) -> None:
        super().__init__(path, lambda: zk.state is SessionState.EXPIRED)
        self._zk = zk
        self._leader: str | None = None

    def _heard(self, event: WatchEvent) -> None:
        if event.type is WatchEventType.DELETED:
            self._leader = None

    async def _look(self) -> tuple[object, bytes | None]:
        """Return who leads now, and leave one watch for the change of that."""
        while not self._is_closed:
            if self._leader is not None:
                node = await self._found(self._zk.get_and_watch(join_path(self.path, self._leader), into=self._watches))
                if node is not None:
                    return (self._leader, node[0].stat.mzxid), node[0].data
            self._leader = _first(await self._found(self._zk.get_children(self.path)) or ())
            if self._leader is None and await self._is_nobody():
                break
        return None, None

    async def _is_nobody(self) -> bool:
        """Leave a watch for the first candidate and return True, unless there is one by now."""
        found = await self._found(self._zk.get_children_and_watch(self.path, into=self._watches))
        if found is not None:
            self._leader = _first(found[0])
            is_nobody = self._leader is None
        else:
            is_nobody = (await self._zk.exists_and_watch(self.path, into=self._watches))[0] is None
        if not is_nobody:
            self._disarm()
        return is_nobody


def in_order(names: Iterable[str]) -> list[str]:
    """Return those of `names` that are candidates, in their order; numbers are compared across their overflow."""
    numbered = [(number, name) for name in names if (number := zkwire.sequence(name)) is not None]
    if not numbered:
        return []
    any_of_them = numbered[0][0]
    return [name for _, name in sorted((zkwire.sequence_distance(n, any_of_them), name) for n, name in numbered)]


def _first(names: Iterable[str]) -> str | None:
    return next(iter(in_order(names)), None)
