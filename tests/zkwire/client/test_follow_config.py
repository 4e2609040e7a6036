"""A client that follows the configuration of its ensemble, which the tests write on the server in memory."""

import asyncio
import base64
import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import zkwire
from tests.support.client import reconnected, states_until
from tests.support.recipes import no_task_stays, until
from zkwire import Client, SessionState
from zkwire.testing import Server

pytestmark = pytest.mark.limit(30)

CONFIG = "/zookeeper/config"
CONNECTED, SUSPENDED, EXPIRED = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.EXPIRED
SECRET = b"super:secret"
SUPER = f"super:{base64.b64encode(hashlib.sha1(SECRET).digest()).decode()}"


@asynccontextmanager
async def ensemble() -> AsyncIterator[tuple[Server, Client]]:
    """A server, and a client that may write the configuration."""
    async with (
        Server(super_digest=SUPER) as server,
        zkwire.connect(server.hosts, auth=[("digest", SECRET)]) as admin,
        no_task_stays(),
    ):
        yield server, admin


def member(server: Server, host: str) -> bytes:
    """Return the line of a server in the configuration, with another name for the address of `server`."""
    port = server.hosts.rpartition(":")[2]
    return f"server.1={host}:2888:3888:participant;{port}\nversion=1\n".encode()


async def test_servers_in_the_configuration_are_used_now_and_after_a_change(caplog: pytest.LogCaptureFixture) -> None:
    async with ensemble() as (server, admin):
        port = server.hosts.rpartition(":")[2]
        with caplog.at_level(logging.INFO, "zkwire"), server.delay_replies(0, "getData", path=CONFIG) as reads:
            async with zkwire.connect(server.hosts, follow_config=True) as zk:
                await reads.until_hit()
                for _ in range(20):
                    await zk.ping()
                assert reads.hits == 1  # the next read follows a change
                states = zk.states()
                await admin.set(CONFIG, member(server, "localhost"))
                await reconnected(states)
                assert zk.server == f"localhost:{port}"
                await admin.set(CONFIG, b"version=2\n")  # an empty list changes nothing
                await admin.set(CONFIG, member(server, "127.0.0.1"))
                await reconnected(states)
                assert zk.server == f"127.0.0.1:{port}"
                await until(lambda: reads.hits >= 4)
                await admin.set(CONFIG, member(server, "127.0.0.1"))  # and neither does the same list
                await until(lambda: reads.hits >= 5)
                await zk.ping()
                await admin.set(CONFIG, member(server, "localhost").replace(port.encode(), b"1"))
                await reconnected(states)
                assert zk.server == server.hosts  # the last resort: no server of the list answers
            await until(lambda: not following())
            assert CONFIG not in await zkwire.four_letter_word(server.hosts, "wchp")
        listed = [text for text in caplog.messages if "the configuration of the ensemble lists" in text]
        assert [text.rpartition(" ")[2] for text in listed] == [f"localhost:{port}", f"127.0.0.1:{port}", "localhost:1"]


async def test_the_same_list_in_a_new_session_changes_nothing() -> None:
    async with ensemble() as (server, admin):
        await admin.set(CONFIG, member(server, "127.0.0.1"))
        async with zkwire.connect(server.hosts, follow_config=True) as zk:
            for _ in range(2):
                states = zk.states()
                with server.delay_replies(0, "getData", path=CONFIG) as read:
                    server.expire(zk.session_id)
                    assert (await states_until(states, EXPIRED))[-1] is EXPIRED
                    await states_until(states, CONNECTED)
                    await read.until_hit()
                for _ in range(3):
                    await zk.ping()
                assert zk.state is CONNECTED


async def test_a_list_that_restarted_servers_read_from_their_files_is_used_though_it_has_no_zxid(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="zkwire")
    async with ensemble() as (server, _):
        node = server._machine.tree.nodes[CONFIG]
        node.data = member(server, "127.0.0.1")
        async with zkwire.connect(server.hosts, follow_config=True) as zk:
            await until(lambda: "lists the servers 127.0.0.1:" in caplog.text)
            node.data = member(server, "127.0.0.2")
            server.expire(zk.session_id)
            await until(lambda: "lists the servers 127.0.0.2:" in caplog.text)


async def test_without_another_session_it_ends_with_the_session() -> None:
    async with ensemble() as (server, _):
        zk = await zkwire.connect(server.hosts, follow_config=True, renew=False)
        await zk.ping()
        server.expire(zk.session_id)
        await states_until(zk.states(), EXPIRED)
        await until(lambda: not following())
        await zk.close()


def following() -> list[asyncio.Task[object]]:
    """Return the tasks that follow a configuration."""
    return [task for task in asyncio.all_tasks() if task.get_name() == "zkwire background"]


@pytest.mark.parametrize("refusal", [zkwire.NoAuthError, zkwire.NoNodeError])
async def test_a_configuration_that_cannot_be_read_is_reported_and_not_followed(
    refusal: type[zkwire.ServerError], caplog: pytest.LogCaptureFixture
) -> None:
    async with ensemble() as (server, _):
        with (
            server.answering("getData", refusal, path=CONFIG) as refused,
            server.answering("exists", refusal, path=CONFIG),
        ):
            async with zkwire.connect(server.hosts, follow_config=True) as zk:
                await refused.until_hit()
                await until(lambda: not following())
                assert await zk.exists("/a") is None
            assert refused.hits == 1
        (report,) = [text for text in caplog.messages if CONFIG in text]
        about = f"cannot read the list of servers in {CONFIG} of {server.hosts}, and will not follow it any more: "
        assert report.startswith(f"{about}getData {CONFIG}: ")


async def test_what_is_larger_than_a_list_of_servers_is_reported_not_followed(caplog: pytest.LogCaptureFixture) -> None:
    async with ensemble() as (server, _):
        server._machine.tree.nodes[CONFIG].data = member(server, "localhost") * 2000
        async with zkwire.connect(server.hosts, follow_config=True):
            await until(lambda: not following())
        assert f"in {CONFIG} of {server.hosts}, and will not follow it any more: a list of servers has " in caplog.text


async def test_after_a_transient_refusal_nothing_is_asked_in_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zkwire.client.follow_config._PAUSE", 3600.0)
    async with ensemble() as (server, _):
        with server.answering("getData", zkwire.ThrottledError, path=CONFIG) as refused:
            async with zkwire.connect(server.hosts, follow_config=True) as zk:
                await refused.until_hit()
                for _ in range(20):
                    await zk.ping()
                assert (refused.hits, len(following())) == (1, 1)
