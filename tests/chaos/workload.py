"""What one client of a run does: it uses every recipe at once, without end, and writes into its journal what it knows.

Each recipe has one task.  An error ends one round of that task, and is written down; the next round begins afresh.
"""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import zkwire
from recipes import Counter, Election, Item, Lease, Lock, Queue, ReadWriteLock, Semaphore, WriteLease
from tests.chaos.journal import Journal
from tests.chaos.store import StaleTokenError, Store

LOCK: Final = "lock"
SHORT_WAITS: Final = "impatient"  # a lock whose contenders give up and are cancelled all the time
READ_WRITE: Final = "read-write"
ELECTION: Final = "election"
SEMAPHORE: Final = "semaphore"
PERMITS: Final = 3
QUEUE: Final = "queue"
CLAIMS: Final = "claims"
COUNTER: Final = "counter"

# What must go on again when all faults have ended, and the record that shows it.
PROGRESS: Final = {
    **dict.fromkeys((LOCK, SHORT_WAITS, READ_WRITE, ELECTION, SEMAPHORE), "acquired"),
    QUEUE: "got",
    CLAIMS: "put",
    COUNTER: "added",
}

SAMPLE: Final = 0.2  # seconds between two looks of a holder at its lease
LONGEST_HOLD: Final = 2.5  # session timeouts: a holder must be able to outlive its session


class HoldOn:
    """An order of the parent process: keep what is held, and begin nothing.

    A session on which nothing happens is the one that a server goes on to answer while it is cut off from its leader.
    """

    def __init__(self) -> None:
        self._until = 0.0

    def begin(self, seconds: float) -> None:
        """The order holds from now on for so many seconds."""
        self._until = max(self._until, time.monotonic() + seconds)

    def seconds_left(self) -> float:
        """Return for how long the order still holds; less than 0 when it does not."""
        return self._until - time.monotonic()

    async def over(self) -> None:
        """Wait while the order holds."""
        while (left := self.seconds_left()) > 0:
            await asyncio.sleep(left)


class Holding:
    """One lease in the journal: what its holder claims."""

    def __init__(self, journal: Journal, number: int, name: str, lease: Lease | Item, **details: Any) -> None:
        self._journal = journal
        self._lease = lease
        self._about: dict[str, Any] = {"name": name, "lease": number}
        # The clock is read first: a process that is stopped between the two readings must not claim too much.
        now = time.monotonic()
        until = now + lease.certain_for()
        journal.write("acquired", at=now, **self._about, token=lease.token, until=until, **details)

    def look(self) -> bool:
        """Write down until when the lease is certain; return whether it is."""
        now = time.monotonic()
        left = self._lease.certain_for()
        if left > 0:
            self._journal.write("certain", at=now, **self._about, until=now + left)
        return left > 0

    def ends(self) -> None:
        """Write down that the holder gives up its claim: it is about to release the lease, or has lost it."""
        now = time.monotonic()
        self._journal.write("released" if self._lease.certain_for() > 0 else "lost", at=now, **self._about)

    def write(self, what: str, **details: Any) -> None:
        """Write something about the lease, with whether it is certain now."""
        now = time.monotonic()
        self._journal.write(what, at=now, **self._about, certain=self._lease.certain_for() > 0, **details)

    async def stay(self, seconds: float, hold_on: HoldOn) -> None:
        """Hold for so long, and for as long as the order to hold on lasts."""
        end = time.monotonic() + seconds
        while (left := max(end - time.monotonic(), hold_on.seconds_left())) > 0:
            await asyncio.sleep(min(left, SAMPLE))
            self.look()


class Workload:
    """All tasks of one client.

    Args:
        zk: The client.
        store: What the locks protect.
        journal: Gets what the client knows.
        author: The client's name and number of life, which is part of the name of each item.
        rng: For every choice.
        hold_on: The parent's order.
    """

    def __init__(
        self, zk: zkwire.Client, store: Store, journal: Journal, author: str, rng: random.Random, hold_on: HoldOn
    ) -> None:
        self._zk = zk
        self._store = store
        self._journal = journal
        self._author = author
        self._rng = rng
        self._hold_on = hold_on
        self._leases = itertools.count(1)
        self._items = itertools.count(1)

    async def run(self) -> None:
        """Work until cancelled."""
        lock, impatient = Lock(self._zk, f"/{LOCK}"), Lock(self._zk, f"/{SHORT_WAITS}", local_passes=1)
        async with asyncio.TaskGroup() as group:
            for name, play in (
                ("sessions", self._follow_sessions),
                (LOCK, lambda: self._use_lock(lock)),
                (SHORT_WAITS, lambda: self._use_impatiently(impatient)),
                (READ_WRITE, self._use_read_write),
                (ELECTION, self._lead),
                (SEMAPHORE, self._use_semaphore),
                ("putting", self._put),
                (QUEUE, self._get),
                (CLAIMS, self._claim),
                (COUNTER, self._add),
            ):
                group.create_task(self._again_and_again(name, play))

    async def _again_and_again(self, name: str, play: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._hold_on.over()
            try:
                await play()
            except (zkwire.ZooKeeperError, TimeoutError) as error:
                transient = isinstance(error, zkwire.ServerError) and error.is_transient
                self._journal.write(
                    "error", name=name, error=type(error).__name__, text=str(error), transient=transient
                )
                await asyncio.sleep(self._rng.uniform(0, 0.2))

    async def _follow_sessions(self) -> None:
        session = 0
        async for state in self._zk.states():
            self._journal.write("session", state=state.name, session=self._zk.session_id)
            if session not in (0, self._zk.session_id):
                self._journal.write("session ended", session=session)
            session = self._zk.session_id

    def _dwell(self) -> float:
        """How long to hold: mostly short, so that owners change often, and sometimes past the session timeout."""
        kind = self._rng.random()
        if kind < 0.75:
            return self._rng.uniform(0.01, 0.1)
        if kind < 0.93:
            return self._rng.uniform(0.1, 1.0)
        return self._rng.uniform(1.0, LONGEST_HOLD * self._zk.session_timeout)

    @asynccontextmanager
    async def _held(self, name: str, lease: Lease | Item, **details: Any) -> AsyncIterator[Holding]:
        holding = Holding(self._journal, next(self._leases), name, lease, **details)
        try:
            yield holding
        finally:
            holding.ends()

    # -- locks --------------------------------------------------------------------------------------------------------

    async def _use_lock(self, lock: Lock) -> None:
        async with lock as lease, self._held(LOCK, lease) as holding:
            await self._update(LOCK, lease, holding)
            if self._rng.random() < 0.3:
                await self._update_guarded(LOCK, lease, holding)
            await holding.stay(self._dwell(), self._hold_on)
        await asyncio.sleep(self._rng.uniform(0, 0.05))

    async def _use_impatiently(self, lock: Lock) -> None:
        async def use() -> None:
            within = self._rng.choice([None, 0, self._rng.uniform(0, 2)])
            async with lock.hold(within=within) as lease, self._held(SHORT_WAITS, lease) as holding:
                await self._update(SHORT_WAITS, lease, holding)
                await holding.stay(self._rng.uniform(0, 0.2), self._hold_on)

        # Two tasks share the object; each may be cancelled at any point.
        limits = [self._rng.choice([10.0, self._rng.uniform(0, 1.5)]) for _ in range(2)]
        uses = [asyncio.wait_for(use(), limit) for limit in limits]
        outcomes = await asyncio.gather(*uses, return_exceptions=True)
        await asyncio.sleep(self._rng.uniform(0.05, 0.3))
        for error in outcomes:
            if error is not None and not isinstance(error, TimeoutError):
                raise error

    async def _use_read_write(self) -> None:
        rw = ReadWriteLock(self._zk, f"/{READ_WRITE}")
        if self._rng.random() < 0.7:
            async with rw.read() as lease, self._held(READ_WRITE, lease, mode="read") as holding:
                await self._look_twice(holding)
        else:
            async with rw.write() as lease:
                async with self._held(READ_WRITE, lease, mode="write") as holding:
                    await self._update(READ_WRITE, lease, holding)
                    await holding.stay(self._dwell() / 2, self._hold_on)
                if self._rng.random() < 0.3:
                    await self._downgrade(lease)
        await asyncio.sleep(self._rng.uniform(0, 0.1))

    async def _downgrade(self, lease: WriteLease) -> None:
        shared = await lease.downgrade()
        async with self._held(READ_WRITE, shared, mode="read") as holding:
            await self._look_twice(holding)

    async def _look_twice(self, holding: Holding) -> None:
        """Read the store at the beginning and at the end: no writer may have come in between."""
        for seconds in (self._dwell() / 2, 0.0):
            holding.write("read", value=self._store.answer(READ_WRITE, None))
            await holding.stay(seconds, self._hold_on)

    async def _lead(self) -> None:
        election = Election(self._zk, f"/{ELECTION}", self._author.encode())
        async for term in election.terms():
            async with term, self._held(ELECTION, term) as holding:
                await self._update(ELECTION, term, holding)
                await holding.stay(2 * self._dwell(), self._hold_on)

    async def _use_semaphore(self) -> None:
        async with Semaphore(self._zk, f"/{SEMAPHORE}", PERMITS) as lease, self._held(SEMAPHORE, lease) as holding:
            await holding.stay(self._dwell(), self._hold_on)
        await asyncio.sleep(self._rng.uniform(0, 0.05))

    async def _update(self, name: str, lease: Lease, holding: Holding) -> None:
        """Add one to the number in the store, with the fencing token."""
        try:
            value = self._store.answer(name, lease.token)
            await asyncio.sleep(self._rng.uniform(0, 0.01))
            self._store.answer(name, lease.token, value + 1)
        except StaleTokenError:
            holding.write("refused")

    async def _update_guarded(self, name: str, lease: Lease, holding: Holding) -> None:
        """Add one to the number in a node, by a transaction that is carried out only while the lease's node exists."""
        path = guarded_path(name)
        await self._zk.sync(path)
        value = int((await self._zk.get(path)).data) + 1
        transaction = lease.transaction()
        transaction.set(path, b"%d" % value)
        try:
            results = await transaction.commit()
        except zkwire.TransactionError:
            holding.write("guard refused")
        else:
            stat = results[-1]
            assert isinstance(stat, zkwire.Stat)
            holding.write("guarded", value=value, version=stat.version)

    # -- queues and counters ------------------------------------------------------------------------------------------

    async def _put(self) -> None:
        queue = self._rng.choice([QUEUE, CLAIMS])
        item = f"{self._author}.{next(self._items)}"
        self._journal.write("putting", name=queue, item=item)
        await Queue(self._zk, f"/{queue}").put(item.encode())
        self._journal.write("put", name=queue, item=item)
        await asyncio.sleep(self._rng.uniform(0.05, 0.4))

    async def _get(self) -> None:
        self._journal.write("getting", name=QUEUE)
        try:
            data = await Queue(self._zk, f"/{QUEUE}").get(within=self._rng.choice([None, self._rng.uniform(0, 2)]))
        except (zkwire.ZooKeeperError, TimeoutError):
            self._journal.write("got none", name=QUEUE)
            raise
        self._journal.write("got", name=QUEUE, item=data.decode())
        await asyncio.sleep(self._rng.uniform(0, 0.1))

    async def _claim(self) -> None:
        async with Queue(self._zk, f"/{CLAIMS}").claim() as item:
            details = _named(item)
            async with self._held(lease=item, **details) as holding:
                await holding.stay(self._dwell(), self._hold_on)
                if self._rng.random() < 0.1:
                    raise TimeoutError("the item is handed back")
        self._journal.write("handled", **details)

    async def _add(self) -> None:
        self._journal.write("adding", name=COUNTER)
        value = await Counter(self._zk, f"/{COUNTER}").add(1)
        self._journal.write("added", name=COUNTER, value=value)
        await asyncio.sleep(self._rng.uniform(0.05, 0.4))


def _named(item: Item) -> dict[str, Any]:
    """What the journal says of a claimed item."""
    text = item.data.decode()
    return {"name": f"{CLAIMS}/{text}", "queue": CLAIMS, "item": text}


def guarded_path(name: str) -> str:
    """The node that the transactions of leases of the lock `name` write."""
    return f"/guarded-{name}"


async def prepare(zk: zkwire.Client) -> None:
    """Create what clients expect to find."""
    await zk.create(guarded_path(LOCK), b"0")


async def collect(zk: zkwire.Client, journal: Journal) -> None:
    """Write down what is left in the ensemble when all clients have ended: numbers, and the items of the queues."""
    for what, name, path in (
        ("guard at the end", LOCK, guarded_path(LOCK)),
        ("count at the end", COUNTER, f"/{COUNTER}"),
    ):
        await zk.sync(path)
        node = await zk.get(path)
        value = int(node.data) if name == LOCK else int.from_bytes(node.data, "big")
        journal.write(what, name=name, value=value, version=node.stat.version)
    queue, claims = Queue(zk, f"/{QUEUE}"), Queue(zk, f"/{CLAIMS}")
    leases = itertools.count(1)
    while await queue.size():
        journal.write("got", name=QUEUE, item=(await queue.get(within=0)).decode())
    while await claims.size():
        async with claims.claim(within=0) as item:
            holding = Holding(journal, next(leases), lease=item, **_named(item))
            holding.ends()
        journal.write("handled", **_named(item))
    for name in (QUEUE, CLAIMS):
        journal.write("drained", name=name)
