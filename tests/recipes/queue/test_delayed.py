"""Delayed items: when they come, by whose clock, in which order, and what they cost."""

import asyncio
import logging
from unittest.mock import DEFAULT, AsyncMock

import pytest

import zkwire
from recipes import Queue
from recipes.queue import delayed
from tests.support.client import Server as AnyServer
from tests.support.queues import PATH, clients, drain, numbers, settled
from tests.support.recipes import until_line
from tests.support.virtual_time import a_client, in_virtual_time, now
from zkwire import Perms

LONG = 3600.0


async def test_a_delayed_item_comes_in_its_time_to_a_consumer_that_waits(each_server: AnyServer, path: str) -> None:
    """A delayed item is not given before its time, by the clock of the ensemble's leader."""
    async with zkwire.connect(each_server.hosts) as zk, zkwire.connect(each_server.hosts) as other:
        queue, loop, found = Queue(other, path), asyncio.get_running_loop(), []
        waiting = asyncio.create_task(queue.get(within=30))
        await until_line(zk, f"{path}/consumers", 1)
        start = loop.time()
        await Queue(zk, path).put(b"late", 7, delay=0.6)
        await Queue(zk, path).put_many([b"1", b"2"], delay=0.3)
        await Queue(zk, path).put(b"never", 0, delay=LONG)
        for number in range(3):
            found.append(await (queue.get(within=30) if number else waiting))
            assert loop.time() - start >= (0.6 if found[-1] == b"late" else 0.3)
        assert [data for data in found if data != b"late"] == [b"1", b"2"]
        assert (await queue.size(), await queue.peek(), len(await zk.get_children(f"{path}/delayed"))) == (0, None, 1)
        await settled(zk, path)


@in_virtual_time
async def test_a_consumer_that_waits_looks_when_the_next_item_is_due_and_once_a_minute() -> None:
    async with a_client() as (server, zk):
        queue, loop = Queue(zk, PATH), asyncio.get_running_loop()
        start = loop.time()
        await queue.put_many([b"a", b"b"], delay=90.25)
        assert len({name[:15] for name in await zk.get_children(f"{PATH}/delayed")}) == 1
        async with queue.claim() as item:
            assert item == b"a"
            assert 90.25 <= loop.time() - start < 90.3
            assert sum(sent.name == "setData" for sent in server.requests) == 3 + 1  # one finds no node
            await queue.put(b"c", delay=0.3)
            start = loop.time()
            assert [await queue.get(), await queue.get()] == [b"b", b"c"]
            assert 0.3 <= loop.time() - start < 0.35  # though all other items are claimed


@pytest.mark.parametrize(("jump", "is_due"), [(-60, False), (0, False), (29, False), (30.1, True)])
async def test_a_leader_whose_clock_is_wrong_gives_items_by_so_much_earlier_or_later(jump: float, is_due: bool) -> None:
    async with clients(1) as (server, (zk,)):
        await Queue(zk, PATH).put(b"a", delay=30)
        server._machine._wall_offset += jump
        assert await Queue(zk, PATH).size() == is_due


@in_virtual_time
async def test_a_queue_that_is_asked_again_and_again_lists_the_delayed_items_when_others_have_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a list of many, not at once: otherwise each delayed put would cost each consumer a list of all."""
    monkeypatch.setattr(delayed, "_PAUSE_PER_NAME", 0.3)
    async with a_client() as (server, zk):
        await Queue(zk, PATH).put(b"a")
        queue, counts = Queue(zk, PATH), []
        for pause, delay in ((0.0, 0.0), (0.0, LONG), (0.0, 0.0), (0.0, LONG), (0.29, 0.0), (0.02, 0.0)):
            await asyncio.sleep(pause)
            for _ in range(2):
                server.names()
                assert await queue.size() == 1
                counts.append(len(server.names("ping", "sync")))
            if delay:
                await Queue(zk, PATH).put(b"b", delay=delay)
        assert counts == [2, 2, 2, 2, 4, 2, 2, 2, 2, 2, 3, 2]
        waiting = [asyncio.create_task(queue.get()) for _ in range(2)]
        await Queue(zk, PATH).put(b"soon", delay=0.05)
        await asyncio.sleep(0.59)
        assert not waiting[1].done()
        await asyncio.sleep(0.02)
        assert [each.result() for each in waiting] == [b"a", b"soon"]


@pytest.mark.parametrize("given", [0, 2**31 - 2])  # numbers, so far
async def test_items_that_are_due_together_come_once_each(given: int, caplog: pytest.LogCaptureFixture) -> None:
    async with clients(4) as (server, zks):
        queues = [Queue(zk, PATH) for zk in zks]
        await queues[0]._nodes.make(f"{PATH}/delayed")
        await zks[0].create(f"{PATH}/entries/delayed")  # by hand: it hinders no put
        server._machine.tree.nodes[f"{PATH}/delayed"].creates = given
        await queues[0].put_many(numbers(20), delay=0.001)
        await queues[0].put_many(numbers(20, 40), delay=0.01)
        await asyncio.sleep(0.3)  # the time itself
        await zks[0].create(f"{PATH}/delayed/000000000000001-100--2147483648", b"40")  # by an older server
        assert await asyncio.gather(*(queue.size() for queue in queues)) == [41] * 4
        await zks[0].create(f"{PATH}/delayed/100-0000000001")  # by hand: it is none
        getting = [asyncio.create_task(queues[number % 4].get(within=30)) for number in range(41)]
        assert sorted(await asyncio.gather(*getting)) == sorted(numbers(41))
        assert await zks[0].get_children(f"{PATH}/delayed") == ["100-0000000001"]
        assert not caplog.text


@pytest.mark.parametrize("size", [1, 9000])
async def test_an_item_that_cannot_be_moved_does_not_hide_others(caplog: pytest.LogCaptureFixture, size: int) -> None:
    async with clients(1) as (server, (other,)), zkwire.connect(server.hosts, request_limit=5000) as zk:
        queue = Queue(zk, PATH)
        await Queue(other, PATH).put_many([bytes(size), b"1"], delay=0.01)
        first = min(await zk.get_children(f"{PATH}/delayed"))
        if size == 1:
            await zk.delete(f"{PATH}/delayed/{first}")
            await zk.create(f"{PATH}/delayed/{first}", acl=[zkwire.digest_acl("other", "x")])
        with caplog.at_level(logging.WARNING, delayed.__name__):
            assert [await queue.get(within=5), await queue.size(), await queue.size()] == [b"1", 0, 0]
            with pytest.raises(TimeoutError):
                await queue.get(within=0.05)
        assert [first in record.getMessage() for record in caplog.records] == [True]
        known = queue._consumer.view.delayed
        assert list(known._due) == [first]
        assert known.next_look is not None
        assert 50 < known.next_look - asyncio.get_running_loop().time() <= 60


@pytest.mark.parametrize("how", ["used up", "deleted", "made by another program"])
@in_virtual_time
async def test_delayed_items_are_found_when_the_numbers_of_the_others_have_begun_again(how: str) -> None:
    async with a_client() as (server, zk):
        queue, reader, entries = Queue(zk, PATH), Queue(zk, PATH), f"{PATH}/entries"
        await queue.put(b"late", delay=30)
        server.machine.tree.nodes[entries].creates = 2**31 - 1
        if how == "made by another program":
            assert await reader.size() == 0  # it knows of the delayed item
            await zk.delete(entries)
            await zk.create(entries)
        elif how == "deleted":
            await zk.delete(entries)
            drops = {entries: server.drop}  # at the first request for that node
            server.strike = lambda wire, sent: drops.pop(sent.path)() is not None if sent.path in drops else None
        await queue.put_many([b"1", b"2"])  # makes `entries` again
        await asyncio.sleep(31)  # of virtual time
        assert await drain(reader) == [b"1", b"2", b"late"]


@pytest.mark.parametrize("lacks", [Perms.READ, Perms.WRITE, Perms.DELETE])
@in_virtual_time
async def test_a_consumer_that_may_not_use_the_delayed_items_takes_the_others(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, lacks: Perms
) -> None:
    """It says so once, and tries it again after a pause, also while it waits."""
    monkeypatch.setattr(delayed, "_BELIEVED_FOR", 20.0)
    async with a_client() as (server, zk):
        queue, lists = Queue(zk, PATH, max_attempts=2), ["getChildren2", "getChildren"]
        known = queue._consumer.view.delayed
        await Queue(zk, PATH).put_many(numbers(2))
        await Queue(zk, PATH).put(b"late", delay=0.001)
        await asyncio.sleep(0.01)  # of virtual time: it is due
        await zk.set_acl(f"{PATH}/delayed", [zkwire.ACL(Perms.ALL & ~(lacks | Perms.CREATE), "world", "anyone")])
        with pytest.raises(zkwire.NoAuthError):
            await queue.put(b"refused", delay=1)
        with caplog.at_level(logging.WARNING, delayed.__name__):
            start, _ = now(), server.names()
            assert (await queue.size(), server.names().count("getChildren2")) == (2, 1)
            assert (await queue.size(), server.names()) == (2, lists)
            assert await queue.get() == b"0"
            async with queue.claim() as item:
                assert item == b"1"
            waiting = asyncio.create_task(queue.get())
            await asyncio.sleep(1)
            await zk.set_acl(f"{PATH}/delayed", zkwire.OPEN_ACL)
            assert await waiting == b"late"
            assert 20 <= now() - start < 20.1
        (warning,) = caplog.messages
        assert f"{PATH}/delayed cannot be used by this client" in warning
        await asyncio.sleep(21)  # the leader's time is not asked for without need
        server.names()
        assert (await queue.size(), known.next_look, server.names()) == (0, None, lists)


async def test_an_item_that_may_not_have_been_moved_is_moved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with clients(1) as (_, (zk,)):
        await (queue := Queue(zk, PATH)).put(b"a", delay=0.0001)
        producer = queue._consumer.view.delayed._producer
        outcomes = [zkwire.ConnectionLostError("", maybe_applied=True), DEFAULT]
        monkeypatch.setattr(producer, "put", AsyncMock(wraps=producer.put, side_effect=outcomes))
        assert await queue.get(within=2) == b"a"


async def test_a_look_at_the_queue_waits_for_no_quorum() -> None:
    async with clients(1) as (server, (zk,)):
        queue = Queue(zk, PATH)
        await asyncio.gather(queue.put(b"1"), queue.put(b"late", delay=0.001))
        with server.answering("setData", zkwire.NotReadOnlyError):
            zk._session.states.now = zkwire.SessionState.READ_ONLY
            assert await queue.size() == 1
            zk._session.states.now = zkwire.SessionState.CONNECTED
