"""What scenarios need that look at everything at the end: the moment at which nothing more is done or goes wrong."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import zkwire
from tests.simulation.loop import Machine

if TYPE_CHECKING:
    from tests.simulation.stage import Player, Stage

_AGAIN_IN = 0.5  # seconds
_APART = 0.5  # seconds: players do not go on at exactly one moment


class Moment:
    """Something that happens once, and that tasks on any machine wait for without looking again and again.

    They go on shortly after it, each at a moment of its own.

    `has_come` is whether it has happened.
    """

    def __init__(self) -> None:
        self.has_come = False
        self._waiting: list[tuple[Machine, asyncio.Future[None]]] = []

    async def wait(self, player: "Player") -> None:
        """Wait until it has happened."""
        if not self.has_come:
            future: asyncio.Future[None] = player.machine.create_future()
            self._waiting.append((player.machine, future))
            await future
            await asyncio.sleep(player.rng.uniform(0.0, _APART))

    def come(self) -> None:
        """Record that it has happened now."""
        self.has_come = True
        while self._waiting:
            machine, future = self._waiting.pop()
            machine.call_soon(_wake, future)


class Settling:
    """Waits until all faults are over and all players have done their steps."""

    def __init__(self, stage: "Stage") -> None:
        self._stage = stage
        self._done: set[Player] = set()
        self._moment = Moment()

    async def wait(self, player: "Player") -> None:
        """Wait for that moment; to be called by each player, first of all in `finish`."""
        world, calm = self._stage.world, self._stage.schedule.calm
        self._done.add(player)
        if len(self._done) == len(self._stage.players):
            world.at(calm, self._moment.come)
        await self._moment.wait(player)


def is_passing(error: zkwire.ZooKeeperError) -> bool:
    """Return whether `error` is one that faults lead to, so that a step may end with it."""
    if isinstance(error, zkwire.ServerError):
        return error.is_transient
    return isinstance(error, zkwire.ConnectionLostError | zkwire.SessionExpiredError)


@contextlib.contextmanager
def passing(*further: type[Exception]) -> Iterator[None]:
    """Suppress the errors that faults lead to, so that a step may end with them, and `further` ones."""
    try:
        yield
    except further:
        pass
    except zkwire.ZooKeeperError as error:
        if not is_passing(error):
            raise


@contextlib.contextmanager
def refused(*further: type[Exception]) -> Iterator[None]:
    """Suppress transient refusals, and `further` errors."""
    try:
        yield
    except further:
        pass
    except zkwire.ServerError as error:
        if not error.is_transient:
            raise


async def synced(player: "Player", path: str) -> None:
    """Wait until the player's server has all that was written before.

    By a transaction that changes nothing, and not by a sync: a leader that was cut off answers syncs for up to a tick
    after the others have elected a new one.
    """
    while True:
        transaction = player.zk.transaction()
        transaction.check(path)
        with passing():
            try:
                await transaction.commit()
            except zkwire.TransactionError as refused:
                if not isinstance(refused.cause, zkwire.NoNodeError):
                    raise
            return
        await asyncio.sleep(_AGAIN_IN)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
