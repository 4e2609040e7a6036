"""Creates whose lost answers the client recovers: one node for each that returns, none for one that was cancelled."""

import asyncio
import contextlib
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final, Literal

import zkwire
from tests.simulation.loop import Machine
from tests.simulation.scenario import Scenario
from tests.simulation.scenarios.settling import is_passing, synced
from tests.simulation.schedule import Step
from tests.simulation.stage import Player, Stage
from zkwire import Create, Stat

_PATH: Final = "/made"


@dataclass(eq=False, slots=True)
class _Made:
    """One create: by which process, in which session it can have been sent (0: in several), and what was answered."""

    player: Player
    machine: Machine
    session_id: int
    is_ephemeral: bool
    outcome: Literal["unknown", "made", "not made", "cancelled"] = "unknown"
    path: str = ""


class ProtectedScenario(Scenario):
    """Steps: "ephemeral" and "persistent" (`protected=True`), "named" (`recover=True`, a name of its own), "cancelled"
    (a protected create that is cancelled after so long; ephemeral if `other` is 1), "several" (beside one another),
    "pipeline" and "pause".

    Checked is: a create that returns has made exactly one node, at the path that it returns; one that fails because it
    was not carried out has made none, and a cancelled one neither, while its session lasts; a protected create never
    fails because a connection was lost.
    """

    name = "protected-create"
    players = (1, 3)
    kinds = dict.fromkeys(("ephemeral", "persistent", "named", "several", "pipeline", "pause"), 1.0) | {"cancelled": 2}
    count = (3, 11)
    durations = (0.0, 0.001, 0.01, 0.2, 1.0)
    others = {"cancelled": (0.0, 1.0)}
    roles = {"create": "ephemeral"}

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._made: dict[bytes, _Made] = {}  # by the data
        stage.ensemble.preset([_PATH])

    def equip(self, player: Player) -> None:
        return None

    async def do_ephemeral(self, player: Player, step: Step) -> None:
        await self._create(player, is_ephemeral=True)

    async def do_persistent(self, player: Player, step: Step) -> None:
        await self._create(player, is_ephemeral=False)

    async def do_named(self, player: Player, step: Step) -> None:
        data, made = self._begin(player, is_ephemeral=True)
        creating = player.zk.create_and_stat(f"{_PATH}/{data.decode()}", data, ephemeral=True, recover=True)
        await self._judge(made, creating)

    async def do_several(self, player: Player, step: Step) -> None:
        await asyncio.gather(*(self._create(player, is_ephemeral=bool(at % 2)) for at in range(4)))

    async def do_cancelled(self, player: Player, step: Step) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(step.amount):
                await self._create(player, is_ephemeral=step.other == 1)

    async def _create(self, player: Player, *, is_ephemeral: bool) -> None:
        data, made = self._begin(player, is_ephemeral=is_ephemeral)
        creating = player.zk.create_and_stat(
            f"{_PATH}/n-", data, ephemeral=is_ephemeral, sequential=is_ephemeral, protected=True
        )
        await self._judge(made, creating, is_protected=True)

    def _begin(self, player: Player, *, is_ephemeral: bool) -> tuple[bytes, _Made]:
        data = f"{player.actor.name}-{next(self.numbers)}".encode()
        made = self._made[data] = _Made(player, player.machine, player.zk.session_id, is_ephemeral)
        return data, made

    async def _judge(self, made: _Made, creating: Awaitable[tuple[str, Stat]], *, is_protected: bool = False) -> None:
        try:
            made.path, stat = await creating
        except asyncio.CancelledError:
            made.outcome = "cancelled"
            if made.player.zk.session_id != made.session_id:
                made.session_id = 0
            raise
        except zkwire.ZooKeeperError as error:
            self._failed(made, error, is_protected=is_protected)
        else:
            self._succeeded(made, stat)

    def _succeeded(self, made: _Made, stat: Stat) -> None:
        made.outcome = "made"
        if made.is_ephemeral:
            made.session_id = stat.ephemeral_owner

    def _failed(self, made: _Made, error: Exception, *, is_protected: bool) -> None:
        if not isinstance(error, zkwire.ZooKeeperError) or not is_passing(error):
            raise error
        if isinstance(error, zkwire.ConnectionLostError):
            if is_protected or error.maybe_applied:
                self.stage.fail(f"{made.player.actor.name}: a create was not recovered: {error!r}")
            made.outcome = "not made"
        elif isinstance(error, zkwire.ServerError) and "may have been" not in str(error):
            made.outcome = "not made"

    async def do_pipeline(self, player: Player, step: Step) -> None:
        """Create two nodes and list the parent in one write."""
        begun = [self._begin(player, is_ephemeral=is_ephemeral) for is_ephemeral in (True, False)]
        creates = [Create(f"{_PATH}/p-", data, ephemeral=made.is_ephemeral, protected=True) for data, made in begun]
        try:
            *answers, _ = await player.zk.pipeline([*creates, zkwire.GetChildren(_PATH)])
        except zkwire.ZooKeeperError as error:
            if not is_passing(error):
                raise
            return
        for (_, made), answer in zip(begun, answers, strict=True):
            if isinstance(answer, Exception):
                self._failed(made, answer, is_protected=False)
            else:
                made.path, stat = answer
                self._succeeded(made, stat)

    async def finish(self, player: Player) -> None:
        """When all is over, compare what this process was answered with the nodes that exist."""
        await self.settled(player, _PATH)
        nodes = self._nodes()
        await synced(player, _PATH)  # if the ensemble has ended the session, the client knows it after this
        for data, made in self._made.items():
            if made.machine is player.machine and (not made.is_ephemeral or made.session_id == player.zk.session_id):
                self._compare(data, made, nodes)

    def _compare(self, data: bytes, made: _Made, nodes: list[tuple[str, bytes]]) -> None:
        paths = [path for path, found in nodes if found == data]
        if (
            len(paths) > 1
            or (made.outcome == "made" and paths != [made.path])
            or (made.outcome == "not made" and paths)
        ):
            self.stage.fail(f"the create of {data!r} ({made.outcome}, {made.path}) has made {paths}")

    def left(self) -> list[str]:
        """Return the nodes of cancelled creates whose sessions have not ended."""
        found = []
        for path, data in self._nodes():
            made = self._made[data]
            player = made.player
            is_here = made.machine is player.machine and made.session_id == player.zk.session_id
            if made.outcome == "cancelled" and is_here:
                found.append(path)
        return found

    def _nodes(self) -> list[tuple[str, bytes]]:
        tree = max(self.stage.ensemble.servers, key=lambda server: server.applied).replica.tree
        return [(path, tree.nodes[path].data or b"") for path in self.stage.ensemble.nodes_below(_PATH)]

    def ended(self) -> None:
        nodes = self._nodes()
        for data, made in self._made.items():
            if not made.is_ephemeral:
                self._compare(data, made, nodes)
