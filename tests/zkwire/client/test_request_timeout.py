"""The `request_timeout` of `connect`: when it begins, what it leaves, what its error says, and who hears of it."""

import asyncio

import pytest

import zkwire
from recipes import Counter
from recipes.line.known import line_of
from tests.simulation.loop import Machine
from tests.support.client import cancelled, states_until
from tests.support.everywhere import scene
from tests.support.observer import Records
from tests.support.virtual_time import Sent, Wire, a_client, block, in_virtual_time
from zkwire import GetData, NoAnswerError


async def test_a_request_timeout_limits_each_request_of_a_verb_and_none_of_a_recipe_or_a_stream() -> None:
    async with scene() as stage, zkwire.connect(f"{stage.server.hosts}/app", request_timeout=0.02) as zk:
        session, server = zk.session_id, stage.server
        await zk.unlimited.ensure_path("/a")
        assert line_of(zk, "/a") is line_of(zk.unlimited, "/a")
        async with server.hold_replies(session=session):
            adding = asyncio.ensure_future(Counter(zk, "/count").add(1))
            reading = asyncio.ensure_future(anext(zk.data("/a")))
            for call, what in (
                (zk.get_and_watch("/a"), "getData /a"),
                (zk.create("/e", ephemeral=True), "create /e"),
                (zk.sync("/"), "sync /"),
                (zk.delete_tree("/a"), "getChildren2 /a"),
            ):
                with pytest.raises(
                    NoAnswerError, match=f"^{what}: no answer within .* of 0.02 s: {zk.server} has not a"
                ):
                    await call
            assert (adding.done(), reading.done()) == (False, False)
        assert (await adding, (await reading) is None) == (1, False)
        assert await zk.unlimited.exists("/e") is None, "as after a cancelled create"
        with server.refuse_connections():
            server.drop(session)
            await states_until(zk.states(), zkwire.SessionState.SUSPENDED)
            with pytest.raises(TimeoutError, match=f"create /never: .*: {zk.server} is not connected$"):
                await zk.create("/never")
            with pytest.raises(NoAnswerError) as late:
                await zk.add_auth("digest", b"bob:pw")
            assert not late.value.maybe_applied
        assert (await zk.unlimited.exists("/never"), zk.identity_count) == (None, 0)


@in_virtual_time
async def test_what_waits_behind_other_requests_or_a_blocked_event_loop_is_not_late() -> None:
    async with a_client(request_timeout=1.0, max_in_flight=1) as (server, zk):
        server.latency = lambda: 0.4
        await asyncio.gather(*(zk.exists("/") for _ in range(5)))
        server.latency = None
        writing = asyncio.ensure_future(zk.create("/a"))
        await asyncio.sleep(0)
        block(2.0)
        await writing
        assert isinstance(server.loop, Machine)
        assert not [line for line in server.loop.left() if "_submit_within" in line]


@in_virtual_time
@pytest.mark.parametrize("kind", ["sent", "blocked", "waiting", "sent again"])
async def test_the_limit_begins_when_a_request_is_written_once_and_without_a_connection_at_once(kind: str) -> None:
    async with a_client(request_timeout=1.0) as (server, zk):
        sent_at: list[float] = []

        def lose(wire: Wire) -> None:
            server.is_holding = False
            wire.lose(None)

        def strike(wire: Wire, sent: Sent) -> None:
            if sent.name == "getData":
                sent_at.append(sent.at)
                server.is_holding = True
                if kind == "sent again":
                    server.loop.call_later(0.8, lose, wire)

        server.strike = strike
        begin = server.loop.time()
        if kind == "waiting":
            await server.cut_off(zk)
            begin = server.loop.time()
            server.loop.call_later(0.5, server.refused.clear)
        reading = asyncio.ensure_future(zk.get("/"))
        if kind == "blocked":
            await asyncio.sleep(0)
            block(2.0)
        with pytest.raises(NoAnswerError) as late:
            await reading
        assert (late.value.maybe_applied, "cancelled" in str(late.value)) == (False, False)
        limits = {"sent": 1.0, "blocked": 3.0, "waiting": 1.0, "sent again": 1.8}
        assert server.loop.time() - begin == pytest.approx(limits[kind], abs=0.05)
        assert len(sent_at) == (3 if kind == "sent again" else 1)
        server.release()


@in_virtual_time
async def test_what_is_late_stands_in_the_results_of_a_pipeline_and_is_reported_once() -> None:
    seen = Records()
    async with a_client("a,b/app", request_timeout=1.0, observer=seen) as (server, zk):
        await zk.ensure_path("/")
        create = zkwire.Create("/e", ephemeral=True)
        server.strike = lambda _, sent: setattr(server, "is_holding", sent.name == "create2") if sent.path else None
        root, late = await zk.pipeline([GetData("/"), create])
        assert (root.data, late.operation, late.path, late.maybe_applied) == (b"", "create2", "/e", True)
        assert str(late).endswith("it counts as cancelled: it may yet be carried out, and what it creates be removed")
        with pytest.raises(NoAnswerError):
            await zk.get_many([GetData("/")])
        server.names()
        adding = asyncio.ensure_future(zk.pipeline([create]))
        await server.until("create2")
        await cancelled(adding)
        server.release()
        await zk.ping()
        assert await zk.unlimited.exists("/e") is None
        ends = [error for name, path, error in seen.requests if (name, path) == ("create2", "/app/e")]
        assert ends == ["NoAnswerError", "NodeExistsError"]


@in_virtual_time
async def test_in_an_outage_all_verbs_end_and_name_the_callers_path() -> None:
    async with a_client("a,b/a", request_timeout=1.0) as (server, zk):
        await zk.create("/a/b", make_parents=True)
        server.strike = lambda _, sent: setattr(server, "is_holding", sent.name in ("getChildren", "exists"))
        for call, path in ((zk.delete_tree("/a"), "/a/b"), (zk.ensure_path("/a"), "/"), (zk.exists("/a/b"), "/a/b")):
            begin = server.loop.time()
            with pytest.raises(NoAnswerError) as late:
                await call
            assert late.value.path == path
            assert server.loop.time() - begin == pytest.approx(1.0)
            server.release()
        server.refused = {"a", "b"}
        server.drop()
        await states_until(zk.states(), zkwire.SessionState.EXPIRED)
        for call, what in ((zk.certify(), "certify"), (zk.add_auth("digest", b"bob:pw"), "auth")):
            with pytest.raises(NoAnswerError, match=f"^{what}: not done within the request_timeout of 1 s at "):
                await call
        server.refused.clear()


@in_virtual_time
async def test_an_identity_that_is_late_is_remembered_once_however_often_it_is_added() -> None:
    async with a_client(request_timeout=1.0) as (server, zk):
        server.is_holding = True
        for _ in range(2):
            with pytest.raises(NoAnswerError) as late:
                await zk.add_auth("digest", b"bob:pw")
            assert (late.value.maybe_applied, zk.identity_count) == (True, 1)
        server.drop_held()
        await zk.add_auth("digest", b"bob:pw")
        assert server.names() == ["auth", "connect", "auth"]
