"""The faults: which there are, how a schedule gets some, and how each begins and ends.

To add one: a function that begins it and returns a function that ends it, or None, and a line in `KINDS`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

import zkwire
from tests.simulation.ensemble.ensemble import Shape
from tests.simulation.schedule import DRIFT, HORIZON, Actor, Fault, Schedule
from zkwire.testing.memory.state import Settings
from zkwire.wire.records import ACL, OPEN_ACL, Perms
from zkwire.wire.requests import CreateRequest, SetDataRequest

if TYPE_CHECKING:
    from tests.simulation.ensemble.server import SimulatedServer
    from tests.simulation.links import Connection
    from tests.simulation.stage import Stage

End: TypeAlias = Callable[[], object] | None
Begin: TypeAlias = Callable[["Stage", Fault], End]

# -- the network ------------------------------------------------------------------------------------------------------


def _connections(stage: "Stage", machine: str) -> "list[Connection]":
    return [each for each in stage.network.connections if each.machine.name == machine]


def _cut(stage: "Stage", fault: Fault) -> End:
    """The connections of a machine break, somewhere in what is on its way."""
    for connection in _connections(stage, fault.targets[0]):
        connection.cut()
    return None


def _trip(stage: "Stage", fault: Fault) -> End:
    """Each connection of a machine breaks after at most `amount` more pieces, also those that are opened meanwhile."""
    name, trips = fault.targets[0], stage.network.trips
    trips[name] = int(fault.amount)
    for connection in _connections(stage, name):
        connection.pieces_left = stage.world.rng.randrange(int(fault.amount) + 1)
    return lambda: trips.pop(name, None)


def _silence(stage: "Stage", fault: Fault) -> End:
    """What is sent on the machine's present connections is lost for ever, in one direction or in both."""
    for connection in _connections(stage, fault.targets[0]):
        connection.go_silent(up=fault.targets[1] != "down", down=fault.targets[1] != "up")
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


def _delay(stage: "Stage", fault: Fault) -> End:
    """All from one host to the other comes `amount` seconds later."""
    source, target = fault.targets
    stage.network.delay(source, target, fault.amount)
    return lambda: stage.network.delay(source, target, -fault.amount)


def _stall(stage: "Stage", fault: Fault) -> End:
    """Nothing gets from one host to the other."""
    return _block_each(stage, [(fault.targets[0], fault.targets[1])])


def _split(stage: "Stage", fault: Fault) -> End:
    """Nothing gets from one host to the other, or back."""
    return _block_all(stage, fault, fault.targets[0], [fault.targets[1]])


def _isolate(stage: "Stage", fault: Fault) -> End:
    """A server reaches no other server; its clients reach it."""
    return _block_all(stage, fault, fault.targets[0], _names(stage))


def _maroon(stage: "Stage", fault: Fault) -> End:
    """A machine reaches no server."""
    return _block_all(stage, fault, fault.targets[0], _names(stage))


def _isolate_home(stage: "Stage", fault: Fault) -> End:
    """The server that a machine is connected to at this moment reaches no other server, in one direction or in both."""
    for connection in _connections(stage, fault.targets[0])[:1]:
        home, others = connection.host, [name for name in _names(stage) if name != connection.host]
        match fault.targets[1]:
            case "up":
                return _block_each(stage, [(home, name) for name in others])
            case "down":
                return _block_each(stage, [(name, home) for name in others])
        return _block_all(stage, fault, home, others)
    return None


def _names(stage: "Stage") -> list[str]:
    return [server.name for server in stage.ensemble.servers]


def _block_all(stage: "Stage", fault: Fault, source: str, targets: Sequence[str]) -> Callable[[], object]:
    """Block these directions, which recover `fault.amount` seconds before the end, and those back."""
    others = [target for target in targets if target != source]
    outward = _block_each(stage, [(source, target) for target in others])
    back = _block_each(stage, [(target, source) for target in others])
    if fault.amount:
        stage.world.after(fault.seconds - fault.amount, outward)
        return back
    return lambda: (outward(), back())


def _block_each(stage: "Stage", pairs: list[tuple[str, str]]) -> Callable[[], None]:
    for pair in pairs:
        stage.network.block(*pair)

    def end() -> None:
        for pair in pairs:
            stage.network.unblock(*pair)

    return end


# -- servers ----------------------------------------------------------------------------------------------------------


def _server(stage: "Stage", fault: Fault) -> "SimulatedServer":
    return stage.ensemble.by_name(fault.targets[0])


def _of_the_leader(begin: Begin) -> Begin:
    """Return the fault of the server that leads at the moment at which it begins, if one does."""

    def begin_there(stage: "Stage", fault: Fault) -> End:
        found = stage.ensemble.leader()
        return None if found is None else begin(stage, replace(fault, targets=(found[0].name,)))

    return begin_there


def _pause(stage: "Stage", fault: Fault) -> End:
    """The process of a server is stopped; its connections stay open."""
    server = _server(stage, fault)
    server.pause()
    return server.go_on


def _lag(stage: "Stage", fault: Fault) -> End:
    """A follower or an observer carries out nothing of what is committed, and answers reads, handshakes and pings."""
    server = _server(stage, fault)
    server.lag()
    return server.catch_up


def _kill(stage: "Stage", fault: Fault) -> End:
    """The process of a server dies, and is started again at the end.

    If there is an `amount`, it grants sessions of so many seconds at the most from then on.
    """
    server = _server(stage, fault)
    if not server.is_up:
        return None
    server.kill()

    def start() -> None:
        if fault.amount:
            server.settings = Settings(tick_time=server.settings.tick_time, max_session_timeout=fault.amount)
        server.start()

    return start


def _power_off(stage: "Stage", fault: Fault) -> End:
    """The host of a server dies: no connection to it is reset, and none is refused before it is started again."""
    server = _server(stage, fault)
    if not server.is_up:
        return None
    for connection in list(stage.network.connections):
        if connection.host == server.name:
            connection.go_silent(up=True, down=True)
    recover = _block_all(stage, replace(fault, amount=0.0), server.name, [*stage.machines, *_names(stage)])
    server.kill()

    def end() -> None:
        server.start()
        recover()

    return end


def _throttle(stage: "Stage", fault: Fault) -> End:
    """A server refuses some requests, because it is overloaded."""
    server = _server(stage, fault)
    server.throttles += fault.amount

    def end() -> None:
        server.throttles -= fault.amount
        if server.throttles < 1e-9:
            server.throttles = 0.0

    return end


# -- clients ----------------------------------------------------------------------------------------------------------


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


def _stop(stage: "Stage", fault: Fault) -> End:
    """The event loop of a machine does not turn; or the machine is suspended, and its clock stands still."""
    machine = stage.machines[fault.targets[0]]
    machine.stop_running(suspend=fault.kind == "suspend")
    return machine.go_on


def _set_hosts(stage: "Stage", fault: Fault) -> End:
    """A client is given other servers."""
    name, *servers = fault.targets
    client, machine = stage.clients.get(name), stage.machines[name]
    if client is not None:
        machine.call_soon(client.set_hosts, stage.ensemble.hosts(servers))
    return None


# -- operators and other clients --------------------------------------------------------------------------------------


def _expire(stage: "Stage", fault: Fault) -> End:
    """An operator ends the session of a machine."""
    found = stage.ensemble.leader()
    client = stage.clients.get(fault.targets[0])
    if found is not None and client is not None and client.session_id:
        found[1].end_session(client.session_id)
        stage.ended_sessions.add(client.session_id)
    return None


def _delete(stage: "Stage", fault: Fault) -> End:
    """An operator deletes one of the nodes that the scenario allows to be deleted."""
    for path in _chosen(stage.scenario.deletable(), fault):
        if stage.ensemble.delete(path):
            for guard in stage.guards:
                guard.deleted(path)
    return None


def _write(stage: "Stage", fault: Fault) -> End:
    """An operator writes `seconds` millions of bytes into one of the nodes that the scenario names."""
    for path in _chosen(stage.scenario.writable(), fault):
        stage.ensemble.act(SetDataRequest(path, b"x" * int(fault.seconds * 1000), -1))
    return None


def _chosen(paths: Sequence[str], fault: Fault) -> Sequence[str]:
    """Return one of `paths`, if there is any."""
    return paths[int(fault.amount * len(paths)) :][:1]


_FOREIGN: Final = (ACL(Perms.ALL, "digest", "a:stranger"),)
_MANY: Final = {"many": 200, "very many": 10_000}
# What strangers make, and how often.
_STRANGERS: Final = {"negative": 4, "high": 4, "between": 4, "twin": 4, "unreadable": 2, "many": 1, "very many": 0.02}


def _stranger(stage: "Stage", fault: Fault) -> End:
    """Another client makes persistent nodes that look like tickets; the unreadable ones are deleted at the end."""
    ensemble, kind, rng = stage.ensemble, fault.targets[0], stage.world.rng
    lines = _chosen(stage.scenario.lines, fault)
    if not lines:
        return None
    (line,) = lines
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


# -- all of them ------------------------------------------------------------------------------------------------------

_WAYS: Final = ("up", "down", "both")
_CRASHES: Final = ("process", "process", "host")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A kind of faults, and how a random one is made.

    Arguments: `begin`; `weight`, how often it is chosen; `on`, its first target: "client", "server", "pair" or, of
    another kind, ""; `with_one`, of which its second target is one; `amounts`, of which its amount is one: in ticks if
    `in_ticks`, or a share of how long it lasts if `is_early`; `lasts`, of which it lasts about one, in ticks.
    """

    begin: Begin
    weight: float = 1
    on: str = ""
    with_one: Sequence[str] = ()
    amounts: Sequence[float] = (0.0,)
    in_ticks: bool = False
    is_early: bool = False
    lasts: Sequence[float] = (0.3, 1.0, 2.5, 5.0, 7.0)  # around the limits of sessions and servers is where it matters


_EARLY: Final = (0.0, 0.0, 0.1, 0.5)
_AT_ONCE: Final = (0.0,)
_ANYWHERE: Final = tuple(each / 100 for each in range(100))  # in a list

KINDS: Final[dict[str, _Kind]] = {
    "cut": _Kind(begin=_cut, weight=2, on="client", lasts=_AT_ONCE),
    "trip": _Kind(begin=_trip, weight=3, on="client", amounts=(2, 4, 8, 30)),
    "silence": _Kind(begin=_silence, on="client", with_one=_WAYS, lasts=_AT_ONCE),
    "narrow": _Kind(begin=_narrow, on="client", amounts=(0, 100, 1000)),
    "delay": _Kind(begin=_delay, on="pair", amounts=(0.01, 0.1, 0.5, 1.0), in_ticks=True),
    "stall": _Kind(begin=_stall, weight=2, on="pair"),
    "split": _Kind(begin=_split, on="pair", amounts=_EARLY, is_early=True),
    "isolate": _Kind(begin=_isolate, on="server", amounts=_EARLY, is_early=True),
    "isolate-leader": _Kind(begin=_of_the_leader(_isolate), weight=4, amounts=_EARLY, is_early=True),
    "isolate-home": _Kind(begin=_isolate_home, weight=4, on="client", with_one=_WAYS, amounts=_EARLY, is_early=True),
    "maroon": _Kind(begin=_maroon, on="client", amounts=_EARLY, is_early=True),
    "pause": _Kind(begin=_pause, on="server"),
    "pause-leader": _Kind(begin=_of_the_leader(_pause), weight=2),
    "kill": _Kind(begin=_kill, on="server"),
    "kill-leader": _Kind(begin=_of_the_leader(_kill), weight=2),
    "restart": _Kind(begin=_kill, on="server", amounts=(2, 3, 5, 20), in_ticks=True),
    "power-off": _Kind(begin=_power_off, weight=2, on="server"),
    "throttle": _Kind(begin=_throttle, on="server", amounts=(0.1, 0.5)),
    "lag": _Kind(begin=_lag, weight=0, on="server"),  # see `with_lags`
    "block": _Kind(begin=_stop, on="client"),
    "suspend": _Kind(begin=_stop, on="client"),
    "crash": _Kind(begin=_crash, weight=2, on="client", with_one=_CRASHES, amounts=(0, 0, 1, 1, 2, 4)),
    "freeze": _Kind(
        begin=_freeze, weight=2, on="client", amounts=(0, 1, 2, 3, 5, 8, 13), lasts=(0.6, 2.0, 5.0, 10.0, 14.0)
    ),
    "drift": _Kind(begin=_drift, on="client", amounts=(1 - DRIFT, 1 - DRIFT / 3, 1.0, 1 + DRIFT), lasts=_AT_ONCE),
    "set-hosts": _Kind(begin=_set_hosts, on="client", lasts=_AT_ONCE),
    "expire": _Kind(begin=_expire, on="client", lasts=_AT_ONCE),
    "delete": _Kind(begin=_delete, amounts=_ANYWHERE, lasts=_AT_ONCE),
    "write": _Kind(begin=_write, amounts=_ANYWHERE, lasts=(0.0, 0.01, 0.5)),
    "stranger": _Kind(begin=_stranger, weight=2, amounts=_ANYWHERE),
}

_LAGS: Final = 0.125  # how often a schedule gets servers that lag


def begin(stage: "Stage", fault: Fault) -> None:
    """Let `fault` begin; it ends by itself."""
    end = KINDS[fault.kind].begin(stage, fault)
    if end is not None:
        stage.world.after(fault.seconds, end)


def random_faults(rng: Random, shape: Shape, actors: Sequence[Actor]) -> tuple[Fault, ...]:
    """Return some faults, in the order of their beginnings.

    Those of one schedule are of few kinds, since faults of many kinds hide one another.
    """
    kinds = rng.choices(list(KINDS), [kind.weight for kind in KINDS.values()], k=rng.choice([1, 1, 2, 3, 5]))
    count = rng.choice([0, 1, 1, 1, 2, 2, 3, 4, 6, 10])
    faults = [random_fault(rng, rng.choice(kinds), shape, actors) for _ in range(count)]
    return tuple(sorted(faults, key=lambda fault: fault.at))


def random_fault(rng: Random, name: str, shape: Shape, actors: Sequence[Actor]) -> Fault:
    """Return a fault of that kind."""
    kind, servers = KINDS[name], shape.servers
    client, server = rng.choice(actors).name, rng.choice(servers)
    other = rng.choice([host for host in (*servers, client) if host != server])
    pair = (server, other) if rng.random() < 0.5 else (other, server)
    targets = {"client": (client,), "server": (server,), "pair": pair, "": ()}[kind.on]
    if kind.with_one:
        targets += (rng.choice(kind.with_one),)
    elif name == "set-hosts":
        targets += tuple(rng.sample(servers, rng.randint(1, len(servers))))
    elif name == "stranger":
        targets = tuple(rng.choices(list(_STRANGERS), list(_STRANGERS.values())))
    at = rng.uniform(0.0, HORIZON * rng.choice([1, 1, 1, 3]))
    seconds = rng.choice(kind.lasts) * shape.tick * rng.uniform(0.5, 1.5)
    amount = rng.choice(kind.amounts) * (shape.tick if kind.in_ticks else seconds if kind.is_early else 1.0)
    return Fault(at, name, targets, seconds, amount)


def with_lags(rng: Random, schedule: Schedule) -> Schedule:
    """Return the schedule; in one of eight cases with some servers that lag, beside its other faults."""
    if rng.random() >= _LAGS:
        return schedule
    lags = [random_fault(rng, "lag", schedule.shape, schedule.actors) for _ in range(rng.choice([1, 2, 4]))]
    return replace(schedule, faults=tuple(sorted((*schedule.faults, *lags), key=lambda fault: fault.at)))
