"""Receipts: they show whether a transaction was carried out whose answer was lost, and none of them stays."""

import asyncio
import contextlib

import pytest

import zkwire
from recipes import Counter
from recipes.common.receipts import Receipts
from tests.support.everywhere import Scene, cancel_at_every_moment, scene
from tests.support.lost_answers import answer_lost
from tests.support.recipes import outcome, until, until_state
from zkwire import BadVersionError, ConnectionLostError, SessionState, TransactionError
from zkwire.testing import RealServer


async def traces_of(zk: zkwire.Client, path: str) -> list[str]:
    return [f"{path}/{name}" for name in await zk.get_children(path)]


async def until_no_trace(zk: zkwire.Client, path: str) -> None:
    async def is_none_left() -> bool:
        return not await traces_of(zk, path)

    await until(is_none_left)


class Writer:
    """Writes the node at `path`, created by the other client, with traces below it."""

    def __init__(self, stage: Scene, path: str) -> None:
        self.zk = stage.zk
        self.path = path
        self.traces = Receipts(stage.zk, f"{path}/trace-", acl=zkwire.OPEN_ACL)

    async def write(self, data: bytes, version: int = -1) -> bool:
        transaction = self.zk.transaction()
        transaction.set(self.path, data, version)
        return await self.traces.commit(transaction)


async def writer(stage: Scene) -> Writer:
    await stage.other.create("/n")
    return Writer(stage, "/n")


async def test_a_trace_is_used_again_and_deleted_when_idle() -> None:
    async with scene() as stage:
        ours = await writer(stage)
        for data in (b"1", b"2", b"3"):
            assert await ours.write(data)
        [trace] = await traces_of(stage.other, "/n")
        assert (await stage.other.get(trace)).stat.version == 2
        await until_no_trace(stage.other, "/n")
        assert await ours.write(b"4")
        assert [trace] != await traces_of(stage.other, "/n") != []


async def test_a_trace_in_use_is_not_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recipes.common.receipts._KEPT_FOR", 0.05)
    async with scene() as stage:
        ours = await writer(stage)
        names = set()
        end = asyncio.get_running_loop().time() + 0.3
        while asyncio.get_running_loop().time() < end:
            assert await ours.write(b"")
            names.update(await traces_of(stage.other, "/n"))
        assert len(names) <= 2  # another one only if the machine paused for so long
        await until_no_trace(stage.other, "/n")


async def test_transactions_under_way_together_have_a_trace_each() -> None:
    async with scene() as stage:
        ours = await writer(stage)
        assert await asyncio.gather(*(ours.write(b"") for _ in range(5))) == [True] * 5
        assert len(await traces_of(stage.other, "/n")) == 5
        await until_no_trace(stage.other, "/n")


async def test_after_a_trace_was_deleted_by_hand_nothing_is_written_and_the_next_try_succeeds() -> None:
    async with scene() as stage:
        ours = await writer(stage)
        assert await ours.write(b"1")
        for trace in await traces_of(stage.other, "/n"):
            await stage.other.delete(trace)
        assert not await ours.write(b"2")
        assert (await stage.other.get("/n")).data == b"1"
        assert await ours.write(b"2")
        await until_no_trace(stage.other, "/n")


@pytest.mark.parametrize("has_trace", [False, True])
async def test_a_refused_operation_is_reported_by_its_index_and_leaves_no_trace(has_trace: bool) -> None:
    async with scene() as stage:
        ours = await writer(stage)
        if has_trace:
            assert await ours.write(b"1")
        with pytest.raises(TransactionError) as refused:
            await ours.write(b"2", version=7)
        assert refused.value.index == 0
        assert isinstance(refused.value.cause, BadVersionError)
        with pytest.raises(ValueError, match="too large"):
            await ours.write(bytes(2_000_000))
        assert len(await traces_of(stage.other, "/n")) == has_trace
        assert await ours.write(b"3")
        await until_no_trace(stage.other, "/n")


@pytest.mark.parametrize("carried_out", [False, True])
@pytest.mark.parametrize("has_trace", [False, True])
async def test_a_trace_shows_whether_the_transaction_was_carried_out(has_trace: bool, carried_out: bool) -> None:
    async with scene() as stage:
        ours = await writer(stage)
        if has_trace:
            assert await ours.write(b"0")
        async with answer_lost(stage, ours.write(b"1"), carried_out=carried_out) as writing:
            await stage.other.set("/n", b"other")
        assert await writing is carried_out
        for _ in range(2):
            async with answer_lost(stage, ours.write(b"2"), carried_out=carried_out) as writing:
                pass
            assert await writing is carried_out
        assert (await stage.other.get("/n")).data == (b"2" if carried_out else b"other")
        await until_no_trace(stage.other, "/n")


@pytest.mark.parametrize("how", ["expiry", "deleted"])
@pytest.mark.parametrize("carried_out", [False, True])
async def test_without_the_trace_the_outcome_is_unknown(carried_out: bool, how: str) -> None:
    async with scene() as stage:
        ours = await writer(stage)
        assert await ours.write(b"0")
        async with answer_lost(stage, ours.write(b"1"), carried_out=carried_out) as writing:
            if how == "expiry":
                stage.server.expire(stage.zk.session_id)
            else:
                for trace in await traces_of(stage.other, "/n"):
                    await stage.other.delete(trace)
        with pytest.raises(ConnectionLostError) as lost:
            await writing
        assert lost.value.maybe_applied
        assert await ours.write(b"2")
        await until_no_trace(stage.other, "/n")


@pytest.mark.parametrize("has_trace", [False, True])
async def test_a_trace_missing_in_the_next_session_shows_nothing(
    has_trace: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session ends while the client waits after a transient refusal, so no request fails because of the expiry."""
    monkeypatch.setattr("recipes.common.retrying._PAUSE", 0.5)
    async with scene() as stage:
        ours = await writer(stage)
        if has_trace:
            assert await ours.write(b"0")
        session = stage.zk.session_id
        with (
            stage.server.drop_after("multi", session=session),
            stage.server.answering("sync", zkwire.ThrottledError, session=session, times=1) as refusing,
        ):
            writing = asyncio.create_task(ours.write(b"1"))
            await refusing.until_hit()
            stage.server.expire(session)
            await until(lambda: stage.zk.session_id not in (0, session))
            assert not writing.done()
        with pytest.raises(ConnectionLostError):
            await writing


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_session_that_ends_just_before_the_task_goes_on_is_not_taken_for_the_one_of_the_write(
    is_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a pause of the machine: the answer and the end of the session are handled at the same time."""
    async with scene() as stage:
        ours = await writer(stage)
        transaction = stage.zk.transaction()
        transaction.set("/n", b"1")
        commit = transaction.commit
        session = stage.zk.session_id

        async def commit_late() -> list[object]:
            with contextlib.ExitStack() as faults:
                if is_lost:
                    faults.enter_context(stage.server.drop_after("multi", session=session))
                answer = await outcome(commit())
            stage.server.expire(session)
            await until(lambda: stage.zk.session_id not in (0, session))
            if isinstance(answer, ConnectionLostError):
                raise answer
            return []

        monkeypatch.setattr(type(transaction), "commit", lambda _: commit_late())
        if is_lost:
            with pytest.raises(ConnectionLostError):
                await ours.traces.commit(transaction)
        else:
            assert await ours.traces.commit(transaction)
        monkeypatch.undo()
        assert await ours.write(b"2")  # with another trace: the first one has gone with its session
        await until_no_trace(stage.other, "/n")


async def until_expired(stage: Scene) -> None:
    """Return between the end of the session of `zk` and the beginning of the next one."""
    expired = asyncio.create_task(until_state(stage.zk, SessionState.EXPIRED))
    await asyncio.sleep(0)
    stage.server.expire(stage.zk.session_id)
    await expired
    assert not stage.zk.session_id


async def test_the_trace_of_a_write_that_waited_for_the_next_session_is_deleted_too() -> None:
    async with scene() as stage:
        ours = await writer(stage)
        assert await ours.write(b"1")
        await until_expired(stage)
        assert [await ours.write(b"2"), await ours.write(b"3")] == [True, True]
        assert len(await traces_of(stage.other, "/n")) == 1
        await until_no_trace(stage.other, "/n")


@pytest.mark.parametrize("carried_out", [False, True])
async def test_a_write_that_waited_for_the_next_session_and_lost_its_answer_there_is_found_out(
    carried_out: bool,
) -> None:
    async with scene() as stage:
        ours = await writer(stage)
        await until_expired(stage)
        drop = stage.server.drop_after if carried_out else stage.server.drop_before
        with drop("multi"):
            assert await ours.write(b"2") is carried_out
        assert (await stage.other.get("/n")).stat.version == carried_out


async def test_no_trace_stays_when_the_write_is_cancelled() -> None:
    async def prepare(stage: Scene) -> None:
        await stage.other.create(stage.path)

    async def act(stage: Scene) -> None:
        ours = Writer(stage, stage.path)
        assert await ours.write(b"1")
        assert await ours.write(b"2")

    await cancel_at_every_moment(act, prepare=prepare)


async def test_a_trace_of_another_client_in_place_of_ours_shows_nothing() -> None:
    async with scene() as stage:
        ours = await writer(stage)
        assert await ours.write(b"1")
        (trace,) = await traces_of(stage.other, "/n")
        async with answer_lost(stage, ours.write(b"2"), carried_out=False) as writing:
            await stage.other.delete(trace)
            await stage.other.create(trace)
            for _ in range(3):
                await stage.other.set(trace, b"")
        with pytest.raises(ConnectionLostError):
            await writing


NO_CHILDREN = [zkwire.ACL(zkwire.Perms.READ | zkwire.Perms.WRITE | zkwire.Perms.ADMIN, "world", "anyone")]


@pytest.mark.parametrize("parent", ["/", "/n"])
async def test_a_trace_that_may_not_be_created_names_the_permissions_that_it_needs(parent: str) -> None:
    async with scene() as stage:
        await stage.other.create("/n")
        await stage.other.set_acl(parent, NO_CHILDREN)
        traces = Receipts(stage.zk, zkwire.join_path(parent, "trace-"), acl=zkwire.OPEN_ACL)
        for _ in range(2):
            transaction = stage.zk.transaction()
            transaction.set("/n", b"1")
            with pytest.raises(TransactionError) as refused:
                await traces.commit(transaction)
            assert isinstance(refused.value.cause, zkwire.NoAuthError)
            assert refused.value.cause.hint.startswith(
                f"the client needs the permissions CREATE and DELETE on {parent}: together with each write"
            )
        assert (await stage.other.get("/n")).data == b""


async def test_an_acl_that_the_server_refuses_is_the_error() -> None:
    async with scene() as stage:
        await stage.other.create("/n")
        traces = Receipts(stage.zk, "/n/trace-", acl=[zkwire.ACL(zkwire.Perms.ALL, "nonsense", "x")])
        transaction = stage.zk.transaction()
        transaction.set("/n", b"1")
        with pytest.raises(TransactionError) as refused:
            await traces.commit(transaction)
        assert isinstance(refused.value.cause, zkwire.InvalidACLError)
        assert "permissions CREATE and DELETE" not in str(refused.value.cause)


async def test_a_trace_whose_default_acl_is_refused_is_created_with_another_one() -> None:
    """The server does not take the address for an identity that an ACL can name."""
    async with scene() as stage, zkwire.connect(stage.server.hosts, auth=[("ip", b"")]) as zk:
        await stage.other.create("/n")
        traces = Receipts(zk, "/n/trace-", acl=None)
        for is_carried_out in (False, True, True):
            transaction = zk.transaction()
            transaction.set("/n", b"1")
            assert await traces.commit(transaction) is is_carried_out
        assert len(await traces_of(stage.other, "/n")) == 1


async def test_another_refusal_does_not_open_the_trace_to_all_clients() -> None:
    """Only a server that does not know the client's identity makes that necessary."""
    async with scene() as stage, zkwire.connect(stage.server.hosts, auth=[("digest", b"me:pw")]) as zk:
        await stage.other.create("/n")
        traces = Receipts(zk, "/n/trace-", acl=None)
        for version, is_refused in (7, True), (0, False):
            transaction = zk.transaction()
            transaction.set("/n", b"1", version)
            if is_refused:
                with pytest.raises(TransactionError):
                    await traces.commit(transaction)
            else:
                assert await traces.commit(transaction)
        (trace,) = await traces_of(stage.other, "/n")
        acl, _ = await zk.get_acl(trace)
        assert [entry.perms for entry in acl if entry.scheme == "world"] == [zkwire.Perms.READ]


async def test_a_refused_write_does_not_blame_the_trace() -> None:
    async with scene() as stage:
        await stage.other.create("/n", acl=[zkwire.ACL(zkwire.Perms.ALL & ~zkwire.Perms.WRITE, "world", "anyone")])
        with pytest.raises(TransactionError) as refused:
            await Writer(stage, "/n").write(b"1")
        assert isinstance(refused.value.cause, zkwire.NoAuthError)
        assert "trace" not in str(refused.value.cause)
        assert await traces_of(stage.other, "/n") == []


async def test_below_a_chroot_that_another_client_has_made_ephemeral_the_error_names_the_clients_root() -> None:
    async with scene() as stage:
        await stage.other.create("/app", bytes(8), ephemeral=True)
        async with zkwire.connect(f"{stage.server.hosts}/app") as zk:
            with pytest.raises(zkwire.NoChildrenForEphemeralsError, match="/ is an ephemeral node, which another"):
                await Counter(zk, "/").add(1)


async def test_a_node_that_another_client_has_made_ephemeral_gives_a_clear_error(
    zookeeper: RealServer, path: str
) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as stranger:
        await stranger.create(path, bytes(8), ephemeral=True)
        with pytest.raises(zkwire.NoChildrenForEphemeralsError, match=f"{path} is an ephemeral node, which another"):
            await Counter(zk, path).add(1)
