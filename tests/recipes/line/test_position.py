"""The decisions of one ticket in the line, alone and against a model of ZooKeeper.

The model has a log of changes, for each ticket a server that may lag behind the log, watches, and replies and events in
the order of the session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zkwire
from recipes.line.position import Position, earlier, every_contender
from zkwire import sequence


def ticket(number: int, kind: str = "lock-") -> str:
    """Return the name that a server gives to a ticket; its counter is a signed integer of 32 bits."""
    signed = (number + 2**31) % 2**32 - 2**31
    return f"_c_0d3a-{kind}{signed:010d}"


def writers(name: str) -> bool:
    return "__WRIT__" in name


# -- the order of the names -------------------------------------------------------------------------------------------


def test_any_child_that_ends_in_a_sequence_number_counts() -> None:
    names = [
        "_c_9f-lock-0000000003",
        "0000000001",
        "lock-0000000000",
        "7f5f__lock__0000000002",  # kazoo's
        "x-0000000004",
    ]
    assert earlier("_c_11-lock-0000000004", names) == [
        "lock-0000000000",
        "0000000001",
        "7f5f__lock__0000000002",
        "_c_9f-lock-0000000003",
    ]


def test_names_without_a_sequence_number_are_left_out() -> None:
    names = [
        "config",
        "",
        "lock-",
        "lock-12",
        "lock-000000000x",
        "lock-0000000001.tmp",
        "lock-" + "\u0660" * 10,
        "9999999999",
    ]
    assert earlier("lock-0000000009", names) == []


def test_the_prefix_does_not_count() -> None:
    assert earlier("a-0000000002", ["z-0000000001", "a-0000000003", "b-0000000004"]) == ["z-0000000001"]


def test_a_name_without_a_sequence_number_is_refused() -> None:
    with pytest.raises(ValueError, match="'config' has no sequence number"):
        earlier("config", [])


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(-(2**31) + 1, 2**31 - 1), unique=True, max_size=8))
def test_order_is_kept_across_the_overflow(start: int, offsets: list[int]) -> None:
    """Pitfall 5: numbers are compared as numbers, signed, and across 2**31."""
    names = [ticket(start + offset) for offset in offsets if offset]
    assert earlier(ticket(start), reversed(names)) == [ticket(start + o) for o in sorted(offsets) if o < 0]


@given(st.integers(-(2**31), 2**31 - 1))
def test_every_number_of_the_counter_is_read_back(number: int) -> None:
    """Pitfall 5: the minus sign is not misread."""
    assert sequence(f"lock-{number:010d}") == number


@given(st.integers(-(10**9) + 1, 2**31 - 1) | st.just(-(2**31)))
def test_a_number_is_read_back_without_a_dash_in_the_prefix(number: int) -> None:
    """Pitfall 5; for the numbers that are left out, a minus sign before ten digits could be either."""
    assert sequence(f"lock_{number:010d}") == number


def test_across_the_overflow_the_line_still_moves() -> None:
    """Pitfall 5."""
    last, first, second = ticket(2**31 - 1), ticket(2**31), ticket(2**31 + 1)
    assert [zkwire.sequence(name) for name in (last, first, second)] == [2**31 - 1, -(2**31), -(2**31) + 1]
    position = Position(second)
    position.listed([second, first, last])
    assert not position.owns
    assert position.to_watch == [last, first]
    position.departed(last)
    position.departed(first)
    assert position.owns


# -- one position -----------------------------------------------------------------------------------------------------

A, B, C, D, E = map(ticket, range(5))


def test_a_ticket_without_a_list_does_not_own() -> None:
    assert not Position(A).owns
    assert not Position(A).is_armed
    assert Position(A).needs_list


def test_the_lowest_ticket_owns_and_watches_no_blocker() -> None:
    position = Position(A)
    position.listed([B, A, C])
    assert position.owns
    assert position.to_watch == []


def test_the_last_two_are_watched_and_one_is_enough_to_be_armed() -> None:
    position = Position(D)
    position.listed([A, B, C, D, E])
    assert position.to_watch == [B, C]
    position.watched(B)
    position.watched(C)
    assert not position.is_armed  # A and B may go before C does
    position.departed(B)
    assert position.needs_list  # it looks ahead: A may have left, too
    position.listed([C, D, E])
    assert position.is_armed
    assert not position.needs_list
    position.departed(C)
    assert position.owns


def test_a_ticket_is_not_armed_without_a_watch_on_its_last_blocker() -> None:
    position = Position(B)
    position.listed([A, B])
    assert not position.is_armed
    position.watched(A)
    assert position.is_armed
    position.unwatched(A)  # its data was changed
    assert not position.is_armed
    assert position.to_watch == [A]


def test_a_list_older_than_a_departure_brings_no_blocker_back() -> None:
    position = Position(C)
    position.listed([A, B, C])
    position.departed(B)
    position.listed([A, B, C])
    position.departed(A)
    assert position.owns


def test_departures_behind_the_ticket_change_nothing() -> None:
    position = Position(B)
    position.listed([A, B, C])
    position.departed(C)
    assert not position.owns
    assert not position.needs_list


def test_after_a_reconnect_a_ticket_owns_only_by_a_new_list() -> None:
    position = Position(B)
    position.listed([A, B])
    position.watched(A)
    position.watched(B)
    position.reconnected()
    position.departed(A)  # after a reconnect the order of the events says nothing
    assert not position.owns
    assert not position.is_armed
    assert not position.is_watched
    assert position.needs_list
    position.listed([B])
    assert position.owns


def test_a_ticket_whose_node_is_gone_never_owns() -> None:
    position = Position(A)
    position.listed([B])
    assert position.is_gone
    position.listed([A, B])
    assert not position.owns
    position = Position(B)
    position.listed([A, B])
    position.departed(B)
    position.departed(A)
    assert position.is_gone
    assert not position.owns


def test_a_departure_after_a_change_of_our_own_data_is_not_trusted() -> None:
    """The change uses up the watch on our own node, so that its deletion would go unnoticed."""
    position = Position(B)
    position.listed([A, B])
    position.watched(B)
    position.watched(A)
    assert position.is_armed
    position.unwatched(B)
    assert not position.is_armed
    position.departed(A)
    assert not position.owns
    assert position.needs_requests
    position.watched(B)  # it was read again, and exists
    assert position.owns


def test_readers_are_blocked_by_earlier_writers_only() -> None:
    """Pitfall 4: a reader does not count the writers behind it."""
    r0, w1, r2, w3 = (ticket(n, "__READ__" if n % 2 == 0 else "__WRIT__") for n in range(4))
    reader = Position(r2, blocks=writers, ahead=0)
    reader.listed([r0, w1, r2, w3])
    assert reader.to_watch == [w1]
    reader.departed(w1)
    assert reader.owns
    writer = Position(w3)
    writer.listed([r0, w1, r2, w3])
    assert writer.to_watch == [w1, r2]


def test_readers_do_not_look_ahead_and_list_when_the_last_writer_goes() -> None:
    w0, w1, r2 = (ticket(n, kind) for n, kind in enumerate(("__WRIT__", "__WRIT__", "__READ__")))
    reader = Position(r2, blocks=writers, ahead=0)
    reader.listed([w0, w1, r2])
    assert reader.to_watch == [w1]
    reader.watched(w1)
    assert not reader.is_armed
    reader.departed(w1)
    assert reader.needs_list  # w0 may be there still
    reader.listed([w0, r2])
    assert reader.to_watch == [w0]


def test_a_ticket_does_not_own_without_the_number_of_slots() -> None:
    position = Position(B, slots=None)
    position.listed([A, B])
    assert not position.owns
    assert position.needs_slots
    position.slots_read(2, is_watched=False)
    assert position.owns
    assert position.needs_slots  # it is not watched yet


def test_a_departure_after_a_change_of_the_number_counts_under_the_new_one() -> None:
    """Pitfall 21."""
    position = Position(C, slots=None)
    position.listed([A, B, C])
    position.slots_read(2)
    position.watched(A)
    position.watched(B)
    position.watched(C)
    assert position.is_armed
    assert not position.needs_requests
    position.slots_changed()
    position.departed(A)
    assert not position.owns
    assert not position.is_armed
    assert position.needs_requests
    position.slots_read(1)
    assert not position.owns
    position.slots_read(2)
    assert position.owns


def test_after_a_reconnect_the_number_of_slots_is_unknown() -> None:
    for slots in (1, None):
        position = Position(A, slots=slots)
        position.listed([A])
        position.slots_read(1)
        position.reconnected()
        position.listed([A])
        assert position.owns == (slots == 1)


# -- the model --------------------------------------------------------------------------------------------------------


SIZE, READ_SIZE, SYNC = "size", "size, without a watch", "sync"


@dataclass
class Contender:
    """One ticket with its session and its server, and the loop of WaitingTicket with every await taken apart.

    The server executes the requests one by one; replies and events are delivered one by one.
    """

    name: str
    position: Position
    applied: int  # how much of the log its server has seen
    requests: deque[str] = field(default_factory=deque)
    inbox: deque[tuple[str, Any, int]] = field(default_factory=deque)
    watches: set[str] = field(default_factory=set)  # at its server; SIZE stands for the number of slots
    table: set[str] = field(default_factory=set)  # at the client
    asked: list[str] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)
    rearmed: bool = False
    known: int = 0  # how far in the log the newest thing is that was delivered
    answered: int = 0  # the same, of answers only: the next server is not behind this (events carry no zxid)
    owns: bool = False
    over: bool = False

    def think(self) -> None:
        """Do what WaitingTicket does between two awaits."""
        if self.over or self.owns or len(self.answers) < len(self.asked):
            return
        for request, answer in zip(self.asked, self.answers, strict=True):
            if request == SYNC:
                self.position.synced()
            elif request == "list":
                self.position.listed(answer)
            elif request in (SIZE, READ_SIZE):
                self.position.slots_read(answer, is_watched=request == SIZE)
            elif answer:
                self.position.watched(request)
                if answer == "shared" and "__READ__" in self.name:
                    self.position.departed(request)
            else:
                self.position.departed(request)
        self.asked, self.answers = [], []
        for kind, name in self.events:
            if name == SIZE:
                self.position.slots_changed()
            elif kind == "departure":
                self.position.departed(name)
            else:
                self.position.unwatched(name)
        self.events = []
        if self.rearmed:
            self.rearmed = False
            self.watches.clear()
            self.table.clear()
            self.position.reconnected()
        if self.position.is_gone:
            self.over = True
        elif self.position.owns:
            self.owns = True
        elif self.position.needs_requests:
            if self.position.needs_sync:
                self.asked.append(SYNC)
            if not self.position.is_watched:
                self.asked.append(self.name)
            if self.position.needs_slots:
                self.asked.append(SIZE)
            self.asked += ["list"] if self.position.needs_list else self.position.to_watch
            self.requests.extend(self.asked)


Action = Callable[[], None]
T = TypeVar("T")

FROZEN: Final[dict[type, Callable[[Any], Any]]] = {list: tuple, deque: tuple, set: frozenset}


def state(thing: Any) -> dict[str, Any]:
    """Return the attributes of `thing`."""
    attributes: dict[str, Any] = vars(thing) if hasattr(thing, "__dict__") else thing.__getstate__()[1]
    return attributes


def forked(thing: T) -> T:
    """Return a copy with lists and sets of its own, but the same items: a tenth of the time of copy.deepcopy."""
    twin = object.__new__(type(thing))
    for name, value in state(thing).items():
        setattr(twin, name, value.copy() if type(value) in FROZEN else value)
    return twin


def hashable(state: dict[str, Any], *without: str) -> tuple[Any, ...]:
    """Return the values of `state` in a hashable form."""
    return tuple(
        [
            FROZEN[type(value)](value) if type(value) in FROZEN else value
            for name, value in state.items()
            if name not in without
        ]
    )


class World:
    """The log of creates and deletes, and the contenders in the line."""

    def __init__(
        self,
        kinds: list[str],
        *,
        slots: int = 1,
        start: int = 0,
        reconnects: int = 0,
        evictions: int = 0,
        downgrades: int = 0,
        touches: int = 0,
        sizes: tuple[int, ...] = (),
        lag: bool = True,
    ) -> None:
        self.kinds = kinds
        self.slots = slots
        self.start = start
        self.reconnects = reconnects
        self.evictions = evictions
        self.downgrades = downgrades
        self.touches = touches
        self.sizes = list(sizes)  # the values that the number of slots will take
        self.is_fixed = not sizes
        self.lag = lag
        self.log: list[tuple[str, str]] = []
        self.line: list[Contender] = []
        self.woken: dict[str, set[str]] = {}

    def blocks(self, contender: Contender) -> Callable[[str], bool]:
        return writers if "__READ__" in contender.name else every_contender

    def live(self, upto: int | None = None) -> list[str]:
        live: list[str] = []
        for what, name in self.log[:upto]:
            if what == "create":
                live.append(name)
            elif what == "delete":
                live.remove(name)
        return live

    def shared(self, upto: int | None = None) -> set[str]:
        """Return the writers that have let readers in."""
        return {name for what, name in self.log[:upto] if what == "share"}

    def size(self, upto: int | None = None) -> int:
        """Return the number of slots."""
        return ([self.slots] + [int(name) for what, name in self.log[:upto] if what == "size"])[-1]

    def blockers(self, contender: Contender, upto: int | None = None) -> list[str]:
        """Return the true blockers of `contender`."""
        blocks, shared = self.blocks(contender), self.shared(upto) if "__READ__" in contender.name else set()
        return [name for name in earlier(contender.name, self.live(upto)) if blocks(name) and name not in shared]

    def actions(self, *, departures: bool = True) -> Iterator[tuple[str, Action]]:
        """Yield what may happen next."""
        if len(self.line) < len(self.kinds):
            yield "enter", self.enter
        if self.sizes and departures:
            yield "resize", self.resize
        live = self.live()
        for contender in self.line:
            name = contender.name
            if contender.applied < len(self.log):
                yield f"apply {name}", partial(self.apply, contender)
            if contender.requests:
                yield f"execute {name}", partial(self.execute, contender)
            if contender.inbox:
                yield f"deliver {name}", partial(self.deliver, contender)
            if departures and name in live:
                yield f"depart {name}", partial(self.depart, contender)
                if self.downgrades and contender.owns and writers(name) and name not in self.shared():
                    yield f"downgrade {name}", partial(self.downgrade, contender)
                if self.evictions and not contender.owns:
                    yield f"evict {name}", partial(self.evict, contender)
                if self.touches and not contender.owns:
                    yield f"touch {name}", partial(self.touch, contender)
                if self.reconnects and not contender.owns and not contender.over:
                    for where in range(contender.answered, len(self.log) + 1) if self.lag else [len(self.log)]:
                        yield f"reconnect {name} {where}", partial(self.reconnect, contender, where)

    def enter(self) -> None:
        number = len(self.line)
        name = ticket(self.start + number, self.kinds[number])
        self.change("create", name)
        contender = Contender(name, Position(name), applied=len(self.log))
        slots = self.slots if self.is_fixed else None
        ahead = 0 if "__READ__" in name else 1
        contender.position = Position(name, blocks=self.blocks(contender), slots=slots, ahead=ahead)
        contender.known = contender.answered = len(self.log)
        contender.asked = ["list"] if self.is_fixed else ["list", READ_SIZE]
        contender.requests.extend(contender.asked)
        self.line.append(contender)

    def change(self, what: str, name: str) -> None:
        self.log.append((what, name))
        if not self.lag:
            for contender in self.line:
                self.apply(contender)

    def apply(self, contender: Contender) -> None:
        """The contender's server learns of the next change."""
        what, name = self.log[contender.applied]
        contender.applied += 1
        changed = SIZE if what == "size" else name
        if what != "create" and changed in contender.watches:
            contender.watches.discard(changed)
            contender.inbox.append(("departure" if what == "delete" else "change", changed, contender.applied))
            if what == "delete" and name != contender.name and not contender.over:
                self.woken.setdefault(name, set()).add(contender.name)
                self.check_woken(contender, name)

    def check_woken(self, contender: Contender, name: str) -> None:
        """Check that the departure lets a reader act: no blocker remains between it and the reader."""
        if "__READ__" in contender.name:
            between = [other for other in self.blockers(contender, contender.applied) if earlier(other, [name])]
            assert not between, f"{contender.name} is woken by {name}, and waits for {between}"

    def execute(self, contender: Contender) -> None:
        """The contender's server executes the next request."""
        request = contender.requests.popleft()
        while request == SYNC and contender.applied < len(self.log):
            self.apply(contender)
        live = self.live(contender.applied)
        answer: Any = request in live
        if request == "list":
            answer = tuple(sorted(live, key=hash))
        elif request in (SIZE, READ_SIZE):
            answer = self.size(contender.applied)
        elif answer and request in self.shared(contender.applied):
            answer = "shared"
        if request == SIZE or request in live:
            contender.watches.add(request)
        contender.inbox.append(("answer", answer, contender.applied))

    def deliver(self, contender: Contender) -> None:
        kind, what, applied = contender.inbox.popleft()
        contender.known = max(contender.known, applied)
        owned = contender.owns
        if kind == "departure" and what == contender.name and contender.owns:
            contender.owns, contender.over = False, True  # the lease is lost
        elif kind != "answer":
            contender.events.append((kind, what))
            contender.table.discard(what)
        else:
            asked = contender.asked[len(contender.answers)]
            if asked == SIZE or what is True or what == "shared":
                contender.table.add(asked)
            contender.answers.append(what)
            contender.answered = applied
        contender.think()
        if contender.owns and not owned:
            self.check(contender)

    def downgrade(self, contender: Contender) -> None:
        """The owner lets readers in."""
        self.downgrades -= 1
        self.change("share", contender.name)

    def resize(self) -> None:
        """The number of slots changes."""
        self.change("size", str(self.sizes.pop(0)))

    def depart(self, contender: Contender) -> None:
        """The owner releases, or a waiter is cancelled."""
        contender.owns = False
        contender.over = True
        contender.watches.clear()
        self.change("delete", contender.name)

    def evict(self, contender: Contender) -> None:
        """Another client deletes the node."""
        self.evictions -= 1
        self.change("delete", contender.name)

    def touch(self, contender: Contender) -> None:
        """Another client changes the node's data, which uses up the watches on it."""
        self.touches -= 1
        self.change("touch", contender.name)

    def reconnect(self, contender: Contender, applied: int) -> None:
        """Connect to a server that has seen at least as much as the client knows from answers.

        It may be behind an event that the client has seen, because events carry no zxid.

        Requests without an answer are sent again.  Changes of watched nodes are reported at once, ordered by name.
        """
        self.reconnects -= 1
        contender.requests = deque(contender.asked[len(contender.answers) :])
        contender.inbox.clear()
        contender.applied = applied
        contender.rearmed = bool(contender.table)
        live = {*self.live(applied), SIZE}
        newer = self.log[contender.answered : applied]
        changed = {SIZE if what == "size" else name for what, name in newer if what not in ("create", "delete")} & live
        contender.watches = contender.table & live - changed
        for name in sorted(contender.table - contender.watches, reverse=applied % 2 == 0):
            contender.inbox.append(("change" if name in live else "departure", name, applied))

    def check(self, contender: Contender) -> None:
        """Check that the owner was entitled at the newest moment that it knows, and that it is the only owner."""
        known = contender.known
        # A new ticket reads the number right behind the list, and watches its own node a little later.
        is_informed = self.is_fixed or contender.position.is_watched
        assert contender.name in self.live(known) or not is_informed, (
            "owns although it had been informed that its node was gone"
        )
        assert len(self.blockers(contender, known)) < self.size(known)
        live = self.live()
        owners = [other.name for other in self.line if other.owns and other.name in live]
        if any("__READ__" in kind for kind in self.kinds):
            assert len(owners) == 1 or not any(writers(name) for name in set(owners) - self.shared()), owners
        elif self.is_fixed:
            assert len(owners) <= self.slots, owners

    def settle(self) -> None:
        """Let everything under way come to its end, and check that no ticket waits that could own."""
        while True:
            actions = [act for label, act in self.actions(departures=False)]
            if not actions:
                break
            actions[0]()
        live = self.live()
        for contender in self.line:
            if contender.name in live:
                entitled = len(self.blockers(contender)) < self.size()
                # A ticket that owned when the number shrank still owns.
                assert contender.owns or not entitled, f"{contender.name} among {live}"
                assert entitled or not contender.owns or not self.is_fixed, f"{contender.name} among {live}"
            elif not contender.owns:
                assert contender.over, f"{contender.name} does not know that its node is gone"

    def key(self) -> object:
        """Return all that matters for what may follow."""
        woken = frozenset((name, frozenset(names)) for name, names in self.woken.items())
        line = [(hashable(vars(contender), "position"), hashable(state(contender.position))) for contender in self.line]
        return (*hashable(vars(self), "woken", "line"), woken, *line)

    def fork(self) -> World:
        """Return a copy of this world, which may go on in another way."""
        twin = forked(self)
        twin.woken = {name: set(names) for name, names in self.woken.items()}
        twin.line = [forked(contender) for contender in self.line]
        for contender in twin.line:
            contender.position = forked(contender.position)
        return twin

    def check_herd(self) -> None:
        """Check that each departure has woken at most two of the waiting tickets, or slots + 1."""
        live = set(self.live())
        assert all(len(names & live) <= self.slots + 1 for names in self.woken.values()), self.woken


def play(world: World, tape: list[int]) -> None:
    for choice in tape:
        # Departures are rare, so that lines are long.
        actions = list(world.actions(departures=choice % 6 == 0)) or list(world.actions())
        if not actions:
            break
        actions[choice // 6 % len(actions)][1]()
    world.settle()
    world.check_herd()
    while world.live():  # the line moves up to its last ticket
        owners = [contender for contender in world.line if contender.owns and contender.name in world.live()]
        world.depart(owners[0])
        world.settle()


TAPES = st.lists(st.integers(0, 6 * 720 - 1), min_size=30, max_size=150)
STARTS = st.sampled_from([0, 2**31 - 2, 2**32 - 3])


@settings(max_examples=150)
@given(TAPES, st.integers(1, 7), st.integers(1, 3), STARTS)
def test_model_of_a_line(tape: list[int], count: int, slots: int, start: int) -> None:
    """Pitfalls 5, 19 and 21: never more owners than slots, and no lost wake-up, in any order of events."""
    play(World(["lock-"] * count, slots=slots, start=start), tape)


@settings(max_examples=150)
@given(TAPES, st.integers(2, 6), st.integers(1, 2), st.integers(1, 4))
def test_model_of_a_line_with_reconnects(tape: list[int], count: int, slots: int, reconnects: int) -> None:
    """Pitfalls 1 and 2: a reconnect to a server that is behind neither stops the line nor makes two owners."""
    play(World(["lock-"] * count, slots=slots, reconnects=reconnects), tape)


@settings(max_examples=150)
@given(TAPES, st.integers(2, 6), st.integers(1, 2), st.integers(1, 3), st.integers(0, 2), st.integers(0, 2))
def test_model_of_a_line_with_evictions(
    tape: list[int], count: int, slots: int, evictions: int, reconnects: int, touches: int
) -> None:
    """A ticket that is deleted knows it before any departure can make it own, also when its data was changed."""
    play(World(["lock-"] * count, slots=slots, evictions=evictions, reconnects=reconnects, touches=touches), tape)


@settings(max_examples=150)
@given(
    TAPES,
    st.lists(st.sampled_from(["__READ__", "__WRIT__"]), min_size=1, max_size=7),
    st.integers(0, 2),
    st.integers(0, 3),
)
def test_model_of_readers_and_writers(tape: list[int], kinds: list[str], reconnects: int, downgrades: int) -> None:
    """Pitfalls 4 and 16: a writer is alone until it lets readers in, readers are together, and no ticket waits for a
    later one."""
    world = World(kinds, reconnects=reconnects, downgrades=downgrades)
    world.check_herd = lambda: None  # type: ignore[method-assign]  # a writer that leaves wakes all readers behind it
    play(world, tape)


@settings(max_examples=150)
@given(
    TAPES,
    st.integers(2, 7),
    st.integers(1, 3),
    st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple),
    st.integers(0, 2),
    st.integers(0, 1),
)
def test_model_of_a_semaphore_that_is_resized(
    tape: list[int], count: int, slots: int, sizes: tuple[int, ...], reconnects: int, evictions: int
) -> None:
    """Pitfall 21: a new owner is entitled by the number of that moment, and no ticket waits that could own."""
    world = World(["lease-"] * count, slots=slots, sizes=sizes, reconnects=reconnects, evictions=evictions)
    world.check_herd = lambda: None  # type: ignore[method-assign]  # how many are woken depends on the number
    play(world, tape)


def settle_one(world: World, contender: Contender) -> None:
    """Let everything under way for one contender come to its end."""
    while contender.applied < len(world.log) or contender.requests or contender.inbox:
        if contender.requests:
            world.execute(contender)
        elif contender.inbox:
            world.deliver(contender)
        else:
            world.apply(contender)


def test_a_shrink_and_a_departure_before_a_reconnect_to_a_server_that_is_behind() -> None:
    """Pitfall 77: the departure is remembered, so the number must not be the one from before the shrink."""
    world = World(["lease-"] * 3, slots=2, sizes=(1,), reconnects=1)
    for _ in range(3):
        world.enter()
        settle_one(world, world.line[-1])
    holder, leaving, waiter = world.line
    assert [each.owns for each in world.line] == [True, True, False]
    before = len(world.log)
    world.resize()
    world.depart(leaving)
    for _ in range(2):  # both events arrive; the new number is asked for, and the answer is lost
        world.apply(waiter)
        world.deliver(waiter)
    world.reconnect(waiter, before)
    settle_one(world, waiter)
    assert holder.owns
    assert not waiter.owns
    world.depart(holder)
    world.settle()
    assert waiter.owns


def explore(world: World, limit: int) -> int:
    """Play every order in which things may happen; return the number of states."""
    seen: set[object] = set()
    stack = [world]
    while stack:
        state = stack.pop()
        if not list(state.actions(departures=False)):
            state.settle()  # nothing is under way
            state.check_herd()
        for index, _ in enumerate(list(state.actions())):
            following = state.fork()
            next(islice(following.actions(), index, None))[1]()
            key = following.key()
            if key not in seen:
                seen.add(key)
                stack.append(following)
        assert len(seen) < limit, "more states than expected: bound the model"
    return len(seen)


@pytest.mark.parametrize(
    ("lag", "reconnects", "evictions", "touches"), [(True, 0, 0, 0), (False, 1, 0, 0), (False, 0, 1, 1)]
)
def test_every_interleaving_of_two(lag: bool, reconnects: int, evictions: int, touches: int) -> None:
    world = World(["lock-"] * 2, lag=lag, reconnects=reconnects, evictions=evictions, touches=touches)
    assert explore(world, 40_000) > 1_000


# -- blockers that must not be read -----------------------------------------------------------------------------------


def test_a_blocker_that_must_not_be_read_is_waited_for_by_lists() -> None:
    position = Position("lock-0000000009")
    position.listed(["lock-0000000001", "lock-0000000009"])
    position.watched("lock-0000000009")
    assert not position.watches_children
    position.unreadable("lock-0000000001")
    assert position.watches_children
    assert position.needs_list  # the former list has left no watch
    assert position.to_watch == []
    assert not position.is_armed
    position.listed(["lock-0000000001", "lock-0000000009"], is_watched=True)
    assert not position.needs_requests
    position.children_changed()
    assert position.needs_list
    position.listed(["lock-0000000009"], is_watched=True)
    assert position.owns
    position.children_changed()
    assert not position.needs_requests


def test_the_watch_on_the_children_is_lost_with_the_connection() -> None:
    position = Position("lock-0000000009")
    position.listed(["lock-0000000001", "lock-0000000009"])
    position.watched("lock-0000000009")
    position.unreadable("lock-0000000001")
    position.listed(["lock-0000000001", "lock-0000000009"], is_watched=True)
    position.reconnected()
    assert position.needs_list
    assert position.watches_children
    position.listed(["lock-0000000001", "lock-0000000009"])  # sent before the reconnect, without a watch
    assert position.needs_list


def test_a_semaphores_ticket_is_armed_only_when_all_its_blockers_are_watched() -> None:
    position = Position("lock-0000000009", slots=2)
    position.listed(["lock-0000000001", "lock-0000000002", "lock-0000000009"])
    position.watched("lock-0000000009")
    position.watched("lock-0000000002")
    position.unreadable("lock-0000000001")
    assert not position.is_armed
    position.departed("lock-0000000002")
    assert position.owns
