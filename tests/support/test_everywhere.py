"""The harness of cuts and cancellations, on the lock; and that it finds what a careless recipe leaves behind."""

import pytest

import zkwire
from tests.support import everywhere
from tests.support.everywhere import Scene, cancel_at_every_moment, cut_at_every_step


async def careless(stage: Scene) -> None:
    """Makes a node, and removes it only if nothing goes wrong."""
    path = await stage.zk.create(f"{stage.path}/node", make_parents=True)
    await stage.zk.exists(path)
    await stage.zk.delete(path)


async def test_a_node_that_a_cancellation_leaves_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(everywhere, "PATIENCE", 0.3)
    with pytest.raises(AssertionError, match="nodes stay") as caught:
        await cancel_at_every_moment(careless)
    assert "cancelled at" in str(caught.value.__notes__)


async def watching(stage: Scene) -> None:
    await stage.zk.exists_and_watch(stage.path, into=zkwire.WatchSet())


async def test_a_watch_that_stays_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(everywhere, "PATIENCE", 0.3)
    with pytest.raises(AssertionError, match="watches stay"):
        await cut_at_every_step(watching)
