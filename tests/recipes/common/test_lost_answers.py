"""Finding out what became of a write whose answer was lost, while the server refuses reads for a while."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import zkwire
from recipes import Counter, Lock, Queue, ReadWriteLock, Semaphore, TryLock
from recipes.common import lost_answers
from recipes.queue.nodes import Nodes
from tests.support.everywhere import Scene, nothing_stays, scene
from tests.support.recipes import make_known, no_task_stays, outcome, until_line
from zkwire import (
    NoAuthError,
    NotReadOnlyError,
    OperationTimeoutError,
    RequestTimeoutError,
    ServerError,
    SystemServerError,
    ThrottledError,
)

pytestmark = pytest.mark.limit(30)

TRANSIENT = (ThrottledError, NotReadOnlyError, OperationTimeoutError, RequestTimeoutError, SystemServerError)

# Entering a line sends getChildren together with the create; as a read it is repeated before the search begins.
READS = [("sync", 1), ("getChildren", 2), ("getData", 1)]


@pytest.mark.parametrize(("refused", "nth"), READS)
async def test_a_ticket_is_found_after_transient_refusals(refused: str, nth: int) -> None:
    """Pitfalls 10 and 12: a ticket that is not found blocks the line for as long as its session lives."""
    async with scene() as stage, no_task_stays():
        await make_known(stage.zk, stage.path)
        session = stage.zk.session_id
        with (
            stage.server.drop_after("create", session=session),
            stage.server.answering(refused, ThrottledError, session=session, nth=nth, times=2) as refusing,
        ):
            lease = await Lock(stage.zk, stage.path).acquire()
            assert refusing.hits == 2
        assert await until_line(stage.other, stage.path, 1) == [lease.path.rpartition("/")[2]]
        await lease.release()
        await nothing_stays(stage)


@pytest.mark.parametrize("error", TRANSIENT)
async def test_every_transient_refusal_is_waited_for(error: type[ServerError]) -> None:
    async with scene() as stage:
        await make_known(stage.zk, stage.path)
        session = stage.zk.session_id
        with (
            stage.server.drop_after("create", session=session),
            stage.server.answering("sync", error, session=session, times=1) as refusing,
        ):
            await (await Lock(stage.zk, stage.path).acquire()).release()
            assert refusing.hits == 1
        await nothing_stays(stage)


async def test_a_line_that_may_not_be_listed_raises_with_a_hint() -> None:
    async with scene() as stage:
        await make_known(stage.zk, stage.path)
        session = stage.zk.session_id
        with (
            stage.server.drop_after("create", session=session),
            stage.server.answering("getChildren", NoAuthError, session=session, nth=2),
            pytest.raises(NoAuthError, match="it may have been carried out"),
        ):
            await Lock(stage.zk, stage.path).acquire()


async def test_a_ticket_that_may_not_be_read_is_deleted() -> None:
    """The listing has shown it, and its unique name proves that it is ours."""
    async with scene() as stage:
        await make_known(stage.zk, stage.path)
        session = stage.zk.session_id
        with (
            stage.server.drop_after("create", session=session),
            stage.server.answering("getData", NoAuthError, session=session),
            pytest.raises(NoAuthError, match="it may have been carried out"),
        ):
            await Lock(stage.zk, stage.path).acquire()
        await nothing_stays(stage)


async def test_the_ticket_of_a_cancelled_caller_is_deleted_too() -> None:
    """Pitfall 10."""
    async with scene() as stage, no_task_stays():
        await make_known(stage.zk, stage.path)
        session = stage.zk.session_id
        with (
            stage.server.drop_after("create", session=session),
            stage.server.answering("getChildren", ThrottledError, session=session, nth=2) as refusing,
        ):
            acquiring = asyncio.create_task(Lock(stage.zk, stage.path).acquire())
            await refusing.until_hit(2)
            acquiring.cancel()
            assert isinstance(await outcome(acquiring), asyncio.CancelledError)
            await until_line(stage.other, stage.path, 1)
        await nothing_stays(stage)


@pytest.mark.parametrize("make", [Lock, TryLock], ids=lambda make: make.__name__)
async def test_a_search_that_fails_after_its_caller_was_cancelled_is_logged(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene() as stage, no_task_stays():
        if make is Lock:
            await make_known(stage.zk, stage.path)
        session = stage.zk.session_id
        refused, nth = ("getChildren", 3) if make is Lock else ("getData", 2)
        with (
            caplog.at_level(logging.WARNING, "recipes"),
            stage.server.drop_after("create", session=session),
            stage.server.answering("sync", ThrottledError, session=session, times=1),
            stage.server.answering(refused, NoAuthError, session=session, nth=nth) as refusing,
            stage.server.hold_replies(refused, session=session, nth=nth) as held,
        ):
            making = asyncio.create_task(make(stage.zk, stage.path).__aenter__())
            await held.until_hit()
            making.cancel()
            assert isinstance(await outcome(making), asyncio.CancelledError)
            held.release()
            await stage.zk.ping()
            assert refusing.hits == 1
        assert "it may have been carried out" in caplog.text


# -- other recipes ----------------------------------------------------------------------------------------------------


async def take_and_release(stage: Scene) -> None:
    lease = await TryLock(stage.zk, stage.path).try_acquire()
    assert lease is not None
    lease.check()
    await lease.release()
    assert await stage.other.exists(stage.path) is None


async def acquire_and_release(stage: Scene) -> None:
    await stage.other.create(stage.path, b"2")
    await (await Semaphore(stage.zk, stage.path, 2).acquire()).release()


async def count(stage: Scene) -> None:
    assert await Counter(stage.other, stage.path).add(1) == 1
    counter = Counter(stage.zk, stage.path)
    assert await counter.add(1) == 2
    assert await counter.get() == 2


async def put_and_get(stage: Scene) -> None:
    await Nodes(stage.other, stage.path, zkwire.OPEN_ACL).make()
    queue = Queue(stage.zk, stage.path)
    await queue.put(b"once")
    assert await queue.size() == 1
    assert await Queue(stage.other, stage.path).get() == b"once"


async def downgrade(stage: Scene) -> None:
    lease = await ReadWriteLock(stage.zk, stage.path).write().acquire()
    reading = await lease.downgrade()
    await (await ReadWriteLock(stage.other, stage.path).read().acquire(within=5)).release()
    await reading.release()


@pytest.mark.parametrize("refused", ["sync", "getData"])
@pytest.mark.parametrize(
    ("play", "cut", "nth"),
    [
        (take_and_release, "create", 1),
        (acquire_and_release, "create", 2),  # the number of permits, read together with the create, is read first
        (count, "multi", 2),  # the counter was read before
        (put_and_get, "multi", 1),
        (downgrade, "setData", 1),
    ],
    ids=lambda value: value.__name__ if callable(value) else str(value),
)
async def test_no_search_gives_up_because_of_a_transient_refusal(
    play: Callable[[Scene], Awaitable[None]], cut: str, nth: int, refused: str
) -> None:
    """Pitfalls 10 and 13: a refused read proves neither that a write was carried out nor that it was not."""
    async with scene() as stage, no_task_stays():
        session = stage.zk.session_id
        nth = 1 if refused == "sync" else nth
        with (
            stage.server.drop_after(cut, session=session) as dropped,
            stage.server.answering(refused, ThrottledError, session=session, nth=nth, times=2) as refusing,
        ):
            await play(stage)
            assert (dropped.hits, refusing.hits) == (1, 2)


async def test_a_search_that_was_cancelled_itself_has_found_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """As at the end of a program, which cancels all tasks."""
    searching = asyncio.create_task(asyncio.sleep(3600, "found"))
    await asyncio.sleep(0)
    searching.cancel()
    await asyncio.wait([searching])
    assert lost_answers.late_result(searching) is None
    assert caplog.records == []


async def test_a_node_of_our_session_is_found_among_those_of_other_clients_with_its_name_pitfall_89() -> None:
    async with (
        zkwire.testing.Server() as server,
        zkwire.connect(server.hosts) as zk,
        zkwire.connect(server.hosts) as x,
    ):
        await zk.create("/line")
        twins = ["/line/u-0000000000", "/line/u-9000000000"]
        for twin in twins:
            await x.create(twin, ephemeral=True)
        await x.create("/line/u-0000000001", acl=[zkwire.ACL(zkwire.Perms.DELETE, "world", "anyone")])
        ours = await zk.create("/line/u-", ephemeral=True, sequential=True)
        found = await lost_answers.find_created(
            zk, "/line", "u-", lambda: lost_answers.read(zk, "/line", zkwire.GetChildren("/line"))
        )
        assert found is not None
        assert f"/line/{found.name}" == ours
