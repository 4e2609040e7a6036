"""The nodes of a queue: what they say about its items, their permissions, and what is done in the background."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import product

import pytest

import zkwire
from recipes import Queue
from recipes.queue.nodes import Nodes
from tests.support.everywhere import below, scene
from tests.support.queues import PATH, clients, contents, numbers, take_by_claim, take_by_get, three_are_there
from tests.support.recipes import outcome, until, until_line
from zkwire import ACL, SessionState

# -- permissions ------------------------------------------------------------------------------------------------------

SECRET = zkwire.digest_acl("us", "secret")


@pytest.mark.parametrize("acl", [None, [SECRET]])
async def test_the_acl_of_each_node_of_a_queue(acl: list[ACL] | None) -> None:
    """No client has anything to write into an item, or into the nodes of a claim."""
    async with clients(1) as (server, (_,)), zkwire.connect(server.hosts, auth=[("digest", b"us:secret")]) as us:
        queue = Queue(us, f"{PATH}/q", 3, acl=acl)
        await queue.put_many(numbers(3))
        waiting = asyncio.create_task(queue.put(b"3"))
        await until_line(us, f"{PATH}/q/producers", 1)
        async with queue.claim() as item, queue.claim(), queue.claim():
            getting = asyncio.create_task(queue.get())
            await until_line(us, f"{PATH}/q/consumers", 1)
            paths = [f"{PATH}/q", *await below(us, f"{PATH}/q")]
            stay = [path for path in paths if not path.startswith(f"{PATH}/q/put-")]  # without the receipts
            found = {path: (await us.get_acl(path))[0] for path in stay}
            fixed = [path for path in found if "/entries/" in path or "/taken/" in path]
            assert item.path in fixed
            assert item.entry in fixed
            assert len(fixed) == 3 + 2 * 3
            assert [found[path] for path in fixed] == [list(acl or zkwire.READ_ONLY_ACL)] * len(fixed)
            shared = [f"{PATH}/q{end}" for end in ("", "/entries", "/taken", "/consumers", "/producers", "/room")]
            assert [found[path] for path in shared] == [list(acl or zkwire.OPEN_ACL)] * len(shared)
            if acl:
                assert set(map(tuple, found.values())) == {tuple(acl)}
        await waiting
        assert await getting == b"3"


async def test_a_queue_that_others_have_made_with_a_wider_acl_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async with clients(1) as (server, (zk,)), zkwire.connect(server.hosts, auth=[("digest", b"us:secret")]) as us:
        await Queue(zk, PATH).put(b"x")
        await Queue(us, PATH).put(b"x")
        assert not caplog.text
        await Queue(us, PATH, acl=[SECRET]).get()
        assert caplog.text.count(f"{PATH}/entries exists with an ACL that allows more than acl= asks for") == 1


@pytest.mark.parametrize(
    ("ask", "node"),
    [*product([take_by_get, take_by_claim, Queue.peek, Queue.size], ["entries", "taken"]), (Queue.claims, "taken")],
)
async def test_a_list_that_is_refused_is_no_empty_queue(ask: Callable[[Queue], Awaitable[object]], node: str) -> None:
    async with clients() as (server, (zk, other)):
        await Queue(other, PATH).put_many(numbers(3))
        refusing = server.answering("getChildren", zkwire.NoAuthError, path=f"{PATH}/{node}", session=zk.session_id)
        with refusing, pytest.raises(zkwire.NoAuthError):
            await ask(Queue(zk, PATH))
        assert await Queue(other, PATH).size() == 3


# -- in the background ------------------------------------------------------------------------------------------------


@pytest.mark.limit(10)
@pytest.mark.parametrize("carried_out", [True, False])
async def test_a_get_that_is_cancelled_without_a_connection_ends_in_a_second_and_its_item_is_put_back_later(
    carried_out: bool,
) -> None:
    async with scene() as stage:
        await three_are_there(stage)
        fault = stage.server.hold_replies if carried_out else stage.server.drop_before
        with fault("multi", session=stage.zk.session_id, times=1) as taking:
            getting = asyncio.create_task(Queue(stage.zk, stage.path).get())
            await taking.until_hit()
            with stage.server.refuse_connections():
                stage.server.drop(stage.zk.session_id)
                await until(lambda: stage.zk.state is SessionState.SUSPENDED)
                getting.cancel()
                assert isinstance(await outcome(getting), asyncio.CancelledError)
        assert await contents(stage) == numbers(3)


async def test_an_error_in_the_background_is_reported_only_if_it_is_a_defect() -> None:
    """Those of ZooKeeper are the caller's, unless it was cancelled meanwhile."""
    loop, reported = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))

    async def fail(error: Exception) -> None:
        raise error

    async with clients(1) as (_, (zk,)):
        nodes = Nodes(zk, PATH, None)
        errors = [ZeroDivisionError(), zkwire.NoNodeError(-101)]
        await asyncio.wait([nodes.in_background(fail(error)) for error in errors])
        await asyncio.sleep(0)
    assert reported == errors[:1]
