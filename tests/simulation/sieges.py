"""Sieges: schedules that are made for one kind of danger, because random faults seldom come together in such a way.

Each is a function that makes a siege of a random schedule; `UnfitError` says that it does not fit the scenario.  In
most of them the first player holds something, the others wait for it, and faults come at the worst time, by random
numbers.  Times are in ticks of the servers, unless they are called seconds.

To add one: a function and a line in `_SIEGES`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from tests.simulation.scenario import Scenario, UnfitError
from tests.simulation.schedule import Actor, Fault, Schedule, Step


@dataclass(frozen=True, slots=True)
class _Draft:
    """What a siege is made of: a random schedule, whose players, faults and ensemble it changes."""

    rng: Random
    schedule: Schedule
    kind: type[Scenario]
    tick: float

    @property
    def first(self) -> Actor:
        return self.schedule.actors[0]

    @property
    def rest(self) -> Sequence[Actor]:
        return self.schedule.actors[1:]

    def step(self, role: str, length: float = 0.0, other: float = 0.0) -> Step:
        """Return the step for a role, of that length.  Raises: UnfitError."""
        return self.kind.step(role, length * self.tick, other * self.tick)

    def waiting(self, pause: float, length: float = 0.5) -> tuple[Step, ...]:
        """Return the steps that hold something for so long after a pause."""
        return Step("pause", pause * self.tick), self.step("hold", length)

    def calm(self, actor: Actor, timeout: float, *tasks: Sequence[Step], servers: Sequence[str] = ()) -> Actor:
        """Return the actor with a session of so long, and other tasks."""
        servers, given = tuple(servers) or actor.servers, tuple(map(tuple, tasks))
        return replace(actor, servers=servers, timeout=timeout * self.tick, slowness=0.0, tasks=given)

    def held_and_awaited(self, timeout: float, length: float) -> list[Actor]:
        """Return a holder, whose session has this timeout, and others that wait for it."""
        holder = self.calm(self.first, timeout, [self.step("hold", length)])
        return [holder, *(self.calm(each, 2, self.waiting(0.3)) for each in self.rest)]

    def fault(
        self, at: float, kind: str, *targets: str, lasts: float = 0.0, amount: float = 0.0, in_ticks: bool = False
    ) -> Fault:
        amount *= self.tick if in_ticks else 1.0
        return Fault(max(0.0, at * self.tick), kind, targets, lasts * self.tick, amount)

    def unheard(self, at: float, length: float) -> list[Fault]:
        """Return the faults in which s1, the leader of three, hears no follower."""
        if self.schedule.shape.voters > 3:
            raise UnfitError
        return [self.fault(at, "stall", name, "s1", lasts=length) for name in ("s2", "s3")]

    def cuts(self, name: str, at: float, length: float, first: float) -> list[Fault]:
        """Return one or two cuts of a machine's connections in that time, the part before `first` left out."""
        moments = [self.rng.uniform(first, 0.9) for _ in range(self.rng.randint(1, 2))]
        return [self.fault(at + moment * length, "cut", name) for moment in moments]

    def made(self, actors: Sequence[Actor], faults: Iterable[Fault], **shape: Any) -> Schedule:
        """Return the siege; `shape` are the attributes of the ensemble that are other ones."""
        schedule, in_order = self.schedule, tuple(sorted(faults, key=lambda fault: fault.at))
        return replace(schedule, actors=tuple(actors), faults=in_order, shape=replace(schedule.shape, **shape))

    def with_many_sessions(self, actors: Sequence[Actor], faults: Iterable[Fault]) -> Schedule:
        """Return the siege, in which it takes long to end the sessions that are due together, as with thousands."""
        bucket, handover = self.rng.choice([0.1, 0.5, 1.0]), self.rng.choice([0.0, 0.1, 0.5])
        return self.made(actors, faults, bucket=bucket * self.tick, handover=handover * self.tick)


Siege = Callable[[_Draft], Schedule]


def _lost_servers(draft: _Draft) -> Schedule:
    """A long hold, while servers lose one another, or the holder loses them.

    It takes a session timeout, or syncLimit ticks, until such a fault shows, and few random schedules last so long.
    """
    rng, first = draft.rng, draft.first
    # s1 leads at the beginning: the most can go wrong on a leader that loses its followers.
    home = rng.choice([("s1",), (rng.choice(first.servers),), first.servers])
    holder = draft.calm(first, 2, [draft.step("hold", rng.uniform(7, 11))], servers=home)
    others = [replace(actor, timeout=2 * draft.tick) for actor in draft.rest]
    at = rng.uniform(0.1, 2.0)
    fault = rng.choice(["isolate-leader", "isolate-leader", "pause-leader", "isolate-home", "maroon"])
    targets = {"isolate-home": (holder.name, "both"), "maroon": (holder.name,)}.get(fault, ())
    faults = [*draft.schedule.faults[:1], draft.fault(at, fault, *targets, lasts=rng.uniform(5, 9))]
    if rng.random() < 0.3:  # the holder changes its server shortly before
        faults.append(draft.fault(at - rng.uniform(0.01, 0.1), "cut", holder.name))
    return draft.made([holder, *others], faults)


def _asking_holder(draft: _Draft, timeout: float, length: float) -> list[Actor]:
    """Return a holder at the leader, which asks it often, and others that wait at other servers.

    So it is certain for as long as the rule of certainty allows.
    """
    holder = draft.calm(draft.first, timeout, [draft.step("busy", length, 0.1)], servers=("s1",))
    waiting = draft.waiting(0.2)
    return [holder, *(draft.calm(each, timeout, waiting, servers=("s2", "s3")) for each in draft.rest)]


def _deposed_leader(draft: _Draft) -> Schedule:
    """The holder's server is the leader, which goes on to answer after the others have elected another one.

    A leader that has last heard from its followers in the first half of a tick of its own goes on for longest; compared
    with a long tick an election is short.
    """
    rng, draft = draft.rng, replace(draft, tick=2.0)
    actors = _asking_holder(draft, 2, rng.uniform(9, 12))
    at = rng.randint(1, 2) + rng.uniform(0.02, 0.48)
    return draft.made(actors, [draft.fault(at, "isolate-leader", lasts=rng.uniform(7.5, 9))], tick=2.0, longest=())


def _two_stalls(draft: _Draft) -> Schedule:
    """The holder's server is the leader.  First nothing gets from it to the others, and later nothing gets back.

    In between, the others do not hear the leader, but the leader hears them: they pass on what their clients ask for.
    So they give it up sooner than it gives them up, by as much as the second stall is later than the first: it answers
    syncs for many ticks after there is a new leader.
    """
    rng, draft = draft.rng, replace(draft, tick=2.0)
    actors = _asking_holder(draft, rng.choice([2.0, 3.5, 5.0]), rng.uniform(11, 14))
    at, until = rng.uniform(0.5, 2.0), rng.uniform(10, 13)
    again = at + rng.uniform(0.0, 5.0)
    names = draft.schedule.shape.servers[1:]
    faults = [draft.fault(at, "stall", "s1", name, lasts=until - at) for name in names]
    faults += [draft.fault(again, "stall", name, "s1", lasts=until - again) for name in names]
    return draft.made(actors, faults, tick=2.0, longest=())


def _shorter_timeout(draft: _Draft) -> Schedule:
    """The holder's connection breaks, another server grants it a shorter session, and then it reaches no server."""
    rng, tick, servers = draft.rng, draft.tick, draft.schedule.shape.servers
    longest = tuple(rng.choice([None, 2 * tick, 3 * tick]) for _ in servers)
    hold = [draft.step("hold", rng.uniform(8, 12))]
    holder = draft.calm(draft.first, rng.choice([5.0, 8.0, 12.0]), hold, servers=servers)
    others = [draft.calm(actor, 2, draft.waiting(0.2)) for actor in draft.rest]
    at = rng.uniform(0.5, 3.0)
    faults = [
        *draft.schedule.faults[:1],
        draft.fault(at, "cut", holder.name),
        draft.fault(at + rng.uniform(0.01, 0.6), "maroon", holder.name, lasts=rng.uniform(3, 7)),
    ]
    return draft.made([holder, *others], faults, longest=longest)


def _evicted_waiters(draft: _Draft) -> Schedule:
    """While a client with several tickets is away, the holder leaves, and an operator deletes some tickets.

    The events come to the client after SetWatches, in an order that is not that of the history.
    """
    rng, length, waits = draft.rng, draft.rng.uniform(1.0, 3.0), draft.step("together", 0.3)
    if not draft.rest:
        raise UnfitError
    holder = draft.calm(draft.first, 5, [draft.step("hold", length)])
    tasks = [(Step("pause", rng.uniform(0.1, 0.3) * draft.tick), waits) for _ in range(rng.randint(2, 4))]
    client = draft.calm(draft.rest[0], 5, *tasks)
    at, until = length - rng.uniform(0.1, 0.5), length + rng.uniform(0.1, 0.5)
    faults = [draft.fault(at, "cut", client.name), draft.fault(at, "maroon", client.name, lasts=until - at)]
    moments = [rng.uniform(at, length) for _ in range(rng.randint(1, 2))]
    faults += [draft.fault(moment, "delete", amount=rng.random()) for moment in moments]
    return draft.made([holder, client, *draft.rest[1:]], faults)


def _lagging_resize(draft: _Draft) -> Schedule:
    """While a waiter is away, a holder leaves, and then the permits become fewer.

    The first server that the waiter reaches reports both, and the connection breaks before it has answered more.  The
    next one lags behind: it has carried out the first change only.  It is overloaded, too.  Otherwise the client's
    first request there, a transaction that proves its session, would come back when the server has caught up, and so
    would all behind it.
    """
    rng = draft.rng
    moment, later = rng.uniform(0.5, 1.5), rng.uniform(0.1, 0.4)
    follow, resize = draft.step("follow", 5), draft.kind.step("resize", 1.0)
    first, second, client, *others = draft.schedule.actors
    first = draft.calm(first, 5, [draft.step("hold", moment)])
    resizes = Step("pause", (moment + later) * draft.tick), resize
    second = draft.calm(second, 5, [draft.step("hold", 6)], resizes)
    client = draft.calm(client, 5, draft.waiting(0.1, 0.3), [follow], servers=("s2", "s3"))
    behind = rng.choice(client.servers)
    leaves, away = moment - 0.05, later + rng.uniform(0.1, 0.3)
    faults = [
        draft.fault(leaves, "cut", client.name),
        draft.fault(leaves, "maroon", client.name, lasts=away),
        draft.fault(leaves + away + rng.uniform(0.007, 0.014) / draft.tick, "cut", client.name),
        draft.fault(moment + rng.uniform(0.0, 1.0) * later, "lag", behind, lasts=rng.uniform(1.0, 3.0)),
        draft.fault(leaves + away, "throttle", behind, lasts=1.0, amount=rng.choice([0.3, 0.5, 0.7])),
    ]
    return draft.made([first, second, client, *(replace(other, tasks=()) for other in others)], faults)


def _breaking_connections(draft: _Draft) -> Schedule:
    """Each connection of the first player breaks after a few pieces, so that some reconnects end half done."""
    rng, name = draft.rng, draft.first.name
    lasts, amount = rng.uniform(1.0, 3.0), rng.choice([4.0, 8.0])
    trip = draft.fault(rng.uniform(0.0, 2.0), "trip", name, lasts=lasts, amount=amount)
    return draft.made(draft.schedule.actors, [trip])


def _raised_timeout(draft: _Draft) -> Schedule:
    """The servers grant short sessions, and are started again one by one with a higher limit; then the leader dies.

    The next leader gives the session the timeout of its creation, and not the one that was negotiated last.
    """
    rng, servers = draft.rng, draft.schedule.shape.servers
    holder, *others = draft.held_and_awaited(rng.choice([8.0, 12.0]), rng.uniform(25, 30))
    at, faults = rng.uniform(0.5, 1.0), []
    for name in rng.sample(servers, len(servers)):
        faults.append(draft.fault(at, "restart", name, lasts=0.3, amount=20, in_ticks=True))
        at += rng.uniform(1.0, 2.0)
    faults.append(draft.fault(at, "cut", holder.name))
    at += rng.uniform(0.5, 2.0)
    faults.append(draft.fault(at, "kill-leader", lasts=rng.uniform(0.5, 8)))
    faults.append(draft.fault(at + rng.uniform(-0.3, 0.5), "maroon", holder.name, lasts=rng.uniform(8, 12)))
    longest = (rng.choice([2, 3]) * draft.tick,) * len(servers)
    return draft.made([replace(holder, servers=servers), *others], faults, longest=longest)


def _resumed(draft: _Draft) -> Schedule:
    """The holder's process dies, and the next one resumes its session with a longer timeout; then the leader dies."""
    rng = draft.rng
    crash, down = rng.uniform(0.1, 1.0), rng.uniform(0.05, 0.5)
    hold = draft.step("hold", rng.uniform(15, 20))
    holder = draft.calm(draft.first, rng.choice([2.0, 3.0, 5.0]), [*draft.waiting(0.2)[:1], hold, hold])
    others = [draft.calm(each, 2, draft.waiting(crash + down + 1.3)) for each in draft.rest]
    at = crash + down + rng.uniform(1.0, 4.0)
    faults = [
        draft.fault(crash, "crash", holder.name, "process", lasts=down, amount=rng.choice([1.0, 2.0, 4.0])),
        draft.fault(at, "kill-leader", lasts=rng.uniform(0.5, 8)),
        draft.fault(at + rng.uniform(-0.3, 0.5), "maroon", holder.name, lasts=rng.uniform(5, 12)),
    ]
    return draft.made([holder, *others], faults)


def _changed_leader(draft: _Draft) -> Schedule:
    """The leader changes while a lease is held in a session that outlives the election."""
    rng, timeout = draft.rng, draft.rng.choice([3.0, 5.0, 8.0, 12.0, 20.0])
    actors = draft.held_and_awaited(timeout, rng.uniform(12, 16))
    at, what = rng.uniform(0.5, 3.0), rng.choice(["kill-leader"] * 2 + ["pause-leader", "isolate-leader", "power-off"])
    targets = ("s1",) if what == "power-off" else ()
    faults = [*draft.schedule.faults[:2], draft.fault(at, what, *targets, lasts=rng.uniform(0.3, 9.0))]
    if rng.random() < 0.5:  # it is away at that time, for about as long as its session may last
        away = at + rng.uniform(-0.5, 1.0)
        faults.append(draft.fault(away, "maroon", actors[0].name, lasts=rng.uniform(0.5, 1.5) * timeout))
    return draft.made(actors, faults)


def _killed_quorum(draft: _Draft) -> Schedule:
    """So many servers die at about one moment that there is no quorum for some time."""
    rng, voters = draft.rng, draft.schedule.shape.voters
    actors = draft.held_and_awaited(rng.choice([2.0, 5.0, 12.0]), rng.uniform(8, 12))
    at, what = rng.uniform(0.3, 3.0), rng.choice(["kill", "kill", "power-off"])
    faults = [
        draft.fault(at + rng.uniform(0.0, 0.3), what, name, lasts=rng.uniform(0.3, 6.0))
        for name in rng.sample(draft.schedule.shape.servers[:voters], voters // 2 + 1)
    ]
    return draft.made(actors, [*draft.schedule.faults[:1], *faults])


def _flapping(draft: _Draft) -> Schedule:
    """The holder is cut off for about its session timeout, is back for a moment, and is cut off again.

    Others that hold nothing are cut off with it: their sessions are to be ended in the same moment.
    """
    rng, timeout = draft.rng, draft.rng.choice([2.0, 2.0, 3.0, 5.0])
    actors = draft.held_and_awaited(timeout, rng.uniform(3, 4) * timeout)
    at, away, back = rng.uniform(0.5, 1.5), timeout + rng.uniform(-0.2, 1.3), rng.uniform(0.02, 1.0)
    again = timeout + rng.uniform(0.5, 2.0)
    faults = []
    for name in [actors[0].name, *(each.name for each in actors[1:] if rng.random() < 0.3)]:
        faults.append(draft.fault(at, "maroon", name, lasts=away))
        faults.append(draft.fault(at + away + back, "maroon", name, lasts=again))
    return draft.made(actors, faults)


def _outstanding_writes(draft: _Draft) -> Schedule:
    """The leader hears no follower for some time, so that writes wait; a client moves to an observer meanwhile."""
    rng, first = draft.rng, draft.first
    client = draft.calm(first, 8, *first.tasks, servers=rng.choice([("s1", "s4"), ("s4",)]))
    at, length = rng.uniform(0.1, 3.0), rng.uniform(0.5, 3.0)
    faults = draft.unheard(at, length) + draft.cuts(client.name, at, length, 0.1)
    return draft.made([client, *draft.rest], faults, observers=1)


def _repeated_xids(draft: _Draft) -> Schedule:
    """The leader hears no follower for some time; a client's first writes wait, and so do those on its next connection.

    If both are the first ones of their connections, and the next one is to an observer, they may look alike there.
    """
    rng, tick = draft.rng, draft.tick
    steps = [draft.step("create"), Step("pause", rng.uniform(0.0, 0.2) * tick)] * rng.randint(2, 6)
    client = draft.calm(draft.first, 8, [Step("pause", 0.3 * tick), *steps], servers=("s1", "s4"))
    at, length = rng.uniform(0.15, 0.3), rng.uniform(0.5, 2.0)
    faults = draft.unheard(at, length) + draft.cuts(client.name, at, length, 0.2)
    return draft.made([client, *draft.rest], faults, observers=1)


def _ended_together(draft: _Draft) -> Schedule:
    """A client is back when the leader has begun to end the sessions that are due, acquires, and is cut off again."""
    rng, timeout = draft.rng, draft.rng.choice([2.0, 3.0, 5.0])
    at, away = rng.uniform(0.3, 1.5), timeout + rng.uniform(-0.1, 0.8)
    until = at + away + rng.uniform(0.02, 0.5)
    home = rng.choice([("s2",), ("s2", "s3"), ("s1", "s2", "s3")])
    client = draft.calm(draft.first, timeout, [draft.step("hold", 4 * timeout)] * 2, servers=home)
    waiting = draft.waiting(rng.choice([0.3, until, until]))
    others = [draft.calm(each, 2, waiting, servers=("s1", "s3")) for each in draft.rest]
    again = timeout + rng.uniform(0.5, 2.0)
    name = client.name
    faults = [draft.fault(at, "maroon", name, lasts=away), draft.fault(until, "maroon", name, lasts=again)]
    return draft.with_many_sessions([client, *others], faults)


def _refused_proof(draft: _Draft) -> Schedule:
    """A waiter is back at such a moment, and is let in by a server whose way to the leader is long.

    Its session is marked before the transaction comes that it sends after the handshake.  The holder leaves, and the
    waiter is cut off again.
    """
    rng, timeout = draft.rng, draft.rng.choice([2.0, 3.0, 5.0])
    at, away = rng.uniform(0.5, 1.5), timeout + rng.uniform(-0.1, 0.8)
    late = rng.uniform(0.05, 0.4)
    if not draft.rest:
        raise UnfitError
    client = draft.calm(draft.first, timeout, draft.waiting(0.1, 4 * timeout), servers=("s2",))
    until = at + away + 2.2 * late + rng.uniform(0.0, 0.1)
    held, wait = draft.step("hold", at + away - rng.uniform(0.0, 0.3)), draft.waiting(until - at - away)
    holder = draft.calm(draft.rest[0], 2, [held, *wait], servers=("s1", "s3"))
    others = [draft.calm(each, 2, draft.waiting(until), servers=("s1", "s3")) for each in draft.rest[1:]]
    faults = [
        draft.fault(at, "maroon", client.name, lasts=away),
        draft.fault(at, "delay", "s2", "s1", lasts=until - at, amount=late, in_ticks=True),
        draft.fault(until, "maroon", client.name, lasts=timeout + rng.uniform(0.5, 2.0)),
    ]
    return draft.with_many_sessions([client, holder, *others], faults)


def _late_writes(draft: _Draft) -> Schedule:
    """What a client's server has to pass on to the leader waits, while the client turns to the leader itself.

    Before that it tries its server once more, in vain, since it does not reach the leader either for a while.  So its
    handshake waits behind the write.
    """
    rng, first = draft.rng, draft.first
    if not first.tasks:
        raise UnfitError
    creates = [[draft.step("create")] * rng.randint(4, 12)] if "create" in draft.kind.roles else first.tasks
    client = draft.calm(first, 3, *creates, servers=("s2", "s1"))
    at, alone = rng.uniform(0.02, 0.5), rng.uniform(1.6, 2.6)
    cut = at + rng.uniform(0.01, 0.3)
    faults = [
        draft.fault(at, "stall", "s2", "s1", lasts=rng.uniform(3.5, 4.8)),
        draft.fault(cut, "split", client.name, "s1", lasts=alone),
        draft.fault(cut, "cut", client.name),
    ]
    return draft.made([client, *draft.rest], faults, ordering=0.005)


def _strangers(draft: _Draft) -> Schedule:
    """Another client makes nodes among the tickets while they enter; some answers are lost."""
    rng, actors = draft.rng, draft.schedule.actors
    draft.step("hold")
    faults = [*draft.schedule.faults[:1]]
    for _ in range(rng.randint(1, 4)):
        what = rng.choice(["negative", "negative", "high", "between", "twin", "twin", "unreadable"])
        at, lasts = rng.uniform(0.0, 2.0), rng.uniform(0.5, 3)
        faults.append(draft.fault(at, "stranger", what, lasts=lasts, amount=rng.random()))
    if rng.random() < 0.5:
        lasts = rng.uniform(0.5, 2)
        faults.append(draft.fault(rng.uniform(0.0, 1.0), "trip", rng.choice(actors).name, lasts=lasts, amount=8.0))
    return draft.made(actors, faults)


def _pollers(draft: _Draft) -> Schedule:
    """Clients that do nothing but try again and again: a lock that nobody holds must be found free."""
    rng, actors = draft.rng, []
    for index in range(rng.randint(12, 20)):
        step = draft.kind.step("poll", rng.uniform(0.0, 0.01) * draft.tick, rng.uniform(0.0, 0.002))
        actor = draft.calm(replace(draft.first, name=f"c{index + 1}"), 2, [step])
        actors.append(replace(actor, slowness=rng.uniform(0.001, 0.005)))
    return draft.made(actors, [])


# How often each of them is made of a random schedule.
_SIEGES: Final[dict[Siege, float]] = {
    _raised_timeout: 0.03,
    _resumed: 0.03,
    _changed_leader: 0.14,
    _killed_quorum: 0.03,
    _flapping: 0.05,
    _outstanding_writes: 0.03,
    _repeated_xids: 0.02,
    _ended_together: 0.03,
    _refused_proof: 0.03,
    _late_writes: 0.03,
    _strangers: 0.04,
    _pollers: 0.005,
    _two_stalls: 0.03,
    _lagging_resize: 0.06,
    _breaking_connections: 0.04,
    _lost_servers: 0.1,
    _deposed_leader: 0.05,
    _shorter_timeout: 0.04,
    _evicted_waiters: 0.05,
}


def besieged(rng: Random, schedule: Schedule, kind: type[Scenario]) -> Schedule:
    """Return the schedule, or a siege in its place."""
    siege = rng.choices([None, *_SIEGES], [1 - sum(_SIEGES.values()), *_SIEGES.values()])[0]
    try:
        return schedule if siege is None else siege(_Draft(rng, schedule, kind, schedule.shape.tick))
    except UnfitError:
        return schedule
