"""What keeps a session certain: how often proofs are sent, the requests of `certify`, and how a broken chain is mended.

The witness itself is tested in test_witness.py.
"""

import asyncio
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

import zkwire
from tests.support.client import InOrder, begun, turns
from tests.support.recipes import outcome
from tests.support.virtual_time import Sent, Server, Wire, a_client, in_virtual_time, now, tasks
from tests.zkwire.session.test_cleanup_at_each_moment import throttled
from zkwire import Client, SessionState
from zkwire.session import probe
from zkwire.session.hosts import CONFIG, Address
from zkwire.testing.memory.watch_manager import SEE_DATA
from zkwire.wire import connection, stepwise
from zkwire.wire.certainty import Certainty, Upkeep


class InPhase(InOrder):
    """Randomness that is always the same number, which is the phase of the proofs as well."""

    def __init__(self, number: float) -> None:
        super().__init__(1)
        self._number = number

    def random(self) -> float:
        return self._number


def chain(zk: Client) -> Certainty:
    """Return what is proven about the client's session."""
    certainty = zk._session.lifetime.certainty
    assert certainty is not None
    return certainty


# -- upkeep -----------------------------------------------------------------------------------------------------------


@in_virtual_time
@pytest.mark.parametrize("locks", [True, False])
async def test_the_upkeep_depends_on_the_locks_that_are_held_or_waited_for(locks: bool) -> None:
    async with a_client(locks=locks) as (server, zk):
        at_rest = Upkeep.READY if locks else Upkeep.NONE

        def upkeep() -> Upkeep:
            link = zk._session.requests.link
            assert link is not None
            return link.connection.upkeep

        assert upkeep() is at_rest
        zk.need_certainty(later=True)
        assert upkeep() is Upkeep.READY
        zk.need_certainty()
        zk.need_certainty()
        zk.release_certainty()
        assert upkeep() is Upkeep.CERTAIN
        server.drop()  # what is needed holds for the next connection as well
        await zk.ping()
        assert upkeep() is Upkeep.CERTAIN
        zk.release_certainty()
        zk.need_certainty(later=True)
        assert upkeep() is Upkeep.CERTAIN  # another lock often follows at once
        await asyncio.sleep(5.1)  # half the timeout
        assert upkeep() is Upkeep.READY
        zk.release_certainty(later=True)
        zk.release_certainty(later=True)
        await asyncio.sleep(5.1)
        assert upkeep() is at_rest


@in_virtual_time
async def test_a_need_makes_the_next_proof_come_earlier_than_the_next_ping() -> None:
    async with a_client(locks=False, rng=InPhase(0.4)) as (server, zk):
        await asyncio.sleep(6.0)
        assert server.names() == ["ping"] * 2
        zk.need_certainty()
        await turns()
        assert server.names() == []  # clients that come to need it together spread their proofs
        await server.until("sync")
        assert now() == pytest.approx(6.2, abs=0.01)  # a ping would come at 7.5


@in_virtual_time
async def test_a_proof_that_is_refused_is_sent_again_after_a_fortieth_of_the_timeout() -> None:
    async with a_client() as (server, zk):
        zk.need_certainty()
        server.strike = lambda wire, sent: zkwire.ThrottledError.code if sent.name == "sync" else None
        await server.until("sync", 3)
        first, *later = [sent.at for sent in server.requests if sent.name == "sync"]
        assert [at - first for at in later] == pytest.approx([0.25, 0.5], abs=0.01)


@in_virtual_time
async def test_a_proof_that_is_answered_behind_a_large_reply_brings_the_next_one_forward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    next_proofs = []
    for large in (stepwise.LARGE, 40):
        monkeypatch.setattr(connection, "LARGE", large)
        monkeypatch.setattr(stepwise, "_STEP", 1)
        async with a_client() as (server, zk):
            begun = now()
            await zk.create(f"/{'large':040}")
            zk.need_certainty()
            await server.until("sync", 2)
            server.is_holding = True
            listed = asyncio.ensure_future(zk.get_children("/"))
            await server.until("sync", 3)
            await asyncio.sleep(2.5)
            server.release()
            await server.until("sync", 4)
            next_proofs.append(now() - begun)
            assert len(await listed) == 2
    assert next_proofs[1] == pytest.approx(next_proofs[0], abs=0.01)


@in_virtual_time
@pytest.mark.parametrize("phase", [0.0, 0.3, 0.99])
async def test_an_idle_client_keeps_its_connection_and_its_chain_whatever_its_phase(phase: float) -> None:
    async with a_client(rng=InPhase(phase)) as (server, zk):
        await asyncio.sleep(60.0)
        assert set(server.names()) == {"sync"}
        assert chain(zk).is_linked


@in_virtual_time
async def test_a_server_without_a_quorum_gets_no_write_in_place_of_a_lost_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_client(read_only=True) as (server, zk):
        server.is_holding = True
        writing = await begun(zk.set("/", b""))
        server.drop_held()
        monkeypatch.setattr(Wire, "send", lambda wire, data, send=Wire.send: send(wire, data[:-1] + b"\1"))
        assert isinstance(await outcome(writing), zkwire.ConnectionLostError)
        await turns(20)
        assert (zk.state, server.names()) == (SessionState.READ_ONLY, ["setData", "connect"])


@in_virtual_time
@pytest.mark.parametrize("need", ["nothing", "later", "now"])
async def test_a_new_connection_proves_first_that_its_server_belongs_to_a_quorum_if_a_lock_needs_it(need: str) -> None:
    async with a_client(locks=False) as (server, zk):
        if need != "nothing":
            zk.need_certainty(later=need == "later")
        server.drop()
        await zk.exists("/a")
        assert server.names() == ["connect", *["multi"] * (need != "nothing"), "exists"]
        assert chain(zk).is_linked is (need != "nothing")


# -- certify ----------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_session_that_is_certain_for_more_than_a_tenth_of_its_timeout_needs_no_proof() -> None:
    async with a_client(locks=False) as (server, zk):
        await asyncio.sleep(8.9)
        server.names()
        await zk.certify()
        assert server.names() == []
        await asyncio.sleep(0.2)
        server.strike = lambda wire, sent: zkwire.NoAuthError.code
        with pytest.raises(zkwire.NoAuthError):
            await zk.certify()
        server.names()
        server.strike = throttled("sync", "multi")
        certifying = await begun(zk.certify(), 50)
        assert len(server.names()) == 3  # at once, and then one after each pause
        server.strike = throttled()
        await certifying
        assert set(server.names()) == {"sync", "multi"}
        assert zk.is_certain(zk.session_id)
        await server.until("ping")  # no lock needs a proof any more


@in_virtual_time
@pytest.mark.parametrize("is_known", [False, True])
async def test_a_resumed_session_becomes_certain_if_its_least_timeout_is_known(is_known: bool) -> None:
    async with a_client() as (server, former):
        key, least = (former.session_id, former.session_password), former.least_timeout
        await former.close(keep_session=True)
        server.names()
        server.latency = lambda: 0.001
        options: dict[str, Any] = {"least_timeout": least} if is_known else {}
        async with zkwire.connect(
            "a", session_id=key[0], session_password=key[1], open_link=server.open_link, rng=InOrder(1), **options
        ) as zk:
            await zk.ping()
            assert zk.least_timeout == options.get("least_timeout")
            if is_known:
                await zk.certify()
                assert zk.is_certain(key[0])
                names = server.names("sync", "ping")
                assert names[:3] == ["connect", "closeSession", "connect"]  # what does the server grant?
                assert (names[3:8], names.count("create")) == (["multi", *MENDED], 1)
            else:
                with pytest.raises(ValueError, match="the `least_timeout` of the client that had it"):
                    await zk.certify()
                assert (server.names("ping"), zk.certain_until) == (["connect"], float("-inf"))
                assert (zk.is_certain(key[0]), zk.is_cut_off()) == (False, False)


# -- a broken chain ---------------------------------------------------------------------------------------------------


async def cut_off(server: Server, zk: Client) -> None:
    """Have the server silent for longer than all that is certain; then a new leader gives each session its timeout."""
    session = zk.session_id
    server.latency = lambda: 0.001
    server.is_silent = True
    await asyncio.sleep(11.0)
    server.machine.restart(now())
    server.go_on()
    await zk.sync("/")
    assert zk.session_id == session
    assert chain(zk).is_broken
    await asyncio.sleep(0.001)  # a witness must begin later than the answer that has shown this
    server.names()


MENDED = ["connect", "create", "connect", "multi"]  # a witness begins and is refused later, and then a write


@in_virtual_time
@pytest.mark.parametrize("later", [True, False], ids=["waiting", "held"])
async def test_a_witness_and_a_write_mend_the_chain_of_a_client_with_a_lock(later: bool) -> None:
    async with a_client(locks=False, rng=InPhase(0.4)) as (server, zk):
        zk.need_certainty(later=later)
        await cut_off(server, zk)
        at = now()
        await server.until("connect")
        assert now() - at == pytest.approx(2.5 + 2.0, abs=0.01)  # at the first look, and spread over half a timeout
        await server.until("multi")
        assert now() - next(sent.at for sent in reversed(server.requests) if sent.name == "connect") < 0.1
        assert server.names("sync") == MENDED
        await asyncio.sleep(4.6)  # that write was sent in the very moment in which the witness had ended
        assert chain(zk).is_linked
        assert zk.is_certain(zk.session_id)
        await asyncio.sleep(30.0)
        assert "create" not in server.names()
        assert chain(zk).is_linked


@in_virtual_time
@pytest.mark.parametrize("locks", [True, False])
async def test_certify_mends_a_broken_chain_at_once(locks: bool) -> None:
    async with a_client(locks=locks) as (server, zk):
        await cut_off(server, zk)
        at = now()
        await asyncio.gather(zk.certify(), zk.certify())
        assert zk.is_certain(zk.session_id)
        names = server.names("sync", "ping")
        assert names[:4] == MENDED
        assert names.count("create") == 1  # one witness for both
        assert now() - at < 10.0
        await cut_off(server, zk)
        await asyncio.sleep(8.0)
        assert "create" not in server.names()  # no lock needs it any more


@in_virtual_time
@pytest.mark.parametrize("when", ["while it is made", "while it is left alone"])
async def test_the_witness_is_given_up_with_the_connection_and_leaves_no_task_and_no_socket(when: str) -> None:
    async with a_client(locks=False) as (server, zk):
        zk.need_certainty()
        await cut_off(server, zk)
        main = server.wire
        if when == "while it is made":
            server.strike = lambda wire, sent: False if sent.name == "create" else None
        await server.until("create")
        await asyncio.sleep(0.1)
        assert len(tasks("zkwire background")) == 1
        server.refused = {"a", "b"}
        main.lose(None)
        await asyncio.sleep(0.1)
        assert (tasks("zkwire background"), zk._session._background) == ([], set())
        assert not [wire for wire in server.wires if wire.is_open]


@in_virtual_time
async def test_a_witness_that_fails_is_tried_again_after_a_pause() -> None:
    failed: list[float] = []

    def fail(wire: Wire, sent: Sent) -> bool | None:
        if sent.name != "create" or len(failed) == 2:
            return None
        failed.append(sent.at)
        wire.lose(None)
        return False

    async with a_client() as (server, zk):
        await cut_off(server, zk)
        server.strike = fail
        await zk.certify()
        names = server.names("sync")
        assert names[:8] == ["connect", "create", "connect", "create", *MENDED]
        assert failed[1] - failed[0] == pytest.approx(10.0 / 16, abs=0.01)


# -- the role of the server -------------------------------------------------------------------------------------------


LISTED = b"server.1=a:2888:3888:participant;0.0.0.0:2181\nversion=0"
ELSEWHERE = b"server.1=c:2888:3888:participant;0.0.0.0:2181\nversion=0"  # as seen through a balancer
PEER = Address("10.0.0.1", 2181)


def has_peer(wire: Any, peer: Address | None = PEER) -> None:
    """Give a connection the address that a socket is connected to."""
    wire._link.peer = peer


@in_virtual_time
@pytest.mark.parametrize(
    ("config", "is_learner", "peer"),
    [(LISTED, True, PEER), (LISTED, False, PEER), (ELSEWHERE, True, PEER), (b"", True, PEER), (LISTED, True, None)],
    ids=["a learner", "the leader", "a balancer", "no list of servers", "no address"],
)
async def test_the_writes_of_others_count_if_the_server_is_listed_and_a_learner(
    config: bytes, is_learner: bool, peer: Address | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = AsyncMock(return_value=is_learner)
    monkeypatch.setattr(probe, "is_learner", ask)
    async with a_client() as (server, zk), zkwire.connect("c", locks=False, open_link=server.open_link) as other:
        await zk.ping()
        server.machine.tree.nodes[CONFIG].data = config
        has_peer(server.wires[0], peer)
        zk.need_certainty()
        for _ in range(15):
            await asyncio.sleep(1.0)
            await other.set("/", b"")
        assert ("getData" in server.names()) == (peer is PEER)
        assert list(server.machine.watches.seeing(SEE_DATA)) == []
        for _ in range(40):
            await asyncio.sleep(1.0)
            await other.set("/", b"")
        own = set(server.names("setData", "ping"))
        assert [call.args[1] for call in ask.await_args_list] == [PEER] * (config is LISTED and peer is PEER)
        assert own == ({"sync"} if ask.called and is_learner else {"sync", "multi"})
        assert zk.certain_for(zk.session_id) > 3.99


@in_virtual_time
async def test_a_role_that_the_server_may_have_changed_since_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """It closes the connections of its clients then."""

    async def ask(*_: object) -> bool:
        server.drop()
        return True

    monkeypatch.setattr(probe, "is_learner", ask)
    monkeypatch.setattr(Certainty, "follows", follows := Mock())
    async with a_client() as (server, zk):
        server.machine.tree.nodes[CONFIG].data = LISTED
        has_peer(server.wire)
        zk.need_certainty()
        await server.until("getData")
        await turns(20)
        assert len(server.wires) == 2
    assert not follows.called


@in_virtual_time
async def test_the_role_is_asked_for_once_on_a_connection_and_not_for_a_lock_that_is_held_for_a_moment() -> None:
    async with a_client() as (server, zk):
        server.machine.tree.nodes[CONFIG].data = LISTED
        has_peer(server.wire)
        zk.need_certainty(later=True)
        zk.need_certainty()
        await asyncio.sleep(2.4)
        zk.release_certainty()
        await asyncio.sleep(20.0)
        assert "getData" not in server.names()
        zk.need_certainty()
        await asyncio.sleep(2.4)
        assert "getData" not in server.names()
        for _ in range(2):  # also on the next connection
            await asyncio.sleep(20.0)
            assert server.names().count("getData") == 1
            server.wires[0].lose(None)
            await zk.ping()
            has_peer(server.wire)


@in_virtual_time
async def test_a_configuration_above_the_reply_limit_breaks_one_connection_and_no_more() -> None:
    async with a_client(reply_limit=1024) as (server, zk):
        server.machine.tree.nodes[CONFIG].data = bytes(1024)
        zk.need_certainty()
        for _ in range(3):
            has_peer(server.wire)
            await asyncio.sleep(20.0)
        assert server.names().count("getData") == 1
