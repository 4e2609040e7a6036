"""The rule of certainty among a client, its server, a leader that expires sessions, and a second leader.

Time is discrete, in quarters of a tick.  Each of the four streams between client, server and leader keeps its order,
and what is in it may wait for ever.  The leader pings its server each half tick, without fail; the server notes that it
has heard of the session, and sends its notes in answer to a ping.  A second leader may be elected at any moment: it
gives the session a whole timeout, and the first one goes on for ever, but commits no write.  The client may move to
another server, which follows either of them.

Bytes on the way between client and server only make the client less certain: it counts from when a request was sent,
and begins the next one when the answer is there.  So they arrive at once, unless `slow_client` is set.

Whatever is not delivered may be delayed for ever, so the leader may expire the session at its present deadline.  Never
may the client be certain beyond that.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from tests.model.search import Broken, Step, search
from zkwire.wire.certainty import AckLevel, Certainty

TICK: Final = 4
TIMEOUT: Final = 2 * TICK  # the shortest that a server grants
_HALF_TICK: Final = TICK // 2

HANDSHAKE: Final = -1
PING, SYNC, WRITE = int(AckLevel.SERVER), int(AckLevel.LEADER), int(AckLevel.QUORUM)
_NAMES: Final = {HANDSHAKE: "the handshake", PING: "a ping", SYNC: "a sync", WRITE: "a write"}
# What travels between server and leader besides requests and their answers.
_LEADER_PING, _NOTES = 10, 11

Sent = tuple[int, int]  # a request and the moment at which it was sent


@dataclass(frozen=True)
class Times:
    """What is played.

    Arguments: `horizon`, the last moment at which anything happens; `requests`, how many the client sends; `phase`,
    when the leader pings first; `elections` and `moves`, how often; `in_buckets`, whether the leader rounds the end of
    a session up to a whole tick, as real ones do: without it a session ends as early as it ever may; `slow_client`,
    whether what travels between client and server takes its time.
    """

    horizon: int
    requests: int
    phase: int = 1
    elections: int = 0
    moves: int = 0
    in_buckets: bool = False
    slow_client: bool = False


class World(NamedTuple):
    """A state of everything.

    `certainty`, the number of the session's certainty; `is_greeted`, whether the handshake is answered; `proven`, how
    long the client has been certain by any connection; `there`, `up`, `down`, `back`, the streams between the client
    and the leader; `pending`, the requests that the server has not answered, with whether it could; `touched`, whether
    the server has heard of the session since its last notes; `deadline`, of the session at the leader that a quorum
    follows; `next_ping`, of the leader that the client's server follows; `is_second`, whether that is the second one;
    `is_deposed`, whether there is a second one; `has_ended`, whether the client's server knows of the session's end.
    """

    now: int
    certainty: int
    proven: float
    deadline: int
    next_ping: int
    requests: int
    elections: int
    moves: int
    is_greeted: bool = True
    there: tuple[Sent, ...] = ()
    pending: tuple[tuple[int, int, bool], ...] = ()
    touched: bool = False
    up: tuple[int, ...] = ()
    down: tuple[int, ...] = ()
    back: tuple[Sent, ...] = ()
    is_second: bool = False
    is_deposed: bool = False
    has_ended: bool = False


class Ensemble:
    """The rules of what may happen in `times`."""

    def __init__(self, times: Times) -> None:
        self._times = times
        # Both touch the session as a ping does.  Without a second leader a write proves all that a sync does, and more.
        self._kinds = (SYNC, WRITE) if times.moves or times.elections else (PING, WRITE)
        self._certainties: list[Certainty] = []
        self._numbers: dict[object, int] = {}
        self._reached: dict[tuple[int, int, int, int], int] = {}

    def explore(self, limit: int) -> int:
        """Visit all states and return their number.  Raises: AssertionError with the steps to a broken promise."""
        times = self._times
        new = Certainty()
        new.begun(0, 0, TIMEOUT)
        start = World(
            now=0,
            certainty=self._number(new),
            proven=new.until,
            deadline=self._kept_until(0),
            next_ping=times.phase,
            requests=times.requests,
            elections=times.elections,
            moves=times.moves,
        )
        return search(start, self._following, _described, limit)

    def _kept_until(self, now: int) -> int:
        until = now + TIMEOUT
        return (until // TICK + 1) * TICK if self._times.in_buckets else until

    def _following(self, world: World) -> Iterator[tuple[Step, World]]:
        """Yield every step that may be next, with the world after it.  Raises: Broken."""
        now = world.now
        if not (world.requests or world.moves or world.there or world.pending or world.back):
            return  # the client gets no answer any more
        if now == world.next_ping:
            # First of all at its moment: what comes before a ping at the same moment has come a quarter earlier.
            pinged = world._replace(down=(*world.down, _LEADER_PING), next_ping=now + _HALF_TICK)
            yield ("leader pings",), self._arrived(pinged)
            return
        if now < self._times.horizon:
            yield ("time",), self._later(world)
        if world.requests and world.is_greeted:
            for kind in self._kinds:
                sent = world._replace(there=(*world.there, (kind, now)), requests=world.requests - 1)
                yield ("send", kind), self._arrived(sent)
        if world.there:
            yield ("server takes", world.there[0][0]), self._taken(world)
        if world.down:
            yield ("server hears", world.down[0]), self._arrived(self._heard(world))
        if world.up:
            yield ("leader takes", world.up[0]), self._led(world)
        if world.back:
            yield ("client takes", world.back[0][0]), self._answered(world)
        if world.elections and not world.has_ended:
            elected = world._replace(elections=world.elections - 1, is_deposed=True, deadline=self._kept_until(now))
            yield ("elect",), elected
        if world.moves:
            yield ("move", 1), self._moved(world, is_second=False)
            if world.is_deposed:
                yield ("move", 2), self._moved(world, is_second=True)

    def _later(self, world: World) -> World:
        now = world.now + 1
        if world.has_ended or now < world.deadline:
            return world._replace(now=now)
        if world.is_deposed and not world.is_second:  # the former leader does not hear of it
            return world._replace(now=now, moves=0)
        # The end of the session reaches the server ahead of every later answer, so that nothing is answered any more.
        return world._replace(now=now, has_ended=True, up=(), requests=0, moves=0)

    def _arrived(self, world: World) -> World:
        """Deliver what is between client and server, unless that takes its time.

        Deliver also a ping for which the server has no notes: if it came later, there might be notes to send.
        """
        while not self._times.slow_client and (world.there or world.back):
            world = self._taken(world) if world.there else self._answered(world)
        while world.down and world.down[0] == _LEADER_PING and not world.touched:
            world = self._heard(world)
        return world

    def _taken(self, world: World) -> World:
        """The server takes a request of the client."""
        (kind, sent), there = world.there[0], world.there[1:]
        pending = (*world.pending, (kind, sent, kind == PING))
        up = world.up if kind == PING or world.has_ended else (*world.up, kind)
        return _flushed(world._replace(there=there, pending=pending, up=up, touched=True))

    def _heard(self, world: World) -> World:
        """The server takes what its leader has sent."""
        what, down = world.down[0], world.down[1:]
        if what == _LEADER_PING:
            up = (*world.up, _NOTES) if world.touched and not world.has_ended else world.up
            return world._replace(down=down, up=up, touched=False)
        pending = list(world.pending)
        place = next(place for place, (kind, _, is_done) in enumerate(pending) if kind == what and not is_done)
        pending[place] = (pending[place][0], pending[place][1], True)
        return _flushed(world._replace(down=down, pending=tuple(pending)))

    def _led(self, world: World) -> World:
        """The leader takes what its server has sent; after the end of the session nothing comes here."""
        what = world.up[0]
        world = world._replace(up=world.up[1:])
        if what in (_NOTES, HANDSHAKE):
            is_followed = world.is_second or not world.is_deposed
            world = world._replace(deadline=self._kept_until(world.now) if is_followed else world.deadline)
        if what == _NOTES:
            return world
        if what == WRITE and not world.is_second and world.is_deposed:
            return world  # no quorum commits it any more
        return world._replace(down=(*world.down, what))

    def _answered(self, world: World) -> World:
        """The client takes an answer."""
        (kind, sent), back = world.back[0], world.back[1:]
        certainty = self._after(world.certainty, kind, sent, world.now)
        proven = max(world.proven, self._certainties[certainty].until)
        after = world._replace(back=back, certainty=certainty, is_greeted=True, proven=proven)
        if after.proven > after.deadline:
            raise Broken(
                f"at {after.now} the client gets the answer to {_NAMES[kind]} of {sent} and is certain until "
                f"{after.proven:g}, but the leader may expire the session at {after.deadline}"
            )
        return after

    def _after(self, number: int, kind: int, sent: int, now: int) -> int:
        """Return the number of the certainty that `number` becomes by an answer; each is computed once."""
        reached = self._reached.get((number, kind, sent, now))
        if reached is None:
            certainty = copy.deepcopy(self._certainties[number])
            if kind == HANDSHAKE:
                certainty.resumed(sent, TIMEOUT)
            else:
                certainty.answered(sent, now, AckLevel(kind))
            reached = self._reached[number, kind, sent, now] = self._number(certainty)
        return reached

    def _moved(self, world: World, *, is_second: bool) -> World:
        """The client connects to another server.  What the former one has not delivered may wait for ever."""
        moved = world._replace(
            is_greeted=False,
            there=((HANDSHAKE, world.now),),
            pending=(),
            touched=False,
            up=(),
            down=(),
            back=(),
            next_ping=max(world.next_ping, world.now),
            is_second=is_second,
            moves=world.moves - 1,
        )
        return self._arrived(moved)

    def _number(self, certainty: Certainty) -> int:
        key = tuple(
            tuple(value) if name in ("_touches", "_waiting") else value for name, value in vars(certainty).items()
        )
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._certainties)
            self._certainties.append(certainty)
        return number


def _flushed(world: World) -> World:
    """The server answers what it can, in the order of the requests."""
    pending, back = world.pending, world.back
    while pending and pending[0][2]:
        back = (*back, pending[0][:2])
        pending = pending[1:]
    return world._replace(pending=pending, back=back)


def _described(step: Step) -> str:
    what, *more = step
    names = {**_NAMES, _LEADER_PING: "its leader's ping", _NOTES: "the notes of the session"}
    words = {
        "time": "a quarter of a tick passes",
        "send": "the client sends {0}",
        "leader pings": "the leader pings the server",
        "server takes": "the server takes {0}",
        "server hears": "the server hears {0}",
        "leader takes": "the leader takes {0}",
        "client takes": "the client gets the answer to {0}",
        "elect": "another leader is elected",
        "move": "the client moves to a server of leader {0}",
    }
    return words[str(what)].format(*(number if what == "move" else names[int(str(number))] for number in more))
