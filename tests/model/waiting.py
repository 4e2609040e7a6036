"""One waiting ticket as a table: the code of `recipes.line.waiting_ticket` itself, run step by step without a loop.

`WaitingTicket.wait` keeps all that it knows in the ticket, and nothing in local variables, except while requests are
under way.  So a state of the ticket is a copy of the object: to go on from it, a copy of the copy is made, a new
coroutine is run up to the await at which the first one stood, and gets what has arrived.  Each state and each of its
steps is computed once.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias, cast
from unittest.mock import patch

import zkwire
from recipes.line import ticket_data, waiting_ticket
from recipes.line.ticket import Ticket, TicketNode
from recipes.line.waiting_ticket import EvictedError, Rules, WaitingTicket
from zkwire import GetChildren, GetData, Sync, WatchEvent, WatchEventType

# A request: the operation and the path below the line ("" for the line itself), "+watch" where a watch is set.
Request: TypeAlias = tuple[str, str]
# An answer, as the model's servers give it.
Answer: TypeAlias = tuple[object, ...]

GONE: Final[Answer] = ("gone",)
REFUSED: Final[Answer] = ("refused",)
PLAIN: Final[Answer] = ("exists",)
SHARED: Final[Answer] = ("lets readers in",)

LIST, READ, WATCH, SYNC = "list", "read", "read and watch", "sync"
_LINE: Final = "/line"
_SESSION: Final = 7


class Reached(NamedTuple):
    """Where a step leads: the ticket's new state, and the requests that it sends."""

    state: int
    requests: tuple[Request, ...]


@dataclass(slots=True)
class _State:
    """What the ticket and its client know.

    `waiting`, None until the first answers are there; `asked` and `answers`, of the requests under way; `urgent`, the
    names whose deletion has the short cut on this connection; `owns`; `is_over`.
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

    def __init__(self, what: tuple[Request, ...] | frozenset[str]) -> None:
        self.what = what

    def __await__(self) -> Generator[_Pause, Any, Any]:
        return (yield self)


class _Client:
    """Stands for the client: it is certain of its session, and its requests go to the model."""

    session_id = _SESSION

    def certain_for(self, session_id: int) -> float:
        return 1.0

    async def pipeline(self, operations: Iterable[GetData | GetChildren | Sync]) -> Any:
        return await _Pause(tuple(map(_request, operations)))


class _Removal:
    def start(self) -> None:
        """Do nothing: the model deletes nodes itself."""


async def _no_pause() -> None:
    """Go on at once: the model has no clock."""


class WaitingTable:
    """All states of the ticket `name` in which `rules` hold, numbered; state 0 has just sent the create."""

    def __init__(self, name: str, rules: Rules) -> None:
        self._rules = rules
        self._name = name
        self._zk = _Client()
        self._removal = _Removal()
        self._states: list[_State] = []
        self._numbers: dict[object, int] = {}
        self._reached: dict[tuple[object, ...], Reached] = {}
        self.first_requests = tuple(map(_request, rules.reads()))
        self._number(_State(None, self.first_requests))

    # -- what can be asked about a state --------------------------------------------------------------------------

    def can_go_on(self, state: int) -> bool:
        """Return whether the ticket's task is scheduled."""
        return self._states[state].can_go_on

    def is_entering(self, state: int) -> bool:
        """Return whether the answers to the create and the first reads are not there yet."""
        return self._states[state].waiting is None

    def owns(self, state: int) -> bool:
        return self._states[state].owns

    def is_over(self, state: int) -> bool:
        """Return whether the ticket has given up, because its node is gone."""
        return self._states[state].is_over

    def is_watched(self, state: int) -> bool:
        """Return whether the owner has a watch on its own node."""
        waiting = self._states[state].waiting
        return waiting is not None and waiting.ticket.is_watched

    def has_short_cut(self, state: int, name: str) -> bool:
        """Return whether the deletion of `name`, alone in a read, runs the ticket's task at once."""
        known = self._states[state]
        return name in known.urgent and not known.can_go_on

    def registered(self, state: int) -> Collection[str]:
        """Return the names whose watch would bring an event to the ticket; SetWatches sends these."""
        known = self._states[state]
        return known.watches.registered if known.waiting is not None else ()

    def unanswered(self, state: int) -> tuple[Request, ...]:
        known = self._states[state]
        return known.asked[len(known.answers) :]

    # -- steps --------------------------------------------------------------------------------------------------------

    def answer(self, state: int, answer: Answer) -> Reached:
        """The oldest request is answered."""
        return self._step(state, ("answer", answer), lambda known: self._take_answer(known, answer))

    def event(self, state: int, name: str, kind: WatchEventType) -> Reached:
        """An event arrives."""
        return self._step(state, ("event", name, kind), lambda known: self._take_event(known, name, kind))

    def short_cut(self, state: int, name: str) -> Reached:
        """The deletion of `name` arrives, alone in a read, and the ticket has been waiting for it."""

        def take(known: _State) -> None:
            self._resume(known, f"{_LINE}/{name}")
            self._take_event(known, name, WatchEventType.DELETED)

        return self._step(state, ("short cut", name), take)

    def go_on(self, state: int) -> Reached:
        """The ticket's task runs up to its next await."""
        return self._step(state, ("go on",), lambda known: self._resume(known, None))

    def reconnect(self, state: int) -> Reached:
        """The connection is replaced by another one, on which the watches are set again."""

        def take(known: _State) -> None:
            known.urgent = frozenset()
            if known.waiting is not None and known.watches.registered:
                known.watches.was_rearmed = True

        return self._step(state, ("reconnect",), take)

    def _step(self, number: int, step: tuple[object, ...], change: Callable[[_State], None]) -> Reached:
        known = self._reached.get((number, step))
        if known is None:
            before = self._states[number]
            after = copy.copy(before)
            after.waiting = self._forked(before.waiting)
            change(after)
            sent = after.asked if after.asked is not before.asked else ()
            known = self._reached[number, step] = Reached(self._number(after), sent)
        return known

    def _take_answer(self, known: _State, answer: Answer) -> None:
        what, name = known.asked[len(known.answers)]
        if what == WATCH and answer not in (GONE, REFUSED):
            known.watches.registered.add(name)
        known.answers = (*known.answers, answer)

    def _take_event(self, known: _State, name: str, kind: WatchEventType) -> None:
        if known.waiting is not None and name in known.watches.registered:
            known.watches.registered.discard(name)
            known.watches.events.append(WatchEvent(kind, _path(name), None))

    def _resume(self, known: _State, gone: str | None) -> None:
        """Run the ticket's task to its next await."""
        with (
            patch.object(waiting_ticket, "WatchSet", Watches),
            patch.object(waiting_ticket, "pause", _no_pause),
            patch.object(waiting_ticket, "yield_processor", lambda: None),
            # The model's servers say who lets readers in; that this is proven is another test's affair.
            patch.object(ticket_data, "is_proven", lambda name, version, proof: True),
        ):
            answers = [_result(request, answer) for request, answer in zip(known.asked, known.answers, strict=True)]
            if known.waiting is None:
                known.waiting = self._waiting(answers)
                self._run(known, known.waiting.wait(), None)
                return
            task = known.waiting.wait()
            again = task.send(None)
            assert again.what == known.asked or not known.asked, "the ticket's state decides what it sends"
            self._run(known, task, answers if known.asked else gone)

    def _run(self, known: _State, task: Coroutine[_Pause, Any, Ticket], value: Any) -> None:
        known.asked, known.answers, known.urgent = (), (), frozenset()
        try:
            pause = task.send(value)
        except StopIteration:
            known.owns = True
        except EvictedError:
            known.is_over = True
        else:
            if isinstance(pause.what, tuple):
                known.asked = pause.what
            else:
                known.urgent = pause.what
            # Ending the coroutine cancels the wait, which gives the ticket up: keep a copy from before that.
            known.waiting = self._forked(known.waiting)
            task.close()

    def _waiting(self, answers: list[Any]) -> WaitingTicket:
        node = TicketNode(_path(self._name), self._name, 1, _SESSION)
        ticket = Ticket(node, cast(Any, self._removal), cast(Any, Watches()))
        return WaitingTicket(cast(Any, self._zk), self._rules, ticket, answers)

    def _forked(self, waiting: WaitingTicket | None) -> WaitingTicket | None:
        shared = {id(each): each for each in (self._zk, self._removal, self._rules)}
        return copy.deepcopy(waiting, cast(Any, shared))

    def _number(self, known: _State) -> int:
        key = _frozen(known, (self._zk, self._removal, self._rules))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._states)
            self._states.append(known)
        return number


def _path(name: str) -> str:
    return f"{_LINE}/{name}" if name else _LINE


def _name(path: str) -> str:
    return path.removeprefix(_LINE).removeprefix("/")


def _request(operation: GetData | GetChildren | Sync) -> Request:
    match operation:
        case GetData(path, into):
            return READ if into is None else WATCH, _name(path)
        case GetChildren(path):
            return LIST, _name(path)
        case Sync(path):
            return SYNC, _name(path)


def _result(request: Request, answer: Answer) -> Any:
    """Return what the client gives to the ticket for `answer`."""
    if answer == GONE:
        return zkwire.NoNodeError(zkwire.NoNodeError.code)
    if answer == REFUSED:
        return zkwire.ThrottledError(zkwire.ThrottledError.code)
    match request[0], answer:
        case "sync", _:
            return None
        case "list", names:
            return list(names)
        case _, ("number", number):
            return _node(b"%d" % cast(int, number))
        case _:
            return _node(ticket_data.shared("0" * 64, b"") if answer == SHARED else b"")


def _node(data: bytes) -> zkwire.Node:
    # Version 0: a change of the ticket's own data is one that it goes on after.
    return zkwire.Node(data, zkwire.Stat(1, 1, 0, 0, 0, 0, 0, _SESSION, len(data), 0, 1))


def _frozen(value: Any, shared: Collection[object]) -> object:
    """Return the content of `value` in a form that can be hashed and compared."""
    match value:
        case None | bool() | int() | str() | bytes() | float():
            return value
        case dict():
            return tuple((key, _frozen(each, shared)) for key, each in value.items())
        case set() | frozenset():
            return frozenset(value)
        case list() | tuple() | deque():
            return tuple(_frozen(each, shared) for each in value)
    if callable(value) or any(value is each for each in shared):
        return id(value)
    attributes = value.__dict__ if hasattr(value, "__dict__") else copy.copy(value).__getstate__()[1]
    return type(value).__name__, _frozen(attributes, shared)
