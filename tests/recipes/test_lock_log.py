"""What locks and elections write into the log: long waits, losses, and who leads; docs/production.md."""

import asyncio
import logging

import pytest

from recipes import Election, Lock
from recipes.line import locking
from tests.support.everywhere import scene

LOCKS, WAITS, TERMS = "recipes.line.lease", "recipes.line.locking", "recipes.election"


@pytest.fixture(autouse=True)
def _every_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "recipes")


def logged(caplog: pytest.LogCaptureFixture, logger: str) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == logger]


@pytest.mark.parametrize("within", [None, 50.0])
async def test_a_lock_that_was_waited_for_long_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, within: float | None
) -> None:
    async with scene() as stage:
        held = await Lock(stage.other, stage.path).acquire()
        waiting = asyncio.create_task(Lock(stage.zk, stage.path).acquire(within=within))
        while len(await stage.other.get_children(stage.path)) < 2:
            await asyncio.sleep(0.001)
        assert locking._LATE == 10.0
        monkeypatch.setattr(locking, "_LATE", 0.0)
        await held.release()
        lease = await waiting
        assert logged(caplog, WAITS) == [("INFO", f"acquired the lock {stage.path} after 0 s")]
        await lease.release()


async def test_a_lock_that_is_acquired_and_released_at_once_writes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as stage:
        async with Lock(stage.zk, stage.path):
            pass
        assert logged(caplog, WAITS) == logged(caplog, LOCKS) == []


async def test_a_lost_lock_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as stage:
        lease = await Lock(stage.zk, stage.path).acquire()
        stage.server.expire(stage.zk.session_id)
        loss = await lease.lost()
        assert loss is not None
        assert logged(caplog, LOCKS) == [("WARNING", f"lost the lock {lease.path}: {loss.why}")]
        await lease.release()
        assert len(logged(caplog, LOCKS)) == 1


async def test_the_beginning_and_the_end_of_a_term_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as stage:
        async with Election(stage.zk, stage.path).lead() as term:
            assert logged(caplog, TERMS) == [("INFO", f"leads: {term.path}, token {term.token}")]
        assert logged(caplog, TERMS)[1:] == [("INFO", f"has resigned: {term.path}")]
        assert logged(caplog, LOCKS) == []


async def test_a_lost_leadership_is_logged_and_not_as_resigned(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as stage:
        term = await Election(stage.zk, stage.path).acquire()
        stage.server.expire(stage.zk.session_id)
        loss = await term.lost()
        assert loss is not None
        assert logged(caplog, LOCKS) == [("WARNING", f"lost the leadership {term.path}: {loss.why}")]
        assert len(logged(caplog, TERMS)) == 1
