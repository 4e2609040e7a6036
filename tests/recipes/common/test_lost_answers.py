"""Finding out what became of a write whose answer was lost, while the server refuses reads for a while."""

from collections.abc import Awaitable, Callable

import pytest

from recipes import Counter, ReadWriteLock
from tests.support.everywhere import Scene, scene
from tests.support.recipes import no_task_stays
from zkwire import ThrottledError

pytestmark = pytest.mark.limit(30)


async def count(stage: Scene) -> None:
    assert await Counter(stage.other, stage.path).add(1) == 1
    counter = Counter(stage.zk, stage.path)
    assert await counter.add(1) == 2
    assert await counter.get() == 2


async def downgrade(stage: Scene) -> None:
    lease = await ReadWriteLock(stage.zk, stage.path).write().acquire()
    reading = await lease.downgrade()
    await (await ReadWriteLock(stage.other, stage.path).read().acquire(within=5)).release()
    await reading.release()


@pytest.mark.parametrize("refused", ["sync", "getData"])
@pytest.mark.parametrize(("play", "cut", "nth"), [(count, "multi", 2), (downgrade, "setData", 1)])
async def test_no_search_gives_up_because_of_a_transient_refusal(
    play: Callable[[Scene], Awaitable[None]], cut: str, nth: int, refused: str
) -> None:
    """Pitfalls 10, 12 and 13: a refused read proves neither that a write was carried out nor that it was not."""
    async with scene() as stage, no_task_stays():
        session = stage.zk.session_id
        nth = 1 if refused == "sync" else nth  # the counter was read before
        with (
            stage.server.drop_after(cut, session=session) as dropped,
            stage.server.answering(refused, ThrottledError, session=session, nth=nth, times=2) as refusing,
        ):
            await play(stage)
            assert (dropped.hits, refusing.hits) == (1, 2)
