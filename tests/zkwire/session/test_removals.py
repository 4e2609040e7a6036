"""The removals of the clean-up in virtual time: what they send, when callers wait, and when they end."""

import asyncio

import pytest

from tests.support.client import begun, turns
from tests.support.virtual_time import a_client, in_virtual_time, now
from tests.zkwire.session.test_cleanup_at_each_moment import behind_and_overloaded, throttled
from zkwire import ThrottledError


@in_virtual_time
async def test_callers_wait_for_a_removal_as_long_as_one_of_the_removals_ends_each_second() -> None:
    async with a_client() as (server, zk):
        for name in "abcd":
            await zk.create(f"/{name}")
        server.strike = throttled("delete", path="/a")
        start = now()
        first = zk.discard("/a")
        for second in (0.5, 1.5):
            await asyncio.sleep(start + second - now())
            await zk.discard("/b" if second == 0.5 else "/c")
            assert not first.done()
        await asyncio.sleep(start + 2.99 - now())
        assert not first.done()
        await first
        assert now() - start == pytest.approx(3.0, abs=0.01)
        # While none ends, a new one is not waited for either.
        server.strike = throttled("delete")
        server.names()
        assert zk.discard("/d").done()
        await turns()
        assert server.names("ping") == ["delete"]
        # They go on anyway, and callers wait again as soon as one has ended.
        server.strike = throttled("delete", path="/a")
        await asyncio.sleep(0.2)
        assert sorted(await zk.get_children("/")) == ["a", "zookeeper"]
        await zk.create("/b")
        removed = zk.discard("/b")
        assert not removed.done()
        await removed
        server.strike = throttled()
        await asyncio.sleep(1.7)  # the timer has ended
        assert await zk.get_children("/") == ["zookeeper"]
        server.strike = throttled("delete")  # and as before
        await zk.create("/e")
        start = now()
        await zk.discard("/e")
        assert now() - start == pytest.approx(1.0, abs=0.01)


@in_virtual_time
@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_kept_session_waits_for_a_removal_that_is_refused_for_half_its_timeout_with_few_pings(
    is_lost: bool,
) -> None:
    """And no longer than it has the connection."""
    async with a_client() as (server, zk):
        await zk.create("/a", ephemeral=True)
        server.strike = throttled("delete")
        zk.discard("/a")
        server.names()
        start = now()
        closing = await begun(zk.close(keep_session=True))
        if is_lost:
            await server.cut_off(zk)
        await closing
        assert now() - start == pytest.approx(0.0 if is_lost else zk.session_timeout / 2, abs=0.1)
        pings = server.names().count("ping")
        assert 10 * (now() - start) < pings < 10 * (now() - start) + 10
        assert zk.session_id in server.machine.sessions.by_id


@in_virtual_time
async def test_a_removal_that_is_refused_for_good_is_reported_and_one_of_a_missing_node_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with a_client() as (server, zk):
        await zk.create("/a/b", make_parents=True)
        await zk.discard("/a")
        await zk.discard("/none")
        assert server.names()[-2:] == ["delete", "delete"]
    (report,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert report.startswith("a node that should be deleted remains: delete /a: ")


@in_virtual_time
@pytest.mark.parametrize("newest", [None, 1 << 40])
async def test_a_removal_that_goes_on_while_the_client_closes_ends_with_the_session(newest: int | None) -> None:
    """Nothing can be asked any more: the session ends, and its ephemeral nodes with it."""
    async with a_client() as (server, zk):
        await zk.create("/a", ephemeral=True)
        server.strike = throttled("delete")
        removed = zk.discard("/a", newest_zxid=newest)
        server.is_holding = True
        closing = await begun(zk.close())
        assert not removed.done()
        server.drop()  # the delete fails, and cannot be followed by another request
        await turns()
        assert removed.done()
        server.is_holding = False
        await closing
        assert server.names("create")[:3] == ["delete", "closeSession", "connect"]


@in_virtual_time
@pytest.mark.parametrize("is_answered", [True, False])
async def test_a_removal_that_waits_when_its_session_ends_deletes_nothing_in_the_next_one(is_answered: bool) -> None:
    """Its node went with the session, and another client may have created one at the same path."""
    async with a_client() as (server, zk):
        await zk.create("/e", ephemeral=True)
        code = ThrottledError.code if is_answered else False
        server.strike = lambda wire, sent: code if sent.name == "delete" else None
        removed, later = zk.discard("/e"), zk.guaranteed_delete("/e", session_id=zk.session_id)
        await server.until("delete")
        server.machine.expire(zk.session_id)
        server.drop()
        server.strike = throttled()
        await removed
        assert later.start().done()  # not even sent
        await zk.create("/e")
        await asyncio.sleep(1.0)
        assert await zk.exists("/e") is not None
        assert server.names().count("delete") == 1
        server.strike = throttled("delete")
        await zk.discard("/e")  # and as before, it is not waited for as long as none ends


@in_virtual_time
async def test_a_removal_whose_answer_is_lost_looks_behind_a_sync_and_believes_no_answer_behind_a_refused_one() -> None:
    """It would leave a node that its server does not know yet, or delete one that took the place of its own."""
    async with a_client() as (server, zk):
        _, stat = await zk.create_and_stat("/n/a", make_parents=True)
        server.is_silent = True
        removed = zk.discard("/n/a", newest_zxid=stat.czxid)
        await turns()
        server.drop()
        server.is_silent = False
        server.strike = behind_and_overloaded
        server.names()
        await server.until("sync", 2)
        server.strike = throttled("sync")
        await server.until("exists", 4)
        assert "delete" not in server.names()
        server.strike = throttled()
        await removed
        asked = [("sync", "/n"), ("exists", "/n/a"), ("delete", "/n/a")]
        assert [(sent.name, sent.path) for sent in server.requests][-3:] == asked
        assert await zk.exists("/n/a") is None
