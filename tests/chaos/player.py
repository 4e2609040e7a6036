"""Plays the faults of a schedule on servers, clients and links, and undoes each of them at its end."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from tests.chaos.arena import Arena
from tests.chaos.clients import ClientProcess, end
from tests.chaos.journal import Journal
from tests.chaos.schedule import CLIENT_FAULTS, HOME, Fault
from tests.support.links import Direction, Kind
from tests.support.split import directions
from zkwire.testing import EnsembleServer

# Seconds in which a server must have started: other faults may keep it from finding a quorum, again and again.
START: Final = 300.0
# Seconds from the order to hold on until the link is stalled: what was under way ends, and the session gets quiet.
QUIET: Final = 2.5
# Seconds for which no new connection is made after answers or requests were lost.
CUT: Final = 0.2
_OF_PROCESSES: Final = ("kill server", "stop server", "restart server", "kill client", "stop client")


class Player:
    """Plays faults; each is in the journal with its beginning and its end.

    A process has one fault at a time: another one that would meet it is skipped, and so is a fault of a leader or a
    follower at a moment at which the ensemble has none.  Faults of links may overlap.
    Arguments: `rng`, to choose among servers that have the same role.
    """

    def __init__(self, arena: Arena, clients: dict[int, ClientProcess], journal: Journal, rng: random.Random) -> None:
        self._arena = arena
        self._clients = clients
        self._journal = journal
        self._rng = rng
        self._busy: set[str] = set()

    async def play(self, faults: Sequence[Fault]) -> None:
        """Play all faults, and return when all are undone and every process runs again.

        Raises: ServerFailedError, in an ExceptionGroup, when a server does not start again.
        Cancellation: links and stopped processes go on; processes that were killed are not started again.
        """
        loop = asyncio.get_running_loop()
        start = loop.time()
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                await asyncio.sleep(start + fault.at - loop.time())
                group.create_task(self._play(fault))

    async def _play(self, fault: Fault) -> None:
        if fault.kind in CLIENT_FAULTS:
            client = self._clients[int(fault.target)]
            name = f"client {client.name}"
            if self._goes(name, fault):
                with self._shown(name, fault):
                    await self._play_on_client(fault, client)
            return
        server = await self._server(str(fault.target))
        if server is None:
            # The ensemble gets the time to recover: faults in this state would only keep it from electing a leader.
            self._journal.write("skipped", name=str(fault.target), fault=str(fault))
        elif self._goes(name := f"server {server.number}", fault):
            with self._shown(name, fault):
                await self._play_on_server(fault, server)

    def _goes(self, name: str, fault: Fault) -> bool:
        is_busy = fault.kind in _OF_PROCESSES and name.partition(".")[0] in self._busy
        if is_busy:
            self._journal.write("skipped", name=name, fault=str(fault))
        return not is_busy

    @contextmanager
    def _shown(self, name: str, fault: Fault) -> Iterator[None]:
        process = name.partition(".")[0]
        if fault.kind in _OF_PROCESSES:
            self._busy.add(process)
        self._journal.write("FAULT", name=name, fault=str(fault))
        try:
            yield
        finally:
            if fault.kind in _OF_PROCESSES:
                self._busy.discard(process)
            self._journal.write("fault ends", name=name, fault=fault.kind)

    # -- servers -----------------------------------------------------------------------------------------------

    async def _server(self, role: str) -> EnsembleServer | None:
        """Return a server that has the role now, None if there is none."""
        assert self._arena.ensemble is not None
        servers = self._arena.ensemble.servers
        modes = await asyncio.gather(*(server.mode() for server in servers))
        if role == HOME:
            homes = {client.home for client in self._clients.values()}
            found = [
                server
                for server, mode in zip(servers, modes, strict=True)
                if mode in ("follower", "observer") and server.number in homes
            ]
            return self._rng.choice(found) if found else None
        return next((server for server, mode in zip(servers, modes, strict=True) if mode == role), None)

    async def _play_on_server(self, fault: Fault, server: EnsembleServer) -> None:
        if fault.kind == "stop server":
            server.pause()
            try:
                await asyncio.sleep(fault.seconds)
            finally:
                server.resume()
        elif fault.kind == "kill server":
            server.kill()
            await asyncio.sleep(fault.seconds)
            await server.start(within=START)
        elif fault.kind == "restart server":
            await server.stop()
            await asyncio.sleep(fault.seconds)
            await server.start(within=START)
        elif fault.kind == "strand clients":
            for client in self._clients.values():
                if client.home == server.number:
                    client.hold_on(fault.seconds)
            await asyncio.sleep(QUIET)
            kind, ways = await self._ways_of_server("cut off server", server)
            with self._arena.links.during(kind, ways):
                await asyncio.sleep(fault.seconds - QUIET)
        else:
            kind, ways = await self._ways_of_server(fault.kind, server)
            with self._arena.links.during(kind, ways, fault.delay):
                await asyncio.sleep(fault.seconds)

    async def _ways_of_server(self, fault: str, server: EnsembleServer) -> tuple[Kind, list[Direction]]:
        """Return what a fault does to which directions between servers."""
        assert self._arena.ensemble is not None
        others = [other for other in self._arena.ensemble.servers if other is not server]
        away, back = directions([server], others), directions(others, [server])
        if fault == "cut off server":
            return "stall", away + back
        if fault == "close links":
            return "cut", away
        if fault == "delay links":
            return "delay", away + back
        # The other faults are of the link between the leader and a follower; of the leader itself, of all its links.
        leader = await self._server("leader")
        if leader is None or leader is server:
            away, back = back, away
        else:
            away, back = directions([server], [leader]), directions([leader], [server])
        return "stall", {"stall to leader": away, "stall from leader": back, "stall both ways": away + back}[fault]

    # -- clients -----------------------------------------------------------------------------------------------

    async def _play_on_client(self, fault: Fault, client: ClientProcess) -> None:
        if fault.kind == "kill client":
            self._journal.write("killed", name="", client=client.name)
            client.kill()
            await asyncio.sleep(fault.seconds)
            client.start()
        elif fault.kind == "stop client":
            client.stop()
            try:
                await asyncio.sleep(fault.seconds)
            finally:
                client.go_on()
        else:
            servers = [number for number, _ in self._arena.servers if fault.server in (None, number)]
            away: list[Direction] = [(end(client.number), server) for server in servers]
            back: list[Direction] = [(server, source) for source, server in away]
            kinds: dict[str, tuple[Kind, list[Direction]]] = {
                "cut client": ("cut", away),
                "stall client": ("stall", away + back),
                "stall to client": ("stall", back),
                "stall from client": ("stall", away),
                "delay client": ("delay", away + back),
            }
            if fault.kind in ("lose requests", "lose answers"):
                # What waits in a direction that is stalled or delayed is lost when the connection breaks.
                loses: tuple[Kind, list[Direction]] = ("stall", away)
                if fault.kind == "lose answers":
                    loses = ("delay", back)
                with self._arena.links.during(*loses, fault.delay):
                    await asyncio.sleep(fault.seconds)
                    with self._arena.links.during("cut", away):
                        await asyncio.sleep(CUT)
                return
            kind, ways = kinds[fault.kind]
            with self._arena.links.during(kind, ways, fault.delay):
                await asyncio.sleep(fault.seconds)
