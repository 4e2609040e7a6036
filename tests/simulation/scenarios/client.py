"""The bare client: reads, writes and watches on shared nodes, without a recipe."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, cast

import zkwire
from tests.simulation.scenario import Scenario
from tests.simulation.scenarios.settling import passing
from tests.simulation.schedule import Step
from tests.simulation.stage import Player, Stage
from zkwire import Watch

_ROOT: Final = "/data"
_PAUSE: Final = 0.1  # seconds
_LARGE: Final = 100_000  # bytes for each second of a step
# Long names: the client's limit for a request is so small (see `options`) that it sets its watches again in chunks.
_NODES: Final = [f"{_ROOT}/{'x' * 150}-{index}" for index in range(12)]


@dataclass(eq=False)
class _Known:
    """What one player knows.

    `seen` is the newest mzxid of each node that the session has shown; `watches` are the watches that have not fired,
    with the mzxid for which they were set.
    """

    session_id: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    watches: list[tuple[str, int, Watch]] = field(default_factory=list)


class ClientScenario(Scenario):
    """Steps: "get", "set", "watch", "watch-all", "append", "pause", "reads" (the small ones), "ACL", "stream" (for so
    long) and "large" (data, in some schedules); at the end each player reads all nodes.

    Checked is: a read shows nothing older than what the session has shown before; a watch has fired before a read shows
    the change; a write whose answer says that it was made, or not made, was made once, or not at all, and one whose
    answer was lost at most once.
    """

    name = "client"
    players = (1, 3)
    kinds = {"get": 3, "set": 3, "watch": 2, "append": 2, "pause": 4, "reads": 1, "ACL": 0.5, "stream": 1, "large": 0.1}
    count = (3, 15)
    durations = (0.01, 0.2, 1.0, 3.0)
    others = dict.fromkeys(kinds, range(12))
    roles = {"create": "append"}
    may_end = staticmethod(passing)

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._made: dict[str, str] = {}  # what became of each append, by the data that it has written
        self._paths: dict[str, str] = {}  # what the answer to it said
        stage.ensemble.preset([_ROOT, *_NODES, f"{_ROOT}/log"])

    def options(self) -> dict[str, Any]:
        steps = [step for actor in self.stage.schedule.actors for task in actor.tasks for step in task]
        return {} if any(step.kind == "large" for step in steps) else {"request_limit": 1024}

    def writable(self) -> list[str]:
        return _NODES

    @classmethod
    def steps(cls, rng: Random, tick: float, durations: Sequence[float] | None = None) -> list[Step]:
        return [*[Step("watch-all")] * rng.randint(0, 1), *super().steps(rng, tick)]

    def equip(self, player: Player) -> _Known:
        return _Known()

    async def do_get(self, player: Player, step: Step) -> None:
        path = _node(step)
        self._shown(player, path, (await player.zk.get(path))[1].mzxid, player.zk.session_id)

    async def do_set(self, player: Player, step: Step) -> None:
        await self._set(player, _node(step), b"x")

    async def do_large(self, player: Player, step: Step) -> None:
        await self._set(player, _node(step), bytes(int(_LARGE * step.amount)))

    async def _set(self, player: Player, path: str, data: bytes) -> None:
        self._shown(player, path, (await player.zk.set(path, data)).mzxid, player.zk.session_id)

    async def do_watch(self, player: Player, step: Step) -> None:
        await self._watch(player, _node(step))

    async def do_watch_all(self, player: Player, step: Step) -> None:
        for path in _NODES:
            await self._watch(player, path)

    async def do_ACL(self, player: Player, step: Step) -> None:
        await player.zk.set_acl(_node(step), zkwire.OPEN_ACL)

    async def _watch(self, player: Player, path: str) -> None:
        node, watch = await player.zk.get_and_watch(path)
        self._shown(player, path, node.stat.mzxid, player.zk.session_id)
        cast(_Known, player.tool).watches.append((path, node.stat.mzxid, watch))

    async def do_reads(self, player: Player, step: Step) -> None:
        """Read what is not asked for elsewhere."""
        zk, path = player.zk, _node(step)
        await zk.ping()
        stat, (acl, _), names = await zk.exists(path), await zk.get_acl(path), await zk.get_children(_ROOT)
        if stat is None or list(acl) != list(zkwire.OPEN_ACL) or len(names) != len(_NODES) + 1:
            self.stage.fail(f"{player.actor.name} has read {stat}, {acl} and {names}")
        if await zk.get_ephemerals() or await zk.count_descendants(_ROOT) < len(names):
            self.stage.fail(f"{player.actor.name} has ephemeral nodes, or {_ROOT} has too few nodes below it")

    async def do_stream(self, player: Player, step: Step) -> None:
        """Follow a node, and the children of the log, for so long."""
        data, children = player.zk.data(_node(step)), player.zk.children(f"{_ROOT}/log")
        newest = most = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(step.amount), data, children:
                async for node in data:
                    if node is None or node.stat.mzxid < newest:
                        self.stage.fail(f"{player.actor.name}: a stream shows {node} after {newest:#x}")
                        return
                    newest = node.stat.mzxid
                    names = await anext(children)
                    if names is None or len(names) < most:
                        self.stage.fail(f"{player.actor.name}: a stream shows {names} after {most} children")
                        return
                    most = len(names)

    async def do_append(self, player: Player, step: Step) -> None:
        data = f"{player.actor.name} {len(self._made)}"
        self._made[data] = "unknown"
        try:
            self._paths[data] = await player.zk.create(f"{_ROOT}/log/w-", data.encode(), sequential=True)
        except zkwire.ConnectionLostError as error:
            self._made[data] = "unknown" if error.maybe_applied else "no"
            raise
        except zkwire.ServerError:
            self._made[data] = "no"
            raise
        self._made[data] = "yes"

    async def finish(self, player: Player) -> None:
        """When all faults are over, read every node, and give up what is left of the watches."""
        stage = self.stage
        await asyncio.sleep(max(0.0, stage.schedule.calm - stage.world.now))
        for path in _NODES:
            while True:
                with passing():
                    await player.zk.sync(path)
                    node = await player.zk.get(path)
                    break
                await asyncio.sleep(_PAUSE)  # its clock is fast: the last fault is not over yet
            self._shown(player, path, node.stat.mzxid, player.zk.session_id)
        for _, _, watch in cast(_Known, player.tool).watches:
            watch.cancel()

    def _shown(self, player: Player, path: str, mzxid: int, session_id: int) -> None:
        """Record what an answer has shown, and check it against what was known."""
        known = cast(_Known, player.tool)
        if session_id != known.session_id:
            known.session_id = session_id
            known.seen.clear()
        if mzxid < known.seen.get(path, 0):
            self.stage.fail(f"{player.actor.name} has read a node as it was before: {mzxid:#x} of {path[-3:]}")
        known.seen[path] = mzxid
        for watched, since, watch in known.watches:
            if watched == path and mzxid > since and not watch.done():
                self.stage.fail(
                    f"{player.actor.name}: no event for the change of {path[-3:]} from {since:#x} to {mzxid:#x}"
                )
        known.watches = [each for each in known.watches if not each[2].done()]

    def ended(self) -> None:
        tree = max(self.stage.ensemble.servers, key=lambda server: server.applied).replica.tree
        for data, path in self._paths.items():
            if path not in tree.nodes or tree.nodes[path].data != data.encode():
                self.stage.fail(f"the client was told that the write {data!r} made {path}")
        logged = [tree.nodes[path].data or b"" for path in self.stage.ensemble.nodes_below(f"{_ROOT}/log")]
        for data, was_made in self._made.items():
            count = logged.count(data.encode())
            if count > 1 or (was_made == "yes" and count != 1) or (was_made == "no" and count):
                self.stage.fail(f"the write {data!r} was made {count} times; the client was told: {was_made}")


def _node(step: Step) -> str:
    return _NODES[int(step.other)]
