"""Entering a line: the node of a ticket, its parents, and a create whose answer is lost."""

import asyncio
import itertools
import re

import pytest

import zkwire
from recipes import Lock, ReadWriteLock
from tests.support.everywhere import nothing_stays, scene
from tests.support.queues import Counting
from tests.support.recipes import line, no_task_stays, outcome, until, until_line
from zkwire.testing import Server

pytestmark = pytest.mark.limit(50)


# -- nodes ------------------------------------------------------------------------------------------------------------

KNOWN = ["create2", "getChildren"]
NEW = ["createContainer", *KNOWN]


@pytest.mark.parametrize("depth", [1, 3])
async def test_the_tickets_of_a_crowd_at_a_new_path_do_not_each_create_its_node(depth: int) -> None:
    count = Counting()
    async with Server() as server, zkwire.connect(server.hosts, observer=count) as zk:
        path = "/a" * depth
        async with no_task_stays():
            crowd = [asyncio.create_task(Lock(zk, path).acquire()) for _ in range(50)]
            await until_line(zk, path, 50)
            for task in crowd:
                task.cancel()
            for task in crowd:
                if not isinstance(lease := await outcome(task), asyncio.CancelledError):
                    await lease.release()  # type: ignore[attr-defined]
        assert count.requests.count("createContainer") == (1 if depth == 1 else 2)
        assert count.requests.count("create") <= depth


async def test_a_container_that_was_deleted_between_two_uses_is_created_again(monkeypatch: pytest.MonkeyPatch) -> None:
    count = Counting()
    async with Server() as server, zkwire.connect(server.hosts, observer=count) as zk:
        lock = Lock(zk, "/lock")

        async def requests() -> list[str]:
            count.requests.clear()
            lease = await lock.acquire()
            found = [each for each in count.requests if each in NEW]
            await lease.release()
            return found

        assert await requests() == NEW
        assert await requests() == KNOWN
        await zk.delete("/lock")
        assert await requests() == KNOWN + NEW
        assert await requests() == KNOWN
        # When it was not used for long, the server has probably deleted it.
        await zk.delete("/lock")
        monkeypatch.setattr("recipes.line.known._CONTAINER", 0.0)
        await requests()
        await zk.delete("/lock")
        assert await requests() == NEW


async def test_a_parent_that_was_made_a_container_goes_after_its_locks() -> None:
    """The other parents are persistent: programs may count on a node that they have seen."""
    async with Server(container_interval=0.02) as server, zkwire.connect(server.hosts) as zk:
        await zk.ensure_path("/locks/monday", container=True)
        for path in ("/locks/monday/1", "/locks/tuesday/1"):
            async with Lock(zk, path), ReadWriteLock(zk, f"{path}-rw", prefer="readers").write():
                pass

        async def only_tuesday_is_left() -> bool:
            return (await zk.get_children("/locks"), await zk.get_children("/locks/tuesday")) == (["tuesday"], [])

        await until(only_tuesday_is_left)


@pytest.mark.parametrize("is_before", [True, False])
async def test_a_missing_chroot_is_created_despite_lost_links(is_before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pitfall 20: each of the creates is cut in turn."""
    monkeypatch.setattr("zkwire.session.hosts._FIRST_PAUSE", 0.001)
    for nth in itertools.count(1):
        async with scene() as stage, zkwire.connect(f"{stage.server.hosts}/app/x") as zk:
            drop = stage.server.drop_before if is_before else stage.server.drop_after
            with drop("create", session=zk.session_id, nth=nth) as cut:
                lease = await Lock(zk, "/l").acquire()
                lease.check()
            assert await line(stage.other, "/app/x/l") == [lease.path.rpartition("/")[2]]
            await lease.release()
        if not cut.hits:
            assert nth > 6
            break


# -- refusals of the create -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "says"), [(zkwire.NodeExistsError, True), (zkwire.QuotaExceededError, False), (zkwire.NoAuthError, False)]
)
async def test_a_ticket_that_cannot_be_created_is_an_error_which_says_what_to_do(
    error: type[zkwire.ServerError], says: bool
) -> None:
    async with scene() as stage, no_task_stays():
        with stage.server.answering("create", error, path=re.compile("/recipe/_c_.*"), times=None):
            with pytest.raises(error) as raised:
                await Lock(stage.zk, stage.path).acquire()
            assert ("the sequence numbers below this parent are used up" in str(raised.value)) is says
        async with Lock(stage.zk, stage.path):
            pass
        await nothing_stays(stage)
