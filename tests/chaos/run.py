"""One run: clients work while faults are played; then all faults end, the work must go on, the history is checked."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import zkwire
from tests.chaos import workload
from tests.chaos.arena import SYNC_LIMITS, TIMEOUTS, Arena, real_ensemble
from tests.chaos.check import Expected, Violation, check
from tests.chaos.client import Orders
from tests.chaos.clients import ClientProcess, end
from tests.chaos.journal import PARENT, Journal, Reader, Record, in_order, printed
from tests.chaos.player import START, Player
from tests.chaos.schedule import Fault, schedule

RECOVERY: Final = 90.0  # seconds in which everything must go on when all faults have ended
POLL: Final = 0.2
EXPECTED: Final = Expected(
    permits={workload.SEMAPHORE: workload.PERMITS},
    queues=frozenset({workload.QUEUE}),
    claim_queues=frozenset({workload.CLAIMS}),
)


@dataclass(frozen=True)
class Plan:
    """What to play.

    Args:
        seed: Of everything that is left to chance.
        seconds: For how long.
        folder: Of the journals.
        clients: How many.
        broken: The deliberate faults to put into them.
        recovery: For how many seconds to wait, after the last fault, until everything goes on.
        enough: For a run without faults: it ends as soon as this says so of the violations until then, and nothing need
            go on.  None: faults are played.
    """

    seed: str
    seconds: float
    folder: Path
    clients: int = 8
    broken: tuple[str, ...] = ()
    recovery: float = RECOVERY
    enough: Callable[[Sequence[Violation]], bool] | None = None


@dataclass
class Outcome:
    """What came of a run: all records, what was violated, and when the run began."""

    records: list[Record]
    violations: list[Violation]
    start: float
    faults: list[Fault] = field(default_factory=list)

    def before(self, violation: Violation, count: int = 30) -> list[Record]:
        """Return the last records before a violation that concern the same name, or are faults."""
        of_interest = [
            record
            for record in self.records
            if record.at <= violation.at
            and record.what not in ("certain", "seen")
            and (record.name == violation.name or record.what in ("FAULT", "fault ends", "session"))
        ]
        return of_interest[-count:]


async def play(plan: Plan, arena: AbstractAsyncContextManager[Arena] | None = None) -> Outcome:
    """Play a run, by default on a real ensemble; the journals stay in the folder of the plan.

    Raises:
        ServerFailedError: if a server does not start.

    Cancellation:
        Ends every process.
    """
    plan.folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(f"{plan.seed}/run")
    journal = Journal(plan.folder / "parent.jsonl", PARENT)
    start = time.monotonic()
    try:
        sync_limit = rng.choice(SYNC_LIMITS)
        async with arena or real_ensemble(sync_limit) as there:
            journal.write("run", name="", seed=plan.seed, sync_limit=sync_limit, broken=plan.broken)
            async with zkwire.connect(there.hosts) as zk:
                await workload.prepare(zk)
            servers = len(there.servers)
            is_spared = there.ensemble is None
            faults = schedule(plan.seed, plan.seconds, clients=plan.clients, servers=servers, spares_servers=is_spared)
            if plan.enough is not None:
                faults = []
            async with _clients(plan, there, journal, rng) as clients:
                await _play(plan, there, clients, journal, faults)
            async with zkwire.connect(there.hosts) as zk:
                await _wait_until_gone(zk, journal, plan.recovery)
                await workload.collect(zk, journal)
    finally:
        journal.close()
    records = Reader(plan.folder).new()
    (plan.folder / "history.log").write_text("\n".join(printed(records, start)) + "\n", encoding="utf-8")
    return Outcome(records, check(records, EXPECTED), start, faults)


@asynccontextmanager
async def _clients(
    plan: Plan, arena: Arena, journal: Journal, rng: random.Random
) -> AsyncIterator[dict[int, ClientProcess]]:
    """Start the clients, each after relays of its own to every server; kill them at the end of the block."""
    clients: dict[int, ClientProcess] = {}
    async with AsyncExitStack() as stack:
        for number in range(1, plan.clients + 1):
            # One client in three knows a single server, and stays with it when it is cut off from its ensemble.  For
            # the first of them this is the observer: it never leads, and the others keep their quorum without it.
            servers = list(arena.servers)
            if number % 3 == 0:
                servers = [servers[-1] if number == 3 else rng.choice(servers)]
            relays = [
                await stack.enter_async_context(arena.links.relay(end(number), server, port))
                for server, port in servers
            ]
            orders = Orders(
                number=number,
                life=0,
                hosts=",".join(f"127.0.0.1:{relay.port}" for relay in relays),
                timeout=rng.choice(TIMEOUTS),
                seed=plan.seed,
                folder=str(plan.folder),
                broken=plan.broken,
            )
            clients[number] = ClientProcess(orders, journal, servers[0][0] if number % 3 == 0 else None)
            stack.callback(clients[number].kill)
            clients[number].start()
        yield clients


async def _play(
    plan: Plan, arena: Arena, clients: dict[int, ClientProcess], journal: Journal, faults: Sequence[Fault]
) -> None:
    reader = Reader(plan.folder)
    every = {client.name for client in clients.values()}
    missing = await _until_seen(reader, {(name, "connected", "") for name in every}, clients, plan.recovery)
    for name, _, _ in missing:
        journal.write("failed", name="", client=name, why=f"it did not connect within {plan.recovery:g} s")
    journal.write("begins", name="", faults=len(faults))
    if plan.enough is not None:
        await _until_enough(plan.folder, plan.seconds, plan.enough)
    else:
        player = Player(arena, clients, journal, random.Random(f"{plan.seed}/player"))
        await asyncio.gather(asyncio.sleep(plan.seconds), player.play(faults))
        await arena.settled(within=START)
        reader.new()
        journal.write("healed", name="")
        wanted = {("", what, name) for name, what in workload.PROGRESS.items()}
        missing = await _until_seen(reader, wanted, clients, plan.recovery)
        for _, _, name in sorted(missing):
            journal.write("stuck", name=name, seconds=plan.recovery)
    await asyncio.gather(*(client.finish(plan.recovery) for client in clients.values()))


async def _until_enough(folder: Path, limit: float, enough: Callable[[Sequence[Violation]], bool]) -> None:
    """Wait until `enough` says of the violations so far that they are, for `limit` seconds at most."""
    reader, records = Reader(folder), list[Record]()

    async def is_enough() -> bool:
        now = time.monotonic()
        records.extend(reader.new())
        # Of what is written while the journals are read one after the other, a part would be missing.
        return enough(check(in_order(record for record in records if record.at <= now), EXPECTED))

    await _until(is_enough, limit)


async def _until_seen(
    reader: Reader, wanted: set[tuple[str, str, str]], clients: dict[int, ClientProcess], limit: float
) -> set[tuple[str, str, str]]:
    """Wait until each wanted record (author or "" for any, what, name) has been written; return those that are missing.

    It ends early when a client has failed.
    """
    missing = set(wanted)

    async def is_complete() -> bool:
        for record in reader.new():
            missing.difference_update({(record.author, record.what, record.name), ("", record.what, record.name)})
        return not missing or any(client.fails() for client in clients.values())

    await _until(is_complete, limit)
    return missing


async def _wait_until_gone(zk: zkwire.Client, journal: Journal, limit: float) -> None:
    """Wait until the sessions of all clients have ended, also of those that were killed; write down what they left."""

    async def is_gone() -> bool:
        return not await _ephemerals(zk, "/")

    if not await _until(is_gone, limit):
        journal.write("left", name="", nodes=await _ephemerals(zk, "/"))


async def _until(condition: Callable[[], Awaitable[bool]], limit: float) -> bool:
    """Wait until the condition holds; return False if it does not within `limit` seconds."""
    end = time.monotonic() + limit
    while not await condition():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(POLL)
    return True


async def _ephemerals(zk: zkwire.Client, path: str) -> list[str]:
    """Return the paths of all ephemeral nodes below `path`."""
    found = []
    pending = [path]
    while pending:
        here = pending.pop()
        try:
            names, stat = await zk.get_children_and_stat(here)
        except zkwire.NoNodeError:
            continue  # it has gone meanwhile
        if stat.ephemeral_owner:
            found.append(here)
        pending += [zkwire.join_path(here, name) for name in names if here != "/" or name != "zookeeper"]
    return found
