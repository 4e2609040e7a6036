"""The waiting line: one history of changes, and for each client a server that may lag behind it.

A ticket learns of the other ones only through the history.  So it is enough to follow one ticket that runs the real
code (see `waiting`) among tickets that come and leave at will, which is more than real ones do: if each ticket owns
only when it is entitled by the history, never too many own, and the order is kept.  A setup may also follow several
real tickets at once, which shows the same from the outside.  They are of a client each, or all of one client: then they
have one connection, and share what it has shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from recipes.line.known import KnownLine
from recipes.line.position import every_contender, permits_of
from recipes.line.ticket import READ_PREFIX, WRITE_PREFIX, is_writer
from recipes.line.waiting import Rules
from tests.model.search import Broken, Step, search
from tests.model.waiting import (
    CREATE,
    GONE,
    LIST,
    LIST_AND_STAT,
    PLAIN,
    REFUSED,
    SHARED,
    SYNC,
    Answer,
    Reached,
    Request,
    WaitingTable,
)
from zkwire import WatchEventType

LOCK: Final = "lock-"
TWO: Final = "permits-2-lease-"  # two permits of a semaphore at once
READ: Final = READ_PREFIX
WRITE: Final = WRITE_PREFIX
NUMBER: Final = ""  # the name of the node that holds the number of slots
UNDER_WAY: Final = ("apply", "execute", "answer", "event", "short cut", "go on")
_DELETED, _CHANGED = WatchEventType.DELETED, WatchEventType.CHANGED


@dataclass(frozen=True)
class Setup:
    """What is played.

    Arguments: `kinds`, of the tickets in the order of the line; `real`, the places of those that run the real code;
    `slots`; `sizes`, the numbers that `slots` takes later, if it changes; `first`, the number of the first ticket; how
    often each thing may happen: `reconnects` (to any server that the client may meet), `evictions` (an operator deletes
    the node of a real ticket), `touches` (an operator writes into any ticket), `downgrades` of a writer, `refusals` of
    a request for the moment; `aborts`, whether waiting real tickets are given up; `shares`, whether real tickets share
    looks, as they do when many of one client list the line; `together`, whether the real tickets are of one client;
    `settled`, whether all tickets have entered, and know where they stand, when it begins;
    `leaves`, the places of the tickets that are not real and leave, in this order; if it is empty, any may leave.
    """

    kinds: tuple[str, ...]
    real: tuple[int, ...]
    slots: int = 1
    sizes: tuple[int, ...] = ()
    first: int = 0
    reconnects: int = 0
    evictions: int = 0
    touches: int = 0
    downgrades: int = 0
    refusals: int = 0
    aborts: bool = False
    shares: bool = False
    together: bool = False
    settled: bool = False
    leaves: tuple[int, ...] = ()


class Moment(NamedTuple):
    """The history after one change: the change, and what there is then.

    `live` and `shared` are sets of bits; `resized`, how often the number of slots has changed.
    """

    what: str
    who: int
    live: int
    shared: int
    slots: int
    resized: int = 0


# "answer" or an event's name, the answer or the type, the server's moment, the request that is answered.
Item: TypeAlias = tuple[str, object, int, Request | None]


class Player(NamedTuple):
    """A client with real tickets, and its connection.

    `state`, see WaitingTable; `applied`, the moment that its server has reached; `answered`, the newest moment of
    its answers: no server that is behind it takes the session (events carry no zxid on older servers); `watches`,
    at the server; `requests`, not executed yet; `inbox`, on the way to the client.  Sets of bits of its tickets:
    `entitled`, those for which there was a moment at which the node was there and the ticket was entitled to own, by no
    older number than it has heard of; `informed`, those of which it was reported that the node is gone.
    """

    state: int
    applied: int
    answered: int
    watches: frozenset[str]
    requests: tuple[Request, ...]
    inbox: tuple[Item, ...]
    entitled: int = 0
    informed: int = 0


class World(NamedTuple):
    """A state of everything.

    `history`, from the moment on that some player's next server may be at; `created`, how many tickets; `players`, None
    for a client of which no ticket waits or owns; then what may still happen, see Setup; `resized`, how often the
    number has changed.
    """

    history: tuple[Moment, ...]
    created: int
    players: tuple[Player | None, ...]
    resized: int
    reconnects: int
    evictions: int
    touches: int
    downgrades: int
    refusals: int


class Line:
    """The rules of what may happen in `setup`, and what must never happen."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        count = len(setup.kinds)
        # The text of the names is in the opposite order of their numbers.
        self.names = [
            f"_c_{chr(ord('z') - place)}-{kind}{_signed(setup.first + place):010d}"
            for place, kind in enumerate(setup.kinds)
        ]
        self._more = {place: permits_of(name) - 1 for place, name in enumerate(self.names) if permits_of(name) > 1}
        self._place = {name: place for place, name in enumerate(self.names)}
        self._place[NUMBER] = count
        self._most_slots = max(setup.slots, *setup.sizes, 1)
        # The places of each client's tickets.
        self._clients = [setup.real] if setup.together else [(place,) for place in setup.real]
        self._client = {place: client for client, places in enumerate(self._clients) for place in places}
        known = KnownLine("/line")
        known.lists += 1000 * setup.shares  # so busy that its tickets share their looks
        self._tables = [
            WaitingTable([self.names[place] for place in places], [self._rules(place, known) for place in places])
            for places in self._clients
        ]
        self._before = [
            sum(1 << other for other in range(place) if self._blocks(place, other)) for place in range(count)
        ]
        self._readers = sum(1 << place for place in range(count) if setup.kinds[place] == READ)
        self._lists: dict[int, Answer] = {}

    def explore(self, limit: int) -> int:
        """Visit all states and return their number.  Raises: AssertionError with the steps to a broken promise."""
        return search(self._start(), self._following, self._described, limit)

    def _start(self) -> World:
        setup = self.setup
        world = World(
            (Moment("start", 0, 0, 0, setup.slots),),
            0,
            (None,) * len(self._clients),
            0,
            setup.reconnects,
            setup.evictions,
            setup.touches,
            setup.downgrades,
            setup.refusals,
        )
        while setup.settled and world.created < len(setup.kinds):
            world = self._entered(world)
            while under_way := [after for step, after in self._following(world) if step[0] in UNDER_WAY]:
                world = under_way[0]
        return world

    def _rules(self, place: int, known: KnownLine) -> Rules:
        own = self._more.get(place, 0)
        slots = (lambda node: int(node.data) - own) if self.setup.sizes or self._more else self.setup.slots
        if self.setup.kinds[place] == READ:
            return Rules(known, blocks=is_writer, ahead=0, ignores_shared=True)
        return Rules(known, blocks=every_contender, slots=slots)

    def _blocks(self, place: int, other: int) -> bool:
        return self.setup.kinds[place] != READ or self.setup.kinds[other] == WRITE

    # -- what must hold -----------------------------------------------------------------------------------------------

    def _blockers(self, place: int, moment: Moment) -> int:
        """Return the true blockers of a ticket at a moment, as bits."""
        blockers = moment.live & self._before[place]
        return blockers & ~moment.shared if self._readers >> place & 1 else blockers

    def _is_entitled(self, place: int, moment: Moment) -> bool:
        return self._taken(self._blockers(place, moment) | 1 << place) <= moment.slots

    def _taken(self, places: int) -> int:
        """Return how many slots some tickets take together."""
        return places.bit_count() + sum(more for place, more in self._more.items() if places >> place & 1)

    def _check_owner(self, world: World, place: int, player: Player) -> None:
        """Check that the ticket, which owns now, was entitled to it at some moment while its node was there.

        That moment may be past: its server may lag behind.  But then nothing that came later can have made another
        ticket entitled beside it, except for what an operator does, which the ticket is going to hear.
        """
        if not player.entitled >> place & 1:
            raise Broken(f"{self.names[place]} owns, and has never been entitled to it")
        if player.informed >> place & 1:
            raise Broken(f"{self.names[place]} owns, although it was reported that its node is gone")

    def _check_owners(self, world: World) -> None:
        """Check that the real tickets that own at this moment may own together."""
        now = world.history[-1]
        owners = [place for place in self.setup.real if self._owns(world, place) and now.live >> place & 1]
        alone = [place for place in owners if self.setup.kinds[place] == WRITE and not now.shared >> place & 1]
        most = len(self.setup.kinds) if self._readers and not alone else self._most_slots
        if self._taken(sum(1 << place for place in owners)) > most:
            raise Broken(f"{', '.join(self.names[place] for place in owners)} own at a time")

    def _check_known(self, world: World, place: int, player: Player, before: frozenset[str] | None) -> None:
        """Check that a ticket counts all blockers that its present server still shows, unless it hears of its end."""
        if before is not None and not player.informed >> place & 1:
            blockers = self._blockers(place, world.history[player.applied])
            missing = blockers & ~sum(1 << self._place[name] for name in before)
            if missing:
                raise Broken(f"{self.names[place]} does not count {self._named(missing)}, which its server still shows")

    def _owns(self, world: World, place: int) -> bool:
        player = world.players[self._client[place]]
        return player is not None and self._tables[self._client[place]].owns(player.state, self._number(place))

    def _number(self, place: int) -> int:
        """Return the number of a ticket among those of its client."""
        return self._clients[self._client[place]].index(place)

    def _check_rest(self, world: World, place: int) -> None:
        """Check that a ticket for which nothing is under way does not wait in vain."""
        now = world.history[-1]
        if not now.live >> place & 1:
            raise Broken(f"{self.names[place]} waits, and will never hear that its node is gone")
        if self._is_entitled(place, now):
            raise Broken(f"{self.names[place]} waits for ever: {self._named(now.live)} are there")

    def _check_woken(self, place: int, departure: Moment, now: Moment) -> None:
        """Check that the departure wakes the ticket because the ticket is among the next ones.

        So at most slots + 1 tickets are woken; of readers those that wait for no writer behind it.  A server that lags
        behind shows tickets that are gone by now: those do not count.
        """
        between = (self._blockers(place, departure) & now.live) >> departure.who + 1
        allowed = 1 if self._readers >> place & 1 else self._most_slots + 1
        if between.bit_count() >= allowed:
            raise Broken(f"{self.names[departure.who]} has left and wakes {self.names[place]}, which is not next")

    # -- what may happen ----------------------------------------------------------------------------------------------

    def _following(self, world: World) -> Iterator[tuple[Step, World]]:
        """Yield every step that may be next, with the world after it.  Raises: Broken."""
        yield from self._changes(world)
        for client, player in enumerate(world.players):
            if player is not None and self._tables[client].is_any_waiting(player.state):
                yield from self._steps(world, client, player)

    def _steps(self, world: World, client: int, player: Player) -> Iterator[tuple[Step, World]]:
        """Yield every step that a client may take, or its server."""
        table, end = self._tables[client], len(world.history) - 1
        waiting = [
            (number, place) for number, place in enumerate(self._clients[client]) if table.waits(player.state, number)
        ]
        if player.applied == end and not (player.requests or player.inbox or table.is_busy(player.state)):
            for _, place in waiting:
                self._check_rest(world, place)
        if player.applied < end:
            yield ("apply", client), self._with(world, client, self._applied(world.history, client, player))
        # A server answers a sync when it has caught up with the leader.
        if player.requests and (player.requests[0][0] != SYNC or player.applied == end):
            request = player.requests[0]
            answer = self._answer(request, world.history[player.applied])
            yield (
                ("execute", client, request, answer),
                self._with(world, client, self._executed(player, request, answer)),
            )
            if world.refusals and not table.is_entering(player.state, request[2]):
                refusing = world._replace(refusals=world.refusals - 1)
                refused = self._executed(player, request, REFUSED)
                yield ("refuse", client, request), self._with(refusing, client, refused)
        if player.inbox:
            yield from self._deliveries(world, client, player)
        for number, place in waiting:
            if table.can_go_on(player.state, number):
                yield ("go on", place), self._moved(world, client, player, table.go_on(player.state, number))
        # That the answer to a create is lost is another test's affair.
        if world.reconnects and not any(asked is not None and asked[0] == CREATE for *_, asked in player.inbox):
            for where in range(player.answered, end + 1):
                yield ("reconnect", client, end - where), self._reconnected(world, client, player, where)

    def _changes(self, world: World) -> Iterator[tuple[Step, World]]:
        """Yield the changes of the history that others may make, and the operator."""
        setup, now, created = self.setup, world.history[-1], world.created
        if created < len(setup.kinds):
            if self._may_enter(world, created):
                yield ("enter", created), self._entered(world)
            if created <= setup.real[0]:
                return  # a ticket that leaves before the first real one comes makes a setup with one ticket less
        if world.resized < len(setup.sizes):
            size = setup.sizes[world.resized]
            yield ("resize", size), self._changed(world, "resize", len(setup.kinds), resized=world.resized + 1)
        for place in range(created):
            if not now.live >> place & 1:
                continue
            if place not in setup.real:
                if not setup.leaves or place == next((each for each in setup.leaves if now.live >> each & 1), None):
                    yield ("leave", place), self._changed(world, "delete", place)
            elif self._is_there(world, place):
                owns = self._owns(world, place)
                if (owns or setup.aborts) and len(setup.real) > 1:
                    yield ("leave", place), self._changed(self._ended(world, place), "delete", place)
                if world.evictions and not owns:
                    evictions = world.evictions - 1
                    yield ("evict", place), self._changed(world, "delete", place, evictions=evictions)
            if world.touches:
                yield ("touch", place), self._changed(world, "touch", place, touches=world.touches - 1)
            if world.downgrades and self._may_downgrade(world, place):
                downgrades = world.downgrades - 1
                yield ("downgrade", place), self._changed(world, "downgrade", place, downgrades=downgrades)

    def _may_enter(self, world: World, place: int) -> bool:
        """Return whether a ticket may be created now.

        A client's create goes behind its other requests.  As what these show depends on their server only, it is enough
        to play that they are executed before.
        """
        if place not in self.setup.real:
            return True
        player = world.players[self._client[place]]
        return player is None or not player.requests

    def _is_there(self, world: World, place: int) -> bool:
        """Return whether a real ticket waits or owns."""
        client = self._client[place]
        player = world.players[client]
        return player is not None and (
            self._owns(world, place) or self._tables[client].waits(player.state, self._number(place))
        )

    def _ended(self, world: World, place: int) -> World:
        """Return the world in which a real ticket is released, or its wait is cancelled."""
        client = self._client[place]
        player = world.players[client]
        assert player is not None
        return self._moved(world, client, player, self._tables[client].end(player.state, self._number(place)))

    def _may_downgrade(self, world: World, place: int) -> bool:
        now = world.history[-1]
        if self.setup.kinds[place] != WRITE or now.shared >> place & 1:
            return False
        return self._owns(world, place) if place in self.setup.real else self._is_entitled(place, now)

    def _changed(self, world: World, what: str, who: int, **spent: int) -> World:
        now = world.history[-1]
        bit = 1 << who
        after = Moment(
            what,
            who,
            now.live & ~bit if what == "delete" else now.live | bit if what == "create" else now.live,
            now.shared | bit if what == "downgrade" else now.shared,
            self.setup.sizes[world.resized] if what == "resize" else now.slots,
            spent.get("resized", now.resized),
        )
        entitled = sum(
            1 << place for place in self.setup.real if after.live >> place & 1 and self._is_entitled(place, after)
        )
        players = tuple(
            None if player is None else player._replace(entitled=player.entitled | entitled & self._bits(client))
            for client, player in enumerate(world.players)
        )
        return self._shortened(world._replace(history=(*world.history, after), players=players, **spent))

    def _bits(self, client: int) -> int:
        return sum(1 << place for place in self._clients[client])

    def _entered(self, world: World) -> World:
        place = world.created
        after = self._changed(world, "create", place, created=place + 1)
        if place not in self.setup.real:
            return after
        client, end = self._client[place], len(after.history) - 1
        table, player = self._tables[client], after.players[client]
        if player is None:
            player = Player(0, end, end, frozenset(), (), ())
        while player.applied < end:
            player = self._applied(after.history, client, player)
        moved = table.enter(player.state, self._number(place))
        create, *reads = moved.requests
        player = player._replace(
            state=moved.state,
            requests=tuple(reads),
            inbox=(*player.inbox, ("answer", PLAIN, end, create)),
            entitled=player.entitled | self._is_entitled(place, after.history[-1]) << place,
        )
        if len(player.inbox) == 1:  # nothing can come in between
            state = table.answer(player.state, create, PLAIN).state
            player = player._replace(state=state, inbox=(), answered=end)
        return self._with(after, client, player)

    def _applied(self, history: tuple[Moment, ...], client: int, player: Player) -> Player:
        """The player's server takes in the next change, and reports it if it is watched."""
        applied = player.applied + 1
        moment = history[applied]
        name = NUMBER if moment.what == "resize" else self.names[moment.who]
        if moment.what == "create" or name not in player.watches:
            return player._replace(applied=applied)
        if moment.what == "delete":
            for number, place in enumerate(self._clients[client]):
                is_woken = len(self._clients[client]) == 1 or self._tables[client].is_registered(
                    player.state, number, name
                )
                if is_woken and moment.who != place and moment.live >> place & 1:
                    self._check_woken(place, moment, history[-1])
        kind = _DELETED if moment.what == "delete" else _CHANGED
        return player._replace(
            applied=applied, watches=player.watches - {name}, inbox=(*player.inbox, (name, kind, applied, None))
        )

    def _answer(self, request: Request, moment: Moment) -> Answer:
        what, name, _ = request
        if what == SYNC:
            return PLAIN
        if what in (LIST, LIST_AND_STAT):
            if moment.live not in self._lists:
                self._lists[moment.live] = tuple(
                    each for place, each in enumerate(self.names) if moment.live >> place & 1
                )
            names = self._lists[moment.live]
            return names if what == LIST else (moment.resized, *names)
        if name == NUMBER:
            return "number", moment.slots, moment.resized
        place = self._place[name]
        if not moment.live >> place & 1:
            return GONE
        return SHARED if moment.shared >> place & 1 else PLAIN

    def _executed(self, player: Player, request: Request, answer: Answer) -> Player:
        is_watched = "watch" in request[0] and answer not in (GONE, REFUSED)
        return player._replace(
            requests=player.requests[1:],
            watches=player.watches | {request[1]} if is_watched else player.watches,
            inbox=(*player.inbox, ("answer", answer, player.applied, request)),
        )

    def _deliveries(self, world: World, client: int, player: Player) -> Iterator[tuple[Step, World]]:
        table = self._tables[client]
        (name, what, at, asked), inbox = player.inbox[0], player.inbox[1:]
        player = player._replace(inbox=inbox)
        if name == NUMBER:
            # From now on the tickets that watch it know of this change: that they were entitled by an older number does
            # not count.
            since = world.history[at:]
            entitled = sum(
                1 << place
                for number, place in enumerate(self._clients[client])
                if player.entitled >> place & (not table.is_registered(player.state, number, NUMBER))
                or any(each.live >> place & 1 and self._is_entitled(place, each) for each in since)
            )
            player = player._replace(entitled=entitled)
        if asked is not None:
            assert isinstance(what, tuple)
            answered = player.answered if what == REFUSED else at
            moved = table.answer(player.state, asked, what)
            after = self._moved(world, client, player._replace(answered=answered), moved)
            yield ("answer", client, asked, what), after
            return
        for number, place in enumerate(self._clients[client]):
            if name == self.names[place] and what is _DELETED and table.is_registered(player.state, number, name):
                player = player._replace(informed=player.informed | 1 << place)
        assert isinstance(what, WatchEventType)
        moved = table.event(player.state, name, what)
        yield ("event", client, name, what), self._moved(world, client, player, moved)
        for number, place in enumerate(self._clients[client]):
            if what is _DELETED and table.has_short_cut(player.state, number, name):
                moved = table.short_cut(player.state, number, name)
                yield ("short cut", place, name), self._moved(world, client, player, moved)

    def _moved(self, world: World, client: int, player: Player, moved: Reached) -> World:
        """Return the world in which the tickets of a client have taken a step."""
        table = self._tables[client]
        owners = [
            place
            for number, place in enumerate(self._clients[client])
            if table.owns(moved.state, number) and not table.owns(player.state, number)
        ]
        player = player._replace(state=moved.state, requests=player.requests + moved.requests)
        for place in owners:
            self._check_owner(world, place, player)
        for number, place in enumerate(self._clients[client]):
            self._check_known(world, place, player, table.before(moved.state, number))
        after = self._with(world, client, player)
        if owners:
            self._check_owners(after)
        return after

    def _reconnected(self, world: World, client: int, player: Player, where: int) -> World:
        """Return the world in which the player is connected to a server that has reached the moment `where`.

        The server compares the watched nodes with the newest zxid in the client's answers, and reports all that has
        changed at once, in no particular order.  Requests without an answer are sent again, behind that.
        """
        table = self._tables[client]
        moment = world.history[where]
        newer = world.history[player.answered + 1 : where + 1]
        touched = {self.names[each.who] for each in newer if each.what in ("touch", "downgrade")}
        touched |= {NUMBER for each in newer if each.what == "resize"}
        registered = sorted(table.registered(player.state), reverse=where % 2 == 0)
        gone = [name for name in registered if name != NUMBER and not moment.live >> self._place[name] & 1]
        changed = [name for name in registered if name in touched and name not in gone]
        unanswered = (*(asked for *_, asked in player.inbox if asked is not None), *player.requests)
        after = player._replace(
            state=table.reconnect(player.state).state,
            applied=where,
            requests=tuple(each for each in unanswered if table.waits(player.state, each[2])),
            watches=frozenset(registered) - {*gone, *changed},
            inbox=tuple((name, _DELETED if name in gone else _CHANGED, where, None) for name in (*gone, *changed)),
        )
        return self._with(world._replace(reconnects=world.reconnects - 1), client, after)

    def _with(self, world: World, client: int, player: Player) -> World:
        table, state = self._tables[client], player.state
        kept: Player | None = player
        numbers = range(len(self._clients[client]))
        if not table.is_any_waiting(state):
            # What is on the way makes no difference any more.
            is_owner = any(table.owns(state, number) for number in numbers)
            is_over = world.created > self._clients[client][-1] and not is_owner
            kept = None if is_over else player._replace(watches=frozenset(), requests=(), inbox=())
        players = (*world.players[:client], kept, *world.players[client + 1 :])
        # As _replace, in a third of the time.
        return self._shortened(World(world.history, world.created, players, *world[3:]))

    def _shortened(self, world: World) -> World:
        """Forget the part of the history that no client can see any more."""
        seen = len(world.history) - 1
        for table, player in zip(self._tables, world.players, strict=True):
            if player is not None and player.answered < seen and table.is_any_waiting(player.state):
                seen = player.answered
        if not seen:
            return world
        first = world.history[seen]._replace(what="start", who=0)
        return world._replace(
            history=(first, *world.history[seen + 1 :]),
            players=tuple(None if player is None else _earlier(player, seen) for player in world.players),
        )

    # -- words --------------------------------------------------------------------------------------------------------

    def _named(self, places: int) -> str:
        return ", ".join(name for place, name in enumerate(self.names) if places >> place & 1) or "nothing"

    def _described(self, step: Step) -> str:
        what, who, *more = step
        if what == "resize":
            return f"the number of slots becomes {who}"
        assert isinstance(who, int)
        is_of_client = what in ("apply", "execute", "refuse", "answer", "event", "reconnect")
        name = " and ".join(self.names[place] for place in self._clients[who]) if is_of_client else self.names[who]
        words = {
            "enter": f"{name} is created",
            "leave": f"{name} leaves",
            "evict": f"an operator deletes {name}",
            "touch": f"an operator writes into {name}",
            "downgrade": f"{name} lets readers in",
            "apply": f"the server of {name} takes in the next change",
            "execute": "the server of {0} executes {1}: {2}",
            "refuse": "the server of {0} refuses {1} for the moment",
            "answer": "the client of {0} gets the answer to {1}: {2}",
            "event": "the client of {0} gets the event {2} of {1}",
            "short cut": "the client of {0} gets the deletion of {1}, alone in a read",
            "go on": f"the task of {name} goes on",
            "reconnect": "the client of {0} gets another server, which is {1} changes behind",
        }
        return words[str(what)].format(name, *(_in_words(each) for each in more))


def _in_words(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(str(each) for each in value if each != "") or "nothing"
    return value.name if isinstance(value, WatchEventType) else str(value) or "the number of slots"


def _signed(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31


def _earlier(player: Player, by: int) -> Player:
    return player._replace(
        applied=max(player.applied - by, 0),
        answered=max(player.answered - by, 0),
        inbox=tuple((name, what, at - by, asked) for name, what, at, asked in player.inbox),
    )
