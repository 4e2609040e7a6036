"""Plays the faults of a schedule on servers, clients and links, and undoes each of them at its end."""

import asyncio
import random
from collections.abc import Sequence
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


class Player:
    """Plays faults; each is in the journal with its beginning and its end.

    A process has one fault at a time: another one that would meet it is skipped, and so is a fault of a leader or a
    follower at a moment at which the ensemble has none.  Faults of links may overlap.

    Args:
        arena: The servers and links.
        clients: By their numbers.
        journal: The parent's.
        rng: To choose among servers that have the same role.
    """

    def __init__(self, arena: Arena, clients: dict[int, ClientProcess], journal: Journal, rng: random.Random) -> None:
        self._arena = arena
        self._clients = clients
        self._journal = journal
        self._rng = rng
        self._busy: set[str] = set()

    async def play(self, faults: Sequence[Fault]) -> None:
        """Play all faults, and return when all are undone and every process runs again.

        Raises:
            ServerFailedError: in an ExceptionGroup, if a server does not start again.

        Cancellation:
            Links and stopped processes go on; processes that were killed are not started again.
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
            await self._play_on(client, f"client {client.number}", f"client {client.name}", fault)
            return
        server = await self._server(str(fault.target))
        if server is None:
            # The ensemble gets the time to recover: faults in this state would only keep it from electing a leader.
            self._journal.write("skipped", name=str(fault.target), fault=str(fault))
        else:
            await self._play_on(server, name := f"server {server.number}", name, fault)

    async def _play_on(self, process: EnsembleServer | ClientProcess, key: str, name: str, fault: Fault) -> None:
        verb, noun = fault.kind.split(" ", 1)
        is_of_process = verb in ("kill", "stop", "restart") and noun in ("server", "client")
        if is_of_process and key in self._busy:
            self._journal.write("skipped", name=name, fault=str(fault))
            return
        self._busy |= {key} if is_of_process else set()
        self._journal.write("FAULT", name=name, fault=str(fault))
        try:
            if is_of_process:
                await self._end_or_stop(verb, process, fault.seconds)
            elif isinstance(process, ClientProcess):
                await self._break_links_of_client(fault, process)
            else:
                await self._break_links_of_server(fault, process)
        finally:
            self._busy -= {key} if is_of_process else set()
            self._journal.write("fault ends", name=name, fault=fault.kind)

    async def _end_or_stop(self, verb: str, process: EnsembleServer | ClientProcess, seconds: float) -> None:
        if verb == "stop":
            process.pause()
            try:
                await asyncio.sleep(seconds)
            finally:
                process.resume()
            return
        if isinstance(process, ClientProcess):
            self._journal.write("killed", name="", client=process.name)
            process.kill()
            await asyncio.sleep(seconds)
            process.start()
            return
        if verb == "kill":
            process.kill()
        else:
            await process.stop()
        await asyncio.sleep(seconds)
        await process.start(within=START)

    # -- servers -----------------------------------------------------------------------------------------------

    async def _server(self, role: str) -> EnsembleServer | None:
        """Return a server that has the role now, None if there is none."""
        assert self._arena.ensemble is not None
        servers = self._arena.ensemble.servers
        modes = await asyncio.gather(*(server.mode() for server in servers))
        found = [server for server, mode in zip(servers, modes, strict=True) if mode == role]
        if role == HOME:
            homes = {client.home for client in self._clients.values()}
            found = [
                server
                for server, mode in zip(servers, modes, strict=True)
                if mode in ("follower", "observer") and server.number in homes
            ]
            return self._rng.choice(found) if found else None
        return found[0] if found else None

    async def _break_links_of_server(self, fault: Fault, server: EnsembleServer) -> None:
        assert self._arena.ensemble is not None
        others = [other for other in self._arena.ensemble.servers if other is not server]
        away, back = directions([server], others), directions(others, [server])
        kind: Kind = "stall"
        if fault.kind == "strand clients":
            for client in self._clients.values():
                if client.home == server.number:
                    client.hold_on(fault.seconds)
            await asyncio.sleep(QUIET)
        elif fault.kind == "close links":
            kind, back = "cut", []
        elif fault.kind == "delay links":
            kind = "delay"
        elif fault.kind != "cut off server":
            # These are of the link between the leader and a follower; of the leader itself, of all its links.
            leader = await self._server("leader")
            if leader is None or leader is server:
                away, back = back, away
            else:
                away, back = directions([server], [leader]), directions([leader], [server])
            if fault.kind == "stall to leader":
                back = []
            elif fault.kind == "stall from leader":
                away = []
        with self._arena.links.during(kind, away + back, fault.delay):
            await asyncio.sleep(fault.seconds - (QUIET if fault.kind == "strand clients" else 0))

    # -- clients -----------------------------------------------------------------------------------------------

    async def _break_links_of_client(self, fault: Fault, client: ClientProcess) -> None:
        servers = [number for number, _ in self._arena.servers if fault.server in (None, number)]
        away: list[Direction] = [(end(client.number), server) for server in servers]
        back: list[Direction] = [(server, source) for source, server in away]
        kinds: dict[str, tuple[Kind, list[Direction]]] = {
            "cut client": ("cut", away),
            "stall client": ("stall", away + back),
            "stall to client": ("stall", back),
            "stall from client": ("stall", away),
            "delay client": ("delay", away + back),
            # What waits in a direction that is stalled or delayed is lost when the connection breaks.
            "lose requests": ("stall", away),
            "lose answers": ("delay", back),
        }
        kind, ways = kinds[fault.kind]
        with self._arena.links.during(kind, ways, fault.delay):
            await asyncio.sleep(fault.seconds)
            if fault.kind.startswith("lose"):
                with self._arena.links.during("cut", away):
                    await asyncio.sleep(CUT)
