"""The waiting tickets of one client as a table: the code of `recipes.line.waiting` itself, run step by step
without a loop.

`WaitingTicket.wait` keeps all that it knows in the ticket, and nothing in local variables, except while requests are
under way.  So a state of a ticket is a copy of the object: to go on from it, a copy of the copy is made, a new
coroutine is run up to the await at which the first one stood, and gets what has arrived.  The tickets of a client are
copied together with what they share.  Each state and each of its steps is computed once.
"""

from __future__ import annotations

import asyncio
import operator
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias, cast
from unittest.mock import patch

import zkwire
from recipes.line import ticket_data, waiting
from recipes.line.known import CachedChildren
from recipes.line.position import ranked
from recipes.line.ticket import Ticket, TicketNode
from recipes.line.waiting import EvictedError, Rules, WaitingTicket
from zkwire import GetChildren, GetChildrenAndStat, GetData, Sync, WatchEvent, WatchEventType

# A request: the operation, the path below the line ("" for the line itself), and the ticket that sends it.
Request: TypeAlias = tuple[str, str, int]
Operation: TypeAlias = GetData | GetChildren | GetChildrenAndStat | Sync
# An answer, as the model's servers give it.
Answer: TypeAlias = tuple[object, ...]

GONE: Final[Answer] = ("gone",)
REFUSED: Final[Answer] = ("refused",)
PLAIN: Final[Answer] = ("exists",)
SHARED: Final[Answer] = ("lets readers in",)

LIST, LIST_AND_STAT, READ, WATCH, SYNC, CREATE = "list", "list and stat", "read", "read and watch", "sync", "create"
# Types of values that have no parts, and of those that never change.
_ATOMS: Final = frozenset({type(None), bool, int, str, bytes, float, WatchEventType})
_CONSTANTS: Final = _ATOMS | {type(lambda: None), type(int), frozenset, WatchEvent, TicketNode}
_SLOTS: Final[dict[type, tuple[str, ...]]] = {}
_LINE: Final = "/line"
_SESSION: Final = 7


class Reached(NamedTuple):
    """Where a step leads: the client's new state, and the requests that its tickets send."""

    state: int
    requests: tuple[Request, ...]


@dataclass(slots=True)
class _Ticket:
    """What a ticket knows.

    `waiting`, None until the first answers are there, and when the wait is over; `asked` and `answers`, of the requests
    under way; `urgent`, the names whose deletion has the short cut on this connection; `owns`; `is_over`.
    """

    waiting: WaitingTicket | None
    asked: tuple[Request, ...]
    answers: tuple[Answer, ...] = ()
    urgent: frozenset[str] = frozenset()
    owns: bool = False
    is_over: bool = False

    @property
    def watches(self) -> Watches:
        assert self.waiting is not None
        return cast(Watches, self.waiting.ticket.watches)

    @property
    def can_go_on(self) -> bool:
        """Whether something has arrived for which the ticket's task is scheduled."""
        if self.owns or self.is_over:
            return False
        if self.asked:
            return len(self.answers) == len(self.asked)
        return bool(self.watches.events)


@dataclass(slots=True)
class _State:
    """What a client knows: `tickets`, None for one that is not created; `newest`, the list that they share."""

    tickets: list[_Ticket | None]
    newest: CachedChildren

    @property
    def waiting(self) -> list[_Ticket]:
        """The tickets that have a WatchSet."""
        return [each for each in self.tickets if each is not None and each.waiting is not None]


class Watches:
    """Stands for a WatchSet: `registered` are the names whose watch would bring an event to this set."""

    def __init__(self) -> None:
        self.was_rearmed = False
        self.registered: set[str] = set()
        self.events: list[WatchEvent] = []

    def ready(self, urgent: Collection[str] = ()) -> Awaitable[str | None]:
        return _Pause(frozenset(map(_name, urgent)))

    def take(self) -> list[WatchEvent]:
        events, self.events = self.events, []
        return events

    def cancel(self) -> None:
        self.registered.clear()

    def set_callback(self, callback: Callable[[], None] | None) -> None:
        """Do nothing: what yields the processor decides nothing."""


class _Pause:
    """An await of the ticket: for the answers to requests, or for an event."""

    def __init__(self, what: tuple[Operation, ...] | frozenset[str]) -> None:
        self.what = what

    def __await__(self) -> Generator[_Pause, Any, Any]:
        return (yield self)


class _Client:
    """Stands for the client: it is certain of its session, and its requests go to the model."""

    session_id = _SESSION

    def certain_for(self, session_id: int) -> float:
        return 1.0

    def is_certain(self, session_id: int) -> bool:
        return True

    def need_certainty(self, *, later: bool = False) -> None:
        """Do nothing."""

    release_certainty = need_certainty

    async def pipeline(self, operations: Iterable[Operation]) -> Any:
        return await _Pause(tuple(operations))


class _Removal:
    def start(self) -> None:
        """Do nothing: the model deletes nodes itself."""


async def _no_pause() -> None:
    """Go on at once: the model has no clock."""


class WaitingTable:
    """All states of a client with the tickets `names`, for which `rules` hold, numbered; in state 0 it has none yet."""

    def __init__(self, names: Sequence[str], rules: Sequence[Rules]) -> None:
        self._names = names
        self._rules = rules
        self._zk = _Client()
        self._removal = _Removal()
        self._shared = (self._zk, self._removal, *rules)
        self._shared_ids = frozenset(map(id, self._shared))
        self._states: list[_State] = []
        self._is_any_waiting: list[bool] = []
        self._numbers: dict[object, int] = {}
        self._reached: dict[tuple[object, ...], Reached] = {}
        self._number(_State([None] * len(names), CachedChildren()))

    # -- what can be asked about a state --------------------------------------------------------------------------

    def can_go_on(self, state: int, number: int) -> bool:
        """Return whether the task of a ticket is scheduled."""
        ticket = self._states[state].tickets[number]
        return ticket is not None and ticket.can_go_on

    def is_busy(self, state: int) -> bool:
        """Return whether the task of any ticket is scheduled."""
        return any(self.can_go_on(state, number) for number in range(len(self._names)))

    def is_entering(self, state: int, number: int) -> bool:
        """Return whether the answers to the create and the first reads are not there yet."""
        return self._ticket(state, number).waiting is None

    def waits(self, state: int, number: int) -> bool:
        """Return whether the ticket is there, and neither owns nor has given up."""
        ticket = self._states[state].tickets[number]
        return ticket is not None and not ticket.owns and not ticket.is_over

    def is_any_waiting(self, state: int) -> bool:
        """Return whether any ticket waits."""
        return self._is_any_waiting[state]

    def owns(self, state: int, number: int) -> bool:
        """Return whether the ticket owns."""
        ticket = self._states[state].tickets[number]
        return ticket is not None and ticket.owns

    def has_short_cut(self, state: int, number: int, name: str) -> bool:
        """Return whether the deletion of `name`, alone in a read, runs the ticket's task at once."""
        ticket = self._states[state].tickets[number]
        return ticket is not None and name in ticket.urgent and not ticket.can_go_on

    def registered(self, state: int) -> Collection[str]:
        """Return the names whose watch would bring an event to a ticket; SetWatches sends these."""
        return set().union(*(each.watches.registered for each in self._states[state].waiting))

    def is_registered(self, state: int, number: int, name: str) -> bool:
        """Return whether the watch of `name` would bring an event to the ticket."""
        ticket = self._states[state].tickets[number]
        return ticket is not None and ticket.waiting is not None and name in ticket.watches.registered

    def before(self, state: int, number: int) -> frozenset[str] | None:
        """Return the blockers that a waiting ticket counts; None if it is going to start over, or to list, first."""
        ticket = self._states[state].tickets[number]
        if ticket is None or ticket.waiting is None or ticket.watches.was_rearmed:
            return None
        position, events = ticket.waiting._position, [event.path for event in ticket.watches.events]
        is_known = position.is_watched and position._is_listed and _path(position.name) not in events
        return frozenset(position.before) if is_known else None

    # -- steps --------------------------------------------------------------------------------------------------------

    def enter(self, state: int, number: int) -> Reached:
        """A ticket sends its create, and the reads behind it."""

        def take(known: _State) -> None:
            reads = (_request(read, number) for read in self._rules[number].reads_line())
            known.tickets[number] = _Ticket(None, ((CREATE, self._names[number], number), *reads))

        return self._step(state, ("enter", number), take)

    def answer(self, state: int, request: Request, answer: Answer) -> Reached:
        """The oldest request is answered, which is `request`."""
        return self._step(state, ("answer", request, answer), lambda known: self._take_answer(known, request, answer))

    def event(self, state: int, name: str, kind: WatchEventType) -> Reached:
        """An event arrives."""
        return self._step(state, ("event", name, kind), lambda known: self._take_event(known, name, kind))

    def short_cut(self, state: int, number: int, name: str) -> Reached:
        """The deletion of `name` arrives, alone in a read, and the ticket has been waiting for it."""

        def take(known: _State) -> None:
            self._resume(known, number, f"{_LINE}/{name}")
            self._take_event(known, name, WatchEventType.DELETED)

        return self._step(state, ("short cut", number, name), take)

    def go_on(self, state: int, number: int) -> Reached:
        """The ticket's task runs up to its next await."""
        return self._step(state, ("go on", number), lambda known: self._resume(known, number, None))

    def end(self, state: int, number: int) -> Reached:
        """The ticket is released, or its wait is cancelled."""

        def take(known: _State) -> None:
            ticket = self._ticket_of(known, number)
            if ticket.waiting is not None:
                task = ticket.waiting.wait()
                with self._patched(known):
                    task.send(None)
                    with suppress(asyncio.CancelledError):
                        task.throw(asyncio.CancelledError())
            known.tickets[number] = _Ticket(None, (), is_over=True)

        return self._step(state, ("end", number), take)

    def reconnect(self, state: int) -> Reached:
        """The connection is replaced by another one, on which the watches are set again."""

        def take(known: _State) -> None:
            for ticket in known.waiting:
                ticket.urgent = frozenset()
                if ticket.watches.registered:
                    ticket.watches.was_rearmed = True

        return self._step(state, ("reconnect",), take)

    def _step(self, number: int, step: tuple[object, ...], change: Callable[[_State], None]) -> Reached:
        known = self._reached.get((number, step))
        if known is None:
            before = self._states[number]
            after = self._forked(before)
            change(after)
            sent = tuple(
                request
                for old, new in zip(before.tickets, after.tickets, strict=True)
                if new is not None and (old is None or new.asked != old.asked or len(new.answers) < len(old.answers))
                for request in new.asked
            )
            known = self._reached[number, step] = Reached(self._number(after), sent)
        return known

    def _ticket(self, state: int, number: int) -> _Ticket:
        return self._ticket_of(self._states[state], number)

    @staticmethod
    def _ticket_of(known: _State, number: int) -> _Ticket:
        ticket = known.tickets[number]
        assert ticket is not None
        return ticket

    def _take_answer(self, known: _State, request: Request, answer: Answer) -> None:
        what, name, number = request
        ticket = self._ticket_of(known, number)
        if ticket.owns or ticket.is_over:
            return  # it was cancelled
        assert ticket.asked[len(ticket.answers)] == request
        if what == WATCH and answer not in (GONE, REFUSED):
            ticket.watches.registered.add(name)
        ticket.answers = (*ticket.answers, answer)

    def _take_event(self, known: _State, name: str, kind: WatchEventType) -> None:
        for ticket in known.waiting:
            if name in ticket.watches.registered:
                ticket.watches.registered.discard(name)
                ticket.watches.events.append(WatchEvent(kind, _path(name), None))

    @contextmanager
    def _patched(self, known: _State) -> Iterator[None]:
        """Have the tickets run without a loop, and share what is known in this state."""
        for rules in self._rules:
            rules.known.children = known.newest
        with (
            patch.object(waiting, "WatchSet", Watches),
            patch.object(waiting, "pause", _no_pause),
            patch.object(waiting, "yield_processor", lambda: None),
            # The model's servers say who lets readers in; that this is proven is another test's affair.
            patch.object(ticket_data, "is_proven", lambda name, version, proof: True),
        ):
            yield

    def _resume(self, known: _State, number: int, gone: str | None) -> None:
        """Run the ticket's task to its next await."""
        ticket = self._ticket_of(known, number)
        answers = [_result(request, answer) for request, answer in zip(ticket.asked, ticket.answers, strict=True)]
        with self._patched(known):
            if ticket.waiting is None:
                _, *reads = answers
                ticket.waiting = self._waiting(number, reads)
                self._run(known, number, ticket.waiting.wait(), None)
                return
            task = ticket.waiting.wait()
            again = task.send(None)
            assert _asked(again.what, number) == ticket.asked, "the ticket's state decides what it sends"
            self._run(known, number, task, answers if ticket.asked else gone)

    def _run(self, known: _State, number: int, task: Coroutine[_Pause, Any, Ticket], value: Any) -> None:
        try:
            pause = task.send(value)
        except StopIteration:
            known.tickets[number] = _Ticket(None, (), owns=True)
        except EvictedError:
            known.tickets[number] = _Ticket(None, (), is_over=True)
        else:
            ticket = self._ticket_of(known, number)
            ticket.asked, ticket.answers = _asked(pause.what, number), ()
            ticket.urgent = frozenset() if ticket.asked else frozenset(cast(Iterable[str], pause.what))
            # Ending the coroutine cancels the wait, which gives the ticket up: keep a copy from before that.
            copied = self._forked(known)
            known.tickets, known.newest = copied.tickets, copied.newest
            task.close()

    def _waiting(self, number: int, answers: list[Any]) -> WaitingTicket:
        name = self._names[number]
        node = TicketNode(_path(name), name, 1, _SESSION)
        ticket = Ticket(node, cast(Any, self._removal), cast(Any, Watches()))
        children, *slots = answers
        return WaitingTicket(cast(Any, self._zk), self._rules[number], ticket, ranked(children), *slots)

    def _forked(self, known: _State) -> _State:
        copied: _State = _copied(known, {id(each): each for each in self._shared})
        return copied

    def _number(self, known: _State) -> int:
        key = _frozen(known, self._shared_ids)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._states)
            self._states.append(known)
            self._is_any_waiting.append(any(self.waits(number, each) for each in range(len(self._names))))
        return number


def _path(name: str) -> str:
    return f"{_LINE}/{name}" if name else _LINE


def _name(path: str) -> str:
    return path.removeprefix(_LINE).removeprefix("/")


def _asked(what: tuple[Operation, ...] | frozenset[str], number: int) -> tuple[Request, ...]:
    """Return the requests for which a ticket waits, none if it waits for an event."""
    return tuple(_request(each, number) for each in what) if isinstance(what, tuple) else ()


def _request(operation: Operation, number: int) -> Request:
    match operation:
        case GetData(path, into):
            return READ if into is None else WATCH, _name(path), number
        case GetChildren(path):
            return LIST, _name(path), number
        case GetChildrenAndStat(path):
            return LIST_AND_STAT, _name(path), number
        case Sync(path):
            return SYNC, _name(path), number


def _result(request: Request, answer: Answer) -> Any:
    """Return what the client gives to the ticket for `answer`."""
    if answer == GONE:
        return zkwire.NoNodeError(zkwire.NoNodeError.code)
    if answer == REFUSED:
        return zkwire.ThrottledError(zkwire.ThrottledError.code)
    match request[0], answer:
        case (("sync" | "create"), _):
            return None
        case "list", names:
            return list(names)
        case "list and stat", (resized, *names):
            return names, _node(b"", cast(int, resized)).stat
        case _, ("number", number, resized):
            return _node(b"%d" % cast(int, number), cast(int, resized))
        case _:
            return _node(ticket_data.shared("0" * 64, b"") if answer == SHARED else b"")


def _node(data: bytes, resized: int = 0) -> zkwire.Node:
    # Version 0: a change of the ticket's own data is one that it goes on after.
    return zkwire.Node(data, zkwire.Stat(1, 1 + resized, 0, 0, 0, 0, 0, _SESSION, len(data), 0, 1))


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    """Return a deep copy of `value`: as `copy.deepcopy` does, but only of what a ticket keeps, and in less time."""
    kind = type(value)
    if kind in _CONSTANTS:
        return value
    if id(value) in memo:
        return memo[id(value)]
    # What is constant is passed over without a call: it is four of five values.
    new: Any
    if kind is set:
        new = memo[id(value)] = set(value)  # of names
    elif kind is tuple:
        each = [one if type(one) in _CONSTANTS else _copied(one, memo) for one in value]
        new = value if all(map(operator.is_, each, value)) else tuple(each)
    elif isinstance(value, list):
        new = memo[id(value)] = kind()
        new += [one if type(one) in _CONSTANTS else _copied(one, memo) for one in value]
    elif kind is dict:
        new = memo[id(value)] = {}
        for key, one in value.items():
            new[key] = one if type(one) in _CONSTANTS else _copied(one, memo)
    else:
        assert kind.__module__.startswith(("recipes.", "tests.")), kind
        new = memo[id(value)] = object.__new__(kind)
        for name in _attributes(kind, value):
            one = getattr(value, name)
            setattr(new, name, one if type(one) in _CONSTANTS else _copied(one, memo))
    return new


def _attributes(kind: type, value: Any) -> Iterable[str]:
    slots = _SLOTS.get(kind)
    if slots is None:
        slots = _SLOTS[kind] = tuple(name for each in kind.__mro__ for name in getattr(each, "__slots__", ()))
    return slots or value.__dict__


def _frozen(value: Any, shared: Collection[int]) -> object:
    """Return the content of `value` in a form that can be hashed and compared.

    Arguments: `shared`, the ids of the objects that all states share.
    """
    kind = type(value)
    if kind in _ATOMS:
        return value
    if id(value) in shared or callable(value):
        return id(value)
    if kind is dict:
        return tuple([(key, _frozen(each, shared)) for key, each in value.items()])
    if kind is set or kind is frozenset:
        return frozenset(value)
    if isinstance(value, list | tuple | deque):
        return tuple([each if type(each) in _ATOMS else _frozen(each, shared) for each in value])
    parts = [getattr(value, name) for name in _attributes(kind, value)]
    return kind.__name__, tuple([each if type(each) in _ATOMS else _frozen(each, shared) for each in parts])
