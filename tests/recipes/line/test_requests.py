"""What a ticket asks the server for, and in which writes, from entering to owning; and its tries, which do not wait."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

import zkwire
from recipes import Election, Lock, ReadWriteLock, Semaphore
from recipes.line.locking import Locking
from tests.support.everywhere import Scene, nothing_stays, scene
from tests.support.locks import start_waiting, taken
from tests.support.recipes import line, make_known, no_task_stays, outcome, until, until_armed, until_line
from zkwire import Client

pytestmark = pytest.mark.limit(30)

P = "/recipe"


class Writes(list[list[str]]):
    """The writes of a client, each with what it asks for; see `named`.  "w" behind a read: it sets a watch."""

    def __init__(self, zk: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        pipeline = zk.pipeline

        async def recorded(operations: Any) -> Any:
            self.append(
                [
                    f"{type(each).__name__} {each.path}" + (" w" if getattr(each, "into", None) is not None else "")
                    for each in operations
                ]
            )
            return await pipeline(operations)

        monkeypatch.setattr(zk, "pipeline", recorded)
        certify = zk.certify

        async def recorded_sync() -> None:
            self.append(["certify /"])
            await certify()

        monkeypatch.setattr(zk, "certify", recorded_sync)

    def named(self, names: list[str]) -> list[list[str]]:
        """Return the writes, and forget them: the line's node is called LINE, and the tickets `names` A, B, ..."""
        known = {f"{P}/{name}": chr(ord("A") + place) for place, name in enumerate(names)} | {P: "LINE"}
        found = [[self._named(each, known) for each in write] for write in self]
        self.clear()
        return found

    def _named(self, operation: str, known: dict[str, str]) -> str:
        kind, path, *rest = operation.split(" ")
        return " ".join([kind, known.get(path, "NEW"), *rest])


@asynccontextmanager
async def behind(
    stage: Scene, held: Sequence[Locking[Any]], waiting: Sequence[Locking[Any]]
) -> AsyncIterator[tuple[list[Any], list[str]]]:
    """Have `held` acquired and `waiting` waited for by the other client; yield leases, then tasks, and the names."""
    leases: list[Any] = [await lock.acquire() for lock in held]
    for lock in waiting:
        leases.append(await start_waiting(stage.other, lock, len(leases) + 1))
    yield leases, await line(stage.other, P)


async def test_a_lock_reads_its_node_first_looks_ahead_and_lists_when_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scene(P) as stage, no_task_stays():
        await make_known(stage.zk, P)
        other = [Lock(stage.other, P) for _ in range(4)]
        async with behind(stage, other[:1], other[1:]) as (line_, names):
            writes = Writes(stage.zk, monkeypatch)
            waiter = await start_waiting(stage.other, Lock(stage.zk, P), 5)
            names = await until_line(stage.other, P, 5)
            await until_armed(3, stage.zk)
            assert writes.named(names) == [
                ["Create NEW", "GetChildren LINE"],
                ["GetData E w", "GetData C w", "GetData D w"],
            ]
            yields: list[int] = []
            monkeypatch.setattr("recipes.line.waiting.yield_processor", lambda: yields.append(len(writes)))
            await line_[0].release()
            line_[1] = await line_[1]
            await stage.zk.ping()
            assert writes == []  # neither was watched
            await line_[1].release()  # nor was this one
            line_[2] = await line_[2]
            await stage.zk.ping()
            assert writes == []
            await line_[2].release()
            await until(lambda: len(writes) == 1)
            await until_armed(2, stage.zk)
            assert writes.named(names) == [["GetChildren LINE"]]  # A and B may be there still
            line_[3] = await line_[3]
            await line_[3].release()
            lease = await waiter
            assert writes == []
            assert len(yields) == 2  # to another process: at an event that is not decisive, and before the list
            await lease.release()
        await nothing_stays(stage)


async def test_a_semaphore_reads_its_permits_and_catches_up_after_a_reconnect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pitfall 77."""
    async with scene(P) as stage, no_task_stays():
        await Semaphore(stage.other, P, 2).contenders()
        async with Semaphore(stage.zk, P, 2):
            pass
        with stage.server.answering("getData", zkwire.QuotaExceededError, path=P, session=stage.zk.session_id):
            assert isinstance(await outcome(Semaphore(stage.zk, P, 2).acquire()), zkwire.QuotaExceededError)
        held = [Semaphore(stage.other, P, 2) for _ in range(2)]
        async with behind(stage, held, [Semaphore(stage.other, P, 2)]) as (line_, names):
            writes = Writes(stage.zk, monkeypatch)
            waiter = await start_waiting(stage.other, Semaphore(stage.zk, P, 2), 4)
            names = await until_line(stage.other, P, 4)
            await until_armed(5, stage.zk)
            first = ["GetData D w", "GetData LINE w"]
            assert writes.named(names) == [
                ["Create NEW", "GetChildrenAndStat LINE", "GetData LINE"],
                [*first, "GetData A w", "GetData B w", "GetData C w"],
            ]
            stage.server.drop(stage.zk.session_id)
            await stage.zk.ping()
            assert writes == []  # the watches were set again: nothing is asked before the next event
            await line_[0].release()
            third = await line_[2]
            await until(lambda: len(writes) >= 2)
            await until_armed(4, stage.zk)
            assert writes.named(names) == [["Sync LINE", *first, "GetChildren LINE"], ["GetData B w", "GetData C w"]]
            await Semaphore(stage.other, P, None).resize(3)
            lease = await waiter
            assert writes.named(names) == [["GetData LINE w"]]
            for each in (line_[1], third, lease):
                await each.release()
        await nothing_stays(stage, ["resized"])


async def test_a_blocker_that_has_changed_is_read_again_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scene(P) as stage, no_task_stays():
        await make_known(stage.zk, P)
        leader = await Election(stage.other, P).acquire()
        waiter = await start_waiting(stage.other, Lock(stage.zk, P), 2)
        writes, names = Writes(stage.zk, monkeypatch), await line(stage.other, P)
        await leader.set(b"news")
        await until(lambda: bool(writes))
        await until_armed(2, stage.zk)
        assert writes.named(names) == [["GetData A w"]]
        own, shared = "GetData B w", ["Sync LINE", "GetChildrenAndStat LINE"]
        for most, lists in (1, [[own, "GetChildren LINE"]]), (0, [[own], shared]):
            monkeypatch.setattr("recipes.line.known._MOST_LISTS", most)
            stage.server.drop(stage.zk.session_id)
            await stage.zk.ping()
            await leader.set(b"more")
            await until(lambda: [f"GetData {leader.path} w"] in writes)
            await until_armed(2, stage.zk)
            assert writes.named(names) == [*lists, ["GetData A w"]]
        await leader.release()
        await (await waiter).release()
        await nothing_stays(stage)


async def test_behind_a_node_that_must_not_be_read_the_children_are_watched(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(P) as stage, no_task_stays():
        await make_known(stage.zk, P)
        secret = [zkwire.ACL(zkwire.Perms.ALL & ~zkwire.Perms.READ, "world", "anyone")]
        node = await stage.other.create(f"{P}/lock-", ephemeral=True, sequential=True, acl=secret)
        writes = Writes(stage.zk, monkeypatch)
        waiter = asyncio.create_task(Lock(stage.zk, P).acquire())
        names = await until_line(stage.other, P, 2)
        await until_armed(2, stage.zk)
        assert writes.named(names) == [
            ["Create NEW", "GetChildren LINE"],
            ["GetData B w", "GetData A w"],
            ["GetChildren LINE w"],
        ]
        assert f"{node} is in the line and must not be read by this client" in caplog.text
        monkeypatch.setattr("recipes.line.known._MOST_LISTS", 0)  # others list, too
        behind_us = await stage.other.create(f"{P}/lock-", ephemeral=True, sequential=True)
        await until(lambda: bool(writes))
        await until_armed(2, stage.zk)
        assert writes.named(names) == [["GetChildren LINE w"]]
        await stage.other.delete(node)
        lease = await waiter
        assert writes.named(names) == [["GetChildren LINE w"]]
        await lease.release()
        await stage.other.delete(behind_us)
        await nothing_stays(stage)


# -- tries ------------------------------------------------------------------------------------------------------------


async def trying(lock: Locking[Any], writes: Writes, names: list[str]) -> list[str]:
    """Try to acquire a lock that is held; return which nodes were read one by one."""
    assert await lock.try_acquire() is None
    return [each for write in writes.named(names) for each in write if each in ("GetData A", "GetData B")]


async def test_a_try_asks_for_no_ticket_behind_the_holder() -> None:
    async with scene(P) as stage, no_task_stays():
        held = await Lock(stage.other, P).acquire()
        waiter = await start_waiting(stage.other, Lock(stage.other, P), 2)
        with stage.server.delay_replies(0.0, "exists", session=stage.zk.session_id) as asked:
            for _ in range(2):
                assert await Lock(stage.zk, P).try_acquire() is None
        assert asked.hits == 0
        await held.release()
        await (await waiter).release()
        await nothing_stays(stage)


def in_order(monkeypatch: pytest.MonkeyPatch, *zks: Client) -> None:
    """Give the tickets of these clients names in their order, whatever their numbers."""
    for number, zk in enumerate(zks):
        monkeypatch.setattr(zk, "unique_id", lambda number=number: f"00000000-0000-4000-8000-00000000000{number}")


async def test_after_a_try_in_vain_a_try_looks_first_and_takes_none_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pitfall 91: a ticket would keep out others that try."""
    async with scene(P) as stage, no_task_stays():
        await make_known(stage.zk, P)
        in_order(monkeypatch, stage.other, stage.zk)
        held = await Lock(stage.other, P).acquire()
        names = await line(stage.other, P)
        writes = Writes(stage.zk, monkeypatch)
        look, ticket = ["Sync LINE", "GetChildrenAndStat LINE"], ["Create NEW", "GetChildren LINE"]
        for expected in ([ticket], [look, ["GetData A"]], [look]):
            assert await Lock(stage.zk, P).try_acquire() is None
            assert writes.named(names) == expected
        await held.release()
        for is_cut_off, expected in ((False, [look, ticket]), (True, [["certify NEW"], ticket])):
            monkeypatch.setattr(stage.zk, "is_cut_off", lambda is_cut_off=is_cut_off: is_cut_off)
            # It looks no more once a try has succeeded, but asks the leader before others may wait for its node.
            lease = await taken(Lock(stage.zk, P))
            assert writes.named(names) == expected
            await lease.release()
        await nothing_stays(stage)


async def test_of_tickets_that_meet_the_one_with_the_smallest_name_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pitfall 91: those before it may belong to tries, too."""
    async with scene(P) as stage, no_task_stays():
        await make_known(stage.zk, P)
        in_order(monkeypatch, stage.zk, stage.other)
        held = await Lock(stage.other, P).acquire()
        with stage.server.hold_replies("sync", session=stage.zk.session_id) as asked:
            trying = asyncio.create_task(Lock(stage.zk, P).try_acquire())
            await asked.until_hit()
            await held.release()
            # That list may be from before the release; the next one is not.
        lease: Any = await trying
        writes = Writes(stage.other, monkeypatch)
        assert await Lock(stage.other, P).try_acquire() is None
        assert len(writes) == 1  # the other name is not the smallest one
        writes = Writes(stage.zk, monkeypatch)
        monkeypatch.setattr(stage.zk, "unique_id", lambda: "00000000-0000-0000-0000-000000000000")
        assert await Lock(stage.zk, P).try_acquire() is None
        assert len(writes) == 3  # its ticket, and two looks
        await lease.release()
        await nothing_stays(stage)


@pytest.mark.parametrize("slots", [1, 2])
async def test_a_try_goes_round_nodes_that_are_no_tickets(
    slots: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(P) as stage, no_task_stays():
        locks = [Semaphore(zk, P, 2) if slots == 2 else Lock(zk, P) for zk in (stage.zk, stage.other)]
        async with locks[0]:
            pass
        for _ in range(slots + 1):
            await stage.other.create(f"{P}/note-", sequential=True)
        names = await line(stage.other, P)
        writes = Writes(stage.zk, monkeypatch)
        assert await trying(locks[0], writes, names) == []
        lease = await taken(locks[0])
        assert all(f"{P}/{name} is not ephemeral" in caplog.text for name in names[:slots])
        reads = [["GetData A", "GetData B"][:slots]]  # of the others, only whether they exist
        found = [write for write in writes.named(names) if write[0].startswith("GetData")]
        assert found == reads * 2  # once without a ticket, once with it
        await lease.release()
        held = [await lock.acquire() for lock in [locks[1]] * slots]
        assert await locks[0].try_acquire() is None
        assert await locks[0].try_acquire() is None
        for each in held:
            await each.release()
        await nothing_stays(stage, names)


@pytest.mark.parametrize(
    ("error", "expected"),
    [(zkwire.NoAuthError, None), (zkwire.QuotaExceededError, zkwire.QuotaExceededError), (zkwire.ThrottledError, None)],
)
async def test_a_reader_that_tries_reads_a_single_writer(
    error: type[zkwire.ServerError], expected: type[zkwire.ServerError] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene(P) as stage, no_task_stays():
        await make_known(stage.zk, P)
        holder = await ReadWriteLock(stage.other, P).write().acquire()
        names = await line(stage.other, P)
        writes, reading = Writes(stage.zk, monkeypatch), ReadWriteLock(stage.zk, P).read()
        assert await trying(reading, writes, names) == ["GetData A"]
        assert await trying(reading, writes, names) == ["GetData A"]  # it may let readers in by now
        waiter = await start_waiting(stage.other, ReadWriteLock(stage.other, P).write(), 2)
        assert await trying(reading, writes, names) == []  # the last of several waits
        waiter.cancel()
        await until_line(stage.other, P, 1)
        with stage.server.answering("getData", error, session=stage.zk.session_id, times=1):
            came = await outcome(reading.try_acquire())
        assert (came if expected is None else type(came)) is expected
        writes.clear()
        await until_line(stage.other, P, 1)
        lease = await holder.downgrade()
        with stage.server.answering("getData", zkwire.ThrottledError, session=stage.zk.session_id, times=1) as refused:
            shared = await taken(reading)
        assert refused.hits == 1
        await lease.release()
        await shared.release()
        await nothing_stays(stage)


async def test_a_try_whose_blocker_has_left_meanwhile_succeeds() -> None:
    async with scene(P) as stage, no_task_stays():
        held = await Lock(stage.other, P).acquire()
        lock = Lock(stage.zk, P)
        assert await lock.try_acquire() is None
        with stage.server.answering("getData", zkwire.NoNodeError, session=stage.zk.session_id, times=2) as asked:
            lease = await taken(lock)  # it takes a ticket, and reads again
        assert asked.hits == 2
        await lease.release()
        await held.release()
        await nothing_stays(stage)
