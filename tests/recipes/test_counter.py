"""The counter: every addition counts exactly once, whatever breaks."""

import asyncio
import itertools
import traceback
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import zkwire
from recipes import Counter
from recipes.counter import decoded, encoded
from tests.recipes.common.test_receipts import until_no_receipt
from tests.support.client import turns
from tests.support.clock import Clock
from tests.support.everywhere import Scene, no_watch_stays, scene
from tests.support.queues import Counting
from tests.support.recipes import until_state
from zkwire import SessionState
from zkwire.testing import RealServer, Server

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


def test_no_data_is_zero_as_in_curator() -> None:
    assert decoded(b"", 8, "/c") == 0


# -- adding -----------------------------------------------------------------------------------------------------------


async def test_clients_add_to_one_counter(zookeeper: RealServer, path: str) -> None:
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as zk2:
        counter, other = Counter(zk, f"{path}/a/count"), Counter(zk2, f"{path}/a/count")
        assert await counter.get() == 0
        assert await counter.add(5) == 5
        assert await other.add(-7) == -2
        assert await counter.add(1) == -1  # the value that it knew is out of date
        await zk2.sync(path)
        assert await other.get() == -1
        assert (await zk.get(counter.path)).data == b"\xff" * 8
        await until_no_receipt(zk, counter.path)
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


async def test_adds_that_wait_at_the_same_time_share_a_write() -> None:
    count = Counting()
    async with Server() as server, zkwire.connect(server.hosts, observer=count) as zk:
        counter = Counter(zk, "/c")
        assert await counter.add(1) == 1
        before = count.requests.count("multi")
        numbers = await asyncio.gather(*(counter.add(n) for n in range(30)))
        assert numbers == [1 + sum(range(n + 1)) for n in range(30)]
        assert count.requests.count("multi") - before <= 2


async def test_of_adds_that_share_a_write_only_those_that_do_not_fit_raise() -> None:
    async with scene() as stage:
        counter = Counter(stage.zk, "/c", size=4)
        await counter.add(2**31 - 10)
        came = await asyncio.gather(*(counter.add(n) for n in (1, 5, 8, 4, 1, -1, 1)), return_exceptions=True)
        assert [number if isinstance(number, int) else type(number) for number in came] == [
            *(2**31 - 9, 2**31 - 4, OverflowError, OverflowError, 2**31 - 3, 2**31 - 4, 2**31 - 3)
        ]
        assert await counter.get() == 2**31 - 3


async def test_each_of_the_adds_whose_shared_write_fails_raises_an_error_of_its_own() -> None:
    """If all raised one object, each would add its traceback to it, and keep the variables of the others alive."""
    async with scene() as stage:
        counter = Counter(stage.zk, "/c")
        await counter.add(1)
        with stage.server.answering("multi", zkwire.NoAuthError, session=stage.zk.session_id):
            came = await asyncio.gather(*(counter.add(1) for _ in range(5)), return_exceptions=True)
        errors = [error for error in came if isinstance(error, zkwire.NoAuthError)]
        assert len({id(error) for error in errors}) == 5
        assert {str(error) for error in errors} == {str(errors[0])}
        assert len({len(traceback.extract_tb(error.__traceback__)) for error in errors[1:]}) == 1


@pytest.mark.parametrize("cancelled", range(4))
async def test_adds_that_share_a_write_are_carried_out_although_one_of_them_is_cancelled(cancelled: int) -> None:
    async with scene() as stage:
        counter = Counter(stage.zk, "/c")
        await counter.add(1)
        with stage.server.hold_replies("multi", session=stage.zk.session_id) as held:
            first = asyncio.create_task(counter.add(1))
            await held.until_hit()
            others = [asyncio.create_task(counter.add(1)) for _ in range(4)]
            await asyncio.sleep(0)
            held.release()
            assert await first == 2
            with stage.server.hold_replies("multi", session=stage.zk.session_id) as shared:
                await shared.until_hit()
                others[cancelled].cancel()
                late = asyncio.create_task(counter.add(1))
                await asyncio.sleep(0)
        del others[cancelled]
        assert await asyncio.gather(*others) == [number for number in range(3, 7) if number != 3 + cancelled]
        assert await late == 7
        assert await counter.get() == 7


async def test_a_shared_write_that_was_not_sent_is_not_sent_after_all_its_adds_were_cancelled() -> None:
    """The callers may have told their users that nothing was counted."""
    async with scene() as stage:
        counter = Counter(stage.zk, "/c")
        await counter.add(1)
        before = asyncio.all_tasks()
        async with stage.server.stopped():
            await until_state(stage.zk, SessionState.SUSPENDED)
            adding = [asyncio.create_task(counter.add(1)) for _ in range(4)]
            await turns(10)
            for task in adding:  # the second one begins the shared write when the first is cancelled
                task.cancel()
                await turns(10)
            assert all(task.cancelled() for task in adding)
            late = asyncio.create_task(counter.add(10))
        assert await late == 11
        assert await counter.get() == 11
        assert asyncio.all_tasks() <= before


async def test_an_add_that_fits_is_not_refused_because_of_a_value_that_is_out_of_date() -> None:
    async with scene() as stage:
        counter = Counter(stage.zk, "/c", size=4)
        await counter.add(2**31 - 1)
        await Counter(stage.other, "/c", size=4).add(-10)
        assert await counter.add(1) == 2**31 - 10
        with pytest.raises(OverflowError):
            await counter.add(10)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses before further tries, in seconds; they are not waited for."""
    taken: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        if seconds:
            taken.append(seconds)
        await sleep(0)

    monkeypatch.setattr("recipes.counter.asyncio.sleep", note)
    ids = (f"c0000000-0000-4000-8000-{number:012}" for number in itertools.count())  # of the pause, three quarters
    monkeypatch.setattr(zkwire.Client, "unique_id", lambda zk: next(ids))
    return taken


async def lose_to_another_client(stage: Scene, clock: Clock, *, times: int, seconds: float) -> None:
    """Add 1 while another client adds 1 behind each of the first reads; each of our writes takes so many `seconds`."""
    read = stage.server.hold_replies("getData", session=stage.zk.session_id)
    adding = asyncio.create_task(Counter(stage.zk, "/c").add(1))
    for _ in range(times):
        await read.until_hit()
        await Counter(stage.other, "/c").add(1)
        with stage.server.hold_replies("multi", session=stage.zk.session_id) as written:
            read.end()
            await written.until_hit()
            await clock.passes(seconds)
            read = stage.server.hold_replies("getData", session=stage.zk.session_id)
    await read.until_hit()
    read.end()
    value = times + 2  # with the one that created the node
    assert await adding == value


async def test_each_time_that_another_client_was_faster_the_pause_is_doubled_up_to_a_bound(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene(session_timeout=40.0) as stage:
        clock = Clock(monkeypatch)
        await Counter(stage.other, "/c").add(1)
        await lose_to_another_client(stage, clock, times=5, seconds=1.0)
    assert pauses == [0.75 * factor * 0.05 for factor in (2, 4, 8, 16, 16)]  # a slow write counts as one of 50 ms


async def test_the_pause_is_as_long_as_the_write_took_times_a_random_number(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recipes.counter._SLOW", 60.0)
    async with scene(session_timeout=40.0) as stage:
        clock = Clock(monkeypatch)
        await Counter(stage.other, "/c").add(1)
        await lose_to_another_client(stage, clock, times=1, seconds=2.0)
    (pause,) = pauses
    assert 0.75 * 2 * 2.0 <= pause < 0.75 * 2 * 30.0  # more than 2 s on a busy machine


async def test_a_value_that_is_out_of_date_is_read_again_without_a_pause(pauses: list[float]) -> None:
    count = Counting()
    async with scene() as stage, zkwire.connect(stage.server.hosts, observer=count) as zk:
        counter = Counter(zk, "/c")
        assert await counter.add(1) == 1
        assert await Counter(stage.other, "/c").add(1) == 2
        count.requests.clear()
        assert await counter.add(1) == 3
        assert await counter.add(1) == 4
        assert [name for name in count.requests if name != "delete"] == ["multi", "getData", "multi", "multi"]
        assert not pauses


# -- setting ----------------------------------------------------------------------------------------------------------


async def test_a_counter_is_set_and_compared_exactly_once(zookeeper: RealServer, path: str) -> None:
    """`set` and `compare_and_set` are carried out exactly once, in one order with `add`."""
    async with zkwire.connect(zookeeper.hosts) as zk, zkwire.connect(zookeeper.hosts) as zk2:
        counter, other = Counter(zk, path, 5), Counter(zk2, path, 5)
        assert [await counter.get(), await zk.exists(path)] == [5, None]
        assert await counter.compare_and_set(7, expected=5)
        assert not await other.compare_and_set(9, expected=5)
        await other.set(-2)
        assert not await counter.compare_and_set(9, expected=7)  # the value that it knew is out of date
        came = await asyncio.gather(*(each.compare_and_set(1, expected=-2) for each in (counter, other) * 3))
        assert came.count(True) == 1
        await asyncio.gather(*(counter.set(n) for n in range(20)), *(other.add(1) for _ in range(20)))
        assert 19 <= await counter.add(0) <= 39
        assert decoded((await zk.get(path)).data, 8, path) == await counter.get()
        await until_no_receipt(zk, path)


@pytest.mark.parametrize("is_carried_out", [True, False])
async def test_a_lost_answer_makes_no_second_write_over_another_clients(is_carried_out: bool) -> None:
    async with scene() as stage:
        counter = Counter(stage.zk, "/c")
        await counter.set(1)
        drop = stage.server.drop_after if is_carried_out else stage.server.drop_before
        for use in (counter.set(2), counter.compare_and_set(2, expected=1)):
            await stage.other.set("/c", encoded(1, 8, "/c"))
            with drop("multi", session=stage.zk.session_id):
                using = asyncio.ensure_future(use)
                await until_state(stage.zk, SessionState.SUSPENDED)
            assert await using in (None, True)
            assert await Counter(stage.other, "/c").compare_and_set(0, expected=2)
            assert await counter.get() == 0


async def test_changes_that_wait_share_a_write_in_the_order_of_their_calls() -> None:
    count = Counting()
    async with Server() as server, zkwire.connect(server.hosts, observer=count) as zk:
        counter = Counter(zk, "/c", 10, size=4)
        setting = asyncio.create_task(counter.set(1))
        await turns()
        uses = (counter.add(4), counter.compare_and_set(7, expected=1), counter.compare_and_set(2**31 - 1, expected=5))
        came = await asyncio.gather(*uses, counter.add(1), counter.set(3), counter.add(1), return_exceptions=True)
        assert [type(each) if isinstance(each, Exception) else each for each in came] == [
            *(5, False, True, OverflowError, None, 4)
        ]
        await setting
        assert count.requests.count("multi") == 2
        count.requests.clear()
        assert not await counter.compare_and_set(1, expected=3)  # a server that lags could show an old value
        assert [name for name in count.requests if name != "delete"] == ["sync", "getData"]


async def test_a_deleted_counter_begins_again_from_its_initial_value() -> None:
    async with scene() as stage:
        counter = Counter(stage.zk, "/c", -3)
        assert await counter.add(1) == -2
        stage.server._machine.tree.nodes["/c"].version = 2**31 - 3
        assert [await Counter(stage.other, "/c").add(0), *[await counter.add(1) for _ in range(4)]] == [-2, -1, 0, 1, 2]
        await stage.other.delete_tree("/c")
        await stage.zk.sync("/c")
        async with counter.watch() as values:
            assert await anext(values) == -3
        assert await counter.add(1) == -2


async def test_bad_values_are_refused_before_anything_is_sent() -> None:
    odd: list[Any] = [True, 1.5, "1", None, 8.0]
    async with scene() as stage:
        for size, n in [*((4, each) for each in odd), (4, 2**31), (4, -(2**31) - 1), (8, 2**63)]:
            counter, error = Counter(stage.zk, "/c", size=size), TypeError if n in odd else OverflowError
            why = "/c" if n in odd else f"{n} does not fit into the counter /c, which has {size} bytes"
            with pytest.raises(error, match=why):
                Counter(stage.zk, "/c", n, size=size)
            compares = counter.compare_and_set(n, expected=0), counter.compare_and_set(0, expected=n)
            for use in (counter.add(n), counter.set(n), *compares):
                with pytest.raises(error, match=why):
                    await use
        for size in [*odd, 0, 16]:
            with pytest.raises(ValueError, match="size is 8 or 4 bytes, not"):
                Counter(stage.zk, "/c", size=size)
        assert await stage.zk.exists("/c") is None


# -- watching ---------------------------------------------------------------------------------------------------------


async def test_a_counter_is_watched_over_a_reconnect() -> None:
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


@pytest.mark.parametrize("data", [b"7" * 5000, b"seven", bytes(9)])
async def test_data_of_another_program_gives_a_short_error_and_is_not_replaced(data: bytes) -> None:
    async with scene() as stage:
        counter = Counter(stage.zk, "/c")
        await counter.add(1)
        await stage.other.set("/c", data)
        await stage.zk.sync("/c")

        async def watched() -> None:
            async with counter.watch() as values:
                await anext(values)

        for use in (counter.get, lambda: counter.add(1), watched):
            for _ in range(2):
                with pytest.raises(ValueError, match=f"/c holds {len(data)} bytes, which is not a counter") as error:
                    await use()
                assert len(str(error.value)) < 300
        assert (await stage.other.get("/c")).data == data
        await no_watch_stays(stage.server.hosts)
