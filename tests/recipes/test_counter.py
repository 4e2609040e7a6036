"""The counter and the shared value: every write is carried out exactly once, whatever breaks."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

import zkwire
from recipes import Counter, SharedValue
from recipes.counter import decoded, encoded
from tests.support.everywhere import Scene, cancel_at_every_moment, cut_at_every_step, no_watch_stays, scene
from tests.support.proxy import Proxy
from tests.support.recipes import outcome, until, until_state
from zkwire import ConnectionLostError, NoNodeError, SessionState
from zkwire.testing import RealServer, Server


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traces that go soon, for what waits for that very often."""
    monkeypatch.setattr("recipes.common.trace._KEPT_FOR", 0.005)


async def traces(zk: zkwire.Client, path: str) -> list[str]:
    """The nodes that writers keep below `path`."""
    try:
        return await zk.get_children(path)
    except NoNodeError:
        return []


async def until_no_trace(zk: zkwire.Client, path: str) -> None:
    async def none() -> bool:
        return not await traces(zk, path)

    await until(none)


# -- the number in the data -------------------------------------------------------------------------------------------


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_number_is_read_as_it_was_written(value: int) -> None:
    assert decoded(encoded(value, 8, "/c"), 8, "/c") == value


@pytest.mark.parametrize(("value", "size", "data"), [(1, 8, bytes(7) + b"\1"), (-2, 4, b"\xff\xff\xff\xfe")])
def test_numbers_are_signed_and_big_endian_as_curators(value: int, size: int, data: bytes) -> None:
    assert encoded(value, size, "/c") == data


@pytest.mark.parametrize(("value", "size"), [(2**63, 8), (-(2**63) - 1, 8), (2**31, 4)])
def test_a_number_that_does_not_fit_is_refused(value: int, size: int) -> None:
    with pytest.raises(OverflowError, match="/c"):
        encoded(value, size, "/c")


@pytest.mark.parametrize("data", [b"7", bytes(4), bytes(9)])
def test_what_is_no_counter_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="/c holds"):
        decoded(data, 8, "/c")


def test_no_data_is_zero_as_in_curator() -> None:
    assert decoded(b"", 8, "/c") == 0


# -- behaviour --------------------------------------------------------------------------------------------------------


async def test_adding_and_getting(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as zk2:
        counter, other = Counter(zk, f"{path}/a/count"), Counter(zk2, f"{path}/a/count")
        assert await counter.get() == 0
        assert await counter.add(5) == 5
        assert await other.add(-7) == -2
        assert await counter.add(1) == -1  # what was known is out of date
        await zk2.sync(path)
        assert await other.get() == -1
        assert (await zk.get(counter.path)).data == b"\xff" * 8
        await until_no_trace(zk, counter.path)
        assert await counter.add(0) == -1


async def test_curators_shared_count_has_four_bytes(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk:
        await zk.create(path, (41).to_bytes(4, "big"))
        assert await Counter(zk, path, size=4).add(1) == 42
        assert (await zk.get(path)).data == (42).to_bytes(4, "big")
        with pytest.raises(ValueError, match="4 bytes"):
            await Counter(zk, path).add(1)
        with pytest.raises(OverflowError, match="does not fit"):
            await Counter(zk, path, size=4).add(2**31 - 1)
        assert await Counter(zk, path, size=4).add(2**31 - 43) == 2**31 - 1


@pytest.mark.parametrize("bad", [True, 1.5, "1", None])
async def test_only_whole_numbers_are_added(bad: object) -> None:
    async with scene() as stage:
        with pytest.raises(TypeError, match="/c"):
            await Counter(stage.zk, "/c").add(bad)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="size"):
            Counter(stage.zk, "/c", size=bad)  # type: ignore[arg-type]
        assert await stage.zk.exists("/c") is None


async def test_an_add_is_one_request_after_the_first(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        counter = Counter(zk, path)
        await counter.add(1)
        mark = proxy.mark()
        for value in range(2, 12):
            assert await counter.add(1) == value
        assert [name for name in proxy.requests(mark) if name != "delete"] == ["multi"] * 10
        await until_no_trace(zk, path)
        mark = proxy.mark()
        assert await counter.add(1) == 12
        assert proxy.requests(mark) == ["multi"]


async def test_an_add_after_somebody_elses_is_three_requests(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk, zkwire.connect(proxy.hosts) as zk2:
        counter, other = Counter(zk, path), Counter(zk2, path)
        await counter.add(1)
        await other.add(1)
        mark = proxy.mark()
        assert await counter.add(1) == 3
        assert [name for name in proxy.requests(mark) if name != "delete"] == ["multi", "getData", "multi"]


async def test_tasks_and_clients_that_add_together_each_get_a_number_of_their_own() -> None:
    async with scene() as stage:
        shared = Counter(stage.zk, "/c")
        counters = [shared] * 10 + [Counter(stage.other, "/c") for _ in range(5)]
        numbers = await asyncio.gather(*(counter.add(1) for counter in counters))
        assert sorted(numbers) == list(range(1, 16))
        assert numbers[:10] == sorted(numbers[:10])  # in the order of the calls
        assert await shared.get() == 15


async def test_a_counter_that_was_deleted_begins_anew() -> None:
    async with scene() as stage:
        counter = Counter(stage.zk, "/c")
        await counter.add(3)
        await stage.other.delete_tree("/c")
        assert await counter.add(1) == 1


async def test_a_trace_that_somebody_deletes_is_made_again() -> None:
    async with scene() as stage:
        counter = Counter(stage.zk, "/c")
        for value in range(1, 4):
            assert await counter.add(1) == value
            for name in await traces(stage.other, "/c"):
                await stage.other.delete(f"/c/{name}")


async def test_a_counter_outlives_its_session() -> None:
    async with scene() as stage:
        counter = Counter(stage.zk, "/c")
        await counter.add(1)
        stage.server.expire(stage.zk.session_id)
        assert await counter.add(1) == 2
        assert await counter.add(1) == 3
        await until_no_trace(stage.other, "/c")


# -- an answer that is lost -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_before", [True, False], ids=["not carried out", "carried out"])
@pytest.mark.parametrize("others", [0, 1, 3])
@pytest.mark.parametrize("has_trace", [True, False])
async def test_an_add_that_lost_its_answer_counts_once_whatever_others_add(
    is_before: bool, others: int, has_trace: bool
) -> None:
    """Others who add the same number in between leave the very data and version that ours would have left."""
    async with scene() as stage:
        counter, other = Counter(stage.zk, "/c"), Counter(stage.other, "/c")
        assert await counter.add(1) == 1
        if not has_trace:
            await until_no_trace(stage.zk, "/c")
        drop = stage.server.drop_before if is_before else stage.server.drop_after
        drop("multi", session=stage.zk.session_id)
        refusal = stage.server.refuse_connections()
        adding = asyncio.create_task(counter.add(1))
        await until_state(stage.zk, SessionState.SUSPENDED)
        for _ in range(others):
            await other.add(1)
        refusal.end()
        assert await adding == (2 if not is_before else 2 + others)
        assert await counter.get() == 2 + others
        await until_no_trace(stage.other, "/c")


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("is_before", [True, False], ids=["not carried out", "carried out"])
async def test_an_add_whose_session_expires_with_the_answer_is_told_or_counts_once(
    is_before: bool, others: int
) -> None:
    async with scene() as stage:
        counter, other = Counter(stage.zk, "/c"), Counter(stage.other, "/c")
        await counter.add(1)
        drop = stage.server.drop_before if is_before else stage.server.drop_after
        drop("multi", session=stage.zk.session_id)
        refusal = stage.server.refuse_connections()
        adding = asyncio.create_task(counter.add(1))
        await until_state(stage.zk, SessionState.SUSPENDED)
        for _ in range(others):
            await other.add(1)
        stage.server.expire(stage.zk.session_id)
        refusal.end()
        came = await outcome(adding)
        value = await other.get()
        if is_before and not others:
            assert (came, value) == (2, 2)
        else:
            assert isinstance(came, ConnectionLostError)
            assert came.maybe_applied
            assert value == 1 + others + (not is_before)
        assert await counter.add(1) == value + 1


async def expire(stage: Scene) -> None:
    """Return between the end of the session of `stage.zk` and the beginning of the next one."""
    expired = asyncio.create_task(until_state(stage.zk, SessionState.EXPIRED))
    await asyncio.sleep(0)
    stage.server.expire(stage.zk.session_id)
    await expired
    assert not stage.zk.session_id


async def test_the_trace_of_a_write_that_waited_for_the_next_session_goes_too() -> None:
    async with scene() as stage:
        counter = Counter(stage.zk, "/c")
        await counter.add(1)
        await expire(stage)
        assert [await counter.add(1), await counter.add(1)] == [2, 3]
        assert len(await traces(stage.other, "/c")) == 1
        await until_no_trace(stage.other, "/c")


@pytest.mark.parametrize("is_before", [True, False], ids=["not carried out", "carried out"])
async def test_a_write_that_waited_for_the_next_session_and_was_cut_off_there_is_found_out(is_before: bool) -> None:
    async with scene() as stage:
        shared = SharedValue(stage.zk, "/v")
        await shared.set(b"1")
        await until_no_trace(stage.other, "/v")
        await expire(stage)
        drop = stage.server.drop_before if is_before else stage.server.drop_after
        with drop("multi"):
            await shared.set(b"2")
        assert (await stage.other.get("/v")).data == b"2"
        assert (await stage.other.get("/v")).stat.version == 2


async def test_connections_that_break_all_the_time_lose_no_add_and_double_none() -> None:
    clients, adds = 4, 8
    async with Server() as server, AsyncExitStack() as stack:
        zks = [await stack.enter_async_context(zkwire.connect(server.hosts)) for _ in range(clients)]
        for number, zk in enumerate(zks):
            for nth in (2, 4, 7, 9):
                server.drop_after("multi", session=zk.session_id, nth=nth + number)
                server.drop_before("multi", session=zk.session_id, nth=nth + number + 1)

        async def add(zk: zkwire.Client) -> list[int]:
            counter = Counter(zk, "/c")
            return [await counter.add(1) for _ in range(adds)]

        numbers = [number for row in await asyncio.gather(*map(add, zks)) for number in row]
        assert sorted(numbers) == list(range(1, clients * adds + 1))
        assert await Counter(zks[0], "/c").get() == clients * adds
        await until_no_trace(zks[0], "/c")


async def count(stage: Scene) -> None:
    counter = Counter(stage.zk, stage.path)
    for value in range(1, 4):
        assert await counter.add(1) == value
    assert await counter.get() == 3


@pytest.mark.usefixtures("quick")
async def test_a_counter_is_cut_at_every_step() -> None:
    await cut_at_every_step(count, at_least=5)


@pytest.mark.usefixtures("quick")
async def test_a_counter_is_cancelled_at_every_moment() -> None:
    async def goes_on(stage: Scene) -> None:
        counter = Counter(stage.zk, stage.path)
        before = await counter.get()
        assert await counter.add(1) == before + 1 <= 4

    await cancel_at_every_moment(count, afterwards=goes_on, at_least=8)


async def test_the_next_in_turn_goes_on_when_an_add_is_cancelled() -> None:
    async with scene() as stage:
        counter = Counter(stage.zk, "/c")
        await counter.add(1)
        with stage.server.hold_replies(session=stage.zk.session_id):
            first, second = asyncio.create_task(counter.add(1)), asyncio.create_task(counter.add(1))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            first.cancel()
        assert await second in (2, 3)
        assert await counter.add(1) == await counter.get()


async def test_a_cancelled_add_takes_away_no_counter_that_others_use() -> None:
    async with scene() as stage:
        counter, other = Counter(stage.zk, "/c"), Counter(stage.other, "/c")
        with stage.server.hold_replies(path="/c", session=stage.zk.session_id, nth=2) as making:
            adding = asyncio.create_task(counter.add(1))
            await making.until_hit()
            assert [await other.add(1), await other.add(1)] == [1, 2]
            await until_no_trace(stage.other, "/c")
            adding.cancel()
            await outcome(adding)
        await stage.zk.ping()
        await stage.zk.ping()  # behind all that the answer to the create may have caused
        assert await other.add(1) == 3


async def test_who_may_not_make_a_counter_is_told_as_by_a_create() -> None:
    async with scene() as stage:
        await stage.other.create("/a", acl=zkwire.READ_ONLY_ACL)
        for path in ("/a/c", "/a/b/c"):
            with pytest.raises(zkwire.NoAuthError, match="/a"):
                await Counter(stage.zk, path).add(1)


# -- watching ---------------------------------------------------------------------------------------------------------


async def test_a_counter_is_watched() -> None:
    async with scene() as stage:
        counter, other = Counter(stage.zk, "/c"), Counter(stage.other, "/c")
        seen = []
        async for value in counter.watch():
            seen.append(value)
            if value == 3:
                break
            await other.add(1)
            if value == 1:
                stage.server.drop(stage.zk.session_id)
        assert seen == [0, 1, 2, 3]
        await no_watch_stays(stage.server.hosts)


async def test_what_is_watched_is_no_counter() -> None:
    async with scene() as stage:
        await stage.other.create("/c", b"seven")
        async with Counter(stage.zk, "/c").watch() as values:
            with pytest.raises(ValueError, match="/c holds 5 bytes"):
                await anext(values)
        await no_watch_stays(stage.server.hosts)


# -- the shared value -------------------------------------------------------------------------------------------------


async def test_a_value_is_shared(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as zk2:
        shared, other = SharedValue(zk, path, b"first"), SharedValue(zk2, path, b"ignored")
        assert await shared.get() == (b"first", 0)
        assert await other.compare_and_set(b"second", version=0) is True
        assert await shared.compare_and_set(b"lost", version=0) is False
        await shared.set(b"third")
        await zk2.sync(path)
        assert await other.get() == (b"third", 2)
        await until_no_trace(zk, path)


async def test_a_value_that_nobody_has_read_is_there_from_the_beginning() -> None:
    async with scene() as stage:
        assert await SharedValue(stage.zk, "/a/v", b"x").compare_and_set(b"y", version=0)
        await SharedValue(stage.zk, "/a/w").set(b"z")
        assert await SharedValue(stage.zk, "/a/w").get() == (b"z", 1)
        assert not await SharedValue(stage.zk, "/a/u").compare_and_set(b"y", version=1)


async def test_bad_values_and_versions_are_refused() -> None:
    async with scene() as stage:
        shared = SharedValue(stage.zk, "/v")
        with pytest.raises(TypeError, match="bytes"):
            SharedValue(stage.zk, "/v", "text")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="bytes"):
            await shared.set("text")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="version"):
            await shared.compare_and_set(b"", version=True)
        with pytest.raises(ValueError, match="version"):
            await shared.compare_and_set(b"", version=-1)
        assert await stage.zk.exists("/v") is None


async def test_one_request_each(zookeeper: RealServer, path: str) -> None:
    async with Proxy(zookeeper.hosts) as proxy, zkwire.connect(proxy.hosts) as zk:
        shared = SharedValue(zk, path)
        await shared.get()
        mark = proxy.mark()
        assert await shared.get() == (b"", 0)
        await shared.set(b"1")
        assert await shared.compare_and_set(b"2", version=1)
        assert [name for name in proxy.requests(mark) if name != "delete"] == ["getData", "multi", "multi"]


@pytest.mark.parametrize("is_before", [True, False], ids=["not carried out", "carried out"])
async def test_a_compare_and_set_that_lost_its_answer_says_who_won(is_before: bool) -> None:
    """The other writes the very same bytes."""
    async with scene() as stage:
        shared, other = SharedValue(stage.zk, "/v"), SharedValue(stage.other, "/v")
        await shared.get()
        drop = stage.server.drop_before if is_before else stage.server.drop_after
        drop("multi", session=stage.zk.session_id)
        refusal = stage.server.refuse_connections()
        ours = asyncio.create_task(shared.compare_and_set(b"same", version=0))
        await until_state(stage.zk, SessionState.SUSPENDED)
        theirs = await other.compare_and_set(b"same", version=0)
        refusal.end()
        assert (await ours, theirs) == ((False, True) if is_before else (True, False))
        assert await shared.get() == (b"same", 1)


@pytest.mark.parametrize("is_before", [True, False], ids=["not carried out", "carried out"])
async def test_a_set_that_lost_its_answer_is_not_written_over_a_later_one(is_before: bool) -> None:
    async with scene() as stage:
        shared, other = SharedValue(stage.zk, "/v"), SharedValue(stage.other, "/v")
        await shared.get()
        drop = stage.server.drop_before if is_before else stage.server.drop_after
        drop("multi", session=stage.zk.session_id)
        refusal = stage.server.refuse_connections()
        setting = asyncio.create_task(shared.set(b"ours"))
        await until_state(stage.zk, SessionState.SUSPENDED)
        await other.set(b"later")
        refusal.end()
        await setting
        assert await shared.get() == (b"ours" if is_before else b"later", 2)


async def replace(stage: Scene) -> None:
    shared = SharedValue(stage.zk, stage.path, b"0")
    _, version = await shared.get()
    assert await shared.compare_and_set(b"1", version=version)
    assert not await shared.compare_and_set(b"2", version=version)
    await shared.set(b"3")
    assert (await shared.get())[0] == b"3"
    async for value, _ in shared.watch():
        assert value == b"3"
        break


@pytest.mark.usefixtures("quick")
async def test_a_value_is_cut_at_every_step() -> None:
    await cut_at_every_step(replace, at_least=5)


@pytest.mark.usefixtures("quick")
async def test_a_value_is_cancelled_at_every_moment() -> None:
    async def goes_on(stage: Scene) -> None:
        shared = SharedValue(stage.zk, stage.path)
        assert await shared.compare_and_set(b"9", version=(await shared.get())[1])

    await cancel_at_every_moment(replace, afterwards=goes_on, at_least=8)


async def test_a_value_is_watched_and_made_when_it_is_missing() -> None:
    async with scene() as stage:
        shared, other = SharedValue(stage.zk, "/v", b"a"), SharedValue(stage.other, "/v")
        seen = []
        async for value, version in shared.watch():
            seen.append((value, version))
            if len(seen) == 3:
                break
            if version:
                await stage.other.delete_tree("/v")
            else:
                assert await other.compare_and_set(b"b", version=version)
        assert seen == [(b"a", 0), (b"b", 1), (b"a", 0)]
        await no_watch_stays(stage.server.hosts)


async def test_a_watch_whose_first_wait_was_cancelled_is_taken_up_again() -> None:
    async with scene() as stage:
        values = SharedValue(stage.zk, "/v", b"a").watch()
        with stage.server.drop_before(path="/v", session=stage.zk.session_id, nth=4) as making:  # behind three reads
            waiting = asyncio.create_task(anext(values))
            await making.until_hit()
            waiting.cancel()
            await outcome(waiting)
        assert await stage.other.exists("/v") is None
        assert await asyncio.wait_for(anext(values), 5) == (b"a", 0)
        values.close()


async def test_values_end_with_the_client() -> None:
    async with Server() as server:
        zk = await zkwire.connect(server.hosts)
        counter = Counter(zk, "/c")
        await counter.add(1)
        values = counter.watch()
        assert await anext(values) == 1
        await zk.close()
        with pytest.raises(zkwire.SessionClosedError):
            await anext(values)
        with pytest.raises(zkwire.SessionClosedError):
            await counter.add(1)
