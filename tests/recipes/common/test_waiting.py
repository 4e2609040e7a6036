"""The limit of a wait: a number of seconds, none, or one look."""

import asyncio
from types import SimpleNamespace
from typing import Any, Final

import pytest

from recipes.common.waiting import bounded
from tests.support.recipes import body_raises
from zkwire import SessionState

CONNECTED: Final[Any] = SimpleNamespace(state=SessionState.CONNECTED)


async def test_a_limit_of_0_allows_requests_but_no_wait() -> None:
    passed = []
    with body_raises(TimeoutError, match=r"^it was not free within 0 s$"):
        async with bounded(CONNECTED, 0, "it was not free") as bound:
            for _ in range(3):
                await asyncio.sleep(0.001)  # stands for the requests of a look
                passed.append(True)
            bound.must_wait()
    assert len(passed) == 3


@pytest.mark.parametrize("within", [None, 20.0])
async def test_a_wait_may_follow_the_look_with_any_other_limit(within: float | None) -> None:
    async with bounded(CONNECTED, within, "it was not free") as bound:
        bound.must_wait()
        await asyncio.sleep(0.001)


async def test_the_message_names_the_limit() -> None:
    with body_raises(TimeoutError, match=r"^it was not free within 0\.01 s$"):
        async with bounded(CONNECTED, 0.01, "it was not free") as bound:
            bound.must_wait()
            await asyncio.Event().wait()


async def test_a_timeout_error_of_the_body_passes_unchanged() -> None:
    with body_raises(TimeoutError, match=r"^its own$"):
        async with bounded(CONNECTED, 0.01, "it was not free"):
            raise TimeoutError("its own")
