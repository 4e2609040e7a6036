"""One trial of the promise that no two leases are certain at a time: an ensemble is split under a holder and a waiter.

The ensemble is real, with ZooKeeper's sample settings; its links are stalled and not closed, so that servers and
clients learn of it by silence alone.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import zkwire
from recipes import Lease, Lock, LockLostError
from tests.support.client import InOrder
from tests.support.split import SplitEnsemble
from zkwire.testing import EnsembleServer

Home = Literal["follower", "leader", "observer"]
Fault = Literal["both", "up", "down", "stopped leader", "leader cut off", "two stalls"]

LOOK: float = 0.005  # seconds between two looks at both leases
BETWEEN_STALLS: float = 8.0  # seconds: the followers give up a silent leader after 10


@dataclass
class Outcome:
    """What came of a trial; moments in seconds from the fault, None for what did not happen in time.

    `overlap` is for how long both leases were certain, as seen at looks that are LOOK apart.
    """

    overlap: float = 0.0
    body_ended: float | None = None
    next_owned: float | None = None
    was_running: bool = False  # the former holder's body, when the next one owned


@dataclass
class Trial:
    """One trial.

    Arguments: `timeout`, of both sessions, in seconds; `home`, the server that the holder is connected to; `fault`:
    the link between that server and the leader is stalled in both directions, up (towards the leader) or down, the
    leader's process is stopped, the leader is cut off from all other servers, or ("two stalls") first nothing gets from
    the leader to the others, and some seconds later nothing gets back; `knows_all`, whether the holder knows all
    servers, or its own one only; `patience`, for how many seconds to wait for the next owner.
    """

    timeout: float
    home: Home
    fault: Fault
    knows_all: bool
    patience: float = 40.0
    outcome: Outcome = field(default_factory=Outcome)
    _later: asyncio.TimerHandle | None = None

    async def run(self, ensemble: SplitEnsemble, path: str) -> Outcome:
        """Play the trial on an ensemble that is whole; it is whole again at the end."""
        leader, follower = await ensemble.leader(), await ensemble.follower()
        home = {"leader": leader, "follower": follower}.get(self.home) or ensemble.observer()
        others = [server for server in ensemble.servers if server is not home]
        away = [server for server in others if server is not leader] or others
        hosts = home.hosts if not self.knows_all else ",".join(server.hosts for server in (home, *others))
        async with (
            zkwire.connect(hosts, self.timeout, rng=InOrder()) as zk,
            zkwire.connect(",".join(server.hosts for server in away), self.timeout, rng=InOrder()) as other,
        ):
            assert zk.server == home.hosts
            holding: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
            first = asyncio.create_task(self._hold(Lock(zk, path), holding))
            lease = await holding
            second: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
            waiting = asyncio.create_task(self._wait(Lock(other, path), second))
            try:
                # Longer than the timeout: what the handshake has proven is used up.
                await self._watch(lease, second, lambda: False, 1.25 * self.timeout)
                assert lease.is_certain()
                assert not first.done()
                self._split(ensemble, home, leader)
                self._since = asyncio.get_running_loop().time()
                await self._watch(lease, second, waiting.done, self.patience)
            finally:
                if self.fault == "stopped leader":
                    leader.resume()
                if self._later is not None:
                    self._later.cancel()
                ensemble.heal()
                for task in (first, waiting):
                    task.cancel()
                await asyncio.wait([first, waiting])
        await ensemble.settled()
        return self.outcome

    def _split(self, ensemble: SplitEnsemble, home: EnsembleServer, leader: EnsembleServer) -> None:
        others = [server for server in ensemble.servers if server is not leader]
        if self.fault == "leader cut off":
            ensemble.cut_off(leader)
        elif self.fault == "two stalls":
            ensemble.stall([leader], others)
            self._later = asyncio.get_running_loop().call_later(BETWEEN_STALLS, ensemble.stall, others, [leader])
        elif self.fault == "stopped leader":
            leader.pause()
        elif home is leader:
            if self.fault in ("both", "up"):
                ensemble.stall(others, [leader])
            if self.fault in ("both", "down"):
                ensemble.stall([leader], others)
        else:
            if self.fault in ("both", "up"):
                ensemble.stall([home], [leader])
            if self.fault in ("both", "down"):
                ensemble.stall([leader], [home])

    async def _watch(
        self, first: Lease, second: asyncio.Future[Lease], is_over: Callable[[], bool], limit: float
    ) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + limit
        while loop.time() < end and not is_over():
            if first.is_certain() and second.done() and second.result().is_certain():
                self.outcome.overlap += LOOK
            await asyncio.sleep(LOOK)

    async def _hold(self, lock: Lock, holding: "asyncio.Future[Lease]") -> None:
        try:
            async with lock as lease:
                holding.set_result(lease)
                await asyncio.Event().wait()
        except LockLostError:
            self.outcome.body_ended = asyncio.get_running_loop().time() - self._since

    async def _wait(self, lock: Lock, owned: "asyncio.Future[Lease]") -> None:
        async with lock as lease:
            self.outcome.next_owned = asyncio.get_running_loop().time() - self._since
            self.outcome.was_running = self.outcome.body_ended is None
            owned.set_result(lease)
            await asyncio.sleep(2 * self.timeout)  # long enough for an overlap to be seen
