"""Several servers as one: started together, and what a test asks of all of them."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from tests.simulation.ensemble.election import Election
from tests.simulation.ensemble.habits import Habits
from tests.simulation.ensemble.history import HEADER_SIZE, Replica, Transaction
from tests.simulation.ensemble.leader import Leader
from tests.simulation.ensemble.server import SimulatedServer
from tests.simulation.links import Network
from zkwire.testing.memory.state import Settings
from zkwire.testing.memory.tree import CONFIG_NODE
from zkwire.wire.records import OPEN_ACL
from zkwire.wire.requests import CreateRequest, DeleteRequest, Request


class Frontier:
    """How far the server has come that has come furthest.

    `listeners` are called for each transaction, with the copy of the server that is the first to carry it out.
    """

    def __init__(self) -> None:
        self.listeners: list[Callable[[Replica], None]] = []
        self._count = 0

    def applied(self, count: int, replica: Replica) -> None:
        """Record that a server has carried out its transaction number `count`."""
        if count > self._count:
            self._count = count
            for listener in self.listeners:
                listener(replica)


@dataclass(frozen=True, slots=True)
class Shape(Habits):
    """What an ensemble looks like, with the habits of its servers.

    Arguments: `voters` and `observers`, how many; `tick`, in seconds; `longest`, the longest session timeout that each
    server grants, in seconds, None where it is 20 ticks.
    """

    voters: int = 3
    observers: int = 0
    tick: float = 2.0
    longest: tuple[float | None, ...] = ()

    @property
    def servers(self) -> tuple[str, ...]:
        """The names of all servers, the voters first."""
        return tuple(f"s{number}" for number in range(1, self.voters + self.observers + 1))


class Ensemble:
    """The servers s1, s2, ... of `shape`; the voters come first, and the first one leads at the beginning."""

    def __init__(self, network: Network, shape: Shape) -> None:
        self.network = network
        self.shape = shape
        count = shape.voters + shape.observers
        longest = (*shape.longest, *[None] * count)
        self.frontier = Frontier()
        self.strangers: set[str] = set()  # persistent nodes that look like tickets
        self.servers = [
            SimulatedServer(
                network,
                f"s{number}",
                number,
                Settings(tick_time=shape.tick, max_session_timeout=longest[number - 1]),
                shape,
                is_voter=number <= shape.voters,
                on_applied=self.frontier.applied,
            )
            for number in range(1, count + 1)
        ]
        self.election = Election(network, self.servers)
        config = "".join(
            f"server.{number}={each.name}:2888:3888:{'participant' if each.is_voter else 'observer'};{each.name}:2181\n"
            for number, each in enumerate(self.servers, 1)
        )
        for server in self.servers:
            server.replica.tree.nodes[CONFIG_NODE].data = f"{config}version=0".encode()

    def preset(self, paths: Sequence[str]) -> None:
        """Have these nodes from the beginning; to be called before `start`."""
        for zxid, path in enumerate(paths, 1):
            request = CreateRequest(path, b"", OPEN_ACL, 0)
            entry = Transaction(zxid, 0, 0, CreateRequest.opcode, bytes(HEADER_SIZE) + request.encode())
            for server in self.servers:
                server.log.append(entry)

    def start(self) -> None:
        """Start all servers."""
        voters = [server for server in self.servers if server.is_voter]
        self.election.lead(voters[0], voters)
        self.election.look()

    def by_name(self, name: str) -> SimulatedServer:
        """Return the server of that name."""
        return self.servers[int(name[1:]) - 1]

    def leader(self) -> tuple[SimulatedServer, Leader] | None:
        """Return the present leader, that of the newest epoch, None while there is none that serves."""
        serving = [
            (server, server.role)
            for server in self.servers
            if isinstance(server.role, Leader) and server.role.is_serving and server.is_running
        ]
        return max(serving, key=lambda each: each[1].epoch, default=None)

    def hosts(self, names: Sequence[str] = ()) -> str:
        """Return the connect string of the servers of these names, or of all."""
        return ",".join(f"{name}:2181" for name in names or [server.name for server in self.servers])

    def nodes_below(self, path: str) -> list[str]:
        """Return the paths below `path`, as the server with the longest history has them."""
        return sorted(each for each in self.every_node() if each.startswith(f"{path}/") and each not in self.strangers)

    def every_node(self) -> Collection[str]:
        """Return the paths of all nodes, as the server with the longest history has them."""
        return max(self.servers, key=lambda server: server.applied).replica.tree.nodes.keys()

    def delete(self, path: str) -> bool:
        """Delete a node as an operator does; return whether there is a leader to do it."""
        return self.act(DeleteRequest(path, -1))

    def act(self, request: Request[Any]) -> bool:
        """Carry out a request of an operator; return whether there is a leader to do it."""
        found = self.leader()
        if found is None:
            return False
        found[1].act(request.opcode, bytes(HEADER_SIZE) + request.encode())
        return True

    def sessions(self) -> list[int]:
        """Return the sessions that live, as the server with the longest history has them."""
        return list(max(self.servers, key=lambda server: server.applied).replica.sessions.by_id)

    def watches(self) -> list[str]:
        """Return a line for each watch that a server has."""
        return [
            f"{server.name}: a watch on {path}" for server in self.servers for path in server.replica.watches.by_path
        ]
