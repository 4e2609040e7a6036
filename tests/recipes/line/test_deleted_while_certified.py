"""A node that is deleted while its client makes the session certain again: nothing is acquired by it."""

from collections.abc import Callable
from typing import Any

import pytest

from recipes import Lock, Semaphore, TryLock
from recipes.line.locking import Locking
from tests.support.everywhere import nothing_stays, scene
from zkwire import Client, join_path

KINDS: dict[str, Callable[[Client, str], Locking[Any]]] = {
    "lock": lambda zk, path: Lock(zk, path),
    "semaphore": lambda zk, path: Semaphore(zk, path, 1),
    "try lock": lambda zk, path: TryLock(zk, join_path(path, "it")),
}


@pytest.mark.parametrize("how", ["acquire", "try_acquire"])
@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())
async def test_a_node_that_is_deleted_meanwhile_is_not_owned(
    make: Callable[[Client, str], Locking[Any]], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene() as stage:
        certify, deleted = stage.zk.certify, list[str]()

        async def late() -> None:
            for name in await stage.other.get_children(stage.path):
                deleted.append(join_path(stage.path, name))
                await stage.other.delete(deleted[-1])
            monkeypatch.undo()
            await certify()

        monkeypatch.setattr(stage.zk, "certify", late)
        monkeypatch.setattr(stage.zk, "is_certain", lambda _: False)
        lease = await getattr(make(stage.zk, stage.path), how)()
        assert len(deleted) == 1
        assert (await stage.other.get(lease.path)).stat.czxid == lease.token
        await lease.release()
        await nothing_stays(stage)
