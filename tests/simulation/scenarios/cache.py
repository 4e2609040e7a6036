"""The cache: players that mirror a tree while all of them change it."""

import asyncio
import contextlib
from functools import partial
from random import Random
from typing import Final, cast

import zkwire
from recipes import Cache
from tests.simulation.scenario import Scenario
from tests.simulation.scenarios.settling import passing
from tests.simulation.schedule import Step
from tests.simulation.stage import Player, Stage
from zkwire import Node

_ROOT: Final = "/data"
_NODES: Final = [f"{_ROOT}/{name}" for name in ("a", "a/b", "a/b/c", "a/d", "e", "e/f")]
_LOOK_EVERY: Final = 0.5  # seconds; besides, a follower looks at each change


class CacheScenario(Scenario):
    """Steps: "mirror" for so long, "set", "create", "delete" and "pause"; a further cache of each
    player lasts from the beginning to the end.

    Checked is: a cache shows no state of a node that is older than one that it has shown; a node is shown below one
    that is shown; `changes` gives each change from the state that it has given before, and has given the present one in
    the end; in the end the cache is the tree.
    """

    name = "cache"
    players = (1, 3)
    kinds = {"set": 4, "create": 4, "delete": 1, "pause": 4}
    lists = (1,)
    durations = (0.001, 0.1, 1.0)
    others = dict.fromkeys(("set", "create", "delete"), range(len(_NODES)))
    may_end = staticmethod(partial(passing, zkwire.NoNodeError, zkwire.NodeExistsError, zkwire.NotEmptyError))

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._is_settled = False
        stage.ensemble.preset([_ROOT, *_NODES[:3]])

    @classmethod
    def tasks(cls, rng: Random, tick: float) -> list[list[Step]]:
        mirroring = [Step("mirror", rng.choice([0.1, 2.0, 10.0]) * tick) for _ in range(rng.randrange(3))]
        return [*super().tasks(rng, tick), *([mirroring] if mirroring else [])]

    def equip(self, player: Player) -> asyncio.Task[None]:
        return asyncio.create_task(self._mirror(player, None))

    async def do_mirror(self, player: Player, step: Step) -> None:
        await self._mirror(player, asyncio.get_running_loop().time() + step.amount)

    async def do_set(self, player: Player, step: Step) -> None:
        await player.zk.set(_NODES[int(step.other)], self._data())

    async def do_create(self, player: Player, step: Step) -> None:
        await player.zk.create(_NODES[int(step.other)], self._data())

    async def do_delete(self, player: Player, step: Step) -> None:
        await player.zk.delete_tree(_NODES[int(step.other)])

    def _data(self) -> bytes:
        return str(next(self.numbers)).encode()

    async def _mirror(self, player: Player, until: float | None) -> None:
        """Mirror the tree until then, or until all is over and the mirror is the tree."""
        async with contextlib.AsyncExitStack() as stack:
            while True:
                with passing():  # such as the end of the session while it is entered
                    cache = await stack.enter_async_context(Cache(player.zk, _ROOT))
                    break
            follower = _Follower(self.stage, player, cache)
            following = asyncio.create_task(follower.follow())
            while until is None or asyncio.get_running_loop().time() < until:
                follower.look()
                if until is None and self._is_settled and follower.is_up_to_date():
                    break
                await asyncio.sleep(_LOOK_EVERY)
            if following.done():
                self.stage.fail(f"{player.actor.name}: the changes of the cache have ended: {following!r}")
            following.cancel()
            await asyncio.wait([following])

    async def finish(self, player: Player) -> None:
        """Wait until the mirror that the player has had from the beginning, and a new one, are right."""
        await self.settled(player, _ROOT)
        self._is_settled = True
        await cast(asyncio.Task[None], player.tool)
        await self._mirror(player, None)


class _Follower:
    """Checks what one cache shows, and what it reports as changes."""

    def __init__(self, stage: Stage, player: Player, cache: Cache) -> None:
        self._stage, self._player, self._cache = stage, player, cache
        self._newest: dict[str, int] = {}  # the greatest zxid of a state of each node that was shown
        self._reported: dict[str, Node] = {}
        self._changes = cache.changes(initial=True)

    async def follow(self) -> None:
        """Check that each change begins with the state that was reported before."""
        async for change in self._changes:
            if _state(change.before) != _state(self._reported.get(change.path)):
                self._fail(f"reports a change of {change.path} from a state that it has not reported: {change}")
            if change.after is None:
                self._reported.pop(change.path, None)
            else:
                self._reported[change.path] = change.after
            self.look()

    def look(self) -> None:
        """Check what the cache shows at this moment."""
        for path in (_ROOT, *_NODES):
            node = self._cache.get(path)
            if node is None:
                continue
            newest = max(node.stat.czxid, node.stat.mzxid, node.stat.pzxid)
            if newest < self._newest.get(path, 0):
                self._fail(f"shows {path} as it was before")
            self._newest[path] = newest
            parent, _, name = path.rpartition("/")
            if path != _ROOT and name not in (self._cache.children(parent) or ()):
                self._fail(f"shows {path}, and not below its parent")

    def is_up_to_date(self) -> bool:
        """Return whether the cache, and what it has reported, is the tree of the server that has come furthest."""
        tree = max(self._stage.ensemble.servers, key=lambda server: server.applied).replica.tree
        for path in (_ROOT, *_NODES):
            there, node, reported = tree.nodes.get(path), self._cache.get(path), self._reported.get(path)
            expected = None if there is None else (there.czxid, there.mzxid, there.data or b"")
            if not _state(node) == _state(reported) == expected:
                return False
            if node is not None and there is not None and node.stat.pzxid != there.pzxid:
                return False
        return self._cache.is_current

    def _fail(self, what: str) -> None:
        self._stage.fail(f"{self._player.actor.name}: the cache {what}")


def _state(node: Node | None) -> tuple[int, int, bytes] | None:
    """Return what a change is a change of; a child that comes or goes changes the Stat alone."""
    return None if node is None else (node.stat.czxid, node.stat.mzxid, node.data)
