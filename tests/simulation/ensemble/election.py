"""The election: an oracle that sees which servers reach each other, and gives them their roles.

The messages of the real election are left out.  What clients can see of it is kept: it takes a quorum of voters that
reach the new leader in both directions, the leader's history is the longest among them, they promise to follow no
earlier leader, and it takes some time.  A leader that has lost its followers does not learn of a new one: it goes on
until it has seen for syncLimit ticks that it has no quorum.
"""

from collections.abc import Sequence
from typing import Final

from tests.simulation.ensemble.leader import Leader
from tests.simulation.ensemble.learner import Learner
from tests.simulation.ensemble.server import SimulatedServer
from tests.simulation.links import Network

_LOOK_EVERY: Final = (0.1, 0.4)  # seconds


class Election:
    """Looks again and again whether servers without a role can get one."""

    def __init__(self, network: Network, servers: Sequence[SimulatedServer]) -> None:
        self._network = network
        self._servers = servers
        self._voters = [server for server in servers if server.is_voter]
        self.quorum = len(self._voters) // 2 + 1

    def look(self) -> None:
        """Give roles where it is possible, and look again later."""
        world = self._network.world
        looking = [server for server in self._servers if server.role is None and server.is_running]
        if looking:
            self._elect([server for server in looking if server.is_voter])
            for server in looking:
                if server.role is None:
                    self._join(server)
        world.after(world.rng.uniform(*_LOOK_EVERY), self.look)

    def lead(self, leader: SimulatedServer, group: Sequence[SimulatedServer]) -> None:
        """Make `leader` the leader of `group`, in which it is."""
        epoch = max(server.accepted_epoch for server in group) + 1
        for server in group:
            server.accepted_epoch = epoch
        role = Leader(leader, epoch, self.quorum)
        leader.take_role(role)
        role.begin()
        for server in group:
            if server is not leader:
                self._follow(server, leader)

    def _elect(self, looking: Sequence[SimulatedServer]) -> None:
        for candidate in sorted(looking, key=_rank, reverse=True):
            group = [each for each in looking if each is candidate or self._reach(candidate, each)]
            if len(group) >= self.quorum and max(group, key=_rank) is candidate:
                self.lead(candidate, group)
                return

    def _join(self, server: SimulatedServer) -> None:
        """Have `server` follow the leader that a quorum of the voters which it reaches follows."""
        for leader in self._voters:
            role = leader.role
            if not isinstance(role, Leader) or role.epoch < server.accepted_epoch:
                continue
            if not leader.is_running or not self._reach(server, leader):
                continue
            followers = [each for each in self._voters if each is leader or _follows(each, leader)]
            if sum(each.is_running and self._reach(server, each) for each in followers) >= self.quorum:
                self._follow(server, leader)
                return

    def _follow(self, server: SimulatedServer, leader: SimulatedServer) -> None:
        role = Learner(server, leader)
        server.take_role(role)
        role.begin()

    def _reach(self, one: SimulatedServer, other: SimulatedServer) -> bool:
        blocked = self._network.is_blocked
        return not blocked(one.name, other.name) and not blocked(other.name, one.name)


def _rank(server: SimulatedServer) -> tuple[int, int, str]:
    return server.current_epoch, server.last_zxid, server.name


def _follows(server: SimulatedServer, leader: SimulatedServer) -> bool:
    return isinstance(server.role, Learner) and server.role.leader is leader
