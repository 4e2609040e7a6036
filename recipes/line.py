"""The waiting line: how tickets stand before one another, who owns, and how a ticket changes hands without a read.

The upper half is pure: a `Position` is what one ticket knows of those before it, from one list of the children and
the departures since. The lower half, `Line`, asks the server and waits.  Locks of every kind, semaphores and
elections differ only in what blocks a ticket and in how many blockers it may have (`slots`).

Why no list is read at a hand-over: sequence numbers only grow, so that once a list has shown our own node, nobody can
ever come to stand before us, and those before us can only leave.  What the list showed minus those seen leaving is
therefore never less than the truth; when it falls below `slots`, we own.  docs/waiting-line.md has the whole
argument.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import zkwire
from zkwire import (
    ACL,
    OPEN_ACL,
    Client,
    Create,
    GetChildren,
    GetData,
    Sync,
    WatchEvent,
    WatchEventType,
    WatchSet,
)

LOCK_PREFIX: Final = "lock-"  # Curator's; go-zk and kezhuw's Rust client stand in the same line


def let_others_run() -> None:
    """Let whoever waits for this processor have it first.

    The departure that lets us look ahead, or go on after a release, has made somebody own at the same moment.  He may
    be on this machine, and is in more of a hurry than we are.
    """
    if hasattr(os, "sched_yield"):
        os.sched_yield()


def everyone(name: str) -> bool:
    """Every contender blocks."""
    return True


def earlier(name: str, names: Iterable[str]) -> list[str]:
    """Return the contenders among `names` that stand before `name`, in their order.

    Every child whose name ends in a sequence number is a contender, whatever stands in front of it.  Numbers are
    compared as numbers, across their overflow.
    """
    own = _number(name)
    before = []
    for other in names:
        number = zkwire.sequence(other)
        if number is not None and other != name:
            distance = zkwire.sequence_distance(number, own)
            if distance < 0:
                before.append((distance, other))
    return [other for _, other in sorted(before)]


def _number(name: str) -> int:
    number = zkwire.sequence(name)
    if number is None:
        raise ValueError(f"{name!r} has no sequence number: it is no ticket")
    return number


class Position:
    """What the ticket `name` knows of those before it.

    Arguments: `blocks`, which of the earlier contenders count; `slots`, how many fewer than which may be left for it
    to own.

    It watches its last `slots + 1` blockers: `slots` of them so that the departure that makes it own cannot go unseen,
    and one more to look ahead, so that it learns early that nobody else is left before those.
    """

    __slots__ = (
        "_before", "_blocks", "_departed", "_is_listed", "_slots", "_watched", "is_gone", "is_watched", "name",
        "needs_list",
    )  # fmt: skip

    def __init__(self, name: str, *, blocks: Callable[[str], bool] = everyone, slots: int = 1) -> None:
        self.name = name
        self.is_gone = False
        self.is_watched = False
        self.needs_list = True
        self._is_listed = False
        self._blocks = blocks
        self._slots = slots
        self._before: list[str] = []
        self._watched: set[str] = set()
        self._departed: set[str] = set()

    @property
    def owns(self) -> bool:
        """Whether fewer than `slots` blockers can be left.  A list that is behind the times can only show too many."""
        return self._is_listed and not self.is_gone and len(self._before) < self._slots

    @property
    def is_armed(self) -> bool:
        """Whether the next departure makes it own, and cannot go unseen."""
        return self._is_listed and len(self._before) == self._slots and self._watched.issuperset(self._before)

    @property
    def to_watch(self) -> list[str]:
        """The blockers that it should watch and does not yet, in their order."""
        return [name for name in self._before[-self._slots - 1 :] if name not in self._watched]

    def listed(self, names: Sequence[str]) -> None:
        """Take in a list of the children; it may be older than departures already seen."""
        self.is_gone = self.is_gone or self.name not in names
        blockers = [name for name in earlier(self.name, names) if self._blocks(name)]
        self._before = [name for name in blockers if name not in self._departed]
        self._is_listed = True
        self.needs_list = False

    def watched(self, name: str) -> None:
        """Take note that a watch stands on `name`, one of its blockers or itself."""
        if name == self.name:
            self.is_watched = True
        else:
            self._watched.add(name)

    def departed(self, name: str) -> None:
        """Take note that the node `name` is gone; names never come back."""
        if name == self.name:
            self.is_gone = True
            return
        self._departed.add(name)
        if name in self._before:
            self._before.remove(name)
            # Who left may have been the last of many: if there are some that nobody watches, look again.
            self.needs_list = self.needs_list or not self._watched.issuperset(self._before)

    def unwatched(self, name: str) -> None:
        """Take note that the watch on `name` was used up by a change of its data."""
        if name == self.name:
            self.is_watched = False
        self._watched.discard(name)

    def disarmed(self) -> None:
        """Take note of a reconnect: nothing is watched, and a list must be read before anything is owned.

        What a reconnect brings at once comes in no order that means anything, so that a blocker's departure
        might be told of before our own.
        """
        self.is_watched = False
        self._watched.clear()
        self._is_listed = False
        self.needs_list = True


class Place(NamedTuple):
    """A node in the line: its path and name, its fencing token (the zxid of its creation), and its owner's session."""

    path: str
    name: str
    token: int
    session_id: int


@dataclass(slots=True)
class Standing:
    """A place that owns, and the watches that tell of its loss; `is_watched`: whether its own node is among them."""

    place: Place
    watches: WatchSet
    is_watched: bool


class _EvictedError(Exception):
    """Our node is gone: somebody else has deleted it, or its session is over."""


class Line:
    """One line of tickets below a node of ZooKeeper.

    Arguments: `path`, whose children are the tickets, made as a container when it is missing; `prefix`, what stands
    between the unique id and the number in the names of our tickets; `blocks` and `slots`, see Position; `data` and
    `acl`, of our nodes.
    """

    def __init__(
        self,
        zk: Client,
        path: str,
        *,
        prefix: str = LOCK_PREFIX,
        blocks: Callable[[str], bool] = everyone,
        slots: int = 1,
        data: bytes = b"",
        acl: Sequence[ACL] = OPEN_ACL,
    ) -> None:
        self._zk = zk
        self.path = path
        self._prefix = prefix
        self._blocks = blocks
        self._slots = slots
        self._data = data
        self._acl = acl

    async def stand(self) -> Standing:
        """Enter the line and return when we own; after an expired session or an eviction, enter anew.

        Raises: what the client raises, but for an expired session that is renewed.
        Cancellation: the node is removed.
        """
        while True:
            try:
                place, names = await self._enter()
                standing = await self._wait(place, names)
            except zkwire.SessionExpiredError:
                if self._zk.state is zkwire.SessionState.EXPIRED:
                    raise  # there will be no other session
            except _EvictedError:
                pass
            else:
                return standing

    async def try_stand(self) -> Standing | None:
        """Enter the line; stay in it only if we own at once, otherwise leave it and return None.

        Raises, Cancellation: as `stand`.
        """
        place, names = await self._enter()
        position = self._position(place, names)
        if position.owns and self._zk.certain_for(place.session_id):
            return Standing(place, WatchSet(), False)
        await self._zk.discard(place.path)
        return None

    def leave(self, standing: Standing) -> None:
        """Give `standing` up; its node goes as soon as a server can be told."""
        self._zk.discard(standing.place.path)
        standing.watches.cancel()

    # -- entering ---------------------------------------------------------------------------------------------------

    async def _enter(self) -> tuple[Place, list[str]]:
        """Create our node and list the children, in one round trip; return our place and the list.

        The name begins with an id that nobody else has, so that a node whose create lost its answer is found again.
        """
        session_id = self._zk.session_id
        unique = f"_c_{self._zk.unique_id()}-{self._prefix}"
        make_parents = False
        while True:
            created, names = await self._create_and_list(unique, make_parents)
            if isinstance(created, zkwire.NoNodeError):
                make_parents = True
                continue
            if isinstance(created, zkwire.ConnectionLostError):
                found = await self._find(unique)
                if found is not None:
                    return found
                if self._zk.session_id != session_id:
                    return await self._enter()  # the session died meanwhile, and what it made with it
                continue
            if isinstance(created, zkwire.NodeExistsError):
                created.hint = "the sequence numbers below this parent are used up: it must be deleted and made anew"
            if isinstance(created, BaseException):
                raise created
            path, stat = created
            place = Place(path, path.rpartition("/")[2], stat.czxid, stat.ephemeral_owner)
            if isinstance(names, zkwire.NoNodeError):
                names = []  # repeated after a reconnect, and somebody has cleared the line meanwhile
            if isinstance(names, BaseException):
                self._zk.discard(path)
                raise names
            return place, names

    async def _create_and_list(self, unique: str, make_parents: bool) -> tuple[Any, Any]:
        """Send the create and the list in one write; return what each got, or the error that it got."""
        parents = [
            Create(at, container=at == self.path, acl=self._acl)
            for at in (zkwire.ancestors(self.path) if make_parents else ())
        ]
        *_, created, names = await self._zk.pipeline(
            [
                *parents,
                Create(self._child(unique), self._data, ephemeral=True, sequential=True, acl=self._acl),
                GetChildren(self.path),
            ]
        )
        if make_parents and isinstance(created, zkwire.NoNodeError):
            # The parents cannot be made like this: the chroot is missing, or we may not.  This makes them or tells why.
            await self._zk.ensure_path(self.path, container=True, acl=self._acl)
        return created, names

    async def _find(self, unique: str) -> tuple[Place, list[str]] | None:
        """Look for the node whose create lost its answer; None if it was never made.

        Cancellation: it is looked for all the same, and removed.
        """
        searching = asyncio.create_task(self._search(unique))
        try:
            return await asyncio.shield(searching)
        except asyncio.CancelledError:
            searching.add_done_callback(self._drop_found)
            raise

    def _drop_found(self, searching: asyncio.Task[tuple[Place, list[str]] | None]) -> None:
        if not searching.cancelled() and searching.exception() is None:
            found = searching.result()
            if found is not None:
                self._zk.discard(found[0].path)

    async def _search(self, unique: str) -> tuple[Place, list[str]] | None:
        """Look once.

        The server that answers now may be behind the one that carried it out: hence the sync, sent with the list.
        """
        _, names = await self._zk.pipeline([Sync(self.path), GetChildren(self.path)])
        if isinstance(names, zkwire.NoNodeError):
            return None
        if isinstance(names, BaseException):
            raise names
        for name in names:
            if name.startswith(unique):
                try:
                    _, stat = await self._zk.get(self._child(name))
                except zkwire.NoNodeError:
                    continue
                if stat.ephemeral_owner == self._zk.session_id:
                    return Place(self._child(name), name, stat.czxid, stat.ephemeral_owner), names
        return None

    # -- waiting ----------------------------------------------------------------------------------------------------

    async def _wait(self, place: Place, names: list[str]) -> Standing:
        """Return when `place` owns."""
        position = self._position(place, names)
        watches = WatchSet()
        try:
            while not (position.owns and self._zk.certain_for(place.session_id)):
                if position.is_gone or place.session_id != self._zk.session_id:
                    raise _EvictedError
                if position.owns:
                    # It was long since a server answered, so that the session may be over: ask before believing.
                    await self._zk.ping()
                elif position.needs_list or position.to_watch or not position.is_watched:
                    await self._look(position, watches)
                else:
                    await watches.arrival()
                for event in watches.take():
                    self._note(position, event)
                if watches.was_carried_over:
                    watches.cancel()
                    watches = WatchSet()
                    position.disarmed()
        except BaseException:
            self._zk.discard(place.path)
            watches.cancel()
            raise
        return Standing(place, watches, position.is_watched)

    async def _look(self, position: Position, watches: WatchSet) -> None:
        """Send, in one write, the watches that are missing and the list if one is due; take in what they say.

        The watch on our own node goes ahead of those on the blockers: requests are executed in order, so that if
        our node is gone we know it before any departure can make us own.
        """
        watched = [] if position.is_watched else [position.name]
        if not position.needs_list:
            watched += position.to_watch
        operations: list[GetData | GetChildren] = [GetData(self._child(name), into=watches) for name in watched]
        if position.needs_list:
            let_others_run()
            operations.append(GetChildren(self.path))
        answers = await self._zk.pipeline(operations)
        for name, answer in zip(watched, answers, strict=False):
            if isinstance(answer, zkwire.NoNodeError):
                position.departed(name)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                position.watched(name)
        if position.needs_list and len(answers) > len(watched):
            names = answers[-1]
            if isinstance(names, zkwire.NoNodeError):
                names = []
            if isinstance(names, BaseException):
                raise names
            position.listed(names)

    def _note(self, position: Position, event: WatchEvent) -> None:
        name = event.path.rpartition("/")[2]
        if event.type is WatchEventType.DELETED:
            position.departed(name)
        else:
            position.unwatched(name)

    # -- within -----------------------------------------------------------------------------------------------------

    def _position(self, place: Place, names: list[str]) -> Position:
        position = Position(place.name, blocks=self._blocks, slots=self._slots)
        position.listed(names)
        return position

    def _child(self, name: str) -> str:
        return f"/{name}" if self.path == "/" else f"{self.path}/{name}"
