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


def _held_and_awaited(
    rng: Random, schedule: Schedule, kind: type[Scenario], timeout: float, seconds: float
) -> tuple[Actor, list[Actor]] | None:
    """Return a holder and others that wait for it; `timeout`, of its session, and how long it holds are in ticks."""
    tick = schedule.shape.tick
    first, *rest = schedule.actors
    hold, wait = kind.long_step(seconds * tick), kind.long_step(0.5 * tick)
    if hold is None or wait is None:
        return None
    others = [_calm(each, each.servers, 2 * tick, ((Step("pause", 0.3 * tick), wait),)) for each in rest]
    return _calm(first, first.servers, timeout * tick, ((hold,),)), others


def _raised_timeout(rng: Random, schedule: Schedule, kind: type[Scenario]) -> Schedule | None:
    """The servers grant short sessions, and are started again one by one with a higher limit; then the leader dies.

    The next leader gives the session the timeout of its creation, and not the one that was negotiated last.
    """
    shape = schedule.shape
    tick, count = shape.tick, shape.voters + shape.observers
    found = _held_and_awaited(rng, schedule, kind, rng.choice([8.0, 12.0]), rng.uniform(25, 30))
    if found is None:
        return None
    holder, others = found
    servers = tuple(f"s{number}" for number in range(1, count + 1))
    holder = dataclasses.replace(holder, servers=servers)
    at, faults = rng.uniform(0.5, 1.0) * tick, []
    for name in rng.sample(servers, count):
        faults.append(Fault(at, "restart", (name,), 0.3 * tick, 20 * tick))
        at += rng.uniform(1.0, 2.0) * tick
    faults.append(Fault(at, "cut", (holder.name,)))
    at += rng.uniform(0.5, 2.0) * tick
    faults.append(Fault(at, "kill-leader", (), rng.uniform(0.5, 8) * tick))
    faults.append(Fault(at + rng.uniform(-0.3, 0.5) * tick, "maroon", (holder.name,), rng.uniform(8, 12) * tick))
    longest = tuple([rng.choice([2, 3]) * tick] * count)
    siege = _with(schedule, [holder, *others], faults)
    return dataclasses.replace(siege, shape=dataclasses.replace(shape, longest=longest))


def _resumed(rng: Random, schedule: Schedule, kind: type[Scenario]) -> Schedule | None:
    """The holder's process dies, and the next one resumes its session with a longer timeout; then the leader dies."""
    tick, timeout = schedule.shape.tick, rng.choice([2.0, 3.0, 5.0])
    found = _held_and_awaited(rng, schedule, kind, timeout, rng.uniform(15, 20))
    if found is None:
        return None
    holder, others = found
    hold = holder.tasks[0][0]
    holder = dataclasses.replace(holder, tasks=((Step("pause", 0.2 * tick), hold, hold),))
    crash, down = rng.uniform(0.1, 1.0) * tick, rng.uniform(0.05, 0.5) * tick
    others = [
        dataclasses.replace(each, tasks=((Step("pause", crash + down + tick), *each.tasks[0]),)) for each in others
    ]
    at = crash + down + rng.uniform(1.0, 4.0) * tick
    faults = [
        Fault(crash, "crash", (holder.name, "process"), down, rng.choice([1.0, 2.0, 4.0])),
        Fault(at, "kill-leader", (), rng.uniform(0.5, 8) * tick),
        Fault(at + rng.uniform(-0.3, 0.5) * tick, "maroon", (holder.name,), rng.uniform(5, 12) * tick),
    ]
    return _with(schedule, [holder, *others], faults)


def _changed_leader(rng: Random, schedule: Schedule, kind: type[Scenario]) -> Schedule | None:
    """The leader changes while a lease is held in a session that outlives the election."""
    tick, timeout = schedule.shape.tick, rng.choice([3.0, 5.0, 8.0, 12.0, 20.0])
    found = _held_and_awaited(rng, schedule, kind, timeout, rng.uniform(12, 16))
    if found is None:
        return None
    at, seconds = rng.uniform(0.5, 3.0) * tick, rng.uniform(0.3, 9.0) * tick
    what = rng.choice(["kill-leader", "kill-leader", "pause-leader", "isolate-leader", "power-off"])
    faults = [*schedule.faults[:2], Fault(at, what, ("s1",) if what == "power-off" else (), seconds)]
    if rng.random() < 0.5:  # it is away at that time, for about as long as its session may last
        away = at + rng.uniform(-0.5, 1.0) * tick
        faults.append(Fault(away, "maroon", (found[0].name,), rng.uniform(0.5, 1.5) * timeout * tick))
    return _with(schedule, [found[0], *found[1]], faults)


def _killed_quorum(rng: Random, schedule: Schedule, kind: type[Scenario]) -> Schedule | None:
    """So many servers die at about one moment that there is no quorum for some time."""
    shape, timeout = schedule.shape, rng.choice([2.0, 5.0, 12.0])
    found = _held_and_awaited(rng, schedule, kind, timeout, rng.uniform(8, 12))
    if found is None:
        return None
    at, what = rng.uniform(0.3, 3.0) * shape.tick, rng.choice(["kill", "kill", "power-off"])
    dead = rng.sample([f"s{number}" for number in range(1, shape.voters + 1)], shape.voters // 2 + 1)
    faults = [
        Fault(at + rng.uniform(0.0, 0.3) * shape.tick, what, (name,), rng.uniform(0.3, 6.0) * shape.tick)
        for name in dead
    ]
    return _with(schedule, [found[0], *found[1]], [*schedule.faults[:1], *faults])


def _flapping(rng: Random, schedule: Schedule, kind: type[Scenario]) -> Schedule | None:
    """The holder is cut off for about its session timeout, is back for a moment, and is cut off again.

    Others that hold nothing are cut off with it: their sessions are to be ended in the same moment.
    """
    tick, timeout = schedule.shape.tick, rng.choice([2.0, 2.0, 3.0, 5.0])
    found = _held_and_awaited(rng, schedule, kind, timeout, rng.uniform(3, 4) * timeout)
    if found is None:
        return None
    holder, others = found
    at = rng.uniform(0.5, 1.5) * tick
    away, back = (timeout + rng.uniform(-0.2, 1.3)) * tick, rng.uniform(0.02, 1.0) * tick
    again = (timeout + rng.uniform(0.5, 2.0)) * tick
    faults = [
        fault
        for name in [holder.name, *(each.name for each in others if rng.random() < 0.3)]
        for fault in (Fault(at, "maroon", (name,), away), Fault(at + away + back, "maroon", (name,), again))
    ]
    return _with(schedule, [holder, *others], faults)


def _outstanding_writes(rng: Random, schedule: Schedule, kind: type[Scenario]) -> Schedule | None:
    """The leader hears no follower for some time, so that writes wait; a client moves to an observer meanwhile."""
    tick, first = schedule.shape.tick, schedule.actors[0]
    if schedule.shape.voters > 3:
        return None
    client = _calm(first, rng.choice([("s1", "s4"), ("s4",)]), 8 * tick, first.tasks)
    at, seconds = rng.uniform(0.1, 3.0) * tick, rng.uniform(0.5, 3.0) * tick
    faults = [Fault(at, "stall", (name, "s1"), seconds) for name in ("s2", "s3")]
    faults += [Fault(at + rng.uniform(0.1, 0.9) * seconds, "cut", (client.name,)) for _ in range(rng.randint(1, 2))]
    shape = dataclasses.replace(schedule.shape, observers=1)
    return dataclasses.replace(_with(schedule, [client, *schedule.actors[1:]], faults), shape=shape)


def _ended_together(rng: Random, schedule: Schedule, kind: type[Scenario]) -> Schedule | None:
    """A client is back when the leader has begun to end the sessions that are due, acquires, and is cut off again."""
    tick, timeout = schedule.shape.tick, rng.choice([2.0, 3.0, 5.0])
    hold, wait = kind.long_step(4 * timeout * tick), kind.long_step(0.5 * tick)
    if hold is None or wait is None:
        return None
    at, away = rng.uniform(0.3, 1.5) * tick, (timeout + rng.uniform(-0.1, 0.8)) * tick
    until = at + away + rng.uniform(0.02, 0.5) * tick
    home = rng.choice([("s2",), ("s2", "s3"), ("s1", "s2", "s3")])
    client = _calm(schedule.actors[0], home, timeout * tick, ((hold, hold),))
    waiting = ((Step("pause", rng.choice([0.3 * tick, until, until])), wait),)
    others = [_calm(each, ("s1", "s3"), 2 * tick, waiting) for each in schedule.actors[1:]]
    again = (timeout + rng.uniform(0.5, 2.0)) * tick
    faults = [Fault(at, "maroon", (client.name,), away), Fault(until, "maroon", (client.name,), again)]
    return _with_many_sessions(rng, _with(schedule, [client, *others], faults))


def _refused_proof(rng: Random, schedule: Schedule, kind: type[Scenario]) -> Schedule | None:
    """A waiter is back at such a moment, and is let in by a server whose way to the leader is long.

    Its session is marked before the transaction comes that it sends behind the handshake.  The holder leaves, and the
    waiter is cut off again.
    """
    tick, timeout = schedule.shape.tick, rng.choice([2.0, 3.0, 5.0])
    at, away = rng.uniform(0.5, 1.5) * tick, (timeout + rng.uniform(-0.1, 0.8)) * tick
    late = rng.uniform(0.05, 0.4) * tick
    hold, wait = kind.long_step(4 * timeout * tick), kind.long_step(0.5 * tick)
    held = kind.long_step(at + away - rng.uniform(0.0, 0.3) * tick)
    if hold is None or wait is None or held is None or len(schedule.actors) < 2:
        return None
    client = _calm(schedule.actors[0], ("s2",), timeout * tick, ((Step("pause", 0.1 * tick), hold),))
    until = at + away + 2.2 * late + rng.uniform(0.0, 0.1) * tick
    holder, *others = (_calm(each, ("s1", "s3"), 2 * tick, ()) for each in schedule.actors[1:])
    holder = dataclasses.replace(holder, tasks=((held, Step("pause", until - at - away), wait),))
    others = [dataclasses.replace(each, tasks=((Step("pause", until), wait),)) for each in others]
    faults = [
        Fault(at, "maroon", (client.name,), away),
        Fault(at, "delay", ("s2", "s1"), until - at, late),
        Fault(until, "maroon", (client.name,), (timeout + rng.uniform(0.5, 2.0)) * tick),
    ]
    return _with_many_sessions(rng, _with(schedule, [client, holder, *others], faults))


def _with_many_sessions(rng: Random, schedule: Schedule) -> Schedule:
    """Let it take as long to end the sessions that are due together as with some thousands of them."""
    tick = schedule.shape.tick
    bucket, handover = rng.choice([0.1, 0.5, 1.0]) * tick, rng.choice([0.0, 0.1, 0.5]) * tick
    return dataclasses.replace(schedule, shape=dataclasses.replace(schedule.shape, bucket=bucket, handover=handover))


def _repeated_xids(rng: Random, schedule: Schedule, kind: type[Scenario]) -> Schedule | None:
    """The leader hears no follower for some time; a client's first writes wait, and so do those on its next connection.

    If both are the first ones of their connections, and the next one is to an observer, they may look alike there.
    """
    tick, (first, *others) = schedule.shape.tick, schedule.actors
    step = kind.written_step()
    if step is None or schedule.shape.voters > 3:
        return None
    pause = Step("pause", rng.uniform(0.0, 0.2) * tick)
    client = _calm(first, ("s1", "s4"), 8 * tick, ((Step("pause", 0.3 * tick), *[step, pause] * rng.randint(2, 6)),))
    at, seconds = rng.uniform(0.15, 0.3) * tick, rng.uniform(0.5, 2.0) * tick
    faults = [Fault(at, "stall", (name, "s1"), seconds) for name in ("s2", "s3")]
    faults += [Fault(at + rng.uniform(0.2, 0.9) * seconds, "cut", (client.name,)) for _ in range(rng.randint(1, 2))]
    shape = dataclasses.replace(schedule.shape, observers=1)
    return dataclasses.replace(_with(schedule, [client, *others], faults), shape=shape)


def _late_writes(rng: Random, schedule: Schedule, kind: type[Scenario]) -> Schedule | None:
    """What a client's server has to pass on to the leader waits, while the client turns to the leader itself.

    Before that it tries its server once more, in vain, since it does not reach the leader either for a while.  So its
    handshake waits behind the write.
    """
    tick, (first, *others) = schedule.shape.tick, schedule.actors
    if not first.tasks:
        return None
    step = kind.written_step()
    tasks = first.tasks if step is None else ((step,) * rng.randint(4, 12),)
    client = _calm(first, ("s2", "s1"), 3 * tick, tasks)
    at, alone = rng.uniform(0.02, 0.5) * tick, rng.uniform(1.6, 2.6) * tick
    cut = at + rng.uniform(0.01, 0.3) * tick
    faults = [
        Fault(at, "stall", ("s2", "s1"), rng.uniform(3.5, 4.8) * tick),
        Fault(cut, "split", (client.name, "s1"), alone),
        Fault(cut, "cut", (client.name,)),
    ]
    siege = _with(schedule, [client, *others], faults)
    return dataclasses.replace(siege, shape=dataclasses.replace(schedule.shape, ordering=0.005))


def _strangers(rng: Random, schedule: Schedule, kind: type[Scenario]) -> Schedule | None:
    """Another client makes nodes among the tickets while they enter; some answers are lost."""
    tick = schedule.shape.tick
    if kind.long_step(1.0) is None:
        return None
    names = [actor.name for actor in schedule.actors]
    faults = [*schedule.faults[:1]]
    for _ in range(rng.randint(1, 4)):
        what = rng.choice(["negative", "negative", "high", "between", "twin", "twin", "unreadable"])
        faults.append(
            Fault(rng.uniform(0.0, 2.0) * tick, "stranger", (what,), rng.uniform(0.5, 3) * tick, rng.random())
        )
    if rng.random() < 0.5:
        faults.append(Fault(rng.uniform(0.0, tick), "trip", (rng.choice(names),), rng.uniform(0.5, 2) * tick, 8.0))
    return _with(schedule, list(schedule.actors), faults)


def _pollers(rng: Random, schedule: Schedule, kind: type[Scenario]) -> Schedule | None:
    """Clients that do nothing but try again and again: a lock that nobody holds must be found free."""
    tick = schedule.shape.tick
    first, actors = schedule.actors[0], []
    for index in range(rng.randint(12, 20)):
        step = kind.poll_step(rng.uniform(0.0, 0.01) * tick, rng.uniform(0.0, 0.002))
        if step is None:
            return None
        actor = _calm(dataclasses.replace(first, name=f"c{index + 1}"), first.servers, 2 * tick, ((step,),))
        actors.append(dataclasses.replace(actor, slowness=rng.uniform(0.001, 0.005)))
    return _with(schedule, actors, [])


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
    return schedule if siege is None else siege(rng, schedule, kind) or schedule


def _calm(actor: Actor, servers: tuple[str, ...], timeout: float, tasks: tuple[tuple[Step, ...], ...]) -> Actor:
    return dataclasses.replace(actor, servers=servers, timeout=timeout, slowness=0.0, tasks=tasks)


def _with(schedule: Schedule, actors: list[Actor], faults: list[Fault]) -> Schedule:
    in_order = tuple(sorted(faults, key=lambda fault: fault.at))
    return dataclasses.replace(schedule, actors=tuple(actors), faults=in_order)
