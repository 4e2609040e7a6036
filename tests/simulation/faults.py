"""The faults: which there are, how a schedule gets some, and how each begins and ends.

To add one: a function that begins it and returns a function that ends it, or None, in `KINDS`; and a line in
`random_fault`.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

from tests.simulation.ensemble.ensemble import Shape
from tests.simulation.schedule import HORIZON, Actor, Fault, Schedule

if TYPE_CHECKING:
    from tests.simulation.stage import Stage

End: TypeAlias = Callable[[], object] | None


def _cut(stage: "Stage", fault: Fault) -> End:
    """The connections of a machine break, somewhere in what is on its way."""
    for connection in list(stage.network.connections):
        if connection.machine.name == fault.targets[0]:
            connection.cut()
    return None


def _trip(stage: "Stage", fault: Fault) -> End:
    """Each connection of a machine breaks after at most `amount` more pieces, also those that are opened meanwhile."""
    name, trips = fault.targets[0], stage.network.trips
    trips[name] = int(fault.amount)
    for connection in list(stage.network.connections):
        if connection.machine.name == name:
            connection.pieces_left = stage.world.rng.randrange(int(fault.amount) + 1)
    return lambda: trips.pop(name, None)


def _silence(stage: "Stage", fault: Fault) -> End:
    """What is sent on the machine's present connections is lost for ever, in one direction or in both."""
    for connection in list(stage.network.connections):
        if connection.machine.name == fault.targets[0]:
            connection.go_silent(up=fault.targets[1] != "down", down=fault.targets[1] != "up")
    return None


def _stall(stage: "Stage", fault: Fault) -> End:
    """Nothing gets from one host to the other."""
    source, target = fault.targets
    stage.network.block(source, target)
    return lambda: stage.network.unblock(source, target)


def _split(stage: "Stage", fault: Fault) -> End:
    """Nothing gets from one host to the other, or back."""
    return _block_all(stage, [(fault.targets[0], fault.targets[1])])


def _isolate(stage: "Stage", fault: Fault) -> End:
    """A server reaches no other server; its clients reach it."""
    name = fault.targets[0]
    return _block_all(stage, [(name, server.name) for server in stage.ensemble.servers if server.name != name])


def _isolate_leader(stage: "Stage", fault: Fault) -> End:
    """The server that leads at this moment reaches no other server."""
    found = stage.ensemble.leader()
    if found is None:
        return None
    name = found[0].name
    return _block_all(stage, [(name, server.name) for server in stage.ensemble.servers if server.name != name])


def _isolate_home(stage: "Stage", fault: Fault) -> End:
    """The server that a machine is connected to at this moment reaches no other server, in one direction or in both."""
    names = [server.name for server in stage.ensemble.servers]
    for connection in stage.network.connections:
        if connection.machine.name == fault.targets[0]:
            home = connection.host
            outward = [(home, name) for name in names if name != home]
            match fault.targets[1]:
                case "up":
                    return _block_each(stage, outward)
                case "down":
                    return _block_each(stage, [(name, home) for _, name in outward])
            return _block_all(stage, outward)
    return None


def _maroon(stage: "Stage", fault: Fault) -> End:
    """A machine reaches no server."""
    return _block_all(stage, [(fault.targets[0], server.name) for server in stage.ensemble.servers])


def _pause_leader(stage: "Stage", fault: Fault) -> End:
    """The process of the server that leads at this moment is stopped."""
    found = stage.ensemble.leader()
    if found is None:
        return None
    found[0].pause()
    return found[0].go_on


def _block_all(stage: "Stage", pairs: list[tuple[str, str]]) -> End:
    return _block_each(stage, [*pairs, *((target, source) for source, target in pairs)])


def _block_each(stage: "Stage", pairs: list[tuple[str, str]]) -> End:
    for pair in pairs:
        stage.network.block(*pair)

    def end() -> None:
        for pair in pairs:
            stage.network.unblock(*pair)

    return end


def _delay(stage: "Stage", fault: Fault) -> End:
    """All from one host to the other comes `amount` seconds later."""
    source, target = fault.targets
    stage.network.delay(source, target, fault.amount)
    return lambda: stage.network.delay(source, target, -fault.amount)


def _pause(stage: "Stage", fault: Fault) -> End:
    """The process of a server is stopped; its connections stay open."""
    server = stage.ensemble.by_name(fault.targets[0])
    server.pause()
    return server.go_on


def _kill(stage: "Stage", fault: Fault) -> End:
    """The process of a server dies, and is started again at the end."""
    server = stage.ensemble.by_name(fault.targets[0])
    if not server.is_up:
        return None
    server.kill()
    return server.start


def _block(stage: "Stage", fault: Fault) -> End:
    """The event loop of a machine does not turn, as when its code blocks it, or its process is stopped."""
    machine = stage.machines[fault.targets[0]]
    machine.stop_running()
    return machine.go_on


def _suspend(stage: "Stage", fault: Fault) -> End:
    """A machine is suspended: its clock stands still."""
    machine = stage.machines[fault.targets[0]]
    machine.stop_running(suspend=True)
    return machine.go_on


def _expire(stage: "Stage", fault: Fault) -> End:
    """An operator ends the session of a machine."""
    found = stage.ensemble.leader()
    client = stage.clients.get(fault.targets[0])
    if found is not None and client is not None and client.session_id:
        found[1].end_session(client.session_id)
        stage.ended_sessions.add(client.session_id)
    return None


def _throttle(stage: "Stage", fault: Fault) -> End:
    """A server refuses some requests, because it is overloaded."""
    server = stage.ensemble.by_name(fault.targets[0])
    server.throttles += fault.amount

    def end() -> None:
        server.throttles = max(0.0, server.throttles - fault.amount)
        if server.throttles < 1e-9:
            server.throttles = 0.0

    return end


def _lag(stage: "Stage", fault: Fault) -> End:
    """A follower or an observer carries out nothing of what is committed, and answers reads, handshakes and pings."""
    server = stage.ensemble.by_name(fault.targets[0])
    server.lag()
    return server.catch_up


def _delete(stage: "Stage", fault: Fault) -> End:
    """An operator deletes one of the nodes that the scenario allows to be deleted."""
    paths = stage.deletable()
    if paths:
        path = paths[int(fault.amount * len(paths))]
        if stage.ensemble.delete(path):
            stage.deleted(path)
    return None


KINDS: Final[dict[str, Callable[["Stage", Fault], End]]] = {
    "cut": _cut,
    "trip": _trip,
    "silence": _silence,
    "stall": _stall,
    "split": _split,
    "isolate": _isolate,
    "isolate-leader": _isolate_leader,
    "isolate-home": _isolate_home,
    "maroon": _maroon,
    "pause-leader": _pause_leader,
    "delay": _delay,
    "pause": _pause,
    "kill": _kill,
    "block": _block,
    "suspend": _suspend,
    "expire": _expire,
    "throttle": _throttle,
    "delete": _delete,
    "lag": _lag,
}

# Kinds that are chosen more often than others; a lag is added behind the others, see `with_lags`.
_WEIGHTS: Final = {"cut": 2, "trip": 3, "stall": 2, "isolate-home": 4, "isolate-leader": 4, "pause-leader": 2, "lag": 0}

_LAGS: Final = 0.125  # how often a schedule gets servers that lag


def begin(stage: "Stage", fault: Fault) -> None:
    """Let `fault` begin; it ends by itself."""
    end = KINDS[fault.kind](stage, fault)
    if end is not None:
        stage.world.after(fault.seconds, end)


def random_faults(rng: Random, shape: Shape, actors: tuple[Actor, ...]) -> tuple[Fault, ...]:
    """Return some faults, in the order of their beginnings.

    Those of one schedule are of few kinds, since faults of many kinds hide one another.
    """
    kinds = rng.choices(list(KINDS), [_WEIGHTS.get(kind, 1) for kind in KINDS], k=rng.choice([1, 1, 2, 3, 5]))
    count = rng.choice([0, 1, 1, 1, 2, 2, 3, 4, 6, 10])
    faults = [random_fault(rng, rng.choice(kinds), shape, actors) for _ in range(count)]
    return tuple(sorted(faults, key=lambda fault: fault.at))


def random_fault(rng: Random, kind: str, shape: Shape, actors: tuple[Actor, ...]) -> Fault:
    """Return a fault of that kind."""
    servers = [f"s{number}" for number in range(1, shape.voters + shape.observers + 1)]
    client, server = rng.choice(actors).name, rng.choice(servers)
    # Around the limits of sessions and servers is where it matters.
    seconds = rng.choice([0.3, 1.0, 2.5, 5.0, 7.0]) * shape.tick * rng.uniform(0.5, 1.5)
    at = rng.uniform(0.0, HORIZON)
    other = rng.choice([name for name in (*servers, client) if name != server])
    match kind:
        case "cut" | "expire":
            return Fault(at, kind, (client,))
        case "isolate-home":
            return Fault(at, kind, (client, rng.choice(["up", "down", "both"])), seconds)
        case "trip":
            return Fault(at, kind, (client,), seconds, amount=float(rng.choice([2, 4, 8, 30])))
        case "silence":
            return Fault(at, kind, (client, rng.choice(["up", "down", "both"])))
        case "stall" | "split":
            return Fault(at, kind, (server, other) if rng.random() < 0.5 else (other, server), seconds)
        case "delay":
            pair = (server, other) if rng.random() < 0.5 else (other, server)
            return Fault(at, kind, pair, seconds, amount=rng.choice([0.01, 0.1, 0.5, 1.0]) * shape.tick)
        case "block" | "suspend" | "maroon":
            return Fault(at, kind, (client,), seconds)
        case "throttle":
            return Fault(at, kind, (server,), seconds, amount=rng.choice([0.1, 0.5]))
        case "delete":
            return Fault(at, kind, (), amount=rng.random())
        case "isolate-leader" | "pause-leader":
            return Fault(at, kind, (), seconds)
    return Fault(at, kind, (server,), seconds)


def with_lags(rng: Random, schedule: Schedule) -> Schedule:
    """Return the schedule; in one of eight cases with some servers that lag behind, beside its other faults."""
    if rng.random() >= _LAGS:
        return schedule
    shape, actors = schedule.shape, schedule.actors
    lags = [random_fault(rng, "lag", shape, actors) for _ in range(rng.choice([1, 2, 4]))]
    return replace(schedule, faults=tuple(sorted((*schedule.faults, *lags), key=lambda fault: fault.at)))
