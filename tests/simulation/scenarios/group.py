"""The group and the persistent ephemeral node: players that join, set their data, and leave."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import cast

import zkwire
from recipes import Group, Member, PersistentEphemeral
from tests.simulation.scenario import Scenario
from tests.simulation.scenarios.settling import Moment, passing
from tests.simulation.schedule import Step
from tests.simulation.stage import Player, Stage

_PATH = "/services/web"
_LOOK_EVERY = 0.5  # seconds
_SET_EVERY = 0.1


class GroupScenario(Scenario):
    """Steps: "join" (a member for so long), "keep" (a persistent ephemeral node), "look" (the members) and "pause".

    Each player has a member from the beginning, and waits at the end until it sees all members.

    Checked is: who has not left is shown in the end, with the data that was set last; no node of who has left stays.
    """

    name = "group"
    kinds = {"join": 2, "keep": 2, "pause": 1, "look": 1}
    count = (1, 5)
    durations = (0.0, 0.05, 1.0, 5.0)
    others = dict.fromkeys(("join", "keep"), (0.05, 0.2, 1.0))
    roles = {"hold": "join"}

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._present: dict[str, bytes] = {}  # the members that have joined for good
        self._settled, self._all_have_seen = Moment(), Moment()
        self._seen = 0  # players that have seen all others

    def equip(self, player: Player) -> asyncio.Task[None]:
        return asyncio.create_task(self._stay(player))

    async def do_look(self, player: Player, step: Step) -> None:
        members: dict[str, bytes] = {}
        with passing():
            members = await Group(player.zk, _PATH).members()
        if unknown := [name for name in members if name.rpartition("-")[0] not in self.stage.machines]:
            self.stage.fail(f"{player.actor.name} sees members that never were: {unknown}")

    async def do_join(self, player: Player, step: Step) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(step.amount), self._member(player, step.kind) as (_, member):
                for count in itertools.count(1):
                    # More and more slowly, as the hundredth change shows nothing new.
                    await asyncio.sleep(count * (step.other or _SET_EVERY))
                    with contextlib.suppress(zkwire.ConnectionLostError, zkwire.ServerError):
                        await member.set(str(next(self.numbers)).encode())

    do_keep = do_join

    @contextlib.asynccontextmanager
    async def _member(self, player: Player, kind: str) -> AsyncIterator[tuple[str, Member | PersistentEphemeral]]:
        """Be a member with a name of its own; a refusal that passes when it enters is tried again."""
        async with contextlib.AsyncExitStack() as stack:
            while True:
                name = f"{player.actor.name}-{next(self.numbers)}"
                member: Member | PersistentEphemeral
                with passing():
                    if kind == "join":
                        member = await stack.enter_async_context(await Group(player.zk, _PATH).join(name))
                    else:
                        kept = PersistentEphemeral(player.zk, f"{_PATH}/{name}")
                        member = await stack.enter_async_context(kept)
                    break
            yield name, member

    async def finish(self, player: Player) -> None:
        """Wait until all see all members."""
        await self.settled(player, _PATH)
        self._settled.come()
        await cast(asyncio.Task[None], player.tool)

    async def _stay(self, player: Player) -> None:
        """Join; when all is over, set the data, and watch the group until all players, and no others, are shown."""
        kind = player.rng.choice(["join", "keep"])
        async with self._member(player, kind) as (name, member):
            await self._settled.wait(player)
            data = str(next(self.numbers)).encode()
            await member.set(data)
            self._present[name] = data
            shown: dict[str, bytes] = {}
            following = asyncio.create_task(_follow(Group(player.zk, _PATH), shown))
            while len(self._present) < len(self.stage.players) or shown != self._present:
                await asyncio.sleep(_LOOK_EVERY)
            following.cancel()
            await asyncio.wait([following])
            self._seen += 1
            if self._seen == len(self.stage.players):
                self._all_have_seen.come()
            await self._all_have_seen.wait(player)

    def deletable(self) -> list[str]:
        return self.stage.ensemble.nodes_below(_PATH)

    def left(self) -> list[str]:
        return self.stage.ensemble.nodes_below(_PATH)


async def _follow(group: Group, shown: dict[str, bytes]) -> None:
    async with group.watch() as changes:
        async for members in changes:
            shown.clear()
            shown.update(members)
