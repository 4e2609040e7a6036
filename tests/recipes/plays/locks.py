"""Plays of all that is held: each kind of lock alone, tried, behind a holder and waiting; and what only one does."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from unittest.mock import patch

from recipes import Election, Lock, MultiLock, ReadWriteLock, ReentrantLock, Semaphore, Term, TimedLock, TryLock
from recipes.line.known import known_of
from recipes.line.lease import Lease, LockLostError
from recipes.line.locking import Locking
from recipes.line.ticket import ASKED
from tests.recipes.plays.entry import CANCEL, CUT, EVERY, EXPIRE, FORBID, Entry
from tests.support.everywhere import Play, Scene
from tests.support.locks import hung, start_waiting, taken, watch_count
from tests.support.recipes import all_watches, line, outcome, until, until_armed, until_line
from zkwire import ACL, Client, NoNodeError, Perms, SessionExpiredError

_BUT_CANCEL: Final = EVERY - {CANCEL}
LOST: Final = (LockLostError, SessionExpiredError)
Make = Callable[[Client, str], Locking[Any]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of lock: how it is made, what another client has that keeps it from being acquired, and what may stay."""

    make: Make
    blockers: tuple[Make, ...]
    stays: tuple[str, ...] = ()
    waits: bool = True
    is_slow: bool = False


def _semaphore(zk: Client, path: str) -> Semaphore:
    return Semaphore(zk, path, 2)


class _Both(Semaphore):
    """Takes both permits at once."""

    async def acquire(self, *, within: float | None = None, permits: int = 2) -> Lease:
        return await super().acquire(within=within, permits=permits)

    async def try_acquire(self, *, permits: int = 2) -> Lease | None:
        return await super().try_acquire(permits=permits)


def _reader(zk: Client, path: str) -> Locking[Any]:
    return ReadWriteLock(zk, path).read()


def _writer(zk: Client, path: str) -> Locking[Any]:
    return ReadWriteLock(zk, path).write()


def _try_lock(zk: Client, path: str) -> TryLock:
    return TryLock(zk, f"{path}/job")


KINDS: Final = {
    "lock": Kind(Lock, (Lock,)),
    "lock below missing parents": Kind(
        lambda zk, path: Lock(zk, f"{path}/a/b"),
        (lambda zk, path: Lock(zk, f"{path}/a/b"),),
        ("a", "a/b"),
        is_slow=True,
    ),
    "re-entrant lock": Kind(ReentrantLock, (Lock,), is_slow=True),
    "timed lock": Kind(lambda zk, path: TimedLock(zk, path, 20), (Lock,)),
    "semaphore": Kind(_semaphore, (_semaphore, _semaphore), ("resized",)),
    "semaphore, two permits at once": Kind(lambda zk, path: _Both(zk, path, 2), (_semaphore,), ("resized",)),
    "set of locks": Kind(
        lambda zk, path: MultiLock([Lock(zk, f"{path}/b"), Lock(zk, f"{path}/a")]),
        (lambda zk, path: Lock(zk, f"{path}/b"),),
        ("a", "b"),
    ),
    "leadership": Kind(lambda zk, path: Election(zk, path, b"1"), (Election,)),
    "try lock": Kind(_try_lock, (_try_lock,), waits=False),
    "read lock": Kind(_reader, (_writer,)),
    "write lock": Kind(_writer, (_reader, _writer)),
    "read lock, readers preferred": Kind(
        lambda zk, path: ReadWriteLock(zk, path, prefer="readers").read(), (_reader, _writer), is_slow=True
    ),
    "write lock, readers preferred": Kind(
        lambda zk, path: ReadWriteLock(zk, path, prefer="readers").write(),
        (_reader, _writer),
        ("writers",),
        is_slow=True,
    ),
    "read lock, writers preferred": Kind(
        lambda zk, path: ReadWriteLock(zk, path, prefer="writers").read(), (_writer,), ("writers",)
    ),
    "write lock, writers preferred": Kind(
        lambda zk, path: ReadWriteLock(zk, path, prefer="writers").write(),
        (_reader, _writer),
        ("writers",),
        is_slow=True,
    ),
}


# -- each kind --------------------------------------------------------------------------------------------------------


async def hold(kind: Kind, stage: Scene) -> None:
    async with kind.make(stage.zk, stage.path) as lease:
        lease.check()


async def try_in_vain_then_with_success(kind: Kind, stage: Scene) -> None:
    await block(kind, stage)
    try:
        assert await kind.make(stage.zk, stage.path).try_acquire() is None
        await unblock(stage)
        lease = None
        while lease is None:  # after a cut the session may not be certain at once
            lease = await kind.make(stage.zk, stage.path).try_acquire()
        await lease.release()
    finally:
        await unblock(stage)


async def acquire_behind(kind: Kind, stage: Scene) -> None:
    await block(kind, stage)
    acquiring = asyncio.create_task(kind.make(stage.zk, stage.path).acquire(within=30.0))
    try:
        await until(lambda: watch_count(stage.zk) > 0 or acquiring.done())
        await unblock(stage)
        lease = await acquiring
        lease.check()
        await lease.release()
    finally:
        await unblock(stage)
        acquiring.cancel()
        await outcome(acquiring)


async def block(kind: Kind, stage: Scene) -> None:
    """Have the other client enter the line with each of the blockers."""
    tasks = stage.kept["blockers"] = []
    for number, make in enumerate(kind.blockers, 1):
        locking = make(stage.other, stage.path)
        tasks.append(asyncio.create_task(locking.acquire()))  # a task has one ticket of a read/write lock only

        async def is_there(path: str = locking.path, count: int = number) -> bool:
            return tasks[-1].done() or len(await line(stage.other, path)) == count

        await until(is_there)


async def unblock(stage: Scene) -> None:
    """Have the blockers leave one after the other."""
    tasks = stage.kept["blockers"]
    while tasks:
        lease = await tasks.pop(0)
        lease.check()
        await lease.release()


async def find_blocked_then_free(kind: Kind, stage: Scene) -> None:
    for make in kind.blockers[:1]:
        await until_line(stage.other, make(stage.other, stage.path).path, len(kind.blockers))
    assert await kind.make(stage.zk, stage.path).try_acquire() is None
    await unblock(stage)
    await hold(kind, stage)


def of_each_kind() -> Iterator[Entry]:
    for name, kind in KINDS.items():
        holds = partial(hold, kind)
        common: Any = {"afterwards": holds, "stays": kind.stays, "lost": LOST, "is_slow": kind.is_slow}
        yield Entry(name, holds, steps=2, **common)
        trying = partial(try_in_vain_then_with_success, kind)
        yield Entry(f"{name}, tried", trying, _BUT_CANCEL, **common)
        if kind.waits:
            yield Entry(f"{name}, behind another", partial(acquire_behind, kind), _BUT_CANCEL, steps=3, **common)
            common |= {"prepare": partial(block, kind), "afterwards": partial(find_blocked_then_free, kind)}
            yield Entry(f"{name}, waiting", holds, {CANCEL}, most=50, **common)


# -- lock -------------------------------------------------------------------------------------------------------------


async def wait_behind_three(stage: Scene) -> None:
    """The middle one leaves, one more comes after it, and the line moves to its end."""
    order: list[str] = []

    async def contend(zk: Client, name: str) -> None:
        async with Lock(zk, stage.path) as lease:
            order.append(name)
            nodes = await line(stage.other, stage.path)
            assert lease.path == f"{stage.path}/{nodes[0]}"

    held = await Lock(stage.other, stage.path).acquire()
    tasks = []
    contenders = [(stage.other, "first"), (stage.other, "leaver"), (stage.zk, "cut"), (stage.other, "last")]
    for number, (zk, name) in enumerate(contenders):
        tasks.append(asyncio.create_task(contend(zk, name)))
        await until_line(stage.other, stage.path, number + 2)
    await until_armed(all_watches(5), stage.other, stage.zk)
    tasks[1].cancel()
    await until_line(stage.other, stage.path, 4)
    await until_armed(all_watches(4), stage.other, stage.zk)
    await held.release()
    await asyncio.wait(tasks)
    assert [await outcome(task) for task in (tasks[0], *tasks[2:])] == [None] * 3
    assert sorted(order) == ["cut", "first", "last"]
    assert order.index("first") < order.index("last")
    await until_line(stage.other, stage.path, 0)


async def block_in_this_process(stage: Scene) -> None:
    stage.kept["lock"] = Lock(stage.zk, stage.path)
    stage.kept["lease"] = await stage.kept["lock"].acquire()
    await until_armed(1, stage.zk)


async def hold_the_same(stage: Scene) -> None:
    async with stage.kept["lock"]:
        pass


async def release_and_hold_the_same(stage: Scene) -> None:
    await until_line(stage.other, stage.path, 1)
    await until_armed(1, stage.zk)
    await stage.kept["lease"].release()
    async with stage.kept["lock"].hold(within=5):
        await until_line(stage.other, stage.path, 1)


async def block_and_cut(stage: Scene) -> None:
    """The answer to the create is lost, so the cancellation also comes while the node is searched for."""
    await block(KINDS["lock"], stage)
    stage.kept["fault"] = stage.server.drop_after("create", session=stage.zk.session_id)


async def mend_and_hold(stage: Scene) -> None:
    stage.kept["fault"].end()
    await find_blocked_then_free(KINDS["lock"], stage)


@patch("recipes.line.known._MOST_LISTS", 2)
async def enter_as_a_crowd(stage: Scene) -> None:
    """More tasks enter at once than list the line for themselves."""
    served: list[int] = []

    async def enter(number: int) -> None:
        async with Lock(stage.zk, stage.path):
            served.append(number)

    tasks = [asyncio.create_task(enter(number)) for number in range(CROWD)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    assert sorted(set(served)) == list(range(CROWD))


CROWD: Final = 5


# -- an operator ------------------------------------------------------------------------------------------------------


async def look_at_a_holder(stage: Scene) -> None:
    stage.kept["lease"] = await Lock(stage.other, stage.path).acquire()
    (stage.kept["holder"],) = await Lock(stage.zk, stage.path).contenders()


async def remove_the_holder(stage: Scene) -> None:
    assert await stage.kept["holder"].remove()
    assert await stage.kept["lease"].lost() is not None


async def see_it_removed(stage: Scene) -> None:
    await stage.kept["holder"].remove()
    await hold_a_lock(stage)


async def ask_the_holder(stage: Scene) -> None:
    assert await stage.kept["holder"].ask()
    assert await stage.kept["lease"].asked()
    await stage.kept["lease"].release()


async def see_it_asked(stage: Scene) -> None:
    await stage.kept["holder"].ask()
    await stage.kept["lease"].release()
    await hold_a_lock(stage)


async def lead_and_be_asked(stage: Scene) -> None:
    term = await Election(stage.zk, stage.path, b"1").acquire()
    try:
        await until(lambda: watch_count(stage.zk) == 1 or term.is_over)
        await stage.other.set(term.path, ASKED)
        if await term.asked():
            await term.set(b"2")
            assert (await stage.other.get(term.path)).data == b"2"
    except NoNodeError:
        assert await term.lost() is not None
    finally:
        await term.release()


# -- a former process's ticket ----------------------------------------------------------------------------------------


async def leave_a_ticket(stage: Scene) -> None:
    name = f"{stage.path}/_c_{stage.zk.unique_id()}-lock-"
    path, stat = await stage.zk.create_and_stat(name, ephemeral=True, sequential=True, make_parents=True)
    known_of(stage.zk.unlimited).created = stat.czxid + 1  # as if this client had been made after that
    stage.kept.update(left=(path, stat.czxid), lease=None)


async def adopt_it(stage: Scene) -> None:
    stage.kept["lease"] = await Lock(stage.zk, stage.path).adopt(*stage.kept["left"])
    stage.kept["lease"].check()
    await stage.kept["lease"].release()


async def adopt_it_still(stage: Scene) -> None:
    with suppress(LockLostError):  # its session has expired
        if stage.kept["lease"] is None:
            await adopt_it(stage)
    if stage.kept["lease"] is not None:
        await stage.kept["lease"].release()
    await hold_a_lock(stage)


# -- foreign nodes ----------------------------------------------------------------------------------------------------

FOREIGN: Final = "_c_x-lock-0000000000"


async def add_a_foreign_node(stage: Scene) -> None:
    await stage.other.create(f"{stage.path}/{FOREIGN}", make_parents=True)


async def add_an_unreadable_node(stage: Scene) -> None:
    acl = [ACL(Perms.ALL & ~Perms.READ, "world", "anyone")]
    await stage.other.create(stage.path)
    await stage.other.create(f"{stage.path}/{FOREIGN[:-10]}", sequential=True, ephemeral=True, acl=acl)


async def skip_a_foreign_node(stage: Scene) -> None:
    assert await Lock(stage.zk, stage.path).try_acquire() is None
    async with Lock(stage.zk, stage.path).hold(within=0):
        pass
    async with Lock(stage.zk, stage.path):
        pass


async def hold_a_lock(stage: Scene) -> None:
    await (await Lock(stage.zk, stage.path).acquire()).release()


async def wait_for_an_unreadable_node(stage: Scene) -> None:
    waiting = asyncio.create_task(hold_a_lock(stage))
    try:
        await until(lambda: watch_count(stage.zk) == 2 or waiting.done())  # its own node and the children
        await stage.other.delete(f"{stage.path}/{FOREIGN}")
        await waiting
    finally:
        waiting.cancel()
        await outcome(waiting)


async def delete_the_unreadable_node(stage: Scene) -> None:
    await outcome(stage.other.delete(f"{stage.path}/{FOREIGN}"))
    await hold_a_lock(stage)


# -- read/write lock --------------------------------------------------------------------------------------------------


async def try_to_read_after_a_downgrade(stage: Scene) -> None:
    written = await ReadWriteLock(stage.other, stage.path).write().acquire()
    lease: Any = written
    reading = ReadWriteLock(stage.zk, stage.path).read()
    try:
        assert await reading.try_acquire() is None
        lease = await written.downgrade()
        await (await taken(reading)).release()
    finally:
        await lease.release()


async def downgrade_before_others(stage: Scene) -> None:
    """Downgrade while a reader and then a writer wait."""
    others = ReadWriteLock(stage.other, stage.path)
    async with ReadWriteLock(stage.zk, stage.path).write() as lease:
        reader = asyncio.create_task(others.read().acquire())
        await until_line(stage.other, stage.path, 2)
        writer = asyncio.create_task(others.write().acquire())
        await until_line(stage.other, stage.path, 3)
        read = await lease.downgrade()
        beside = await reader
        read.check()
        assert not writer.done()
        await beside.release()
    await (await writer).release()


async def write(stage: Scene) -> None:
    writing = ReadWriteLock(stage.zk, stage.path).write()
    stage.kept["lease"] = await asyncio.create_task(writing.acquire())


async def downgrade(stage: Scene) -> None:
    lease = stage.kept["lease"]
    try:
        lease = await stage.kept["lease"].downgrade()
    finally:
        await lease.release()


async def release_and_write(stage: Scene) -> None:
    await stage.kept["lease"].release()  # if the downgrade was cancelled before it began
    await hold(KINDS["write lock"], stage)


# -- semaphore --------------------------------------------------------------------------------------------------------


async def store_the_number(stage: Scene) -> None:
    await outcome(stage.other.create(stage.path))  # without a number
    await hold(KINDS["semaphore"], stage)
    assert (await stage.other.get(stage.path)).data == b"2"


async def resize(stage: Scene, given: int | None = 2) -> None:
    await Semaphore(stage.zk, stage.path, given).resize(3)
    assert (await stage.other.get(stage.path)).data == b"3"


async def resize_and_hold(stage: Scene) -> None:
    await resize(stage, None)
    await (await Semaphore(stage.other, stage.path, 3).acquire()).release()


async def resize_while_others_wait(stage: Scene) -> None:
    semaphore = Semaphore(stage.other, stage.path, 1)
    first = await semaphore.acquire()
    second = await start_waiting(stage.other, semaphore, 2)
    try:
        await Semaphore(stage.zk, stage.path, 1).resize(2)
        await (await second).release()
    finally:
        await first.release()
        await (await second).release()
    assert (await stage.other.get(stage.path)).data == b"2"


async def be_resized_while_waiting(stage: Scene) -> None:
    theirs = Semaphore(stage.other, stage.path, 3)
    mine = Semaphore(stage.zk, stage.path, 3)
    await (await mine.acquire()).release()  # it has agreed, and follows every resize
    held = [await theirs.acquire() for _ in range(3)]
    task = asyncio.create_task(mine.acquire())
    await until_line(stage.other, stage.path, 4)
    await theirs.resize(1)
    for lease in held[:2]:
        await lease.release()
    await stage.zk.ping()
    await stage.zk.ping()
    assert not task.done()
    await theirs.resize(2)
    await (await task).release()
    await held[2].release()


# -- election ---------------------------------------------------------------------------------------------------------


async def run_until_done(stage: Scene) -> None:
    """The first term is lost, and the next one lasts."""
    tokens: list[int] = []

    async def work(term: Term) -> int:
        tokens.append(term.token)
        if len(tokens) == 1:
            with suppress(NoNodeError):
                await stage.other.delete(term.path)
            await asyncio.Event().wait()
        return term.token

    assert await Election(stage.zk, stage.path).run(work) == tokens[-1] > tokens[0]
    assert await Election(stage.zk, stage.path).leader() is None


# -- timed lock -------------------------------------------------------------------------------------------------------


async def extend(stage: Scene) -> None:
    async with TimedLock(stage.zk, stage.path, 20) as lease:
        await lease.extend(10)
        lease.check()


async def leave_a_hung_holder(stage: Scene) -> None:
    stage.kept["node"] = await hung(stage.other, stage.path, 0.0005)


async def take_over(stage: Scene) -> None:
    async with Lock(stage.zk, stage.path) as lease:
        lease.check()
        assert await stage.other.exists(stage.kept["node"]) is None


async def delete_a_hung_holder(stage: Scene) -> None:
    if await stage.other.exists(stage.kept["node"]) is not None:
        await stage.other.delete(stage.kept["node"])
    await hold_a_lock(stage)


async def hold_for_a_time(stage: Scene) -> None:
    stage.kept["lease"] = await TimedLock(stage.zk, stage.path, 20).acquire()


async def extend_it(stage: Scene) -> None:
    await stage.kept["lease"].extend(30)


async def release_and_extend(stage: Scene) -> None:
    stage.kept["lease"].check()
    await stage.kept["lease"].release()
    await extend(stage)


# -- election ---------------------------------------------------------------------------------------------------------


async def lead_twice(stage: Scene) -> None:
    count = 0
    async for term in Election(stage.zk, stage.path, b"1").terms():
        async with term:
            count += 1
        if count == 2:
            break


async def lead_again(stage: Scene) -> None:
    """Pitfalls 12 and 13: the terms continue when a session expires."""
    terms: list[Term] = []

    async def lead_for_ever() -> None:
        async for term in Election(stage.zk, stage.path, b"1").terms():
            async with term:
                terms.append(term)
                await asyncio.Event().wait()

    async def leads_alone() -> bool:
        tickets = [f"{stage.path}/{name}" for name in await line(stage.other, stage.path)]
        return bool(terms) and terms[-1].is_certain() and tickets == [terms[-1].path]

    leading = asyncio.create_task(lead_for_ever())
    try:
        await until(lambda: bool(terms) or leading.done())
        await until(leads_alone)
    finally:
        leading.cancel()
        assert isinstance(await outcome(leading), asyncio.CancelledError)


async def observe_two_leaders(stage: Scene) -> None:
    election = Election(stage.other, stage.path, b"1")
    async with Election(stage.zk, stage.path).observe() as leaders:
        assert await anext(leaders) is None
        for _ in range(2):
            term = await election.acquire()
            try:
                assert await anext(leaders) == b"1"
            finally:
                await term.resign()
            assert await anext(leaders) is None


async def observe_nothing(stage: Scene) -> None:
    async for data in Election(stage.zk, stage.path).observe():
        assert data is None


async def read_the_candidates(stage: Scene) -> None:
    async with Election(stage.other, stage.path, b"1").lead():
        assert await Election(stage.zk, stage.path).candidates() == [b"1"]


async def change_its_data(stage: Scene) -> None:
    term = await Election(stage.zk, stage.path, b"0").acquire()
    try:
        for data in (b"1", b"2"):
            await term.set(data)
            assert (await stage.other.get(term.path)).data == data
    except NoNodeError:  # on a slow machine the lease may be lost before the node is read
        term.check()
    finally:
        await term.resign()


_RESIZED: Final = ("resized",)
_LOCK: Final[Play] = partial(hold, KINDS["lock"])
_LEAD: Final[Play] = partial(hold, KINDS["leadership"])

ENTRIES: Final = [
    *of_each_kind(),
    Entry("lock, behind three", wait_behind_three, {CUT}, steps=3, is_slow=True),
    Entry(
        "lock, waiting for a task of this process",
        hold_the_same,
        {CANCEL},
        prepare=block_in_this_process,
        afterwards=release_and_hold_the_same,
        most=60,
    ),
    Entry("lock, cut", _LOCK, {CANCEL}, prepare=block_and_cut, afterwards=mend_and_hold, most=100),
    Entry("lock, a crowd", enter_as_a_crowd, steps=CROWD, lost=LOST, afterwards=_LOCK),
    Entry(
        "lock, a foreign node",
        skip_a_foreign_node,
        EVERY - {EXPIRE, FORBID},
        add_a_foreign_node,
        _LOCK,
        (FOREIGN,),
        lost=LOST,
    ),
    Entry(
        "lock, an unreadable node",
        wait_for_an_unreadable_node,
        _BUT_CANCEL,
        prepare=add_an_unreadable_node,
        afterwards=delete_the_unreadable_node,
        lost=LOST,
    ),
    Entry(
        "lock, waiting for an unreadable node",
        hold_a_lock,
        {CANCEL},
        prepare=add_an_unreadable_node,
        afterwards=delete_the_unreadable_node,
        most=60,
    ),
    Entry("lock, adopted", adopt_it, EVERY, leave_a_ticket, adopt_it_still, steps=4, lost=LOST),
    Entry("lock, its holder removed", remove_the_holder, EVERY, look_at_a_holder, see_it_removed, steps=3),
    Entry("lock, its holder asked", ask_the_holder, EVERY, look_at_a_holder, see_it_asked, steps=3),
    Entry("leadership, asked to give way", lead_and_be_asked, _BUT_CANCEL, None, _LEAD, steps=5, lost=LOST),
    Entry(
        "read lock, tried after a downgrade", try_to_read_after_a_downgrade, EVERY - {FORBID}, lost=LOST, is_slow=True
    ),
    Entry("write lock, downgraded before others", downgrade_before_others, {CUT}, steps=4),
    Entry("write lock, downgraded", downgrade, prepare=write, afterwards=release_and_write, lost=LOST),
    Entry("semaphore, without a number", store_the_number, stays=_RESIZED, steps=3, lost=LOST),
    Entry("semaphore, resized", resize, afterwards=resize_and_hold, stays=_RESIZED, steps=3),
    Entry(
        "semaphore, resized while others wait",
        resize_while_others_wait,
        _BUT_CANCEL,
        afterwards=resize_and_hold,
        stays=_RESIZED,
        steps=3,
    ),
    Entry("semaphore, resized while it waits", be_resized_while_waiting, {CUT}, stays=_RESIZED, is_slow=True),
    Entry("leadership, run", run_until_done, steps=6),
    Entry("timed lock, extended", extend, steps=4, lost=LOST),
    Entry("timed lock, extended in time", extend_it, {CANCEL}, prepare=hold_for_a_time, afterwards=release_and_extend),
    Entry(
        "timed lock, taken over",
        take_over,
        EVERY - {FORBID},
        prepare=leave_a_hung_holder,
        afterwards=delete_a_hung_holder,
        most=60,
        lost=LOST,
    ),
    Entry("leadership, twice", lead_twice, steps=6, afterwards=_LEAD, lost=LOST),
    Entry("leadership, for ever", lead_again, {EXPIRE}, steps=2),
    Entry("leadership, observed", observe_two_leaders, _BUT_CANCEL, None, _LEAD, steps=5, lost=LOST),
    Entry("leadership, observed for ever", observe_nothing, {CANCEL}, afterwards=_LEAD, most=30),
    Entry("leadership, candidates", read_the_candidates, steps=2, lost=LOST),
    Entry("leadership, its data changed", change_its_data, EVERY, None, _LEAD, steps=5, lost=LOST),
]
