"""Cancelling a verb at any moment leaves no node and no watch; lost connections make that hard."""

import asyncio
import contextlib
from unittest.mock import patch

import pytest

import zkwire
from tests.support.client import cancelled, eventually, states_until, turns, watched
from tests.support.everywhere import Scene, cancel_at_every_moment
from tests.support.examples import some_in_quick
from tests.support.proxy import Proxy
from tests.support.virtual_time import a_client, in_virtual_time
from tests.zkwire.session.verbs import ALL, CREATES, WATCHES, Verb
from zkwire import Client, ConnectionLostError, NoNodeError, SessionState
from zkwire.testing import RealServer

EPHEMERAL = [verb for verb in CREATES if "ephemeral" in verb or "both" in verb]


async def unwatched(server: RealServer, proxy: Proxy, verb: str, path: str) -> None:
    """Wait until the server has no watch on `path` and its child "none"; child watches are seen by the proxy only."""
    if "children" in verb:
        removed = await proxy.seen("removeWatches", direction="reply")
        assert (removed.path, removed.err) == (path, 0)

    async def is_so() -> bool:
        return not (await watched(server, path) or await watched(server, f"{path}/none"))

    await eventually(is_so)


@in_virtual_time
@pytest.mark.parametrize("verb", ALL)
async def test_a_request_cancelled_while_it_waits_for_a_connection_is_never_sent(verb: str) -> None:
    async with a_client() as (server, zk):
        server.refused = {"a", "b"}
        server.drop()
        await states_until(zk.states(), SessionState.SUSPENDED)
        held = asyncio.create_task(ALL[verb][1](zk, "/p"))
        await turns(3)
        await cancelled(held)
        server.refused = set()
        await zk.ping()
        await zk.ping()
        assert server.names("ping") in (["connect"], ["connect", "removeWatches"])


@in_virtual_time
@pytest.mark.parametrize("verb", [verb for verb in ALL if verb != "ensure_path"])
async def test_a_request_cancelled_in_the_turn_of_its_submission_is_never_sent(verb: str) -> None:
    async with a_client() as (server, zk):
        soon = asyncio.create_task(ALL[verb][1](zk, "/p"))
        await turns(1)
        await cancelled(soon)
        await zk.ping()
        await zk.ping()
        assert server.names("ping") in ([], ["removeWatches"])


@pytest.mark.parametrize("verb", [verb for verb in WATCHES if "get_and_watch of" not in verb])
async def test_a_watch_whose_wait_is_cancelled_is_removed_from_the_server(
    zookeeper: RealServer, path: str, verb: str
) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        await zk.create(f"{path}/child", make_parents=True)
        outcome = await WATCHES[verb][1](zk, path)
        assert isinstance(outcome, tuple)
        watch = outcome[1]

        async def wait() -> None:
            await watch

        waiting = asyncio.create_task(wait())
        await turns(1)
        assert "children" in verb or await watched(zookeeper, path) or await watched(zookeeper, f"{path}/none")
        await cancelled(waiting)
        await unwatched(zookeeper, proxy, verb, path)


@pytest.mark.parametrize("verb", WATCHES)
async def test_a_watch_cancelled_at_any_moment_is_removed_from_the_server(verb: str) -> None:
    async def act(stage: Scene) -> None:
        with contextlib.suppress(NoNodeError):
            outcome = await WATCHES[verb][1](stage.zk, stage.path)
            assert isinstance(outcome, tuple)
            await outcome[1]

    await cancel_at_every_moment(act, prepare=with_child, stays=["child"], most=20)


@pytest.mark.parametrize("verb", EPHEMERAL)
async def test_the_ephemeral_node_of_a_create_cancelled_at_any_moment_is_removed(verb: str) -> None:
    await removed_at_every_moment(CREATES[verb][1])


async def test_a_pipeline_cancelled_at_any_moment_leaves_no_node_and_no_watch() -> None:
    async def pipeline(zk: Client, path: str) -> None:
        watches = zkwire.WatchSet()
        await zk.pipeline(
            [
                zkwire.GetData(f"{path}/none", into=watches),
                zkwire.Create(f"{path}/n-", ephemeral=True, sequential=True),
                zkwire.Create(f"{path}/child"),
                zkwire.GetData(path, into=watches),
                zkwire.GetChildren(f"{path}/child", into=watches),
            ]
        )
        watches.cancel()

    await removed_at_every_moment(pipeline)


@pytest.mark.parametrize("verb", some_in_quick(EPHEMERAL, 1))
async def test_the_ephemeral_node_of_a_create_cancelled_at_any_moment_and_cut_off_is_removed_pitfall_10(
    verb: str,
) -> None:
    """Its answer is lost: a search finds the node, also if the caller is cancelled in the turn of the loss."""
    await removed_at_every_moment(CREATES[verb][1], cut=True)


async def removed_at_every_moment(call: Verb, *, cut: bool = False) -> None:
    """Cancel `call`, which creates a node, at every moment; only the node of a call that was not cancelled may stay.

    Arguments: `cut`, whether the create is carried out and the connection then cut, ahead of the answer.
    """
    is_over = False
    cuts = []

    async def prepare(stage: Scene) -> None:
        await with_child(stage)
        if cut:
            cuts.append(stage.server.drop_after("create", session=stage.zk.session_id))

    async def act(stage: Scene) -> None:
        nonlocal is_over
        with contextlib.suppress(ConnectionLostError):
            await call(stage.zk, stage.path)
        is_over = True

    async def afterwards(stage: Scene) -> None:
        for each in cuts:
            each.end()
        if is_over:
            for name in set(await stage.other.get_children(stage.path)) - {"child"}:
                await stage.other.delete(f"{stage.path}/{name}")

    # A first pause of 1 ms before reconnecting: otherwise the runs spend most of their time in pauses.
    with patch("zkwire.session.hosts._FIRST_PAUSE", 0.001):
        await cancel_at_every_moment(act, prepare=prepare, afterwards=afterwards, stays=["child"])
    assert is_over
    assert not cuts or cuts[-1].hits == 1


async def with_child(stage: Scene) -> None:
    await stage.other.create(f"{stage.path}/child", make_parents=True)
