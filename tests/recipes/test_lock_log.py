"""What locks and elections write into the log: long waits, losses, and who leads; docs/production.md."""

import logging

import pytest

from recipes import Election
from tests.support.everywhere import scene

LOCKS, WAITS, TERMS = "recipes.line.lease", "recipes.line.locking", "recipes.election"


@pytest.fixture(autouse=True)
def _every_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "recipes")


def logged(caplog: pytest.LogCaptureFixture, logger: str) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == logger]


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
