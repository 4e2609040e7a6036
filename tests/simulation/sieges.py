"""Sieges: schedules that are made for one kind of danger, because random faults seldom come together in such a way.

Each is a function that makes a siege of a random schedule, or None where it does not fit the scenario.  In most of them
the first player holds something, the others wait for it, and faults come at the worst time, by random numbers.

To add one: a function and a line in `_SIEGES`.
"""

import dataclasses
from collections.abc import Callable
from random import Random
from typing import Final, TypeAlias

from tests.simulation.scenario import Scenario
from tests.simulation.schedule import Actor, Fault, Schedule, Step

Siege: TypeAlias = Callable[[Random, Schedule, type[Scenario]], Schedule | None]


def _lost_servers(rng: Random, schedule: Schedule, kind: type[Scenario]) -> Schedule | None:
    """A long hold, while servers lose one another, or the holder loses them.

    It takes a session timeout, or syncLimit ticks, until such a fault shows, and few random schedules last so long.
    """
    tick, first = schedule.shape.tick, schedule.actors[0]
    hold = kind.long_step(rng.uniform(7, 11) * tick)
    if hold is None:
        return None
    # s1 leads at the beginning: the most can go wrong on a leader that loses its followers.
    home = rng.choice([("s1",), (rng.choice(first.servers),), first.servers])
    holder = dataclasses.replace(first, servers=home, timeout=2 * tick, slowness=0.0, tasks=((hold,),))
    others = [dataclasses.replace(actor, timeout=2 * tick) for actor in schedule.actors[1:]]
    at, seconds = rng.uniform(0.1, 2.0) * tick, rng.uniform(5, 9) * tick
    fault = rng.choice(["isolate-leader", "isolate-leader", "pause-leader", "isolate-home", "maroon"])
    targets = {"isolate-home": (holder.name, "both"), "maroon": (holder.name,)}.get(fault, ())
    faults = [*schedule.faults[:1], Fault(at, fault, targets, seconds)]
    if rng.random() < 0.3:  # the holder changes its server shortly before
        faults.append(Fault(at - rng.uniform(0.01, 0.1) * tick, "cut", (holder.name,)))
    return _with(schedule, [holder, *others], faults)


def _deposed_leader(rng: Random, schedule: Schedule, kind: type[Scenario]) -> Schedule | None:
    """The holder's server is the leader, which goes on to answer after the others have elected another one.

    The holder asks it often: so it is certain for as long as the rule of certainty allows.  A leader that has last
    heard from its followers in the first half of a tick of its own goes on for longest; compared with a long tick an
    election is short.
    """
    tick = 2.0
    hold, wait = kind.busy_step(rng.uniform(9, 12) * tick, 0.1 * tick), kind.long_step(0.5 * tick)
    if hold is None or wait is None:
        return None
    holder = _calm(schedule.actors[0], ("s1",), 2 * tick, ((hold,),))
    waiting = ((Step("pause", 0.2 * tick), wait),)
    others = [_calm(actor, ("s2", "s3"), 2 * tick, waiting) for actor in schedule.actors[1:]]
    at = (rng.randint(1, 2) + rng.uniform(0.02, 0.48)) * tick
    siege = _with(schedule, [holder, *others], [Fault(at, "isolate-leader", (), rng.uniform(7.5, 9) * tick)])
    return dataclasses.replace(siege, shape=dataclasses.replace(schedule.shape, tick=tick, longest=()))


def _two_stalls(rng: Random, schedule: Schedule, kind: type[Scenario]) -> Schedule | None:
    """The holder's server is the leader.  First nothing gets from it to the others, and later nothing gets back.

    In between, the others do not hear the leader, but the leader hears them: they pass on what their clients ask for.
    So they give it up sooner than it gives them up, by as much as the second stall is later than the first: it answers
    syncs for many ticks after there is a new leader.
    """
    tick = 2.0
    first, *rest = schedule.actors
    hold, wait = kind.busy_step(rng.uniform(11, 14) * tick, 0.1 * tick), kind.long_step(0.5 * tick)
    if hold is None or wait is None:
        return None
    timeout = rng.choice([4.0, 7.0, 10.0])
    holder = _calm(first, ("s1",), timeout, ((hold,),))
    others = [_calm(actor, ("s2", "s3"), timeout, ((Step("pause", 0.2 * tick), wait),)) for actor in rest]
    names = [f"s{number}" for number in range(2, schedule.shape.voters + schedule.shape.observers + 1)]
    at, until = rng.uniform(0.5, 2.0) * tick, rng.uniform(10, 13) * tick
    again = at + rng.uniform(0.0, 5.0) * tick
    faults = [Fault(at, "stall", ("s1", name), until - at) for name in names]
    faults += [Fault(again, "stall", (name, "s1"), until - again) for name in names]
    siege = _with(schedule, [holder, *others], faults)
    return dataclasses.replace(siege, shape=dataclasses.replace(schedule.shape, tick=tick, longest=()))


def _shorter_timeout(rng: Random, schedule: Schedule, kind: type[Scenario]) -> Schedule | None:
    """The holder's connection breaks, another server grants it a shorter session, and then it reaches no server."""
    tick, count = schedule.shape.tick, schedule.shape.voters + schedule.shape.observers
    hold, wait = kind.long_step(rng.uniform(8, 12) * tick), kind.long_step(0.5 * tick)
    if hold is None or wait is None:
        return None
    longest = tuple(rng.choice([None, 2 * tick, 3 * tick]) for _ in range(count))
    first = schedule.actors[0]
    servers = tuple(f"s{number}" for number in range(1, count + 1))
    holder = _calm(first, servers, rng.choice([5.0, 8.0, 12.0]) * tick, ((hold,),))
    waiting = ((Step("pause", 0.2 * tick), wait),)
    others = [_calm(actor, actor.servers, 2 * tick, waiting) for actor in schedule.actors[1:]]
    at = rng.uniform(0.5, 3.0) * tick
    away = Fault(at + rng.uniform(0.01, 0.6) * tick, "maroon", (holder.name,), rng.uniform(3, 7) * tick)
    faults = [*schedule.faults[:1], Fault(at, "cut", (holder.name,)), away]
    siege = _with(schedule, [holder, *others], faults)
    return dataclasses.replace(siege, shape=dataclasses.replace(schedule.shape, longest=longest))


def _evicted_waiters(rng: Random, schedule: Schedule, kind: type[Scenario]) -> Schedule | None:
    """While a client with several tickets is away, the holder leaves, and an operator deletes some tickets.

    The events come to the client behind SetWatches, in an order that is not that of the history.
    """
    tick, waits = schedule.shape.tick, kind.together(0.3 * schedule.shape.tick)
    seconds = rng.uniform(1.0, 3.0) * tick
    hold = kind.long_step(seconds)
    if hold is None or waits is None or len(schedule.actors) < 2:
        return None
    holder, client, *others = schedule.actors
    holder = _calm(holder, holder.servers, 5 * tick, ((hold,),))
    tasks = tuple((Step("pause", rng.uniform(0.1, 0.3) * tick), waits) for _ in range(rng.randint(2, 4)))
    client = _calm(client, client.servers, 5 * tick, tasks)
    at, until = seconds - rng.uniform(0.1, 0.5) * tick, seconds + rng.uniform(0.1, 0.5) * tick
    faults = [Fault(at, "cut", (client.name,)), Fault(at, "maroon", (client.name,), until - at)]
    deleted = [rng.uniform(at, seconds) for _ in range(rng.randint(1, 2))]
    faults += [Fault(moment, "delete", (), amount=rng.random()) for moment in deleted]
    return _with(schedule, [holder, client, *others], faults)


def _lagging_resize(rng: Random, schedule: Schedule, kind: type[Scenario]) -> Schedule | None:
    """While a waiter is away, a holder leaves, and then the permits become fewer.

    The first server that the waiter reaches reports both, and the connection breaks before it has answered more.  The
    next one lags behind: it has carried out the first change only.  It is overloaded, too.  Otherwise the client's
    first request there, a transaction that proves its session, would come back when the server has caught up, and so
    would all behind it.
    """
    tick = schedule.shape.tick
    moment, later = rng.uniform(0.5, 1.5) * tick, rng.uniform(0.1, 0.4) * tick
    leaving, staying, waiting = kind.long_step(moment), kind.long_step(6 * tick), kind.long_step(0.3 * tick)
    steps = kind.resizing(5 * tick, 1)
    if leaving is None or staying is None or waiting is None or steps is None:
        return None
    follow, resize = steps
    first, second, client, *others = schedule.actors
    resizes = (Step("pause", moment + later), resize)
    first = _calm(first, first.servers, 5 * tick, ((leaving,),))
    second = _calm(second, second.servers, 5 * tick, ((staying,), resizes))
    client = _calm(client, ("s2", "s3"), 5 * tick, ((Step("pause", 0.1 * tick), waiting), (follow,)))
    others = [dataclasses.replace(other, tasks=()) for other in others]
    behind = rng.choice(client.servers)
    leaves, away = moment - 0.05 * tick, later + rng.uniform(0.1, 0.3) * tick
    faults = [
        Fault(leaves, "cut", (client.name,)),
        Fault(leaves, "maroon", (client.name,), away),
        Fault(leaves + away + rng.uniform(0.007, 0.014), "cut", (client.name,)),
        Fault(moment + rng.uniform(0.0, 1.0) * later, "lag", (behind,), rng.uniform(1.0, 3.0) * tick),
        Fault(leaves + away, "throttle", (behind,), tick, rng.choice([0.3, 0.5, 0.7])),
    ]
    return _with(schedule, [first, second, client, *others], faults)


def _breaking_connections(rng: Random, schedule: Schedule, kind: type[Scenario]) -> Schedule | None:
    """Each connection of the first player breaks after a few pieces, so that some reconnects end half done."""
    tick, name = schedule.shape.tick, schedule.actors[0].name
    amount = rng.choice([4.0, 8.0])
    trip = Fault(rng.uniform(0.0, 2.0) * tick, "trip", (name,), rng.uniform(1.0, 3.0) * tick, amount)
    return _with(schedule, list(schedule.actors), [trip])


# How often each of them is made of a random schedule.  A new one comes first: so the numbers of the others' schedules
# stay as they are, and some of those without a siege give the new one.
_SIEGES: Final[dict[Siege, float]] = {
    _two_stalls: 0.04,
    _lagging_resize: 0.1,
    _breaking_connections: 0.06,
    _lost_servers: 0.14,
    _deposed_leader: 0.06,
    _shorter_timeout: 0.06,
    _evicted_waiters: 0.06,
}


def besieged(rng: Random, schedule: Schedule, kind: type[Scenario]) -> Schedule:
    """Return the schedule, or a siege in its place."""
    siege = rng.choices([None, *_SIEGES], [1 - sum(_SIEGES.values()), *_SIEGES.values()])[0]
    return schedule if siege is None else siege(rng, schedule, kind) or schedule


def _calm(actor: Actor, servers: tuple[str, ...], timeout: float, tasks: tuple[tuple[Step, ...], ...]) -> Actor:
    return dataclasses.replace(actor, servers=servers, timeout=timeout, slowness=0.0, tasks=tasks)


def _with(schedule: Schedule, actors: list[Actor], faults: list[Fault]) -> Schedule:
    in_order = tuple(sorted(faults, key=lambda fault: fault.at))
    return dataclasses.replace(schedule, actors=tuple(actors), faults=in_order)
