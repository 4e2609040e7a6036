"""The faults: which there are, how a schedule gets some, and how each begins and ends.

To add one: a function that begins it and returns a function that ends it, or None, in `KINDS`; and a line in
`random_fault`.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

import zkwire
from tests.simulation.ensemble.ensemble import Shape
from tests.simulation.schedule import DRIFT, HORIZON, Actor, Fault, Schedule
from zkwire.testing.memory.state import Settings
from zkwire.wire.records import ACL, OPEN_ACL, Perms
from zkwire.wire.requests import CreateRequest, SetDataRequest

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
    return _block_all(stage, fault, [(fault.targets[0], fault.targets[1])])


def _isolate(stage: "Stage", fault: Fault) -> End:
    """A server reaches no other server; its clients reach it."""
    name = fault.targets[0]
    return _block_all(stage, fault, [(name, server.name) for server in stage.ensemble.servers if server.name != name])


def _isolate_leader(stage: "Stage", fault: Fault) -> End:
    """The server that leads at this moment reaches no other server."""
    found = stage.ensemble.leader()
    if found is None:
        return None
    name = found[0].name
    return _block_all(stage, fault, [(name, server.name) for server in stage.ensemble.servers if server.name != name])


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
            return _block_all(stage, fault, outward)
    return None


def _maroon(stage: "Stage", fault: Fault) -> End:
    """A machine reaches no server."""
    return _block_all(stage, fault, [(fault.targets[0], server.name) for server in stage.ensemble.servers])


def _pause_leader(stage: "Stage", fault: Fault) -> End:
    """The process of the server that leads at this moment is stopped."""
    found = stage.ensemble.leader()
    if found is None:
        return None
    found[0].pause()
    return found[0].go_on


def _kill_leader(stage: "Stage", fault: Fault) -> End:
    """The process of the server that leads at this moment dies, and is started again at the end."""
    found = stage.ensemble.leader()
    return None if found is None else _kill(stage, replace(fault, targets=(found[0].name,)))


def _block_all(stage: "Stage", fault: Fault, pairs: list[tuple[str, str]]) -> End:
    """Block these directions, which recover `fault.amount` seconds before the end, and those back."""
    outward = _block_each(stage, pairs)
    back = _block_each(stage, [(target, source) for source, target in pairs])
    assert outward is not None
    assert back is not None
    if fault.amount:
        stage.world.after(fault.seconds - fault.amount, outward)
        return back
    return lambda: (outward(), back())


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


def _restart(stage: "Stage", fault: Fault) -> End:
    """The process of a server is started again, and grants sessions of `amount` seconds at the most from then on."""
    server = stage.ensemble.by_name(fault.targets[0])
    if not server.is_up:
        return None
    server.kill()

    def start() -> None:
        server.settings = Settings(tick_time=server.settings.tick_time, max_session_timeout=fault.amount)
        server.start()

    return start


def _power_off(stage: "Stage", fault: Fault) -> End:
    """The host of a server dies: no connection to it is reset, and none is refused before it is started again."""
    server = stage.ensemble.by_name(fault.targets[0])
    if not server.is_up:
        return None
    for connection in list(stage.network.connections):
        if connection.host == server.name:
            connection.go_silent(up=True, down=True)
    hosts = [*stage.machines, *(each.name for each in stage.ensemble.servers if each is not server)]
    recover = _block_all(stage, replace(fault, amount=0.0), [(server.name, host) for host in hosts])
    server.kill()
    assert recover is not None

    def end() -> None:
        server.start()
        recover()

    return end


def _crash(stage: "Stage", fault: Fault) -> End:
    """The process of a client dies, or its host, and is started again at the end; see `Player.crash`."""
    player = next(each for each in stage.players if each.actor.name == fault.targets[0])
    return player.crash(resumes=fault.amount, with_host=fault.targets[1] == "host")


def _freeze(stage: "Stage", fault: Fault) -> End:
    """The process of a client is stopped between two instructions: when it has looked at the clock `amount` times."""
    machine = stage.machines[fault.targets[0]]
    machine.freeze_soon(int(fault.amount), fault.seconds / 2)
    stage.world.after(fault.seconds / 2, machine.__dict__.pop, "time", None)
    return None


def _drift(stage: "Stage", fault: Fault) -> End:
    """The clock of a machine runs at another rate from now on."""
    stage.machines[fault.targets[0]].drift(fault.amount)
    return None


def _narrow(stage: "Stage", fault: Fault) -> End:
    """The kernel of a machine takes only `amount` bytes that its server has not got yet."""
    name, network = fault.targets[0], stage.network
    network.windows[name] = int(fault.amount)

    def end() -> None:
        network.windows.pop(name, None)
        for connection in network.connections:
            connection.drained()

    return end


def _set_hosts(stage: "Stage", fault: Fault) -> End:
    """A client is given other servers."""
    name, *servers = fault.targets
    client, machine = stage.clients.get(name), stage.machines[name]
    if client is not None:
        machine.call_soon(client.set_hosts, stage.ensemble.hosts(servers))
    return None


def _write(stage: "Stage", fault: Fault) -> End:
    """An operator writes `seconds` millions of bytes into one of the nodes that the scenario names."""
    paths = stage.scenario.writable()
    if paths:
        path = paths[int(fault.amount * len(paths))]
        stage.ensemble.act(SetDataRequest(path, b"x" * int(fault.seconds * 1000), -1))
    return None


_FOREIGN: Final = (ACL(Perms.ALL, "digest", "a:stranger"),)
_MANY: Final = {"many": 200, "very many": 10_000}
# What strangers make, and how often.
_STRANGERS: Final = {"negative": 4, "high": 4, "between": 4, "twin": 4, "unreadable": 2, "many": 1, "very many": 0.02}


def _stranger(stage: "Stage", fault: Fault) -> End:
    """Another client makes persistent nodes that look like tickets; the unreadable ones are deleted at the end."""
    ensemble, kind, rng = stage.ensemble, fault.targets[0], stage.world.rng
    lines = stage.scenario.lines()
    if not lines:
        return None
    line = lines[int(fault.amount * len(lines))]
    tickets = [path for path in ensemble.nodes_below(line) if path[-10:].isdigit()]
    newest = max((int(path[-10:]) for path in tickets), default=0)
    paths = []
    for _ in range(_MANY.get(kind, 1)):
        match kind:
            case "twin" | "unreadable" if tickets:
                path = rng.choice(tickets)
                paths.append(f"{path[:-10]}{int(path[-10:]) + rng.randint(1, 3):010d}")
            case "negative":
                # So far below that the distance to the next numbers is beyond 31 bits.
                paths.append(f"{line}/x90143-{newest + rng.randint(-2, 8) - 2**31:010d}")
            case "high":
                paths.append(f"{line}/x-{2**31 - rng.randint(1, 5):010d}")
            case _:
                paths.append(f"{line}/x{rng.randrange(10**6)}-{newest + rng.randint(-2, 6):010d}")
    acl = _FOREIGN if kind == "unreadable" else OPEN_ACL
    there = ensemble.nodes_below("")
    for parent in zkwire.ancestors(line):
        if parent not in there:
            ensemble.act(CreateRequest(parent, b"", OPEN_ACL, 0))
    made = [path for path in paths if path not in there and ensemble.act(CreateRequest(path, b"", acl, 0))]
    ensemble.strangers.update(made)

    def end() -> None:
        # Again and again: a leader that is deposed loses the deletion, and a creation may be committed after it.
        for path in made:
            if path in ensemble.every_node():
                ensemble.delete(path)
        stage.world.after(1.0, end)

    return end if kind == "unreadable" else None


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
    "kill-leader": _kill_leader,
    "delay": _delay,
    "pause": _pause,
    "kill": _kill,
    "block": _block,
    "suspend": _suspend,
    "expire": _expire,
    "throttle": _throttle,
    "delete": _delete,
    "lag": _lag,
    "restart": _restart,
    "power-off": _power_off,
    "crash": _crash,
    "freeze": _freeze,
    "drift": _drift,
    "narrow": _narrow,
    "set-hosts": _set_hosts,
    "write": _write,
    "stranger": _stranger,
}

# Kinds that are chosen more often than others; a lag is added behind the others, see `with_lags`.
_WEIGHTS: Final = {"cut": 2, "trip": 3, "stall": 2, "isolate-home": 4, "isolate-leader": 4, "lag": 0} | dict.fromkeys(
    ("pause-leader", "kill-leader", "power-off", "crash", "freeze", "stranger"), 2
)

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
    at = rng.uniform(0.0, HORIZON * rng.choice([1, 1, 1, 3]))
    early = seconds * rng.choice([0.0, 0.0, 0.1, 0.5])
    other = rng.choice([name for name in (*servers, client) if name != server])
    match kind:
        case "cut" | "expire":
            return Fault(at, kind, (client,))
        case "isolate-home":
            return Fault(at, kind, (client, rng.choice(["up", "down", "both"])), seconds, early)
        case "trip":
            return Fault(at, kind, (client,), seconds, amount=float(rng.choice([2, 4, 8, 30])))
        case "silence":
            return Fault(at, kind, (client, rng.choice(["up", "down", "both"])))
        case "split":
            return Fault(at, kind, (server, other) if rng.random() < 0.5 else (other, server), seconds, early)
        case "stall":
            return Fault(at, kind, (server, other) if rng.random() < 0.5 else (other, server), seconds)
        case "delay":
            pair = (server, other) if rng.random() < 0.5 else (other, server)
            return Fault(at, kind, pair, seconds, amount=rng.choice([0.01, 0.1, 0.5, 1.0]) * shape.tick)
        case "maroon":
            return Fault(at, kind, (client,), seconds, early)
        case "isolate":
            return Fault(at, kind, (server,), seconds, early)
        case "isolate-leader":
            return Fault(at, kind, (), seconds, early)
        case "block" | "suspend":
            return Fault(at, kind, (client,), seconds)
        case "freeze":
            return Fault(at, kind, (client,), 2 * seconds, float(rng.choice([0, 1, 2, 3, 5, 8, 13])))
        case "crash":
            times = rng.choice([0.0, 0.0, 1.0, 1.0, 2.0, 4.0])
            return Fault(at, kind, (client, rng.choice(["process", "process", "host"])), seconds, times)
        case "restart":
            return Fault(at, kind, (server,), seconds, rng.choice([2, 3, 5, 20]) * shape.tick)
        case "drift":
            return Fault(at, kind, (client,), amount=1 + rng.uniform(-DRIFT, DRIFT))
        case "narrow":
            return Fault(at, kind, (client,), seconds, amount=float(rng.choice([0, 100, 1000])))
        case "set-hosts":
            return Fault(at, kind, (client, *rng.sample(servers, rng.randint(1, len(servers)))))
        case "write":
            return Fault(at, kind, (), rng.choice([0.0, 0.01, 0.5]), rng.random())
        case "stranger":
            (what,) = rng.choices(list(_STRANGERS), list(_STRANGERS.values()))
            return Fault(at, kind, (what,), seconds, rng.random())
        case "throttle":
            return Fault(at, kind, (server,), seconds, amount=rng.choice([0.1, 0.5]))
        case "delete":
            return Fault(at, kind, (), amount=rng.random())
        case "pause-leader" | "kill-leader":
            return Fault(at, kind, (), seconds)
    return Fault(at, kind, (server,), seconds)


def with_lags(rng: Random, schedule: Schedule) -> Schedule:
    """Return the schedule; in one of eight cases with some servers that lag behind, beside its other faults."""
    if rng.random() >= _LAGS:
        return schedule
    shape, actors = schedule.shape, schedule.actors
    lags = [random_fault(rng, "lag", shape, actors) for _ in range(rng.choice([1, 2, 4]))]
    return replace(schedule, faults=tuple(sorted((*schedule.faults, *lags), key=lambda fault: fault.at)))
