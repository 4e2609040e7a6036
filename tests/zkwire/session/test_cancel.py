"""Cancelling a verb at any moment leaves no node and no watch; lost connections make that hard."""

import contextlib
from unittest.mock import patch

import pytest

import zkwire
from tests.support.client import given_up
from tests.support.everywhere import Scene, cancel_at_every_moment
from tests.support.examples import some_in_quick
from tests.support.virtual_time import a_client, in_virtual_time
from tests.zkwire.session.verbs import EPHEMERAL, WATCHES, WRITES, Verb
from zkwire import Client, ConnectionLostError, NoNodeError

ANY = WATCHES | EPHEMERAL | WRITES


@in_virtual_time
@pytest.mark.parametrize("is_connected", [True, False])
@pytest.mark.parametrize("verb", ANY)
async def test_a_request_cancelled_in_the_turn_of_its_submission_or_without_a_connection_is_never_sent(
    verb: str, is_connected: bool
) -> None:
    async with a_client() as (server, zk):
        if not is_connected:
            await server.cut_off(zk)
        await given_up(ANY[verb](zk, "/p"), 1 if is_connected else 3)
        server.refused = set()
        await zk.ping()
        await zk.ping()
        assert server.names("ping", "connect") in ([], ["removeWatches"])


@pytest.mark.parametrize("verb", WATCHES)
async def test_a_watch_cancelled_at_any_moment_is_removed_from_the_server(verb: str) -> None:
    async def act(stage: Scene) -> None:
        with contextlib.suppress(NoNodeError):
            outcome = await WATCHES[verb](stage.zk, stage.path)
            assert isinstance(outcome, tuple)
            await outcome[1]

    await cancel_at_every_moment(act, prepare=with_child, stays=["child"], most=20)


@pytest.mark.parametrize("verb", EPHEMERAL)
async def test_the_ephemeral_node_of_a_create_cancelled_at_any_moment_is_removed(verb: str) -> None:
    await removed_at_every_moment(EPHEMERAL[verb])


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
async def test_the_node_of_a_create_cancelled_at_any_moment_and_cut_off_is_removed_pitfall_10(verb: str) -> None:
    """Its answer is lost: a search finds the node, also if the caller is cancelled in the turn of the loss."""
    await removed_at_every_moment(EPHEMERAL[verb], cut=True)


async def removed_at_every_moment(call: Verb, *, cut: bool = False) -> None:
    """Cancel `call`, which creates a node, at every moment; only the node of a call that was not cancelled may stay.

    Args:
        cut: Whether the create is carried out and the connection then cut, before the answer.
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
