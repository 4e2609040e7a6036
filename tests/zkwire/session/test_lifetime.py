"""Callbacks for the end of certainty and for the end of the session; what an answer does to certainty."""

import asyncio
import time
from collections.abc import Callable

import pytest

from tests.support.client import turns
from tests.support.virtual_time import a_client, in_virtual_time
from zkwire.errors import SessionClosedError, SessionExpiredError
from zkwire.session import keepalive
from zkwire.session.keepalive import Lifetime, OnClosed, OnUncertain
from zkwire.wire.certainty import AckLevel


def appending(name: str, called: list[str]) -> Callable[[], None]:
    """Return another function each time."""
    return lambda: called.append(name)


@in_virtual_time
async def test_each_callback_is_called_once_when_certainty_ends_unless_it_is_discarded() -> None:
    until, called = asyncio.get_running_loop().time() + 0.2, list[str]()
    on_uncertain = OnUncertain(lambda: until)
    late = appending("late", called)
    for callback in (appending("first", called), lambda: on_uncertain.discard(late), late, appending("second", called)):
        on_uncertain.add(callback)
    await asyncio.sleep(0.199)
    assert called == []
    await asyncio.sleep(0.002)
    assert called == ["first", "second"]
    on_uncertain.add(appending("third", called))
    await asyncio.sleep(1.0)
    assert called == ["first", "second", "third"]


async def test_each_callback_is_called_once_at_the_end_of_the_session() -> None:
    on_closed, called = OnClosed(), list[str]()
    given_up = appending("given up", called)
    on_closed.add(appending("first", called))
    on_closed.add(given_up)
    on_closed.add(appending("second", called))
    assert on_closed.error is None
    on_closed._closed(SessionExpiredError("gone"))
    on_closed.discard(given_up)  # in the turn of the end, before it was called
    on_closed.discard(given_up)
    assert called == []
    await asyncio.sleep(0)
    assert called == ["first", "second"]
    on_closed.add(appending("late", called))
    await asyncio.sleep(0)
    assert called == ["first", "second", "late"]
    on_closed._closed(SessionClosedError("closed afterwards"))
    await asyncio.sleep(0)
    assert called == ["first", "second", "late"]


def lasting(seconds: float) -> Lifetime:
    """Return the lifetime of a session that is certain for so long, by its handshake."""
    now = asyncio.get_running_loop().time()
    lifetime = Lifetime(float("inf"))
    lifetime.granted(now, now, seconds, 0.5, is_new=True)
    return lifetime


@in_virtual_time
@pytest.mark.parametrize("event", [Lifetime.doubt, Lifetime.end])
async def test_an_end_that_comes_before_its_time_is_reported_soon_and_once(event: Callable[[Lifetime], None]) -> None:
    lifetime, called = lasting(60.0), list[str]()
    lifetime.on_uncertain.add(lambda: called.append("uncertain"))
    event(lifetime)
    assert called == []
    await turns(2)
    event(lifetime)  # no callback is left
    await turns(2)
    assert called == ["uncertain"]


@in_virtual_time
@pytest.mark.parametrize("is_answered", [True, False])
async def test_a_server_that_grants_a_shorter_timeout_brings_the_end_of_certainty_forward(is_answered: bool) -> None:
    now = asyncio.get_running_loop().time()
    assert Lifetime(float("inf")).until == float("-inf")
    lifetime, called = lasting(60.0), asyncio.Event()
    lifetime.on_uncertain.add(called.set)
    assert lifetime.until > now + 50.0
    if is_answered:
        lifetime.granted(now, now, 0.02, 0.5, is_new=False)
    else:
        lifetime.resuming(now, 0.02)
    await asyncio.sleep(0.03)
    assert called.is_set()


@in_virtual_time
async def test_the_time_of_a_suspension_counts_against_certainty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop's clock does not run meanwhile; the servers' clocks do."""
    slept = 1000.0
    monkeypatch.setattr(keepalive, "suspended", lambda: slept)
    loop = asyncio.get_running_loop()
    lifetime, called = lasting(5.0), asyncio.Event()
    certainty = lifetime.certainty
    assert certainty is not None
    lifetime.on_uncertain.add(called.set)
    slept += 2.0
    assert lifetime.until == pytest.approx(loop.time() + 3.0, abs=0.5)
    certainty.answered(loop.time(), loop.time(), AckLevel.SERVER)
    lifetime.answered(loop.time())
    assert not certainty.is_broken  # that answer has proven nothing
    slept += 3600.0
    async with asyncio.timeout(4.0):  # sooner than the timer for the end that was proven
        await called.wait()
    assert lifetime.until < loop.time()
    for _ in range(3):
        certainty.answered(loop.time(), loop.time() + 0.01, AckLevel.QUORUM)
        await asyncio.sleep(1.6)
    assert certainty.until > loop.time()  # as if the clock were right
    lifetime.answered(loop.time())
    assert certainty.is_broken
    assert lifetime.until < loop.time()


@in_virtual_time
async def test_each_moment_of_a_suspension_counts_also_in_a_handshake_but_not_the_time_between_two_readings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept = 1000.0
    monkeypatch.setattr(keepalive, "suspended", lambda: slept)
    now = asyncio.get_running_loop().time()
    lifetime = Lifetime(float("inf"))
    slept += 3.0
    lifetime.granted(now, now, 5000.0, 0.5, is_new=True)
    assert (until := lifetime.until) == now + 4997.0
    slept += 0.0005
    assert lifetime.until == until
    slept += 0.01
    assert lifetime.until == pytest.approx(until - 0.0105)


@in_virtual_time
async def test_what_was_asked_before_the_machine_was_suspended_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    slept = 1000.0
    monkeypatch.setattr(keepalive, "suspended", lambda: slept)
    async with a_client(timeout=9.0) as (server, zk):
        zk.need_certainty()
        await asyncio.sleep(30.0)
        slept += 1.0
        await server.reconnect(zk)
        await zk.certify()
        assert "create" not in server.names()  # no witness: the chain was proven until now, and goes on
        for _ in range(3):
            await zk.sync("/")
        assert zk.certain_for(zk.session_id) > 0
        slept += 3600.0
        assert zk.certain_for(zk.session_id) == 0
        await zk.sync("/")
        assert zk.certain_for(zk.session_id) == 0
        await zk.certify()
        assert 0 < zk.certain_for(zk.session_id) <= zk.session_timeout


def test_the_clock_that_stands_still_is_taken_from_the_one_that_runs_if_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keepalive, "_BOOT_CLOCK", 7)
    monkeypatch.setattr(time, "clock_gettime", {7: 5000.0}.__getitem__)
    monkeypatch.setattr(time, "monotonic", lambda: 1400.0)
    assert keepalive.suspended() == 3600.0
    monkeypatch.setattr(keepalive, "_BOOT_CLOCK", None)
    assert keepalive.suspended() == 0
