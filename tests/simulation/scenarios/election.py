"""The election: candidates that lead for one term or several, and observers."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final, cast

import zkwire
from recipes import Election, LockLostError
from tests.simulation.scenarios.lock import HeldScenario
from tests.simulation.scenarios.settling import Moment, passing, refused
from tests.simulation.schedule import Step
from tests.simulation.stage import Player, Stage

_PATH: Final = "/election"
_LAST: Final = b"the last leader"
_LOOK_EVERY: Final = 0.3  # seconds


class _Candidate:
    """What a player needs.

    `seen` is the data that it has observed last; `greatest`, the greatest token; `has_seen_last`, whether it has seen
    the last leader.
    """

    def __init__(self, player: Player, on_last: Callable[[], None]) -> None:
        self._player = player
        self._on_last = on_last
        self.election = Election(player.zk, _PATH)
        self.seen: bytes | None = None
        self.greatest = 0
        self.has_seen_last = False
        self.observing: asyncio.Task[None] | None = None

    def observe(self) -> None:
        """Begin to observe, unless that has begun."""
        if self.observing is None:
            self.observing = asyncio.create_task(self._observe())

    async def _observe(self) -> None:
        async with self.election.observe() as stream:
            while True:
                with refused():
                    try:
                        async for self.seen in stream:
                            self._check()
                    except zkwire.NoAuthError:
                        await asyncio.sleep(_LOOK_EVERY)  # a stranger's node comes first

    def _check(self) -> None:
        if self.seen == _LAST:
            self.has_seen_last = True
            self._on_last()
        if not self.seen or not self.seen.isdigit():
            return  # the last one, or what an operator has written
        token = int(self.seen)
        if token < self.greatest:
            name, stage = self._player.actor.name, self._player.stage
            stage.fail(f"{name} observes the leader of the token {token:#x} after that of {self.greatest:#x}")
        self.greatest = token


class ElectionScenario(HeldScenario):
    """The steps of HeldScenario, and "observe", "terms", which leads twice, "lead", "run" and "candidates".

    A leader writes its token where observers see it: they never see a smaller one after a greater one.  At the end the
    first player leads once more, all players must see this, and then that there is no leader.
    """

    name = "election"
    lines = (_PATH,)

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._all_have_seen = Moment()

    @classmethod
    def steps(cls, rng: Random, tick: float, durations: Sequence[float] | None = None) -> list[Step]:
        steps = super().steps(rng, tick)
        if rng.random() < 0.5:
            steps.insert(0, Step("observe"))
        if rng.random() < 0.5:
            kind = rng.choice(["terms", "terms", "cancel", "lead", "run", "candidates"])
            seconds = rng.choice([0.0, 0.2, 1.0]) * tick * rng.uniform(0.5, 1.5)
            step = Step("terms", seconds, turns=int(rng.expovariate(0.1))) if kind == "cancel" else Step(kind, seconds)
            steps.insert(rng.randrange(len(steps) + 1), step)
        return steps

    def equip(self, player: Player) -> _Candidate:
        return _Candidate(player, self._has_seen_the_last)

    def locking(self, player: Player, what: str) -> Election:
        return cast(_Candidate, player.tool).election

    async def do_observe(self, player: Player, step: Step) -> None:
        cast(_Candidate, player.tool).observe()

    async def do_lead(self, player: Player, step: Step) -> None:
        with suppress(LockLostError):
            async with self.locking(player, "").lead() as term:
                await self.body(player, term, "", step.amount)

    async def do_run(self, player: Player, step: Step) -> None:
        await self.locking(player, "").run(lambda term: self.body(player, term, "", step.amount))

    async def do_candidates(self, player: Player, step: Step) -> None:
        with passing(zkwire.NoAuthError):  # a foreign node
            leader = await self.locking(player, "").leader()
            if leader and leader.session and leader.path in self.stage.ensemble.strangers:
                self.stage.fail(f"{player.actor.name} takes {leader.path} for the leader")
            await self.locking(player, "").candidates()

    async def do_terms(self, player: Player, step: Step) -> None:
        count = 0
        async with self.locking(player, "").terms() as terms:
            async for term in terms:
                with suppress(LockLostError):  # where the process stops before the body begins
                    async with term:
                        await self.body(player, term, "", step.amount)
                count += 1
                if count == 2:
                    break

    async def body(self, player: Player, lease: Any, what: str, seconds: float) -> None:
        with self.watched(player, lease, what):
            with refused(zkwire.ConnectionLostError, zkwire.NoNodeError):
                await lease.set(b"%d" % lease.token)  # whether it was written, and the term is lost, shows later
            await asyncio.sleep(seconds)

    async def finish(self, player: Player) -> None:
        """When all faults are over, let the first player lead, until all players have seen it; then see no leader."""
        candidate = cast(_Candidate, player.tool)
        candidate.observe()
        assert candidate.observing is not None
        candidate.observing.add_done_callback(lambda task: None if task.cancelled() else task.result())
        await self.settled(player)
        if player is self.stage.players[0]:
            async with Election(player.zk, _PATH, _LAST).terms() as terms:
                async for term in terms:
                    async with term:
                        await self._all_have_seen.wait(player)
                    if self._all_have_seen.has_come:
                        break
        await self._all_have_seen.wait(player)
        while candidate.seen is not None:
            await asyncio.sleep(_LOOK_EVERY)
        candidate.observing.cancel()
        with suppress(asyncio.CancelledError):
            await candidate.observing

    def _has_seen_the_last(self) -> None:
        if all(cast(_Candidate, each.tool).has_seen_last for each in self.stage.players):
            self._all_have_seen.come()
